"""Restores logs of an archive as directories of Kafka's files, which a broker opens.

A partition's directory is made under a name that brokers remove when they start; it gets its own
name when it is whole. A run that breaks off leaves no part of a log.
"""

from __future__ import annotations

import fnmatch
import hashlib
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from cordwood.archiving.report import (
    ByteListener,
    RestoredPartition,
    RestoreReport,
    RestoreRequest,
    Silent,
)
from cordwood.cleanup.access.offline.log import load_offline_log
from cordwood.cleanup.access.offline.log_directory import OfflineLogDirectory
from cordwood.configs.log_config import LogConfig
from cordwood.format.file_names import (
    CLEANER_OFFSET_CHECKPOINT,
    CLUSTER_METADATA_DIR,
    LOG_START_OFFSET_CHECKPOINT,
    RECOVERY_POINT_CHECKPOINT,
    REPLICATION_OFFSET_CHECKPOINT,
)
from cordwood.model.clock import Clock
from cordwood.model.errors import ConfigError, CordwoodError, CorruptError
from cordwood.model.offsets import OFFSET_MAX
from cordwood.model.rng import Rng
from cordwood.model.topic_partition import TopicPartition
from cordwood.storage.archives.archive_filesystem import ArchiveFileSystem
from cordwood.storage.archives.directory_files import DirectoryFile, directory_files
from cordwood.storage.archives.manifest import ArchiveManifest
from cordwood.storage.directory_names import delete_directory_name, live_directory_name
from cordwood.storage.failures import RaisedFailures
from cordwood.storage.filesystem import OS, FileSystem, FileWriter
from cordwood.storage.log.log_context import LogContext
from cordwood.storage.log.log_loader import LoadRequest, load_log
from cordwood.storage.log.log_reader import find_by_timestamp
from cordwood.storage.log.truncation import truncate_to
from cordwood.storage.log_directory import is_log_directory
from cordwood.storage.offset_checkpoint_file import OffsetCheckpointFile
from cordwood.storage.reading.batch_heads import iter_heads
from cordwood.storage.segment.log_segment import LogSegment
from cordwood.storage.segment.resources import ResourceCache

_CHUNK_BYTES: Final = 1 << 20
_COPIES_MAX: Final = 4


class RestoreError(CordwoodError):
    """A log cannot be restored where it was asked for; nothing of it is there."""


@dataclass(frozen=True, slots=True)
class _Range:
    """Offsets from `first` to before `end`."""

    first: int
    end: int


@dataclass(frozen=True, slots=True)
class _Staged:
    """A log in a directory that has not its own name yet."""

    manifest: ArchiveManifest
    wanted: _Range
    directory: Path
    row: RestoredPartition


def restore_logs(
    request: RestoreRequest,
    archive: ArchiveFileSystem,
    *,
    clock: Clock,
    rng: Rng,
    listener: ByteListener | None = None,
    fs: FileSystem = OS,
) -> RestoreReport:
    """Restores logs of an archive; what goes wrong with one of them is in the report.

    A directory that is no log directory yet gets the identity and the metadata log that were
    archived: a broker that starts on it knows the topics, and makes empty logs of those that were
    not restored.

    Args:
        request: which logs, and where.
        archive: the archive, mounted.
        clock: for timings.
        rng: draws the names of directories that are not whole yet.
        listener: receives the progress.
        fs: where the log directory is.

    Raises:
        ConfigError: no topic has a name that was asked for.
        CorruptError: a manifest cannot be understood.
        DirectoryInUseError: a broker runs on the log directory.
        RestoreError: a partition is there already.
        ObjectStoreError: the store refuses, or does not answer.
        OSError: the log directory cannot be written.
    """
    return _Restoring(request, archive, clock, rng, listener or Silent(), fs).run()


