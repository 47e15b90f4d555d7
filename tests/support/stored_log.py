"""Directories that are opened again and again, one partition's or those of a whole broker.

Each opening is by a process of its own: another `LogContext`, on the same clock and file system.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from uuid import UUID

from cordwood.configs.broker_config import BrokerConfig
from cordwood.configs.log_config import LogConfig
from cordwood.format.compression import Codec
from cordwood.format.control_record import ControlType, build_end_txn_marker
from cordwood.format.record_batch import Record, RecordBatch, build_batch, iter_batches
from cordwood.model.append_origin import AppendOrigin
from cordwood.model.topic_partition import TopicPartition
from cordwood.storage.filesystem import OS, FileSystem
from cordwood.storage.loaded_log_directory import LoadProgress
from cordwood.storage.log.append_result import AppendResult
from cordwood.storage.log.log_context import LogContext
from cordwood.storage.log.log_loader import LoadRequest, load_log
from cordwood.storage.log.partition_log import PartitionLog
from cordwood.storage.log_manager import LogManager
from cordwood.storage.segment.resources import ResourceCache
from cordwood.testing.manual_clock import ManualClock

Producer = tuple[int, int, int]
"""(producer id, epoch, base sequence)."""


class StoredLog:
    """The directory of one partition below `root`.

    `clock`, `config` and `fs` are those of the next opening; `log` and `context` those of the last.
    """

    def __init__(
        self,
        root: Path,
        config: LogConfig | None = None,
        *,
        name: str = "t-0",
        fs: FileSystem = OS,
        clock: ManualClock | None = None,
    ) -> None:
        self.topic_partition = TopicPartition.parse(name)
        self.directory = root / name
        self.config = config or LogConfig()
        self.fs = fs
        self.clock = clock or ManualClock()
        self.context = self.new_context()
        self._log: PartitionLog | None = None

    def new_context(self) -> LogContext:
        """A context as a process that starts now makes one."""
        return LogContext(clock=self.clock, resources=ResourceCache(self.fs))

    @property
    def log(self) -> PartitionLog:
        """The log as it was opened last."""
        assert self._log is not None, "not opened yet"
        return self._log

    def open(
        self,
        *,
        clean: bool = False,
        recovery_point: int = 0,
        log_start_offset: int = 0,
        topic_id: UUID | None = None,
        on_segment: Callable[[int, int], None] | None = None,
        context: LogContext | None = None,
    ) -> PartitionLog:
        """Opens the log, as after a kill by default.

        Args:
            clean: the last stop was a clean one.
            recovery_point: as checkpointed.
            log_start_offset: as checkpointed.
            topic_id: of the topic as the cluster knows it.
            on_segment: called for each segment that is recovered.
            context: of the process that opens it; a new one by default.
        """
        self.context = context or self.new_context()
        self._log = load_log(
            LoadRequest(
                directory=self.directory,
                topic_partition=self.topic_partition,
                config=self.config,
                context=self.context,
                clean_shutdown=clean,
                recovery_point=recovery_point,
                log_start_offset=log_start_offset,
                topic_id=topic_id,
                on_segment=on_segment,
            )
        )
        return self._log

    def abandon(self) -> None:
        """The process that had it open is killed: what is in memory is lost."""
        self.log.close_handlers()

    def files(self) -> dict[str, bytes]:
        """The bytes of each file of the directory, by name."""
        return files_of(self.directory, self.fs)

    def require_settled(
        self, *, clean: bool = False, recovery_point: int = 0, log_start_offset: int = 0
    ) -> None:
        """Opens the log twice more, and checks that nothing changes: on disk, or in what is read.

        Args:
            clean: as for `open`, here and below.
            recovery_point: likewise.
            log_start_offset: likewise.
        """
        seen = None
        for _ in range(3):
            log = self.log
            now = (
                self.files(),
                records_in(log),
                log.segments.base_offsets,
                (log.log_start_offset, log.log_end_offset),
                log.leader_epochs.epoch_entries,
                log.producer_state.entries(),
            )
            assert seen is None or now == seen, "another opening has changed something"
            seen = now
            self.abandon()
            self.open(clean=clean, recovery_point=recovery_point, log_start_offset=log_start_offset)


class StoredLogs:
    """Log directories whose process is started, stopped and killed as often as a test likes.

    `configs` are settings by topic, `defaults` those of other topics; both may be changed between
    a stop and a start. `manager` is that of the last start.
    """

    def __init__(
        self,
        *directories: Path,
        defaults: LogConfig | None = None,
        broker: BrokerConfig | None = None,
        fs: FileSystem = OS,
        clock: ManualClock | None = None,
    ) -> None:
        self.directories = list(directories)
        self.defaults = defaults or LogConfig()
        self.configs: dict[str, LogConfig] = {}
        self.broker = broker or BrokerConfig()
        self.fs = fs
        self.clock = clock or ManualClock()
        self._manager: LogManager | None = None

    @property
    def manager(self) -> LogManager:
        """The manager as it was started last."""
        assert self._manager is not None, "not started yet"
        return self._manager

    def take(self) -> LogManager:
        """Starts a process that holds the directories, and has not loaded them yet."""
        self._manager = LogManager(
            self.directories,
            broker=self.broker,
            defaults=self.defaults,
            topic_config=self.configs.get,
            context=LogContext(clock=self.clock, resources=ResourceCache(self.fs)),
        )
        return self._manager

    def start(
        self,
        *,
        is_stray: Callable[[PartitionLog], bool] = lambda _: False,
        progress: LoadProgress | None = None,
    ) -> LogManager:
        """Starts a process; the arguments are those of `LogManager.load`."""
        self.take().load(is_stray=is_stray, progress=progress)
        return self.manager

    def kill(self) -> None:
        """Ends the process: what is in memory is lost, and so are its locks."""
        for log in self.manager.logs():
            log.close_handlers()
        for directory in self.manager.directories:
            directory.release()

    def log(self, name: str = "t-0", directory: Path | None = None) -> PartitionLog:
        """A partition's log, made where there is none, in that directory if one is given."""
        return self.manager.get_or_create(TopicPartition.parse(name), log_dir=directory)

    def pass_time(self, ms: int, *, step_ms: int = 1_000) -> None:
        """Lets time pass in steps, and work be done that is due."""
        while ms > 0:
            self.clock.advance(min(step_ms, ms))
            self.manager.context.scheduler.run_due()
            ms -= step_ms

    def files(self) -> dict[str, bytes]:
        """The bytes of every file of every directory, by path, but of locks."""
        return {
            str(path): data
            for directory in self.directories
            for path, data in tree_of(directory, self.fs).items()
            if path.name != ".lock"
        }


