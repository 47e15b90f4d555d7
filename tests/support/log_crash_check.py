"""A log directory as a crash may leave it, opened again and judged by what is known of its logs."""

from __future__ import annotations

import heapq
import random
from collections.abc import Mapping, Sequence
from pathlib import Path

from cordwood.configs.broker_config import BrokerConfig
from cordwood.configs.log_config import LogConfig
from cordwood.format.batch_header import parse_header
from cordwood.format.control_record import ControlType
from cordwood.format.file_names import (
    INDEX_SUFFIX,
    LOCK,
    LOG_SUFFIX,
    TIME_INDEX_SUFFIX,
    TXN_INDEX_SUFFIX,
    base_offset_of,
    segment_file_name,
)
from cordwood.format.offset_index import parse_offset_index
from cordwood.format.record_batch import Record, build_batch, iter_batches
from cordwood.format.time_index import parse_time_index
from cordwood.format.transaction_index import AbortedTransaction, parse_transaction_index
from cordwood.model.append_origin import AppendOrigin
from cordwood.model.clock import Clock
from cordwood.model.errors import CordwoodError
from cordwood.model.topic_partition import TopicPartition
from cordwood.storage.filesystem import FileSystem
from cordwood.storage.log.append_result import AppendResult
from cordwood.storage.log.log_context import LogContext
from cordwood.storage.log.log_reader import Fetched, Isolation
from cordwood.storage.log.partition_log import PartitionLog
from cordwood.storage.log_manager import LogManager
from cordwood.storage.segment.resources import ResourceCache
from cordwood.testing.simulated_filesystem import SimulatedFileSystem
from support.log_crash_model import (
    Found,
    LogModel,
    Producer,
    Stored,
    producers_of,
    stored_in,
)
from support.watched import SeededRng, WatchedScheduler

FOREVER_MS = 1 << 60
_FETCHES_MAX = 10_000


def open_manager(
    fs: FileSystem,
    directories: Sequence[Path],
    *,
    configs: Mapping[str, LogConfig],
    clock: Clock,
    rng: random.Random,
) -> LogManager:
    """A manager over the directories as they are, with everything loaded."""
    context = LogContext(
        clock=clock,
        rng=SeededRng(rng),
        resources=ResourceCache(fs),
        scheduler=WatchedScheduler(clock),
        producer_id_expiration_ms=FOREVER_MS,
    )
    manager = LogManager(
        directories,
        broker=BrokerConfig({"num.recovery.threads.per.data.dir": 1}),
        topic_config=configs.get,
        context=context,
    )
    manager.load()
    return manager


def files_below(fs: FileSystem, directory: Path) -> dict[Path, bytes]:
    """Every file and its bytes; locks are no files."""
    found: dict[Path, bytes] = {}
    for entry in fs.entries_in(directory):
        path = directory / entry.name
        if entry.is_directory:
            found |= files_below(fs, path)
        elif entry.name != LOCK:
            found[path] = fs.read_bytes(path)
    return found


def segments_of(log: PartitionLog) -> list[Found]:
    """Every batch in the segments of a log, also below its start."""
    fs = log.context.fs
    found: list[Found] = []
    end = 0
    for segment in log.segments:
        data = fs.read_bytes(segment.path)
        assert not any(data[segment.size_bytes :]), f"{segment}: {len(data)} bytes in its file"
        assert segment.base_offset >= end, f"{segment} begins below {end}"
        end = segment.base_offset
        batches = stored_in(data[: segment.size_bytes])
        for batch in batches:
            assert batch.base_offset >= end, f"{segment}: {batch.header} begins below {end}"
            end = batch.next_offset
        found.append(Found(segment.base_offset, batches))
    return found


def batches_of(found: Sequence[Found]) -> list[Stored]:
    """The batches of all segments."""
    return [batch for segment in found for batch in segment.batches]


