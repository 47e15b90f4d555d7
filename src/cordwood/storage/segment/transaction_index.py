"""The transaction index of a segment, live: transactions whose ABORT marker lies in it.

Entries ascend by the marker's offset. Most segments have none, and then no file: the first entry
makes it. Each is written to the file at once, or where the disk is full, when it is flushed: the
marker is in the log already.

Source: org.apache.kafka.storage.internals.log.TransactionIndex.
"""

from __future__ import annotations

import threading
from contextlib import suppress
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

from cordwood.format.transaction_index import (
    ENTRY_BYTES,
    AbortedTransaction,
    build_transaction_index,
    parse_transaction_index,
)
from cordwood.model.errors import CorruptError, NoSpaceError
from cordwood.storage.filesystem import OS, FileSystem


class TxnIndexSearchResult(NamedTuple):
    """The transactions in a range of offsets; `complete` if later segments have no more.

    Source: org.apache.kafka.storage.internals.log.TxnIndexSearchResult.
    """

    transactions: list[AbortedTransaction]
    complete: bool


class TransactionIndex:
    """Aborted transactions of one segment; see the module."""

    __slots__ = (
        "_entries",
        "_exists",
        "_fs",
        "_is_synced",
        "_lock",
        "_saved",
        "base_offset",
        "path",
    )

    def __init__(
        self, path: Path, base_offset: int, *, fs: FileSystem = OS, is_new: bool = False
    ) -> None:
        """Touches no file.

        Args:
            path: the index file, which need not be there.
            base_offset: the segment's.
            fs: the file system.
            is_new: there is no file.
        """
        self.path = path
        self.base_offset = base_offset
        self._fs = fs
        self._lock = threading.Lock()
        self._is_synced = True
        # Once the file has been read: what it holds, and what did not fit. Replaced, not
        # changed, by code that removes entries away.
        self._entries: list[AbortedTransaction] | None = [] if is_new else None
        # Invariant, while entries are there: the first `_saved` of them are in the file.
        self._saved = 0
        # None: nobody has looked.
        self._exists: bool | None = False if is_new else None

    def check_invariants(self) -> None:
        """Asserts that entries in memory ascend by their markers, and begin before these."""
        entries = self._entries or []
        assert self._saved <= len(entries), f"{self.path}: {self._saved} saved of {len(entries)}"
        for entry in entries:
            assert entry.first_offset < entry.last_offset, f"{self.path}: {entry}"
            assert entry.last_offset >= self.base_offset, f"{self.path}: {entry}"
        for one, other in pairwise(entries):
            assert one.last_offset < other.last_offset, f"{self.path}: {one}, {other}"

    @property
    def is_empty(self) -> bool:
        """Whether there is no entry."""
        return not self.all_aborted()

    def all_aborted(self) -> list[AbortedTransaction]:
        """Every entry, in the order of their markers; not to be changed.

        Raises:
            CorruptError: the file does not hold an index.
        """
        entries = self._entries
        if entries is not None:
            return entries
        with self._lock:
            if self._entries is None:
                self._entries = self._read()
            return self._entries

    def collect_aborted(self, fetch_offset: int, upper_bound: int) -> TxnIndexSearchResult:
        """Transactions that overlap offsets from `fetch_offset` to `upper_bound`, exclusive.

        Raises:
            CorruptError: the file does not hold an index.

        Source: TransactionIndex.collectAbortedTxns.
        """
        found: list[AbortedTransaction] = []
        for entry in self.all_aborted():
            if entry.last_offset >= fetch_offset and entry.first_offset < upper_bound:
                found.append(entry)
            if entry.last_stable_offset >= upper_bound:
                return TxnIndexSearchResult(found, complete=True)
        return TxnIndexSearchResult(found, complete=False)

    def append(self, entry: AbortedTransaction) -> None:
        """Adds an entry, in memory and, if there is space, in the file.

        Raises:
            ValueError: its last offset is not larger than that of the last entry.
            OSError: the disk refused; the entry was not added.
        """
        entries = self.all_aborted()
        if entries and entries[-1].last_offset >= entry.last_offset:
            raise ValueError(
                "The last offset of appended transactions must increase sequentially, but "
                f"{entry.last_offset} is not greater than current last offset "
                f"{entries[-1].last_offset} of index {self.path}"
            )
        with self._lock, suppress(NoSpaceError):
            self._write([*entries[self._saved :], entry])
        entries.append(entry)

    def _write(self, entries: list[AbortedTransaction]) -> None:
        """Writes entries behind those the file has; the caller holds the lock."""
        if not entries:
            return
        fs, path = self._fs, self.path
        file = fs.open(path, write=True) if self._exists else fs.create(path)
        self._exists, self._is_synced = True, False
        position = self._saved * ENTRY_BYTES
        try:
            file.write_at([build_transaction_index(entries)], position)
            self._saved += len(entries)
        except (NoSpaceError, OSError):
            with suppress(NoSpaceError, OSError):
                file.truncate(position)
            raise
        finally:
            file.close()

    def _write_rest(self) -> None:
        if self._entries is not None:
            self._write(self._entries[self._saved :])

    def truncate_to(self, offset: int) -> None:
        """Removes entries whose marker lies at or above `offset`."""
        entries = self.all_aborted()
        kept = [entry for entry in entries if entry.last_offset < offset]
        if len(kept) < len(entries):
            self._cut(kept)

    def reset(self) -> None:
        """Removes all entries, also those of a file that is damaged."""
        if self._exists is None:
            self._exists = self._fs.exists(self.path)
        self._cut([])

    def sanity_check(self) -> None:
        """Reads the file, and checks that its entries belong to this segment.

        Raises:
            CorruptError: the file does not hold an index, or one of another segment.
        """
        for entry in self.all_aborted():
            if entry.last_offset < self.base_offset:
                raise CorruptError(
                    f"Last offset of aborted transaction {entry} in index {self.path} is less than "
                    f"start offset {self.base_offset}",
                    path=str(self.path),
                )

    def forget_file(self) -> None:
        """Records that there is no file."""
        self._entries, self._exists, self._saved = [], False, 0

    def flush(self) -> None:
        """Makes entries last; nothing where there is no file.

        Raises:
            NoSpaceError: the file system is full; nothing is lost in memory.
        """
        with self._lock:
            self._write_rest()
            if self._is_synced:
                return
            file = self._fs.open(self.path, write=True)
            try:
                file.sync()
                self._is_synced = True
            except NoSpaceError:
                # Whatever of it is lost is written again: a second sync alone would not do.
                self._saved = 0
                raise
            finally:
                file.close()

    def close(self) -> None:
        """Releases the entries in memory after they are in the file; the index can be used again.

        Raises:
            NoSpaceError: the file system is full; nothing is lost in memory.
        """
        with self._lock:
            self._write_rest()
            self._entries = None

    def close_handlers(self) -> None:
        """Releases the entries in memory without a write, for a disk that has failed."""
        self._entries = None

    def delete_if_exists(self) -> bool:
        """Removes the file; whether there was one."""
        existed = self._fs.exists(self.path)
        self._fs.remove(self.path)
        self._entries, self._exists, self._is_synced, self._saved = [], False, True, 0
        return existed

    def rename_to(self, path: Path) -> bool:
        """Renames the file, also one that is created later; returns whether it existed.

        Raises:
            OSError: it could not be renamed.
        """
        with self._lock:
            try:
                if self._exists is False:
                    return False
                self._fs.rename(self.path, path)
            except FileNotFoundError:
                self._exists = False
                return False
            finally:
                self.path = path
            return True

    def _read(self) -> list[AbortedTransaction]:
        try:
            entries = parse_transaction_index(self._fs.read_bytes(self.path))
        except FileNotFoundError:
            self._exists, self._saved = False, 0
            return []
        except CorruptError as error:
            raise error.located(path=str(self.path)) from error
        self._exists, self._saved = True, len(entries)
        return entries

    def _cut(self, kept: list[AbortedTransaction]) -> None:
        with self._lock:
            self._saved = min(self._saved, len(kept))
            if self._exists:
                file = self._fs.open(self.path, write=True)
                try:
                    self._is_synced = False
                    file.truncate(self._saved * ENTRY_BYTES)
                finally:
                    file.close()
            self._entries = kept
