"""Guarantees of compaction for readers, with a live cleaner.

Source: Kafka's documentation, "What guarantees does log compaction provide?".
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from functools import partial

import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from cordwood.node.node import spark_engine
from cordwood.testing.broker import RunningBroker
from support.kafka import poll_until

pytestmark = pytest.mark.spark

Seen = list[tuple[int, str, str | None]]
_HORIZON_MS = 3_600_000


@pytest.fixture(scope="module")
def running() -> Iterator[RunningBroker]:
    with RunningBroker(engine=spark_engine) as broker:
        yield broker


@pytest.fixture
def topic(running: RunningBroker, request: pytest.FixtureRequest) -> str:
    name = f"t{abs(hash(request.node.name))}"
    admin = AdminClient({"bootstrap.servers": running.bootstrap_servers})
    config = {
        "cleanup.policy": "compact",
        "segment.ms": "60000",
        "min.cleanable.dirty.ratio": "0.01",
        "delete.retention.ms": str(_HORIZON_MS),
        "file.delete.delay.ms": "1000",
    }
    admin.create_topics([NewTopic(name, 1, 1, config=config)])[name].result(180)
    return name


def write(running: RunningBroker, topic: str, *records: tuple[str, str | None]) -> Seen:
    """Writes, and says where each record is."""
    placed: Seen = []
    producer = Producer({"bootstrap.servers": running.bootstrap_servers})
    for key, value in records:
        producer.produce(
            topic,
            key=key,
            value=value,
            timestamp=running.clock.now_ms(),
            on_delivery=lambda error, message, k=key, v=value: placed.append(
                (message.offset(), k, v) if error is None else (-1, k, str(error))
            ),
        )
        producer.poll(0)
    assert producer.flush(180) == 0
    return sorted(placed)


def read(running: RunningBroker, topic: str, *, start: int = OFFSET_BEGINNING) -> Seen:
    """Reads to the end of the log."""
    consumer = Consumer(
        {"bootstrap.servers": running.bootstrap_servers, "group.id": "x", "enable.partition.eof": 1}
    )
    consumer.assign([TopicPartition(topic, 0, start)])
    found: Seen = []
    try:
        while True:
            message = consumer.poll(180)
            assert message is not None, "nothing came for 180 s"
            if message.error() is not None:
                return found
            value = message.value()
            found.append(
                (
                    message.offset(),
                    message.key().decode(),
                    None if value is None else value.decode(),
                )
            )
    finally:
        consumer.close()


def round_of_cleaning(running: RunningBroker, topic: str) -> None:
    """Rolls the active segment, as a minute and the next record do, and cleans what is due."""
    running.advance(compact=False, minutes=2)
    write(running, topic, ("roll", "x"))
    running.advance(minutes=1)


def test_a_reader_at_the_head_sees_every_write(running: RunningBroker, topic: str) -> None:
    seen: Seen = []
    ready, enough = threading.Event(), threading.Event()
    total = 600

    def follow() -> None:
        consumer = Consumer({"bootstrap.servers": running.bootstrap_servers, "group.id": "head"})
        consumer.assign([TopicPartition(topic, 0, 0)])
        ready.set()
        while len(seen) < total and not enough.is_set():
            message = consumer.poll(1)
            if message is not None and message.error() is None:
                seen.append((message.offset(), message.key().decode(), message.value().decode()))
        consumer.close()

    def has_read(count: int) -> bool:
        return len(seen) >= count

    reader = threading.Thread(target=follow)
    reader.start()
    ready.wait()
    placed: Seen = []
    try:
        for turn in range(3):
            placed += write(running, topic, *((f"k{n % 5}", f"{turn}-{n}") for n in range(199)))
            running.advance(compact=False, minutes=2)
            placed += write(running, topic, ("roll", f"{turn}"))
            # The promise is to a reader at the head: one that is behind may miss what is compacted.
            poll_until(partial(has_read, len(placed)), timeout_s=180, what="the reader is there")
            running.advance(minutes=1)
    finally:
        enough.set()
        reader.join(60)
    assert seen == placed
    assert len(read(running, topic)) < total, "nothing was compacted"


def test_order_and_offsets_of_what_is_left_stay(running: RunningBroker, topic: str) -> None:
    placed = write(running, topic, *((f"k{n % 7}", f"v{n}") for n in range(300)))
    round_of_cleaning(running, topic)
    left = read(running, topic)
    kept = [record for record in left if record[1] != "roll"]
    assert set(kept) <= set(placed)
    assert [offset for offset, _, _ in left] == sorted({offset for offset, _, _ in left})
    assert len(kept) < 300


def test_a_reader_from_the_start_sees_at_least_the_final_state(
    running: RunningBroker, topic: str
) -> None:
    final: dict[str, str | None] = {}
    for turn in range(3):
        records = [(f"k{n % 11}", f"{turn}-{n}") for n in range(100)]
        write(running, topic, *records)
        final.update(records)
        round_of_cleaning(running, topic)
        state = {key: value for _, key, value in read(running, topic)}
        state.pop("roll")
        assert state == final


def test_a_reader_within_delete_retention_sees_every_tombstone_and_a_slower_one_may_not(
    running: RunningBroker, topic: str
) -> None:
    gone = [f"k{n}" for n in range(20)]
    write(running, topic, *((key, "v") for key in gone))
    tombstones = write(running, topic, *((key, None) for key in gone))
    round_of_cleaning(running, topic)
    assert [each for each in read(running, topic) if each[2] is None] == tombstones
    assert not [each for each in read(running, topic) if each[2] == "v"]
    running.advance(compact=False, milliseconds=_HORIZON_MS)
    round_of_cleaning(running, topic)
    assert not [each for each in read(running, topic) if each[1] in gone]
