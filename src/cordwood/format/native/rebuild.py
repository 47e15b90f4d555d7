"""The actions of `kernels.assemble` on a batch, and its results."""

from __future__ import annotations

# Actions.
DISCARD = 0
COPY = 1
REBUILD = 2
EMPTY = 3

# Results.
OK = 0
BAD_RECORD = 1
OUT_FULL = 3
SCRATCH_FULL = 4
BY_PYTHON = 5

# A rebuilt record may grow by this many bytes: a timestamp delta of ten, and a longer length.
GROWTH_PER_RECORD = 14