class LogCheck:
    """One log that was opened after a crash, against its model."""

    def __init__(self, log: PartitionLog, model: LogModel, rng: random.Random) -> None:
        self._log = log
        self._model = model
        self._rng = rng
        segments = segments_of(log)
        self.has_hole = not model.find(segments)
        self.found = batches_of(segments)
        self._segments = segments
        self.known = model.known(segments)
        recovered = log.segments.values(log.offsets.recovery_point, 1 << 63)
        #: The base offset of the first segment that was recovered, or is written to.
        self.recovered_from = min(s.base_offset for s in [*recovered, log.active])

    def check(self) -> None:
        """Refuses a log that is not what it must be; it is only read, but for its high watermark.

        Raises:
            AssertionError: what is wrong.
        """
        log = self._log
        self._check_offsets()
        log.update_high_watermark(log.log_end_offset)
        self._check_epochs()
        self._check_reads()
        self._check_lookups()
        self._check_stable()
        self._check_producers()

    def _visible(self) -> list[Stored]:
        return [b for b in self.found if b.next_offset > self._log.log_start_offset]

    def _check_offsets(self) -> None:
        log, model = self._log, self._model
        start, end = log.log_start_offset, log.log_end_offset
        stable, mark = log.last_stable_offset, log.high_watermark
        assert start <= stable <= mark <= end, f"{start} {stable} {mark} {end}"
        assert log.offsets.recovery_point <= end
        ends = [model.start, model.end, *[b.next_offset for b in model.appending]]
        if not model.begins_anew:
            low, high = model.start_min, model.start
            assert low <= start <= high, f"log start {start}, not {low} to {high}"
            low, high = model.end_min, max(ends)
            assert low <= end <= high, f"log end {end}, not {low} to {high}"
        bases = [segment.base_offset for segment in log.segments]
        assert bases == sorted(set(bases)), f"segments {bases}"
        assert not self.found or end == max(self.found[-1].next_offset, bases[-1])

    def _check_epochs(self) -> None:
        log = self._log
        for batch in self._visible():
            # Of records that were deleted and have come back it may be forgotten.
            offset = max(batch.base_offset, self._model.start)
            if offset < batch.next_offset:
                known = log.leader_epochs.epoch_for_offset(offset)
                epoch = batch.header.partition_leader_epoch
                assert known == epoch, f"epoch {known} of offset {offset}, not {epoch}"
        starts = [entry.start_offset for entry in log.leader_epochs.epoch_entries]
        assert all(start < max(1, log.log_end_offset) for start in starts), starts

    def _check_reads(self) -> None:
        """Reads by offset: whole batches in order, wherever one begins."""
        log, visible = self._log, self._visible()
        assert fetch_all(log, log.log_start_offset, 1 << 20) == [b.raw for b in visible]
        if visible:
            at = self._rng.randrange(log.log_start_offset, visible[-1].next_offset)
            wanted = [b.raw for b in visible if b.next_offset > at]
            assert fetch_all(log, at, self._rng.choice([1, 100, 700])) == wanted, f"from {at}"

    def _check_lookups(self) -> None:
        """Looks up by offset and by timestamp, through whatever the indexes hold."""
        log = self._log
        for segment, found in zip(log.segments, self._segments, strict=True):
            position = 0
            for batch in found.batches:
                at = segment.translate_offset(batch.header.last_offset)
                assert at is not None, f"{batch.header} is not found"
                assert at.position == position, f"{at}, not at {position}"
                position += batch.header.size_bytes
        times = [r.timestamp for batch in self.found if batch.is_data for r in batch.records()]
        for timestamp in self._rng.sample(times, min(2, len(times))):
            self._check_timestamp(timestamp)

    def _check_timestamp(self, timestamp: int) -> None:
        """Looks up a timestamp as Kafka: the first such record of the first such segment."""
        log = self._log
        for found in self._segments:
            if not found.batches:
                return  # the time of its file stands for that of its records
            if max(batch.header.max_timestamp for batch in found.batches) >= timestamp:
                break
        listed = log.reader.list_offset(timestamp, isolation=Isolation.LOG_END)
        expected = next(
            (
                (record.timestamp, record.offset)
                for batch in found.batches
                for record in batch.records()
                if record.timestamp >= timestamp and record.offset >= log.log_start_offset
            ),
            None,
        )
        assert (listed and listed[:2]) == expected, f"at {timestamp}: {listed}, not {expected}"

    def _check_stable(self) -> None:
        """Checks open and aborted transactions, as readers of committed records see them."""
        log = self._log
        start, end = log.log_start_offset, log.log_end_offset
        visible = self._visible()
        # Records that were deleted may come back, without the transaction they were part of.
        sure = [batch for batch in visible if batch.next_offset > self._model.start]
        highest = min([max(since, start) for since in open_since(sure)], default=end)
        # A marker that was deleted, and not flushed, may be lost while the transaction's records
        # are still in the files, below the log start offset.
        # A truncation below the high watermark may take the marker of a transaction whose records
        # were cleaned away: the producer snapshot below the marker has it open.
        given = [batch for batch in self._model.history if batch.next_offset <= end]
        known = [*open_since(self.known), *open_since(self.found), *open_since(given)]
        lowest = min([highest, *[max(since, start) for since in known]])
        lowest = start if self._model.doubtful else lowest
        stable = log.last_stable_offset
        assert lowest <= stable <= highest, f"LSO {stable}, not {lowest} to {highest}"
        aborted = aborted_batches(self.found)
        wanted = [
            record
            for batch in visible
            if batch.is_data and batch.base_offset not in aborted and batch.next_offset <= stable
            for record in batch.records()
        ]
        at = self._rng.randint(start, stable)
        for offset in {start, at}:
            seen = read_committed(log, offset, self._rng.choice([1, 300, 1 << 20]))
            assert seen == [r for r in wanted if r.offset >= offset], f"committed, from {offset}"

    def _check_producers(self) -> None:
        state = self._log.producer_state
        for producer_id, producer in self._recognised().items():
            assert producer.newest is not None
            header = producer.newest.header
            found = state.find_duplicate(header)
            assert found is not None, f"the newest batch of {producer_id}, {header}, is not known"
            assert (found.first_offset, found.last_offset) == (
                header.base_offset,
                header.last_offset,
            ), f"{found} of {header}"

    def _recognised(self) -> dict[int, Producer]:
        """The producers whose newest batch has to be known.

        It was not deleted, nor cleaned away since a newer one was there, which is lost now.
        """
        start = max(self._log.log_start_offset, self._model.start)
        there = {batch.base_offset for batch in self.found}
        ever = producers_of([*self._model.history, *self._model.appending])
        return {
            producer_id: producer
            for producer_id, producer in producers_of(self.known).items()
            if producer.newest is not None
            and producer_id not in self._model.doubtful
            and producer.newest.header.producer_epoch == producer.epoch
            and producer.newest.next_offset > start
            and (producer == ever[producer_id] or producer.newest.base_offset in there)
        }

    # ---- it continues

    def go_on(self) -> None:
        """Appends to the log: behind its end, once, and what came before is as it was.

        Raises:
            AssertionError: what is wrong.
        """
        log = self._log
        end = log.log_end_offset
        for producer_id, producer in self._recognised().items():
            assert producer.newest is not None
            if self._rng.random() < 0.5:
                result = log.append_as_leader(producer.newest.sent, leader_epoch=self._epoch())
                assert result.is_duplicate, f"the newest batch of {producer_id} was appended again"
                assert result.first_offset == producer.newest.base_offset
        record = Record(0, log.context.clock.now_ms(), b"k0", b"continues")
        sent = build_batch([record], base_offset=0)
        result = append_to(log, sent, leader_epoch=self._epoch())
        assert result.first_offset == end, f"appended at {result.first_offset}, not {end}"
        for producer_id, producer in self._recognised().items():
            sent = build_batch(
                [record],
                base_offset=0,
                producer_id=producer_id,
                producer_epoch=producer.epoch,
                base_sequence=producer.next_sequence,
                is_transactional=producer.open_since is not None,
            )
            append_to(log, sent, leader_epoch=self._epoch())
            break
        found = batches_of(segments_of(log))
        assert found[: len(self.found)] == self.found, "an append has changed what was there"
        self.found = found

    def _epoch(self) -> int:
        return max(0, self._log.leader_epochs.latest_epoch or 0)


