"""Streams over directories that grow, change and lose records, without Spark."""

from __future__ import annotations

import json
import logging
import shutil
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cordwood.format.file_names import PARTITION_METADATA
from cordwood.format.partition_metadata import build_partition_metadata
from cordwood.frames.options import parse_options
from cordwood.frames.records import RECORDS
from cordwood.frames.streaming.positions import build_positions, parse_positions
from cordwood.frames.streaming.stream import RecordStream
from cordwood.frames.streaming.stream_options import parse_stream_options
from cordwood.model.errors import ConfigError, CordwoodError, DataLossError
from cordwood.model.uuids import parse_uuid, uuid_text
from support.log_builder import TOPIC_ID, LogBuilder, write_log_dir

ANOTHER_ID = parse_uuid("b3JkZXJzAAAAAAAAAAAAAg")
PRODUCER = (7, 0)

Record = tuple[str, int, int]


class MovedClock:
    """A clock that stands still until it is moved."""

    def __init__(self) -> None:
        self.now_s = 0.0

    def now_ms(self) -> int:
        return int(self.now_s * 1000)

    def monotonic_s(self) -> float:
        return self.now_s


class Query:
    """A query of Spark, in short: positions pass through JSON, and outlive the reader."""

    def __init__(self, log_dir: Path, **options: str) -> None:
        self._given = {"path": str(log_dir), "startingOffsets": "earliest", **options}
        self.clock = MovedClock()
        self.start = ""
        self.sink: list[Record] = []
        self.restart()

    def restart(self, **options: str) -> None:
        """Another process continues at the checkpoint."""
        self._given |= options
        self.options = parse_options(self._given)
        stream_options = parse_stream_options(self._given)
        self.stream = RecordStream(self.options, stream_options, clock=self.clock)

    def plan(self, *, is_limited: bool = True) -> str:
        """The end of the next batch."""
        if not self.start:
            self.start = json.dumps(build_positions(self.stream.first()))
        start = parse_positions(json.loads(self.start))
        return json.dumps(build_positions(self.stream.latest(start, is_limited=is_limited)))

    def run(self, end: str) -> list[Record]:
        """The records of the batch that ends there."""
        parts = self.stream.parts(
            parse_positions(json.loads(self.start)), parse_positions(json.loads(end))
        )
        names = ("topic", "partition", "offset")
        found = [
            tuple(row.values())
            for part in parts
            for batch in RECORDS.read(part, names)
            for row in batch.to_pylist()
        ]
        self.start = end
        self.sink += found
        return found

    def batch(self, *, is_limited: bool = True) -> list[Record]:
        """One batch, [] if there is nothing to read."""
        end = self.plan(is_limited=is_limited)
        return [] if end == self.start else self.run(end)

    def positions(self) -> dict[str, dict[str, int | str]]:
        found: dict[str, dict[str, int | str]] = json.loads(self.start)
        return found


def filled(name: str, count: int, *, size: int = 1) -> LogBuilder:
    """A log with batches of one record each, whose values have `size` bytes."""
    log = LogBuilder(name)
    grow(log, count, size=size)
    return log


def grow(log: LogBuilder, count: int, *, size: int = 1) -> None:
    for _ in range(count):
        log.put(b"k", b"v" * size)


def of(name: str, offsets: Sequence[int]) -> list[Record]:
    topic, _, partition = name.rpartition("-")
    return [(topic, int(partition), offset) for offset in offsets]


def rewritten(log_dir: Path, logs: Sequence[LogBuilder]) -> Path:
    """The directory with these logs only."""
    shutil.rmtree(log_dir)
    return write_log_dir(log_dir, logs)


# ---- what is read


def test_each_batch_has_what_was_added_since_the_last_one(tmp_path: Path) -> None:
    log = filled("log-0", 3)
    log_dir = write_log_dir(tmp_path / "d", [log])
    query = Query(log_dir)
    assert query.batch() == of("log-0", range(3))
    assert query.batch() == []
    grow(log, 2)
    log.roll()
    grow(log, 1)
    write_log_dir(log_dir, [log])
    assert query.batch() == of("log-0", range(3, 6))
    assert query.positions() == {"log": {"0": 6, "topicId": uuid_text(TOPIC_ID)}}
    newest = query.stream.newest
    assert newest is not None
    assert build_positions(newest) == query.positions()


