from __future__ import annotations

from pathlib import Path

import pytest

from cordwood.format.compression import Codec
from cordwood.format.legacy import LegacyBatch, build_legacy_wrapper
from cordwood.format.record_batch import Record
from cordwood.model.errors import CorruptError
from cordwood.surfaces.cli.dump_log import dump_log
from cordwood.surfaces.dump.log import GapFinder, messages_of, snapshot_id
from cordwood.surfaces.dump.output import Findings
from support.log_builder import NOW_MS, LogBuilder, write_log_dir


def test_names_of_metadata_snapshots() -> None:
    assert snapshot_id("00000000000000000933-0000000002.checkpoint") == (933, 2)
    assert snapshot_id("00000000000000000933-0000000002.checkpoint.deleted") == (933, 2)
    with pytest.raises(CorruptError):
        snapshot_id("933-2.checkpoint")


def test_a_log_is_expected_to_begin_at_zero_and_leave_nothing_out() -> None:
    findings = Findings()
    gaps = GapFinder("f", findings)
    for offset in (3, 4, 6):
        gaps.saw(offset)
    assert dict(findings.gaps.items()) == {"f": {-1: 3, 4: 6}}


def test_old_messages_come_with_what_holds_them() -> None:
    records = [Record(5, 1, b"a", None), Record(6, 2, None, b"b")]
    batch = LegacyBatch.parse(build_legacy_wrapper(records, magic=1, codec=Codec.GZIP))
    found = list(messages_of(batch))
    assert [record for record, _ in found] == records
    assert all(message is not None and message.is_valid() for _, message in found)


@pytest.mark.parametrize("codec", [codec for codec in Codec if codec])
def test_a_record_over_the_bound_ends_a_file_with_its_place(
    tmp_path: Path, capfdbinary: pytest.CaptureFixture[bytes], codec: Codec
) -> None:
    log = LogBuilder("t-0")
    log.batch([(b"k", b"v")], codec=codec, timestamp=NOW_MS)
    position = log.active.size_bytes
    log.batch([(b"k", bytes(50_000))], codec=codec)
    file = write_log_dir(tmp_path, [log]) / "t-0" / f"{0:020d}.log"
    arguments = ["--deep-iteration", "--files", str(file), "--max-decompressed-message-bytes"]
    assert dump_log([*arguments, "40000"]) == 1
    out, err = capfdbinary.readouterr()
    assert [line for line in out.splitlines() if line.startswith(b"| offset: ")] == [
        b"| offset: 0 CreateTime: 1700000000000 keySize: 1 valueSize: 1 sequence: -1 headerKeys: []"
    ]
    assert err.decode().startswith(
        f"cordwood dump-log: {file}: in the batch of offset 1 at byte {position}: "
    )
    assert "40000" in err.decode()
    assert dump_log([*arguments, "60000"]) == 0
    assert b"valueSize: 50000" in capfdbinary.readouterr().out
    # Headers are read without any bound.
    assert dump_log(["--files", str(file), "--max-decompressed-message-bytes", "1"]) == 0