def tree_of(directory: Path, fs: FileSystem = OS) -> dict[Path, bytes]:
    """The bytes of each file at or below a directory, by path."""
    found: dict[Path, bytes] = {}
    for entry in fs.entries_in(directory):
        path = directory / entry.name
        if entry.is_directory:
            found.update(tree_of(path, fs))
        else:
            found[path] = fs.read_bytes(path)
    return found


def files_of(directory: Path, fs: FileSystem = OS) -> dict[str, bytes]:
    """The bytes of each file of a directory, by name."""
    return {
        entry.name: fs.read_bytes(directory / entry.name)
        for entry in fs.entries_in(directory)
        if not entry.is_directory
    }


# ---- what is written


def batch_of(
    *values: bytes | None,
    key: bytes | None = None,
    timestamp: int = 1_700_000_000_000,
    base_offset: int = 0,
    codec: Codec = Codec.NONE,
    producer: Producer | None = None,
    transactional: bool = False,
    leader_epoch: int = -1,
) -> bytes:
    """A batch of these values, all with the one key and timestamp."""
    producer_id, epoch, sequence = producer or (-1, -1, -1)
    return build_batch(
        [Record(base_offset + n, timestamp, key, value) for n, value in enumerate(values)],
        base_offset=base_offset,
        codec=codec,
        producer_id=producer_id,
        producer_epoch=epoch,
        base_sequence=sequence,
        is_transactional=transactional,
        partition_leader_epoch=leader_epoch,
    )


def put(
    log: PartitionLog,
    *values: bytes | None,
    key: bytes | None = None,
    timestamp: int | None = None,
    producer: Producer | None = None,
    transactional: bool = False,
    leader_epoch: int = 0,
) -> AppendResult:
    """Appends a batch of these values as the leader, by default at the clock's time.

    A transaction is verified before its first batch.
    """
    at = log.context.clock.now_ms() if timestamp is None else timestamp
    batch = batch_of(*values, key=key, timestamp=at, producer=producer, transactional=transactional)
    guard = None
    if transactional and producer is not None:
        producer_id, epoch, sequence = producer
        guard = log.maybe_start_verification(producer_id, sequence, epoch)
    return log.append_as_leader(batch, leader_epoch=leader_epoch, verification_guard=guard)


def end_transaction(
    log: PartitionLog,
    producer_id: int,
    *,
    commit: bool,
    producer_epoch: int = 0,
    coordinator_epoch: int = 0,
) -> AppendResult:
    """Appends a transaction's marker as its coordinator, at the clock's time."""
    marker = build_end_txn_marker(
        offset=0,
        timestamp=log.context.clock.now_ms(),
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        control_type=ControlType.COMMIT if commit else ControlType.ABORT,
        coordinator_epoch=coordinator_epoch,
        partition_leader_epoch=-1,
    )
    return log.append_as_leader(marker, origin=AppendOrigin.COORDINATOR)


class Transactions:
    """Producers that write to a log in turn, each in a transaction of its own."""

    def __init__(self, log: PartitionLog) -> None:
        self._log = log
        self._sequences: dict[int, int] = {}

    def write(self, producer_id: int, count: int) -> None:
        """Appends a batch of a producer's transaction, which begins with the first."""
        sequence = self._sequences.get(producer_id, 0)
        self._sequences[producer_id] = sequence + count
        put(self._log, *[b"v"] * count, producer=(producer_id, 0, sequence), transactional=True)

    def plain(self, count: int) -> None:
        """Appends a batch that belongs to no transaction."""
        put(self._log, *[b"v"] * count)

    def end(self, producer_id: int, *, commit: bool) -> None:
        """Ends a producer's transaction."""
        end_transaction(self._log, producer_id, commit=commit)


# ---- what is read


def batches_in(log: PartitionLog) -> list[RecordBatch]:
    """Every batch of a log's segments, whole, as it lies there."""
    found = []
    for segment in log.segments:
        data = log.context.fs.read_bytes(segment.path)[: segment.size_bytes]
        for _, batch in iter_batches(data):
            assert isinstance(batch, RecordBatch), "a batch of magic 2"
            found.append(batch)
        assert sum(b.size_bytes for b in found if b.base_offset >= segment.base_offset) == len(data)
    return found


def records_in(log: PartitionLog) -> list[tuple[int, int, bytes | None, bytes | None]]:
    """(offset, timestamp, key, value) of every record in a log's segments, markers left out."""
    return [
        (record.offset, record.timestamp, record.key, record.value)
        for batch in batches_in(log)
        if not batch.header.is_control
        for record in batch.records()
    ]


def keys_in(log: PartitionLog) -> list[bytes | None]:
    """The keys of every record, in order."""
    return [key for _, _, key, _ in records_in(log)]
