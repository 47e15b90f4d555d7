"""What `kernels.record_longs` takes of each record."""

from __future__ import annotations

#: Its timestamp.
TIMESTAMP = 0
#: The value of a header, a big-endian integer of 8 bytes.
HEADER = 1
