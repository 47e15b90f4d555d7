"""Judges a cluster soak: what was acknowledged or committed, and what readers find at the end."""

from __future__ import annotations

import enum
import json
import threading
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Final

_COMPLAINTS_MAX: Final = 20


class Outcome(enum.Enum):
    """Outcome of a transaction, as far as its producer knows."""

    OPEN = "open"
    UNKNOWN = "unknown"
    COMMITTED = "committed"
    ABORTED = "aborted"


class _Group:
    """Reports of the members of a group."""

    def __init__(self) -> None:
        self.accepted: dict[int, int] = {}
        self.read: dict[int, set[int]] = defaultdict(set)
        #: The offsets accepted when the newest owner of a partition got it, until its first read.
        self.expected: dict[int, int] = {}


class Judge:
    """Reports of the clients, from any thread."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self._lock = threading.Lock()
        self._acknowledged: dict[int, dict[int, int]] = defaultdict(dict)
        self._transactions: dict[int, tuple[int, Outcome]] = {}
        self._updates: dict[int, dict[bytes, tuple[int, bytes | None]]] = defaultdict(dict)
        self._groups: dict[str, _Group] = defaultdict(_Group)
        self._seen: list[str] = []

    # ---- what producers report

    def acknowledged(self, partition: int, offset: int, number: int) -> None:
        """A number was written at an offset, acks=all."""
        with self._lock:
            self.counts["acknowledged"] += 1
            self._acknowledged[partition][number] = offset

    def updated(self, partition: int, key: bytes, offset: int, value: bytes | None) -> None:
        """A key has got a value, or none, at an offset."""
        with self._lock:
            self.counts["updated"] += 1
            newest = self._updates[partition].get(key)
            if newest is not None and newest[0] >= offset:
                self._seen.append(
                    f"partition {partition}: {key!r} was acknowledged at {offset} after {newest[0]}"
                )
            self._updates[partition][key] = offset, value

    def refused(self, error: str) -> None:
        """A record was not written."""
        with self._lock:
            self.counts[f"refused: {error}"] += 1

    def begun(self, number: int, parts: int) -> None:
        """A transaction begins that writes one record to each of so many partitions."""
        with self._lock:
            self._transactions[number] = parts, Outcome.OPEN

    def ended(self, number: int, outcome: Outcome) -> None:
        """A transaction has ended; one that is committed may be UNKNOWN before."""
        with self._lock:
            parts, _ = self._transactions[number]
            self._transactions[number] = parts, outcome

    def replaced(self, error: str) -> None:
        """A transaction or its producer has failed."""
        with self._lock:
            self.counts[f"failed: {error}"] += 1

    # ---- what members of groups report

    def assigned(self, group: str, partition: int) -> None:
        """A member has got a partition, and does not yet know what is committed."""
        with self._lock:
            here = self._groups[group]
            here.expected[partition] = here.accepted.get(partition, 0)

    def read(self, group: str, partition: int, offset: int) -> None:
        """A member has read a record."""
        with self._lock:
            here = self._groups[group]
            expected = here.expected.pop(partition, 0)
            if offset < expected:
                self._seen.append(
                    f"{group}: partition {partition} is read from {offset}, and {expected} "
                    "was committed"
                )
            here.read[partition].add(offset)

    def committed(self, group: str, partition: int, offset: int) -> None:
        """A commit was accepted."""
        with self._lock:
            self.counts[f"committed by {group}"] += 1
            here = self._groups[group]
            here.accepted[partition] = max(offset, here.accepted.get(partition, 0))

    def not_committed(self, error: str) -> None:
        """A commit was refused, or there was nothing to commit."""
        with self._lock:
            self.counts[f"not committed: {error}"] += 1

    def outcomes(self) -> Counter[str]:
        """The number of transactions by outcome."""
        return Counter(outcome.value for _, outcome in self._transactions.values())

    def done(self) -> Counter[str]:
        """The counts, with the transactions that were committed as `transactions`."""
        with self._lock:
            committed = sum(
                outcome is Outcome.COMMITTED for _, outcome in self._transactions.values()
            )
            return Counter({**self.counts, "transactions": committed})

    # ---- the end

    def complaints(
        self,
        numbers: Mapping[int, Sequence[tuple[int, int]]],
        transactions: Mapping[int, Sequence[bytes]],
        updates: Mapping[int, Mapping[bytes, tuple[int, bytes | None]]],
    ) -> list[str]:
        """Faults of what was read.

        Args:
            numbers: offsets and numbers that are read from each partition, in their order.
            transactions: the values that a read_committed reader finds in each partition.
            updates: the newest offset and value of each key in each partition.
        """
        found = [
            *self._seen,
            *self._of_numbers(numbers),
            *self._of_groups(),
            *self._of_transactions(transactions),
            *self._of_updates(updates),
        ]
        return found[:_COMPLAINTS_MAX]

    def _of_groups(self) -> list[str]:
        """Each group has read all that was acknowledged."""
        found = []
        for name, group in self._groups.items():
            for partition, acknowledged in self._acknowledged.items():
                missing = set(acknowledged.values()) - group.read[partition]
                if missing:
                    found.append(
                        f"{name}: {len(missing)} records of partition {partition} were never read, "
                        f"the first at {min(missing)}"
                    )
        return found

    def _of_updates(
        self, read: Mapping[int, Mapping[bytes, tuple[int, bytes | None]]]
    ) -> list[str]:
        """The newest acknowledged value of each key is there, or one that was not acknowledged."""
        found = []
        for partition, acknowledged in self._updates.items():
            for key, newest in acknowledged.items():
                there = read.get(partition, {}).get(key)
                if (
                    there is None
                    or there[0] < newest[0]
                    or (there[0] == newest[0] and there != newest)
                ):
                    found.append(
                        f"partition {partition}: {key!r} has {there}, and {newest} was acknowledged"
                    )
        return found

    def _of_numbers(self, read: Mapping[int, Sequence[tuple[int, int]]]) -> list[str]:
        found = []
        for partition, acknowledged in self._acknowledged.items():
            there = {number: offset for offset, number in read.get(partition, ())}
            for number, offset in acknowledged.items():
                if there.get(number) != offset:
                    found.append(
                        f"partition {partition}: {number} was acknowledged at offset {offset}, and "
                        f"is at {there.get(number)}"
                    )
        for partition, rows in read.items():
            found += [
                f"partition {partition}: {number} at offset {offset} comes after {before}"
                for (_, before), (offset, number) in pairwise(rows)
                if number <= before
            ]
        return found

    def _of_transactions(self, read: Mapping[int, Sequence[bytes]]) -> list[str]:
        seen: Counter[tuple[int, int]] = Counter()
        for values in read.values():
            seen.update((number, partition) for number, partition in map(json.loads, values))
        found = [
            f"transaction {number}: {n} times in {p}" for (number, p), n in seen.items() if n > 1
        ]
        per_transaction = Counter(number for number, _ in seen)
        for number, (parts, outcome) in self._transactions.items():
            count = per_transaction[number]
            allowed = {
                Outcome.COMMITTED: {parts},
                Outcome.UNKNOWN: {0, parts},
            }.get(outcome, {0})
            if count not in allowed:
                found.append(
                    f"transaction {number} is {outcome.value}: {count} of {parts} records are read"
                )
        return found
