"""Replicas of a real Kafka's partitions: a follower has the leader's log, byte for byte."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

from confluent_kafka import Producer

from cordwood.broker.replication.fetch_session import ReplicaFetchSession
from cordwood.broker.replication.fetcher import Followed, ReplicaFetcher
from cordwood.broker.replication.following import PartitionFollowing
from cordwood.broker.replication.replica_log import ReplicaLog
from cordwood.client.node_connection import NodeAddress, NodeConnection
from cordwood.configs.log_config import LogConfig
from cordwood.format.record_batch import Record, build_batch
from cordwood.model.clock import SystemClock
from cordwood.model.topic_partition import TopicIdPartition, TopicPartition
from cordwood.storage.log.log_context import LogContext
from cordwood.storage.log.log_loader import LoadRequest, load_log
from cordwood.storage.log.partition_log import PartitionLog
from cordwood.storage.log.truncation import truncate_fully_and_start_at, truncate_to
from support.kafka_cluster import KafkaBroker, KafkaController
from support.quorum_member import NODE_ID, WAIT_S, QuorumMember, joined

TOPIC = "replicated"
RECORDS = 100


def own_log(directory: Path, topic_id: uuid.UUID) -> PartitionLog:
    directory.mkdir(parents=True, exist_ok=True)
    return load_log(
        LoadRequest(
            directory=directory,
            topic_partition=TopicPartition(TOPIC, 0),
            config=LogConfig(),
            context=LogContext(clock=SystemClock()),
            topic_id=topic_id,
        )
    )


@asynccontextmanager
async def following(
    member: QuorumMember, log: PartitionLog, leader: KafkaBroker
) -> AsyncIterator[None]:
    """Fetches meanwhile, in the leader epoch that the image has."""
    topic = member.observer.image.topics[TOPIC]
    address = NodeAddress("127.0.0.1", leader.port)
    connection = NodeConnection(lambda: address, client_id="fetcher", timeout_s=30)
    fetcher = ReplicaFetcher(
        connection,
        ReplicaFetchSession(NODE_ID),
        broker_id=NODE_ID,
        broker_epoch=lambda: member.membership.broker_epoch,
        run=member.observer.slices.run,
        call_soon=asyncio.get_running_loop().call_soon,
        clock=SystemClock(),
        backoff_ms=100,
    )
    task = asyncio.create_task(fetcher.run())
    replica = ReplicaLog(
        log,
        truncate=lambda offset, _: (truncate_to(log, offset), None)[1],
        start_at=lambda offset, _: truncate_fully_and_start_at(log, offset),
    )
    epoch = topic.partitions[0].leader_epoch
    fetcher.follow(
        TopicIdPartition(topic.topic_id, 0),
        Followed(TOPIC, PartitionFollowing(leader.node_id, epoch), replica),
    )
    try:
        yield
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


def produce(leader: KafkaBroker, first: int, count: int) -> None:
    """Returns when all in-sync replicas have the records."""
    producer = Producer(leader.client({"acks": "all", "compression.type": "lz4"}))
    errors: list[object] = []
    for number in range(first, first + count):
        producer.produce(
            TOPIC, b"%d" % number, b"key", on_delivery=lambda error, _: errors.append(error)
        )
        if number % 10 == 0:
            producer.flush()
    assert producer.flush(WAIT_S) == 0
    assert errors == [None] * count


def test_follower_of_a_kafka_leader_is_in_sync_and_has_its_bytes(tmp_path: Path) -> None:
    async def run() -> None:
        async with (
            asyncio.timeout(3 * WAIT_S),
            joined(tmp_path / "member", controller) as member,
        ):
            await member.create_topic(TOPIC, 1, NODE_ID, min_insync_replicas="2")
            topic_id = member.observer.image.topics[TOPIC].topic_id
            log = own_log(tmp_path / "member" / f"{TOPIC}-0", topic_id)
            async with following(member, log, broker):
                # Two replicas must have them: each is answered when this one has fetched it.
                await asyncio.to_thread(produce, broker, 0, RECORDS)
            assert log.log_end_offset == RECORDS
            for turn in (1, 2):
                # What the leader does not have is cut off.
                log.append_as_follower(
                    build_batch(
                        [Record(log.log_end_offset, 0, b"k", b"lost")],
                        base_offset=log.log_end_offset,
                        partition_leader_epoch=0,
                    )
                )
                async with following(member, log, broker):
                    while log.log_end_offset > turn * RECORDS:
                        await asyncio.sleep(0.01)
                    await asyncio.to_thread(produce, broker, turn * RECORDS, RECORDS)
                    while log.high_watermark < (turn + 1) * RECORDS:
                        await asyncio.sleep(0.01)
            state = member.observer.image.topics[TOPIC].partitions[0]
            assert set(state.isr) == {1, NODE_ID}
            log.close()
        await asyncio.to_thread(broker.stop)

    with (
        KafkaController(tmp_path / "controller") as controller,
        KafkaBroker(tmp_path / "broker", controller, 1) as broker,
    ):
        controller.start()
        broker.start()
        asyncio.run(run())
    segment = "0" * 20 + ".log"
    theirs = broker.log_dirs[0] / f"{TOPIC}-0"
    ours = tmp_path / "member" / f"{TOPIC}-0"
    assert (ours / segment).read_bytes() == (theirs / segment).read_bytes()
    checkpoint = "leader-epoch-checkpoint"
    assert (ours / checkpoint).read_text() == (theirs / checkpoint).read_text()
