"""A consumer group whose members come, leave and are killed, and what it must hold to."""

from __future__ import annotations

import random
import threading
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from support.soaks.ledger import COMPLAINTS_MAX, Place
from support.soaks.process import ReportingProcess

Range = tuple[int, int]
"""First offset, and one past the last."""

_STOP_S = 60.0


class Group:
    """Keeps a number of members running, and collects what they report."""

    def __init__(
        self,
        name: str,
        bootstrap_servers: str,
        topics: Sequence[str],
        *,
        members: int,
        contiguous: bool,
        protocol: str = "classic",
    ) -> None:
        """Starts the members.

        Args:
            name: the group's id.
            bootstrap_servers: of the broker.
            topics: subscribed to.
            members: how many.
            contiguous: no offset of the topics is ever removed, so that each must be read.
            protocol: as `group.protocol` of librdkafka.
        """
        self.name = name
        self.commits = 0
        """The number of times that the broker has accepted offsets."""
        self._processed: dict[Place, list[Range]] = defaultdict(list)
        self._committed: dict[Place, list[tuple[float, int]]] = defaultdict(list)
        self._found: list[tuple[float, Place, int]] = []
        self._complaints: list[str] = []
        self._contiguous = contiguous
        self._arguments = [bootstrap_servers, name, protocol, *topics]
        self._lock = threading.Lock()
        self._members = [self._start() for _ in range(members)]

    def kill_one(self, rng: random.Random) -> None:
        """Kills a member, and starts another."""
        self._replace(rng, ReportingProcess.kill)

    def stop_one(self, rng: random.Random) -> None:
        """Stops a member in order, so that it leaves the group, and starts another."""
        self._replace(rng, ReportingProcess.stop)

    def stop(self) -> None:
        """Stops all members, and waits until all that they reported has been read."""
        for member in self._members:
            member.stop()
        self._members = []

    def has_read(self, ends: Mapping[Place, int]) -> bool:
        """Whether every offset below these has been processed by some member."""
        with self._lock:
            return all(
                next(iter(_gaps(self._processed[place], end)), None) is None
                for place, end in ends.items()
            )

    def complaints(self, ends: Mapping[Place, int], committed: Mapping[Place, int]) -> list[str]:
        """Faults of the group at the end, once it was stopped.

        Args:
            ends: log end offsets of the topics of which every record must have been processed.
            committed: the group's offsets as the broker has them at last.
        """
        found = list(self._complaints)
        for place, end in ends.items():
            for first, last in _gaps(self._processed[place], end):
                found.append(f"{place.topic}-{place.partition}: {first} to {last} were not read")
        for asked_s, place, offset in self._found:
            before = max(
                (most for at_s, most in self._committed[place] if at_s < asked_s), default=offset
            )
            if offset < before:
                found.append(f"{place}: {before} went back to {offset}")
        for place, commits in self._committed.items():
            most = max((offset for _, offset in commits), default=-1)
            if committed.get(place, -1) < most:
                found.append(
                    f"{place.topic}-{place.partition}: offset {most} was committed, and "
                    f"{committed.get(place)} is there"
                )
        return [f"group {self.name}: {each}" for each in found[:COMPLAINTS_MAX]]

    def take(self, report: Any) -> None:
        """Takes a line of a member, as `group_member` describes it."""
        kind, at_s, rows = report
        with self._lock:
            for topic, partition, *offsets in rows:
                self._take_row(kind, at_s, Place(topic, partition), offsets)
            self.commits += kind == "committed" and bool(rows)

    def _start(self) -> ReportingProcess:
        return ReportingProcess(
            "support.soaks.group_member", self._arguments, self.take, wait_s=_STOP_S
        )

    def _replace(self, rng: random.Random, end: Callable[[ReportingProcess], None]) -> None:
        index = rng.randrange(len(self._members))
        end(self._members[index])
        self._members[index] = self._start()

    def _take_row(self, kind: str, at_s: float, place: Place, rest: list[int]) -> None:
        if kind == "processed":
            self._processed[place].append((rest[0], rest[1]))
        elif kind == "committed":
            self._committed[place].append((at_s, rest[0]))
        elif kind == "assigned":
            self._found.append((at_s, place, rest[0]))
        elif kind == "unsound" or self._contiguous:
            self._complaints.append(f"{place}: {kind} at {rest}")


def _gaps(ranges: Iterable[Range], end: int) -> list[Range]:
    """The offsets from 0 to `end` that no range covers."""
    found = []
    reached = 0
    for first, last in sorted(ranges):
        if first > reached:
            found.append((reached, min(first, end)))
        reached = max(reached, last)
        if reached >= end:
            return found
    if reached < end:
        found.append((reached, end))
    return found
