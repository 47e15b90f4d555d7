"""The three indexes of a segment as files: created, written, renamed and removed together.

Source: org.apache.kafka.storage.internals.log.LogSegment.
"""

from __future__ import annotations

from pathlib import Path

from cordwood.configs.log_config import LogConfig
from cordwood.format.file_names import (
    INDEX_SUFFIX,
    TIME_INDEX_SUFFIX,
    TXN_INDEX_SUFFIX,
    segment_file_name,
)
from cordwood.storage.segment.offset_index import OffsetIndex
from cordwood.storage.segment.resources import ResourceCache
from cordwood.storage.segment.time_index import TimeIndex
from cordwood.storage.segment.transaction_index import TransactionIndex


class IndexFiles:
    """The indexes of one segment: `offsets`, `times` and `transactions`."""

    __slots__ = ("_fs", "_index_bytes_max", "offsets", "times", "transactions")

    def __init__(
        self,
        directory: Path,
        base_offset: int,
        *,
        config: LogConfig,
        resources: ResourceCache,
        is_new: bool,
    ) -> None:
        """Reads nothing yet; with `is_new` they are empty, whatever the files hold."""
        self._fs = resources.fs
        self._index_bytes_max = config.segment_index_bytes
        self.offsets = OffsetIndex(
            directory / segment_file_name(base_offset, INDEX_SUFFIX),
            base_offset,
            max_index_bytes=config.segment_index_bytes,
            fs=resources.fs,
            cache=resources,
            is_new=is_new,
        )
        self.times = TimeIndex(
            directory / segment_file_name(base_offset, TIME_INDEX_SUFFIX),
            base_offset,
            max_index_bytes=config.segment_index_bytes,
            fs=resources.fs,
            cache=resources,
            is_new=is_new,
        )
        self.transactions = TransactionIndex(
            directory / segment_file_name(base_offset, TXN_INDEX_SUFFIX),
            base_offset,
            fs=resources.fs,
            is_new=is_new,
        )
        # No other file takes the space for an index, so a whole one always fits.
        self.resize()

    @property
    def is_full(self) -> bool:
        """Whether one of them has no space for another entry."""
        return self.offsets.is_full or self.times.is_full

    def create(self) -> None:
        """Creates the files of both indexes, empty, and removes that of aborted transactions.

        Raises:
            NoSpaceError, OSError: one cannot be made; `remove` removes what was made.
        """
        self._fs.remove(self.transactions.path)
        self.offsets.create_file()
        self.times.create_file()

    def remove(self) -> None:
        """Removes the files of both indexes of a segment that could not be made."""
        self._fs.remove(self.offsets.path)
        self._fs.remove(self.times.path)

    def delete_if_exists(self) -> list[OSError]:
        """Removes all files; the errors of those that could not be removed."""
        errors = []
        for index in self._all():
            try:
                index.delete_if_exists()
            except OSError as error:
                errors.append(error)
        return errors

    def change_suffix(self, old: str, new: str) -> list[Path]:
        """Renames the files from one suffix to another; the new paths of those there."""
        return [
            index.path
            for index in self._all()
            if index.rename_to(index.path.with_name(index.path.name.removesuffix(old) + new))
        ]

    def move_to(self, directory: Path) -> None:
        """Updates the paths after the directory was renamed."""
        for index in self._all():
            index.path = directory / index.path.name

    def _all(self) -> tuple[OffsetIndex, TimeIndex, TransactionIndex]:
        return self.offsets, self.times, self.transactions

    def sanity_check(
        self,
        *,
        time_index_newly_created: bool = False,
        has_transaction_index: bool | None = None,
    ) -> None:
        """Checks for a loader: the offset index exists, the transaction index is complete.

        Args:
            time_index_newly_created: there is no time index; an empty one is made.
            has_transaction_index: whether there is one; None has it looked for.

        Raises:
            FileNotFoundError: there is no offset index.
            CorruptError: the transaction index is damaged.
        """
        path = self.offsets.path
        if not self._fs.exists(path):
            raise FileNotFoundError(f"Offset index file {path} does not exist")
        if time_index_newly_created:
            self.times.truncate()
            self.times.trim()
            self.resize()
        if has_transaction_index is False:
            self.transactions.forget_file()
        else:
            self.transactions.sanity_check()

    def resize(self, size_bytes: int | None = None) -> None:
        """Sets the maximum size of each index, segment.index.bytes if None.

        No entry is removed, and nothing is read.
        """
        size = self._index_bytes_max if size_bytes is None else size_bytes
        self.offsets.resize(size)
        self.times.resize(size)

    def flush(self) -> None:
        """Returns when the indexes are on disk.

        Raises:
            NoSpaceError: the file system has no space for them.
            OSError: the disk refused.
        """
        self.offsets.flush()
        self.times.flush()
        self.transactions.flush()

    def trim(self) -> None:
        """Leaves the files of both indexes as long as their entries."""
        self.offsets.trim()
        self.times.trim()

    def close_handlers(self) -> None:
        """Releases all files without a write, for a disk that has failed."""
        for index in self._all():
            index.close_handlers()

    def reset(self, *, resets_transactions: bool) -> None:
        """Empties them before a recovery; the caller has the lock."""
        self.offsets.reset()
        self.times.reset()
        if resets_transactions:
            self.transactions.reset()