class _Restoring:
    def __init__(
        self,
        request: RestoreRequest,
        archive: ArchiveFileSystem,
        clock: Clock,
        rng: Rng,
        listener: ByteListener,
        fs: FileSystem,
    ) -> None:
        self._request = request
        self._archive = archive
        self._store = archive.archive.store
        self._clock = clock
        self._rng = rng
        self._listener = listener
        self._fs = fs

    def run(self) -> RestoreReport:
        begun_s = self._clock.monotonic_s()
        into = self._request.into
        report = RestoreReport(url=self._store.url)
        chosen = self._chosen()
        self._fs.make_directory_durably(into)
        lock = self._fs.lock(into)
        try:
            for partition in chosen:
                self._require_absent(partition)
            is_new = not is_log_directory(into, fs=self._fs)
            ranges = [self._range(manifest) for manifest in chosen.values()]
            kept = [_cut(*each) for each in zip(chosen.values(), ranges, strict=True)]
            self._listener.begin(sum(each.total_bytes for each in kept))
            metadata = self._stage_metadata() if is_new else None
            with ThreadPoolExecutor(_COPIES_MAX, thread_name_prefix="restore") as pool:
                staged = list(pool.map(self._stage, kept, ranges))
            self._put_in_place([each for each in staged if not each.row.failure])
            report.partitions += [each.row for each in staged]
            if metadata is not None:
                self._rename(metadata, into / CLUSTER_METADATA_DIR)
                report.has_metadata = True
            if is_new:
                self._restore_identity()
        finally:
            lock.release()
        report.bytes_read = self._store.usage.bytes_read
        report.elapsed_s = self._clock.monotonic_s() - begun_s
        return report

    # ---- which

    def _chosen(self) -> dict[TopicPartition, ArchiveManifest]:
        found = {
            partition: manifest
            for partition, manifest in sorted(self._archive.manifests().items())
            if str(partition) != CLUSTER_METADATA_DIR
        }
        chosen = {each: found[each] for each in found if self._request.wants(each.topic)}
        for glob in self._request.topics:
            if not any(fnmatch.fnmatchcase(each.topic, glob) for each in chosen):
                raise ConfigError(f"{self._store.url}: no topic matches --topic {glob}")
        return chosen

    def _require_absent(self, partition: TopicPartition) -> None:
        path = self._request.into / live_directory_name(partition)
        if self._fs.exists(path):
            raise RestoreError(
                f"{path}: it is there already. Restore into another directory, or remove the topic "
                "first"
            )

    def _range(self, manifest: ArchiveManifest) -> _Range:
        request = self._request
        first = max(request.first_offset, manifest.log_start_offset)
        end = min(request.end_offset, manifest.end_offset)
        if request.first_ms >= 0 or request.end_ms >= 0:
            first = max(first, self._offset_at(manifest, request.first_ms, first))
            end = min(end, self._offset_at(manifest, request.end_ms, end))
        return _Range(min(first, end), end)

    def _offset_at(self, manifest: ArchiveManifest, timestamp: int, otherwise: int) -> int:
        """The offset of the first record at or after a time; the archive's end if there is none."""
        if timestamp < 0:
            return otherwise
        log_dir = OfflineLogDirectory(self._archive.root, fs=self._archive)
        checkpoints, _ = log_dir.checkpoints()
        partition, config = manifest.log.topic_partition, LogConfig()
        log = load_offline_log(
            self._archive.root / str(partition),
            partition,
            config=config,
            checkpoints=checkpoints,
            clean_shutdown=True,
            producer_expiration_ms=OFFSET_MAX,
            now_ms=self._clock.now_ms(),
            for_reading=True,
            fs=self._archive,
        ).log
        found = find_by_timestamp(
            log.segments,
            timestamp,
            log_start_offset=log.log_start_offset,
            record_bytes_max=config.max_decompressed_message_bytes,
            rebuilds=0,
        )
        return manifest.end_offset if found is None else found.offset

    # ---- copies

    def _stage(self, manifest: ArchiveManifest, wanted: _Range) -> _Staged:
        """Makes a partition's directory, under a name that brokers remove."""
        partition = manifest.log.topic_partition
        directory = self._request.into / live_directory_name(partition)
        row = RestoredPartition(
            topic=manifest.topic,
            partition=manifest.partition,
            directory=str(directory),
            segments=len(manifest.segments),
            bytes=sum(each.size_bytes for each in manifest.segments),
            log_start_offset=wanted.first,
            end_offset=wanted.end,
        )
        outer = directory.with_name(delete_directory_name(partition, self._rng.unique_id()))
        staged = outer / directory.name  # a log is not loaded from a directory of the other name
        try:
            self._fs.make_directory(staged)
            for file in directory_files(manifest).values():
                self._copy_file(file, staged)
            if wanted.end < manifest.end_offset:
                wanted = self._truncate(staged, partition, wanted)
                row.end_offset = wanted.end
            self._fs.sync_directory(staged)
        except (CordwoodError, OSError) as error:
            row.failure = str(error)
            with suppress(OSError, CordwoodError):
                self._fs.remove_tree(outer)
        return _Staged(manifest, wanted, staged, row)

    def _copy_file(self, source: DirectoryFile, directory: Path) -> None:
        target = directory / source.name
        digest = hashlib.sha256()
        writer = FileWriter(target, fs=self._fs)
        try:
            file = source.opened(self._store)
            file.read_ahead()
            position = 0
            while chunk := file.read_at(_CHUNK_BYTES, position):
                writer.write(chunk)
                digest.update(chunk)
                position += len(chunk)
                self._listener.advance(len(chunk))
        finally:
            writer.close()
        if source.sha256 and digest.hexdigest() != source.sha256:
            raise CorruptError(
                "the object has another content than its manifest says (SHA-256): it is damaged",
                path=self._store.url_of(source.key),
            )
        self._fs.set_modified(target, source.modified_ns)

    def _truncate(self, staged: Path, partition: TopicPartition, wanted: _Range) -> _Range:
        """Cuts the log off behind the last batch that has a wanted record; what is left."""
        log = load_log(
            LoadRequest(
                directory=staged,
                topic_partition=partition,
                config=LogConfig(),
                context=LogContext(
                    clock=self._clock,
                    resources=ResourceCache(self._fs),
                    failures=RaisedFailures(self._clock),
                    producer_id_expiration_ms=OFFSET_MAX,
                ),
                clean_shutdown=True,
                recovery_point=wanted.end,
                log_start_offset=wanted.first,
            )
        )
        end = self._batch_end(log.segments.active, wanted.end)
        truncate_to(log, end)
        log.close()
        return _Range(wanted.first, end)

    def _batch_end(self, segment: LogSegment, end: int) -> int:
        """The offset behind the last batch that begins below `end`."""
        with closing(self._fs.open(segment.path)) as file:
            for head in iter_heads(file, 0, segment.size_bytes, path=segment.path):
                if head.last_offset >= end - 1:
                    return head.last_offset + 1 if head.base_offset < end else end
        return end

    def _put_in_place(self, staged: Sequence[_Staged]) -> None:
        """Writes the lines of checkpoints, then gives the directories their names."""
        into = self._request.into
        lines: dict[str, dict[TopicPartition, int]] = {}
        for each in staged:
            partition, wanted = each.manifest.log.topic_partition, each.wanted
            found = {
                RECOVERY_POINT_CHECKPOINT: wanted.end,
                REPLICATION_OFFSET_CHECKPOINT: wanted.end,
            }
            segments = each.manifest.segments
            base = segments[0].base_offset if segments else each.manifest.end_offset
            if wanted.first > base:  # as Kafka writes no line of another log
                found[LOG_START_OFFSET_CHECKPOINT] = wanted.first
            if each.manifest.cleaner_offset is not None:
                found[CLEANER_OFFSET_CHECKPOINT] = min(each.manifest.cleaner_offset, wanted.end)
            for name, offset in found.items():
                lines.setdefault(name, {})[partition] = offset
        for name, new in lines.items():
            file = OffsetCheckpointFile(into / name, fs=self._fs)
            file.write({**file.read(), **new})
        for each in staged:
            self._rename(each.directory, Path(each.row.directory))
        self._fs.sync_directory(into)

    def _rename(self, staged: Path, target: Path) -> None:
        self._fs.rename(staged, target)
        self._fs.remove_directory(staged.parent)

    # ---- the directory

    def _stage_metadata(self) -> Path | None:
        """Makes the directory of the cluster's metadata log, under a name that brokers remove."""
        partition = TopicPartition.parse(CLUSTER_METADATA_DIR)
        manifest = self._archive.manifests().get(partition)
        if manifest is None or self._fs.exists(self._request.into / CLUSTER_METADATA_DIR):
            return None
        outer = self._request.into / delete_directory_name(partition, self._rng.unique_id())
        staged = outer / CLUSTER_METADATA_DIR
        try:
            self._fs.make_directory(staged)
            for file in directory_files(manifest).values():
                self._copy_file(file, staged)
            self._fs.sync_directory(staged)
        except (CordwoodError, OSError):
            with suppress(OSError, CordwoodError):
                self._fs.remove_tree(outer)
            raise
        return staged

    def _restore_identity(self) -> None:
        """Restores the files of the log directory itself, as `meta.properties`."""
        for file in self._archive.directory_objects():
            path = self._request.into / file.name
            self._fs.replace_durably(path, self._store.get(file.key))


def _cut(manifest: ArchiveManifest, wanted: _Range) -> ArchiveManifest:
    """The manifest of those segments that have wanted records.

    Its last one may reach beyond them.
    """
    is_to_end = wanted.end == manifest.end_offset
    segments = tuple(
        each
        for each in manifest.segments
        if (each.next_base_offset > wanted.first and each.base_offset < wanted.end)
        or (is_to_end and each.base_offset == wanted.end)  # the active one, empty
    )
    if is_to_end:
        has_active = manifest.has_active_segment and bool(segments)
        return replace(manifest, segments=segments, has_active_segment=has_active)
    return replace(
        manifest,
        segments=segments,
        others=(),
        end_offset=segments[-1].next_base_offset if segments else wanted.end,
        has_active_segment=bool(segments),
        leader_epochs=tuple(
            each for each in manifest.leader_epochs if each.start_offset < wanted.end
        ),
    )
