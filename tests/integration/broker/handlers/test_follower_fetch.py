"""Fetches of followers, and what clients are answered that ask another broker than the leader."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from dataclasses import replace
from typing import Any
from uuid import UUID

import pytest

from cordwood.broker.broker import Broker
from cordwood.broker.replication.leadership import ProposeIsr
from cordwood.format.record_batch import Record, build_batch
from cordwood.metadata.image import MetadataImage
from cordwood.metadata.persistent_map import PersistentMap
from cordwood.model.error_codes import ErrorCode
from cordwood.model.kafka_errors import NotLeaderOrFollowerError
from cordwood.testing.broker import RunningBroker
from support.another_replica import OTHER, has_another_replica
from support.ask import ask
from support.no_engine import NoEngine

TOPIC = "t"
BATCH = build_batch([Record(0, 1, b"k", b"v")], base_offset=0)
WITHOUT_STATE = 14
"""The last version with the follower's id as a field of its own."""


@pytest.fixture
def running() -> Iterator[RunningBroker]:
    with RunningBroker(engine=NoEngine) as broker:
        topic = {"name": TOPIC, "num_partitions": 1, "replication_factor": 1}
        ask(broker, "create_topics", {"topics": [topic], "timeout_ms": 5_000})
        broker.call(lambda it: has_another_replica(it.replicas.partition(TOPIC, 0), value=True))
        yield broker


def topic_id(running: RunningBroker) -> UUID:
    return running.call(lambda it: it.metadata.image.topics[TOPIC].topic_id)


def fetch(
    running: RunningBroker,
    offset: int,
    *,
    replica: int = -1,
    version_max: int | None = None,
    wait_ms: int = 0,
    **partition: Any,
) -> Any:
    """The answer for the partition, and the whole of it."""
    fields = {
        "replica_id": replica,
        "replica_state": {"replica_id": replica, "replica_epoch": 1},
        "max_wait_ms": wait_ms,
        "min_bytes": 1,
        "topics": [
            {
                "topic": TOPIC,
                "topic_id": topic_id(running),
                "partitions": [
                    {
                        "partition": 0,
                        "fetch_offset": offset,
                        "partition_max_bytes": 1 << 20,
                        **partition,
                    }
                ],
            }
        ],
    }
    answer = ask(running, "fetch", fields, version_max)
    return answer.responses[0].partitions[0], answer


def append(running: RunningBroker) -> None:
    running.call(lambda it: it.replicas.append(TOPIC, 0, BATCH))


@pytest.mark.parametrize("version_max", [WITHOUT_STATE, None], ids=["id", "state"])
def test_a_follower_reads_to_the_end_of_the_log_and_moves_the_high_watermark(
    running: RunningBroker, version_max: int | None
) -> None:
    append(running)
    found, _ = fetch(running, 0, replica=OTHER, version_max=version_max)
    assert (found.high_watermark, len(found.records)) == (0, len(BATCH))
    assert len(fetch(running, 0)[0].records or b"") == 0
    found, _ = fetch(running, 1, replica=OTHER, version_max=version_max)
    assert (found.high_watermark, len(found.records or b"")) == (0, 0)
    found, _ = fetch(running, 0)
    assert (found.high_watermark, len(found.records)) == (1, len(BATCH))


def test_a_follower_waits_for_an_append_and_a_consumer_for_what_is_committed(
    running: RunningBroker,
) -> None:
    found: dict[int, Any] = {}

    def wait(replica: int) -> None:
        found[replica] = fetch(running, 0, replica=replica, wait_ms=60_000)[0]

    def waiting(it: Broker) -> tuple[int, int]:
        delayed = it.replicas.delayed
        return delayed.replica_fetch.watched_by((TOPIC, 0)), delayed.fetch.watched_by((TOPIC, 0))

    threads = {each: threading.Thread(target=wait, args=(each,)) for each in (OTHER, -1)}
    for thread in threads.values():
        thread.start()
    while running.call(waiting) != (1, 1):
        pass
    append(running)
    threads[OTHER].join(60)
    assert len(found[OTHER].records) == len(BATCH)
    assert running.call(waiting) == (0, 1)
    fetch(running, 1, replica=OTHER)
    threads[-1].join(60)
    assert len(found[-1].records) == len(BATCH)


