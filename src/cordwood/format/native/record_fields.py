"""The rows that `kernels.list_records` and `kernels.list_headers` make, and their results."""

from __future__ import annotations

# Columns of `list_records`: int64, one row a record. A start is a position in the buffer; a size of
# -1 is that of a null.
OFFSET = 0
TIMESTAMP = 1
KEY_START = 2
KEY_SIZE = 3
VALUE_START = 4
VALUE_SIZE = 5
HEADERS_START = 6
HEADERS_COUNT = 7
RECORD_END = 8
COLUMNS = 9

# Columns of `list_headers`: int64, one row a header.
NAME_START = 0
NAME_SIZE = 1
CONTENT_START = 2
CONTENT_SIZE = 3
HEADER_COLUMNS = 4

# Statuses.
OK = 0
MALFORMED = 1
