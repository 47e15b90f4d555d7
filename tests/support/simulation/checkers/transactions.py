"""read_committed is exact: committed transactions whole, aborted ones not at all, in order."""

from __future__ import annotations

from collections import defaultdict

from cordwood.model.topic_partition import TopicPartition
from support.simulation.events import (
    CommitAsked,
    Ended,
    Event,
    Healed,
    Read,
    ReadOn,
    Sent,
    TransactionEnded,
)
from support.simulation.history import ViolationError


class ReadCommitted:
    """Compares what read_committed readers see with what producers know of their transactions.

    All readers see the same values at the same offsets, and none is left out: what one reader has
    passed by, no other is given. In the end, a transaction whose commit was answered is there as a
    whole, one that was aborted is not, and another is there as a whole or not at all; it can only
    be there if its commit was asked for.
    """

    name = "read_committed"

    def __init__(self, final_reader: str) -> None:
        """`final_reader` is the one that reads everything in the end."""
        self._reader = final_reader
        self._values: dict[str, dict[bytes, TopicPartition]] = defaultdict(dict)
        self._transaction_of: dict[bytes, str] = {}
        self._outcomes: dict[str, bool | None] = {}
        self._asked: dict[str, None] = {}
        #: What is visible at each offset, and the offsets that a reader has passed by.
        self._visible: dict[TopicPartition, dict[int, bytes]] = defaultdict(dict)
        self._passed: dict[TopicPartition, int] = defaultdict(int)
        self._ends: dict[tuple[str, TopicPartition], int] = {}
        self._read: dict[tuple[str, TopicPartition], set[int]] = defaultdict(set)
        self._is_healed = False

    def take(self, event: Event) -> None:
        """Checks an event."""
        match event:
            case Sent() if event.transaction:
                for value in event.values:
                    self._values[event.transaction][value] = event.partition
                    self._transaction_of[value] = event.transaction
            case CommitAsked():
                self._asked[event.transaction] = None
            case TransactionEnded():
                self._outcomes[event.transaction] = event.is_committed
            case Read() if event.is_committed:
                self._take_read(event)
            case ReadOn() if event.is_committed:
                self._read_on(event)
            case Healed():
                self._is_healed = True
            case Ended():
                self._end()

    def _violation(self, text: str) -> ViolationError:
        return ViolationError(self.name, text)

    def _take_read(self, event: Read) -> None:
        transaction = self._transaction_of.get(event.value)
        if transaction is not None:
            if transaction not in self._asked:
                raise self._violation(
                    f"{event.reader} was given {event.value!r} of {transaction}, whose commit "
                    "nobody has asked for"
                )
            if self._outcomes.get(transaction) is False:
                raise self._violation(
                    f"{event.reader} was given {event.value!r} of {transaction}, which is aborted"
                )
        visible = self._visible[event.partition]
        if event.offset < self._passed[event.partition] and event.offset not in visible:
            raise self._violation(
                f"{event.reader} was given {event.value!r} at {event.offset} of "
                f"{event.partition}, which another reader was not"
            )
        known = visible.setdefault(event.offset, event.value)
        if known != event.value:
            raise self._violation(
                f"{event.reader} was given {event.value!r} at {event.offset} of "
                f"{event.partition}, and another reader {known!r}"
            )
        self._read[event.reader, event.partition].add(event.offset)

    def _read_on(self, event: ReadOn) -> None:
        key = event.reader, event.partition
        begin = self._ends.get(key, 0)
        mine = self._read[key]
        for offset in self._visible[event.partition]:
            if begin <= offset < event.end and offset not in mine:
                raise self._violation(
                    f"{event.reader} was not given offset {offset} of {event.partition}, which "
                    "another reader was"
                )
        self._ends[key] = event.end
        self._passed[event.partition] = max(self._passed[event.partition], event.end)

    def _end(self) -> None:
        visible = {value for values in self._visible.values() for value in values.values()}
        for transaction, values in self._values.items():
            there = [value for value in values if value in visible]
            outcome = self._outcomes.get(transaction)
            if outcome and len(there) < len(values):
                raise self._violation(
                    f"{transaction} is committed, and of its {len(values)} values "
                    f"{sorted(values.keys() - set(there))} are missing"
                )
            if outcome is False and there:
                raise self._violation(f"{transaction} is aborted, and {there} are there")
            if there and len(there) < len(values):
                raise self._violation(f"of {transaction}, only {there} are there")
