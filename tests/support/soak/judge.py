"""Judges what members of groups report: owners of partitions, and committed offsets."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from typing import NamedTuple

_COMPLAINTS_MAX = 20


class Place(NamedTuple):
    """A partition for a group."""

    group: str
    partition: int


class Report(NamedTuple):
    """A line of `support.soak.members`."""

    kind: str
    at_s: float
    group: str
    partition: int
    offset: int


@dataclass(slots=True)
class Owning:
    """That a worker's member has a partition; `until_s` None while it has."""

    worker: int
    since_s: float
    until_s: float | None = None


@dataclass(slots=True)
class Judge:
    """All reports, in the order of each worker's own.

    Reports of different workers may come late: they are judged at the end, by their times.
    """

    counts: Counter[str] = field(default_factory=Counter)
    owned: dict[Place, list[Owning]] = field(default_factory=lambda: defaultdict(list))
    committed: dict[Place, list[tuple[float, int]]] = field(
        default_factory=lambda: defaultdict(list)
    )
    read: dict[Place, list[tuple[float, int]]] = field(default_factory=lambda: defaultdict(list))

    def take(self, worker: int, report: Report) -> None:
        """Takes a report of a worker."""
        self.counts[report.kind] += 1
        place = Place(report.group, report.partition)
        if report.kind == "assigned":
            self.owned[place].append(Owning(worker, report.at_s))
        elif report.kind == "released":
            self._release(place, worker, report.at_s)
        elif report.kind == "committed":
            self.committed[place].append((report.at_s, report.offset))
        elif report.kind == "read":
            self.read[place].append((report.at_s, report.offset))

    def end_worker(self, worker: int, at_s: float) -> None:
        """All that a worker had is released: it was killed."""
        for place in self.owned:
            self._release(place, worker, at_s)

    def _release(self, place: Place, worker: int, at_s: float) -> None:
        for owning in self.owned[place]:
            if owning.worker == worker and owning.until_s is None:
                owning.until_s = at_s

    def owners(self, groups: int, partitions: int) -> dict[Place, int]:
        """How many members have each partition now."""
        return {
            (place := Place(f"group-{group}", partition)): sum(
                owning.until_s is None for owning in self.owned.get(place, [])
            )
            for group in range(groups)
            for partition in range(partitions)
        }

    def complaints(self, last: Mapping[Place, int]) -> list[str]:
        """What is wrong; `last` are the offsets that are committed at the end."""
        found = []
        for place, ownings in self.owned.items():
            ordered = sorted(ownings, key=lambda each: each.since_s)
            for one, other in pairwise(ordered):
                if one.until_s is None or one.until_s > other.since_s:
                    found.append(f"{place} has two owners: {one}, {other}")
        for place, commits in self.committed.items():
            for asked_s, offset in self.read.get(place, []):
                before = max((each for at_s, each in commits if at_s < asked_s), default=-1)
                if offset < before:
                    found.append(f"{place}: {before} was committed, then {offset} was read")
            most = max(offset for _, offset in commits)
            if last.get(place, -1) < most:
                found.append(f"{place}: {most} was committed, {last.get(place)} is there at last")
        return found[:_COMPLAINTS_MAX]
