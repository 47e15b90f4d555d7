"""The leader epochs of a log: where each begins, in memory and in `leader-epoch-checkpoint`.

Readers need no lock: the entries are a tuple that is replaced as a whole. Changes wait for each
other.

What a crash leaves is the file before a change or after it. A new epoch is in the file before
anything is appended with it; entries that were cut off may come back, and are cut off again by the
loader, which knows where the log begins and ends.

Source: org.apache.kafka.storage.internals.epoch.LeaderEpochFileCache.
"""

from __future__ import annotations

import logging
import threading
from bisect import bisect_right
from collections.abc import Callable
from contextlib import suppress
from itertools import pairwise
from operator import attrgetter
from pathlib import Path
from typing import NamedTuple

from cordwood.format.leader_epoch_checkpoint import (
    build_leader_epoch_checkpoint,
    parse_leader_epoch_checkpoint,
)
from cordwood.model.errors import CorruptError
from cordwood.storage.filesystem import OS, FileSystem

_log = logging.getLogger(__name__)

UNDEFINED_EPOCH = -1
UNDEFINED_EPOCH_OFFSET = -1


class EpochEntry(NamedTuple):
    """A leader epoch and the offset at which it begins, inclusive."""

    epoch: int
    start_offset: int

    def __str__(self) -> str:
        return f"EpochEntry(epoch={self.epoch}, startOffset={self.start_offset})"


class EpochEndOffset(NamedTuple):
    """A leader epoch and the offset at which it ends, exclusive; both -1 when undefined."""

    epoch: int
    end_offset: int


_UNDEFINED = EpochEndOffset(UNDEFINED_EPOCH, UNDEFINED_EPOCH_OFFSET)
_EPOCH = attrgetter("epoch")
_START_OFFSET = attrgetter("start_offset")


