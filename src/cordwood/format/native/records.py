"""Results of the kernels that walk the records of batches."""

from __future__ import annotations

OK = 0
BAD_RECORD = 1
TABLE_FULL = 2

# Watched keys are a key table whose last word holds two numbers: the level of the key in the
# highest bits, and below them the newest record above the first dirty offset. That is its number
# plus WATCHED_FIRST, or WATCHED_NONE while there is none.
WATCHED_LEVEL_SHIFT = 56
WATCHED_NONE = 1
WATCHED_FIRST = 2

# Registers of `watch_batches`, as those of a HyperLogLog: uint8, by the highest bits of a hash.
REGISTER_BITS = 14
REGISTERS = 1 << REGISTER_BITS
