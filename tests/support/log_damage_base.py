"""Log directories to be damaged: of every kind of log, stopped cleanly or killed.

They lie in a simulated file system, so that a copy costs next to nothing, and are the same each
time they are made.
"""

from __future__ import annotations

import functools
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from cordwood.cleanup.access.capture import capture, view_of
from cordwood.cleanup.plan.compaction import plan_compaction
from cordwood.cleanup.plan.log_compaction import prepare_compaction
from cordwood.cleanup.rules.cleanable import plan_cleanable
from cordwood.configs.broker_config import BrokerConfig
from cordwood.configs.log_config import LogConfig
from cordwood.format.compression import Codec
from cordwood.format.file_names import META_PROPERTIES, base_offset_of, is_log_file
from cordwood.format.meta_properties import MetaProperties, build_meta_properties
from cordwood.format.record_batch import Record, RecordBatch, build_batch, iter_batches
from cordwood.model.topic_partition import TopicPartition
from cordwood.model.uuids import parse_uuid
from cordwood.storage.filesystem import FileSystem, FileWriter
from cordwood.storage.log.log_context import LogContext
from cordwood.storage.log.partition_log import PartitionLog
from cordwood.storage.log.segment_removal import replace_segments
from cordwood.storage.log_manager import LogManager
from cordwood.storage.replace import StagedSegment
from cordwood.storage.scheduler import Scheduler
from cordwood.storage.segment.resources import ResourceCache
from cordwood.testing.manual_clock import ManualClock
from cordwood.testing.reference_cleaner import ReferenceCleaner, ReferenceRound
from cordwood.testing.simulated_filesystem import SimulatedFileSystem
from support.stored_log import end_transaction, put

DIRECTORIES: Final = (Path("/logs-0"), Path("/logs-1"))
NOW_MS: Final = 1_700_000_000_000
VARIANTS: Final = ("small clean", "small killed", "large clean", "large killed")
_FOREVER_MS: Final = 1 << 60
_CODECS: Final = tuple(Codec)
_HOMES: Final = {"codecs": 0, "epochs": 1, "txn": 0, "compact": 1, "start": 0, "single": 1}
_COMPACTED: Final = "compact"