def append_to(
    log: PartitionLog,
    sent: bytes,
    *,
    leader_epoch: int,
    origin: AppendOrigin = AppendOrigin.CLIENT,
) -> AppendResult:
    """Appends a batch as its producer sent it; a transaction is verified first."""
    header = parse_header(sent)
    guard = None
    if header.is_transactional and not header.is_control:
        guard = log.maybe_start_verification(
            header.producer_id, header.base_sequence, header.producer_epoch
        )
    return log.append_as_leader(
        sent, leader_epoch=leader_epoch, origin=origin, verification_guard=guard
    )


def open_since(batches: Sequence[Stored]) -> list[int]:
    """The first offsets of the transactions that are open in a log of these batches."""
    producers = producers_of(batches).values()
    return [p.open_since for p in producers if p.open_since is not None]


def fetch_all(log: PartitionLog, offset: int, max_bytes: int) -> list[bytes]:
    """The batches that a follower gets from an offset on; part of one counts as none."""
    found: list[bytes] = []
    for _ in range(_FETCHES_MAX):
        data = log.reader.read(offset, max_bytes, isolation=Isolation.LOG_END).read()
        batches = [batch for _, batch in iter_batches(data)]
        if not batches:
            assert not data, f"{len(data)} bytes at {offset} and no batch"
            return found
        assert batches[0].next_offset > offset, f"a read from {offset} gives {batches[0]}"
        found += [bytes(batch.raw) for batch in batches]
        offset = batches[-1].next_offset
    raise AssertionError(f"a read stays at {offset}")


