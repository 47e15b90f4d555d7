"""An observer of a real Kafka controller has its metadata, whatever happens to the controller."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from cordwood.broker.replication.isr_changes import AnsweredIsr, IsrChanges, LedBy
from cordwood.broker.replication.leadership import IsrProposal
from cordwood.format.file_names import CLUSTER_METADATA_DIR
from cordwood.metadata.controller_requests import BrokerRegistration
from cordwood.metadata.feature_levels import KNOWN_FEATURES
from cordwood.metadata.image import Endpoint, MetadataImage
from cordwood.metadata.loader import MetadataLoader
from cordwood.metadata.publisher import MetadataUpdate
from cordwood.metadata.quorum.active_controller import ActiveController
from cordwood.metadata.quorum.follower import QuorumFollower
from cordwood.metadata.quorum.lifecycle import BrokerState
from cordwood.metadata.quorum.membership import QuorumMembership
from cordwood.metadata.quorum.messages import Identity
from cordwood.metadata.quorum.observed_log import ObservedLog
from cordwood.metadata.quorum.observer import Address, QuorumObserver
from cordwood.metadata.records import image_records
from cordwood.metadata.replay import read_metadata_image
from cordwood.metadata.settings import MetadataLogSettings
from cordwood.model.clock import SystemClock
from cordwood.model.error_codes import ErrorCode
from cordwood.model.kafka_errors import InconsistentClusterIdError
from cordwood.model.rng import SystemRng
from cordwood.network.slices import Slices
from cordwood.storage.log.log_context import LogContext
from support.kafka import CLUSTER_ID, poll_until
from support.kafka_cluster import KafkaBroker, KafkaController

WAIT_S = 60
NODE_ID = 7


class Observer:
    """An observer of a controller: its log, its loader, and the last image."""

    def __init__(self, log_dir: Path, controller: KafkaController, cluster_id: str) -> None:
        self.image = MetadataImage()
        self.is_first = True
        clock = SystemClock()
        self.log = ObservedLog(
            log_dir, context=LogContext(clock=clock), settings=MetadataLogSettings()
        )
        slices = Slices(asyncio.get_running_loop())
        loader = MetadataLoader(self.log, schedule=slices.run)
        loader.install(self)
        self._changed = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        observer = QuorumObserver(
            servers=[Address("127.0.0.1", controller.port)],
            leader=self.log.leader,
            rng=SystemRng(),
        )
        self.follower = QuorumFollower(
            observer,
            self.log,
            identity=Identity(cluster_id=cluster_id, node_id=NODE_ID, directory_id=uuid.uuid4()),
            between_updates=loader.between_updates,
            run=slices.run,
            clock=clock,
        )

    def on_metadata_update(self, update: MetadataUpdate) -> None:
        """As `MetadataPublisher`."""
        self.image = update.after
        self._loop.call_soon_threadsafe(self._changed.set)

    async def has_topic(self, name: str) -> None:
        """Returns when the image has a topic."""
        async with asyncio.timeout(WAIT_S):
            while name not in self.image.topics:
                await self._changed.wait()
                self._changed.clear()


@asynccontextmanager
async def observing(
    log_dir: Path, controller: KafkaController, cluster_id: str = CLUSTER_ID
) -> AsyncIterator[Observer]:
    """An observer that fetches meanwhile."""
    observer = Observer(log_dir, controller, cluster_id)
    task = asyncio.create_task(observer.follower.run())
    try:
        yield observer
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task
        observer.log.close()


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
    """What the image consists of; a snapshot has topics in another order."""
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
        return set(admin.list_topics(timeout=10).brokers)

    def joins(observer: Observer, log_dir: uuid.UUID) -> QuorumMembership:
        return QuorumMembership(
            BrokerRegistration(
                broker_id=NODE_ID,
                incarnation_id=uuid.uuid4(),
                endpoints=(Endpoint(name="PLAINTEXT", host="127.0.0.1", port=9),),
                log_dirs=(log_dir,),
            ),
            ActiveController(
                lambda: observer.follower.leader_address, client_id="7", clock=SystemClock()
            ),
            cluster_id=CLUSTER_ID,
            features=KNOWN_FEATURES,
            metadata_offset=lambda: observer.image.offset,
            clock=SystemClock(),
            heartbeat_interval_ms=200,
        )

    async def leads(observer: Observer, membership: QuorumMembership) -> None:
        """As a leader it takes the other replica out of the ISR; a stale one does not get in."""

        def propose(*members: tuple[int, int]) -> None:
            state = observer.image.topics["led"].partitions[0]
            changes.propose(
                LedBy(observer.image.topics["led"].topic_id, 0),
                IsrProposal(
                    leader_epoch=state.leader_epoch,
                    partition_epoch=state.partition_epoch,
                    isr=members,
                ),
            )

        answered: asyncio.Queue[AnsweredIsr] = asyncio.Queue()
        asks = ActiveController(
            lambda: observer.follower.leader_address, client_id="7", clock=SystemClock()
        )
        changes = IsrChanges(
            asks.ask,
            broker_id=NODE_ID,
            broker_epoch=lambda: membership.broker_epoch,
            answered=answered.put_nowait,
        )
        # By the controller itself: a client may ask any broker, and this one does not listen.
        led = {
            "name": "led",
            "num_partitions": -1,
            "replication_factor": -1,
            "assignments": [{"partition_index": 0, "broker_ids": [NODE_ID, 1]}],
        }
        created = await asks.ask(
            "create_topics", {"topics": [led], "timeout_ms": 30_000}, timeout_ms=30_000
        )
        assert [each.error_code for each in created.topics] == [0]
        await observer.has_topic("led")
        me = (NODE_ID, membership.broker_epoch)
        propose(me)
        taken = await answered.get()
        assert taken.partition is not None
        assert taken.partition.isr == (NODE_ID,)
        while observer.image.topics["led"].partitions[0].isr != (NODE_ID,):
            await asyncio.sleep(0.05)
        propose(me, (1, 1))
        assert (await answered.get()).error is ErrorCode.INELIGIBLE_REPLICA
        await changes.close()

    async def run() -> None:
        async with observing(tmp_path / "observer", controller) as observer:
            membership = joins(observer, uuid.uuid4())
            living = asyncio.create_task(membership.run())
            async with asyncio.timeout(WAIT_S):
                await membership.reached(BrokerState.RECOVERY)
                assert observer.image.brokers[NODE_ID].fenced
                membership.lifecycle.ready_to_unfence()
                await membership.reached(BrokerState.RUNNING)
                while NODE_ID not in await asyncio.to_thread(brokers):
                    await asyncio.sleep(0.05)
                await leads(observer, membership)
                # The controller goes and comes back: the broker stays.
                await asyncio.to_thread(controller.stop)
                await asyncio.to_thread(controller.start)
                epoch = membership.broker_epoch
                membership.lifecycle.begin_shutdown()
                await living
                assert membership.lifecycle.state is BrokerState.SHUTTING_DOWN
                assert membership.broker_epoch == epoch
                while NODE_ID in await asyncio.to_thread(brokers):
                    await asyncio.sleep(0.05)
                while not observer.image.brokers[NODE_ID].fenced:
                    await asyncio.sleep(0.05)
                # Here, as a process ends with the thread that started it: the controller's.
                await asyncio.to_thread(broker.stop)

    with KafkaBroker(tmp_path / "broker", controller, 1) as broker:
        admin = broker.start()
        asyncio.run(run())


def test_controller_of_another_cluster_is_refused(
    tmp_path: Path, controller: KafkaController
) -> None:
    async def run() -> None:
        observer = Observer(tmp_path / "observer", controller, "AAAAAAAAAAAAAAAAAAAAAA")
        async with asyncio.timeout(WAIT_S):
            await observer.follower.run()

    with pytest.raises(InconsistentClusterIdError, match="is of another cluster than AAAA"):
        asyncio.run(run())
