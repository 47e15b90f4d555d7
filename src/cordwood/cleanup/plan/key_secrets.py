"""The secrets of the hashes of keys that the seed of a plan stands for."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt


@dataclass(slots=True)
class Secrets:
    """The secrets of the hashes of one run; `words` is uint64[9], the last a mask (all ones)."""

    words: npt.NDArray[np.uint64]

    @classmethod
    def from_seed(cls, seed: int, *, mask: int = (1 << 64) - 1) -> Secrets:
        """The secrets that a seed of 128 bits stands for; a mask weakens the first hash."""
        words = np.random.default_rng(seed).integers(1, (1 << 64) - 1, 9, dtype=np.uint64)
        words |= np.uint64(1)
        words[8] = np.uint64(mask)
        return cls(words)
