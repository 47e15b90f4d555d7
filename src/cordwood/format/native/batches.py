"""The rows that `kernels.scan_batches` makes of batch headers, and the results of a walk."""

from __future__ import annotations

# Columns of a batch table: int64, one row a batch. Positions are bytes from the buffer's start.
POSITION = 0
SIZE = 1
BASE_OFFSET = 2
LAST_OFFSET = 3
MAGIC = 4
ATTRIBUTES = 5
BASE_TIMESTAMP = 6
MAX_TIMESTAMP = 7
PRODUCER_ID = 8
PRODUCER_EPOCH = 9
BASE_SEQUENCE = 10
COUNT = 11
LEADER_EPOCH = 12
COLUMNS = 13

# The results of a walk.
ENDED = 0  # the end, or only a partial batch, is left
FULL = 1  # the table is full
BAD_LENGTH = 2
BAD_MAGIC = 3
BAD_CRC = 4
BAD_COUNT = 5
LEGACY = 6  # a magic 0 or 1 entry: the caller walks these in Python

HEADER_SIZE = 61
