"""Moments (ms) that are none of a clock."""

from __future__ import annotations

from typing import Final

from cordwood.configs.value import LONG_MAX

#: The moment of what never happens.
NEVER: Final = LONG_MAX
#: The moment of what may be removed by the next cleaning, such as a tombstone without a horizon.
AT_ONCE: Final = 0
