"""Columns of the rows that `kernels.put_records` encodes, and places in its state."""

from __future__ import annotations

# Columns of a row; a size of -1 is a null. A row's headers are rows of another table, of which
# the columns are those of `record_fields.list_headers`.
TIMESTAMP = 0
KEY_START = 1
KEY_SIZE = 2
VALUE_START = 3
VALUE_SIZE = 4
HEADERS_FIRST = 5
HEADERS_COUNT = 6
COLUMNS = 7

# Places in the state: of the records that are in the buffer, and of one that is not.
USED = 0
COUNT = 1
BASE_TIMESTAMP = 2
MAX_TIMESTAMP = 3
SIZE_OF_NEXT = 4
STATES = 5
