"""Points in a range of bytes: one in each stratum, at random, and those of a level in the next.

A stratum of level `n` is `2**n` bytes, the first of which is a multiple of that. Its point is that
of one of its two halves, drawn by a hash. So a point is as likely at each byte of its stratum; the
points of a level are a half of those of the level before; and whether a byte is a point does not
depend on what was asked before.

A batch that holds a point is sampled. Each point stands for as many bytes as its stratum has, and a
batch is sampled the more often the larger it is. Neighbours are seldom sampled together, which is
better than chance: what differs between the begin and the end of a log is in the sample, too.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]

#: Strata of this level are larger than any log.
LEVEL_MAX = 62


class NestedPoints:
    """The points of all levels that belong to one seed."""

    def __init__(self, seed: int) -> None:
        """Takes a seed; of the same seed, the points are the same."""
        self._salts = np.random.default_rng(seed).integers(
            0, (1 << 64) - 1, LEVEL_MAX + 1, dtype=np.uint64
        )

    def at(self, level: int, start: int, end: int) -> Ints:
        """The points of a level from `start` to `end`, exclusive, ascending."""
        if start >= end:
            return np.empty(0, dtype=np.int64)
        strata = np.arange(start >> level, (end - 1 >> level) + 1, dtype=np.int64)
        for each in range(level, 0, -1):
            strata = 2 * strata + self._half(each, strata)
        return strata[(strata >= start) & (strata < end)]

    def highest(self, level: int, points: Ints) -> Ints:
        """The highest level of which each of some points of `level` is one."""
        highest = np.full(len(points), level, dtype=np.int64)
        alive = np.ones(len(points), dtype=np.bool_)
        strata = points >> level
        for each in range(level + 1, LEVEL_MAX + 1):
            alive &= self._half(each, strata >> 1) == (strata & 1)
            if not alive.any():
                break
            highest[alive] = each
            strata = strata >> 1
        return highest

    def _half(self, level: int, strata: Ints) -> Ints:
        """The half of each stratum that has the point, 0 or 1. The hash is splitmix64."""
        mixed = strata.astype(np.uint64) + self._salts[level]
        mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        half: Ints = ((mixed ^ (mixed >> np.uint64(31))) >> np.uint64(63)).astype(np.int64)
        return half
