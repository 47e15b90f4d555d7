"""Running logs on a manual clock, with a cleaner that runs when a test calls it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from cordwood.cleanup.schedule.cleaner import OnlineCleaner
from cordwood.cleanup.schedule.cleaner_manager import CleanerManager
from cordwood.configs.broker_config import BrokerConfig
from cordwood.configs.log_config import LogConfig
from cordwood.format.batch_header import CREATE_TIME
from cordwood.format.compression import Codec
from cordwood.format.legacy import LegacyBatch
from cordwood.format.record_batch import Record, build_batch, iter_batches
from cordwood.model.topic_partition import TopicPartition
from cordwood.storage.filesystem import OS, FileSystem
from cordwood.storage.log.log_context import LogContext
from cordwood.storage.log.log_reader import Isolation
from cordwood.storage.log.partition_log import PartitionLog
from cordwood.storage.log_manager import LogManager
from cordwood.storage.segment.resources import ResourceCache
from cordwood.testing.manual_clock import ManualClock
from support.in_process_engine import CompiledEngine

KeyValue = tuple[bytes | None, bytes | None]

_FETCH_BYTES = 1 << 20


class RunningLogs:
    """A `LogManager` over `root / "logs-0"` and so on, and all that cleans it.

    `configs` are the settings by topic, and may be changed.
    """

    def __init__(
        self,
        root: Path,
        configs: Mapping[str, LogConfig] | None = None,
        *,
        clock: ManualClock | None = None,
        directories: int = 1,
        fs: FileSystem = OS,
        **broker: Any,
    ) -> None:
        """Loads what is in the directories.

        Args:
            root: above them.
            configs: settings by topic; Kafka's defaults for others.
            clock: the time source.
            directories: how many there are.
            fs: what the logs' owner sees of the disk; tasks see all of it.
            broker: settings of the broker, with underscores for dots.
        """
        self.clock = clock or ManualClock()
        self.configs = dict(configs or {})
        self.directories = [root / f"logs-{number}" for number in range(directories)]
        self._fs = fs
        self._broker = BrokerConfig(
            {name.replace("_", "."): value for name, value in broker.items()}
        )
        self._start()

    def _start(self) -> None:
        self.manager = LogManager(
            self.directories,
            broker=self._broker,
            topic_config=self.configs.get,
            context=LogContext(clock=self.clock, resources=ResourceCache(self._fs)),
        )
        self.manager.load()
        self.cleaning = CleanerManager(self.manager)
        self.cleaner = OnlineCleaner(self.cleaning, CompiledEngine())

    def restart(self) -> None:
        """Stops in good order, and starts again."""
        self.manager.shutdown()
        self._start()

    def log(self, name: str = "t-0", *, directory: int | None = None) -> PartitionLog:
        """A partition's log, made where there is none."""
        where = None if directory is None else self.directories[directory]
        return self.manager.get_or_create(TopicPartition.parse(name), log_dir=where)

    def checkpoint(self, name: str = "t-0") -> int | None:
        """The partition's line of the cleaner's checkpoint."""
        return self.cleaning.checkpoints.all().get(TopicPartition.parse(name))

    def set_checkpoint(self, offset: int, name: str = "t-0") -> None:
        """Writes the partition's line of the cleaner's checkpoint."""
        log = self.log(name)
        self.cleaning.checkpoints.update(log.log_dir, line=(log.topic_partition, offset))

    def put(
        self,
        log: PartitionLog,
        *records: KeyValue,
        codec: Codec = Codec.NONE,
        timestamp: int | None = None,
    ) -> int:
        """Appends a batch, which is at once on all replicas; its first offset."""
        at = self.clock.now_ms() if timestamp is None else timestamp
        batch = build_batch(
            [Record(n, at, key, value) for n, (key, value) in enumerate(records)],
            base_offset=0,
            codec=codec,
            timestamp_type=CREATE_TIME,
        )
        result = log.append_as_leader(batch)
        log.update_high_watermark(log.log_end_offset)
        return result.first_offset

    def fill(self, log: PartitionLog, segments: Sequence[Sequence[KeyValue]]) -> None:
        """Appends batches of a record, and rolls behind each of these segments."""
        for records in segments:
            for record in records:
                self.put(log, record)
            log.roll()
            log.update_high_watermark(log.log_end_offset)


def read_records(
    log: PartitionLog, start: int | None = None, *, isolation: Isolation = Isolation.LOG_END
) -> list[Record]:
    """All records from an offset on, or from the log's start, as a consumer gets them.

    Source: org.apache.kafka.clients.consumer.internals.CompletedFetch.
    """
    offset = log.log_start_offset if start is None else start
    found: list[Record] = []
    while True:
        fetched = log.reader.read(offset, _FETCH_BYTES, isolation=isolation)
        batches = [batch for _, batch in iter_batches(fetched.read())]
        if not batches:
            return found
        waiting = sorted(fetched.aborted or (), key=lambda entry: entry.first_offset)
        aborted: set[int] = set()
        for batch in batches:
            while waiting and waiting[0].first_offset <= batch.last_offset:
                aborted.add(waiting.pop(0).producer_id)
            if isinstance(batch, LegacyBatch):
                found += [record for record in batch.records() if record.offset >= offset]
            elif batch.header.is_control:
                aborted.discard(batch.header.producer_id)
            elif not (batch.header.is_transactional and batch.header.producer_id in aborted):
                found += [record for record in batch.records() if record.offset >= offset]
        offset = batches[-1].next_offset


def newest(records: Sequence[Record]) -> dict[bytes, tuple[bytes, int]]:
    """The newest value of each key, and its offset, for a reader who keeps these."""
    state: dict[bytes, tuple[bytes, int]] = {}
    for record in records:
        assert record.key is not None, "a record without a key"
        if record.value is None:
            state.pop(record.key, None)
        else:
            state[record.key] = record.value, record.offset
    return state
