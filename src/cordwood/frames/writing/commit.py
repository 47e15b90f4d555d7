"""Puts what attempts have written into the logs of a topic, or removes it.

1. The log directory is locked, and the topic looked at again.
2. The segments of a partition follow its end, task by task: batch headers get their offsets, and
   the leader epoch; both are outside the CRC. All is on disk before anything is in place.
3. A topic that is there: segments are renamed into its logs, the first one first, and its indexes
   before it, so that a crash leaves a log that ends with one of them. A new topic: its directories
   are renamed, and the metadata log gets its records last, so that a crash leaves a topic or none.
4. Checkpoints: recovery points and high watermarks are the new ends.

An error undoes what is in place, and the next write what a kill leaves, unless a broker has opened
the directory before it (`unfinished`): whole segments at the ends of logs, behind which the broker
continues, or directories of a topic that is not in the metadata log, which it marks stray.

Source: org.apache.kafka.storage.internals.log.UnifiedLog.roll, LogManager.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from cordwood.cleanup.access.offline.log import load_offline_log
from cordwood.cleanup.access.offline.log_directory import Checkpoints, require_closed
from cordwood.format.file_names import (
    DELETE_DIR_SUFFIX,
    INDEX_SUFFIX,
    LEADER_EPOCH_CHECKPOINT,
    LOG_SUFFIX,
    META_PROPERTIES,
    PARTITION_METADATA,
    PRODUCER_SNAPSHOT_SUFFIX,
    TIME_INDEX_SUFFIX,
    segment_file_name,
)
from cordwood.format.partition_metadata import build_partition_metadata
from cordwood.format.producer_snapshot import ProducerEntry, build_producer_snapshot
from cordwood.frames.writing.attempt import Staged
from cordwood.frames.writing.creation import record_topic
from cordwood.frames.writing.plan import TopicHere, WritePlan, find_topic
from cordwood.frames.writing.unfinished import Unfinished, begin, end, undo
from cordwood.model.clock import Clock
from cordwood.model.errors import TopicWriteError
from cordwood.model.rng import Rng
from cordwood.model.topic_partition import TopicPartition
from cordwood.model.uuids import fresh_uuid
from cordwood.storage.directory_names import delete_directory_name, live_directory_name
from cordwood.storage.filesystem import OS, FileFacts, FileSystem
from cordwood.storage.log.leader_epochs import LeaderEpochCache
from cordwood.storage.reading.batch_heads import iter_heads

_SUFFIXES = (INDEX_SUFFIX, TIME_INDEX_SUFFIX, LOG_SUFFIX)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Segment:
    """A staged segment, and the base offset that it gets."""

    directory: Path
    staged_base: int
    base_offset: int


@dataclass(frozen=True, slots=True, kw_only=True)
class _Load:
    """The segments of one partition, which begin at the end of its log.

    `active_base` is the base offset of the active segment, -1 in a log without segments;
    `producers` are those at the end, `model` is the owner and the mode of files.
    """

    partition: TopicPartition
    segments: tuple[_Segment, ...]
    start_offset: int
    end_offset: int
    leader_epoch: int
    has_epoch: bool = True
    active_base: int = -1
    producers: Sequence[ProducerEntry] = field(default=())
    model: FileFacts


def commit_write(
    plan: WritePlan, staged: Sequence[Staged], *, clock: Clock, rng: Rng, fs: FileSystem = OS
) -> None:
    """Puts the segments of attempts in place; those of one that is not in `staged` are removed.

    Args:
        plan: the job.
        staged: of one attempt for each task, in the order of tasks.
        clock: the time of a new topic's records.
        rng: draws a new topic's id.
        fs: where the log directory lies.

    Raises:
        DirectoryInUseError: a broker has the log directory open.
        TopicWriteError: the topic has changed since the job was planned, or what was written is
            gone; nothing is in place.
        CordwoodError, OSError: something cannot be read or written; nothing is in place.
    """
    log_dir = plan.options.log_dir
    fs.make_directory_durably(log_dir)
    lock = fs.lock(log_dir)
    try:
        undo(log_dir, fs=fs)
        here = find_topic(plan.options, fs=fs)
        found = (here.place is not None, here.partitions, here.topic_id)
        if found != (plan.is_new, plan.attempts.partitions, plan.topic_id):
            raise TopicWriteError(
                f"topic {plan.options.topic} has changed since the write began. Write again"
            )
        staged = [each for each in staged if each.partitions]
        missing = [each.directory for each in staged if not fs.exists(each.directory)]
        if missing:
            raise TopicWriteError(
                f"{missing[0]} is gone: a broker has been started on the directory since the write "
                "began. Stop it, and write again"
            )
        if plan.is_new:
            _make_topic(plan, here, staged, clock=clock, rng=rng, fs=fs)
        else:
            _append(plan, here, staged, clock=clock, fs=fs)
        discard(plan, fs=fs)
    finally:
        lock.release()


def discard(plan: WritePlan, *, fs: FileSystem = OS) -> None:
    """Removes what attempts of a job have written and is not in place."""
    log_dir = plan.options.log_dir
    if not fs.exists(log_dir):
        return
    for entry in fs.entries_in(log_dir):
        stem, _, unique = entry.name.rpartition(".")
        if stem and unique.startswith(plan.attempts.job) and unique.endswith(DELETE_DIR_SUFFIX):
            fs.remove_tree(log_dir / entry.name)


def _placed(
    staged: Sequence[Staged], number: int, start_offset: int
) -> tuple[tuple[_Segment, ...], int]:
    """The segments of one partition with their base offsets, and the end of the last."""
    segments, end = [], start_offset
    for each in staged:
        bases, size = each.partitions.get(number, ((), 0))
        segments += [
            _Segment(
                directory=each.directory / str(number),
                staged_base=base,
                base_offset=end + base,
            )
            for base in bases
        ]
        end += size
    return tuple(segments), end


# ---- batches and files


def _rebase(segment: _Segment, leader_epoch: int, fs: FileSystem) -> None:
    """Gives the batches of a staged segment their offsets and leader epoch, durably."""
    shift = segment.base_offset - segment.staged_base
    if not shift and not leader_epoch:
        return
    path = segment.directory / segment_file_name(segment.staged_base, LOG_SUFFIX)
    epoch = leader_epoch.to_bytes(4, "big")
    file = fs.open(path, write=True)
    try:
        for head in iter_heads(file, 0, file.size(), path=path):
            offset = (head.base_offset + shift).to_bytes(8, "big")
            file.write_at([offset], head.position)
            file.write_at([epoch], head.position + 12)
        file.sync()
    finally:
        file.close()


def _move_in(load: _Load, directory: Path, fs: FileSystem) -> None:
    """Puts the segments of a partition into its directory, and snapshots of its producers."""
    snapshot = build_producer_snapshot(load.producers)
    for offset in (*(each.base_offset for each in load.segments), load.end_offset):
        path = directory / segment_file_name(offset, PRODUCER_SNAPSHOT_SUFFIX)
        if offset and not fs.exists(path):
            _write_synced(path, snapshot, load.model, fs)
    for segment in load.segments:
        for suffix in _SUFFIXES:
            source = segment.directory / segment_file_name(segment.staged_base, suffix)
            fs.take_after(source, load.model)
            fs.rename(source, directory / segment_file_name(segment.base_offset, suffix))
    fs.sync_directory(directory)


def _write_synced(path: Path, data: bytes, model: FileFacts, fs: FileSystem) -> None:
    """Writes a file whose name lasts once its directory is synced."""
    file = fs.create(path)
    try:
        file.write_at([data], 0)
        file.sync()
    finally:
        file.close()
    fs.take_after(path, model)


def _note_epoch(load: _Load, directory: Path, fs: FileSystem) -> None:
    path = directory / LEADER_EPOCH_CHECKPOINT
    is_new = not fs.exists(path)
    LeaderEpochCache(path, fs=fs).assign(load.leader_epoch, load.start_offset)
    if is_new:
        fs.take_after(path, load.model)


def _write_checkpoints(here: TopicHere, loads: Sequence[_Load]) -> None:
    """Writes the ends of logs as their recovery points and high watermarks.

    A directory of no node gets no checkpoints.
    """
    directory, ends = here.directory, {load.partition: load.end_offset for load in loads}
    for file in (directory.recovery_points, directory.high_watermarks):
        is_new = not directory.fs.exists(file.path)
        if is_new and directory.meta is None:
            continue
        file.write({**file.read_or_nothing(file.path.name), **ends})
        if is_new:
            directory.fs.take_after(file.path, loads[0].model)


# ---- a topic that is there


def _append(
    plan: WritePlan, here: TopicHere, staged: Sequence[Staged], *, clock: Clock, fs: FileSystem
) -> None:
    loads = list(_loads_of(plan, here, staged, now_ms=clock.now_ms(), fs=fs))
    for load in loads:
        for segment in load.segments:
            _rebase(segment, load.leader_epoch, fs)
    if not loads:
        return
    unfinished = Unfinished(
        topic=plan.options.topic,
        topic_id=None,
        ends={load.partition.partition: load.start_offset for load in loads},
        actives={load.partition.partition: load.active_base for load in loads},
    )
    with _undone_on_error(here.directory.path, unfinished, fs):
        for load in loads:
            directory = here.directory.path / live_directory_name(load.partition)
            if not load.has_epoch:
                _note_epoch(load, directory, fs)
            _move_in(load, directory, fs)
        _write_checkpoints(here, loads)


@contextmanager
def _undone_on_error(log_dir: Path, commit: Unfinished, fs: FileSystem) -> Iterator[None]:
    """Notes a commit until it has ended, and undoes it after an error."""
    try:
        begin(log_dir, commit, fs=fs)
        yield
        end(log_dir, fs=fs)
    except BaseException:
        undo(log_dir, fs=fs)
        raise


def _loads_of(
    plan: WritePlan, here: TopicHere, staged: Sequence[Staged], *, now_ms: int, fs: FileSystem
) -> Iterator[_Load]:
    directory = here.directory
    recovery_points, log_starts, high_watermarks = (
        file.read_or_nothing(file.path.name)
        for file in (directory.recovery_points, directory.log_starts, directory.high_watermarks)
    )
    checkpoints = Checkpoints(
        recovery_point=recovery_points,
        log_start=log_starts,
        high_watermark=high_watermarks,
        cleaner={},
    )
    for number in range(here.partitions):
        partition = TopicPartition(plan.options.topic, number)
        path = directory.path / live_directory_name(partition)
        require_closed(path, fs=fs)
        offline = load_offline_log(
            path,
            partition,
            config=here.config,
            checkpoints=checkpoints,
            clean_shutdown=True,
            producer_expiration_ms=here.producer_expiration_ms,
            metadata_version=here.metadata_version,
            now_ms=now_ms,
            fs=fs,
        )
        log = offline.log
        if offline.beyond_end is not None:
            raise TopicWriteError(
                f"{partition} starts at {offline.beyond_end}, behind its last record. Start the "
                "broker, which empties the log, stop it, and write again"
            )
        active = log.segments.active
        model = offline.facts_of(active)
        if model.size_bytes > active.size_bytes:
            raise TopicWriteError(
                f"{active.path} ends in part of a batch. Start the broker, which cuts it off, stop "
                "it, and write again"
            )
        segments, end = _placed(staged, number, log.log_end_offset)
        if not segments:
            continue
        latest = log.leader_epochs.latest_epoch
        yield _Load(
            partition=partition,
            segments=segments,
            start_offset=log.log_end_offset,
            end_offset=end,
            leader_epoch=here.epochs.get(number, 0) if latest is None else latest,
            has_epoch=latest is not None,
            active_base=active.base_offset,
            producers=log.producer_state.entries(),
            model=model,
        )


# ---- a new topic


def _make_topic(
    plan: WritePlan,
    here: TopicHere,
    staged: Sequence[Staged],
    *,
    clock: Clock,
    rng: Rng,
    fs: FileSystem,
) -> None:
    assert here.place is not None, "the topic is new"
    log_dir, topic_id = here.directory.path, fresh_uuid(rng)
    model = _model_in(log_dir, here, fs)
    loads: list[_Load] = []
    for number in range(here.partitions):
        segments, end = _placed(staged, number, 0)
        loads.append(
            _Load(
                partition=TopicPartition(plan.options.topic, number),
                segments=segments,
                start_offset=0,
                end_offset=end,
                leader_epoch=0,
                model=model,
            )
        )
    made = {
        load.partition: _made(plan, load, build_partition_metadata(topic_id), fs) for load in loads
    }
    here.directory.remove_checkpoint_lines(made.__contains__)
    unfinished = Unfinished(topic=plan.options.topic, topic_id=topic_id, ends={}, actives={})
    with _undone_on_error(log_dir, unfinished, fs):
        for partition, path in made.items():
            fs.rename(path, log_dir / live_directory_name(partition))
        fs.sync_directory(log_dir)
        _write_checkpoints(here, loads)
        record_topic(
            log_dir,
            here.directory.meta,
            here.place,
            topic=plan.options.topic,
            topic_id=topic_id,
            partitions=here.partitions,
            settings=plan.options.settings,
            clock=clock,
            fs=fs,
        )


def _made(plan: WritePlan, load: _Load, metadata: bytes, fs: FileSystem) -> Path:
    """A directory that is whole but for its name, and on disk."""
    name = delete_directory_name(load.partition, f"{plan.attempts.job}new")
    directory = plan.options.log_dir / name
    fs.make_directory(directory)
    _write_synced(directory / PARTITION_METADATA, metadata, load.model, fs)
    for segment in load.segments:
        _rebase(segment, load.leader_epoch, fs)
    if load.segments:
        _note_epoch(load, directory, fs)
        _move_in(load, directory, fs)
    else:
        for suffix in _SUFFIXES:
            path = directory / segment_file_name(0, suffix)
            _write_synced(path, b"", load.model, fs)
        fs.sync_directory(directory)
    return directory


def _model_in(log_dir: Path, here: TopicHere, fs: FileSystem) -> FileFacts:
    """The owner and the mode of files that are new in a log directory."""
    path = log_dir / META_PROPERTIES
    if here.directory.meta is not None:
        return fs.facts_of(path)
    facts = fs.facts_of(log_dir)
    return FileFacts(
        size_bytes=0, modified_ms=0, modified_ns=0, mode=0o644, uid=facts.uid, gid=facts.gid
    )
