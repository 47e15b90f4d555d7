"""Searches segment files for records to be erased; reads, and changes nothing.

Keys are looked up in compiled code: the table of newest records serves as a set of the keys that
are searched for, and a record whose key is in it is compared byte by byte afterwards. What only
Python can decide about a record is decided record by record.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from cordwood.cleanup.engine.search.offsets import ranges_of, united
from cordwood.cleanup.engine.survivors import Progress, no_progress
from cordwood.cleanup.plan.compaction_values import (
    OffsetRanges,
    failure_from_json,
    failure_to_json,
)
from cordwood.cleanup.plan.key_secrets import Secrets
from cordwood.format.native import batches as rows_of
from cordwood.format.native import kernels, key_table
from cordwood.format.native import records as results
from cordwood.format.record import Record
from cordwood.format.record_batch import build_batch_of
from cordwood.model.errors import CordwoodError, CorruptError
from cordwood.model.topic_partition import TopicPartition
from cordwood.storage.filesystem import OS, FileSystem
from cordwood.storage.reading.block import Block, Bytes, Payload
from cordwood.storage.reading.segment_reader import SegmentReader
from cordwood.storage.reading.source import WIDEST, ReadBounds, SegmentSource

_OFFSET_MAX = (1 << 63) - 1
_KEYS_A_BATCH = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Searched:
    """A segment file to search, the partition whose records it has, and how far it is read."""

    partition: TopicPartition
    source: SegmentSource
    bounds: ReadBounds = WIDEST


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """The records of a file that match, by offset, and how many records it has, markers too.

    `by_key` is how many have each of the keys that were searched for and found.
    """

    offsets: OffsetRanges
    records: int
    by_key: Mapping[bytes, int] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """The JSON that travels from the process of an engine, which searches for no keys."""
        return {"records": self.records, "offsets": self.offsets}


@dataclass(frozen=True, slots=True, kw_only=True)
class Unsearched:
    """A file that is damaged, or cannot be read, or has a record over its topic's bound."""

    error: CordwoodError | OSError

    def to_json(self) -> dict[str, Any]:
        """The JSON that travels from the process of an engine."""
        return {"failure": failure_to_json(self.error)}


SearchResult = Found | Unsearched


def result_from_json(value: Mapping[str, Any]) -> SearchResult:
    """The result in what its `to_json` gave."""
    if "failure" in value:
        return Unsearched(error=failure_from_json(value["failure"]))
    ranges = tuple((first, last) for first, last in value["offsets"])
    return Found(offsets=ranges, records=value["records"])


class Searcher(Protocol):
    """Searches many files at once."""

    def find(self, segments: Sequence[Searched]) -> list[SearchResult]:
        """The result of each file, in their order.

        Raises:
            ConfigError: the expression cannot be evaluated.
            EngineError: the engine fails.
        """


class Matcher(Protocol):
    """Decides about records of one file; it is pickled for tasks."""

    def search(self, searched: Searched, *, progress: Progress, fs: FileSystem) -> Found:
        """Searches one file.

        Raises:
            CorruptError: it is damaged.
            OSError: it cannot be read.
        """


class ExactKeys:
    """Matches records that have one of some keys."""

    def __init__(self, keys: frozenset[bytes]) -> None:
        """Takes at least one key; the empty key is one, a record without key matches none."""
        assert keys, "a search for no key"
        self.keys = keys

    def search(
        self, searched: Searched, *, progress: Progress = no_progress, fs: FileSystem = OS
    ) -> Found:
        """Finds the records with these keys."""
        return _KeySearch(self.keys, searched.bounds, fs=fs).search(searched.source, progress)


