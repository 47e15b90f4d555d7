"""The state of `kernels.index_rows`."""

from __future__ import annotations

# Places in the state.
INDEXED_AT = 0
NEWEST = 1
OFFSET_OF_NEWEST = 2
LAST_INDEXED_OFFSET = 3
LAST_TIME = 4
OFFSET_OF_LAST_TIME = 5
STATES = 6
