"""A workload on logs whose file system loses power at every operation, and what must be found then.

The workload is drawn from a seed: appends of every kind, rolls, flushes, checkpoints, retention,
DeleteRecords, cleaning, truncation, topics deleted and recreated, clean and unclean stops. Before
each operation that changes the file system, crash images are taken of it, opened and judged:
only synced data lasted, all of it did, then random others. The workload continues on some of
these, so that the recovery of a crash is crashed as well.

A failure names its seed, operation and image; `python -m support.log_crash`
brings it back.
"""

from __future__ import annotations

import argparse
import logging
import random
import sys
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from cordwood.cleanup.access.capture import capture, view_of
from cordwood.cleanup.plan.compaction import plan_compaction
from cordwood.cleanup.plan.log_compaction import prepare_compaction
from cordwood.cleanup.rules.cleanable import plan_cleanable
from cordwood.cleanup.rules.retention import plan_retention
from cordwood.cleanup.schedule.retention_pass import retain
from cordwood.configs.log_config import LogConfig
from cordwood.format.batch_header import HEADER_BYTES, build_header, parse_header
from cordwood.format.compression import Codec
from cordwood.format.control_record import ControlType, build_end_txn_marker
from cordwood.format.file_names import LOG_SUFFIX
from cordwood.format.record_batch import Header, Record, build_batch
from cordwood.model.append_origin import AppendOrigin
from cordwood.model.topic_partition import TopicPartition
from cordwood.storage.filesystem import FileWriter
from cordwood.storage.log.partition_log import PartitionLog
from cordwood.storage.log.segment_removal import replace_segments
from cordwood.storage.log_manager import LogManager
from cordwood.storage.log_moves import LogMove
from cordwood.storage.offset_checkpoint_file import OffsetCheckpointFile
from cordwood.storage.replace import StagedSegment
from cordwood.testing.manual_clock import ManualClock
from cordwood.testing.reference_cleaner import ReferenceCleaner, ReferenceRound
from cordwood.testing.simulated_filesystem import FileOperation, SimulatedFileSystem
from support.log_crash_check import ImageCheck, append_to, segments_of
from support.log_crash_model import LogModel, Producer, Stored, producers_of, stored_in

_DIRECTORIES: Final = (Path("/logs-0"), Path("/logs-1"))
_FOREVER: Final = (1 << 63) - 1
_IDEMPOTENT: Final = (1, 2, 3)
_TRANSACTIONAL: Final = (11, 12)

