"""Estimates what a compaction would free from some windows of its segments: to order logs by it.

The estimate of `cordwood.cleanup.estimate.estimate` reads every record, which is half of a
cleaning. This one reads a small part, and is as much less exact: it says which of several logs
frees more, and not how much.

Windows are between neighbouring entries of the offset index, so each begins at a batch. Some blocks
of consecutive windows are read, one in each of as many strata. A compaction keeps one record of
each key; so what is wanted is how many keys the log has. A key that is in one block only may be in
none of the other blocks, or in many that were not read; how many keys were in exactly two of those
that were read says which. A key counts once in a block, so keys that are written again soon after
do not look like keys that are written again and again; records are all counted.

Source: A. Chao, Estimating the population size for capture-recapture data with unequal
catchability (1987), with the bound that a key of one block is in one block at least. Where some
keys have far more records than others there are more keys than that, so what is freed is rather
too much.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import numpy.typing as npt

from cordwood.cleanup.plan.estimates import QuickEstimate
from cordwood.cleanup.plan.key_secrets import Secrets
from cordwood.format.file_names import INDEX_SUFFIX
from cordwood.format.native import kernels, key_table, records
from cordwood.format.offset_index import ENTRY_BYTES
from cordwood.model.errors import CorruptError
from cordwood.storage.filesystem import OS, FileSystem
from cordwood.storage.reading.block import Block
from cordwood.storage.reading.segment_reader import SegmentReader
from cordwood.storage.reading.source import WIDEST, ReadBounds, SegmentSource

_OFFSET_MAX = (1 << 63) - 1
_POSITION = struct.Struct(">4xi")

Words = npt.NDArray[np.uint64]


@dataclass(frozen=True, slots=True, kw_only=True)
class WindowLimits:
    """Limits of the part of a log that is read, in `blocks` places at most."""

    share: float = 1 / 32
    windows_min: int = 16
    blocks: int = 64
    size_bytes_max: int = 8 << 20


def estimate_from_windows(
    segments: Sequence[SegmentSource],
    *,
    seed: int,
    bounds: ReadBounds = WIDEST,
    limits: WindowLimits | None = None,
    fs: FileSystem = OS,
) -> QuickEstimate:
    """About what a compaction of these segments would free.

    Args:
        segments: ascending, of the clean and the dirty section.
        seed: of the places that are read, and of the hashes of keys.
        bounds: of what is decompressed.
        limits: of what is read.
        fs: where the segments and their offset indexes are.

    Raises:
        CorruptError: a batch or an offset index is damaged, or a segment was changed meanwhile.
        BatchTooLargeError: a batch takes more memory than it may.
        OversizedRecordError: a record of a compressed batch is larger than it may be.
        OSError: a segment or an offset index cannot be read.
    """
    return _Sample(segments, seed, bounds, limits or WindowLimits(), fs).made()


class _Sample:
    """One call of `estimate_from_windows`."""

    def __init__(
        self,
        segments: Sequence[SegmentSource],
        seed: int,
        bounds: ReadBounds,
        limits: WindowLimits,
        fs: FileSystem,
    ) -> None:
        self._segments = segments
        self._size_bytes = sum(source.size_bytes for source in segments)
        self._limits = limits
        self._fs = fs
        self._rng = np.random.default_rng(seed)
        self._secrets = Secrets.from_seed(seed).words
        self._reader = SegmentReader(bounds=bounds, fs=fs)
        self._bytes_read = 0
        # The windows of a segment are before its first entry, and from each entry on.
        self._windows = [
            fs.facts_of(_index_of(source)).size_bytes // ENTRY_BYTES + 1 for source in segments
        ]

    def made(self) -> QuickEstimate:
        windows = sum(self._windows)
        length, blocks, chosen = self._choice(windows)
        found, count = [], 0
        for block in chosen:
            ids = self._records_in(block * length, min(windows, (block + 1) * length))
            count += len(ids)
            found.append(np.unique(ids))
        keys = _distinct(found, blocks)
        # The records of all blocks, as far as those that were read are like the others.
        total = count * blocks / max(1, len(chosen))
        share = max(0.0, 1 - keys / total) if total else 0.0
        return QuickEstimate(
            bytes_before=self._size_bytes,
            bytes_freed=round(share * self._size_bytes),
            bytes_read=self._bytes_read,
        )

    def _choice(self, windows: int) -> tuple[int, int, list[int]]:
        """The number of windows of a block, the number of blocks, and the blocks that are read."""
        limits = self._limits
        each = self._size_bytes / max(1, windows)
        wanted = max(limits.share * self._size_bytes, limits.windows_min * each)
        affordable = int(min(wanted, limits.size_bytes_max) / max(1.0, each))
        affordable = min(windows, max(2, affordable))
        length = max(1, affordable // limits.blocks)
        blocks = -(-windows // length)
        count = min(blocks, max(2, affordable // length))
        strata = (np.arange(count) + self._rng.random(count)) * blocks / max(1, count)
        return length, blocks, strata.astype(np.int64).tolist()

    def _records_in(self, first: int, last: int) -> Words:
        """The keys of the records in some windows, as hashes; one for each record with a key."""
        found = [np.empty(0, dtype=np.uint64)]
        before = 0
        for source, windows in zip(self._segments, self._windows, strict=True):
            begin, end = max(first - before, 0), min(last - before, windows)
            if begin < end:
                found += self._keys_of(self._part(source, begin, end, windows))
            before += windows
        return np.concatenate(found)

    def _part(
        self, source: SegmentSource, begin: int, end: int, windows: int
    ) -> tuple[SegmentSource, int]:
        """A segment up to the end of a window, and where in it the first one begins."""
        size_bytes = source.size_bytes
        with closing(self._fs.open(_index_of(source))) as index:

            def position(entry: int) -> int:
                entries = bytearray(ENTRY_BYTES)
                self._bytes_read += index.read_into(memoryview(entries), entry * ENTRY_BYTES)
                (found,) = _POSITION.unpack(entries)
                return found or size_bytes  # what was set aside for entries, and not used

            start = 0 if begin == 0 else position(begin - 1)
            stop = size_bytes if end == windows else position(end - 1)
        if not 0 <= start <= stop <= size_bytes:
            raise CorruptError(
                f"offset index with the positions {start} and {stop} for a segment of "
                f"{size_bytes} bytes",
                path=str(_index_of(source)),
            )
        return replace(source, size_bytes=stop), start

    def _keys_of(self, part: tuple[SegmentSource, int]) -> Iterator[Words]:
        source, start = part
        self._bytes_read += source.size_bytes - start
        for block in self._reader.blocks(source, start=start):
            yield self._identities(block)

    def _identities(self, block: Block) -> Words:
        count = block.records_count
        entries = np.empty((count, key_table.SLOT_WORDS), dtype=np.uint64)
        used = np.zeros(1, dtype=np.int64)
        bits = np.zeros((2, count // 8 + 8), dtype=np.uint8)
        for payload in self._reader.payloads(block, block.has_data):
            status, row = kernels.list_batches(
                *payload.where,
                _OFFSET_MAX,
                block.ordinals(),
                entries,
                used,
                bits[0],
                bits[1],
                self._secrets,
            )
            if status == records.BAD_RECORD:
                raise block.bad_record(row)
            assert status == records.OK, "there is an entry for every record"
        return _hashed(entries[: int(used[0])])


def _index_of(source: SegmentSource) -> Path:
    return Path(source.path).with_suffix(INDEX_SUFFIX)


def _hashed(entries: Words) -> Words:
    """A word for each identity of a key; of different keys, two are seldom the same."""
    mixed: Words = entries[:, 0] * np.uint64(0x9E3779B97F4A7C15)
    for word in (1, 2):
        mixed = (mixed ^ (mixed >> np.uint64(29))) + entries[:, word]
        mixed = mixed * np.uint64(0xBF58476D1CE4E5B9)
    return mixed ^ (mixed >> np.uint64(32))


def _distinct(found: Sequence[Words], blocks: int) -> float:
    """The number of keys in all blocks, estimated from the keys of some."""
    read = len(found)
    if not read:
        return 0.0
    _, counts = np.unique(np.concatenate(found), return_counts=True)
    seen, once, twice = len(counts), int((counts == 1).sum()), int((counts == 2).sum())
    share = read / blocks
    if not once or share >= 1 or read < 2:
        return float(seen)
    # If those keys have no other record, each stands for as many as there are blocks for one read.
    unseen = once * (1 - share) / share
    if twice:
        unseen = min(unseen, (read - 1) / read * once**2 / (2 * twice))
    return seen + unseen