def test_a_follower_that_is_not_in_sync_gets_no_records_while_the_throttle_is_used_up(
    running: RunningBroker,
) -> None:
    append(running)

    def throttle(it: Broker) -> None:
        own = it.replicas.throttles.leader
        own.update_replicas({TOPIC: {"leader.replication.throttled.replicas": "*"}}, 1)
        own.update_rate([{"leader.replication.throttled.rate": "10"}])

    def is_in_sync(it: Broker, *, value: bool) -> None:
        partition = it.replicas.partition(TOPIC, 0)
        assert partition.leadership is not None
        known = partition.leadership.partition
        isr = known.replicas if value else (it.node_id,)
        partition.on_metadata(replace(known, isr=isr, partition_epoch=known.partition_epoch + 1))

    running.call(throttle)
    running.call(lambda it: is_in_sync(it, value=False))
    assert fetch(running, 0, replica=OTHER)[0].records, "the rate is not used up yet"
    assert not fetch(running, 0, replica=OTHER)[0].records
    waited, _ = fetch(running, 0, replica=OTHER, wait_ms=50)
    assert not waited.records, "and it is not answered at once, again and again"
    running.call(lambda it: is_in_sync(it, value=True))
    assert fetch(running, 0, replica=OTHER)[0].records
    running.call(lambda it: is_in_sync(it, value=False))
    running.clock.advance(60_000)
    assert fetch(running, 0, replica=OTHER)[0].records


@pytest.mark.parametrize(
    ("epoch", "error"),
    [(-1, ErrorCode.NOT_LEADER_OR_FOLLOWER), (0, ErrorCode.UNKNOWN_LEADER_EPOCH)],
    ids=["without an epoch", "of this epoch"],
)
def test_a_broker_without_a_replica_is_refused(
    running: RunningBroker, epoch: int, error: ErrorCode
) -> None:
    found, _ = fetch(running, 0, replica=OTHER + 1, current_leader_epoch=epoch)
    assert found.error_code == error


def test_a_follower_whose_log_has_parted_is_given_where(running: RunningBroker) -> None:
    append(running)
    found, _ = fetch(running, 9, replica=OTHER, last_fetched_epoch=0)
    assert (found.diverging_epoch.epoch, found.diverging_epoch.end_offset) == (0, 1)
    found, _ = fetch(running, 0)
    assert found.high_watermark == 0  # what it has is not known


def test_a_client_with_another_leader_is_given_the_current_one(running: RunningBroker) -> None:
    def resign(it: Broker) -> None:
        it.replicas.partitions[TOPIC].pop(0)

    running.call(resign)
    found, answer = fetch(running, 0)
    assert found.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert (found.current_leader.leader_id, found.current_leader.leader_epoch) == (1, 0)
    (node,) = answer.node_endpoints
    assert (node.node_id, node.host, node.port) == (1, "127.0.0.1", running.port)
    data = {
        "name": TOPIC,
        "topic_id": topic_id(running),
        "partition_data": [{"index": 0, "records": BATCH}],
    }
    produced = ask(running, "produce", {"acks": -1, "timeout_ms": 5_000, "topic_data": [data]})
    (refused,) = produced.responses[0].partition_responses
    assert refused.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert refused.current_leader.leader_id == 1
    assert [each.port for each in produced.node_endpoints] == [running.port]


def test_an_append_needs_as_many_replicas_in_sync_as_the_topic_says(
    running: RunningBroker,
) -> None:
    def require(it: Broker) -> None:
        it.replicas.partition(TOPIC, 0).update_min_insync_replicas(2)
        leadership = it.replicas.partition(TOPIC, 0).leadership
        assert leadership is not None
        (shrink,) = leadership.on_tick(1e9)
        assert isinstance(shrink, ProposeIsr)
        alone = replace(leadership.partition, isr=(1,), partition_epoch=1)
        leadership.on_isr_altered(shrink.proposal, alone, now_ms=1e9)

    running.call(require)
    data = {
        "name": TOPIC,
        "topic_id": topic_id(running),
        "partition_data": [{"index": 0, "records": BATCH}],
    }
    codes = {}
    for acks in (-1, 1):
        fields = {"acks": acks, "timeout_ms": 5_000, "topic_data": [data]}
        answer = ask(running, "produce", fields)
        codes[acks] = answer.responses[0].partition_responses[0].error_code
    assert codes == {-1: ErrorCode.NOT_ENOUGH_REPLICAS, 1: ErrorCode.NONE}
    assert fetch(running, 0)[0].high_watermark == 0


