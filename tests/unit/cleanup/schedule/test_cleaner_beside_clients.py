"""Cleanings of a log that is written to and read meanwhile: nobody waits, nobody sees a seam."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from cordwood.cleanup.schedule.cleaner import OnlineCleaner
from cordwood.configs.log_config import LogConfig
from cordwood.format.compression import Codec
from cordwood.format.record_batch import Record, iter_batches
from cordwood.model.kafka_errors import OffsetOutOfRangeError
from cordwood.model.topic_partition import TopicPartition
from cordwood.storage.log.log_reader import Isolation
from cordwood.storage.log.partition_log import PartitionLog
from cordwood.storage.log.truncation import truncate_fully_and_start_at
from support.in_process_engine import CompiledEngine
from support.running_logs import RunningLogs, newest, read_records

T0 = TopicPartition("t", 0)
KEYS = 40
AHEAD = 300
CONFIG = LogConfig(
    cleanup_policy=frozenset({"compact"}),
    segment_bytes=8_000,
    index_interval_bytes=200,
    min_cleanable_dirty_ratio=0.0,
    file_delete_delay_ms=0,
)


class Writer:
    """Appends batches whose values count up, and remembers what it wrote.

    It keeps at most so many records ahead of the cleaner, or the log would only grow.
    """

    def __init__(self, logs: RunningLogs, log: PartitionLog) -> None:
        self.written = 0
        self._logs = logs
        self._log = log

    def __call__(self, stop: threading.Event) -> None:
        codecs = list(Codec)
        name = str(self._log.topic_partition)
        while not stop.is_set():
            at = self.written
            if at % AHEAD < 3 and at - (self._logs.checkpoint(name) or 0) > 3 * AHEAD:
                stop.wait(0.001)
                continue
            records = [(b"%d" % ((at + n) % KEYS), b"%d" % (at + n)) for n in range(3)]
            assert self._logs.put(self._log, *records, codec=codecs[at % len(codecs)]) == at
            self.written = at + 3


class HeadReader:
    """Follows the log's end, as a consumer that has caught up: it sees every record."""

    def __init__(self, log: PartitionLog) -> None:
        self.next_offset = 0
        self._log = log

    def __call__(self, stop: threading.Event) -> None:
        while not stop.is_set():
            self.catch_up()

    def catch_up(self) -> None:
        fetched = self._log.reader.read(self.next_offset, 1 << 16)
        for _, batch in iter_batches(fetched.read()):
            for record in batch.records():
                if record.offset < self.next_offset:
                    continue
                # The cleaner may be a segment behind, so a slow reader could miss what went.
                assert record.offset == self.next_offset, "a record at the head is missing"
                assert record.value == b"%d" % record.offset
                self.next_offset += 1


class TailReader:
    """Reads from the log's start to its end, over and over; offsets always ascend."""

    def __init__(
        self, log: PartitionLog, *, isolation: Isolation = Isolation.HIGH_WATERMARK
    ) -> None:
        self.passes = 0
        self._log = log
        self._isolation = isolation

    def __call__(self, stop: threading.Event) -> None:
        while not stop.is_set():
            self.read_once()

    def read_once(self) -> None:
        end = self._log.high_watermark
        try:
            records = read_records(self._log, isolation=Isolation.HIGH_WATERMARK)
        except OffsetOutOfRangeError:
            return  # the log start has moved up meanwhile
        found = [record.offset for record in records]
        assert found == sorted(set(found)), "offsets do not ascend"
        seen: dict[bytes | None, Record] = {}
        for record in records:
            assert record.value == b"%d" % record.offset
            seen[record.key] = record
        # Of every key there is a record at least as new as its newest when the pass began.
        for key in range(min(end, KEYS)):
            newest_then = end - 1 - (end - 1 - key) % KEYS
            assert seen[b"%d" % key].offset >= newest_then
        self.passes += 1


@contextmanager
def running(*workers: Callable[[threading.Event], None]) -> Iterator[list[BaseException]]:
    """Each in a thread of its own; what goes wrong in one is given, and raised at the end."""
    stop = threading.Event()
    errors: list[BaseException] = []

    def run(worker: Callable[[threading.Event], None]) -> None:
        try:
            worker(stop)
        except BaseException as error:
            errors.append(error)
            stop.set()

    threads = [threading.Thread(target=run, args=(worker,), daemon=True) for worker in workers]
    for thread in threads:
        thread.start()
    try:
        yield errors
    finally:
        stop.set()
        for thread in threads:
            thread.join(60)
    assert not [thread for thread in threads if thread.is_alive()], "somebody waits for ever"
    if errors:
        raise errors[0]


def test_every_read_is_whole_while_rounds_are_put_in_place(tmp_path: Path) -> None:
    logs = RunningLogs(tmp_path, {"t": CONFIG})
    log = logs.log()
    writer, tail = Writer(logs, log), TailReader(log)
    rounds = 0
    with running(writer, tail, TailReader(log)) as errors:
        while not errors and (rounds < 6 or tail.passes < 3):
            rounds += logs.cleaner.clean_once()
            # What was replaced is removed while readers may still hold it.
            logs.manager.context.scheduler.run_due()
            assert not logs.cleaning.uncleanable_partitions(log.log_dir)
    assert tail.passes >= 3
    assert log.log_end_offset == writer.written
    state = newest(read_records(log))
    for key in range(KEYS):
        last = writer.written - 1 - (writer.written - 1 - key) % KEYS
        assert state[b"%d" % key] == (b"%d" % last, last)
    before = read_records(log)
    logs.restart()
    assert read_records(logs.log()) == before


