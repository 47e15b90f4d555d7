"""The cleaner at work on running logs: LogCleanerIntegrationTest and its kin."""

from __future__ import annotations

import asyncio
import logging
import os
import random
import re
import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from cordwood.cleanup.access.commit import CompactionCommitter
from cordwood.cleanup.plan.log_compaction import LogCompaction
from cordwood.cleanup.plan.outcome import Committed
from cordwood.cleanup.schedule.cleaner import OnlineCleaner
from cordwood.cleanup.schedule.cleaner_manager import CleanerManager
from cordwood.cleanup.schedule.cleaning_states import Aborted
from cordwood.cleanup.schedule.paused_changes import (
    PausedMove,
    truncate_fully_paused,
    truncate_paused,
    update_topic_config,
)
from cordwood.cleanup.schedule.retention_pass import retain, retention_pass, start_retention
from cordwood.configs.broker_config import BrokerConfig
from cordwood.configs.log_config import LogConfig
from cordwood.format.compression import Codec
from cordwood.format.file_names import CLEANER_OFFSET_CHECKPOINT
from cordwood.format.legacy import build_legacy_message, build_legacy_wrapper
from cordwood.format.record_batch import Record, RecordBatch, build_batch, iter_batches
from cordwood.model.errors import EngineError, NoSpaceError, StagingError
from cordwood.model.topic_partition import TopicPartition
from cordwood.serving.slices import Slices
from cordwood.storage.filesystem import OsFileSystem
from cordwood.storage.log.partition_log import PartitionLog
from cordwood.storage.log.truncation import truncate_to
from cordwood.testing.manual_clock import ManualClock
from support.in_process_engine import CompiledEngine
from support.log_builder import NOW_MS, LogBuilder, write_log_dir
from support.running_logs import RunningLogs, newest, read_records

HOUR_MS = 3_600_000
T0 = TopicPartition("t", 0)
COMPACT = LogConfig(
    cleanup_policy=frozenset({"compact"}), segment_bytes=2048, min_cleanable_dirty_ratio=0.0
)
BOTH = replace(COMPACT, cleanup_policy=frozenset({"compact", "delete"}))


def dups(
    logs: RunningLogs,
    log: PartitionLog,
    keys: int,
    times: int,
    *,
    codec: Codec = Codec.NONE,
    timestamp: int | None = None,
    start: int = 0,
) -> None:
    """`keys` keys, `times` over, a batch of a record each; the value counts from `start`."""
    counter = start
    for _ in range(times):
        for key in range(keys):
            logs.put(log, (b"%d" % key, b"%d" % counter), codec=codec, timestamp=timestamp)
            counter += 1


def offsets(log: PartitionLog) -> list[int]:
    return [record.offset for record in read_records(log)]


class HookedEngine(CompiledEngine):
    """Does something before a compaction begins, and something else once a group is in place."""

    def __init__(
        self,
        *,
        before: Callable[[CompactionCommitter], None] = lambda _: None,
        after_group: Callable[[CompactionCommitter], None] = lambda _: None,
    ) -> None:
        super().__init__()
        self.rounds: list[LogCompaction] = []
        self._before = before
        self._after_group = after_group

    def run(self, committers: Sequence[CompactionCommitter]) -> None:
        for committer in committers:
            self.rounds.append(committer.compaction)
            self._before(committer)
        super().run(committers)

    def _poll(self, committer: CompactionCommitter) -> bool:
        done = len(committer.result.manifests)
        moved = super()._poll(committer)
        if len(committer.result.manifests) > done:
            self._after_group(committer)
        return moved


class OneByOne(HookedEngine):
    """Puts one group in place at a time."""

    def _poll(self, committer: CompactionCommitter) -> bool:
        placed = committer._commit

        def commit_and_tell(manifest: object) -> None:
            placed(manifest)  # type: ignore[arg-type]
            self._after_group(committer)

        committer._commit = commit_and_tell  # type: ignore[method-assign]
        try:
            return CompiledEngine._poll(self, committer)
        finally:
            committer._commit = placed  # type: ignore[method-assign]


def groups_of_one(tmp_path: Path, *, count: int = 4, config: LogConfig = COMPACT) -> RunningLogs:
    """A log to compact in `count` groups, of a segment of ten records each, half superseded."""
    logs = RunningLogs(tmp_path, {"t": replace(config, segment_bytes=900)})
    log = logs.log()
    for number in range(count):
        for key in range(5):
            for _ in range(2):
                logs.put(log, (b"%d-%d" % (number, key), b"v"))
        log.roll()
        log.update_high_watermark(log.log_end_offset)
    assert len(log.segments) == count + 1
    return logs


def in_thread(work: Callable[[], object]) -> threading.Thread:
    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    return thread


def wait_until_aborted(cleaning: CleanerManager, thread: threading.Thread) -> None:
    while not isinstance(cleaning.states.of(T0), Aborted):
        assert thread.is_alive(), "it waits for the cleaner"


# ---- compaction of every codec