@dataclass(frozen=True, slots=True, kw_only=True)
class Segment:
    """A log file of a base, and its batches in order: (position, batch)."""

    base_offset: int
    batches: tuple[tuple[int, RecordBatch], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class DamageBase:
    """Directories that are whole, to be cloned; what is in the logs; where each of them lies."""

    variant: str
    fs: SimulatedFileSystem
    segments: dict[TopicPartition, tuple[Segment, ...]]
    homes: dict[TopicPartition, Path]

    @property
    def configs(self) -> dict[str, LogConfig]:
        """The settings by topic."""
        return _configs(self.variant)


class FixedRng:
    """The same draws each time."""

    def __init__(self, seed: str) -> None:
        self._rng = random.Random(seed)  # noqa: S311  # no secret

    def below(self, bound: int) -> int:
        """A number from 0 to `bound`, exclusive."""
        return self._rng.randrange(bound)

    def unique_id(self) -> str:
        """32 hexadecimal digits."""
        return f"{self._rng.getrandbits(128):032x}"


def manager_over(fs: FileSystem, configs: dict[str, LogConfig], *, now_ms: int) -> LogManager:
    """A manager that has taken the directories, and not loaded them yet."""
    clock = ManualClock(now_ms)
    context = LogContext(
        clock=clock,
        rng=FixedRng("a process"),
        resources=ResourceCache(fs),
        scheduler=Scheduler(clock),
        producer_id_expiration_ms=_FOREVER_MS,
        verify_transactions=False,
    )
    return LogManager(
        DIRECTORIES,
        broker=BrokerConfig({"num.recovery.threads.per.data.dir": 1}),
        topic_config=configs.get,
        context=context,
    )


def _configs(variant: str) -> dict[str, LogConfig]:
    is_small = variant.startswith("small")
    plain = LogConfig(
        segment_bytes=1_500 if is_small else 6_000,
        index_interval_bytes=0 if is_small else 300,
    )
    compacted = LogConfig(
        cleanup_policy=frozenset({"compact"}),
        segment_bytes=plain.segment_bytes,
        index_interval_bytes=plain.index_interval_bytes,
    )
    single = LogConfig(index_interval_bytes=plain.index_interval_bytes)
    special = {_COMPACTED: compacted, "single": single}
    return {topic: special.get(topic, plain) for topic in _HOMES}


@functools.cache
def base_of(variant: str) -> DamageBase:
    """One of `VARIANTS`, made at the first call."""
    return _Maker(variant).make()


class _Maker:
    """Makes one base."""

    def __init__(self, variant: str) -> None:
        self._variant = variant
        self._rng = random.Random(variant)  # noqa: S311  # no secret
        self._fs = SimulatedFileSystem(ManualClock(NOW_MS))
        self._now_ms = NOW_MS - 20_000_000  # of the next record
        for number, path in enumerate(DIRECTORIES):
            self._fs.make_directory(path)
            properties = MetaProperties(
                version=1,
                cluster_id="Q2x1c3Rlci1vZi10ZXN0cw",
                node_id=1,
                directory_id=parse_uuid(f"AAAAAAAAAAAAAAAAAAAA{number}Q"),
            )
            self._fs.write_durably(path / META_PROPERTIES, build_meta_properties(properties))
        self._manager = manager_over(self._fs, _configs(variant), now_ms=NOW_MS)
        self._manager.load()

    def make(self) -> DamageBase:
        """Writes the logs, and stops."""
        logs = {}
        for number, (topic, home) in enumerate(_HOMES.items()):
            logs[topic] = self._manager.get_or_create(
                TopicPartition(topic, 0),
                topic_id=parse_uuid(f"BBBBBBBBBBBBBBBBBBBBB{'AQgw'[number % 4]}"),
                log_dir=DIRECTORIES[home],
            )
        for part in range(2):
            self._codecs(logs["codecs"])
            self._epochs(logs["epochs"], part)
            self._transactions(logs["txn"], part)
            self._keyed(logs[_COMPACTED], part)
            self._codecs(logs["start"])
            self._codecs(logs["single"])
            if part == 0:
                self._settle(logs)
        for log in logs.values():
            log.update_high_watermark(log.log_end_offset)
        fs = self._fs
        if self._variant.endswith("clean"):
            self._manager.shutdown()
        else:
            self._manager.checkpoint_high_watermarks()
            fs = fs.process_crash()
        partitions = {TopicPartition(t, 0): DIRECTORIES[home] for t, home in _HOMES.items()}
        return DamageBase(
            variant=self._variant,
            fs=fs.process_crash(),
            segments={p: tuple(_segments(fs, at / str(p))) for p, at in partitions.items()},
            homes=partitions,
        )

    def _settle(self, logs: dict[str, PartitionLog]) -> None:
        """Cleans one, deletes records of others, and writes every checkpoint."""
        for log in logs.values():
            log.update_high_watermark(log.log_end_offset)
        self._clean(logs[_COMPACTED])
        logs["start"].delete_records(logs["start"].log_end_offset // 3)
        logs["single"].delete_records(7)
        for log in logs.values():
            log.flush()
        self._manager.checkpoint_recovery_points()
        self._manager.checkpoint_log_start_offsets()
        self._manager.checkpoint_high_watermarks()

    # ---- what is written

    def _tick(self) -> int:
        self._now_ms += self._rng.choice((0, 1, 1_000, 60_000))
        return self._now_ms

    def _value(self) -> bytes:
        return self._rng.choice(b"abc").to_bytes() * self._rng.randrange(40) + bytes(
            self._rng.randbytes(self._rng.randrange(60))
        )

    def _codecs(self, log: PartitionLog) -> None:
        for number in range(16):
            records = [
                Record(n, self._tick(), self._value() or None, self._value())
                for n in range(self._rng.choice((1, 2, 5)))
            ]
            batch = build_batch(records, base_offset=0, codec=_CODECS[number % len(_CODECS)])
            log.append_as_leader(batch, leader_epoch=0)

    def _epochs(self, log: PartitionLog, part: int) -> None:
        sequences = {1: 0, 2: 0} if part == 0 else {3: 0, 4: 0}
        for number in range(16):
            producer_id = self._rng.choice(list(sequences))
            count = self._rng.choice((1, 3))
            put(
                log,
                *[self._value() for _ in range(count)],
                timestamp=self._tick(),
                producer=(producer_id, 0, sequences[producer_id]),
                leader_epoch=8 * part + number // 5,
            )
            sequences[producer_id] += count

    def _transactions(self, log: PartitionLog, part: int) -> None:
        sequences: dict[int, int] = {}
        running: set[int] = set()
        for _ in range(20):
            producer_id = 10 * (part + 1) + self._rng.randrange(3)
            if producer_id in running and self._rng.random() < 0.5:
                end_transaction(log, producer_id, commit=self._rng.random() < 0.5)
                running.discard(producer_id)
                continue
            sequence = sequences.get(producer_id, 0)
            sequences[producer_id] = sequence + 1
            put(
                log,
                self._value(),
                timestamp=self._tick(),
                producer=(producer_id, 0, sequence),
                transactional=True,
            )
            running.add(producer_id)
        for producer_id in sorted(running)[part:]:  # in the end one is left open
            end_transaction(log, producer_id, commit=False)

    def _keyed(self, log: PartitionLog, part: int) -> None:
        for number in range(20):
            records = [
                Record(n, self._tick(), b"k%d" % self._rng.randrange(12), self._value())
                for n in range(2)
            ]
            batch = build_batch(records, base_offset=0, codec=_CODECS[number % len(_CODECS)])
            log.append_as_leader(batch, leader_epoch=5 * part + number // 9)
        log.update_high_watermark(log.log_end_offset)

    def _clean(self, log: PartitionLog) -> None:
        """A compaction."""
        log.roll()
        log.update_high_watermark(log.log_end_offset)
        now_ms = NOW_MS
        cleanable = plan_cleanable(view_of(log, None), now_ms=now_ms, force=True)
        assert cleanable.reason is None, cleanable.reason
        captured = capture(log, end=cleanable.first_uncleanable)
        plan = plan_compaction(captured.view, cleanable)
        compaction = prepare_compaction(captured, plan, now_ms=now_ms, seed=0)
        cleaned = ReferenceCleaner(ReferenceRound.of(compaction, fs=self._fs)).clean()
        for group, segment in zip(compaction.groups, cleaned, strict=True):
            staged = StagedSegment(
                directory=str(log.directory), base_offset=group[0], token=f"s{group[0]}"
            )
            for suffix, data in segment.files.items():
                writer = FileWriter(staged.paths()[suffix], fs=self._fs)
                writer.write(data)
                writer.close()
                self._fs.set_modified(writer.path, segment.modified_ns)
            replace_segments(log, [staged], group)
        self._manager.context.clock.advance(120_000)  # type: ignore[attr-defined]
        self._manager.context.scheduler.run_due()
        directory = next(d for d in self._manager.directories if d.path == log.log_dir)
        directory.cleaner_offsets.write({log.topic_partition: cleanable.first_uncleanable})


def _segments(fs: FileSystem, directory: Path) -> Iterator[Segment]:
    for name in sorted(filter(is_log_file, fs.names_in(directory))):
        data = fs.read_bytes(directory / name)
        found = list(iter_batches(data))
        assert sum(batch.size_bytes for _, batch in found) == len(data), f"{name} is not whole"
        yield Segment(
            base_offset=base_offset_of(name),
            batches=tuple((at, batch) for at, batch in found if isinstance(batch, RecordBatch)),
        )


def batches_of(segments: Sequence[Segment]) -> list[RecordBatch]:
    """Their batches, in order."""
    return [batch for segment in segments for _, batch in segment.batches]
