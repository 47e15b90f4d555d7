"""Random numbers, passed in like the clock: the storage layer and ids take them from here alone."""

from __future__ import annotations

import random
import uuid
from typing import Protocol


class Rng(Protocol):
    """A source of random numbers."""

    def below(self, bound: int) -> int:
        """A random number from 0, inclusive, to `bound`, exclusive."""

    def unique_id(self) -> str:
        """32 random hexadecimal digits, different in each call."""


class SystemRng:
    """The random numbers of the operating system and of Python."""

    def below(self, bound: int) -> int:
        """A random number from 0, inclusive, to `bound`, exclusive."""
        return random.randrange(bound)  # noqa: S311  # spreads load; guards nothing

    def unique_id(self) -> str:
        """32 random hexadecimal digits, different in each call."""
        return uuid.uuid4().hex
