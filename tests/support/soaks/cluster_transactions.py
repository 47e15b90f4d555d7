"""Transactions over all partitions of a topic, in a thread, and what a reader may see of them."""

from __future__ import annotations

import enum
import json
import threading
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, Final

from confluent_kafka import KafkaException, Producer

_COMPLAINTS_MAX: Final = 20
_TIMEOUT_S: Final = 120.0
_PAUSE_S: Final = 0.02
_ABORTED: Final = 5
"""Each transaction with a number that this divides is aborted."""


class Outcome(enum.Enum):
    """The end of a transaction, as far as its producer knows."""

    OPEN = "open"
    UNKNOWN = "unknown"
    COMMITTED = "committed"
    ABORTED = "aborted"


class Transactions:
    """The outcomes of numbered transactions, each of one record to each of `partitions`."""

    def __init__(self, partitions: int) -> None:
        self.partitions = partitions
        self.outcomes: dict[int, Outcome] = {}
        self.failures: Counter[str] = Counter()

    def count(self, outcome: Outcome) -> int:
        """The number of transactions that have ended so."""
        return Counter(list(self.outcomes.values()))[outcome]

    def summary(self) -> Counter[str]:
        """Counts of the ends of transactions, and of the errors of their producers."""
        return Counter(each.value for each in self.outcomes.values()) + self.failures

    def complaints(self, read: Mapping[int, Sequence[bytes]]) -> list[str]:
        """Complaints about the values that a read_committed reader gets of each partition."""
        seen: Counter[tuple[int, int]] = Counter()
        for values in read.values():
            seen.update((number, partition) for number, partition in map(json.loads, values))
        found = [
            f"transaction {number}: {n} times in {p}" for (number, p), n in seen.items() if n > 1
        ]
        per_transaction = Counter(number for number, _ in seen)
        for number, outcome in self.outcomes.items():
            count = per_transaction[number]
            allowed = {
                Outcome.COMMITTED: {self.partitions},
                Outcome.UNKNOWN: {0, self.partitions},
            }.get(outcome, {0})
            if count not in allowed:
                found.append(
                    f"transaction {number} is {outcome.value}: "
                    f"{count} of {self.partitions} records are read"
                )
        return found[:_COMPLAINTS_MAX]


class TransactionalWriter:
    """Runs transactions in a thread; some are aborted.

    A producer whose broker is killed may fail: another with its transactional id takes its place.
    """

    def __init__(self, settings: Mapping[str, Any], topic: str, transactions: Transactions) -> None:
        """Starts it; `settings` are those of a client."""
        self._settings = {**settings, "transactional.id": "soak", "linger.ms": 5}
        self._topic = topic
        self._transactions = transactions
        self._stop = threading.Event()
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def stop(self) -> None:
        """Returns when the transaction that is open has ended.

        Raises:
            BaseException: what has ended the thread before.
        """
        self._stop.set()
        self._thread.join()
        if self._failure is not None:
            raise self._failure

    def _run(self) -> None:
        number = 0
        try:
            while not self._stop.is_set():
                producer = Producer(self._settings)
                try:
                    producer.init_transactions(_TIMEOUT_S)
                    while not self._stop.wait(_PAUSE_S):
                        number += 1
                        self._transaction(producer, number)
                except KafkaException as error:
                    self._transactions.failures[error.args[0].name()] += 1
        except BaseException as error:  # raised by `stop`
            self._failure = error

    def _transaction(self, producer: Producer, number: int) -> None:
        outcomes = self._transactions.outcomes
        outcomes[number] = Outcome.OPEN
        try:
            producer.begin_transaction()
            for partition in range(self._transactions.partitions):
                value = json.dumps([number, partition]).encode()
                producer.produce(self._topic, value, partition=partition)
                producer.poll(0)
            if number % _ABORTED == 0:
                producer.flush(_TIMEOUT_S)
                outcomes[number] = Outcome.ABORTED
                producer.abort_transaction(_TIMEOUT_S)
                return
            outcomes[number] = Outcome.UNKNOWN
            self._commit(producer)
            outcomes[number] = Outcome.COMMITTED
        except KafkaException as error:
            if not error.args[0].txn_requires_abort():
                raise
            producer.abort_transaction(_TIMEOUT_S)
            outcomes[number] = Outcome.ABORTED
            self._transactions.failures[error.args[0].name()] += 1

    def _commit(self, producer: Producer) -> None:
        while True:
            try:
                producer.commit_transaction(_TIMEOUT_S)
            except KafkaException as error:
                if not error.args[0].retriable():
                    raise
            else:
                return
