"""A producer with a transactional id, as a program that can be killed; it reports in lines of JSON.

usage: python -m support.soaks.producer BOOTSTRAP ID FIRST SEED

A line is `[kind, number, [[partition, count], ...], [key, ...]]`, as a
`support.soaks.producer_judge.Report`. Numbers of transactions begin with FIRST. SIGTERM ends it
after a transaction.
"""

from __future__ import annotations

import json
import random
import signal
import sys
import time
from collections.abc import Callable
from typing import Final

from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition

from support.soaks.producer_judge import NO_OFFSET

DATA: Final = "data"
TABLE: Final = "table"
PARTITIONS: Final = 4
KEYS: Final = 5
_COUNT_MAX = 4
_ABORTED = 0.25
_WAIT_S = 5.0
_PAUSE_S = 0.01
_ANSWER_S = 1.0


class FatalError(Exception):
    """The producer cannot continue; the outcome of its transaction is open."""


class TransactionalProducer:
    """Transactions one after another, each over some partitions, keys, and the group's offset."""

    def __init__(self, servers: str, name: str, first: int, seed: int) -> None:
        self.is_stopped = False
        self._has_forgotten = False
        self._name = name
        self._number = first
        self._random = random.Random(seed)  # noqa: S311  # a schedule
        quiet = {"bootstrap.servers": servers, "log_level": 0, "reconnect.backoff.max.ms": 200}
        self._producer = Producer(
            {**quiet, "transactional.id": name, "transaction.timeout.ms": 60_000, "linger.ms": 0}
        )
        self._consumer = Consumer({**quiet, "group.id": name, "enable.auto.commit": False})

    def run(self) -> None:
        """Aborts what was open, reports the group's offset, and works until it is stopped.

        Records of an aborted transaction that were sent, and for which no broker has answered, are
        forgotten by librdkafka 2.16, which gives their sequence numbers to the next ones with the
        same epoch. A partition that has the first ones takes as many new ones for duplicates, as
        Kafka does. So after such a transaction the process ends: the next one has another epoch.
        """
        self._insist(self._producer.init_transactions)
        report("found", self._committed())
        while not self.is_stopped:
            self._transaction()
            if self._has_forgotten:
                return
            self._number += 1
            time.sleep(_PAUSE_S)

    def stop(self, _number: int, _frame: object) -> None:
        """Handles a signal: the producer stops."""
        self.is_stopped = True

    def _committed(self) -> int:
        while True:
            try:
                (found,) = self._consumer.committed([TopicPartition(DATA, 0)], timeout=_WAIT_S)
            except KafkaException:
                continue  # the broker is away, or the groups are not loaded
            if found.error is None:
                return max(int(found.offset), NO_OFFSET)

    def _transaction(self) -> None:
        partitions = self._random.sample(range(PARTITIONS), self._random.randint(1, PARTITIONS))
        counts = [[each, self._random.randint(1, _COUNT_MAX)] for each in partitions]
        keys = self._random.sample(range(KEYS), self._random.randint(0, 2))
        aborts = self._random.random() < _ABORTED
        report("begin", self._number, counts, keys)
        try:
            self._fill(counts, keys)
            if not aborts:
                report("committing", self._number)
                self._insist(self._producer.commit_transaction)
                report("committed", self._number)
                return
        except KafkaException as error:
            if not error.args[0].txn_requires_abort():
                raise FatalError(str(error)) from error
        self._has_forgotten = self._producer.flush(_ANSWER_S) > 0
        self._insist(self._producer.abort_transaction)
        report("aborted", self._number)

    def _fill(self, counts: list[list[int]], keys: list[int]) -> None:
        self._producer.begin_transaction()
        for partition, count in counts:
            for index in range(count):
                value = json.dumps([self._name, self._number, index]).encode()
                self._producer.produce(DATA, value, partition=partition)
        for key in keys:
            value = json.dumps([self._name, key, self._number]).encode()
            self._producer.produce(TABLE, value, f"{self._name}-{key}", partition=0)
        position = TopicPartition(DATA, 0, self._number)
        group = self._consumer.consumer_group_metadata()
        self._insist(lambda wait_s: self._send_offsets(position, group, wait_s))

    def _send_offsets(self, position: TopicPartition, group: object, wait_s: float) -> None:
        self._producer.send_offsets_to_transaction([position], group, wait_s)

    def _insist(self, call: Callable[[float], object]) -> None:
        """Calls again what can be tried again; raises KafkaException."""
        while True:
            try:
                call(_WAIT_S)
            except KafkaException as error:
                if not error.args[0].retriable():
                    raise
            else:
                return


def report(
    kind: str, number: int, counts: list[list[int]] | None = None, keys: list[int] | None = None
) -> None:
    """Prints a line."""
    print(json.dumps([kind, number, counts or [], keys or []]), flush=True)  # noqa: T201  # read


def main() -> None:
    """Runs until SIGTERM."""
    servers, name, first, seed = sys.argv[1:]
    producer = TransactionalProducer(servers, name, int(first), int(seed))
    signal.signal(signal.SIGTERM, producer.stop)
    producer.run()


if __name__ == "__main__":
    main()
