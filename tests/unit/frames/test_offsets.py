"""Committed offsets as rows."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from cordwood.coordinator.group.offset_records import offset_commit, offset_tombstone
from cordwood.coordinator.group.offsets import CommittedOffset, OffsetKey
from cordwood.format.compression import Codec
from cordwood.format.group_metadata import GROUP_RECORDS
from cordwood.format.record_batch import iter_batches
from cordwood.frames.wanted import Wanted
from cordwood.model.errors import CorruptError
from cordwood.model.uuids import uuid_text
from cordwood.surfaces.dump.decoders import decode_offsets
from support.golden import Golden
from support.log_builder import TOPIC_ID, LogBuilder, write_log_dir
from support.table_rows import Row, rows_of

PRODUCER = (7, 0)
KEY = OffsetKey("g", "orders", 3)


def commit(offset: int, key: OffsetKey = KEY) -> tuple[bytes, bytes | None]:
    return offset_commit(key, CommittedOffset(offset, commit_timestamp_ms=1000))


def positions(rows: list[Row]) -> list[tuple[str, str, int, int, bool]]:
    return [
        (row["groupId"], row["topic"], row["partition"], row["offset"], row["isPending"])
        for row in rows
    ]


def latest(log_dir: Path) -> dict[tuple[str, str, int], tuple[int, dict[str, object]]]:
    """The newest value of each key with its record's offset, as `dump-log` decodes it."""
    found = {}
    for path in sorted(log_dir.glob("__consumer_offsets-*/*.log")):
        for _, batch in iter_batches(path.read_bytes()):
            for record in batch.records():
                key, value = decode_offsets(record)
                assert key is not None
                assert value is not None
                fields = json.loads(key)["data"]
                place = fields["group"], fields["topic"], fields["partition"]
                found[place] = record.offset, json.loads(value)["data"]
    return found


def test_the_rows_of_a_kafkas_directory_are_the_newest_values(golden_a: Golden) -> None:
    log_dir = golden_a.root / "before-2"
    rows = rows_of("offsets", log_dir)
    expected = latest(log_dir)
    assert len(expected) == len(rows) == 8
    for row in rows:
        offset, value = expected[row["groupId"], row["topic"], row["partition"]]
        assert (row["recordOffset"], row["isPending"], row["producerId"]) == (offset, False, -1)
        assert row["expireTimestamp"] is None
        assert value == {
            **{name: row[name] for name in ("offset", "leaderEpoch", "metadata", "topicId")},
            "commitTimestamp": row["commitTimestamp"],
        }


def test_a_value_has_all_that_any_version_of_kafka_wrote(tmp_path: Path) -> None:
    log = LogBuilder("__consumer_offsets-4")
    full = CommittedOffset(5, 2, "text", 1000, -1, TOPIC_ID)
    expiring = CommittedOffset(6, commit_timestamp_ms=2000, expire_timestamp_ms=3000)
    old = {"offset": 7, "metadata": "", "commitTimestamp": 4000}
    log.batch(
        [
            offset_commit(KEY, full),
            offset_commit(OffsetKey("g", "orders", 4), expiring),
            (
                GROUP_RECORDS.encode_key(0, {"group": "g", "topic": "orders", "partition": 5}),
                GROUP_RECORDS.encode_value(1, 0, old),
            ),
        ],
        codec=Codec.GZIP,
    )
    first, second, third = rows_of("offsets", write_log_dir(tmp_path, [log]))
    assert first == {
        "groupId": "g",
        "topic": "orders",
        "partition": 3,
        "offset": 5,
        "leaderEpoch": 2,
        "metadata": "text",
        "commitTimestamp": 1000,
        "expireTimestamp": None,
        "topicId": uuid_text(TOPIC_ID),
        "isPending": False,
        "producerId": -1,
        "recordPartition": 4,
        "recordOffset": 0,
    }
    assert (second["expireTimestamp"], second["topicId"]) == (3000, None)
    assert (third["offset"], third["commitTimestamp"], third["recordOffset"]) == (7, 4000, 2)


