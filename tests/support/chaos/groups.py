"""A consumer group whose members come, leave and are killed, and what it must hold to."""

from __future__ import annotations

import json
import random
import signal
import subprocess
import sys
import threading
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence

from support.chaos.ledger import COMPLAINTS_MAX, Place

Rows = list[list[str | int]]
Take = Callable[[str, Rows], None]
"""Takes the kind and the rows of a report."""
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
    ) -> None:
        """Starts the members.

        Args:
            name: the group's id.
            bootstrap_servers: of the broker.
            topics: subscribed to.
            members: how many.
            contiguous: no offset of the topics is ever removed, so that each must be read.
        """
        self.name = name
        self.committed: dict[Place, int] = {}
        self.kills = 0
        self._processed: dict[Place, list[Range]] = defaultdict(list)
        self._complaints: list[str] = []
        self._contiguous = contiguous
        self._command = [sys.executable, "-m", "support.chaos.group_member"]
        self._command += [bootstrap_servers, name, *topics]
        self._lock = threading.Lock()
        self._members = [self._start() for _ in range(members)]

    def kill_one(self, rng: random.Random) -> None:
        """Kills a member, and starts another."""
        self._replace(rng, signal.SIGKILL)
        self.kills += 1

    def stop_one(self, rng: random.Random) -> None:
        """Stops a member in order, so that it leaves the group, and starts another."""
        self._replace(rng, signal.SIGTERM)

    def stop(self) -> None:
        """Stops all members, and waits until all that they reported has been read."""
        for member in self._members:
            member.end(signal.SIGTERM)
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
        for place, offset in self.committed.items():
            if committed.get(place, -1) < offset:
                found.append(
                    f"{place.topic}-{place.partition}: offset {offset} was committed, and "
                    f"{committed.get(place)} is there"
                )
        return [f"group {self.name}: {each}" for each in found[:COMPLAINTS_MAX]]

    def take(self, kind: str, rows: Rows, known: Mapping[Place, int]) -> None:
        """Takes a member's report.

        Args:
            kind: as in `group_member`.
            rows: topic, partition, and one or two offsets.
            known: the offsets that were committed before that member was started.
        """
        with self._lock:
            for topic, partition, *offsets in rows:
                place = Place(str(topic), int(partition))
                self._take_row(kind, place, [int(each) for each in offsets], known)

    def _start(self) -> _Process:
        with self._lock:
            known = dict(self.committed)
        return _Process(self._command, lambda kind, rows: self.take(kind, rows, known))

    def _replace(self, rng: random.Random, number: signal.Signals) -> None:
        index = rng.randrange(len(self._members))
        self._members[index].end(number)
        self._members[index] = self._start()

    def _take_row(
        self, kind: str, place: Place, rest: list[int], known: Mapping[Place, int]
    ) -> None:
        if kind == "processed":
            self._processed[place].append((rest[0], rest[1]))
        elif kind == "committed":
            self.committed[place] = max(self.committed.get(place, 0), rest[0])
        elif kind == "assigned":
            # Members that started later may be behind: compared is what was known before this one.
            if place in known and rest[0] < known[place]:
                self._complaints.append(f"{place}: {known[place]} went back to {rest[0]}")
        elif kind == "unsound" or self._contiguous:
            self._complaints.append(f"{place}: {kind} at {rest}")


class _Process:
    """A member's process, and a thread that reads what it reports."""

    def __init__(self, command: Sequence[str], take: Take) -> None:
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        self._take = take
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def end(self, number: signal.Signals) -> None:
        self._process.send_signal(number)
        try:
            self._process.wait(_STOP_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._thread.join(_STOP_S)

    def _read(self) -> None:
        assert self._process.stdout is not None
        with self._process.stdout as lines:
            for line in lines:
                if line.endswith("\n"):  # else it was killed in the middle of it
                    for kind, rows in json.loads(line).items():
                        self._take(kind, rows)


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
