"""Replaces segments with rewritten ones, so that recovery works at every crash point.

A group of segments is replaced with one segment, or with several where one would be too large.
The steps of one group, and what is found after a crash behind each:

1. The intent is written to the journal, durably. Staged files are complete and on disk.
   *After a crash:* nothing has happened; the staged files are removed, the group is done again.
2. Staged files become `.cleaned`, the `.log` last; then `.cleaned` become `.swap`, those of the
   highest base offset first (KAFKA-6264), and of each segment the `.log` first.
   *After a crash:* while any staged or `.cleaned` file is left, sources win, as in Kafka.
3. Sources become `.deleted`. *After a crash:* all new files are `.swap`; they win, as in Kafka.
4. `.swap` files take their final names, those of the lowest base offset first, and the directory
   is synced. *After a crash:* the rest of the renames is done.
5. `.deleted` files are removed, or moved to the trash.

Kafka itself, started after a crash at any point, ends with the same segments by its own rules; the
journal and staged files have names it ignores. The journal is there so that the next run
continues the compaction, group by group, as the first one had planned it: groups are put in place
in ascending order, so that those left still have all the newer records that supersede theirs.

Source: org.apache.kafka.storage.internals.log.LocalLog.replaceSegments, LogLoader.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Collection, Iterable, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from cordwood.format.file_names import (
    CLEANED_SUFFIX,
    DELETED_SUFFIX,
    INDEX_SUFFIX,
    LOG_SUFFIX,
    PRODUCER_SNAPSHOT_SUFFIX,
    SWAP_SUFFIX,
    TEMPORARY_SUFFIX,
    TIME_INDEX_SUFFIX,
    TXN_INDEX_SUFFIX,
    base_offset_of,
    segment_file_name,
)
from cordwood.model.errors import CorruptError, TrashError
from cordwood.storage.filesystem import OS, FileSystem
from cordwood.storage.reading.batch_heads import iter_heads

_log = logging.getLogger(__name__)

STAGED_SUFFIX = ".staged"
JOURNAL_NAME = "cordwood.round"
_JOURNAL_BEFORE_RENAME = JOURNAL_NAME + TEMPORARY_SUFFIX
_UNDER_WAY = (
    DELETED_SUFFIX,
    CLEANED_SUFFIX,
    SWAP_SUFFIX,
    STAGED_SUFFIX,
    JOURNAL_NAME,
    _JOURNAL_BEFORE_RENAME,
)
SEGMENT_SUFFIXES = (LOG_SUFFIX, INDEX_SUFFIX, TIME_INDEX_SUFFIX, TXN_INDEX_SUFFIX)

#: What becomes of a `.deleted` file; where none is given it is removed.
Dispose = Callable[[Path], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class StagedSegment:
    """File names of a task's rewritten segment, which no other attempt uses."""

    directory: str
    base_offset: int
    token: str

    def at(self, base_offset: int) -> StagedSegment:
        """Another segment of the same group."""
        return replace(self, base_offset=base_offset)

    def paths(self) -> dict[str, Path]:
        """The staged file of each segment suffix."""
        return {
            suffix: Path(self.directory)
            / f"{segment_file_name(self.base_offset, suffix)}.{self.token}{STAGED_SUFFIX}"
            for suffix in SEGMENT_SUFFIXES
        }


