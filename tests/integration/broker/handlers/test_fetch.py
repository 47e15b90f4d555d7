"""Fetch: limits, waiting, sessions, errors."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import pytest

from cordwood.broker.broker import Broker
from cordwood.broker.broker_context import BrokerContext
from cordwood.broker.handlers import fetch as fetch_handler
from cordwood.format.record_batch import Record, build_batch
from cordwood.protocol.headers import RequestHeader
from cordwood.protocol.messages import build, request_codec
from cordwood.serving.session import Session
from cordwood.testing.broker import RunningBroker
from support.interruption import Interruption
from support.kafka import poll_until
from support.no_engine import NoEngine
from support.wire import Plain, Wire

OFFSET_OUT_OF_RANGE = "offset_out_of_range"


@pytest.fixture(scope="module")
def running() -> Iterator[RunningBroker]:
    with RunningBroker({"num.partitions": "3"}, engine=NoEngine) as broker:
        yield broker


@pytest.fixture
def wire(running: RunningBroker) -> Iterator[Wire]:
    with Wire(running.port) as connection:
        yield connection


@pytest.fixture
def topic(wire: Wire, request: pytest.FixtureRequest) -> str:
    name = f"t{abs(hash(request.node.name))}"
    wire.ask(
        "create_topics",
        5,
        {
            "timeout_ms": 5000,
            "topics": [{"name": name, "num_partitions": 3, "replication_factor": 1}],
        },
    )
    return name


def batch(size: int = 10, count: int = 1) -> bytes:
    return build_batch(
        [Record(n, 1_700_000_000_000, b"k", b"v" * size) for n in range(count)], base_offset=0
    )


def produce(wire: Wire, topic: str, records: bytes, partition: int = 0) -> Plain:
    answer = wire.ask(
        "produce",
        9,
        {
            "acks": -1,
            "timeout_ms": 5000,
            "topic_data": [
                {"name": topic, "partition_data": [{"index": partition, "records": records}]}
            ],
        },
    )
    told: Plain = answer["responses"][0]["partition_responses"][0]
    return told


def fetch(wire: Wire, topic: str, *partitions: Plain, version: int = 12, **fields: Any) -> Plain:
    values = {
        "replica_id": -1,
        "max_wait_ms": 0,
        "min_bytes": 1,
        "max_bytes": 1 << 20,
        "session_id": 0,
        "session_epoch": -1,
        "topics": [{"topic": topic, "partitions": [_partition(each) for each in partitions]}]
        if partitions
        else [],
    }
    return wire.ask("fetch", version, values | fields)


def _partition(given: Plain) -> Plain:
    return {"partition": 0, "fetch_offset": 0, "partition_max_bytes": 1 << 20} | given


def told(answer: Plain) -> dict[int, Plain]:
    return {
        each["partition_index"]: each
        for topic in answer["responses"]
        for each in topic["partitions"]
    }


def size(partition: Plain) -> int:
    return len(partition["records"] or b"")


@pytest.mark.parametrize("version", range(4, 13))
def test_what_was_produced_is_fetched_in_every_version_by_name(
    wire: Wire, topic: str, version: int
) -> None:
    records = batch(count=3)
    assert produce(wire, topic, records)["base_offset"] == 0
    partition = told(fetch(wire, topic, {}, version=version))[0]
    assert partition["high_watermark"] == 3
    assert partition["last_stable_offset"] == 3
    assert len(partition["records"]) == len(records)
    assert partition["records"][61:] == records[61:]


@pytest.mark.parametrize("version", range(13, 19))
def test_what_was_produced_is_fetched_in_every_version_by_id(
    running: RunningBroker, wire: Wire, topic: str, version: int
) -> None:
    records = batch(count=2)
    produce(wire, topic, records)
    topic_id = running.call(lambda broker: broker.metadata.image.topics[topic].topic_id)
    answer = fetch(
        wire,
        topic,
        version=version,
        topics=[{"topic_id": topic_id, "partitions": [_partition({})]}],
    )
    assert told(answer)[0]["records"][61:] == records[61:]
    assert answer["responses"][0]["topic_id"] == topic_id


def test_a_first_batch_larger_than_any_limit_is_given_whole(wire: Wire, topic: str) -> None:
    large = batch(size=5000)
    produce(wire, topic, large)
    produce(wire, topic, large, partition=1)
    answer = told(
        fetch(
            wire,
            topic,
            {"partition_max_bytes": 10},
            {"partition": 1, "partition_max_bytes": 10},
            max_bytes=10,
        )
    )
    assert size(answer[0]) == len(large)
    assert size(answer[1]) == 0, "only the first partition may go beyond the limit"


def test_max_bytes_bounds_the_whole_response(wire: Wire, topic: str) -> None:
    each = batch(size=1000)
    for partition in range(3):
        for _ in range(4):
            produce(wire, topic, each, partition)
    answer = told(fetch(wire, topic, *({"partition": p} for p in range(3)), max_bytes=5000))
    assert sum(size(p) for p in answer.values()) <= 5000
    assert size(answer[0]) == 4 * len(each)


@pytest.mark.parametrize("offset", [-1, 4, 2**40])
def test_an_offset_outside_the_log_is_out_of_range(wire: Wire, topic: str, offset: int) -> None:
    produce(wire, topic, batch(count=3))
    partition = told(fetch(wire, topic, {"fetch_offset": offset}))[0]
    assert partition["error_code"] == OFFSET_OUT_OF_RANGE
    assert (partition["high_watermark"], partition["log_start_offset"]) == (-1, -1)


def test_below_the_log_start_after_delete_records_is_out_of_range(wire: Wire, topic: str) -> None:
    produce(wire, topic, batch(count=3))
    wire.ask(
        "delete_records",
        1,
        {
            "timeout_ms": 1000,
            "topics": [{"name": topic, "partitions": [{"partition_index": 0, "offset": 2}]}],
        },
    )
    assert told(fetch(wire, topic, {"fetch_offset": 1}))[0]["error_code"] == OFFSET_OUT_OF_RANGE
    assert told(fetch(wire, topic, {"fetch_offset": 2}))[0]["log_start_offset"] == 2


@pytest.mark.parametrize(
    ("epoch", "error"), [(7, "unknown_leader_epoch"), (-1, "none"), (0, "none")]
)
def test_the_leader_epoch_that_the_client_knows_is_checked(
    wire: Wire, topic: str, epoch: int, error: str
) -> None:
    partition = told(fetch(wire, topic, {"current_leader_epoch": epoch}))[0]
    assert partition["error_code"] == error


def test_unknown_topics_and_partitions_are_named(wire: Wire, topic: str) -> None:
    assert told(fetch(wire, topic, {"partition": 9}))[9]["error_code"] == (
        "unknown_topic_or_partition"
    )
    assert told(fetch(wire, "no-such", {}))[0]["error_code"] == "unknown_topic_or_partition"


def waiters(broker: Broker, topic: str) -> int:
    return broker.replicas.delayed.fetch.watched_by((topic, 0))


def test_a_fetch_waits_until_there_is_enough(running: RunningBroker, topic: str) -> None:
    answers: list[Plain] = []

    def wait() -> None:
        with Wire(running.port) as other:
            answers.append(fetch(other, topic, {}, max_wait_ms=60_000, min_bytes=300))

    thread = threading.Thread(target=wait)
    thread.start()
    with Wire(running.port) as wire:
        while not running.call(lambda broker: waiters(broker, topic)):
            pass
        produce(wire, topic, batch(size=100))
        assert not answers
        produce(wire, topic, batch(size=100))
        thread.join(120)
    assert size(told(answers[0])[0]) >= 300
    assert running.call(lambda broker: waiters(broker, topic)) == 0


def test_a_full_response_does_not_wait_for_more_than_it_may_hold(wire: Wire, topic: str) -> None:
    for _ in range(3):
        produce(wire, topic, batch(size=1000))
    # One that waited would not be answered as long as the connection waits for it.
    answer = fetch(wire, topic, {}, max_bytes=1500, min_bytes=1 << 20, max_wait_ms=3_600_000)
    assert size(told(answer)[0]) > 1000


def test_a_fetch_that_waits_in_vain_answers_after_max_wait(
    running: RunningBroker, wire: Wire, topic: str
) -> None:
    partition = told(fetch(wire, topic, {}, max_wait_ms=20))[0]
    assert (partition["error_code"], size(partition)) == ("none", 0)
    assert running.call(lambda broker: waiters(broker, topic)) == 0


def test_a_client_that_goes_away_while_it_waits_is_forgotten(
    running: RunningBroker, topic: str
) -> None:
    other = Wire(running.port)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Wire, "_receive", lambda _self: (_ for _ in ()).throw(InterruptedError))
        with pytest.raises(InterruptedError):
            fetch(other, topic, {}, max_wait_ms=60_000)
    while not running.call(lambda broker: waiters(broker, topic)):
        pass

    def hang_up(_broker: Broker) -> None:
        for connection in list(running.node.server.connections):
            connection.close(None)

    running.call(hang_up)
    assert running.call(lambda broker: waiters(broker, topic)) == 0


def test_a_deleted_topic_ends_the_wait(running: RunningBroker, wire: Wire, topic: str) -> None:
    answers: list[Plain] = []

    def wait() -> None:
        with Wire(running.port) as other:
            answers.append(fetch(other, topic, {}, max_wait_ms=60_000))

    thread = threading.Thread(target=wait)
    thread.start()
    while not running.call(lambda broker: waiters(broker, topic)):
        pass
    wire.ask("delete_topics", 4, {"topic_names": [topic], "timeout_ms": 1000})
    thread.join(120)
    assert told(answers[0])[0]["error_code"] == "unknown_topic_or_partition"


# ---- sessions


def test_a_session_says_only_what_is_new(wire: Wire, topic: str) -> None:
    first = fetch(wire, topic, *({"partition": p} for p in range(3)), session_epoch=0)
    session = first["session_id"]
    assert session > 0
    assert set(told(first)) == {0, 1, 2}
    assert told(fetch(wire, topic, session_id=session, session_epoch=1)) == {}
    produce(wire, topic, batch(), partition=2)
    assert set(told(fetch(wire, topic, session_id=session, session_epoch=2))) == {2}
    moved = fetch(
        wire, topic, {"partition": 2, "fetch_offset": 1}, session_id=session, session_epoch=3
    )
    assert told(moved) == {}


def test_partitions_are_forgotten_when_the_client_says_so(wire: Wire, topic: str) -> None:
    session = fetch(wire, topic, {"partition": 0}, {"partition": 1}, session_epoch=0)["session_id"]
    produce(wire, topic, batch(), partition=0)
    produce(wire, topic, batch(), partition=1)
    answer = fetch(
        wire,
        topic,
        session_id=session,
        session_epoch=1,
        forgotten_topics_data=[{"topic": topic, "partitions": [0]}],
    )
    assert set(told(answer)) == {1}


def test_partitions_of_a_deleted_topic_are_forgotten_by_its_id(
    running: RunningBroker, wire: Wire, topic: str
) -> None:
    topic_id = running.call(lambda broker: broker.metadata.image.topics[topic].topic_id)

    def by_id(epoch: int, session: int, partitions: list[int], forgotten: list[int]) -> Plain:
        asked = [
            {"topic_id": topic_id, "partitions": [_partition({"partition": p})]} for p in partitions
        ]
        return fetch(
            wire,
            topic,
            version=13,
            session_id=session,
            session_epoch=epoch,
            topics=asked,
            forgotten_topics_data=[{"topic_id": topic_id, "partitions": forgotten}]
            if forgotten
            else [],
        )

    session = by_id(0, 0, [0, 1], [])["session_id"]
    wire.ask("delete_topics", 4, {"topic_names": [topic], "timeout_ms": 1000})
    assert set(told(by_id(1, session, [1], []))) == {0, 1}, "neither is there twice"

    def count() -> int:
        return running.call(lambda broker: broker.replicas.fetch_sessions.partition_count)

    sessions = count()
    assert set(told(by_id(2, session, [], [0]))) == {1}
    assert (
        running.call(lambda broker: broker.replicas.fetch_sessions.partition_count) == sessions - 1
    )


def test_a_session_out_of_order_or_unknown_is_refused(wire: Wire, topic: str) -> None:
    session = fetch(wire, topic, {}, session_epoch=0)["session_id"]
    assert fetch(wire, topic, session_id=session, session_epoch=5)["error_code"] == (
        "invalid_fetch_session_epoch"
    )
    assert fetch(wire, topic, session_id=session + 1, session_epoch=1)["error_code"] == (
        "fetch_session_id_not_found"
    )


def test_a_partition_that_gave_data_comes_last_the_next_time(wire: Wire, topic: str) -> None:
    partitions = [{"partition": p} for p in range(3)]
    session = fetch(wire, topic, *partitions, session_epoch=0)["session_id"]
    large = batch(size=2000)
    for partition in range(3):
        for _ in range(2):
            produce(wire, topic, large, partition)
    seen = []
    for epoch in range(1, 4):
        answer = told(fetch(wire, topic, session_id=session, session_epoch=epoch, max_bytes=2100))
        seen += [p for p, each in answer.items() if size(each)]
    assert seen == [0, 1, 2]


def test_a_session_that_is_closed_is_forgotten(wire: Wire, topic: str) -> None:
    session = fetch(wire, topic, {}, session_epoch=0)["session_id"]
    fetch(wire, topic, session_id=session, session_epoch=-1)
    assert fetch(wire, topic, session_id=session, session_epoch=1)["error_code"] == (
        "fetch_session_id_not_found"
    )


@pytest.mark.parametrize("grown", [0, 99])
def test_a_partition_that_grows_while_a_long_fetch_begins_to_wait_ends_the_wait(
    running: RunningBroker, wire: Wire, grown: int
) -> None:
    name = f"wide-{grown}"
    asked = {"name": name, "num_partitions": 100, "replication_factor": 1}
    wire.ask("create_topics", 5, {"timeout_ms": 60_000, "topics": [asked]})
    partitions = [
        {"partition": number, "fetch_offset": 0, "partition_max_bytes": 1 << 20}
        for number in range(100)
    ]
    values = {
        "max_wait_ms": 600_000,
        "min_bytes": 1,
        "max_bytes": 1 << 20,
        "topics": [{"topic": name, "partitions": partitions}],
    }
    request = build(request_codec(1, 6), values)

    def begin(broker: Broker) -> Any:
        def append_once() -> None:
            # The first partitions are watched, the last is not yet.
            log = broker.replicas.log(name, grown)
            if broker.replicas.delayed.fetch.watched_by((name, 0)) and not log.log_end_offset:
                broker.replicas.append(name, grown, batch())

        appending = Interruption(append_once)
        header = RequestHeader(1, 6, 1, "client", 0)
        context = BrokerContext(broker, header, Session("127.0.0.1", "client", "PLAINTEXT"))
        return appending.run(lambda: fetch_handler.handle(context, request))

    answer = running.call(begin)
    poll_until(lambda: running.call(lambda _: answer.done()), timeout_s=120, what="the answer")
    assert running.call(lambda broker: broker.replicas.log(name, grown).log_end_offset) == 1
    assert not running.call(lambda broker: broker.replicas.delayed.fetch.watched_by((name, 1)))
    assert answer.exception() is None
