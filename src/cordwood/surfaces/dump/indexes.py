"""The text of `.index`, `.timeindex` and `.txnindex` files, checked against their log.

An index that was not closed is padded with zeros; printing stops at the first zero entry.

Source: DumpLogSegments.dumpIndex, dumpTimeIndex, dumpTxnIndex; AbstractIndex, OffsetIndex,
TimeIndex.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from cordwood.format import offset_index, time_index, transaction_index
from cordwood.format.file_names import INDEX_SUFFIX, LOG_SUFFIX, base_offset_of
from cordwood.format.java_map import JavaHashMap
from cordwood.model.errors import CorruptError, UnsupportedVersionError
from cordwood.storage.filesystem import OS
from cordwood.storage.reading.batches import SIZE_MAX, LogFile, PlacedBatch
from cordwood.surfaces.dump.documents import (
    AbortedTransaction,
    EmptyIndex,
    OffsetIndexEntry,
    SaneIndex,
    TimeIndexEntry,
)
from cordwood.surfaces.dump.files import NamedFile
from cordwood.surfaces.dump.output import Findings, Output

_OFFSET_ENTRY = struct.Struct(">ii")
_TIME_ENTRY = struct.Struct(">qi")
_TXN_ENTRY = struct.Struct(">hqqqq")
_WARM_BYTES = 8192


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexOptions:
    """`is_quiet` leaves the entries out; `message_bytes_max` is how far a batch may reach."""

    is_sanity_check: bool
    is_quiet: bool
    message_bytes_max: int


@dataclass(frozen=True, slots=True)
class OffsetIndexFile:
    """An offset index as stored on disk, including zeros at its end."""

    base_offset: int
    data: bytes

    @classmethod
    def read(cls, path: Path) -> OffsetIndexFile:
        """The index in that file."""
        return cls(base_offset_of(path.name), OS.read_bytes(path))

    @property
    def count(self) -> int:
        """Whole entries."""
        return len(self.data) // offset_index.ENTRY_BYTES

    def entry(self, index: int) -> tuple[int, int]:
        """(absolute offset, position) of an entry."""
        relative, position = _OFFSET_ENTRY.unpack_from(self.data, index * offset_index.ENTRY_BYTES)
        return self.base_offset + relative, position

    def lookup(self, target: int) -> tuple[int, int]:
        """The entry with the largest offset <= `target`, found with Kafka's search.

        With zeros at the end, the result depends on the search algorithm.

        Source: AbstractIndex.indexSlotRangeFor.
        """
        if self.count == 0:
            return self.base_offset, 0
        first_hot = max(0, self.count - 1 - _WARM_BYTES // offset_index.ENTRY_BYTES)
        if self.entry(first_hot)[0] < target:
            return self._search(target, first_hot, self.count - 1)
        if self.entry(0)[0] > target:
            return self.base_offset, 0
        return self._search(target, 0, first_hot)

    def _search(self, target: int, low: int, high: int) -> tuple[int, int]:
        while low < high:
            middle = (low + high + 1) // 2
            offset = self.entry(middle)[0]
            if offset > target:
                high = middle - 1
            elif offset < target:
                low = middle
            else:
                return self.entry(middle)
        return self.entry(low)


def dump_offset_index(
    file: NamedFile, options: IndexOptions, findings: Findings, output: Output
) -> None:
    """Prints an offset index, and notes entries that do not name their batch's last offset.

    Raises:
        CorruptError: the index is not sound, or an entry points at no batch.
    """
    index = OffsetIndexFile.read(file.path)
    with LogFile(file.beside(LOG_SUFFIX).path) as log:
        if index.count == 0:
            output.item(f"{file} is empty.", EmptyIndex(file=file.shown))
            return
        if options.is_sanity_check:
            _require_sane(file.path, index)
            output.item(f"{file} passed sanity check.", SaneIndex(file=file.shown))
            return
        for offset, position in offset_entries(index):
            batches = log.batches(
                start=position, size_max=options.message_bytes_max, is_strict=False
            )
            placed = next(batches, None)
            if placed is None:
                raise CorruptError(f"no batch lies at {position}", path=str(log.path))
            last_offset = placed.batch.last_offset
            if last_offset != offset:
                found = findings.index_mismatches.compute_if_absent(file.absolute, dict)
                found[offset] = last_offset
            if not options.is_quiet:
                output.item(
                    f"offset: {offset} position: {position}",
                    OffsetIndexEntry(file=file.shown, offset=offset, position=position),
                )


def offset_entries(index: OffsetIndexFile) -> Iterator[tuple[int, int]]:
    """The entries (absolute offset, position) before the zeros at the end."""
    for number in range(index.count):
        offset, position = index.entry(number)
        if offset == index.base_offset and number > 0:
            return
        yield offset, position


def dump_time_index(
    file: NamedFile, options: IndexOptions, findings: Findings, output: Output
) -> None:
    """Prints a time index, and notes what does not agree with the log.

    Raises:
        CorruptError: the index is not sound, or the log cannot be read.
    """
    base_offset = base_offset_of(file.name)
    data = OS.read_bytes(file.path)
    with LogFile(file.beside(LOG_SUFFIX).path) as log:
        index = OffsetIndexFile.read(file.beside(INDEX_SUFFIX).path)
        if options.is_sanity_check:
            _require_sane_times(file.path, base_offset, data)
            output.item(f"{file} passed sanity check.", SaneIndex(file=file.shown))
            return
        check = _TimeIndexCheck(file.absolute, index, log, findings)
        for timestamp, offset in time_entries(base_offset, data):
            check.compare(timestamp, offset)
            if not options.is_quiet:
                output.item(
                    f"timestamp: {timestamp} offset: {offset}",
                    TimeIndexEntry(file=file.shown, timestamp=timestamp, offset=offset),
                )


def time_entries(base_offset: int, data: bytes) -> Iterator[tuple[int, int]]:
    """The entries (timestamp in ms, absolute offset) before the zeros at the end."""
    for number in range(len(data) // time_index.ENTRY_BYTES):
        timestamp, relative = _TIME_ENTRY.unpack_from(data, number * time_index.ENTRY_BYTES)
        if relative == 0 and number > 0:
            return
        yield timestamp, base_offset + relative


def dump_transaction_index(file: NamedFile, output: Output) -> None:
    """Prints a transaction index.

    Raises:
        CorruptError: it ends within an entry.
        UnsupportedVersionError: an entry has an unknown version.
    """
    for version, producer_id, first, last, stable in transaction_entries(file.path):
        output.item(
            f"version: {version} producerId: {producer_id} firstOffset: {first} "
            f"lastOffset: {last} lastStableOffset: {stable}",
            AbortedTransaction(
                file=file.shown,
                version=version,
                producer_id=producer_id,
                first_offset=first,
                last_offset=last,
                last_stable_offset=stable,
            ),
        )


def transaction_entries(path: Path) -> list[tuple[int, ...]]:
    """The entries of a transaction index as (version, producer id, first, last, stable offset).

    Raises:
        CorruptError: it ends within an entry.
        UnsupportedVersionError: an entry has an unknown version.
    """
    data = OS.read_bytes(path)
    if len(data) % transaction_index.ENTRY_BYTES:
        raise CorruptError("transaction index ends within an entry", path=str(path))
    entries = list(_TXN_ENTRY.iter_unpack(data))
    for number, entry in enumerate(entries):
        if entry[0] != transaction_index.VERSION:
            raise UnsupportedVersionError(
                f"Unexpected aborted transaction version {entry[0]}, "
                f"the supported version is {transaction_index.VERSION}",
                path=str(path),
                position=number * transaction_index.ENTRY_BYTES,
            )
    return entries


class _TimeIndexCheck:
    """Compares the entries of one time index, in order, with the log."""

    def __init__(
        self, file_name: str, index: OffsetIndexFile, log: LogFile, findings: Findings
    ) -> None:
        self._file_name = file_name
        self._index = index
        self._log = log
        self._findings = findings
        self._previous_ms = -1

    def compare(self, timestamp: int, offset: int) -> None:
        """Records any errors of the next entry."""
        previous, self._previous_ms = self._previous_ms, timestamp
        placed = _batch_with(self._log, self._index.lookup(offset)[1], offset)
        if placed is None or placed.batch.last_offset != offset:
            last_offset = -1 if placed is None else placed.batch.last_offset
            self._note(self._findings.offsets_not_found, offset, last_offset)
            return
        largest = max(-1, *(record.timestamp for record in placed.batch.records()), -1)
        if largest != timestamp:
            self._note(self._findings.timestamp_mismatches, timestamp, largest)
        if previous >= timestamp:
            self._note(self._findings.timestamps_out_of_order, timestamp, previous)

    def _note(
        self, found: JavaHashMap[str, list[tuple[int, int]]], indexed: int, in_log: int
    ) -> None:
        pairs: list[tuple[int, int]] = found.compute_if_absent(self._file_name, list)
        pairs.append((indexed, in_log))


def _batch_with(log: LogFile, position: int, offset: int) -> PlacedBatch | None:
    """The first batch from `position` on whose last offset is `offset` or more."""
    for placed in log.batches(start=position, size_max=SIZE_MAX, is_strict=False):
        if placed.batch.last_offset >= offset:
            return placed
    return None


def _require_sane(path: Path, index: OffsetIndexFile) -> None:
    last_offset = index.entry(index.count - 1)[0]
    if last_offset < index.base_offset:
        raise CorruptError(
            f"Corrupt index found: its last offset {last_offset} is less than the base offset "
            f"{index.base_offset}",
            path=str(path),
        )
    _require_multiple(path, len(index.data), offset_index.ENTRY_BYTES)


def _require_sane_times(path: Path, base_offset: int, data: bytes) -> None:
    count = len(data) // time_index.ENTRY_BYTES
    if count:
        first_timestamp, _ = _TIME_ENTRY.unpack_from(data, 0)
        timestamp, relative = _TIME_ENTRY.unpack_from(data, (count - 1) * time_index.ENTRY_BYTES)
        if timestamp < first_timestamp:
            raise CorruptError(
                f"Corrupt time index found: its last timestamp {timestamp} is less than the "
                f"first {first_timestamp}",
                path=str(path),
            )
        if relative < 0:
            raise CorruptError(
                f"Corrupt time index found: its last offset {base_offset + relative} is less "
                f"than the base offset {base_offset}",
                path=str(path),
            )
    _require_multiple(path, len(data), time_index.ENTRY_BYTES)


def _require_multiple(path: Path, size_bytes: int, entry_bytes: int) -> None:
    if size_bytes % entry_bytes:
        raise CorruptError(
            f"Corrupt index found: {size_bytes} bytes are no multiple of {entry_bytes}",
            path=str(path),
        )
