"""The kinds of numbers that `kernels.record_longs` reads of records."""

from __future__ import annotations

#: Its timestamp.
TIMESTAMP = 0
#: The value of a header, a big-endian integer of 8 bytes.
HEADER = 1
#: When it expires: its timestamp, and the value of a header, a number of milliseconds. That is an
#: integer of 8 bytes, or decimal digits, which are so if all bytes are: as integers of 8 bytes,
#: eight digits are at least 100 million years.
EXPIRY = 2
