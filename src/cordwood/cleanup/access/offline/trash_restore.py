"""Puts back into a stopped log what a cleaning has moved to a trash: the newest removal first.

A removal is undone only on what it has left: so the log is as it was before, except for what
was appended since. Retention is undone in these steps:

1. The leader epochs and the line of the log start offset are those before.
2. Segments come back, the newest first: copies of their indexes, then the log, by a rename.
   *After a crash* the log is whole, and begins at the oldest segment that is back.
3. The empty segment that a removal of all segments has made is removed.

Compaction is undone in Kafka's own steps for a replacement, the other way round:

1. The cleaner checkpoint is that before. *After a crash* the log is compacted again.
2. Copies of the sources get the suffix `.cleaned`, then `.swap`, the oldest last.
   *After a crash:* while a `.cleaned` file is left, the rewritten segments win.
3. The rewritten segments become `.deleted`, and the sources take their names.
   *After a crash:* the `.swap` files win.

Files leave the trash, and the note of the removal goes, only when all of this lasts: after a crash
at any step the same command finishes, also if a Kafka has run in between.
"""

from __future__ import annotations

from collections.abc import Container, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from cordwood.cleanup.access.offline.log_directory import OfflineLogDirectory, require_closed
from cordwood.format.file_names import (
    CLEANED_SUFFIX,
    INDEX_SUFFIX,
    LEADER_EPOCH_CHECKPOINT,
    LOG_SUFFIX,
    PRODUCER_SNAPSHOT_SUFFIX,
    SWAP_SUFFIX,
    TIME_INDEX_SUFFIX,
    base_offset_of,
    is_log_file,
    segment_file_name,
)
from cordwood.format.leader_epoch_checkpoint import (
    build_leader_epoch_checkpoint,
    parse_leader_epoch_checkpoint,
)
from cordwood.format.trash_notes import Removal, Rewritten, TrashedFile
from cordwood.model.errors import CordwoodError
from cordwood.model.topic_partition import TopicPartition
from cordwood.storage.filesystem import OS
from cordwood.storage.replace import (
    SEGMENT_SUFFIXES,
    dispose_deleted,
    mark_deleted,
    recover_directory,
)
from cordwood.storage.trash import TrashedPartition, copy_file, crc_of, move_file, topic_id_of

Facts = tuple[int, int]
"""The bytes of a segment's log, and when it was modified (ns)."""
Segments = dict[int, Facts]
"""Segments by base offset, ascending."""


class NotRestorableError(CordwoodError):
    """A removal that cannot be undone; nothing of it was."""


@dataclass(slots=True)
class Restored:
    """Removals that were, or would be, undone, newest first; `refused` says why no more are."""

    topic_partition: TopicPartition
    log_dir: Path
    removals: list[Removal] = field(default_factory=list)
    refused: str | None = None


def restore(
    trashed: TrashedPartition,
    log_dir: OfflineLogDirectory,
    *,
    since_ms: int = 0,
    dry_run: bool = False,
) -> Restored:
    """Undoes the removals of a partition since a moment, as far as that is possible.

    Args:
        trashed: what the trash has of the partition.
        log_dir: locked, unless it is a dry run; has the partition's directory.
        since_ms: older removals stay as they are.
        dry_run: only look.

    Raises:
        CorruptError: a file cannot be understood.
        DirectoryInUseError: a process has the partition open.
        OSError, NoSpaceError: a file could not be read or written; run it again.
    """
    log = _StoppedLog(trashed, log_dir)
    found = Restored(trashed.topic_partition, log_dir.path)
    if not dry_run:
        require_closed(log.directory)
        recover_directory(log.directory, dispose=trashed.dispose)
    state = log.segments()
    for removal in reversed(trashed.removals()):
        if removal.at_ms < since_ms:
            break
        try:
            state = log.require_undoable(removal, state)
        except NotRestorableError as error:
            found.refused = str(error)
            break
        if not dry_run:
            log.undo(removal)
        found.removals.append(removal)
    return found


