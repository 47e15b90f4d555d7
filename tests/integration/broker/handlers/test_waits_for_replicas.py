"""Requests that write, where another replica is in sync: their answers wait for it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from cordwood.broker.broker import Broker
from cordwood.format.record_batch import Record, build_batch
from cordwood.testing.broker import RunningBroker
from support.another_replica import has_another_replica
from support.kafka import poll_until
from support.no_engine import NoEngine
from support.wire import Plain, Wire

TOPIC = "t"


@pytest.fixture
def running() -> Iterator[RunningBroker]:
    with RunningBroker({"offsets.topic.num.partitions": "1"}, engine=NoEngine) as broker:
        with Wire(broker.port) as wire:
            asked = {"name": TOPIC, "num_partitions": 2, "replication_factor": 1}
            wire.ask("create_topics", 5, {"timeout_ms": 5_000, "topics": [asked]})
        broker.call(lambda it: replicate(it, value=True))
        yield broker


def replicate(broker: Broker, *, value: bool) -> None:
    """Has partition 0 wait for a replica that never fetches, or wait no longer."""
    has_another_replica(broker.replicas.partition(TOPIC, 0), value=value)


def produce(port: int, *partitions: int, acks: int = -1, timeout: int = 60_000) -> dict[int, Plain]:
    batch = build_batch([Record(0, 1, b"k", b"v")], base_offset=0)
    data = [{"index": index, "records": batch} for index in partitions]
    fields = {
        "acks": acks,
        "timeout_ms": timeout,
        "topic_data": [{"name": TOPIC, "partition_data": data}],
    }
    with Wire(port) as wire:
        answer = wire.ask("produce", 9, fields)
    return {each["index"]: each for each in answer["responses"][0]["partition_responses"]}


class Asked:
    """A request that is asked in a thread of its own."""

    def __init__(self, ask: Callable[[], Any]) -> None:
        self.answers: list[Any] = []
        self._thread = threading.Thread(target=lambda: self.answers.append(ask()))
        self._thread.start()

    def answer(self) -> Any:
        self._thread.join(30)
        return self.answers[0]


def until_delayed(running: RunningBroker, kind: str = "produce") -> None:
    poll_until(
        lambda: running.call(lambda it: getattr(it.replicas.delayed, kind).delayed_count) == 1,
        timeout_s=30,
        what="the request waits",
    )


def delete(port: int, *partitions: int, timeout: int = 60_000) -> dict[int, tuple[str, int]]:
    """Deletes all records below the high watermark; the errors and low watermarks."""
    asked = [{"partition_index": index, "offset": -1} for index in partitions]
    fields = {"topics": [{"name": TOPIC, "partitions": asked}], "timeout_ms": timeout}
    with Wire(port) as wire:
        answer = wire.ask("delete_records", 1, fields)
    return {
        each["partition_index"]: (each["error_code"], each["low_watermark"])
        for each in answer["topics"][0]["partitions"]
    }


def test_batch_is_answered_when_the_high_watermark_has_passed_it(running: RunningBroker) -> None:
    asked = Asked(lambda: produce(running.port, 0, 1))
    until_delayed(running)
    assert running.call(lambda it: it.replicas.log(TOPIC, 0).high_watermark) == 0
    assert asked.answers == []
    running.call(lambda it: replicate(it, value=False))
    answer = asked.answer()
    assert [(each["error_code"], each["base_offset"]) for each in answer.values()] == [
        ("none", 0),
        ("none", 0),
    ]


def test_batch_that_is_not_committed_in_time_has_timed_out(running: RunningBroker) -> None:
    answer = produce(running.port, 0, 1, timeout=20)
    assert [answer[index]["error_code"] for index in (0, 1)] == ["request_timed_out", "none"]
    assert running.call(lambda it: it.replicas.delayed.produce.expired_count) == 1


def test_batch_of_a_topic_that_is_deleted_meanwhile_is_refused(running: RunningBroker) -> None:
    asked = Asked(lambda: produce(running.port, 0))
    until_delayed(running)
    with Wire(running.port) as wire:
        wire.ask("delete_topics", 4, {"topic_names": [TOPIC], "timeout_ms": 1_000})
    assert asked.answer()[0]["error_code"] == "unknown_topic_or_partition"


def test_leader_alone_is_enough_for_acks_of_one(running: RunningBroker) -> None:
    assert produce(running.port, 0, acks=1)[0]["error_code"] == "none"
    assert running.call(lambda it: it.replicas.log(TOPIC, 0).high_watermark) == 0


def test_deleted_records_are_answered_when_no_other_replica_has_them(
    running: RunningBroker,
) -> None:
    running.call(lambda it: replicate(it, value=False))
    produce(running.port, 0, 1)
    running.call(lambda it: replicate(it, value=True))
    asked = Asked(lambda: delete(running.port, 0, 1))
    until_delayed(running, "delete_records")
    assert asked.answers == []
    running.call(lambda it: replicate(it, value=False))
    assert asked.answer() == {0: ("none", 1), 1: ("none", 1)}


def test_records_that_another_replica_does_not_delete_in_time_have_timed_out(
    running: RunningBroker,
) -> None:
    assert delete(running.port, 0, 1, timeout=20) == {0: ("request_timed_out", 0), 1: ("none", 0)}
    assert running.call(lambda it: it.replicas.delayed.delete_records.expired_count) == 1


def mark(port: int, index: int) -> str:
    """Aborts a transaction of producer 7; the error."""
    topic = {"name": TOPIC, "partition_indexes": [index]}
    marker = {"producer_id": 7, "producer_epoch": 0, "topics": [topic]}
    with Wire(port) as wire:
        answer = wire.ask("write_txn_markers", 1, {"markers": [marker]})
    (partition,) = answer["markers"][0]["topics"][0]["partitions"]
    return str(partition["error_code"])


def test_marker_is_answered_when_the_high_watermark_has_passed_it(running: RunningBroker) -> None:
    assert mark(running.port, 1) == "none"
    asked = Asked(lambda: mark(running.port, 0))
    until_delayed(running)
    assert asked.answers == []
    running.call(lambda it: replicate(it, value=False))
    assert asked.answer() == "none"
    assert running.call(lambda it: it.replicas.log(TOPIC, 0).high_watermark) == 1


def test_marker_of_a_topic_that_is_deleted_meanwhile_is_refused(running: RunningBroker) -> None:
    asked = Asked(lambda: mark(running.port, 0))
    until_delayed(running)
    with Wire(running.port) as wire:
        wire.ask("delete_topics", 4, {"topic_names": [TOPIC], "timeout_ms": 1_000})
    assert asked.answer() == "unknown_topic_or_partition"