class LeaderEpochCache:
    """The epochs of one log.

    Invariant: epochs and start offsets both ascend, strictly.
    """

    __slots__ = ("_entries", "_fs", "_is_dirty", "_lock", "_path", "_warn")

    def __init__(
        self,
        path: Path,
        *,
        fs: FileSystem = OS,
        on_warning: Callable[[str], None] = _log.warning,
    ) -> None:
        """Reads the checkpoint, or makes an empty one where there is none.

        Args:
            path: of the checkpoint.
            fs: where it lies.
            on_warning: called for entries that contradict each other.

        Raises:
            CorruptError: the file cannot be read as one.
        """
        self._path = path
        self._fs = fs
        self._warn = on_warning
        self._lock = threading.RLock()
        self._entries: tuple[EpochEntry, ...] = ()
        self._is_dirty = False
        try:
            data = fs.read_bytes(path)
        except FileNotFoundError:
            fs.create(path).close()
            return
        try:
            for epoch, start_offset in parse_leader_epoch_checkpoint(data):
                self._entries = self._with(_require_sound(EpochEntry(epoch, start_offset)))
        except CorruptError as error:
            raise error.located(path=str(path)) from error

    def check_invariants(self) -> None:
        """Asserts that epochs and start offsets ascend."""
        for one, other in pairwise(self._entries):
            assert one.epoch < other.epoch, f"{self._path}: {one}, {other}"
            assert one.start_offset < other.start_offset, f"{self._path}: {one}, {other}"

    # ---- looking

    @property
    def path(self) -> Path:
        """The checkpoint."""
        return self._path

    @property
    def epoch_entries(self) -> tuple[EpochEntry, ...]:
        """All entries, ascending."""
        return self._entries

    @property
    def non_empty(self) -> bool:
        """Whether any epoch is known."""
        return bool(self._entries)

    @property
    def latest_epoch(self) -> int | None:
        """The newest epoch that records were, or are to be, appended with."""
        entries = self._entries
        return entries[-1].epoch if entries else None

    @property
    def latest_entry(self) -> EpochEntry | None:
        """The entry of the newest epoch."""
        entries = self._entries
        return entries[-1] if entries else None

    @property
    def earliest_entry(self) -> EpochEntry | None:
        """The entry of the oldest epoch."""
        entries = self._entries
        return entries[0] if entries else None

    @property
    def previous_epoch(self) -> int | None:
        """The epoch before the newest."""
        entries = self._entries
        return entries[-2].epoch if len(entries) > 1 else None

    def epoch_for_offset(self, offset: int) -> int | None:
        """The epoch that `offset` belongs to; None below the first entry."""
        entries = self._entries
        at = bisect_right(entries, offset, key=_START_OFFSET)
        return entries[at - 1].epoch if at else None

    def end_offset_for(self, epoch: int, log_end_offset: int) -> EpochEndOffset:
        """The newest epoch up to `epoch`, and where it ends.

        The newest of all ends at the log's end. An epoch older than all that are known ends where
        they begin. One that is newer is undefined, as is every epoch when none is known.

        Source: LeaderEpochFileCache.endOffsetFor.
        """
        entries = self._entries
        if epoch == UNDEFINED_EPOCH or not entries or epoch > entries[-1].epoch:
            return _UNDEFINED
        if epoch == entries[-1].epoch:
            return EpochEndOffset(epoch, log_end_offset)
        at = bisect_right(entries, epoch, key=_EPOCH)
        found = entries[at - 1].epoch if at else epoch
        return EpochEndOffset(found, entries[at].start_offset)

    # ---- changing

    def assign(self, epoch: int, start_offset: int, *, durably: bool = True) -> bool:
        """Notes that `epoch` begins at `start_offset`; whether that was news.

        Nothing changes when it is the newest epoch and begins at or before that. Entries that are
        not below it in both epoch and offset are replaced by it.

        Args:
            epoch: the epoch.
            start_offset: of its first record.
            durably: write the file now; else `flush` does.

        Raises:
            CorruptError: one of the two is negative.
            OSError: the file could not be written; nothing changed.
        """
        entry = _require_sound(EpochEntry(epoch, start_offset))
        if not self._is_news(entry):
            return False
        with self._lock:
            if not self._is_news(entry):
                return False
            entries = self._with(entry)
            if durably:
                self._write(entries)
            else:
                self._is_dirty = True
            self._entries = entries
            return True

    def truncate_from_end(self, end_offset: int, *, durably: bool = True) -> None:
        """Drops epochs that begin at `end_offset` or behind it; a negative one drops nothing.

        Args:
            end_offset: the log's new end.
            durably: write the file now; else `flush` does.
        """
        with self._lock:
            if end_offset >= 0:
                at = bisect_right(self._entries, end_offset - 1, key=_START_OFFSET)
                self._change(self._entries[:at], durably=durably)

    def truncate_from_start(self, start_offset: int, *, durably: bool = True) -> None:
        """Drops epochs that end before `start_offset`; the one that holds it begins there.

        Args:
            start_offset: the log's new start; an entry exactly there stays.
            durably: write the file now; else `flush` does.
        """
        with self._lock:
            at = bisect_right(self._entries, start_offset, key=_START_OFFSET)
            if at:
                first = EpochEntry(self._entries[at - 1].epoch, start_offset)
                self._change((first, *self._entries[at:]), durably=durably)

    def clear(self) -> None:
        """Drops every epoch, in memory alone; the file is of no use any more."""
        with self._lock:
            self._entries = ()

    def clear_and_flush(self) -> None:
        """Drops every epoch, on disk too."""
        with self._lock:
            self._entries = ()
            self._is_dirty = True
            self._write(())

    def flush(self) -> None:
        """Writes what was changed and not yet written; nothing where the directory is gone."""
        if not self._is_dirty:
            return
        with self._lock:
            if self._is_dirty:
                with suppress(FileNotFoundError):
                    self._write(self._entries)

    def move_to(self, directory: Path) -> None:
        """The log's directory has another name now."""
        with self._lock:
            self._path = directory / self._path.name

    def _is_news(self, entry: EpochEntry) -> bool:
        latest = self.latest_entry
        return (
            latest is None
            or entry.epoch != latest.epoch
            or entry.start_offset < latest.start_offset
        )

    def _with(self, entry: EpochEntry) -> tuple[EpochEntry, ...]:
        """The entries below `entry`, and `entry`."""
        kept = self._entries
        while kept and (
            kept[-1].epoch >= entry.epoch or kept[-1].start_offset >= entry.start_offset
        ):
            kept = kept[:-1]
        removed = self._entries[len(kept) :]
        # An epoch that began where the new one does had no records: it is removed silently.
        if len(removed) > 1 or (removed and removed[0].start_offset != entry.start_offset):
            self._warn(
                f"New epoch entry {entry} caused truncation of conflicting entries "
                f"[{', '.join(map(str, reversed(removed)))}]. "
                f"Cache now contains {len(kept)} entries."
            )
        return (*kept, entry)

    def _change(self, entries: tuple[EpochEntry, ...], *, durably: bool) -> None:
        if entries != self._entries:
            self._entries = entries
            self._is_dirty = True
            if durably:
                self._write(entries)

    def _write(self, entries: tuple[EpochEntry, ...]) -> None:
        self._fs.replace_durably(self._path, build_leader_epoch_checkpoint(entries))
        self._is_dirty = False


def _require_sound(entry: EpochEntry) -> EpochEntry:
    if entry.epoch < 0 or entry.start_offset < 0:
        raise CorruptError(f"Received invalid partition leader epoch entry {entry}")
    return entry
