from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from cordwood import __version__
from cordwood.format.control_record import ControlType, build_end_txn_marker
from cordwood.format.group_metadata import GROUP_RECORDS
from cordwood.format.metadata_records import encode_metadata_record
from cordwood.format.offset_index import build_offset_index
from cordwood.format.producer_snapshot import ProducerEntry, build_producer_snapshot
from cordwood.format.record_batch import Header, Record, build_batch
from cordwood.format.time_index import build_time_index
from cordwood.format.transaction_index import AbortedTransaction, build_transaction_index
from cordwood.surfaces.cli.dump_log import dump_log

BASE = "00000000000000000000"
TS = 1700000000000
BATCH = build_batch(
    [Record(0, TS, b"k", b"v1", (Header("h", None),)), Record(1, TS + 5, None, None)],
    base_offset=0,
    partition_leader_epoch=0,
)


def dump(
    capsys: pytest.CaptureFixture[str], path: Path, *flags: str, code: int = 0
) -> tuple[list[str], list[str]]:
    assert dump_log(["--files", str(path), *flags]) == code
    captured = capsys.readouterr()
    return captured.out.splitlines(), captured.err.splitlines()


def write(directory: Path, suffix: str, data: bytes) -> Path:
    path = directory / (BASE + suffix)
    path.write_bytes(data)
    return path


