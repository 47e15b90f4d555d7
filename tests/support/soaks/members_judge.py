"""Judges what members of groups report: owners of partitions, and committed offsets."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from math import inf
from typing import NamedTuple

_COMPLAINTS_MAX = 20
#: How much later than the broker a client may note that a commit was accepted.
_LATE_S = 1.0
#: Until when a client without an answer has to give up a request: socket.timeout.ms.
_REQUEST_S = 60.0


class Place(NamedTuple):
    """A partition for a group."""

    group: str
    partition: int


class Report(NamedTuple):
    """A line of `support.soaks.members`."""

    kind: str
    at_s: float
    group: str
    partition: int
    offset: int


class Commit(NamedTuple):
    """Accepted commit of an offset of a worker's member."""

    at_s: float
    offset: int
    worker: int


@dataclass(slots=True)
class Owning:
    """Ownership of a partition by a worker's member; `until_s` None while it lasts.

    If it is lost, the broker may have removed the member before, for its session has timed out.
    `leaving_s` is when the member began to leave its group.
    """

    worker: int
    since_s: float
    until_s: float | None = None
    is_lost: bool = False
    leaving_s: float | None = None


@dataclass(slots=True)
class Judge:
    """All reports, in the order of each worker's own.

    Reports of different workers may come late: they are judged at the end, by their times.
    """

    session_s: float
    rebalance_s: float
    counts: Counter[str] = field(default_factory=Counter)
    owned: dict[Place, list[Owning]] = field(default_factory=lambda: defaultdict(list))
    committed: dict[Place, list[Commit]] = field(default_factory=lambda: defaultdict(list))
    read: dict[Place, list[tuple[float, int]]] = field(default_factory=lambda: defaultdict(list))
    leaving_s: dict[tuple[int, str], float] = field(default_factory=dict)
    """When members that are about to leave have begun to, by worker and group."""
    served_since_s: float = inf
    """When the broker has begun to serve; infinite while it is away."""

    def take(self, worker: int, report: Report) -> None:
        """Takes a report of a worker."""
        kind = report.kind
        if kind == "stuck" and report.at_s < self.served_since_s + _REQUEST_S:
            kind = "stuck without a broker"
        self.counts[kind] += 1
        place = Place(report.group, report.partition)
        if report.kind == "assigned":
            leaving_s = self.leaving_s.get((worker, report.group))
            self.owned[place].append(Owning(worker, report.at_s, leaving_s=leaving_s))
        elif report.kind == "leaving":
            self._leave(worker, report)
        elif report.kind == "left":
            del self.leaving_s[worker, report.group]
        elif report.kind in {"released", "lost"}:
            self._release(place, worker, report.at_s, is_lost=report.kind == "lost")
        elif report.kind == "committed":
            self.committed[place].append(Commit(report.at_s, report.offset, worker))
        elif report.kind == "read":
            self.read[place].append((report.at_s, report.offset))

    def end_worker(self, worker: int, at_s: float) -> None:
        """All that a worker still had is lost: it was killed, or ended without the broker."""
        for place in self.owned:
            self._release(place, worker, at_s, is_lost=True)

    def _leave(self, worker: int, report: Report) -> None:
        self.leaving_s[worker, report.group] = report.at_s
        for place, ownings in self.owned.items():
            for owning in ownings:
                if place.group == report.group and owning.worker == worker:
                    owning.leaving_s = owning.leaving_s or report.at_s

    def _release(self, place: Place, worker: int, at_s: float, *, is_lost: bool) -> None:
        for owning in self.owned[place]:
            if owning.worker == worker and owning.until_s is None:
                owning.until_s = at_s
                owning.is_lost = is_lost

    def owners(self, groups: int, partitions: int) -> dict[Place, int]:
        """The number of members that have each partition now."""
        return {
            (place := Place(f"group-{group}", partition)): sum(
                owning.until_s is None for owning in self.owned.get(place, [])
            )
            for group in range(groups)
            for partition in range(partitions)
        }

    def committing_since(self, at_s: float) -> set[str]:
        """The groups of which a commit was accepted since then."""
        return {
            place.group
            for place, commits in self.committed.items()
            if commits and commits[-1].at_s >= at_s
        }

    def complaints(self, last: Mapping[Place, int]) -> list[str]:
        """Faults; `last` are the offsets that are committed at the end."""
        found = []
        for place, ownings in self.owned.items():
            ordered = sorted(ownings, key=lambda each: each.since_s)
            for one, other in pairwise(ordered):
                overlaps = one.until_s is None or one.until_s > other.since_s
                may_be_late = (
                    self._has_timed_out(place, one, other)
                    or self._has_not_revoked(place, one, other)
                    or self._has_left(place, one, other)
                )
                if overlaps and not may_be_late:
                    found.append(f"{place} has two owners: {one}, {other}")
        for place, commits in self.committed.items():
            for asked_s, offset in self.read.get(place, []):
                before = max((each.offset for each in commits if each.at_s < asked_s), default=-1)
                if offset < before:
                    found.append(f"{place}: {before} was committed, then {offset} was read")
            most = max(each.offset for each in commits)
            if last.get(place, -1) < most:
                found.append(f"{place}: {most} was committed, {last.get(place)} is there at last")
        return found[:_COMPLAINTS_MAX]

    def _has_timed_out(self, place: Place, one: Owning, other: Owning) -> bool:
        """Whether an owner had been silent for a session timeout when the next one came.

        It does not know that, for the broker does not reach it; it may close itself before it
        notices. None of its commits is accepted any more.
        """
        if one.until_s is None:
            return False
        accepted_s = [
            each.at_s
            for each in self.committed.get(place, [])
            if each.worker == one.worker and one.since_s <= each.at_s < (one.until_s or inf)
        ]
        last_s = max(accepted_s, default=one.since_s)
        return other.since_s >= last_s + self.session_s - _LATE_S

    def _has_not_revoked(self, place: Place, one: Owning, other: Owning) -> bool:
        """Whether an owner may have been removed because it did not revoke within its time for it.

        The coordinator then gives its partitions away, and the next heartbeat says so. None of its
        commits is accepted any more.
        """
        return (
            one.is_lost
            and other.since_s >= one.since_s + self.rebalance_s - _LATE_S
            and not self._commits_beside(place, one, other)
        )

    def _has_left(self, place: Place, one: Owning, other: Owning) -> bool:
        """Whether an owner had begun to leave, and its client then hung until it was killed.

        It does not say what it releases, though the broker knows that it has left.
        """
        return (
            one.is_lost
            and one.leaving_s is not None
            and other.since_s >= one.leaving_s
            and not self._commits_beside(place, one, other)
        )

    def _commits_beside(self, place: Place, one: Owning, other: Owning) -> bool:
        """Whether a commit of `one` was accepted while `other` owned the partition."""
        return any(
            each.worker == one.worker and other.since_s <= each.at_s < (one.until_s or inf)
            for each in self.committed.get(place, [])
        )