@pytest.mark.parametrize("codec", list(Codec))
def test_a_log_of_duplicates_shrinks_and_its_map_stays(tmp_path: Path, codec: Codec) -> None:
    limit = 128 * 1024
    config = replace(COMPACT, max_message_bytes=limit, segment_bytes=limit)
    logs = RunningLogs(tmp_path, {"t": replace(config, segment_bytes=2048)})
    log = logs.log()
    dups(logs, log, 100, 3, codec=codec)
    before, size = newest(read_records(log)), log.size_bytes
    active = log.active.base_offset
    assert logs.cleaner.clean_once()
    assert logs.checkpoint() == active
    assert newest(read_records(log)) == before
    assert log.size_bytes < size
    # A batch of just max.message.bytes, and as many duplicates again.
    log.update_config(config)
    rng = random.Random(1)
    now = logs.clock.now_ms()
    large = b""
    spare = 200
    while len(large) != limit:
        value = rng.randbytes(limit - spare)
        large = build_batch([Record(0, now, b"large", value)], base_offset=0, codec=codec)
        spare += len(large) - limit
    log.append_as_leader(large)
    log.update_high_watermark(log.log_end_offset)
    log.update_config(replace(config, segment_bytes=2048, max_message_bytes=limit))
    log.roll()
    dups(logs, log, 100, 3, codec=codec, start=300)
    before, size = newest(read_records(log)), log.size_bytes
    assert logs.cleaner.clean_once()
    assert newest(read_records(log)) == before
    assert log.size_bytes < size
    assert logs.checkpoint() == log.active.base_offset
    logs.restart()
    assert newest(read_records(logs.log())) == before
    logs.manager.delete(T0)
    file = logs.directories[0] / CLEANER_OFFSET_CHECKPOINT
    assert file.read_text() == "0\n0\n"


def test_nothing_is_cleaned_twice(tmp_path: Path) -> None:
    logs = RunningLogs(tmp_path, {"t": COMPACT})
    dups(logs, logs.log(), 10, 10)
    assert logs.cleaner.clean_once()
    before = {p.name: p.stat().st_mtime_ns for p in logs.log().directory.glob("*.log")}
    assert not logs.cleaner.clean_once()
    assert {p.name: p.stat().st_mtime_ns for p in logs.log().directory.glob("*.log")} == before


def test_the_dirtiest_of_several_logs_is_cleaned_first(tmp_path: Path) -> None:
    logs = RunningLogs(tmp_path, {"t": COMPACT})
    for name in ("t-0", "t-1"):
        dups(logs, logs.log(name), 10, 10)
    assert logs.cleaner.clean_once()
    assert logs.cleaner.clean_once()
    for name, times in (("t-0", 10), ("t-1", 40)):
        dups(logs, logs.log(name), 10, times)
    assert logs.cleaner.clean_once()
    assert logs.cleaner.last_chosen is not None
    assert logs.cleaner.last_chosen.topic_partition == TopicPartition("t", 1)


def test_a_cleaner_that_is_switched_off_neither_compacts_nor_deletes(tmp_path: Path) -> None:
    logs = RunningLogs(tmp_path, {"t": replace(BOTH, retention_ms=0)}, log_cleaner_enable=False)
    dups(logs, logs.log(), 10, 10, timestamp=10)
    assert not logs.cleaner.clean_once()
    assert offsets(logs.log()) == list(range(100))
    assert retention_pass(logs.cleaning) == 0


