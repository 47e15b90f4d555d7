"""Producers of a cluster soak: one with idempotence, one with transactions; each in a thread."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Mapping
from typing import Any, Final

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from support.cluster_soak.judge import Judge, Outcome

_TIMEOUT_S: Final = 120.0
_PARTS: Final = 6
_PAUSE_S: Final = 0.02
_ABORTED: Final = 5
"""Each transaction with a number that this divides is aborted."""


class Writer:
    """A thread that writes until it is stopped; an error of its own is kept in `failure`."""

    def __init__(self, run: Callable[[threading.Event], None]) -> None:
        self.failure: BaseException | None = None
        self._stopping = threading.Event()
        self._run = run
        self._thread = threading.Thread(target=self._main)
        self._thread.start()

    def stop(self) -> None:
        """Returns when what it has begun has ended.

        Raises:
            BaseException: what has ended it before.
        """
        self._stopping.set()
        self._thread.join()
        if self.failure is not None:
            raise self.failure

    def _main(self) -> None:
        try:
            self._run(self._stopping)
        except BaseException as error:  # raised by `stop`
            self.failure = error


def idempotent(
    settings: Mapping[str, Any], topic: str, partitions: int, judge: Judge
) -> Callable[[threading.Event], None]:
    """Numbers in turn to each partition; each that is acknowledged is given to the judge."""

    def delivered(error: KafkaError | None, message: Message) -> None:
        if error is None:
            judge.acknowledged(message.partition(), message.offset(), int(message.value()))
        else:
            judge.refused(str(error))

    def run(stopping: threading.Event) -> None:
        producer = Producer({**settings, "acks": "all", "enable.idempotence": True, "linger.ms": 5})
        number = 0
        while not stopping.is_set():
            for _ in range(_PARTS * partitions):
                partition = number % partitions
                producer.produce(topic, b"%d" % number, partition=partition, on_delivery=delivered)
                number += 1
            producer.poll(_PAUSE_S)
            stopping.wait(_PAUSE_S)
        left = producer.flush(_TIMEOUT_S)
        assert left == 0, f"{left} records were neither written nor refused in {_TIMEOUT_S} s"

    return run


def transactional(
    settings: Mapping[str, Any], topic: str, partitions: int, judge: Judge
) -> Callable[[threading.Event], None]:
    """Transactions of some records over all partitions; some are aborted.

    A producer whose broker is killed may fail: another with its transactional id takes its place.
    """

    def run(stopping: threading.Event) -> None:
        number = 0
        while not stopping.is_set():
            producer = Producer({**settings, "transactional.id": "soak", "linger.ms": 5})
            try:
                producer.init_transactions(_TIMEOUT_S)
                while not stopping.is_set():
                    number += 1
                    _transaction(producer, topic, partitions, number, judge)
                    stopping.wait(_PAUSE_S)
            except KafkaException as error:
                judge.replaced(error.args[0].name())

    return run


def _transaction(
    producer: Producer, topic: str, partitions: int, number: int, judge: Judge
) -> None:
    judge.begun(number, partitions)
    try:
        producer.begin_transaction()
        for partition in range(partitions):
            producer.produce(topic, json.dumps([number, partition]).encode(), partition=partition)
            producer.poll(0)
        if number % _ABORTED == 0:
            producer.flush(_TIMEOUT_S)
            judge.ended(number, Outcome.ABORTED)
            producer.abort_transaction(_TIMEOUT_S)
            return
        judge.ended(number, Outcome.UNKNOWN)
        while True:
            try:
                producer.commit_transaction(_TIMEOUT_S)
            except KafkaException as error:
                if not error.args[0].retriable():
                    raise
            else:
                judge.ended(number, Outcome.COMMITTED)
                return
    except KafkaException as error:
        if not error.args[0].txn_requires_abort():
            raise
        producer.abort_transaction(_TIMEOUT_S)
        judge.ended(number, Outcome.ABORTED)
        judge.replaced(error.args[0].name())
