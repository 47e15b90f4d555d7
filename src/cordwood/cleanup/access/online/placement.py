"""Commits rewritten groups to a running log, in parallel with appends and reads.

There is no journal: after a crash the loader finishes or undoes the group it finds half done, by
Kafka's own rules, and the next compaction begins at the cleaner's checkpoint again.

Source: org.apache.kafka.storage.internals.log.Cleaner.cleanSegments, UnifiedLog.replaceSegments.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence

from cordwood.cleanup.access.commit import StalePlanError, staged_segments
from cordwood.cleanup.access.removal_audit import audit_group
from cordwood.cleanup.plan.compaction_values import Manifest
from cordwood.cleanup.plan.log_compaction import LogCompaction
from cordwood.cleanup.plan.outcome import Committed, Outcome, Rejected
from cordwood.model.errors import CordwoodError
from cordwood.storage.log.partition_log import PartitionLog
from cordwood.storage.log.segment_removal import (
    Replacement,
    is_trashed,
    replace_segments,
    trash_path,
)
from cordwood.storage.replace import StagedSegment
from cordwood.storage.segment.log_segment import LogSegment
from cordwood.storage.trash import rewritten_of

_log = logging.getLogger(__name__)


class OnlinePlacement:
    """A `Placement` in a running log."""

    def __init__(
        self,
        log: PartitionLog,
        sources: Sequence[LogSegment],
        *,
        truncation_count: int,
        require_wanted: Callable[[], None],
        require_allowed: Callable[[], None],
        remove_deleted: Callable[[], object],
        prefix: str,
    ) -> None:
        """Prepares for one compaction, or erasure.

        Args:
            log: that is cleaned.
            sources: the segments that the compaction was planned on.
            truncation_count: the log's at that moment; another says that it was cut off since.
            require_wanted: raises if the compaction must not continue.
            require_allowed: called with the log's lock held, before a group takes the place of its
                sources: a hold that was added is in force when its command returns.
            remove_deleted: removes the files at once that wait for their removal.
            prefix: of what is logged.
        """
        self._log = log
        self._sources = {segment.base_offset: segment for segment in sources}
        self._truncation_count = truncation_count
        self._require_wanted = require_wanted
        self._require_allowed = require_allowed
        self._remove_deleted = remove_deleted
        self._prefix = prefix

    def require_wanted(self) -> None:
        """Raises if the cleaning was aborted."""
        self._require_wanted()

    def place(self, compaction: LogCompaction, number: int, manifest: Manifest) -> Outcome:
        """Replaces segments by a group; one of which retention has taken every source is dropped.

        It is rejected if the log was cut off since the compaction was planned, if a source is
        another segment than the one that was rewritten, if the log was closed, and if the trash
        refuses what the group replaces. Of what an erasure replaces nothing goes to a trash, or
        waits for its removal.
        """
        is_erasure, trashed = compaction.erased is not None, None
        try:
            if is_erasure:
                self._remove_deleted()
            else:
                self._tell(compaction, compaction.groups[number])
                trashed = self._trashed(compaction, staged_segments(compaction, manifest))
        except (OSError, CordwoodError) as error:
            return Rejected(error)
        try:
            is_placed = self._place(compaction, number, manifest, trashed)
        except (OSError, CordwoodError) as error:
            if _is_of_file(error):
                raise
            return Rejected(error)
        if is_erasure:
            self._remove_deleted()
        elif is_placed:
            self._audit(compaction, number, manifest)
        return Committed()

    def _audit(self, compaction: LogCompaction, number: int, manifest: Manifest) -> None:
        audit_group(
            compaction,
            number,
            manifest,
            partition=self._log.topic_partition,
            log_dir=str(self._log.log_dir),
            config=self._log.config,
            origins=self._log.context.setting_origins(self._log.topic_partition.topic),
            trash=trash_path(self._log),
        )

    def _place(
        self,
        compaction: LogCompaction,
        number: int,
        manifest: Manifest,
        trashed: Replacement | None,
    ) -> bool:
        """Puts a group in place; whether any of its sources was left.

        Raises:
            StalePlanError, TrashError: see `place`; nothing has changed.
            StorageError: as `replace_segments`.
            CordwoodError: the group must not be put in place; nothing has changed.
        """
        group = compaction.groups[number]
        staged = staged_segments(compaction, manifest)
        with self._log.lock:
            self._require_allowed()
            segments = self._log.segments
            left = [base for base in group if segments.contains(base)]
            if self._log.offsets.truncation_count != self._truncation_count or any(
                segments.get(base) is not self._sources[base] for base in left
            ):
                raise StalePlanError(
                    f"{compaction.name}: its segments {list(group)} have changed since the "
                    "compaction was planned"
                )
            old = [self._sources[base] for base in left]
            new: list[LogSegment] = []
            if left:
                new = replace_segments(self._log, staged, left, trashed)
        if not new:
            for each in staged:
                for path in each.paths().values():
                    self._log.context.fs.remove(path)
            return False
        _log.info(
            "%sSwapping in cleaned segment %s for segment(s) %s in log %s",
            self._prefix,
            ", ".join(map(str, new)),
            old,
            self._log,
        )
        return True

    def _trashed(
        self, compaction: LogCompaction, staged: Sequence[StagedSegment]
    ) -> Replacement | None:
        """The note for the trash, read before the log is locked; None if it gets nothing."""
        if not is_trashed(self._log):
            return None
        return Replacement(
            rewritten=rewritten_of(staged, fs=self._log.context.fs),
            cleaner_checkpoint=compaction.first_dirty,
        )

    def _tell(self, compaction: LogCompaction, group: Sequence[int]) -> None:
        """Logs for each source how tombstones of magic 0 and 1 are treated."""
        modified = {s.base_offset: s.modified_ns // 1_000_000 for s in compaction.segments}
        for source in [self._sources[base] for base in group]:
            modified_ms = modified[source.base_offset]
            retains = modified_ms > compaction.rules.legacy_horizon_ms
            _log.info(
                "%sCleaning %s in log %s into %s with an upper bound deletion horizon %s computed "
                "from the segment last modified time of %s,%s deletes.",
                self._prefix,
                source,
                compaction.name,
                group[0],
                compaction.rules.legacy_horizon_ms,
                modified_ms,
                "retaining" if retains else "discarding",
            )

    def end(self) -> None:
        """Does nothing: there is nothing to forget."""


def _is_of_file(error: OSError | CordwoodError) -> bool:
    """Whether a file of the log failed: its directory is offline, and the next loader decides."""
    return isinstance(error, OSError) or isinstance(error.__cause__, OSError)