def read_committed(log: PartitionLog, offset: int, max_bytes: int) -> list[Record]:
    """The records that a consumer of committed records gets from an offset on.

    Source: org.apache.kafka.clients.consumer.internals.CompletedFetch.
    """
    found: list[Record] = []
    for _ in range(_FETCHES_MAX):
        fetched = log.reader.read(offset, max_bytes, isolation=Isolation.TXN_COMMITTED)
        batches = stored_whole(fetched)
        if not batches:
            return found
        assert fetched.aborted is not None, "it was asked for"
        waiting = [(entry.first_offset, entry.producer_id) for entry in fetched.aborted]
        heapq.heapify(waiting)
        aborted: set[int] = set()
        for batch in batches:
            header = batch.header
            while waiting and waiting[0][0] <= header.last_offset:
                aborted.add(heapq.heappop(waiting)[1])
            if header.is_control:
                if batch.marker is ControlType.ABORT:
                    aborted.discard(header.producer_id)
            elif not (header.is_transactional and header.producer_id in aborted):
                found += [record for record in batch.records() if record.offset >= offset]
        offset = batches[-1].next_offset
    raise AssertionError(f"a read stays at {offset}")


def stored_whole(fetched: Fetched) -> list[Stored]:
    """The whole batches of what was read."""
    data = fetched.read()
    size = sum(batch.size_bytes for _, batch in iter_batches(data))
    return stored_in(data[:size])


def aborted_batches(batches: Sequence[Stored]) -> set[int]:
    """The base offsets of batches whose transactions were aborted."""
    running: dict[int, list[int]] = {}
    found: set[int] = set()
    for batch in batches:
        header = batch.header
        if header.is_control:
            mine = running.pop(header.producer_id, [])
            if batch.marker is ControlType.ABORT:
                found.update(mine)
        elif header.is_transactional:
            running.setdefault(header.producer_id, []).append(header.base_offset)
    return found


def check_indexes(
    fs: FileSystem, directory: Path, aborted: Sequence[AbortedTransaction], *, recovered_from: int
) -> None:
    """Refuses a directory whose indexes do not agree with its logs, as a clean stop leaves it.

    Args:
        fs: where it lies.
        directory: the partition's.
        aborted: every transaction whose abort may be in an index, with any last stable offset.
        recovered_from: the base of the first segment to look at: those below were not recovered,
            and what was not on disk of their indexes may be anything, until it is asked for.

    Raises:
        AssertionError: an entry is not what the log says.
    """
    names = fs.names_in(directory)
    truth = {(a.producer_id, a.last_offset) for a in aborted}
    for name in names:
        if not name.endswith(LOG_SUFFIX) or base_offset_of(name) < recovered_from:
            continue
        base = base_offset_of(name)
        data = fs.read_bytes(directory / name)
        at = dict(iter_batches(data))
        times = {batch.last_offset: batch.max_timestamp for batch in at.values()}
        index = fs.read_bytes(directory / segment_file_name(base, INDEX_SUFFIX))
        for offset, position in parse_offset_index(index, base):
            assert position in at, f"{name}: entry {offset} at {position}, where no batch begins"
            assert at[position].last_offset == offset, f"{name}: entry {offset} at {position}"
        time_index = fs.read_bytes(directory / segment_file_name(base, TIME_INDEX_SUFFIX))
        for timestamp, offset in parse_time_index(time_index, base):
            assert times.get(offset) == timestamp, f"{name}: time entry {timestamp} at {offset}"
        txn_name = segment_file_name(base, TXN_INDEX_SUFFIX)
        if txn_name in names:
            for entry in parse_transaction_index(fs.read_bytes(directory / txn_name)):
                key = (entry.producer_id, entry.last_offset)
                assert key in truth, f"{txn_name}: {entry} was never aborted"