def test_partitions_and_topics_that_come_later_are_read_from_their_first_record(
    tmp_path: Path,
) -> None:
    log_dir = write_log_dir(tmp_path / "d", [filled("a-0", 1)])
    query = Query(log_dir, startingOffsets="latest", topics="a,b")
    assert query.batch() == []
    empty = LogBuilder("b-0")
    write_log_dir(log_dir, [filled("a-0", 1), filled("a-1", 2), empty, filled("c-0", 1)])
    assert query.batch() == of("a-1", range(2))
    assert "b" not in query.positions()
    grow(empty, 1)
    write_log_dir(log_dir, [filled("a-0", 1), filled("a-1", 2), empty])
    assert query.batch() == of("b-0", [0])


def test_a_topic_may_come_after_the_stream(tmp_path: Path) -> None:
    log_dir = write_log_dir(tmp_path / "d", [filled("a-0", 1)])
    query = Query(log_dir, topics="b*", startingOffsets="latest")
    assert query.batch() == []
    assert query.positions() == {}
    write_log_dir(log_dir, [filled("a-0", 1), filled("b-0", 2)])
    assert query.batch() == of("b-0", range(2))


def test_what_a_compaction_has_removed_is_no_loss(tmp_path: Path) -> None:
    log = filled("log-0", 5)
    log_dir = write_log_dir(tmp_path / "d", [log])
    query = Query(log_dir)
    query.batch()
    grow(log, 5)
    write_log_dir(log_dir, [log])
    end = query.plan()
    compacted = LogBuilder("log-0")
    compacted.put(b"k", b"v")
    compacted.skip(7)
    grow(compacted, 4)
    rewritten(log_dir, [compacted])
    query.restart()
    assert query.run(end) == of("log-0", [8, 9])
    assert query.batch() == of("log-0", [10, 11])


@pytest.mark.parametrize(
    ("isolation", "expected"),
    [
        ("read_uncommitted", [[0, 1, 2], [], [4]]),
        ("read_committed", [[0], [2], [4]]),
        ("all", [[0, 1, 2], [3], [4]]),
    ],
)
def test_a_stream_does_not_pass_what_its_isolation_does_not_see(
    tmp_path: Path, isolation: str, expected: list[list[int]]
) -> None:
    log = filled("log-0", 1)
    log.put(b"k", b"aborted", producer=PRODUCER, transactional=True)
    log.put(b"k", b"v")
    log_dir = write_log_dir(tmp_path / "d", [log])
    query = Query(log_dir, isolation=isolation)
    assert query.batch() == of("log-0", expected[0])
    log.marker(PRODUCER, commit=False)
    log.high_watermark = 4
    log.put(b"k", b"v")
    write_log_dir(log_dir, [log], clean_shutdown=False)
    assert query.batch() == of("log-0", expected[1])
    log.high_watermark = 5
    write_log_dir(log_dir, [log], clean_shutdown=False)
    assert query.batch() == of("log-0", expected[2])
    assert query.positions()["log"]["0"] == 5


@pytest.mark.parametrize("isolation", ["read_uncommitted", "read_committed", "all"])
def test_a_planned_batch_has_its_records_though_the_high_watermark_is_not_known_any_more(
    tmp_path: Path, isolation: str
) -> None:
    log = filled("log-0", 4)
    log_dir = write_log_dir(tmp_path / "d", [log])
    query = Query(log_dir, isolation=isolation)
    end = query.plan()
    log.high_watermark = 1
    write_log_dir(log_dir, [log])
    query.restart()
    assert query.run(end) == of("log-0", range(4))
    assert query.batch() == []


# ---- where a stream begins


def starts(log_dir: Path, **options: str) -> int:
    query = Query(log_dir, **options)
    query.plan()
    found = query.positions()["log"]["0"]
    assert isinstance(found, int)
    return found


def test_a_stream_begins_where_the_options_say(tmp_path: Path) -> None:
    log = LogBuilder("log-0")
    for number in range(10):
        log.put(b"k", b"v", timestamp=1000 + 10 * number)
    log.log_start_offset, log.high_watermark = 2, 8
    log_dir = write_log_dir(tmp_path / "d", [log])
    assert starts(log_dir, startingOffsets="earliest") == 2
    assert starts(log_dir, startingOffsets="latest") == 8
    assert starts(log_dir, startingOffsets='{"log": {"0": 5}}') == 5
    assert starts(log_dir, startingOffsets='{"log": {"0": -2}}') == 2
    assert starts(log_dir, startingOffsets='{"log": {"0": -1}}') == 8
    assert starts(log_dir, startingTimestamp="1041") == 5
    assert starts(log_dir, startingTimestamp="1040") == 4
    assert starts(log_dir, startingTimestamp="1080") == 8  # that record is not committed yet


