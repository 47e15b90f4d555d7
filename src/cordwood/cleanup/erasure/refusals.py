"""Refusals of an erasure: partitions that were refused, and those with a legal hold."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final

from cordwood.model.hold import held_by
from cordwood.model.topic_partition import TopicPartition
from cordwood.storage.holds import HoldRegistry

#: Why nothing is erased of a topic with remote.storage.enable.
TIERED: Final = (
    "tiered storage is on: its records in remote storage cannot be reached, and an erasure of the "
    "local ones alone would not be whole"
)


def refused_by(holds: Sequence[str]) -> str | None:
    """Why nothing is erased of a partition with these legal holds; None if there is none."""
    if not holds:
        return None
    return f"{held_by(holds)}. Release it with `cordwood hold release` to erase its records"


class Refusals:
    """The refused partitions of an erasure in the log directories `homes`, each with the reason.

    `given_up` are the names of what was refused when it was in the plan already.
    """

    def __init__(self, holds: HoldRegistry, homes: Sequence[Path]) -> None:
        """Nothing is refused yet; a hold of `holds` counts from when it is there."""
        self._holds = holds
        self._homes = list(homes)
        self.partitions: dict[TopicPartition, str] = {}
        self.given_up: set[str] = set()

    def in_home(self, partition: TopicPartition, home: Path) -> str | None:
        """Why a legal hold forbids to erase what one of `homes` has of a partition, or None."""
        return refused_by(self._holds.ids(partition, home))

    def elsewhere(self, partition: TopicPartition) -> str | None:
        """Why nothing may be erased of a partition that is in none of `homes`, or None."""
        reasons = [self.partitions.get(partition)]
        reasons += [self.in_home(partition, home) for home in self._homes]
        return next((each for each in reasons if each is not None), None)
