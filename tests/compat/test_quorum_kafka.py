"""An observer of a real Kafka controller has its metadata, whatever happens to the controller."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from cordwood.broker.replication.isr_changes import AnsweredIsr, IsrChanges
from cordwood.broker.replication.leadership import IsrProposal
from cordwood.format.file_names import CLUSTER_METADATA_DIR
from cordwood.metadata.image import MetadataImage
from cordwood.metadata.quorum.lifecycle import BrokerState
from cordwood.metadata.records import image_records
from cordwood.metadata.replay import read_metadata_image
from cordwood.model.error_codes import ErrorCode
from cordwood.model.kafka_errors import InconsistentClusterIdError
from cordwood.model.topic_partition import TopicIdPartition
from support.kafka import poll_until
from support.kafka_cluster import KafkaBroker, KafkaController
from support.quorum_member import (
    NODE_ID,
    WAIT_S,
    Observer,
    QuorumMember,
    joined,
    observing,
)


@pytest.fixture(params=["dynamic", "static"])
def controller(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[KafkaController]:
    with KafkaController(
        tmp_path / "controller",
        is_dynamic=request.param == "dynamic",
        properties={"metadata.log.max.record.bytes.between.snapshots": "4000"},
    ) as found:
        found.start()
        yield found


def create(admin: AdminClient, *names: str) -> None:
    topics = [NewTopic(name, num_partitions=30, replication_factor=1) for name in names]
    for done in admin.create_topics(topics).values():
        done.result()


def wait_for_snapshot(controller: KafkaController) -> None:
    directory = controller.log_dirs[0] / CLUSTER_METADATA_DIR

    def has_one() -> bool:
        return any(not each.name.startswith("0" * 20) for each in directory.glob("*.checkpoint"))

    poll_until(has_one, timeout_s=WAIT_S, what="the controller writes a snapshot")


def as_records(image: MetadataImage) -> list[str]:
    """The content of the image; a snapshot has topics in another order."""
    return sorted(repr(each) for each in image_records(image))


def test_image_of_an_observer_is_the_controllers(
    tmp_path: Path, controller: KafkaController
) -> None:
    async def run() -> None:
        async with observing(tmp_path / "observer", controller) as observer:
            await asyncio.to_thread(create, admin, "one", "two")
            await observer.has_topic("two")
            await asyncio.to_thread(controller.stop)
            await asyncio.to_thread(controller.start)
            await asyncio.to_thread(create, admin, "three")
            await observer.has_topic("three")
            epoch = observer.follower.leader.epoch
            assert epoch >= 2
        # It begins again where it was, and one that is new begins with a snapshot.
        async with observing(tmp_path / "observer", controller) as observer:
            assert observer.log.leader.epoch == epoch
            assert observer.log.end_offset > 0
            await observer.has_topic("three")
        for number in range(8):
            await asyncio.to_thread(create, admin, f"more-{number}")
        await asyncio.to_thread(wait_for_snapshot, controller)
        async with observing(tmp_path / "second", controller) as second:
            await second.has_topic("more-7")
            assert second.log.start_offset > 0
            assert second.log.kraft_version == int(controller.is_dynamic)
            await asyncio.to_thread(broker.stop)
            await asyncio.to_thread(controller.stop)
            images.append(second.image)

    images: list[MetadataImage] = []
    with KafkaBroker(tmp_path / "broker", controller, 1) as broker:
        admin = broker.start()
        asyncio.run(run())
    whole = read_metadata_image(controller.log_dirs[0] / CLUSTER_METADATA_DIR)
    kept = read_metadata_image(tmp_path / "second" / CLUSTER_METADATA_DIR)
    assert as_records(kept) == as_records(whole)
    assert images[0].topics.keys() == whole.topics.keys()


def test_broker_joins_a_cluster_and_leaves_it(tmp_path: Path, controller: KafkaController) -> None:
    def brokers() -> set[int]:
        return set(admin.list_topics(timeout=WAIT_S).brokers)

    async def run() -> None:
        async with asyncio.timeout(4 * WAIT_S), observing(tmp_path / "o", controller) as observer:
            async with joined(tmp_path / "member", controller) as member:
                while NODE_ID not in await asyncio.to_thread(brokers):
                    await asyncio.sleep(0.05)
                await leads(member)
                # The controller goes and comes back: the broker stays.
                await asyncio.to_thread(controller.stop)
                await asyncio.to_thread(controller.start)
                epoch = member.membership.broker_epoch
            assert member.membership.lifecycle.state is BrokerState.SHUTTING_DOWN
            assert member.membership.broker_epoch == epoch
            while NODE_ID in await asyncio.to_thread(brokers):
                await asyncio.sleep(0.05)
            while not observer.image.brokers[NODE_ID].fenced:
                await asyncio.sleep(0.05)
            # Here, as a process ends with the thread that started it: the controller's.
            await asyncio.to_thread(broker.stop)

    with KafkaBroker(tmp_path / "broker", controller, 1) as broker:
        admin = broker.start()
        asyncio.run(run())


async def leads(member: QuorumMember) -> None:
    """Leads: takes the other replica out of the ISR; a stale one does not get in."""

    def propose(*members: tuple[int, int]) -> None:
        state = member.observer.image.topics["led"].partitions[0]
        changes.propose(
            TopicIdPartition(member.observer.image.topics["led"].topic_id, 0),
            IsrProposal(
                leader_epoch=state.leader_epoch,
                partition_epoch=state.partition_epoch,
                isr=members,
            ),
        )

    answered: asyncio.Queue[AnsweredIsr] = asyncio.Queue()
    changes = IsrChanges(member.channel.alter_partitions, answered=answered.put_nowait)
    await member.create_topic("led", NODE_ID, 1)
    me = (NODE_ID, member.membership.broker_epoch)
    propose(me)
    taken = await answered.get()
    assert taken.partition is not None
    assert taken.partition.isr == (NODE_ID,)
    while member.observer.image.topics["led"].partitions[0].isr != (NODE_ID,):
        await asyncio.sleep(0.05)
    propose(me, (1, 1))
    assert (await answered.get()).error is ErrorCode.INELIGIBLE_REPLICA
    await changes.close()


def test_controller_of_another_cluster_is_refused(
    tmp_path: Path, controller: KafkaController
) -> None:
    async def run() -> None:
        observer = Observer(tmp_path / "observer", controller, "AAAAAAAAAAAAAAAAAAAAAA")
        async with asyncio.timeout(WAIT_S):
            await observer.follower.run()

    with pytest.raises(InconsistentClusterIdError, match="is of another cluster than AAAA"):
        asyncio.run(run())
