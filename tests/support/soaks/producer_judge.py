"""Judges transactions by what producers report, and by what read_committed readers see of them.

A transaction is committed if EndTxn was answered, or if the producer's next incarnation has found
that the offset it sent is the group's. Until then its outcome is open: whole or nothing is right.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import NamedTuple

_COMPLAINTS_MAX = 20
NO_OFFSET = -1


class Transaction(NamedTuple):
    """The n-th transaction of a producer; `number` is also the offset that it commits."""

    producer: str
    number: int


class Plan(NamedTuple):
    """Writes of a transaction: so many records in each partition, and a record of each key."""

    counts: Mapping[int, int]
    keys: Sequence[int]


class Seen(NamedTuple):
    """A record that a reader has seen: the `position`-th of a transaction in its partition."""

    producer: str
    number: int
    position: int


class Row(NamedTuple):
    """A record of the compacted topic: of a key, which belongs to its producer alone."""

    producer: str
    key: int
    number: int


class Report(NamedTuple):
    """A line of `support.soaks.producer`.

    `begin` comes before the first record of a transaction, `committing` before its commit is asked
    for, `committed` and `aborted` when its end is answered, `found` with the committed offset that
    a new incarnation has found.
    """

    kind: str
    producer: str
    number: int
    plan: Plan | None = None


@dataclass(slots=True)
class Judge:
    """All reports, in the order of each producer's own."""

    plans: dict[Transaction, Plan] = field(default_factory=dict)
    outcomes: dict[Transaction, bool] = field(default_factory=dict)
    open: dict[str, Transaction] = field(default_factory=dict)
    counts: Counter[str] = field(default_factory=Counter)
    _found: list[str] = field(default_factory=list)

    def take(self, report: Report) -> None:
        """Takes a report."""
        self.counts[report.kind] += 1
        transaction = Transaction(report.producer, report.number)
        if report.kind == "begin":
            assert report.plan is not None, report
            assert report.producer not in self.open, "its last outcome is not known"
            self.plans[transaction] = report.plan
            self.open[report.producer] = transaction
        elif report.kind == "found":
            self._take_offset(report.producer, report.number)
        elif report.kind in {"committed", "aborted"}:
            del self.open[report.producer]
            self.outcomes[transaction] = report.kind == "committed"

    def _take_offset(self, producer: str, offset: int) -> None:
        """A group's committed offset says how the producer's open transaction has ended."""
        last = max(
            (
                each.number
                for each, is_committed in self.outcomes.items()
                if is_committed and each.producer == producer
            ),
            default=NO_OFFSET,
        )
        current = self.open.pop(producer, None)
        if current is not None:
            self.outcomes[current] = offset == current.number
            self.counts["found committed" if offset == current.number else "found aborted"] += 1
            if offset == current.number:
                return
        if offset != last:
            self._found.append(f"{producer}: the group has offset {offset}, not {last}")

    def complaints(
        self,
        read: Mapping[int, Sequence[Seen]],
        table: Sequence[Row],
        offsets: Mapping[str, int],
    ) -> list[str]:
        """Faults of what was read.

        Args:
            read: the records of each partition, in order.
            table: those of the compacted topic, in the order of each key's own.
            offsets: the groups' offsets by producer; `NO_OFFSET` for none.
        """
        for producer, offset in offsets.items():
            self._take_offset(producer, offset)
        found = [*self._found]
        for partition, records in read.items():
            found += self._of_partition(partition, records)
        found += self._of_table(table)
        return found[:_COMPLAINTS_MAX]

    def _of_partition(self, partition: int, records: Sequence[Seen]) -> Iterable[str]:
        seen: dict[Transaction, list[int]] = defaultdict(list)
        of_producer: dict[str, list[Seen]] = defaultdict(list)
        for record in records:
            seen[Transaction(record.producer, record.number)].append(record.position)
            of_producer[record.producer].append(record)
        for transaction, positions in seen.items():
            if not self.outcomes.get(transaction, False):
                yield f"partition {partition}: {transaction} is not committed, and can be read"
            if len(set(positions)) < len(positions):
                yield f"partition {partition}: {transaction} is there twice"
        for ordered in of_producer.values():
            for one, other in pairwise(ordered):
                if one > other:
                    yield f"partition {partition}: {other} comes after {one}"
        for transaction, is_committed in self.outcomes.items():
            count = self.plans[transaction].counts.get(partition, 0)
            if is_committed and set(seen[transaction]) != set(range(count)):
                there = sorted(seen[transaction])
                yield f"partition {partition}: {transaction} has {there} of {count} records"

    def _of_table(self, table: Sequence[Row]) -> Iterable[str]:
        newest: dict[tuple[str, int], int] = {}
        for transaction, is_committed in self.outcomes.items():
            for key in self.plans[transaction].keys if is_committed else ():
                place = transaction.producer, key
                newest[place] = max(newest.get(place, 0), transaction.number)
        there: dict[tuple[str, int], list[int]] = defaultdict(list)
        for row in table:
            there[row.producer, row.key].append(row.number)
            if not self.outcomes.get(Transaction(row.producer, row.number), False):
                yield f"the table has {row}, which is not committed"
        for place in newest.keys() | there.keys():
            numbers = there[place]
            if sorted(set(numbers)) != numbers:
                yield f"the table has {numbers} of {place}, in this order"
            if numbers[-1:] != [newest.get(place)]:
                yield f"the table has {numbers} of {place}, whose last is {newest.get(place)}"