def test_a_commit_is_replaced_by_a_later_one_and_removed_by_a_tombstone(tmp_path: Path) -> None:
    log = LogBuilder("__consumer_offsets-0")
    other = OffsetKey("g", "orders", 4)
    log.batch([commit(1), commit(2, other), commit(3)])
    log.roll()
    log.batch([offset_tombstone(other)])
    rows = rows_of("offsets", write_log_dir(tmp_path, [log]))
    assert positions(rows) == [("g", "orders", 3, 3, False)]
    assert rows[0]["recordOffset"] == 2


def test_offsets_of_an_open_transaction_are_pending(tmp_path: Path) -> None:
    log = LogBuilder("__consumer_offsets-0")
    log.batch([commit(1)])
    log.batch(
        [commit(2), commit(3, OffsetKey("other", "a", 0))], producer=PRODUCER, transactional=True
    )
    log_dir = write_log_dir(tmp_path, [log])
    rows = rows_of("offsets", log_dir)
    assert positions(rows) == [
        ("g", "orders", 3, 1, False),
        ("g", "orders", 3, 2, True),
        ("other", "a", 0, 3, True),
    ]
    assert [row["producerId"] for row in rows] == [-1, 7, 7]
    assert positions(rows_of("offsets", log_dir, isolation="read_committed")) == [
        ("g", "orders", 3, 1, False)
    ]


@pytest.mark.parametrize(("is_commit", "offset"), [(True, 2), (False, 1)])
def test_the_end_of_a_transaction_decides_on_its_offsets(
    tmp_path: Path, is_commit: bool, offset: int
) -> None:
    log = LogBuilder("__consumer_offsets-0")
    log.batch([commit(1)])
    log.batch([commit(2)], producer=PRODUCER, transactional=True)
    log.marker(PRODUCER, commit=is_commit)
    rows = rows_of("offsets", write_log_dir(tmp_path, [log]))
    assert positions(rows) == [("g", "orders", 3, offset, False)]


def test_topics_and_partitions_are_the_consumed_ones(tmp_path: Path) -> None:
    log = LogBuilder("__consumer_offsets-0")
    keys = [OffsetKey("g", topic, number) for topic in ("a-1", "a-2", "b") for number in (0, 1)]
    log.batch([commit(10 + place, key) for place, key in enumerate(keys)])
    log.batch([commit(20, OffsetKey("g", "b", 0))], producer=PRODUCER, transactional=True)
    log_dir = write_log_dir(tmp_path, [log])

    def found(wanted: Wanted | None = None, **options: str) -> list[int]:
        return [row["offset"] for row in rows_of("offsets", log_dir, wanted, **options)]

    assert found() == [10, 11, 12, 13, 14, 15, 20]
    assert found(topics="a-*, c") == [10, 11, 12, 13]
    assert found(partitions="1") == [11, 13, 15]
    assert found(Wanted().of_topics(frozenset({"b"}))) == [14, 15, 20]
    assert found(topics="none") == []


def test_records_end_at_the_high_watermark_unless_all_are_asked_for(tmp_path: Path) -> None:
    log = LogBuilder("__consumer_offsets-0")
    log.batch([commit(1)])
    log.high_watermark = log.next_offset
    log.batch([commit(2)])
    log_dir = write_log_dir(tmp_path, [log], clean_shutdown=False)
    assert [row["offset"] for row in rows_of("offsets", log_dir)] == [1]
    assert [row["offset"] for row in rows_of("offsets", log_dir, isolation="all")] == [2]


def test_a_directory_without_groups_has_no_rows(tmp_path: Path) -> None:
    log = LogBuilder("log-0")
    log.batch([(b"a", b"1")])
    log_dir = write_log_dir(tmp_path, [log])
    for name in ("offsets", "groups", "transactions"):
        assert rows_of(name, log_dir) == []


def test_a_record_that_cannot_be_read_is_named_with_its_file(tmp_path: Path) -> None:
    log = LogBuilder("__consumer_offsets-0")
    log.batch([commit(1)])
    log.roll()
    key, _ = commit(1)
    log.batch([commit(2), (key, b"\0\4\0")])
    log_dir = write_log_dir(tmp_path, [log])
    with pytest.raises(
        CorruptError, match="OffsetCommit record at offset 2 cannot be read"
    ) as caught:
        rows_of("offsets", log_dir)
    assert caught.value.path is not None
    assert Path(caught.value.path).name == "00000000000000000001.log"
