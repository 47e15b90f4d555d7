"""A sample of a compaction's batches whose keys are watched until the end of the compaction.

Which batches are in it is decided by `points`: those that hold a point of the level. It begins
with all batches. When it is too large the level rises, and the batches without a point of that
level are forgotten, with the keys that only they have. So its memory is bounded, whatever the log
has of records and keys.

A record of the sample goes if a later one above the first dirty offset has its key. All records of
the compaction are looked up among the watched keys, so that the verdict on each record of the
sample is the one that a cleaning gives. No key is followed as a whole: a key with a million records
is as good as a million keys.

Where records have versions, an earlier record may beat one of the sample. So all records are walked
over once more when the sample is complete, and each watched key gets the record of its highest
version.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from cordwood.cleanup.estimate.distinct import distinct_keys, new_registers
from cordwood.cleanup.estimate.points import NestedPoints
from cordwood.cleanup.rules.record_longs import RecordLongs
from cordwood.format.native import kernels, key_table, records
from cordwood.storage.reading.block import Block, Ints, Payload

# Columns of the sample: int64, one row a batch. `START` is its first byte among all bytes of the
# compaction, `FILE_POSITION` that in its file, `NUMBER` that of its first record among all records.
SEGMENT: Final = 0
START: Final = 1
FILE_POSITION: Final = 2
SIZE: Final = 3
COUNT: Final = 4
NUMBER: Final = 5
LEVEL: Final = 6
CAN_DISCARD: Final = 7
IS_WANTED: Final = 8
IS_LEGACY: Final = 9
COLUMNS: Final = 10

# The first level above that of all batches. No batch is much smaller than its strata.
_LEVEL_FIRST = 8
_SLOTS_FIRST = 1 << 14
# So many batches are never too many, however large.
_BATCHES_MIN = 64
_NONE = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class SampleLimits:
    """A sample with more of any of these is thinned: keys, batches, bytes of batches.

    A key takes up to 128 bytes of memory, a batch 80; the bytes are read twice.
    """

    keys: int = 1 << 16
    batches: int = 1 << 15
    size_bytes: int = 32 << 20


@dataclass(slots=True)
class Walked:
    """Some batches as they are walked over; `numbers`, `wanted` and `can_discard` are by row.

    `start` is where the first of them is among all bytes of the compaction, `sizes` are those in
    the file.
    """

    block: Block
    segment: int
    start: int
    sizes: Ints
    numbers: Ints
    wanted: npt.NDArray[np.bool_]
    can_discard: npt.NDArray[np.bool_]


class Verdicts:
    """A bit for each record of a block, uint8: stays, has a null value, has beaten a newer one."""

    __slots__ = ("keep", "nulls", "pinned")

    def __init__(self, count: int) -> None:
        """Of so many records; none is set."""
        self.keep, self.nulls, self.pinned = np.zeros((3, count // 8 + 8), dtype=np.uint8)

    def let_go(self, numbers: Ints) -> None:
        """Records that have expired, by their numbers, do not stay unless they are pinned."""
        expired = np.zeros(8 * len(self.keep), dtype=np.bool_)
        expired[numbers] = True
        self.keep &= ~np.packbits(expired, bitorder="little") | self.pinned


class WatchedSample:
    """The batches of the sample so far, and their keys."""

    def __init__(self, *, seed: int, secrets: npt.NDArray[np.uint64], limits: SampleLimits) -> None:
        """Takes the seed of the points, and the secrets of the hashes of keys."""
        self.points = NestedPoints(seed)
        self.level = 0
        self._secrets = secrets
        self._limits = limits
        self._table = key_table.new_table(_SLOTS_FIRST)
        self._used = np.zeros(1, dtype=np.int64)
        self._versions: npt.NDArray[np.uint64] | None = None
        self._registers = new_registers()
        self._rows: list[Ints] = []
        self._batches = 0
        self._size_bytes = 0

    def levels_of(self, start: int, sizes: Ints) -> Ints:
        """The highest level at which each of some consecutive batches has a point, or -1.

        Args:
            start: where the first of them is among all bytes of the compaction.
            sizes: int64, in bytes.
        """
        levels = np.full(len(sizes), _NONE if self.level else 0, dtype=np.int64)
        if not len(sizes):
            return levels
        level = max(self.level, _LEVEL_FIRST)
        ends = start + np.cumsum(sizes)
        points = self.points.at(level, start, int(ends[-1]))
        owners = np.searchsorted(ends, points, side="right")
        np.maximum.at(levels, owners, self.points.highest(level, points))
        return levels

    def watch(self, payload: Payload, walked: Walked, levels: Ints, first_dirty: int) -> None:
        """Looks the records of a payload up; watches the keys of batches with a level from 0 on.

        `levels` are changed: those of batches that are forgotten meanwhile become -1.

        Raises:
            CorruptError: a record cannot be read.
        """
        row = payload.first
        while row < payload.last:
            status, row = kernels.watch_batches(
                *payload.where_from(row),
                first_dirty,
                walked.numbers,
                levels,
                self._table,
                self._used,
                self._registers,
                self._secrets,
            )
            if status == records.BAD_RECORD:
                raise payload.block.bad_record(row)
            if status == records.TABLE_FULL:
                if self._used[0] >= self._limits.keys and self._batches > _BATCHES_MIN:
                    self._thin()
                    levels[levels < self.level] = _NONE
                self._make_room(int(payload.block.counts[row]))

    def add(self, walked: Walked, levels: Ints) -> None:
        """Adds the batches with a level from 0 on, whose keys are watched."""
        chosen = np.flatnonzero(levels >= 0)
        if not len(chosen):
            return
        starts = np.cumsum(walked.sizes) - walked.sizes
        rows = np.empty((len(chosen), COLUMNS), dtype=np.int64)
        rows[:, SEGMENT] = walked.segment
        rows[:, START] = walked.start + starts[chosen]
        rows[:, FILE_POSITION] = walked.block.position_of(0) + starts[chosen]
        rows[:, SIZE] = walked.sizes[chosen]
        rows[:, COUNT] = walked.block.counts[chosen]
        rows[:, NUMBER] = walked.numbers[chosen]
        rows[:, LEVEL] = levels[chosen]
        rows[:, CAN_DISCARD] = walked.can_discard[chosen]
        rows[:, IS_WANTED] = walked.wanted[chosen]
        rows[:, IS_LEGACY] = walked.block.legacy is not None
        self._rows.append(rows)
        self._count(rows)
        if self._is_too_large():
            self._thin()

    def rows(self) -> Ints:
        """The batches, int64 of shape (n, COLUMNS), in order."""
        return np.concatenate([np.empty((0, COLUMNS), dtype=np.int64), *self._rows])

    def keys(self) -> int:
        """The number of keys above the first dirty offset; an estimate, but for a sample of all."""
        if self.level:
            return distinct_keys(self._registers)
        newest = self._table[:, 3] & np.uint64((1 << records.WATCHED_LEVEL_SHIFT) - 1)
        return int((newest >= records.WATCHED_FIRST).sum())

    def begin_versions(self) -> None:
        """The sample is complete: from now on, versions of its keys are noted."""
        self._versions = np.zeros(
            (self._table.shape[0], key_table.VERSIONED_SLOT_WORDS), dtype=np.uint64
        )
        self._versions[:, : key_table.SLOT_WORDS] = self._table
        self._versions[self._table[:, 3] != 0, 3] = records.WATCHED_NONE

    def note_versions(
        self, payload: Payload, walked: Walked, first_dirty: int, longs: RecordLongs
    ) -> None:
        """Notes the highest version of each key of the sample; `longs` has those of the payload.

        Raises:
            CorruptError: a record cannot be read.
        """
        assert self._versions is not None, "versions are noted when the sample is complete"
        status, row = kernels.watch_versions(
            *payload.where,
            first_dirty,
            walked.numbers,
            longs.values,
            longs.known,
            self._versions,
            self._secrets,
        )
        if status == records.BAD_RECORD:
            raise payload.block.bad_record(row)

    def judge(self, payload: Payload, numbers: Ints, verdicts: Verdicts) -> None:
        """Marks the records of sampled batches that no other one supersedes, and null values.

        Args:
            payload: of the batches.
            numbers: int64[rows], of each batch's first record among all records.
            verdicts: of the records of the block in order.

        Raises:
            CorruptError: a record cannot be read.
        """
        where, ordinals = (*payload.where, numbers), payload.block.ordinals()
        keep, nulls, pinned = verdicts.keep, verdicts.nulls, verdicts.pinned
        if self._versions is None:
            status, row = kernels.judge_watched(
                *where, ordinals, self._table, keep, nulls, self._secrets
            )
        else:
            status, row = kernels.judge_watched_versions(
                *where, ordinals, self._versions, keep, nulls, pinned, self._secrets
            )
        if status == records.BAD_RECORD:
            raise payload.block.bad_record(row)

    def by_point(self, size_bytes: int, values: Ints) -> npt.NDArray[np.float64]:
        """Scales a value of the sampled batches to the bytes for which each point stands; in order.

        Args:
            size_bytes: of the whole compaction.
            values: int64, what each batch of the sample has of it.
        """
        if not self.level:
            return values.astype(np.float64)
        rows = self.rows()
        points = self.points.at(self.level, 0, size_bytes)
        owners = np.searchsorted(rows[:, START] + rows[:, SIZE], points, side="right")
        found: npt.NDArray[np.float64] = values[owners] / rows[owners, SIZE] * (1 << self.level)
        return found

    def _is_too_large(self) -> bool:
        return self._is_beyond(int(self._used[0]), self._batches, self._size_bytes)

    def _is_beyond(self, keys: int, batches: int, size_bytes: int) -> bool:
        limits = self._limits
        return batches > _BATCHES_MIN and (
            keys > limits.keys or batches > limits.batches or size_bytes > limits.size_bytes
        )

    def _count(self, rows: Ints) -> None:
        self._batches += len(rows)
        self._size_bytes += int(rows[:, SIZE].sum())

    def _thin(self) -> None:
        """Raises the level as far as needed, and forgets what has no point of it."""
        entries = self._table[self._table[:, 3] != 0]
        levels = (entries[:, 3] >> np.uint64(records.WATCHED_LEVEL_SHIFT)).astype(np.int64)
        rows = self.rows()
        while True:
            self.level = max(self.level + 1, _LEVEL_FIRST)
            stay, rows = levels >= self.level, rows[rows[:, LEVEL] >= self.level]
            if not self._is_beyond(int(stay.sum()), len(rows), int(rows[:, SIZE].sum())):
                break
        self._rows = [rows]
        self._batches = self._size_bytes = 0
        self._count(rows)
        kept = np.ascontiguousarray(entries[stay])
        self._used[0] = len(kept)
        slots = _SLOTS_FIRST
        while 2 * len(kept) > slots:
            slots *= 2
        self._table = kernels.grow_table(kept, slots, self._secrets)

    def _make_room(self, count: int) -> None:
        slots = self._table.shape[0]
        while (int(self._used[0]) + count) * 2 > slots:
            slots *= 2
        if slots > self._table.shape[0]:
            self._table = kernels.grow_table(self._table, slots, self._secrets)