class _StoppedLog:
    """A partition's directory, and what the trash has of it."""

    def __init__(self, trashed: TrashedPartition, log_dir: OfflineLogDirectory) -> None:
        self._trashed = trashed
        self._log_dir = log_dir
        self._partition = trashed.topic_partition
        self.directory = log_dir.path / str(trashed.topic_partition)

    def segments(self) -> Segments:
        """The segments there are, by base offset, ascending."""
        names = [name for name in OS.names_in(self.directory) if is_log_file(name)]
        return {base_offset_of(name): _facts(self.directory / name) for name in names}

    # ---- checks

    def require_undoable(self, removal: Removal, state: Segments) -> Segments:
        """The segments after the removal is undone, of those before.

        Raises:
            NotRestorableError: the log is not what the removal has left.
        """
        if removal.topic_id != topic_id_of(self.directory):
            raise NotRestorableError(
                f"the topic was made again since: its id was {removal.topic_id}"
            )
        logs = {
            base_offset_of(each.name): (each.size_bytes, each.modified_ns)
            for each in removal.files
            if each.name.endswith(LOG_SUFFIX)
        }
        if not removal.rewritten:
            rest = _without_rolled(removal, {b: f for b, f in state.items() if logs.get(b) != f})
            self._require_stored(removal, logs.keys() - state.keys())
        elif self._has_rewritten(removal.rewritten, removal.end_offset, state):
            gone = {each.base_offset for each in removal.rewritten}
            rest = {base: facts for base, facts in state.items() if base not in gone}
            self._require_stored(removal, logs)
        elif all(state.get(base) == facts for base, facts in logs.items()):
            rest = state  # a restoration was interrupted at its end
        else:
            raise NotRestorableError(
                f"the segment at offset {removal.rewritten[0].base_offset}, which took the place "
                "of what was compacted, has changed or gone since"
            )
        return dict(sorted((rest | logs).items()))

    def _has_rewritten(self, new: Sequence[Rewritten], end_offset: int, state: Segments) -> bool:
        """Whether the rewritten segments are as written, and alone in their range of offsets."""
        first = new[0].base_offset
        within = {base: facts for base, facts in state.items() if first <= base < end_offset}
        if within != {each.base_offset: (each.size_bytes, each.modified_ns) for each in new}:
            return False
        return all(map(self._is_as_written, new))

    def _is_as_written(self, new: Rewritten) -> bool:
        path = self.directory / segment_file_name(new.base_offset, LOG_SUFFIX)
        # In a dry run it may still be in the trash, where a newer removal has put it.
        facts = (new.size_bytes, new.modified_ns)
        return not OS.exists(path) or _facts(path) != facts or crc_of(path) == new.crc

    def _require_stored(self, removal: Removal, bases: Container[int]) -> None:
        """Requires that the trash has the log file of each segment that the log lacks."""
        for each in removal.files:
            path = self._trashed.directory / each.stored
            is_wanted = each.name.endswith(LOG_SUFFIX) and base_offset_of(each.name) in bases
            if is_wanted and not _is_file(path, each):
                raise NotRestorableError(f"{path} is missing, or is not the file that was removed")

    # ---- changes

    def undo(self, removal: Removal) -> None:
        """Undoes a removal that can be, and forgets it."""
        if not removal.rewritten:
            self._undo_deletion(removal)
        else:
            self._undo_compaction(removal)
        self._trashed.forget(removal)

    def _undo_deletion(self, removal: Removal) -> None:
        self._write_epochs(removal)
        start = removal.log_start_offset
        is_inside = start > removal.segments[0]
        self._log_dir.set_log_start(self._partition, start if is_inside else None)
        for base in reversed(removal.segments):
            files = _files_of(removal, base)
            log, *others = files
            if self._is_stored(log):
                self._copy(others)
                move_file(self._trashed.directory / log.stored, self.directory / log.name)
                OS.sync_directory(self.directory)
        if removal.rolled is not None and not self._size_of(removal.rolled):
            for suffix in (LOG_SUFFIX, TIME_INDEX_SUFFIX, INDEX_SUFFIX):
                OS.remove(self.directory / segment_file_name(removal.rolled, suffix))
            OS.sync_directory(self.directory)

    def _size_of(self, base: int) -> int:
        path = self.directory / segment_file_name(base, LOG_SUFFIX)
        return OS.facts_of(path).size_bytes if OS.exists(path) else 0

    def _copy(self, files: Sequence[TrashedFile], suffix: str = "") -> list[TrashedFile]:
        """Copies files of one segment, without its indexes if one of them is missing.

        A loader then builds all of them again. They are lost where the process of a cleaning was
        killed while it removed a segment.
        """
        indexes = [each for each in files if each.name.endswith(SEGMENT_SUFFIXES[1:])]
        is_whole = all(self._is_stored(each) for each in indexes)
        copied = [
            each for each in files if self._is_stored(each) and (is_whole or each not in indexes)
        ]
        for each in copied:
            copy_file(self._trashed.directory / each.stored, self.directory / (each.name + suffix))
        return copied

    def _is_stored(self, file: TrashedFile) -> bool:
        return _is_file(self._trashed.directory / file.stored, file)

    def _write_epochs(self, removal: Removal) -> None:
        """The epochs before the removal, and those that have begun since."""
        path = self.directory / LEADER_EPOCH_CHECKPOINT
        now = parse_leader_epoch_checkpoint(OS.read_bytes(path)) if OS.exists(path) else []
        newest = removal.leader_epochs[-1][0] if removal.leader_epochs else -1
        wanted = [*removal.leader_epochs, *(each for each in now if each[0] > newest)]
        if wanted != now:
            OS.replace_durably(path, build_leader_epoch_checkpoint(wanted))

    def _undo_compaction(self, removal: Removal) -> None:
        self._log_dir.set_cleaner_offset(self._partition, removal.cleaner_checkpoint)
        if self._has_rewritten(removal.rewritten, removal.end_offset, self.segments()):
            self._swap(removal)
        snapshots = [f for f in removal.files if f.name.endswith(PRODUCER_SNAPSHOT_SUFFIX)]
        self._copy(snapshots)
        OS.sync_directory(self.directory)

    def _swap(self, removal: Removal) -> None:
        names: dict[int, list[str]] = {}
        for base in removal.segments:
            files = [f for f in _files_of(removal, base) if f.name.endswith(SEGMENT_SUFFIXES)]
            names[base] = [each.name for each in self._copy(files, CLEANED_SUFFIX)]
        OS.sync_directory(self.directory)
        for name in [name for base in reversed(removal.segments) for name in names[base]]:
            self._rename(name + CLEANED_SUFFIX, name + SWAP_SUFFIX)
        OS.sync_directory(self.directory)
        gone = [each.base_offset for each in removal.rewritten]
        mark_deleted(self.directory, gone, keep_snapshots=gone)
        for name in [name for base in removal.segments for name in names[base]]:
            self._rename(name + SWAP_SUFFIX, name)
        OS.sync_directory(self.directory)
        dispose_deleted(self.directory)

    def _rename(self, name: str, target: str) -> None:
        OS.rename(self.directory / name, self.directory / target)


def _without_rolled(removal: Removal, rest: Segments) -> Segments:
    """The segments behind removed ones, without the empty one that was made where all went.

    Raises:
        NotRestorableError: something else follows.
    """
    if removal.rolled is not None and [*rest] == [removal.rolled] and not rest[removal.rolled][0]:
        return {}
    first = min(rest, default=removal.end_offset)
    if first > removal.end_offset:
        raise NotRestorableError(
            f"the log begins at offset {first} by now, and what was removed ends at "
            f"{removal.end_offset}: what is between them is lost"
        )
    if first < removal.end_offset:
        raise NotRestorableError(
            f"the log has other segments below offset {removal.end_offset} again, from {first} on"
        )
    return rest


def _files_of(removal: Removal, base: int) -> list[TrashedFile]:
    """The files of a segment, the log first."""
    files = [each for each in removal.files if base_offset_of(each.name) == base]
    return sorted(files, key=lambda each: not each.name.endswith(LOG_SUFFIX))


def _facts(path: Path) -> Facts:
    facts = OS.facts_of(path)
    return facts.size_bytes, facts.modified_ns


def _is_file(path: Path, expected: TrashedFile) -> bool:
    return OS.exists(path) and _facts(path) == (expected.size_bytes, expected.modified_ns)
