"""What `kernels.assemble` does with a batch, and how it ends."""

from __future__ import annotations

# What is done with a batch.
DISCARD = 0
COPY = 1
REBUILD = 2
EMPTY = 3

# How a call ended.
OK = 0
BAD_RECORD = 1
OUT_FULL = 3
SCRATCH_FULL = 4
BY_PYTHON = 5

# A rebuilt record may grow by this many bytes: a timestamp delta of ten, and a longer length.
GROWTH_PER_RECORD = 14