class _KeySearch:
    """The table of some keys, and the buffers to look records up in it."""

    def __init__(self, keys: frozenset[bytes], bounds: ReadBounds, *, fs: FileSystem) -> None:
        self._keys = keys
        self._bounds = bounds
        self._secrets = Secrets.from_seed(0).words
        slots = 1 << 12
        while slots < 4 * len(keys):
            slots *= 2
        self._table = key_table.new_table(slots)
        self._used = np.zeros(1, dtype=np.int64)
        self._nothing = key_table.new_table(2)
        self._reader = SegmentReader(bounds=bounds, fs=fs)
        ordered = sorted(keys)
        for first in range(0, len(ordered), _KEYS_A_BATCH):
            self._insert(ordered[first : first + _KEYS_A_BATCH])

    def _insert(self, keys: Sequence[bytes]) -> None:
        data = build_batch_of([(key, None) for key in keys], timestamp=0)
        buffer = np.zeros(len(data) + 64, dtype=np.uint8)
        buffer[: len(data)] = np.frombuffer(data, dtype=np.uint8)
        rows = np.empty((1, rows_of.COLUMNS), dtype=np.int64)
        kernels.scan_batches(buffer, 0, len(data), rows, False)
        bits = np.zeros((2, len(keys) // 8 + 1), dtype=np.uint8)
        status, _ = kernels.index_batches(
            buffer,
            rows,
            0,
            1,
            np.array([[rows_of.HEADER_SIZE, len(data)]], dtype=np.int64),
            0,
            np.zeros(1, dtype=np.int64),
            self._table,
            self._used,
            bits[0],
            bits[1],
            self._secrets,
        )
        assert status == results.OK, f"a table of {len(self._table)} slots is too small"

    def search(self, source: SegmentSource, progress: Progress) -> Found:
        """The records with one of the keys."""
        offsets: list[int] = []
        by_key: Counter[bytes] = Counter()
        records = 0
        for block in self._reader.blocks(source):
            records += block.records_count
            for row in self._candidates(block):
                for record in block.records(row, record_bytes_max=self._bounds.record_bytes_max):
                    if record.key is not None and record.key in self._keys:
                        offsets.append(record.offset)
                        by_key[record.key] += 1
            progress(block.size_bytes)
        return Found(offsets=ranges_of(offsets), records=records, by_key=by_key)

    def _candidates(self, block: Block) -> list[int]:
        """The batches that have a record with such a key."""
        counts, ordinals, total = block.counts, block.ordinals(), block.records_count
        others, keyed = np.zeros((2, total // 8 + 1), dtype=np.uint8)
        for payload in self._reader.payloads(block, block.has_data):
            self._probe(payload, self._table, others)
            first = int(ordinals[payload.first])
            count = int(counts[payload.first : payload.last].sum())
            if kernels.count_bits(others, first, count) < count:
                # Of what is not in the table, records without a key are known by another probe.
                self._probe(payload, self._nothing, keyed)
        hits = np.unpackbits(keyed & ~others, count=total, bitorder="little")
        # Of batches with the same first ordinal, all but the last are empty.
        rows = np.searchsorted(ordinals, np.flatnonzero(hits), side="right") - 1
        return sorted({int(row) for row in rows})

    def _probe(self, payload: Payload, table: npt.NDArray[np.uint64], keep: Bytes) -> None:
        status, row = kernels.probe_batches(
            *payload.where,
            _OFFSET_MAX,
            payload.block.ordinals(),
            table,
            keep,
            np.zeros_like(keep),
            self._secrets,
        )
        if status == results.BAD_RECORD:
            raise payload.block.bad_record(row)


class ByRecord:
    """Matches the records for which a function says so; records are parsed in Python."""

    def __init__(self, matches: Callable[[TopicPartition, Record], bool]) -> None:
        """Takes a function that can be pickled."""
        self._matches = matches

    def search(
        self, searched: Searched, *, progress: Progress = no_progress, fs: FileSystem = OS
    ) -> Found:
        """Finds the records that the function accepts, one by one."""
        offsets: list[int] = []
        records = 0
        matches, partition = self._matches, searched.partition
        bounds = searched.bounds
        for block in SegmentReader(bounds=bounds, fs=fs).blocks(searched.source):
            records += block.records_count
            offsets += [
                record.offset
                for row in np.flatnonzero(block.has_data).tolist()
                for record in block.records(row, record_bytes_max=bounds.record_bytes_max)
                if matches(partition, record)
            ]
            progress(block.size_bytes)
        return Found(offsets=ranges_of(offsets), records=records)


class SearcherHere:
    """Searches in this process."""

    def __init__(
        self, matchers: Sequence[Matcher], *, progress: Progress = no_progress, fs: FileSystem = OS
    ) -> None:
        """Takes matchers, of which one has to match a record."""
        self._matchers = matchers
        self._progress = progress
        self._fs = fs

    def find(self, segments: Sequence[Searched]) -> list[SearchResult]:
        """Searches in this process, one segment after another."""
        return [search_one(each, self._matchers, self._progress, self._fs) for each in segments]


def search_one(
    searched: Searched, matchers: Sequence[Matcher], progress: Progress, fs: FileSystem
) -> SearchResult:
    """The records that one of several matchers finds in a file."""
    try:
        return joined([each.search(searched, progress=progress, fs=fs) for each in matchers])
    except (CorruptError, OSError) as error:
        return Unsearched(error=error)


def joined(results: Sequence[SearchResult]) -> SearchResult:
    """The union of what several searches of one file have found; a failed one fails all."""
    found = []
    for each in results:
        if isinstance(each, Unsearched):
            return each
        found.append(each)
    ranges = [each for one in found for each in one.offsets]
    by_key = sum((Counter(one.by_key) for one in found), Counter[bytes]())
    return Found(offsets=united(ranges), records=max(one.records for one in found), by_key=by_key)
