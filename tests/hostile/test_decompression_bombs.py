"""One record of many zeros, in each codec, on every way that decompresses it: memory and result.

Each way is gone in a process of its own, first with a small record, and then with the bombs. The
memory that it may take does not depend on what they expand to. Beside a bomb are other batches, and
a sound partition.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from cordwood.format.compression import Codec
from cordwood.format.record_batch import Record, RecordBatch, build_batch, parse_batch
from support.bomb_ways import BOMB, SOUND, TOPIC, gone, settings
from support.bombs import body_bytes, bomb
from support.clean import digest_tree
from support.log_builder import NOW_MS, LogBuilder, write_log_dir
from support.metadata_logs import write_metadata_log

MIB = 1 << 20
BOUND = MIB
COMPRESSED = [codec for codec in Codec if codec]
REMEDY = "Raise max.decompressed.message.bytes of the topic"


class Place:
    """The bomb, and how it is named."""

    def __init__(self, root: Path, zeros: int, position: int) -> None:
        self.directory = root / BOMB
        self.file = self.directory / f"{0:020d}.log"
        self.position = position
        self.reasons = (
            f"Invalid record size: {body_bytes(zeros)} exceeds the configured maximum record size "
            f"of {BOUND}",
            f"a record larger than the {BOUND} bytes of max.decompressed.message.bytes",
        )

    @property
    def taken_bytes_max(self) -> int:
        """The memory that a way may take: for blocks, codecs, and the batch as it is stored."""
        return 48 * MIB + 2 * BOUND + 4 * self.file.stat().st_size

    def has(self, text: str) -> bool:
        """Whether a text names the size of the record, or the bound, and nothing after it."""
        return text.rstrip(".") in self.reasons

    def names(self, text: str) -> bool:
        """Whether a text has the reason, file, byte, base offset of the batch and remedy."""
        ends = (
            f"{self.file}: {reason}, in the batch of offset 1 at byte {self.position}. {REMEDY}"
            for reason in self.reasons
        )
        return text.endswith(tuple(ends))


def of_produce(result: Any, bomb: Place) -> None:
    refused, sound = result
    kind, _, reason = refused.partition(": ")
    assert kind == "InvalidRecordError"
    assert bomb.has(reason)
    assert sound == "0"


def of_look_up(result: Any, bomb: Place) -> None:
    refused, before = result
    kind, _, reason = refused.partition(": ")
    assert kind == "InvalidRecordError"
    assert bomb.has(reason)
    assert f"offset={0}" in before


def of_clean(result: Any, bomb: Place) -> None:
    status, reason = result.pop(BOMB)
    assert result == {SOUND: ["cleaned", ""]}
    assert status == "failed"
    assert bomb.names(reason)


def of_estimate(result: Any, bomb: Place) -> None:
    assert result.pop(SOUND) == "estimated"
    assert bomb.names(result.pop(BOMB))
    assert not result


def of_erase(result: Any, bomb: Place) -> None:
    assert result["code"] == 1
    report = json.loads(result["out"])
    ((name, reason),) = report["failed"].items()
    assert name == str(bomb.directory)
    assert bomb.names(reason)
    (sound,) = report["partitions"]
    assert (sound["partition"], sound["erased"]) == (SOUND, 1)


def of_verify(result: Any, bomb: Place) -> None:
    assert result["code"] == 1
    found = {f"{each['topic']}-{each['partition']}": each for each in partitions_of(result)}
    (finding,) = found[BOMB]["findings"]
    assert finding["rule"] == "record-size"
    assert (finding["path"], finding["position"]) == (str(bomb.file), bomb.position)
    assert finding["offset"] == 1
    assert bomb.has(finding["reason"].removesuffix(", in the batch of offset 1"))
    assert finding["remedy"].startswith(REMEDY)
    # What is behind the bomb is checked, too.
    assert (found[BOMB]["batches"], found[BOMB]["log_end_offset"]) == (4, 4)
    assert found[SOUND]["findings"] == []


def of_dump_log(result: Any, bomb: Place) -> None:
    assert result["code"] == 1
    records = [line for line in result["out"].splitlines() if line.startswith("| offset:")]
    assert len(records) == 3 + 1  # all of the sound segment, and what is before the bomb
    head = f"cordwood dump-log: {bomb.file}: in the batch of offset 1 at byte {bomb.position}: "
    assert result["err"].startswith(head)
    assert bomb.has(result["err"].removeprefix(head).strip())


def of_explain(result: Any, bomb: Place) -> None:
    assert result["code"] == 1
    assert bomb.names(json.loads(result["out"])["error"])


def of_explain_sound(result: Any, bomb: Place) -> None:
    assert bomb.file.exists()
    assert result["code"] == 0, result
    (record,) = json.loads(result["out"])["records"]
    assert record["offset"] == 0


def of_due(result: Any, bomb: Place) -> None:
    assert result["code"] == 1
    (failed,) = json.loads(result["out"])["failed"]
    assert (failed["topic"], failed["partition"]) == (TOPIC, 0)
    assert bomb.names(failed["reason"])


def of_whatif(result: Any, bomb: Place) -> None:
    found = {f"{each['topic']}-{each['partition']}": each for each in partitions_of(result)}
    assert bomb.names(found[BOMB]["reason"])
    assert (found[BOMB]["now"], found[BOMB]["then"]) == (None, None)
    assert found[SOUND]["now"]["how"] == "estimated"
    assert result["code"] == 1


def partitions_of(result: Any) -> list[Any]:
    return list(json.loads(result["out"])["partitions"])


WAYS: Mapping[str, Callable[[Any, Place], None]] = {
    "produce": of_produce,
    "look up": of_look_up,
    "clean": of_clean,
    "estimate": of_estimate,
    "erase": of_erase,
    "verify": of_verify,
    "dump-log": of_dump_log,
    "explain": of_explain,
    "explain sound": of_explain_sound,
    "explain due": of_due,
    "advise due": of_due,
    "whatif": of_whatif,
}


def write(root: Path, codec: Codec, zeros: int, *, count: int = 1) -> int:
    """A log with the record in its second batch, and one with a small one; where that batch is."""
    logs, position = [], 0
    for name in (BOMB, SOUND):
        log = LogBuilder(name)
        log.batch([(b"k", b"old")], codec=codec, timestamp=NOW_MS - 2000)
        if name == BOMB:
            position = log.active.size_bytes
        size, counted = (zeros, count) if name == BOMB else (1000, 1)
        log.append(bomb(codec, size, offset=1, timestamp=NOW_MS - 1000, count=counted))
        log.batch([(b"k", b"new")], codec=codec, timestamp=NOW_MS - 3000)
        log.roll()
        log.put(b"end", b"v", timestamp=NOW_MS - 500)
        logs.append(log)
    write_log_dir(root, logs)
    write_metadata_log(root, TOPIC, settings(BOUND))
    root.with_name(root.name + ".batch").write_bytes(bomb(codec, zeros, timestamp=NOW_MS - 1000))
    sound = build_batch([Record(0, NOW_MS, b"k", b"v")], base_offset=0, codec=codec)
    root.with_name(root.name + ".sound").write_bytes(sound)
    return position


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(
    "zeros",
    [
        pytest.param(64 * MIB, id="64 MiB"),
        pytest.param(1024 * MIB, id="1 GiB", marks=pytest.mark.nightly),
    ],
)
def test_a_record_over_the_bound_takes_little_and_stops_nothing_else(
    tmp_path: Path, zeros: int, way: str
) -> None:
    roots = {codec: tmp_path / codec.config_name for codec in COMPRESSED}
    places = {codec: Place(root, zeros, write(root, codec, zeros)) for codec, root in roots.items()}
    before = {codec: digest_tree(place.directory) for codec, place in places.items()}
    write(tmp_path / "small", Codec.ZSTD, 1000)
    found = gone(way, BOUND, NOW_MS, tmp_path / "small", *roots.values())[1:]
    for (codec, place), each in zip(places.items(), found, strict=True):
        taken, result = each["taken_bytes"], each["result"]
        # A row of a table, for the one who runs it with -s.
        print(f"{way:>13} {codec.config_name:>6} {zeros >> 20:5} {taken / MIB:6.1f} {result}")
        assert digest_tree(place.directory) == before[codec]
        assert taken < place.taken_bytes_max, codec
        WAYS[way](result, place)


@pytest.mark.parametrize("way", ["clean", "verify", "dump-log", "explain", "look up"])
def test_a_batch_that_counts_records_that_it_does_not_hold_takes_little_too(
    tmp_path: Path, way: str
) -> None:
    roots = {codec: tmp_path / codec.config_name for codec in COMPRESSED}
    for codec, root in roots.items():
        write(root, codec, 256 * MIB, count=300)
    write(tmp_path / "small", Codec.ZSTD, 1000)
    found = gone(way, BOUND, NOW_MS, tmp_path / "small", *roots.values())[1:]
    for (codec, root), each in zip(roots.items(), found, strict=True):
        place = Place(root, 256 * MIB, 0)
        assert each["taken_bytes"] < place.taken_bytes_max, codec
        assert place.reasons[0] in json.dumps(each["result"]), codec


@pytest.mark.parametrize("codec", COMPRESSED, ids=lambda codec: codec.config_name)
def test_what_is_made_here_is_what_kafka_would_read(codec: Codec) -> None:
    for zeros in (200_000, 1 << 20):
        batch = parse_batch(bomb(codec, zeros, offset=7, timestamp=3))
        assert isinstance(batch, RecordBatch)
        batch.require_valid()
        (record,) = batch.records()
        assert (record.offset, record.timestamp, record.key) == (7, 3, b"bomb")
        assert record.value == bytes(zeros)
