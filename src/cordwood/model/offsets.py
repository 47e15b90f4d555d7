"""Limits of offsets: Kafka's are signed, of 64 bits."""

from __future__ import annotations

from typing import Final

OFFSET_MAX: Final = (1 << 63) - 1
"""The highest log end offset. A record has a lower one, as its next offset is an offset, too."""

LEADERS_END_MAX: Final = OFFSET_MAX - (1 << 32)
"""The highest log end offset at which a leader appends.

The records of a request have offsets below `OFFSET_MAX` then.
"""
