"""`cordwood verify` at its command line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from cordwood.format.compression import Codec
from cordwood.format.legacy import build_legacy_wrapper
from cordwood.format.record_batch import Record, build_batch
from cordwood.surfaces.cli.main import app
from support.log_builder import NOW_MS, LogBuilder, write_log_dir
from support.metadata_logs import write_metadata_log


@pytest.fixture
def root(tmp_path: Path) -> Path:
    logs = []
    for name in ("orders-0", "orders-1", "prices-0"):
        log = LogBuilder(name)
        log.batch([(b"a", b"v"), (b"b", b"w" * 50)])
        log.put(b"a", b"u")
        logs.append(log)
    return write_log_dir(tmp_path / "logs", logs)


def damage(root: Path, name: str) -> Path:
    path = root / name / f"{0:020d}.log"
    data = bytearray(path.read_bytes())
    data[70] ^= 1
    path.write_bytes(bytes(data))
    return path


def run(*arguments: object) -> Result:
    return CliRunner().invoke(app, ["verify", *map(str, arguments)])


def test_a_sound_directory_ends_with_zero_and_one_line(root: Path) -> None:
    result = run(root)
    assert result.exit_code == 0
    assert result.stdout.startswith("sound: 3 partitions, 9 records, ")
    assert result.stdout.count("\n") == 1
    assert "not checked" not in result.stderr


def test_what_is_not_checked_of_a_broker_that_was_killed_is_said(root: Path) -> None:
    (root / ".kafka_cleanshutdown").unlink()
    result = run(root)
    assert result.exit_code == 0
    assert f"{root}: not checked: whether the offsets of its checkpoints lie in the logs" in (
        " ".join(result.stderr.split())
    )
    document = json.loads(run(root, "--json").stdout)
    assert [each["log_dir"] for each in document["not_checked"]] == [str(root)] * 2


def test_damage_is_shown_with_its_place_and_remedy(root: Path) -> None:
    damage(root, "orders-1")
    result = run(root)
    assert result.exit_code == 1
    title, _, row, remedy, summary = result.stdout.splitlines()
    assert title == "Findings"
    assert row.split() == [
        *["orders-1", "batch-crc", f"{0:020d}.log", "0", "0"],
        *["a", "batch", "whose", "CRC", "does", "not", "match"],
    ]
    assert remedy.startswith("batch-crc (damaged): Restore the segment from a replica or a backup")
    assert summary.startswith("1 partition damaged; 3 partitions, ")


def test_the_document_has_every_finding(root: Path) -> None:
    path = damage(root, "orders-1")
    result = run(root, "--json", "--topic", "ord*")
    assert result.exit_code == 1
    document = json.loads(result.stdout)
    assert not document["sound"]
    assert [each["partition"] for each in document["partitions"]] == [0, 1]
    assert document["partitions"][0]["findings"] == []
    (finding,) = document["partitions"][1]["findings"]
    assert finding["remedy"]
    assert finding | {"remedy": ""} == {
        "rule": "batch-crc",
        "level": "damaged",
        "path": str(path),
        "position": 0,
        "offset": 0,
        "reason": "a batch whose CRC does not match",
        "remedy": "",
    }


def test_unfinished_work_is_shown_and_is_no_damage(root: Path) -> None:
    (root / "orders-0" / f"{0:020d}.log.swap").touch()
    result = run(root)
    assert result.exit_code == 0
    assert "unfinished-work" in result.stdout
    assert "sound: 3 partitions" in result.stdout


def test_files_that_wait_for_their_removal_are_counted_in_one_line(root: Path) -> None:
    for number in range(100):
        (root / "orders-0" / f"{number:020d}.log.deleted").touch()
    (root / "orders-1" / f"{0:020d}.index.deleted").touch()
    result = run(root)
    assert result.exit_code == 0
    line, summary = result.stdout.splitlines()
    assert line.startswith("deleted-file (note): 101 files of 2 partitions. Nothing is to be done")
    assert summary.startswith("sound: 3 partitions")
    document = json.loads(run(root, "--json").stdout)
    assert [len(each["findings"]) for each in document["partitions"]] == [100, 1, 0]


def test_a_directory_that_is_none_is_wrong_usage(tmp_path: Path) -> None:
    result = run(tmp_path / "missing")
    assert result.exit_code == 2
    assert "there is no such directory" in result.stderr
    assert run(tmp_path).exit_code == 2


def test_a_topic_that_is_not_there_is_wrong_usage(root: Path) -> None:
    result = run(root, "--topic", "nothing")
    assert result.exit_code == 2
    assert f"no topic in {root} matches --topic nothing; there is " in result.stderr


@pytest.mark.parametrize(
    ("magic", "codec"),
    [
        *((1, codec) for codec in (Codec.GZIP, Codec.SNAPPY, Codec.LZ4)),
        *((2, codec) for codec in Codec if codec),
    ],
)
def test_a_record_over_the_topics_bound_is_found_and_the_rest_is_checked(
    tmp_path: Path, magic: int, codec: Codec
) -> None:
    logs = []
    for name, size in (("orders-0", 50_000), ("orders-1", 10)):
        log = LogBuilder(name)
        log.put(b"a", b"first")
        records = [Record(1, NOW_MS, b"a", b"v"), Record(2, NOW_MS, b"b", bytes(size))]
        if magic == 2:
            log.append(build_batch(records, base_offset=1, codec=codec))
        else:
            log.append(build_legacy_wrapper(records, magic=1, codec=codec))
        log.put(b"a", b"last")
        logs.append(log)
    root = write_log_dir(tmp_path / "logs", logs)
    assert run(root).exit_code == 0
    write_metadata_log(root, "orders", {"max.decompressed.message.bytes": "40000"})
    result = run(root, "--topic", "orders", "--json")
    assert result.exit_code == 1
    large, small = json.loads(result.stdout)["partitions"]
    (finding,) = large["findings"]
    assert finding["rule"] == "record-size"
    assert finding["path"] == str(root / "orders-0" / f"{0:020d}.log")
    assert finding["position"] == len(logs[0].active.batches[0])
    assert finding["reason"].startswith("Invalid record size: 500")
    assert f"in the batch of offset {1 if magic == 2 else 2}" in finding["reason"]
    assert finding["remedy"].startswith("Raise max.decompressed.message.bytes of the topic")
    assert (large["log_end_offset"], small["findings"]) == (4, [])


@pytest.mark.parametrize(
    ("settings", "code"),
    [({"topic": "40000"}, 1), ({"broker": "40000"}, 1), ({"topic": "60000", "broker": "1"}, 0)],
)
def test_the_bound_is_the_topics_or_else_that_of_all_brokers(
    tmp_path: Path, settings: dict[str, str], code: int
) -> None:
    log = LogBuilder("orders-0")
    log.batch([(b"a", bytes(50_000))], codec=Codec.ZSTD)
    root = write_log_dir(tmp_path / "logs", [log])
    name = "max.decompressed.message.bytes"
    given = {kind: {name: value} for kind, value in settings.items()}
    write_metadata_log(root, "orders", given.get("topic"), of_brokers=given.get("broker"))
    assert run(root, "--topic", "orders").exit_code == code
