"""Access to one log of an archive in object storage.

Each change is a new manifest. What tasks rewrite is staged in a directory here and put as objects
group by group, or put by the tasks themselves. The manifest that names them all is committed when
the compaction has ended: a reader sees the log as it was, or as it is then. Objects that no
manifest names any more are removed later, as garbage.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Final

from cordwood.cleanup.access.archived.manifest_capture import ManifestCapture
from cordwood.cleanup.access.capture import capture_offline
from cordwood.cleanup.access.commit import CompactionCommitter, StalePlanError, staged_segments
from cordwood.cleanup.access.due_reader import KnownDue
from cordwood.cleanup.access.log_access import OwnedLog, Recovery
from cordwood.cleanup.access.offline.log import load_offline_log
from cordwood.cleanup.access.offline.log_directory import Checkpoints, PartitionDir
from cordwood.cleanup.access.offline.run import OfflineRun
from cordwood.cleanup.access.removal_audit import Origins, audit_expired, audit_group
from cordwood.cleanup.plan.attempt import Attempt, Limits
from cordwood.cleanup.plan.captured import Captured
from cordwood.cleanup.plan.compaction_values import Manifest, RewrittenSegment
from cordwood.cleanup.plan.log_compaction import LogCompaction
from cordwood.cleanup.plan.outcome import Committed, Outcome, Rejected
from cordwood.cleanup.rules.group_guard import NOTHING_KNOWN, Consumed
from cordwood.cleanup.rules.log_view import LogView
from cordwood.cleanup.rules.retention import RetentionPlan
from cordwood.configs.log_config import LogConfig
from cordwood.configs.value import LONG_MAX
from cordwood.format.file_names import (
    INDEX_SUFFIX,
    LOG_SUFFIX,
    PRODUCER_SNAPSHOT_SUFFIX,
    TIME_INDEX_SUFFIX,
    TXN_INDEX_SUFFIX,
    segment_file_name,
)
from cordwood.model.errors import CordwoodError, NoSpaceError
from cordwood.model.rng import SystemRng
from cordwood.storage.archives.archive_filesystem import ArchiveFileSystem
from cordwood.storage.archives.digested import CHUNK_BYTES, put_digested
from cordwood.storage.archives.manifest import (
    ArchivedFile,
    ArchivedSegment,
    ArchiveManifest,
)
from cordwood.storage.archives.staging import staged_key
from cordwood.storage.filesystem import OS
from cordwood.storage.replace import StagedSegment

_RUN_DIGITS: Final = 12


def archive_at(path: Path) -> ArchiveFileSystem:
    """The archive that a path is of, which is mounted."""
    found = OS.at(path)
    assert isinstance(found, ArchiveFileSystem), f"{path} is not of an archive"
    return found


class ArchivedLog(OwnedLog):
    """The `LogAccess` of a log in an archive."""

    def __init__(
        self,
        run: OfflineRun,
        archive: ArchiveFileSystem,
        place: PartitionDir,
        *,
        config: LogConfig,
        scratch: Path | None,
        stages_there: bool = False,
        origins: Origins = MappingProxyType({}),
        holds: tuple[str, ...] = (),
    ) -> None:
        """Takes the log's directory in a mounted archive, and the settings in force.

        `origins` says where they come from. `scratch` is a directory here for what tasks stage,
        None if nothing is compacted; with `stages_there` they stage it in the archive. With
        `holds`, the ids of its legal holds, it is only read.
        """
        super().__init__(place.topic_partition, place.path, log_dir=place.path.parent, fs=archive)
        self._run = run
        self._archive = archive
        self._config = config
        self._origins = origins
        self._holds = holds
        self._scratch = None if scratch is None else scratch / place.path.name
        self._stages_there = stages_there
        self._due: KnownDue = {}
        self._pinned: Captured | None = None
        self._rewritten: dict[int, tuple[ArchivedSegment, ...]] = {}

    @property
    def _manifest(self) -> ArchiveManifest:
        return self._archive.manifests()[self.partition]

    # ---- view

    @property
    def holds(self) -> tuple[str, ...]:
        """The ids of the legal holds that were in force when the run began."""
        return self._holds

    @property
    def is_whole(self) -> bool:
        """Always: an archive has whole batches."""
        return True

    @property
    def _captured(self) -> Captured:
        assert self._pinned is not None, "a log is pinned before it is changed"
        return self._pinned

    @contextmanager
    def held(self) -> Iterator[LogView]:
        """Yields the pinned view; a commit is refused if another writer has changed the log."""
        yield self._captured.view

    def segment_names(self) -> set[str]:
        """The names of the log files of the pinned segments."""
        bases = [source.base_offset for source in self._captured.sources]
        return {segment_file_name(base, LOG_SUFFIX) for base in bases}

    def pin(self, *, end: int | None = None) -> Captured:
        """Captures the log by its manifest; sources are objects, which never change."""
        del end  # all of it is read
        run, partition, manifest = self._run, self.partition, self._manifest
        other = run.compared_with(partition.topic)
        waits = bool(self._config.cordwood_retention_groups)
        consumed = run.groups.consumed(partition) if waits else NOTHING_KNOWN
        by_manifest = ManifestCapture(
            self._archive, manifest, self.directory, config=self._config, other=other
        )
        if by_manifest.is_possible:
            self._pinned = by_manifest.capture(
                now_ms=run.now_ms,
                producer_expiration_ms=run.producer_expiration_ms,
                metadata_version=run.metadata_version,
                holds=self._holds,
                consumed=consumed,
                due=self._due,
            )
        else:
            self._pinned = self._loaded(manifest, consumed=consumed, other=other)
        return self._pinned

    def _loaded(
        self, manifest: ArchiveManifest, *, consumed: Consumed, other: LogConfig | None
    ) -> Captured:
        """The log as its loader finds it, by the indexes and the end of its files."""
        run, partition = self._run, self.partition
        offline = load_offline_log(
            self.directory,
            partition,
            config=self._config,
            checkpoints=Checkpoints(
                recovery_point={partition: manifest.end_offset},
                log_start={partition: manifest.log_start_offset},
                high_watermark={partition: manifest.end_offset},
                cleaner={},
            ),
            clean_shutdown=True,
            producer_expiration_ms=run.producer_expiration_ms,
            metadata_version=run.metadata_version,
            now_ms=run.now_ms,
            for_reading=run.for_reading,
            fs=self._archive,
        )
        captured = capture_offline(
            offline,
            cleaner_checkpoint=manifest.cleaner_offset,
            holds=self._holds,
            consumed=consumed,
            other=other,
            due=self._due,
        )
        keys = {each.base_offset: each.log_file.key for each in manifest.segments}
        sources = tuple(
            replace(each, path=str(self._archive.object_path(keys[each.base_offset])))
            if each.base_offset in keys
            else each
            for each in captured.sources
        )
        return replace(captured, sources=sources)

    # ---- changes

    def recover(self, *, is_erasure: bool = False) -> Recovery:
        """Does nothing: no change is half done."""
        del is_erasure
        return Recovery()

    def _commit(self, changed: ArchiveManifest) -> None:
        """Commits the next manifest.

        Raises:
            ManifestConflictError: another writer has changed the log in the archive.
        """
        manifest = self._manifest
        self._archive.commit(
            replace(
                changed,
                number=manifest.number + 1,
                run=SystemRng().unique_id()[:_RUN_DIGITS],
                at_ms=self._run.clock.now_ms(),
            )
        )

    def roll(self) -> None:
        """Has an empty active segment at the log's end."""
        self._commit(replace(self._manifest, has_active_segment=False))

    def delete(self, plan: RetentionPlan) -> int:
        """Commits the manifest without the oldest segments."""
        view, manifest = self._captured.view, self._manifest
        bases = [segment.base_offset for segment in plan.expired]
        if bases != [s.base_offset for s in view.segments[: len(bases)]]:
            raise StalePlanError(f"{self.partition}: its segments have changed since the plan")
        gone = set(bases)
        self._commit(
            replace(
                manifest,
                segments=tuple(
                    _without_snapshot(each, before=plan.log_start_offset)
                    for each in manifest.segments
                    if each.base_offset not in gone
                ),
                log_start_offset=plan.log_start_offset,
                leader_epochs=manifest.epochs_from(plan.log_start_offset),
                has_active_segment=manifest.has_active_segment and not plan.roll,
            )
        )
        audit_expired(
            plan.expired,
            [view.next_base(number) for number in range(len(bases))],
            partition=self.partition,
            log_dir=str(self.log_dir),
            config=self._config,
            origins=self._origins,
            at_ms=self._run.now_ms,
        )
        return len(bases)

    def restart(self, offset: int) -> None:
        """Commits a manifest without segments."""
        self._commit(
            replace(
                self._manifest,
                segments=(),
                others=(),
                leader_epochs=(),
                log_start_offset=offset,
                end_offset=offset,
                has_active_segment=False,
            )
        )

    def remove_deleted(self) -> list[str]:
        """Removes the objects that no manifest names any more; at once, as an erasure must."""
        gone = self._archive.archive.unnamed(self._manifest)
        self._archive.archive.store.delete(gone)
        return [key.rpartition("/")[2] for key in gone]

    def cleaner_offset(self) -> int | None:
        """The cleaner offset of the manifest."""
        return self._manifest.cleaner_offset

    def set_cleaner_offset(self, offset: int) -> None:
        """Commits a manifest with the offset."""
        if offset != self._manifest.cleaner_offset:
            self._commit(replace(self._manifest, cleaner_offset=offset))

    def end(self) -> None:
        """Commits the log start offset, if it has grown."""
        offset = self._captured.view.log_start_offset
        if offset > self._manifest.log_start_offset:
            self._commit(replace(self._manifest, log_start_offset=offset))

    # ---- compactions and erasures

    def attempt(self, limits: Limits) -> Attempt:
        """Draws token and seed by the random numbers of the system."""
        is_here = self._scratch is not None and not self._stages_there
        place = self._scratch.parent if is_here and self._scratch is not None else self.directory
        return Attempt.drawn(SystemRng(), limits, free_bytes=OS.free_bytes(place))

    def committer(
        self,
        compaction: LogCompaction,
        captured: Captured,
        *,
        on_first: Callable[[], None] = lambda: None,
        require_allowed: Callable[[], None] = lambda: None,
    ) -> CompactionCommitter:
        """Makes the committer, whose tasks stage their files here."""
        self._rewritten = {}
        return CompactionCommitter(
            compaction.staged_in(self._staging_directory()),
            _Upload(self, require_allowed),
            on_first=on_first,
        )

    def _staging_directory(self) -> Path:
        if self._stages_there:
            return self._archive.staging.directory_of(self._manifest.log)
        assert self._scratch is not None, "there is a directory for what is staged"
        OS.make_directory(self._scratch)
        return self._scratch

    def upload(self, compaction: LogCompaction, number: int, manifest: Manifest) -> None:
        """Puts what is staged of a group as objects; they are in no manifest yet."""
        group = compaction.groups[number]
        ends = {each.base_offset: each.next_base_offset for each in compaction.segments}
        staged = staged_segments(compaction, manifest)
        nexts = [*(each.base_offset for each in staged[1:]), ends[group[-1]]]
        modified_ns = next(
            each.modified_ns for each in compaction.segments if each.base_offset == group[-1]
        )
        take = self._staged_there if self._stages_there else self._put
        self._rewritten[number] = tuple(
            ArchivedSegment(
                base_offset=each.base_offset,
                next_base_offset=next_base,
                largest_timestamp=made.largest_timestamp,
                first_batch_timestamp=_known(made.first_batch_timestamp),
                files=(*take(each, made, modified_ns), *self._snapshots_of(each.base_offset)),
            )
            for each, made, next_base in zip(staged, manifest.segments, nexts, strict=True)
        )

    def _snapshots_of(self, base_offset: int) -> list[ArchivedFile]:
        """The producer snapshot of the segment in whose place a rewritten one comes."""
        old = [each for each in self._manifest.segments if each.base_offset == base_offset]
        files = [file for each in old for file in each.files]
        return [each for each in files if each.name.endswith(PRODUCER_SNAPSHOT_SUFFIX)]

    def _staged_there(
        self, staged: StagedSegment, made: RewrittenSegment, modified_ns: int
    ) -> list[ArchivedFile]:
        """The files that a task has put where they stay; a worker may have another clock."""
        sizes = {
            LOG_SUFFIX: made.log_bytes,
            INDEX_SUFFIX: made.index_bytes,
            TIME_INDEX_SUFFIX: made.time_index_bytes,
            TXN_INDEX_SUFFIX: made.transaction_index_bytes,
        }
        staging, paths = self._archive.staging, staged.paths()
        return [
            ArchivedFile(
                name=segment_file_name(staged.base_offset, suffix),
                key=staging.key_of(paths[suffix]),
                size_bytes=sizes[suffix],
                sha256=digest,
                modified_ns=modified_ns // 1_000_000 * 1_000_000,
            )
            for suffix, digest in made.sha256.items()
        ]

    def _put(
        self, staged: StagedSegment, made: RewrittenSegment, modified_ns: int
    ) -> list[ArchivedFile]:
        """Puts the files that a task has staged in a directory here."""
        del made, modified_ns
        base, files = staged.base_offset, []
        for suffix, path in staged.paths().items():
            if OS.exists(path):
                key = staged_key(self._manifest.log.place, path.name)
                files.append(self._put_file(path, key, segment_file_name(base, suffix)))
                OS.remove(path)
        return files

    def _put_file(self, path: Path, key: str, name: str) -> ArchivedFile:
        with closing(OS.open(path)) as file:
            size_bytes = file.size()
            starts = range(0, size_bytes, CHUNK_BYTES)
            chunks = (file.read_at(CHUNK_BYTES, start) for start in starts)
            digest = put_digested(self._archive.archive.store, key, chunks, size_bytes)
        return ArchivedFile(
            name=name,
            key=key,
            size_bytes=size_bytes,
            sha256=digest,
            modified_ns=OS.facts_of(path).modified_ns,
        )

    def finish(self, committer: CompactionCommitter) -> None:
        """Commits the manifest of the whole compaction, if it was done."""
        compaction = committer.compaction
        if isinstance(committer.outcome, Committed):
            self._commit_compaction(compaction, committer.result.manifests)
        committer.close()

    def _commit_compaction(self, compaction: LogCompaction, manifests: Sequence[Manifest]) -> None:
        old = self._manifest
        replaced = {base for number in self._rewritten for base in compaction.groups[number]}
        missing = replaced - {each.base_offset for each in old.segments}
        if missing:
            raise StalePlanError(f"{self.partition}: its segments have changed since the plan")
        segments = [each for each in old.segments if each.base_offset not in replaced]
        segments += [each for made in self._rewritten.values() for each in made]
        segments.sort(key=lambda each: each.base_offset)
        cleaner_offset = old.cleaner_offset
        if compaction.erased is None:
            cleaner_offset = compaction.first_uncleanable
        self._commit(replace(old, segments=tuple(segments), cleaner_offset=cleaner_offset))
        if compaction.erased is None:
            for number, manifest in zip(range(len(compaction.groups)), manifests, strict=True):
                if not manifest.unchanged:
                    audit_group(
                        compaction,
                        number,
                        manifest,
                        partition=self.partition,
                        log_dir=str(self.log_dir),
                        config=self._config,
                        origins=self._origins,
                    )

    def abandon(self, committer: CompactionCommitter) -> None:
        """Removes what is staged; nothing of it is in a manifest."""
        with suppress(OSError, NoSpaceError):
            committer.clear()