def test_a_reader_at_the_head_sees_every_record_that_was_written(tmp_path: Path) -> None:
    # With a lag that never passes for the newest segments, none of them is cleaned too early.
    config = replace(CONFIG, min_compaction_lag_ms=1)
    logs = RunningLogs(tmp_path, {"t": config})
    log = logs.log()
    writer, head = Writer(logs, log), HeadReader(log)
    rounds = cleaned_below = 0
    idle = threading.Event()
    with running(writer, head) as errors:
        while rounds < 5:
            # Only what was written before the clock was moved can be cleaned, and only once the
            # reader has got past it.
            logs.clock.advance(2)
            wait_for = log.log_end_offset
            while head.next_offset < wait_for:
                assert not errors, errors[0]
                idle.wait(0.001)
            rounds += logs.cleaner.clean_once()
            logs.manager.context.scheduler.run_due()
            cleaned_below = logs.checkpoint() or 0
    head.catch_up()
    while head.next_offset < writer.written:
        head.catch_up()
    assert head.next_offset == writer.written
    assert 0 < cleaned_below <= writer.written
    assert len(read_records(log)) < writer.written


def test_reads_go_on_while_retention_and_compaction_both_take_segments(tmp_path: Path) -> None:
    config = replace(
        CONFIG,
        cleanup_policy=frozenset({"compact", "delete"}),
        retention_bytes=20_000,
        retention_ms=-1,
    )
    logs = RunningLogs(tmp_path, {"t": config})
    log = logs.log()
    writer = Writer(logs, log)
    starts: list[int] = []

    def read(stop: threading.Event) -> None:
        while not stop.is_set():
            try:
                found = [r.offset for r in read_records(log, isolation=Isolation.HIGH_WATERMARK)]
            except OffsetOutOfRangeError:
                continue
            assert found == sorted(set(found))

    with running(writer, read) as errors:
        while not errors and len(set(starts)) < 3:
            logs.cleaner.clean_once()
            logs.manager.context.scheduler.run_due()
            starts.append(log.log_start_offset)
    assert starts == sorted(starts)
    assert not logs.cleaning.uncleanable_partitions(log.log_dir)


@pytest.mark.parametrize("truncates", [False, True], ids=["compaction", "truncation"])
def test_a_read_at_the_moment_of_removal_finds_its_segments(
    tmp_path: Path, truncates: bool
) -> None:
    """With file.delete.delay.ms=0 another thread removes the files as soon as it is told to."""
    logs = RunningLogs(tmp_path, {"t": CONFIG})
    log = logs.log()
    for number in range(AHEAD):
        logs.put(log, (b"%d" % (number % KEYS), b"%d" % number))
    assert len(log.segments) > 1
    scheduler = logs.manager.context.scheduler
    read = []

    def remove_and_read() -> None:
        scheduler.run_due()
        try:
            read.append(len(read_records(log)))
        except OffsetOutOfRangeError:  # the log has been emptied
            assert truncates
            read.append(0)

    scheduler.on_change = remove_and_read
    if truncates:
        truncate_fully_and_start_at(log, AHEAD)
    else:
        logs.set_checkpoint(0)
        assert logs.cleaner.clean_once()
    assert read
    assert not logs.manager.context.failures.offline
    assert not list(log.directory.glob("*.deleted"))


@pytest.mark.parametrize("delay_ms", [0, 60_000])
def test_two_cleaners_and_a_truncating_leader_change_disturb_no_reader(
    tmp_path: Path, delay_ms: int
) -> None:
    logs = RunningLogs(tmp_path, {"t": replace(CONFIG, file_delete_delay_ms=delay_ms)})
    log, other = logs.log("t-0"), logs.log("t-1")
    first, second = Writer(logs, log), Writer(logs, other)

    def clean(number: int) -> Callable[[threading.Event], None]:
        cleaner = OnlineCleaner(logs.cleaning, CompiledEngine(), number=number)

        def work(stop: threading.Event) -> None:
            while not stop.is_set():
                cleaner.clean_once()

        return work

    def pause_and_resume(stop: threading.Event) -> None:
        while not stop.is_set():
            logs.cleaning.states.abort_and_pause(T0)
            logs.cleaning.states.resume_cleaning([T0])

    tail = TailReader(other)
    with running(first, second, clean(0), clean(1), pause_and_resume, tail) as errors:
        while not errors and (tail.passes < 3 or not logs.checkpoint("t-1")):
            logs.manager.context.scheduler.run_due()
    assert logs.cleaning.states.of(T0) is None
    assert not logs.cleaning.uncleanable_partitions(log.log_dir)
    for writer, each in ((first, log), (second, other)):
        state = newest(read_records(each))
        assert len(state) == min(KEYS, writer.written)
        assert max(offset for _, offset in state.values()) == writer.written - 1