def test_records_after_the_first_are_read_whatever_their_timestamps(tmp_path: Path) -> None:
    log = LogBuilder("log-0")
    for timestamp in (10, 30, 20, 5):
        log.put(b"k", b"v", timestamp=timestamp)
    query = Query(write_log_dir(tmp_path / "d", [log]), startingTimestamp="20")
    assert query.batch() == of("log-0", [1, 2, 3])


def test_starting_offsets_name_each_partition(tmp_path: Path) -> None:
    log_dir = write_log_dir(tmp_path / "d", [filled("log-0", 1), filled("log-1", 1)])
    query = Query(log_dir, startingOffsets='{"log": {"0": 0, "2": 0}}')
    message = "^option startingOffsets: it names not log-1; there is no log-2$"
    with pytest.raises(ConfigError, match=message):
        query.plan()


# ---- limits


def test_a_batch_has_so_many_offsets_as_is_allowed_divided_by_what_there_is(
    tmp_path: Path,
) -> None:
    log_dir = write_log_dir(tmp_path / "d", [filled("a-0", 30), filled("a-1", 10)])
    query = Query(log_dir, maxOffsetsPerTrigger="20")
    assert query.batch() == [*of("a-0", range(15)), *of("a-1", range(5))]
    assert query.batch() == [*of("a-0", range(15, 30)), *of("a-1", range(5, 10))]
    assert query.batch() == []


def test_what_is_to_be_read_at_once_has_no_limit(tmp_path: Path) -> None:
    log_dir = write_log_dir(tmp_path / "d", [filled("a-0", 30)])
    query = Query(log_dir, maxOffsetsPerTrigger="1", maxBytesPerTrigger="1")
    assert query.batch(is_limited=False) == of("a-0", range(30))


def test_a_batch_has_about_so_many_bytes_as_are_allowed(tmp_path: Path) -> None:
    batch_bytes = 1070
    logs = [filled("a-0", 200, size=1000), filled("a-1", 100, size=1000)]
    logs[0].roll()
    grow(logs[0], 100, size=1000)
    log_dir = write_log_dir(tmp_path / "d", logs)
    query = Query(log_dir, maxBytesPerTrigger="100000")
    batches = []
    while batch := query.batch():
        batches.append(len(batch))
    assert sorted(query.sink) == [*of("a-0", range(300)), *of("a-1", range(100))]
    slack = 2 * logs[0].index_interval_bytes
    assert all(count * batch_bytes <= 100_000 + slack for count in batches)
    assert min(batches[:-1]) * batch_bytes >= 100_000 - 4 * slack


def test_a_batch_advances_by_an_interval_at_least(tmp_path: Path) -> None:
    log = filled("a-0", 20, size=1000)
    log.roll()
    grow(log, 2)
    query = Query(write_log_dir(tmp_path / "d", [log]), maxBytesPerTrigger="1")
    batches = []
    while batch := query.batch():
        batches.append(batch)
    assert query.sink == of("a-0", range(22))
    assert max(map(len, batches)) <= 5


def test_few_offsets_wait_for_others_or_for_the_delay(tmp_path: Path) -> None:
    log = filled("a-0", 1)
    log_dir = write_log_dir(tmp_path / "d", [log])
    query = Query(log_dir, minOffsetsPerTrigger="3", maxTriggerDelay="60s")
    assert query.batch() == of("a-0", [0])  # the first batch waits for nothing
    grow(log, 2)
    write_log_dir(log_dir, [log])
    assert query.batch() == []
    query.clock.now_s = 59.9
    assert query.batch() == []
    query.clock.now_s = 60.0
    assert query.batch() == of("a-0", [1, 2])
    grow(log, 3)
    write_log_dir(log_dir, [log])
    assert query.batch() == of("a-0", [3, 4, 5])


def test_a_stream_that_is_to_end_reads_what_was_there_and_no_more(tmp_path: Path) -> None:
    log = filled("a-0", 10)
    log_dir = write_log_dir(tmp_path / "d", [log])
    query = Query(log_dir, maxOffsetsPerTrigger="4", minOffsetsPerTrigger="4")
    query.stream.stop_at_end()
    assert query.batch() == of("a-0", range(4))
    grow(log, 10)
    write_log_dir(log_dir, [log, filled("a-1", 5)])
    assert query.batch() == of("a-0", range(4, 8))
    assert query.batch() == of("a-0", range(8, 10))
    assert query.batch() == []
    query.restart()
    query.stream.stop_at_end()
    while query.batch():
        pass
    assert sorted(query.sink) == [*of("a-0", range(20)), *of("a-1", range(5))]


