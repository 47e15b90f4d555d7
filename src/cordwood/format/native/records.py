"""Results of the kernels that walk the records of batches."""

from __future__ import annotations

OK = 0
BAD_RECORD = 1
TABLE_FULL = 2