def aborted_of(batches: Sequence[Stored]) -> list[AbortedTransaction]:
    """The transactions that were aborted in a log that was given these batches."""
    return [
        AbortedTransaction(
            producer_id=batch.header.producer_id,
            first_offset=-1,
            last_offset=batch.base_offset,
            last_stable_offset=-1,
        )
        for batch in batches
        if batch.marker is ControlType.ABORT
    ]


class ImageCheck:
    """Opens a file system as a crash may have left it, and judges every log in it.

    Attributes:
        images: how many were judged; the same one is not judged again before the logs change.
        holes: logs among them that miss records between two segments, none of them flushed.
    """

    def __init__(
        self, directories: Sequence[Path], *, configs: Mapping[str, LogConfig], clock: Clock
    ) -> None:
        self.images = self.holes = 0
        self._judged: set[int] = set()
        self._directories = directories
        self._configs = configs
        self._clock = clock

    def open(self, fs: FileSystem, rng: random.Random) -> LogManager:
        """A manager over it."""
        return open_manager(
            fs, self._directories, configs=self._configs, clock=self._clock, rng=rng
        )

    def check(
        self,
        fs: SimulatedFileSystem,
        models: Mapping[TopicPartition, LogModel],
        rng: random.Random,
    ) -> None:
        """Opens it, judges, appends, stops it cleanly, and opens it once more.

        Args:
            fs: as it was found.
            models: of each partition.
            rng: draws which reads are made.

        Raises:
            AssertionError: what is wrong.
        """
        if self._is_known(fs, models):
            return
        self.images += 1
        manager = self.open(fs, rng)
        known = {log.topic_partition for log in manager.logs()}
        logs = {p: log for p in known if (log := manager.get(p)) is not None}
        assert logs.keys() <= models.keys(), f"{sorted(map(str, logs))} came back"
        self._require_second_changes_nothing(manager, fs.process_crash(), rng)
        checks = {}
        for partition, model in models.items():
            if partition not in logs:
                assert model.may_be_missing, f"{partition} is gone"
                continue
            try:
                checks[partition] = check = LogCheck(logs[partition], model, rng)
                check.check()
                check.go_on()
            except (AssertionError, CordwoodError) as error:
                raise AssertionError(f"{partition}: {type(error).__name__}: {error}") from error
            self.holes += check.has_hole
        manager.shutdown()
        for partition, check in checks.items():
            aborted = aborted_of(check.known)
            directory = logs[partition].directory
            check_indexes(fs, directory, aborted, recovered_from=check.recovered_from)
            check.found = batches_of(segments_of(logs[partition]))
        self._check_clean_start(fs, checks, rng)

    def _is_known(self, fs: FileSystem, models: Mapping[TopicPartition, LogModel]) -> bool:
        files = [
            (str(path), data)
            for directory in self._directories
            if fs.exists(directory)
            for path, data in files_below(fs, directory).items()
        ]
        mark = hash((*files, *((str(p), model.state()) for p, model in models.items())))
        is_known = mark in self._judged
        self._judged.add(mark)
        return is_known

    def _require_second_changes_nothing(
        self, first: LogManager, fs: SimulatedFileSystem, rng: random.Random
    ) -> None:
        if any(directory.had_clean_shutdown for directory in first.directories):
            self.open(fs, rng)  # the first start was no recovery
            fs = fs.process_crash()
        before = self._files(fs)
        self.open(fs, rng)
        after = self._files(fs)
        changed = [path for path in {*before, *after} if before.get(path) != after.get(path)]
        assert not changed, f"a second recovery changed {sorted(map(str, changed))}"

    def _files(self, fs: FileSystem) -> dict[Path, bytes]:
        """Every file; one that was set aside counts as long as what is in it."""
        found = {}
        for directory in self._directories:
            for path, data in files_below(fs, directory).items():
                found[path] = data.rstrip(b"\0") if path.suffix == LOG_SUFFIX else data
        return found

    def _check_clean_start(
        self, fs: FileSystem, checks: Mapping[TopicPartition, LogCheck], rng: random.Random
    ) -> None:
        if rng.random() < 0.8:
            return
        manager = self.open(fs, rng)
        for partition, check in checks.items():
            log = manager.require(partition)
            assert batches_of(segments_of(log)) == check.found, (
                f"{partition}: a clean stop lost something"
            )
            assert log.offsets.recovery_point == log.log_end_offset