class CompactionJournal:
    """The plan of a compaction under way, and how far it has come; one JSON document a line."""

    def __init__(self, directory: Path, *, fs: FileSystem = OS) -> None:
        self.path = directory / JOURNAL_NAME
        self._fs = fs

    def begin(self, plan: dict[str, Any]) -> None:
        """Writes the plan before anything is touched."""
        self._fs.replace_durably(self.path, json.dumps(plan).encode() + b"\n")
        self._fs.take_after_directory(self.path, self.path.parent)

    def intend(self, group: int, token: str, bases: Sequence[int], after: list[Any]) -> None:
        """Records the intent to replace a group with the segments `bases`, staged under `token`."""
        intent = {"group": group, "token": token, "bases": list(bases), "after": after}
        self._fs.append_durably(self.path, json.dumps(intent).encode() + b"\n")

    def keep(self, count: int) -> None:
        """Forgets all intents but the first `count`, and what a crash left of a line."""
        lines = self._fs.read_bytes(self.path).split(b"\n")
        if lines[1 + count :] != [b""]:
            kept = b"\n".join(lines[: 1 + count]) + b"\n"
            self._fs.replace_durably(self.path, kept)

    def end(self) -> None:
        """Forgets the compaction."""
        self._fs.remove(self.path)
        self._fs.sync_directory(self.path.parent)

    def read(self) -> tuple[dict[str, Any], list[dict[str, Any]]] | None:
        """(plan, what was intended so far), or None when no compaction is under way.

        Raises:
            CorruptError: the file is not what `begin` and `intend` write.
        """
        try:
            lines = self._fs.read_bytes(self.path).split(b"\n")
        except FileNotFoundError:
            return None
        try:
            plan = json.loads(lines[0])
            # The last line may be cut off by a crash: then it was not acted upon.
            intents = [json.loads(line) for line in lines[1:-1] if line]
            for number, intent in enumerate(intents):
                if not isinstance(intent["token"], str) or not isinstance(intent["after"], list):
                    raise TypeError(f"{intent!r} is no intent")
                # Before a group could become several segments, it became the one at its base.
                intent.setdefault("bases", plan["groups"][intent["group"]][:1])
                if not isinstance(plan["groups"][intent["group"]][0], int):
                    raise TypeError(f"intent {number} is of a group without an offset")
        except (ValueError, KeyError, TypeError, IndexError) as error:
            raise CorruptError(
                f"not the journal of a compaction ({error}); remove it to have it planned again",
                path=str(self.path),
            ) from error
        return plan, intents


#: Files of one kind of segments that are put in place: (base offset, suffix).
Renamed = list[tuple[int, str]]


def put_in_place(
    staged: Sequence[StagedSegment], sources: Sequence[int], *, fs: FileSystem = OS
) -> None:
    """Steps 2 to 4 for one group; `dispose_deleted` is step 5.

    Args:
        staged: the new segments, ascending; the first has the base offset of the first source.
        sources: base offsets of the segments they replace, ascending.
        fs: where they are.
    """
    first = staged[0]
    assert sources[0] == first.base_offset, f"{first} begins with source {sources[0]}"
    files = swap_in(staged, fs=fs)
    directory = Path(first.directory)
    mark_deleted(directory, sources, keep_snapshots=[s.base_offset for s in staged], fs=fs)
    finish_swap(directory, files, fs=fs)


def swap_in(staged: Sequence[StagedSegment], *, fs: FileSystem = OS) -> Renamed:
    """Step 2: staged files become `.swap`; those there are, in the order of step 4."""
    directory = Path(staged[0].directory)
    files: Renamed = []
    for segment in staged:
        found = [suffix for suffix, path in segment.paths().items() if fs.exists(path)]
        assert LOG_SUFFIX in found, f"no staged log for {segment.base_offset} in {directory}"
        files += [(segment.base_offset, suffix) for suffix in found]
    for base, suffix in reversed(files):
        cleaned = _name(directory, base, suffix + CLEANED_SUFFIX)
        fs.rename(staged[0].at(base).paths()[suffix], cleaned)
    for segment in reversed(staged):
        for base, suffix in files:
            if base == segment.base_offset:
                fs.rename(
                    _name(directory, base, suffix + CLEANED_SUFFIX),
                    _name(directory, base, suffix + SWAP_SUFFIX),
                )
    return files


def undo_swap_in(staged: Sequence[StagedSegment], *, fs: FileSystem = OS) -> None:
    """Removes what `swap_in` has renamed; a loader does so while a `.cleaned` file is left."""
    for step in (SWAP_SUFFIX, CLEANED_SUFFIX):
        for segment in reversed(staged):
            for suffix in SEGMENT_SUFFIXES:
                fs.remove(_name(Path(segment.directory), segment.base_offset, suffix + step))


