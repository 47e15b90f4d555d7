"""The rows and results of the kernels that walk whole records."""

from __future__ import annotations

# Statuses.
SOUND = 0
MALFORMED = 1  # a record, or a header of it, is no record
NOT_ASCENDING = 2  # an offset delta is not above the one before
TOO_LONG = 3  # there is more than the records that the header counts, or an offset too large
FULL = 4  # the key table

# Columns of `check_batches`: int64, one row a batch.
CHECK_STATUS = 0
CHECK_LAST_OFFSET = 1
CHECK_MAX_TIMESTAMP = 2
CHECKS = 3

# Columns of `list_contents`: uint64, one row a record. The content takes three.
OFFSET = 0
TIMESTAMP = 1
CONTENT = 2
FLAGS = 5
WORDS = 6

# Flags.
HAS_KEY = 1
HAS_NULL_VALUE = 2