class _Upload:
    """A `Placement` that puts the groups of a compaction as objects."""

    def __init__(self, log: ArchivedLog, require_allowed: Callable[[], None]) -> None:
        self._log = log
        self._require_allowed = require_allowed

    def require_wanted(self) -> None:
        """Lets it continue always."""

    def place(self, compaction: LogCompaction, number: int, manifest: Manifest) -> Outcome:
        """Puts a group as objects."""
        try:
            self._require_allowed()
            self._log.upload(compaction, number, manifest)
        except (OSError, CordwoodError) as error:
            return Rejected(error)
        return Committed()

    def end(self) -> None:
        """Does nothing: there is no journal."""


def _without_snapshot(segment: ArchivedSegment, *, before: int) -> ArchivedSegment:
    """A segment without its producer snapshot, if that is of an offset below `before`.

    Source: org.apache.kafka.storage.internals.log.ProducerStateManager.deleteSnapshotsBefore.
    """
    if segment.base_offset >= before:
        return segment
    kept = [each for each in segment.files if not each.name.endswith(PRODUCER_SNAPSHOT_SUFFIX)]
    return replace(segment, files=tuple(kept))


def _known(first_batch_timestamp: int) -> int:
    """The timestamp of a first batch as a segment that is opened has it."""
    return first_batch_timestamp if first_batch_timestamp >= 0 else LONG_MAX