def finish_swap(directory: Path, files: Renamed, *, fs: FileSystem = OS) -> None:
    """Step 4: `.swap` files take their final names, which last."""
    for base, suffix in files:
        fs.rename(_name(directory, base, suffix + SWAP_SUFFIX), _name(directory, base, suffix))
    fs.sync_directory(directory)


def mark_deleted(
    directory: Path,
    sources: Sequence[int],
    *,
    keep_snapshots: Collection[int] = (),
    fs: FileSystem = OS,
) -> None:
    """Adds the `.deleted` suffix to the files of segments, including producer snapshots.

    The snapshots at `keep_snapshots` stay: segments with these base offsets follow.
    """
    for source in sources:
        suffixes: tuple[str, ...] = SEGMENT_SUFFIXES
        if source not in keep_snapshots:
            suffixes = (*suffixes, PRODUCER_SNAPSHOT_SUFFIX)
        for suffix in suffixes:
            path = _name(directory, source, suffix)
            if fs.exists(path):
                fs.rename(path, path.with_name(path.name + DELETED_SUFFIX))


def dispose_deleted(
    directory: Path, dispose: Dispose | None = None, *, fs: FileSystem = OS
) -> None:
    """Disposes of every `.deleted` file; one that a crash brings back is disposed of again."""
    for name in fs.names_in(directory):
        if name.endswith(DELETED_SUFFIX):
            (dispose or fs.remove)(directory / name)


@dataclass(frozen=True, slots=True, kw_only=True)
class Recovered:
    """The result of `recover_directory`: an unfinished compaction, if any, and its finished groups.

    `after` is what was recorded with the last group done.
    """

    plan: dict[str, Any] | None
    groups_done: int
    after: list[Any] | None
    changes: tuple[str, ...]


def is_recovery_needed(names: Iterable[str]) -> bool:
    """Whether files of a partition's directory are left by an unfinished compaction or deletion."""
    return any(name.endswith(_UNDER_WAY) for name in names)


def recover_directory(
    directory: Path, *, dispose: Dispose | None = None, fs: FileSystem = OS
) -> Recovered:
    """Finishes or undoes what a crash left half done, as Kafka's own loader would.

    Raises:
        CorruptError: the compaction's journal cannot be read, or a file's name is no offset.

    Source: LogLoader.removeTempFilesAndCollectSwapFiles.
    """
    journal = CompactionJournal(directory, fs=fs)
    found = journal.read()
    names = fs.names_in(directory)
    swaps = [name for name in names if name.endswith(SWAP_SUFFIX)]
    undone = [name for name in names if name.endswith((STAGED_SUFFIX, CLEANED_SUFFIX))]
    changes: list[str] = []
    done: list[dict[str, Any]] = []
    if found is not None:
        plan, intents = found
        done = _groups_done(plan, intents, undone)
        # First, because without its files it could no longer be distinguished from a finished one.
        journal.keep(len(done))
        if done and len(done) == len(intents):
            group = plan["groups"][done[-1]["group"]]
            # The first log takes its final name first: once that is done, the sources are gone.
            if segment_file_name(group[0], LOG_SUFFIX + SWAP_SUFFIX) in swaps:
                mark_deleted(directory, group, keep_snapshots=done[-1]["bases"], fs=fs)
    cleaned_bases = [base_offset_of(name) for name in undone if name.endswith(CLEANED_SUFFIX)]
    # A swap that is undone goes before the files that say so.
    invalid = [
        name for name in swaps if cleaned_bases and base_offset_of(name) >= min(cleaned_bases)
    ]
    unwritten = [name for name in names if name == _JOURNAL_BEFORE_RENAME]
    for name in [*invalid, *undone, *unwritten]:
        fs.remove(directory / name)
        changes.append(f"removed {name}")
    swaps = [name for name in swaps if name not in invalid]
    if swaps and found is None:
        _remove_replaced(directory, swaps, names, fs)
    for name in sorted(swaps, key=_order_of_names):
        fs.rename(directory / name, directory / name.removesuffix(SWAP_SUFFIX))
        changes.append(f"finished {name}")
    if changes:
        fs.sync_directory(directory)
    dispose_deleted(directory, dispose, fs=fs)
    return Recovered(
        plan=found[0] if found else None,
        groups_done=done[-1]["group"] + 1 if done else 0,
        after=done[-1]["after"] if done else None,
        changes=tuple(changes),
    )