def test_a_topic_that_was_unknown_when_its_session_began_is_fetched_when_it_is_known(
    running: RunningBroker,
) -> None:
    append(running)

    def forget(it: Broker) -> MetadataImage:
        known = it.metadata.image
        it.metadata.image = replace(known, topics=PersistentMap(), topic_names=PersistentMap())
        return known

    partition = {"partition": 0, "fetch_offset": 0, "partition_max_bytes": 1 << 20}
    topic = {"topic_id": topic_id(running), "partitions": [partition]}
    fields = {"replica_state": {"replica_id": OTHER, "replica_epoch": 1}, "max_wait_ms": 0}
    known = running.call(forget)
    first = ask(running, "fetch", {**fields, "session_epoch": 0, "topics": [topic]})
    assert first.responses[0].partitions[0].error_code == ErrorCode.UNKNOWN_TOPIC_ID
    running.call(lambda it: setattr(it.metadata, "image", known))
    session = {"session_id": first.session_id, "session_epoch": 1, "topics": []}
    second = ask(running, "fetch", {**fields, **session})
    assert len(second.responses[0].partitions[0].records) == len(BATCH)


def test_a_follower_that_has_cut_its_log_off_is_given_the_high_watermark_again(
    running: RunningBroker,
) -> None:
    """It takes none from the answer that says where the logs part, and may wait for long."""
    append(running)
    fetch(running, 1, replica=OTHER)
    fields = {"replica_state": {"replica_id": OTHER, "replica_epoch": 1}, "max_wait_ms": 0}

    def session_fetch(offset: int, session: dict[str, int]) -> Any:
        partition = {
            "fetch_offset": offset,
            "last_fetched_epoch": 0,
            "partition_max_bytes": 1 << 20,
        }
        topic = {"topic_id": topic_id(running), "partitions": [{"partition": 0, **partition}]}
        answer = ask(running, "fetch", {**fields, **session, "topics": [topic]})
        return answer.session_id, answer.responses[0].partitions[0]

    session_id, parted = session_fetch(9, {"session_epoch": 0})
    assert (parted.diverging_epoch.end_offset, parted.high_watermark) == (1, 1)
    _, found = session_fetch(1, {"session_id": session_id, "session_epoch": 1})
    assert (found.diverging_epoch.end_offset, found.high_watermark) == (-1, 1)


@pytest.mark.parametrize(("version_max", "error"), [(4, 5), (None, 78)], ids=["old", "new"])
def test_the_end_is_not_said_before_a_new_leader_knows_what_is_committed(
    running: RunningBroker, version_max: int | None, error: int
) -> None:
    append(running)
    # The leader begins an epoch at its end, and its follower has not fetched yet.
    running.call(lambda it: has_another_replica(it.replicas.partition(TOPIC, 0), value=True))

    def offset(timestamp: int) -> tuple[int, int]:
        partition = {"partition_index": 0, "timestamp": timestamp, "current_leader_epoch": -1}
        topics = [{"name": TOPIC, "partitions": [partition]}]
        fields = {"replica_id": -1, "topics": topics}
        found = ask(running, "list_offsets", fields, version_max).topics[0].partitions[0]
        return found.error_code, found.offset

    assert offset(-1) == (error, -1)
    assert offset(-2) == (0, 0)
    fetch(running, 1, replica=OTHER)
    assert offset(-1) == (0, 1)


def test_what_is_validated_beside_others_is_not_written_if_another_broker_leads_by_then(
    running: RunningBroker,
) -> None:
    async def resigned_meanwhile() -> int:
        broker = running.node.broker
        partition = broker.replicas.partition(TOPIC, 0)
        partition.resign()
        with pytest.raises(NotLeaderOrFollowerError):
            await broker.thread.slices.run(lambda: partition.append(BATCH))
        return partition.log.log_end_offset

    assert asyncio.run_coroutine_threadsafe(resigned_meanwhile(), loop_of(running)).result(60) == 0


def loop_of(running: RunningBroker) -> asyncio.AbstractEventLoop:
    return running.call(lambda it: it.thread.loop)
