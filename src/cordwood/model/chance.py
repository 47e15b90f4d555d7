"""Chance, passed in: the only module that draws lots for the storage layer."""

from __future__ import annotations

import random
import uuid
from typing import Protocol


class Chance(Protocol):
    """Where random choices come from."""

    def below(self, bound: int) -> int:
        """A number from 0 to `bound`, exclusive."""

    def unique_id(self) -> str:
        """32 hexadecimal digits that no other call gives."""


class SystemChance:
    """The machine's."""

    def below(self, bound: int) -> int:
        """A number from 0 to `bound`, exclusive."""
        return random.randrange(bound)  # noqa: S311  # spreads load; guards nothing

    def unique_id(self) -> str:
        """32 hexadecimal digits that no other call gives."""
        return uuid.uuid4().hex
