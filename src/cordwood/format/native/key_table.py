"""The layout of a key table: the keys of a log, and the newest record of each."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

# A key table: uint64 of shape (slots, 4), slots a power of two: three words of identity, then the
# record's ordinal plus one; zero there marks an empty slot.
SLOT_WORDS = 4
SLOT_BYTES = 8 * SLOT_WORDS
# A table of versions: two words more, a version (int64) and flags.
VERSIONED_SLOT_WORDS = 6
VERSIONED_SLOT_BYTES = 8 * VERSIONED_SLOT_WORDS
SECRETS = 8


def new_table(slots: int, words: int = SLOT_WORDS) -> npt.NDArray[np.uint64]:
    """An empty key table; `slots` is a power of two, `words` the width of a slot."""
    return np.zeros((slots, words), dtype=np.uint64)
