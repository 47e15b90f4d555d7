"""Producers of a cluster soak: with idempotence, with keys, and with transactions."""

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
_KEYS: Final = 60
_TOMBSTONE: Final = 7
"""Each record of the producer with keys with a number that this divides has no value."""
_ABORTED: Final = 5
"""Each transaction with a number that this divides is aborted."""


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


def keyed(
    settings: Mapping[str, Any], topic: str, partitions: int, judge: Judge
) -> Callable[[threading.Event], None]:
    """Newer and newer values of a few keys, and tombstones; a key is always in one partition."""

    def run(stopping: threading.Event) -> None:
        producer = Producer({**settings, "acks": "all", "enable.idempotence": True, "linger.ms": 5})
        number = 0
        while not stopping.is_set():
            for _ in range(_PARTS * partitions):
                number += 1
                _update(producer, topic, partitions, number, judge)
            producer.poll(_PAUSE_S)
            stopping.wait(_PAUSE_S)
        left = producer.flush(_TIMEOUT_S)
        assert left == 0, f"{left} records were neither written nor refused in {_TIMEOUT_S} s"

    return run


def _update(producer: Producer, topic: str, partitions: int, number: int, judge: Judge) -> None:
    key = number % _KEYS
    value = None if number % _TOMBSTONE == 0 else b"%d" % number

    def delivered(error: KafkaError | None, message: Message) -> None:
        if error is None:
            judge.updated(message.partition(), message.key(), message.offset(), value)
        else:
            judge.refused(str(error))

    producer.produce(topic, value, b"k%d" % key, partition=key % partitions, on_delivery=delivered)


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