def remove_leftovers(directory: Path, *, dispose: Dispose, fs: FileSystem) -> list[str]:
    """Removes `.deleted` files, finishes or undoes swaps; the names that are left.

    Args:
        directory: a partition's.
        dispose: removes a `.deleted` file, or moves it to the trash.
        fs: the file system.

    Source: LogLoader.removeTempFilesAndCollectSwapFiles, and the renaming of swap files.
    """

    def remove(path: Path) -> None:
        try:
            dispose(path)
        except TrashError as error:
            _log.warning("%s; it is tried again", error)

    names = fs.names_in(directory)
    if not is_recovery_needed(names):
        return names
    try:
        recover_directory(directory, dispose=remove, fs=fs)
    except CorruptError as error:  # the journal of a clean: without it, Kafka's own rules do
        _log.warning("%s; it is dropped", error)
        CompactionJournal(directory, fs=fs).end()
        recover_directory(directory, dispose=remove, fs=fs)
    if JOURNAL_NAME in names:
        # The log continues from here: the rest of the compaction is planned again, for this log.
        CompactionJournal(directory, fs=fs).end()
    return fs.names_in(directory)


def _groups_done(
    plan: dict[str, Any], intents: list[dict[str, Any]], undone: Sequence[str]
) -> list[dict[str, Any]]:
    """The intents that were carried out, counting one whose swap is to be finished.

    A group counts as not done while any file of it still has the name of a step before the swap.
    """
    if not intents:
        return []
    staged = f".{intents[-1]['token']}{STAGED_SUFFIX}"
    bases = intents[-1]["bases"]
    for name in undone:
        if name.endswith(CLEANED_SUFFIX) and base_offset_of(name) in bases:
            return intents[:-1]
        if name.endswith(staged) and ".manifest." not in name:
            return intents[:-1]
    return intents


def _order_of_names(swap: str) -> tuple[str, bool]:
    """The order in which step 4 gives `.swap` files their names."""
    return swap.partition(".")[0], not swap.endswith(LOG_SUFFIX + SWAP_SUFFIX)


def _remove_replaced(
    directory: Path, swaps: Sequence[str], names: Sequence[str], fs: FileSystem
) -> None:
    """Removes the sources of a swap that another program had begun."""
    logs = [name for name in swaps if name.endswith(LOG_SUFFIX + SWAP_SUFFIX)]
    if not logs:
        return
    first = min(base_offset_of(name) for name in logs)
    end = max(_next_offset_of(directory / name, fs) for name in logs)
    for name in names:
        path = directory / name
        if name.endswith(SWAP_SUFFIX) or not fs.exists(path):
            continue
        try:
            if first <= base_offset_of(name) < end:
                fs.remove(path)
        except CorruptError:  # a file that is no segment's
            continue


def _next_offset_of(log: Path, fs: FileSystem) -> int:
    """The offset after the last batch of a log file, its base offset when it is empty."""
    next_offset = base_offset_of(log.name)
    with closing(fs.open(log)) as file:
        for head in iter_heads(file, 0, file.size(), path=log, is_strict=False):
            next_offset = head.last_offset + 1
    return next_offset


def _name(directory: Path, base_offset: int, suffix: str) -> Path:
    return directory / segment_file_name(base_offset, suffix)