Step = Callable[[TopicPartition], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class CrashPlan:
    """A workload: its seed, how many steps, and how many images an operation at most."""

    seed: int
    steps: int = 60
    images: int = 4
    topics: int = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class CrashReport:
    """Numbers of a run: operations that changed the file system, and images opened and judged.

    `holes` counts logs that lost records between two segments, none of them flushed, as Kafka's do.
    """

    operations: int
    images: int
    holes: int
    steps: dict[str, int]


class CrashFailure(AssertionError):
    """An image that is not what it must be."""


def as_stored(sent: bytes, offset: int, leader_epoch: int) -> Stored:
    """A batch as a leader stores it that changes nothing but what it has to."""
    header = parse_header(sent)._replace(base_offset=offset, partition_leader_epoch=leader_epoch)
    return stored_in(build_header(header) + sent[HEADER_BYTES:])[0]


def _drawn(seed: str) -> random.Random:
    return random.Random(seed)  # noqa: S311  # nothing here is secret


class CrashRun:
    """One workload; see the module."""

    def __init__(self, plan: CrashPlan, *, only: int | None = None) -> None:
        """Prepares.

        Args:
            plan: which workload.
            only: the one operation to take images of; None for all.
        """
        self.plan = plan
        self._only = only
        self._rng = _drawn(f"workload {plan.seed}")
        self._clock = ManualClock()
        self._partitions = [TopicPartition(f"t{n}", 0) for n in range(plan.topics)]
        self._configs = {p.topic: self._config() for p in self._partitions}
        self._images = ImageCheck(_DIRECTORIES, configs=self._configs, clock=self._clock)
        self._models: dict[TopicPartition, LogModel] = {}
        #: Leader epochs only ever grow: who hands them out never forgets one.
        self._epochs = dict.fromkeys(self._partitions, 0)
        self._operations = 0
        self._step = "open"
        self._done: Counter[str] = Counter()
        self._failure: CrashFailure | None = None
        self._serial = 0
        self._fs = SimulatedFileSystem(self._clock)
        self._manager: LogManager | None = None
        #: By partition, the base of the segment rolled to: all below is flushed by a task.
        self._rolled_to: dict[TopicPartition, int] = {}
        self._steps: dict[Step, int] = {
            self._append: 16,
            self._append_idempotent: 12,
            self._append_transactional: 10,
            self._end_transaction: 8,
            self._append_as_follower: 5,
            self._new_leader: 3,
            self._roll: 3,
            self._flush: 4,
            self._let_time_pass: 8,
            self._checkpoint: 6,
            self._delete_records: 3,
            self._retain: 3,
            self._clean: 5,
            self._truncate: 4,
            self._begin_anew: 1,
            self._delete_topic: 1,
            self._move: 2,
            self._restart: 2,
            self._kill: 2,
            self._lose_power: 2,
        }

    def _config(self) -> LogConfig:
        rng = self._rng
        return LogConfig(
            cleanup_policy=frozenset({"compact", "delete"}),
            segment_bytes=rng.choice((1100, 2000, 6000)),
            segment_index_bytes=rng.choice((36, 10_000)),
            index_interval_bytes=rng.choice((0, 100, 400)),
            flush_messages=rng.choice((1, 7, _FOREVER, _FOREVER)),
            retention_bytes=rng.choice((-1, 2500)),
            retention_ms=rng.choice((-1, 900_000)),
            delete_retention_ms=rng.choice((0, 300_000)),
            file_delete_delay_ms=rng.choice((0, 60_000)),
            preallocate=rng.random() < 0.15,
        )

    # ---- the run

    def run(self) -> CrashReport:
        """Runs the workload.

        Raises:
            CrashFailure: an image is not what it must be; the text says how to bring it back.
            AssertionError: the log that runs is not what it must be.
        """
        self._open(self._fs)
        steps, weights = list(self._steps), list(self._steps.values())
        for number in range(self.plan.steps):
            step = self._rng.choices(steps, weights)[0]
            partition = self._rng.choice(self._partitions)
            self._step = f"step {number}, {step.__name__.strip('_')} of {partition}"
            self._done[step.__name__.strip("_")] += 1
            try:
                step(partition)
                self._judge_running()
            except Exception as error:
                raise self._failure or CrashFailure(f"{self._where()}: {error}") from error
            if self._failure is not None:
                raise self._failure
        return CrashReport(
            operations=self._operations,
            images=self._images.images,
            holes=self._images.holes,
            steps=dict(self._done),
        )

    def _where(self) -> str:
        return f"{self.plan}, {self._step}, operation {self._operations}"

    def _on_operation(self, operation: FileOperation) -> None:
        self._operations += 1
        self._take_note_of_recovery_points()
        if self._failure is not None or self._only not in {None, self._operations}:
            return
        where = f"{self.plan.seed} {self._operations}"
        images = self._fs.crash_images(self.plan.images, _drawn(where))
        for number, image in enumerate(images):
            try:
                self._images.check(image, self._models, _drawn(f"{where} {number}"))
            except Exception as error:
                self._failure = CrashFailure(
                    f"{self._where()}, before {operation}, image {number}: "
                    f"{type(error).__name__}: {error}"
                )
                self._failure.__cause__ = error
                return

    def _take_note_of_recovery_points(self) -> None:
        """Notes recovery points: a recovery does not look below them, so that has to be there."""
        for log in self._logs():
            self._models[log.topic_partition].claimed(log.offsets.recovery_point)

    def _logs(self) -> list[PartitionLog]:
        manager = self._manager
        found = [] if manager is None else [manager.get(p) for p in self._models]
        return [log for log in found if log is not None]

    def _judge_running(self) -> None:
        """The logs that run have what they were given."""
        for log in self._logs():
            model = self._models[log.topic_partition]
            model.require(segments_of(log))
            assert log.log_end_offset == model.end, f"{log} should end at {model.end}"
            assert log.offsets.recovery_point <= log.log_end_offset, log
            self._rolled_to.setdefault(log.topic_partition, log.active.base_offset)

    # ---- starts and stops

    def _open(self, fs: SimulatedFileSystem) -> None:
        """Starts on a file system in any state, and continues with its content."""
        self._fs.on_operation = None
        self._fs, self._manager = fs, None
        fs.on_operation = self._on_operation
        self._manager = self._images.open(fs, self._rng)
        self._manager.start_tasks()
        self._rolled_to = {}
        for partition, model in list(self._models.items()):
            log = self._manager.get(partition)
            if log is None:
                assert model.may_be_missing, f"{partition} is gone"
                del self._models[partition]
                continue
            model.adopt(segments_of(log), start=log.log_start_offset, end=log.log_end_offset)
            log.update_high_watermark(log.log_end_offset)

    def _restart(self, _: TopicPartition) -> None:
        self._running().shutdown()
        for model in self._models.values():
            model.flushed()
        self._open(self._fs)

    def _kill(self, _: TopicPartition) -> None:
        self._open(self._fs.process_crash())

    def _lose_power(self, _: TopicPartition) -> None:
        images = list(self._fs.crash_images(self.plan.images, self._rng))
        self._open(self._rng.choice(images))

    def _running(self) -> LogManager:
        assert self._manager is not None, "it runs"
        return self._manager

    def _log(self, partition: TopicPartition) -> tuple[PartitionLog, LogModel]:
        log = self._running().get(partition)
        if log is None:
            self._models[partition] = LogModel()
            log = self._running().get_or_create(partition)
            self._models[partition].may_be_missing = False
        return log, self._models[partition]

    # ---- appends

    def _records(self, count: int) -> list[Record]:
        rng, made = self._rng, []
        for delta in range(count):
            self._serial += 1
            timestamp = self._clock.now_ms() - rng.choice((0, 0, 5, 3_600_000))
            value = None if rng.random() < 0.2 else rng.randbytes(rng.choice((3, 30, 200)))
            identity = Header("id", b"%d" % self._serial)
            made.append(Record(delta, timestamp, b"k%d" % rng.randrange(6), value, (identity,)))
        return made

    def _codec(self) -> Codec:
        codec: Codec = self._rng.choice([Codec.NONE, Codec.NONE, *Codec])
        return codec

    def _count(self) -> int:
        return self._rng.choice((1, 1, 2, 4))

    def _write(
        self, partition: TopicPartition, sent: bytes, origin: AppendOrigin = AppendOrigin.CLIENT
    ) -> None:
        log, model = self._log(partition)
        epoch = self._epochs[partition]
        stored = as_stored(sent, log.log_end_offset, epoch)
        model.begin_append([stored])
        result = append_to(log, sent, leader_epoch=epoch, origin=origin)
        assert not result.is_duplicate
        assert result.first_offset == stored.base_offset, f"{result}, not {stored.header}"
        self._written(partition)

    def _written(self, partition: TopicPartition) -> None:
        log, model = self._log(partition)
        model.end_append()
        assert log.log_end_offset - log.offsets.recovery_point < log.config.flush_messages, log
        if log.config.flush_messages == 1:
            model.flushed()
        if self._rng.random() < 0.8:
            log.update_high_watermark(log.log_end_offset)

    def _append(self, partition: TopicPartition) -> None:
        self._write(
            partition, build_batch(self._records(self._count()), base_offset=0, codec=self._codec())
        )

    def _append_idempotent(self, partition: TopicPartition) -> None:
        log, model = self._log(partition)
        producer_id = self._rng.choice(_IDEMPOTENT)
        newest = producers_of(model.history).get(producer_id, Producer(0)).newest
        is_known = producer_id not in model.doubtful
        if newest is not None and newest.base_offset >= model.start and is_known:
            producer = producers_of(model.history)[producer_id]
            if producer.next_sequence and self._rng.random() < 0.2:
                result = log.append_as_leader(newest.sent)
                assert result.is_duplicate, f"{newest.header} was appended again"
                assert result.first_offset == newest.base_offset, result
                return
        self._write(partition, self._produced(model, producer_id, is_transactional=False))

    def _append_transactional(self, partition: TopicPartition) -> None:
        _, model = self._log(partition)
        producer_id = self._rng.choice(_TRANSACTIONAL)
        self._write(partition, self._produced(model, producer_id, is_transactional=True))

    def _produced(self, model: LogModel, producer_id: int, *, is_transactional: bool) -> bytes:
        """A producer's next batch; of a new epoch where the log may have forgotten the last."""
        known = producers_of(model.history).get(producer_id, Producer(0))
        is_new = known.newest is not None and known.newest.next_offset <= model.start
        is_new = is_new or (not is_transactional and self._rng.random() < 0.1)
        epoch = known.epoch + is_new
        if producer_id in model.doubtful:
            is_new, epoch = True, max(epoch, model.doubtful.pop(producer_id)) + 1
        return build_batch(
            self._records(self._count()),
            base_offset=0,
            codec=self._codec(),
            producer_id=producer_id,
            producer_epoch=epoch,
            base_sequence=0 if is_new else known.next_sequence,
            is_transactional=is_transactional,
        )

    def _end_transaction(self, partition: TopicPartition) -> None:
        _, model = self._log(partition)
        running = [
            (producer_id, producer)
            for producer_id, producer in producers_of(model.history).items()
            if producer.open_since is not None
        ]
        if not running:
            return
        producer_id, producer = self._rng.choice(running)
        marker = build_end_txn_marker(
            offset=0,
            timestamp=self._clock.now_ms(),
            producer_id=producer_id,
            # With an epoch for each transaction, the marker has the next one.
            producer_epoch=producer.epoch + self._rng.choice((0, 1)),
            control_type=self._rng.choice((ControlType.ABORT, ControlType.COMMIT)),
            coordinator_epoch=0,
        )
        self._write(partition, marker, AppendOrigin.COORDINATOR)

    def _append_as_follower(self, partition: TopicPartition) -> None:
        """Several batches at once, as a leader has them: with gaps, and of a newer epoch."""
        log, model = self._log(partition)
        offset, epoch = log.log_end_offset, self._epochs[partition]
        batches = []
        for _ in range(1 if log.config.segment_bytes < 2000 else self._rng.randint(1, 4)):
            offset += self._rng.choice((0, 0, 0, 3))
            epoch += self._rng.choice((0, 0, 1))
            sent = build_batch(self._records(1), base_offset=0, codec=self._codec())
            batches.append(as_stored(sent, offset, epoch))
            offset = batches[-1].next_offset
        self._epochs[partition] = epoch
        model.begin_append(batches)
        log.append_as_follower(b"".join(batch.raw for batch in batches))
        self._written(partition)

    def _new_leader(self, partition: TopicPartition) -> None:
        log, _ = self._log(partition)
        self._epochs[partition] += 1
        log.assign_epoch(self._epochs[partition])

    # ---- what makes it last

    def _roll(self, partition: TopicPartition) -> None:
        log, _ = self._log(partition)
        log.roll()

    def _flush(self, partition: TopicPartition) -> None:
        log, model = self._log(partition)
        log.flush(force_active=self._rng.random() < 0.5)
        model.flushed()

    def _let_time_pass(self, _: TopicPartition) -> None:
        self._clock.advance(self._rng.choice((0, 0, 1_000, 70_000)))
        manager = self._running()
        rolled = {log.topic_partition: log.active.base_offset for log in self._logs()}
        manager.context.scheduler.run_due()
        for partition, base in rolled.items():
            if base > self._rolled_to.get(partition, base):
                self._models[partition].flushed_below(base)
            self._rolled_to[partition] = base

    def _checkpoint(self, _: TopicPartition) -> None:
        manager = self._running()
        which = self._rng.randrange(3)
        if which == 0:
            manager.checkpoint_recovery_points()
        elif which == 1:
            manager.checkpoint_log_start_offsets()
            for log in self._logs():
                self._models[log.topic_partition].start_min = log.log_start_offset
        else:
            manager.checkpoint_high_watermarks()

    # ---- what takes records away

    def _delete_records(self, partition: TopicPartition) -> None:
        log, model = self._log(partition)
        offset = self._rng.randint(log.log_start_offset, log.high_watermark)
        model.begin_deletion(offset)
        log.delete_records(offset)
        assert log.log_start_offset == offset, log

    def _retain(self, partition: TopicPartition) -> None:
        log, model = self._log(partition)
        now_ms = self._clock.now_ms()
        plan = plan_retention(view_of(log, None), now_ms=now_ms)
        model.begin_deletion(plan.log_start_offset)
        retain(log, now_ms)
        assert log.log_start_offset == plan.log_start_offset, log

    def _truncate(self, partition: TopicPartition) -> None:
        log, model = self._log(partition)
        lowest = log.log_start_offset
        if self._rng.random() < 0.7:
            lowest = max(lowest, log.log_end_offset - 6)
        offset = self._rng.randint(lowest, log.log_end_offset)
        if offset == log.log_end_offset:
            self._running().truncate_to({partition: offset})
            return
        model.begin_truncation(offset)
        self._running().truncate_to({partition: offset})
        model.end_truncation(offset)
        self._lower_cleaner_checkpoint(log, offset)

    def _begin_anew(self, partition: TopicPartition) -> None:
        log, model = self._log(partition)
        offset = max(0, log.log_end_offset + self._rng.choice((-9, -2, 0, 5)))
        model.begin_anew()
        self._running().truncate_fully_and_start_at(partition, offset)
        model.end_anew(offset)
        self._lower_cleaner_checkpoint(log, offset)

    def _delete_topic(self, partition: TopicPartition) -> None:
        if partition in self._models:
            self._models[partition].may_be_missing = True
            self._running().delete(partition)
            del self._models[partition]
        self._running().delete(partition, future=True)

    # ---- moves and cleaning

    def _move(self, partition: TopicPartition) -> None:
        log, model = self._log(partition)
        future = self._running().get(partition, future=True)
        if future is not None and future.log_dir == log.log_dir:  # left by a topic of that name
            self._running().delete(partition, future=True)
        source, target = log.log_dir, next(d for d in _DIRECTORIES if d != log.log_dir)
        move = LogMove(self._running(), partition, target)
        while not move.advance(max_bytes=1000):
            pass
        if self._rng.random() < 0.7:
            model.start_min = 0  # the other directory's checkpoint has no line yet
            model.begin_moving(segments_of(self._running().require(partition, future=True)))
            log = move.finish()
            model.end_replacing()
            assert (log.log_dir, self._log(partition)[0]) == (target, log), f"it was in {source}"
            model.start_min = log.log_start_offset

    def _cleaner_lines(
        self, log: PartitionLog
    ) -> tuple[OffsetCheckpointFile, Mapping[TopicPartition, int]]:
        directories = self._running().directories
        file = next(d for d in directories if d.path == log.log_dir).cleaner_offsets
        return file, file.read()

    def _lower_cleaner_checkpoint(self, log: PartitionLog, offset: int) -> None:
        file, lines = self._cleaner_lines(log)
        if lines.get(log.topic_partition, 0) > offset:
            file.write({**lines, log.topic_partition: offset})

    def _clean(self, partition: TopicPartition) -> None:
        """A compaction, its rewriting done by the slow and obvious cleaner."""
        log, model = self._log(partition)
        file, lines = self._cleaner_lines(log)
        now_ms = self._clock.now_ms()
        cleanable = plan_cleanable(view_of(log, lines.get(partition)), now_ms=now_ms, force=True)
        if cleanable.reason is not None:
            return
        captured = capture(log, end=cleanable.first_uncleanable)
        plan = plan_compaction(captured.view, cleanable)
        compaction = prepare_compaction(captured, plan, now_ms=now_ms, seed=0)
        cleaned = ReferenceCleaner(ReferenceRound.of(compaction, fs=self._fs)).clean()
        for number, (group, segment) in enumerate(zip(compaction.groups, cleaned, strict=True)):
            staged = StagedSegment(
                directory=str(log.directory), base_offset=group[0], token=f"s{self._operations}"
            )
            for suffix, data in segment.files.items():
                writer = FileWriter(staged.paths()[suffix], fs=self._fs)
                writer.write(data)
                writer.close()
                self._fs.set_modified(writer.path, segment.modified_ns)
            end = compaction.group(number)[-1].next_base_offset
            model.begin_replacing(group, end, stored_in(segment.files[LOG_SUFFIX]))
            replace_segments(log, [staged], group)
            model.end_replacing()
        file.write({**lines, partition: cleanable.first_uncleanable})


def main(arguments: Sequence[str] | None = None) -> int:
    """The command: runs workloads, or one operation of one again, and says how much was judged."""
    parser = argparse.ArgumentParser(description=str(__doc__).splitlines()[0])
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--seeds", type=int, default=1, help="how many, from --seed on")
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--images", type=int, default=4, help="an operation, at most")
    parser.add_argument("--operation", type=int, help="take images of this one only")
    options = parser.parse_args(arguments)
    logging.disable()
    operations = images = holes = 0
    steps: Counter[str] = Counter()
    for seed in range(options.seed, options.seed + options.seeds):
        plan = CrashPlan(seed=seed, steps=options.steps, images=options.images)
        report = CrashRun(plan, only=options.operation).run()
        operations += report.operations
        images += report.images
        holes += report.holes
        steps.update(report.steps)
    print(f"{operations} operations, {images} images, {holes} holes, {dict(steps)}")  # noqa: T201
    return 0


if __name__ == "__main__":
    sys.exit(main())
