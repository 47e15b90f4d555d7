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
    """How a transaction has ended, as far as its producer knows."""

    OPEN = "open"
    UNKNOWN = "unknown"
    COMMITTED = "committed"
    ABORTED = "aborted"


class Judge:
    """What the producers report, from any thread."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self._lock = threading.Lock()
        self._acknowledged: dict[int, dict[int, int]] = defaultdict(dict)
        self._transactions: dict[int, tuple[int, Outcome]] = {}

    # ---- what producers report

    def acknowledged(self, partition: int, offset: int, number: int) -> None:
        """A number was written at an offset, acks=all."""
        with self._lock:
            self.counts["acknowledged"] += 1
            self._acknowledged[partition][number] = offset

    def refused(self, error: str) -> None:
        """A number was not written."""
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

    def outcomes(self) -> Counter[str]:
        """How many transactions have ended how."""
        return Counter(outcome.value for _, outcome in self._transactions.values())

    # ---- the end

    def complaints(
        self,
        numbers: Mapping[int, Sequence[tuple[int, int]]],
        transactions: Mapping[int, Sequence[bytes]],
    ) -> list[str]:
        """What is wrong.

        Args:
            numbers: offsets and numbers that are read from each partition, in their order.
            transactions: the values that a read_committed reader finds in each partition.
        """
        found = [*self._of_numbers(numbers), *self._of_transactions(transactions)]
        return found[:_COMPLAINTS_MAX]

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