def test_the_round_is_told_in_kafkas_words(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    logs = groups_of_one(tmp_path, count=3)
    log = logs.log()
    source = str(log.segments[0])
    assert logs.cleaner.clean_once()
    text = caplog.text
    for line in (
        "Cleaner 0: Beginning cleaning of log t-0",
        "Cleaner 0: Building offset map for t-0...",
        "Cleaner 0: Building offset map for log t-0 for 3 segments in offset range [0, 30).",
        "Cleaner 0: Offset map for log t-0 complete.",
        "Cleaner 0: Cleaning log t-0 (cleaning prior to ",
        f"Cleaner 0: Cleaning {source} in log t-0 into 0 with an upper bound deletion horizon 0 "
        "computed from the segment last modified time of ",
        ",retaining deletes.",
        "discarding tombstones prior to upper bound deletion horizon Thu Jan 01 00:00:00 UTC 1970)",
        "\tLog cleaner thread 0 cleaned log t-0 (dirty section = [0, 30])",
        "\tStart size: 0.0 MB (30 messages)",
        "\tEnd size: 0.0 MB (15 messages)",
        "\t50.0% size reduction (50.0% fewer messages)",
    ):
        assert line in text
    swapped = (
        rf"Cleaner 0: Swapping in cleaned segment LogSegment\(baseOffset=0, .*{re.escape(source)}"
    )
    assert re.search(swapped, text)


# ---- compact,delete


def test_a_log_of_both_policies_is_compacted_then_expires_and_is_compacted_again(
    tmp_path: Path,
) -> None:
    retention_ms = 100_000
    logs = RunningLogs(tmp_path, {"t": replace(BOTH, retention_ms=retention_ms)})
    log = logs.log()
    # Without timestamps of records, the files' times count.
    dups(logs, log, 100, 3, timestamp=-1)
    set_file_times(log, logs.clock.now_ms())
    before = newest(read_records(log))
    assert logs.cleaner.clean_once()
    assert newest(read_records(log)) == before
    assert log.log_start_offset == 0
    set_file_times(log, logs.clock.now_ms() - 2 * retention_ms)
    assert not logs.cleaner.clean_once()
    assert (log.log_start_offset, len(log.segments)) == (log.log_end_offset, 1)
    logs.restart()
    log = logs.log()
    dups(logs, log, 20, 30)
    before = newest(read_records(log))
    assert len(before) == 20
    assert logs.cleaner.clean_once()
    assert newest(read_records(log)) == before
    assert logs.checkpoint() == log.active.base_offset


def set_file_times(log: PartitionLog, modified_ms: int) -> None:
    for segment in log.segments:
        os.utime(segment.path, ns=(modified_ms * 1_000_000,) * 2)


def test_a_compacted_log_loses_what_lies_below_its_log_start(tmp_path: Path) -> None:
    logs = groups_of_one(tmp_path)
    log = logs.log()
    logs.set_checkpoint(40)
    log.maybe_increment_log_start_offset(25, "test")
    assert not logs.cleaner.clean_once()
    assert [segment.base_offset for segment in log.segments] == [20, 30, 40]
    assert logs.cleaning.states.of(T0) is None


# ---- logs that cannot be cleaned


def test_damaged_logs_are_counted_and_left_alone_until_they_are_removed(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    logs = RunningLogs(tmp_path, {"t": COMPACT})
    names = ("t-0", "t-1", "t-2")
    for name in names:
        dups(logs, logs.log(name), 20, 3)
    for name in names[:2]:
        active = logs.log(name).active
        with active.path.open("r+b") as file:
            file.write(b"jogeajgoea")
    for name in names:
        dups(logs, logs.log(name), 20, 3)
    cleaned = [logs.cleaner.clean_once() for _ in range(4)]
    assert sorted(cleaned) == [False, False, False, True]
    directory, now = logs.directories[0], logs.clock.now_ms()
    marked = logs.cleaning.uncleanable_partitions(directory)
    assert set(marked) == {TopicPartition("t", 0), TopicPartition("t", 1)}
    assert all("extends past the end" in why for why in marked.values()), marked
    assert "Marking its partition (t-0) as uncleanable" in caplog.text
    expected = sum(
        segment.size_bytes for name in names[:2] for segment in list(logs.log(name).segments)[:-1]
    )
    assert logs.cleaning.uncleanable_bytes(directory, now) == expected
    logs.manager.delete(T0)
    assert not logs.cleaner.clean_once()
    assert logs.cleaning.uncleanable_count(directory) == 1


@pytest.mark.parametrize(
    ("damage", "why"),
    [
        (lambda file: (file.seek(16), file.write(b"\xff")), "unknown magic"),
        (lambda file: file.truncate(100), "ends before"),
        (lambda file: (file.seek(11), file.write(b"\xff")), "extends past the end|does not match"),
    ],
)
def test_a_damaged_batch_makes_its_log_uncleanable_and_changes_nothing(
    tmp_path: Path, damage: Callable[..., object], why: str
) -> None:
    logs = groups_of_one(tmp_path)
    log = logs.log()
    with log.segments[1].path.open("r+b") as file:
        damage(file)
    before = {p.name: p.read_bytes() for p in log.directory.iterdir()}
    assert not logs.cleaner.clean_once()
    assert re.search(why, logs.cleaning.uncleanable_partitions(log.log_dir)[T0])
    assert {p.name: p.read_bytes() for p in log.directory.iterdir()} == before
    assert logs.checkpoint() == 0
    assert not logs.cleaner.clean_once()


def test_a_file_that_somebody_removed_makes_its_log_uncleanable(tmp_path: Path) -> None:
    logs = groups_of_one(tmp_path)
    logs.restart()
    log = logs.log()
    assert log.segments[1].first_batch_timestamp() > 0
    log.segments[1].path.unlink()
    assert not logs.cleaner.clean_once()
    assert log.segments[1].path.name in logs.cleaning.uncleanable_partitions(log.log_dir)[T0]
    assert not logs.manager.context.failures.offline


def test_an_engine_that_fails_is_tried_again_after_the_other_logs(tmp_path: Path) -> None:
    logs = RunningLogs(tmp_path, {"t": COMPACT})
    for name, times in (("t-0", 20), ("t-1", 10)):
        dups(logs, logs.log(name), 10, times)
    left = [EngineError("no Java"), EngineError("its process ended")]

    def fail(committer: CompactionCommitter) -> None:
        if committer.compaction.name == "t-0" and left:
            raise left.pop()

    cleaner = OnlineCleaner(logs.cleaning, HookedEngine(before=fail))
    cleaned = []
    for _ in range(6):
        assert cleaner.clean_once() in {True, False}
        cleaned.append(sorted(map(str, logs.cleaning.checkpoints.all())))
    assert cleaner.last_chosen is not None
    assert not logs.cleaning.uncleanable_partitions(logs.directories[0])
    assert not logs.manager.context.failures.offline
    lines = {str(p): o for p, o in logs.cleaning.checkpoints.all().items()}
    assert lines == {f"t-{n}": logs.log(f"t-{n}").active.base_offset for n in range(2)}


def test_a_log_whose_groups_are_all_in_place_is_cleaned_though_the_engine_fails_then(
    tmp_path: Path,
) -> None:
    logs = RunningLogs(tmp_path, {"t": COMPACT})
    log = logs.log()
    dups(logs, log, 10, 20)
    seen: list[CompactionCommitter] = []

    class Ending(CompiledEngine):
        def run(self, committers: Sequence[CompactionCommitter]) -> None:
            seen.extend(committers)
            super().run(committers)
            raise EngineError("its process ended")

    assert OnlineCleaner(logs.cleaning, Ending()).clean_once()
    assert [each.outcome for each in seen] == [Committed()]
    assert logs.cleaning.checkpoints.all() == {T0: log.active.base_offset}


class Disk(OsFileSystem):
    """The machine's files, and as much free space as a test says."""

    free = 10_000_000

    def free_bytes(self, path: Path) -> int:
        return self.free


def test_a_log_that_finds_the_disk_full_is_set_aside_until_space_is_free(tmp_path: Path) -> None:
    disk = Disk()
    logs = RunningLogs(tmp_path, {"t": COMPACT}, fs=disk)
    log = logs.log()
    dups(logs, log, 10, 20)

    def fail(_: CompactionCommitter) -> None:
        if disk.free < 20_000_000:
            raise NoSpaceError("the file system is full")

    cleaner = OnlineCleaner(logs.cleaning, HookedEngine(before=fail))
    assert not cleaner.clean_once()
    assert logs.cleaning.uncleanable_partitions(log.log_dir)[T0] == "the file system is full"
    assert not logs.manager.context.failures.offline
    disk.free = 19_999_999
    assert not cleaner.clean_once()
    mark = logs.cleaning.mark_of(log)
    assert mark is not None
    assert mark.attempts == 1, "it is left alone while no space has been freed"
    disk.free = 20_000_000
    assert cleaner.clean_once()
    assert not logs.cleaning.is_uncleanable(log)
    assert logs.checkpoint() == log.active.base_offset


def test_retention_goes_on_in_a_log_that_finds_the_disk_full(tmp_path: Path) -> None:
    logs = RunningLogs(tmp_path, {"t": replace(COMPACT, retention_bytes=1)})
    log = logs.log()
    dups(logs, log, 10, 20)
    logs.cleaning.mark_uncleanable(log, "full", retry_free_bytes=1 << 62)
    assert logs.cleaning.deletable_logs() == [log]


def test_a_staged_file_that_cannot_be_written_sets_the_log_aside_and_nothing_else(
    tmp_path: Path,
) -> None:
    logs = groups_of_one(tmp_path)
    log = logs.log()
    before = {p.name: p.read_bytes() for p in log.directory.iterdir()}

    def fail(_: CompactionCommitter) -> None:
        raise StagingError("the staged file x cannot be written: Input/output error")

    cleaner = OnlineCleaner(logs.cleaning, HookedEngine(before=fail))
    assert not cleaner.clean_once()
    assert "staged file" in logs.cleaning.uncleanable_partitions(log.log_dir)[T0]
    assert not logs.manager.context.failures.offline
    assert {p.name: p.read_bytes() for p in log.directory.iterdir()} == before


def test_a_file_error_takes_the_directory_offline(tmp_path: Path) -> None:
    logs = groups_of_one(tmp_path)
    log = logs.log()

    def fail(_: CompactionCommitter) -> None:
        raise OSError(5, "Input/output error", str(log.segments[0].path))

    cleaner = OnlineCleaner(logs.cleaning, HookedEngine(before=fail))
    cleaner.clean_once()
    reason = logs.manager.context.failures.offline[log.log_dir]
    assert reason.startswith(f"Failed to clean up log for t-0 in dir {log.log_dir} due to")
    assert logs.manager.get(T0) is None
    assert logs.cleaning.states.of(T0) is None


# ---- lags


def test_a_log_is_cleaned_once_its_max_compaction_lag_has_passed(tmp_path: Path) -> None:
    lag = 6 * HOUR_MS
    config = replace(
        COMPACT,
        segment_bytes=512,
        min_cleanable_dirty_ratio=1.0,
        min_compaction_lag_ms=HOUR_MS,
        max_compaction_lag_ms=lag,
    )
    logs = RunningLogs(tmp_path, {"t": config})
    log = logs.log()
    dups(logs, log, 100, 3)
    first = read_records(log)
    active = log.active.base_offset
    logs.clock.advance(lag // 2)
    assert not logs.cleaner.clean_once()
    assert read_records(log) == first
    logs.clock.advance(lag // 2 + 1)
    for key in range(100):
        logs.put(log, (b"%d" % key, b"0"))
    log.roll()
    log.update_high_watermark(log.log_end_offset)
    second = log.active.base_offset
    # What was written just now is within the min lag, and so the first block alone is cleaned.
    assert logs.cleaner.clean_once()
    assert logs.checkpoint() is not None
    assert active <= (logs.checkpoint() or 0) < second
    assert len(read_records(log)) < 400
    logs.clock.advance(lag + 1)
    assert logs.cleaner.clean_once()
    assert {value for value, _ in newest(read_records(log)).values()} == {b"0"}
    assert [record.value for record in read_records(log)] == [b"0"] * 100
    assert logs.cleaner.last_chosen is not None
    assert logs.cleaner.last_chosen.delayed_partitions == 1


@pytest.mark.parametrize("codec", list(Codec))
def test_what_is_within_the_min_compaction_lag_is_not_touched(tmp_path: Path, codec: Codec) -> None:
    logs = RunningLogs(tmp_path, {"t": replace(COMPACT, min_compaction_lag_ms=HOUR_MS)})
    log = logs.log()
    dups(logs, log, 100, 3, codec=codec)
    active = log.active.base_offset
    before = read_records(log)
    logs.clock.advance(HOUR_MS // 2)
    assert not logs.cleaner.clean_once()
    assert read_records(log) == before
    logs.clock.advance(HOUR_MS // 2 + 1)
    dups(logs, log, 100, 2, codec=codec, start=300)
    size = sum(s.size_bytes for s in log.segments if s.base_offset < active)
    assert logs.cleaner.clean_once()
    assert (logs.checkpoint() or 0) >= active
    assert sum(s.size_bytes for s in log.segments if s.base_offset < active) < size
    young = [record for record in read_records(log) if record.offset >= 300]
    assert [record.value for record in young] == [b"%d" % n for n in range(300, 500)]


# ---- settings


def test_the_rate_is_shared_by_the_threads_and_read_anew_for_every_round(tmp_path: Path) -> None:
    logs = RunningLogs(tmp_path, {"t": COMPACT}, log_cleaner_threads=2)
    engine = HookedEngine()
    cleaner = OnlineCleaner(logs.cleaning, engine)
    for number, rate in enumerate((None, 1e9, 2e9)):
        if rate is not None:
            logs.manager.broker = BrokerConfig(
                {"log.cleaner.threads": 2, "log.cleaner.io.max.bytes.per.second": rate}
            )
        dups(logs, logs.log(), 30, 3, start=number)
        assert cleaner.clean_once()
    assert [each.attempt.limits.throttle_bytes for each in engine.rounds] == [
        None,
        500_000_000,
        10**9,
    ]


def test_every_round_has_secrets_and_a_name_of_its_own(tmp_path: Path) -> None:
    logs = RunningLogs(tmp_path, {"t": COMPACT})
    engine = HookedEngine()
    cleaner = OnlineCleaner(logs.cleaning, engine)
    for _ in range(3):
        dups(logs, logs.log(), 30, 3)
        assert cleaner.clean_once()
    assert len({compaction.seed for compaction in engine.rounds}) == 3
    assert len({compaction.attempt.token for compaction in engine.rounds}) == 3


# ---- old formats


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP, Codec.SNAPPY, Codec.LZ4])
@pytest.mark.parametrize("magic", [0, 1])
def test_old_formats_are_read_and_become_batches_of_today(
    tmp_path: Path, magic: int, codec: Codec
) -> None:
    builder = LogBuilder("t-0")
    stamp = NOW_MS - 5 if magic else -1
    for offset in range(40):
        key, value = b"%d" % (offset % 7), b"%d" % offset
        if codec is Codec.NONE:
            data = build_legacy_message(
                offset=offset, magic=magic, key=key, value=value, timestamp=stamp
            )
        else:
            data = build_legacy_wrapper(
                [Record(offset, stamp, key, value)], magic=magic, codec=codec
            )
        builder.append(data)
    builder.roll()
    write_log_dir(tmp_path / "logs-0", [builder])
    logs = RunningLogs(tmp_path, {"t": COMPACT}, clock=ManualClock(NOW_MS))
    log = logs.log()
    before = newest(read_records(log))
    assert len(read_records(log)) == 40
    # Records of today follow in the same log.
    logs.put(log, (b"0", b"new"), (b"new", b"new"), codec=codec)
    before |= {b"0": (b"new", 40), b"new": (b"new", 41)}
    log.roll()
    log.update_high_watermark(log.log_end_offset)
    assert logs.cleaner.clean_once()
    assert newest(read_records(log)) == before
    batches = [
        batch
        for segment in log.segments
        for _, batch in iter_batches(segment.path.read_bytes()[: segment.size_bytes])
    ]
    assert all(isinstance(batch, RecordBatch) for batch in batches)
    assert {batch.codec for batch in batches} == {codec}
    assert len(read_records(log)) == 8


# ---- whoever needs the log stops the cleaner


def test_a_truncation_in_mid_round_stops_it_and_lowers_the_checkpoint(tmp_path: Path) -> None:
    logs = groups_of_one(tmp_path)
    log = logs.log()
    logs.set_checkpoint(0)
    threads: list[threading.Thread] = []

    def truncate(committer: CompactionCommitter) -> None:
        if not threads:
            assert len(committer.result.manifests) == 1
            threads.append(in_thread(lambda: truncate_paused(logs.cleaning, {T0: 25})))
            wait_until_aborted(logs.cleaning, threads[0])
            assert log.log_end_offset == 40, "it waits until the cleaner has let go"

    cleaner = OnlineCleaner(logs.cleaning, OneByOne(after_group=truncate))
    cleaner.clean_once()
    threads[0].join(120)
    assert log.log_end_offset == 25
    assert logs.cleaning.states.of(T0) is None
    # The first group is in place, and nothing is left of the others.
    assert offsets(log) == [1, 3, 5, 7, 9, *range(10, 25)]
    assert not list(log.directory.glob("*.staged"))
    assert logs.checkpoint() == 0
    assert not logs.cleaning.uncleanable_partitions(log.log_dir)
    assert logs.cleaner.clean_once()
    assert offsets(log) == [1, 3, 5, 7, 9, 11, 13, 15, 17, 19, *range(20, 25)]


@pytest.mark.parametrize(("offset", "line"), [(25, 20), (45, 40)])
def test_a_truncation_below_the_checkpoint_lowers_it_to_the_active_segment(
    tmp_path: Path, offset: int, line: int
) -> None:
    logs = groups_of_one(tmp_path, count=5)
    assert logs.cleaner.clean_once()
    assert logs.checkpoint() == 50
    truncate_paused(logs.cleaning, {T0: offset})
    assert logs.log().log_end_offset == offset
    assert logs.log().active.base_offset == line
    assert logs.checkpoint() == line
    assert logs.cleaning.states.of(T0) is None


def test_a_truncation_within_the_active_segment_disturbs_nobody(tmp_path: Path) -> None:
    logs = groups_of_one(tmp_path)
    dups(logs, logs.log(), 3, 1)
    assert logs.cleaning.grab_filthiest(logs.clock.now_ms()) is not None
    truncate_paused(logs.cleaning, {T0: 41})
    assert logs.log().log_end_offset == 41
    logs.cleaning.done_cleaning(T0, logs.directories[0], 0)


@pytest.mark.parametrize("is_wanted", [True, False])
@pytest.mark.parametrize("how", ["cut off", "emptied"])
def test_others_run_while_a_truncation_in_slices_waits_for_the_cleaner(
    tmp_path: Path, how: str, is_wanted: bool
) -> None:
    logs = groups_of_one(tmp_path)
    assert logs.cleaning.grab_filthiest(logs.clock.now_ms()) is not None

    def truncate() -> None:
        if how == "cut off":
            truncate_paused(logs.cleaning, {T0: 25}, is_wanted=lambda: is_wanted)
        else:
            truncate_fully_paused(logs.cleaning, T0, 7, is_wanted=lambda: is_wanted)

    async def scenario() -> None:
        slices = Slices(asyncio.get_running_loop())
        truncation = slices.run(truncate)
        while not isinstance(logs.cleaning.states.of(T0), Aborted):
            await asyncio.sleep(0)
        release()
        await truncation
        await slices.finish()

    def release() -> None:
        logs.cleaning.done_cleaning(T0, logs.directories[0], 0)

    # An event loop that stands still would never release it.
    too_late = threading.Timer(60, release)
    too_late.start()
    asyncio.run(scenario())
    too_late.cancel()
    too_late.join()
    truncated = 25 if how == "cut off" else 7
    assert logs.log().log_end_offset == (truncated if is_wanted else 40)
    assert logs.cleaning.states.of(T0) is None


def test_a_log_that_is_emptied_begins_its_cleaning_anew(tmp_path: Path) -> None:
    logs = groups_of_one(tmp_path)
    assert logs.cleaner.clean_once()
    assert logs.checkpoint() == 40
    truncate_fully_paused(logs.cleaning, T0, 7)
    assert (logs.log().log_end_offset, logs.checkpoint()) == (7, 7)
    dups(logs, logs.log(), 30, 3)
    assert logs.cleaner.clean_once()
    assert len(offsets(logs.log())) < 90


def test_a_deletion_in_mid_round_waits_for_the_cleaner_and_leaves_no_trace(
    tmp_path: Path,
) -> None:
    logs = groups_of_one(tmp_path)
    log = logs.log()
    threads: list[threading.Thread] = []

    def delete(_: CompactionCommitter) -> None:
        if not threads:
            threads.append(in_thread(lambda: logs.manager.delete(T0)))
            wait_until_aborted(logs.cleaning, threads[0])
            assert log.directory.name == "t-0"

    cleaner = OnlineCleaner(logs.cleaning, OneByOne(after_group=delete))
    cleaner.clean_once()
    threads[0].join(120)
    assert log.directory.name.endswith("-delete")
    assert not list(log.directory.glob("*.staged"))
    assert logs.cleaning.states.of(T0) is None
    assert logs.cleaning.checkpoints.all() == {}
    made_anew = logs.log()
    assert made_anew is not log
    dups(logs, made_anew, 30, 3)
    assert logs.cleaner.clean_once()


def test_a_policy_without_compact_stops_the_round(tmp_path: Path) -> None:
    logs = groups_of_one(tmp_path)
    log = logs.log()
    threads: list[threading.Thread] = []

    def change(_: CompactionCommitter) -> None:
        if not threads:
            config = replace(log.config, cleanup_policy=frozenset({"delete"}))
            threads.append(in_thread(lambda: update_topic_config(logs.cleaning, "t", config)))
            wait_until_aborted(logs.cleaning, threads[0])

    cleaner = OnlineCleaner(logs.cleaning, OneByOne(after_group=change))
    cleaner.clean_once()
    threads[0].join(120)
    assert logs.cleaning.states.of(T0) is None
    assert offsets(log) == [1, 3, 5, 7, 9, *range(10, 40)]
    assert logs.checkpoint() is None
    assert not cleaner.clean_once()


def test_other_settings_do_not_stop_a_round(tmp_path: Path) -> None:
    logs = groups_of_one(tmp_path)
    log = logs.log()
    assert logs.cleaning.grab_filthiest(logs.clock.now_ms()) is not None
    update_topic_config(logs.cleaning, "t", replace(log.config, retention_ms=7))
    assert log.config.retention_ms == 7
    logs.cleaning.done_cleaning(T0, log.log_dir, 0)


def test_a_directory_that_fails_ends_the_round(tmp_path: Path) -> None:
    logs = groups_of_one(tmp_path)
    log = logs.log()

    def fail(_: CompactionCommitter) -> None:
        logs.manager.context.failures.fail(log.log_dir, "a disk that died")

    cleaner = OnlineCleaner(logs.cleaning, OneByOne(after_group=fail))
    cleaner.clean_once()
    assert logs.cleaning.states.of(T0) is None
    assert logs.manager.get(T0) is None
    assert not (log.log_dir / CLEANER_OFFSET_CHECKPOINT).exists()
    assert not logs.cleaning.uncleanable_partitions(log.log_dir)
    assert not cleaner.clean_once()


def test_a_log_on_the_move_is_not_cleaned_and_takes_its_checkpoint_along(tmp_path: Path) -> None:
    logs = RunningLogs(tmp_path, {"t": COMPACT}, directories=2)
    log = logs.log(directory=0)
    dups(logs, log, 30, 3)
    assert logs.cleaner.clean_once()
    line = logs.checkpoint()
    dups(logs, log, 30, 3)
    move = PausedMove(logs.cleaning, T0, logs.directories[1])
    assert not logs.cleaner.clean_once()
    while not move.advance():
        pass
    assert not logs.cleaner.clean_once()
    moved = move.finish()
    assert moved.log_dir == logs.directories[1]
    assert logs.checkpoint() == line
    assert (logs.directories[0] / CLEANER_OFFSET_CHECKPOINT).read_text() == "0\n0\n"
    before = newest(read_records(moved))
    assert logs.cleaner.clean_once()
    assert newest(read_records(moved)) == before
    assert logs.checkpoint() == moved.active.base_offset


def test_a_move_that_is_given_up_leaves_the_log_to_the_cleaner(tmp_path: Path) -> None:
    logs = RunningLogs(tmp_path, {"t": COMPACT}, directories=2)
    dups(logs, logs.log(directory=0), 30, 3)
    move = PausedMove(logs.cleaning, T0, logs.directories[1])
    move.advance()
    move.abandon()
    assert logs.manager.get(T0, future=True) is None
    assert logs.cleaner.clean_once()


# ---- segments that go while they are rewritten


def test_a_source_that_retention_took_is_not_retired_twice(tmp_path: Path) -> None:
    logs = RunningLogs(tmp_path, {"t": replace(BOTH, segment_bytes=100_000)})
    log = logs.log()
    for n in range(3):
        logs.put(log, (b"0", b"%d" % n))
        log.roll()
        log.update_high_watermark(log.log_end_offset)

    def delete_first(_: CompactionCommitter) -> None:
        log.maybe_increment_log_start_offset(1, "test")
        assert retain(log, logs.clock.now_ms()) == 1

    cleaner = OnlineCleaner(logs.cleaning, HookedEngine(before=delete_first_later(delete_first)))
    assert cleaner.clean_once()
    assert len(log.segments) == 2
    assert offsets(log) == [2]
    assert log.log_start_offset == 1
    names = sorted(p.name for p in log.directory.glob("*.log*"))
    assert names == [
        f"{0:020d}.log",
        f"{0:020d}.log.deleted",
        f"{1:020d}.log.deleted",
        f"{2:020d}.log.deleted",
        f"{3:020d}.log",
    ]


def delete_first_later(
    hook: Callable[[CompactionCommitter], None],
) -> Callable[[CompactionCommitter], None]:
    """Runs a hook when the first group is about to be put in place, and the second one is written.

    Until then the task needs their sources.
    """

    def prepare(committer: CompactionCommitter) -> None:
        placed = committer._commit

        def commit(manifest: object) -> None:
            groups = len(committer.compaction.groups)
            directory = Path(committer.compaction.directory)
            while len(list(directory.glob("*.manifest.*"))) < min(2, groups):
                pass
            hook(committer)
            committer._commit = placed  # type: ignore[method-assign]
            placed(manifest)  # type: ignore[arg-type]

        committer._commit = commit  # type: ignore[method-assign]

    return prepare


def test_a_group_of_which_nothing_is_left_is_dropped(tmp_path: Path) -> None:
    logs = groups_of_one(tmp_path)
    log = logs.log()

    def delete_first_two(_: CompactionCommitter) -> None:
        log.maybe_increment_log_start_offset(20, "test")
        assert retain(log, logs.clock.now_ms()) == 2

    hook = delete_first_later(delete_first_two)
    assert OnlineCleaner(logs.cleaning, HookedEngine(before=hook)).clean_once()
    assert [segment.base_offset for segment in log.segments] == [20, 30, 40]
    assert offsets(log) == [21, 23, 25, 27, 29, 31, 33, 35, 37, 39]
    assert not list(log.directory.glob("*.staged"))
    assert logs.checkpoint() == 40


def test_a_segment_that_was_cut_off_and_written_anew_is_not_replaced(tmp_path: Path) -> None:
    logs = groups_of_one(tmp_path, count=1)
    log = logs.log()

    def rewrite_behind_the_cleaners_back(_: CompactionCommitter) -> None:
        truncate_to(log, 5)
        for key in range(5):
            logs.put(log, (b"%d" % key, b"anew"))
        log.roll()
        log.update_high_watermark(log.log_end_offset)

    hook = delete_first_later(rewrite_behind_the_cleaners_back)
    assert not OnlineCleaner(logs.cleaning, HookedEngine(before=hook)).clean_once()
    assert (
        "changed since the compaction was planned"
        in (logs.cleaning.uncleanable_partitions(log.log_dir)[T0])
    )
    assert offsets(log) == list(range(10))
    assert [record.value for record in read_records(log, 5)] == [b"anew"] * 5
    assert not list(log.directory.glob("*.staged"))


# ---- the retention task


def test_the_retention_task_deletes_from_logs_without_compact_alone(tmp_path: Path) -> None:
    delete = LogConfig(segment_bytes=900, retention_ms=1_000)
    configs = {"d": delete, "c": replace(BOTH, segment_bytes=900, retention_ms=1_000)}
    logs = RunningLogs(tmp_path, configs)
    for name in ("d-0", "d-1", "c-0"):
        dups(logs, logs.log(name), 5, 10, timestamp=10)
    segments = {name: len(logs.log(name).segments) for name in ("d-0", "d-1", "c-0")}
    assert retention_pass(logs.cleaning) == segments["d-0"] + segments["d-1"]
    assert len(logs.log("c-0").segments) == segments["c-0"]
    assert logs.log("d-0").log_start_offset == 50
    assert all(logs.cleaning.states.of(TopicPartition.parse(n)) is None for n in segments)
    assert retention_pass(logs.cleaning) == 0
    # The cleaner's own pass takes the others.
    logs.set_checkpoint(logs.log("c-0").active.base_offset, "c-0")
    assert not logs.cleaner.clean_once()
    assert logs.log("c-0").log_start_offset == 50


def test_a_log_that_fails_does_not_keep_the_others_from_retention(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    logs = RunningLogs(tmp_path, {"d": LogConfig(segment_bytes=900, retention_ms=1_000)})
    for name in ("d-0", "d-1"):
        dups(logs, logs.log(name), 5, 10, timestamp=10)
    logs.log("d-0").close()
    expected = len(logs.log("d-1").segments)
    assert retention_pass(logs.cleaning) == expected
    assert "Error while deleting old segments of" in caplog.text
    assert logs.cleaning.states.of(TopicPartition("d", 0)) is None


def test_a_future_log_is_judged_beside_the_current_one(tmp_path: Path) -> None:
    config = LogConfig(segment_bytes=900, retention_ms=1_000)
    logs = RunningLogs(tmp_path, {"t": config}, directories=2)
    log = logs.log(directory=0)
    dups(logs, log, 5, 10, timestamp=10)
    move = PausedMove(logs.cleaning, T0, logs.directories[1])
    while not move.advance():
        pass
    logs.cleaning.states.resume_cleaning([T0])  # a log without compact is not kept from retention
    future = logs.manager.get(T0, future=True)
    assert future is not None
    assert retention_pass(logs.cleaning) > len(log.segments)
    assert (log.log_start_offset, future.log_start_offset) == (50, 50)


def test_retention_runs_on_the_schedule(tmp_path: Path) -> None:
    logs = RunningLogs(
        tmp_path,
        {"d": LogConfig(segment_bytes=900, retention_ms=1_000)},
        log_initial_task_delay_ms=30_000,
        log_retention_check_interval_ms=300_000,
    )
    log = logs.log("d-0")
    start_retention(logs.cleaning)
    for wait_ms, due in ((29_999, False), (1, True), (299_999, False), (1, True)):
        before = log.log_end_offset
        dups(logs, log, 5, 1, timestamp=10)
        logs.clock.advance(wait_ms)
        logs.manager.context.scheduler.run_due()
        assert (log.log_start_offset == log.log_end_offset) == due
        assert log.log_start_offset in {before, before + 5} or not due


# ---- several cleaners


def test_two_cleaners_share_the_logs_between_them(tmp_path: Path) -> None:
    logs = RunningLogs(tmp_path, {"t": COMPACT})
    names = [f"t-{n}" for n in range(6)]
    for name in names:
        dups(logs, logs.log(name), 20, 8)
    before = {name: newest(read_records(logs.log(name))) for name in names}
    errors: list[BaseException] = []

    def work(number: int) -> None:
        cleaner = OnlineCleaner(logs.cleaning, CompiledEngine(), number=number)
        try:
            while cleaner.clean_once():
                pass
        except BaseException as error:
            errors.append(error)

    threads = [in_thread(lambda n=n: work(n)) for n in range(2)]  # type: ignore[misc]
    for thread in threads:
        thread.join(60)
    assert not errors
    assert {n: newest(read_records(logs.log(n))) for n in names} == before
    lines = {str(p): o for p, o in logs.cleaning.checkpoints.all().items()}
    assert lines == {name: logs.log(name).active.base_offset for name in names}