def test_batches_of_a_log(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = write(tmp_path, ".log", BATCH + BATCH[:20])
    out, err = dump(capsys, path)
    assert out == [
        f"Dumping {path}",
        "Log starting offset: 0",
        (
            "baseOffset: 0 lastOffset: 1 count: 2 baseSequence: -1 lastSequence: -1 producerId: -1 "
            "producerEpoch: -1 partitionLeaderEpoch: 0 isTransactional: false isControl: false "
            "deleteHorizonMs: OptionalLong.empty position: 0 CreateTime: 1700000000005 "
            f"size: {len(BATCH)} magic: 2 compresscodec: none "
            f"crc: {int.from_bytes(BATCH[17:21], 'big')} isvalid: true"
        ),
        f"Found 20 invalid bytes at the end of {path.name}",
    ]
    assert err == []


def test_records_with_and_without_data(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = write(tmp_path, ".log", BATCH)
    first = "| offset: 0 CreateTime: 1700000000000 keySize: 1 valueSize: 2 sequence: -1"
    second = "| offset: 1 CreateTime: 1700000000005 keySize: -1 valueSize: -1 sequence: -1"
    assert dump(capsys, path, "--deep-iteration")[0][3:] == [
        f"{first} headerKeys: [h]",
        f"{second} headerKeys: []",
    ]
    assert dump(capsys, path, "--print-data-log")[0][3] == (
        f"{first} headerKeys: [h] key: k payload: v1"
    )
    skipped = dump(capsys, path, "--print-data-log", "--skip-record-metadata")[0][3:]
    assert skipped == ["| key: k payload: v1", ""]


def test_gaps_are_told_at_the_end(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = write(tmp_path, ".log", BATCH + build_batch([Record(7, 0, None, b"")], base_offset=7))
    assert dump(capsys, path, "--deep-iteration")[1] == [
        f"Non-consecutive offsets in {path}",
        "  1 is followed by 7",
    ]


def test_markers_and_topic_decoders(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    marker = build_end_txn_marker(
        offset=0,
        timestamp=1,
        producer_id=1,
        producer_epoch=0,
        control_type=ControlType.ABORT,
        coordinator_epoch=4,
    )
    path = write(tmp_path, ".log", marker)
    assert dump(capsys, path, "--deep-iteration")[0][3].endswith(
        "headerKeys: [] endTxnMarker: ABORT coordinatorEpoch: 4"
    )
    key = GROUP_RECORDS.encode_key(1, {"group": "g", "topic": "t", "partition": 0})
    value = GROUP_RECORDS.encode_value(1, 3, {"offset": 5, "commitTimestamp": 9})
    records = [Record(0, 1, key, value), Record(1, 1, key, None), Record(2, 1, b"\x7f\xff", b"")]
    write(tmp_path, ".log", build_batch(records, base_offset=0))
    lines = dump(capsys, path, "--offsets-decoder", "--skip-record-metadata")[0][3:]
    key_text = '| key: {"type":"1","data":{"group":"g","topic":"t","partition":0}}'
    assert lines == [
        (
            f'{key_text} payload: {{"version":"3","data":{{"offset":5,"leaderEpoch":-1,'
            '"metadata":"","commitTimestamp":9}}'
        ),
        f"{key_text} payload: <DELETE>",
        "| key: Unknown record type 32767 at offset 2, skipping.",
    ]
    metadata = encode_metadata_record("RemoveTopicRecord", 0, {})
    write(tmp_path, ".log", build_batch([Record(0, 1, None, metadata)], base_offset=0))
    lines = dump(capsys, path, "--cluster-metadata-decoder", "--skip-record-metadata")[0][3:]
    assert lines == [
        (
            '| payload: {"type":"REMOVE_TOPIC_RECORD","version":0,'
            '"data":{"topicId":"AAAAAAAAAAAAAAAAAAAAAA"}}'
        )
    ]


def test_indexes_are_compared_with_their_log(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write(tmp_path, ".log", BATCH)
    index = write(tmp_path, ".index", build_offset_index([(1, 0)], 0) + bytes(8))
    times = write(tmp_path, ".timeindex", build_time_index([(TS + 5, 1)], 0))
    assert dump(capsys, index) == ([f"Dumping {index}", "offset: 1 position: 0"], [])
    assert dump(capsys, times) == ([f"Dumping {times}", f"timestamp: {TS + 5} offset: 1"], [])
    for path in (index, times):
        assert dump(capsys, path, "--verify-index-only")[0] == [f"Dumping {path}"]
        passed = f"{path} passed sanity check."
        assert dump(capsys, path, "--index-sanity-check")[0][1] == passed
    write(tmp_path, ".index", build_offset_index([(2, 0)], 0))
    write(tmp_path, ".timeindex", build_time_index([(TS + 4, 1), (TS + 9, 3)], 0))
    assert dump(capsys, index)[1] == [
        f"Mismatches in :{index}",
        "  Index offset: 2, log offset: 1",
    ]
    assert dump(capsys, times)[1] == [
        f"Found timestamp mismatch in :{times}",
        f"  Index timestamp: {TS + 4}, log timestamp: {TS + 5}",
        f"The following indexed offsets are not found in :{times}",
        "Indexed offset: 3, found log offset: -1",
    ]
    write(tmp_path, ".index", b"")
    assert dump(capsys, index)[0][1] == f"{index} is empty."


def test_snapshots_and_aborted_transactions(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    entries = [
        ProducerEntry(producer_id=1, producer_epoch=2, last_sequence=1, last_offset=9,
                      offset_delta=3, timestamp=5, coordinator_epoch=-1,
                      current_txn_first_offset=6),
        ProducerEntry(producer_id=2, producer_epoch=0),
    ]  # fmt: skip
    path = write(tmp_path, ".snapshot", build_producer_snapshot(entries))
    assert dump(capsys, path)[0][1:] == [
        (
            "producerId: 1 producerEpoch: 2 coordinatorEpoch: -1 "
            "currentTxnFirstOffset: OptionalLong[6] lastTimestamp: 5 firstSequence: 2147483646 "
            "lastSequence: 1 lastOffset: 9 offsetDelta: 3 timestamp: 5"
        ),
        (
            "producerId: 2 producerEpoch: 0 coordinatorEpoch: -1 "
            "currentTxnFirstOffset: OptionalLong.empty lastTimestamp: -1"
        ),
    ]
    path.write_bytes(b"\0\2" + bytes(20))
    assert dump(capsys, path)[1] == [
        "Snapshot failed schema validation: Snapshot contained an unknown file version 2"
    ]
    aborted = AbortedTransaction(
        producer_id=1, first_offset=0, last_offset=29, last_stable_offset=30
    )
    path = write(tmp_path, ".txnindex", build_transaction_index([aborted]))
    assert dump(capsys, path)[0][1:] == [
        "version: 0 producerId: 1 firstOffset: 0 lastOffset: 29 lastStableOffset: 30"
    ]


def test_json_has_a_document_to_a_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = write(tmp_path, ".log", BATCH)
    documents = [json.loads(line) for line in dump(capsys, path, "--json", "--print-data-log")[0]]
    assert [document["kind"] for document in documents] == ["log", "batch", "record", "record"]
    assert {document["file"] for document in documents} == {str(path)}
    assert documents[1]["isValid"] is True
    assert (documents[2]["key"], documents[2]["payload"]) == ("k", "v1")
    assert documents[3]["valueSize"] is None


def test_what_lies_before_an_error_is_printed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = write(tmp_path, ".log", BATCH + bytes(100))
    out, err = dump(capsys, path, code=1)
    assert len(out) == 3
    assert err == [
        (
            f"cordwood dump-log: {path}: Found record size 0 smaller than minimum record overhead "
            f"(14) at byte {len(BATCH)}"
        )
    ]
    _, err = dump(capsys, tmp_path / "nothing.log", code=1)
    assert err == [f"cordwood dump-log: {tmp_path}/nothing.log: No such file or directory"]
    (tmp_path / "nothing.log").touch()
    _, err = dump(capsys, tmp_path / "nothing.log", code=1)
    assert "does not begin with an offset" in err[0]
    _, err = dump(capsys, tmp_path / (BASE + ".index"), code=1)
    assert err == [f"cordwood dump-log: {tmp_path / BASE}.index: No such file or directory"]


def test_other_files_are_passed_over(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("leader-epoch-checkpoint", "meta.properties"):
        path = tmp_path / name
        assert dump(capsys, path) == ([f"Dumping {path}"], [f"Ignoring unknown file {path}"])


def test_usage(capsys: pytest.CaptureFixture[str]) -> None:
    assert dump_log(["--help"]) == 0
    assert capsys.readouterr().out.startswith("Usage: cordwood dump-log")
    assert dump_log([]) == 1
    assert dump_log(["--version"]) == 0
    assert capsys.readouterr().out.endswith(f"{__version__}\n")
    assert dump_log(["--deep-iteration"]) == 1
    assert capsys.readouterr().err.startswith('Missing required argument "[files]"')
    assert dump_log(["--bogus"]) == 1
    assert capsys.readouterr().err.startswith("bogus is not a recognized option")
    assert dump_log(["--files", "x.log", "--key-decoder-class", "my.Own"]) == 1
    assert "Failed to load decoder class my.Own" in capsys.readouterr().err


def test_starting_loads_nothing_large() -> None:
    code = (
        "import sys; import cordwood.surfaces.cli.dump_log; "
        "print(sorted({'numba', 'numpy', 'pandas', 'pyarrow', 'pyspark'} & set(sys.modules)))"
    )
    result = subprocess.run(
        [sys.executable, "-c", code], check=True, capture_output=True, text=True
    )
    assert result.stdout == "[]\n"