# ---- losses


def test_a_position_below_the_log_start_is_a_loss(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    log = filled("log-0", 3)
    log_dir = write_log_dir(tmp_path / "d", [log])
    query = Query(log_dir)
    query.batch()
    grow(log, 7)
    log.log_start_offset = 5
    write_log_dir(log_dir, [log])
    with pytest.raises(DataLossError) as raised:
        query.plan()
    error = raised.value
    assert (error.partition, error.position, error.log_offset) == ("log-0", 3, 5)
    assert str(error).startswith("log-0: the stream is at offset 3, and the log begins at offset 5")
    query.restart(failOnDataLoss="false")
    with caplog.at_level(logging.WARNING):
        assert query.batch() == of("log-0", range(5, 10))
        assert query.batch() == []
    assert [each.getMessage() for each in caplog.records] == [str(error)]


def test_a_planned_batch_whose_records_are_gone_is_a_loss(tmp_path: Path) -> None:
    log = filled("log-0", 10)
    log_dir = write_log_dir(tmp_path / "d", [log])
    query = Query(log_dir)
    end = query.plan()
    log.log_start_offset = 5
    write_log_dir(log_dir, [log])
    query.restart()
    with pytest.raises(DataLossError, match="log-0: the stream is at offset 0, and the log begins"):
        query.run(end)
    query.restart(failOnDataLoss="false")
    assert query.run(end) == of("log-0", range(5, 10))


def test_a_log_that_was_truncated_is_a_loss(tmp_path: Path) -> None:
    log_dir = write_log_dir(tmp_path / "d", [filled("log-0", 10)])
    query = Query(log_dir)
    end = query.plan()
    log = filled("log-0", 6)
    rewritten(log_dir, [log])
    query.restart()
    with pytest.raises(DataLossError) as raised:
        query.run(end)
    assert (raised.value.position, raised.value.log_offset) == (10, 6)
    query.restart(failOnDataLoss="false")
    assert query.run(end) == of("log-0", range(6))
    assert query.batch() == []
    grow(log, 2)
    write_log_dir(log_dir, [log])
    assert query.batch() == of("log-0", [6, 7])


def test_a_topic_that_was_deleted_is_a_loss_and_continues_when_it_is_back(
    tmp_path: Path,
) -> None:
    log, other = filled("log-0", 2), filled("other-0", 1)
    log_dir = write_log_dir(tmp_path / "d", [log, other])
    query = Query(log_dir, topics="log,other")
    query.batch()
    rewritten(log_dir, [other])
    with pytest.raises(DataLossError, match="log-0: the stream is at offset 2, and it is not the"):
        query.plan()
    query.restart(failOnDataLoss="false")
    assert query.batch() == []
    grow(log, 1)
    write_log_dir(log_dir, [log, other])
    assert query.batch() == of("log-0", [2])


def made_again(log_dir: Path, log: LogBuilder) -> None:
    rewritten(log_dir, [log])
    directory = log_dir / str(log.topic_partition)
    (directory / PARTITION_METADATA).write_bytes(build_partition_metadata(ANOTHER_ID))


def test_a_topic_that_was_made_again_is_another_one(tmp_path: Path) -> None:
    log_dir = write_log_dir(tmp_path / "d", [filled("log-0", 2)])
    query = Query(log_dir)
    query.batch()
    made_again(log_dir, filled("log-0", 4))
    with pytest.raises(DataLossError, match=r"made again: its id was .*AQ and is .*Ag"):
        query.plan()
    query.restart(failOnDataLoss="false")
    assert query.batch() == of("log-0", range(4))
    assert query.positions() == {"log": {"0": 4, "topicId": uuid_text(ANOTHER_ID)}}
    assert query.batch() == []


def test_a_planned_batch_of_a_topic_that_was_made_again_since_is_a_loss(tmp_path: Path) -> None:
    log_dir = write_log_dir(tmp_path / "d", [filled("log-0", 2)])
    query = Query(log_dir)
    end = query.plan()
    made_again(log_dir, filled("log-0", 4))
    query.restart()
    with pytest.raises(DataLossError, match="the topic was made again"):
        query.run(end)
    query.restart(failOnDataLoss="false")
    assert query.run(end) == []
    assert query.batch() == of("log-0", range(4))


def test_a_topic_that_was_made_again_has_none_of_its_old_partitions(tmp_path: Path) -> None:
    log_dir = write_log_dir(tmp_path / "d", [filled("log-0", 2), filled("log-1", 2)])
    query = Query(log_dir, failOnDataLoss="false")
    query.batch()
    made_again(log_dir, filled("log-0", 1))
    assert query.batch() == of("log-0", [0])
    made_again(log_dir, filled("log-1", 3))
    assert query.batch() == of("log-1", range(3))


def test_a_topic_that_was_made_again_is_not_what_was_there_when_a_stream_was_to_end(
    tmp_path: Path,
) -> None:
    log_dir = write_log_dir(tmp_path / "d", [filled("log-0", 2)])
    query = Query(log_dir, failOnDataLoss="false", maxOffsetsPerTrigger="1")
    query.stream.stop_at_end()
    assert query.batch() == of("log-0", [0])
    made_again(log_dir, filled("log-0", 4))
    assert query.batch() == []


def test_a_planned_batch_of_a_new_topic_that_is_gone_since_is_a_loss(tmp_path: Path) -> None:
    log_dir = write_log_dir(tmp_path / "d", [filled("a-0", 1)])
    query = Query(log_dir)
    query.batch()
    write_log_dir(log_dir, [filled("a-0", 1), filled("b-0", 2)])
    end = query.plan()
    rewritten(log_dir, [filled("a-0", 1)])
    query.restart()
    with pytest.raises(DataLossError, match="b-0: the stream is at offset 0, and it is not there"):
        query.run(end)


def test_a_new_partition_without_its_first_records_is_a_loss(tmp_path: Path) -> None:
    log_dir = write_log_dir(tmp_path / "d", [filled("log-0", 1)])
    query = Query(log_dir)
    query.batch()
    log = filled("log-1", 5)
    log.log_start_offset = 3
    write_log_dir(log_dir, [filled("log-0", 1), log])
    with pytest.raises(DataLossError, match="log-1: the stream is at offset 0, and the log begins"):
        query.plan()
    query.restart(failOnDataLoss="false")
    assert query.batch() == of("log-1", [3, 4])


def test_partitions_of_a_topic_have_one_id(tmp_path: Path) -> None:
    log_dir = write_log_dir(tmp_path / "d", [filled("log-0", 1), filled("log-1", 1)])
    path = log_dir / "log-1" / PARTITION_METADATA
    path.write_bytes(build_partition_metadata(ANOTHER_ID))
    with pytest.raises(CordwoodError, match=r"^log: its partitions are of topics with the ids"):
        Query(log_dir).plan()


# ---- all of it together


@given(
    data=st.data(),
    options=st.fixed_dictionaries(
        {},
        optional={
            "maxOffsetsPerTrigger": st.integers(1, 20).map(str),
            "maxBytesPerTrigger": st.integers(1, 20_000).map(str),
            "isolation": st.sampled_from(["read_committed", "read_uncommitted"]),
            "slicebytes": st.integers(1, 10_000).map(str),
        },
    ),
)
def test_each_record_is_read_once_however_directories_grow_and_queries_restart(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject, options: dict[str, str]
) -> None:
    logs = [LogBuilder("a-0", index_interval_bytes=500), LogBuilder("a-1"), LogBuilder("b-0")]
    expected: list[Record] = []
    log_dir = write_log_dir(tmp_path_factory.mktemp("d"), logs[:2])
    query = Query(log_dir, **options)
    for _ in range(data.draw(st.integers(1, 4), "steps")):
        for log in logs:
            name, count = str(log.topic_partition), data.draw(st.integers(0, 6), "records")
            commits = data.draw(st.booleans(), "commits")
            for _ in range(count):
                offset = log.put(b"k", b"v" * 300, producer=PRODUCER, transactional=True)
                if commits or options.get("isolation") != "read_committed":
                    expected += of(name, [offset])
            if count:
                log.marker(PRODUCER, commit=commits)
                if data.draw(st.booleans(), "rolls"):
                    log.roll()
        write_log_dir(log_dir, logs)
        for _ in range(data.draw(st.integers(0, 2), "batches")):
            what = data.draw(st.sampled_from(["", "restart", "restart when planned"]), "what")
            if what == "restart":
                query.restart()
            end = query.plan()
            if what == "restart when planned":
                query.restart()
            if end != query.start:
                query.run(end)
    while (end := query.plan()) != query.start:
        query.run(end)
    assert sorted(query.sink) == sorted(expected)
