"""Late arrivals: requests of lives, epochs and terms that are over.

Each names something that its receiver has seen replaced, so that a correct receiver refuses it.
None is made up: each is what a network or a suspended process may deliver at that moment.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Final

from cordwood.client.errors import ClientError
from cordwood.client.node_connection import NodeAddress, NodeConnection
from cordwood.metadata.image import BrokerImage, PartitionImage
from cordwood.model.error_codes import ErrorCode
from cordwood.model.topic_partition import TopicPartition
from support.requests import request_of
from support.simulation.clients.client import BROKERS, TIMEOUT_S, Client, NoAnswerError
from support.simulation.clients.members import Member
from support.simulation.clients.transactional import TransactionalProducer
from support.simulation.cluster import Cluster
from support.simulation.event_loop import SimulatedLoop
from support.simulation.events import Note, Unacceptable
from support.simulation.history import History
from support.simulation.settings import CONTROLLER, CONTROLLER_PORT

_PAUSE_S: Final = 0.15


class Zombie(Client):
    """See the module; it looks into the controller's image for what is over."""

    def __init__(
        self,
        name: str,
        loop: SimulatedLoop,
        rng: random.Random,
        history: History,
        *,
        cluster: Cluster,
        producers: Sequence[TransactionalProducer],
        members: Sequence[Member],
    ) -> None:
        """Has seen nothing.

        Args:
            name: of the client.
            loop: the loop.
            rng: of this client.
            history: receives what is answered.
            cluster: whose brokers come and go.
            producers: whose old markers arrive late.
            members: whose old heartbeats and commits do.
        """
        super().__init__(name, loop, rng, history)
        self._cluster = cluster
        self._producers = producers
        self._members = members
        self._broker_epochs: dict[int, list[int]] = {each: [] for each in BROKERS}
        self._controller = NodeConnection(
            lambda: NodeAddress(CONTROLLER, CONTROLLER_PORT), client_id=name, timeout_s=TIMEOUT_S
        )
        self._actions: tuple[Callable[[], Awaitable[None]], ...] = (
            self._old_heartbeat,
            self._old_leader,
            self._old_proposal,
            self._old_follower,
            self._stopping_follower,
            self._old_fetch,
            self._old_marker,
            self._old_member,
            self._old_commit,
        )

    async def run(self) -> None:
        """Sends late requests for ever."""
        while True:
            self._look()
            try:
                await self._next()()
            except (NoAnswerError, ClientError):
                self._leaders.clear()
            await asyncio.sleep(self.rng.expovariate(1 / _PAUSE_S))

    def _next(self) -> Callable[[], Awaitable[None]]:
        """The next request; a controlled stop is over soon."""
        if self._stopping() is not None and self.rng.random() < 0.7:
            return self._stopping_follower
        return self.rng.choice(self._actions)

    def _stopping(self) -> BrokerImage | None:
        """A broker that is in a controlled shutdown."""
        brokers = self._cluster.image.brokers.values()
        found = [each for each in brokers if each.in_controlled_shutdown and not each.fenced]
        return found[0] if found else None

    def _look(self) -> None:
        for broker_id, broker in self._cluster.image.brokers.items():
            known = self._broker_epochs[broker_id]
            if broker.epoch not in known:
                known.append(broker.epoch)

    def _refused(self, what: str, code: int) -> None:
        if code == ErrorCode.NONE:
            self.note(Unacceptable(f"{what} is accepted"))
        else:
            self.note(Note(f"{what} is refused: {ErrorCode.of(code).name}"))

    # ---- the controller

    def _old_epoch(self, broker_id: int) -> int | None:
        """An epoch that the controller has replaced by another."""
        known = self._broker_epochs[broker_id]
        return self.rng.choice(known[:-1]) if len(known) > 1 else None

    async def _old_heartbeat(self) -> None:
        broker_id = self.rng.choice(BROKERS)
        epoch = self._old_epoch(broker_id)
        if epoch is None:
            return
        fields = {
            "broker_id": broker_id,
            "broker_epoch": epoch,
            "current_metadata_offset": 0,
            "want_fence": True,
            "want_shut_down": False,
        }
        answer = await self._controller.call(request_of("broker_heartbeat", fields))
        self._refused(f"a heartbeat of broker {broker_id} in epoch {epoch}", answer.error_code)

    def _led(self) -> tuple[TopicPartition, PartitionImage] | None:
        """A partition with a leader, as the controller has it now."""
        found = [
            (TopicPartition(topic.name, number), partition)
            for topic in self._cluster.image.topics.values()
            for number, partition in topic.partitions.items()
            if partition.leader >= 0
        ]
        return self.rng.choice(found) if found else None

    async def _propose(
        self,
        what: str,
        place: TopicPartition,
        partition: PartitionImage,
        isr: Mapping[int, int],
        *,
        leaders_epoch: int | None = None,
        partition_epoch: int | None = None,
    ) -> None:
        """A leader's proposal of an ISR, with the epochs of its brokers."""
        image = self._cluster.image
        leader = image.brokers[partition.leader]
        proposed = {
            "partition_index": place.partition,
            "leader_epoch": partition.leader_epoch,
            "new_isr_with_epochs": [
                {"broker_id": broker_id, "broker_epoch": epoch} for broker_id, epoch in isr.items()
            ],
            "leader_recovery_state": 0,
            "partition_epoch": (
                partition.partition_epoch if partition_epoch is None else partition_epoch
            ),
        }
        fields = {
            "broker_id": leader.broker_id,
            "broker_epoch": leader.epoch if leaders_epoch is None else leaders_epoch,
            "topics": [{"topic_id": image.topics[place.topic].topic_id, "partitions": [proposed]}],
        }
        answer = await self._controller.call(request_of("alter_partition", fields))
        code = answer.error_code or answer.topics[0].partitions[0].error_code
        self._refused(f"an ISR of {place} {what}", code)

    def _isr_of(self, partition: PartitionImage) -> dict[int, int]:
        brokers = self._cluster.image.brokers
        return {each: brokers[each].epoch for each in partition.isr}

    async def _old_leader(self) -> None:
        found = self._led()
        epoch = None if found is None else self._old_epoch(found[1].leader)
        if found is not None and epoch is not None:
            await self._propose(
                f"by its leader in broker epoch {epoch}",
                *found,
                self._isr_of(found[1]),
                leaders_epoch=epoch,
            )

    async def _old_proposal(self) -> None:
        found = self._led()
        if found is not None and found[1].partition_epoch > 0:
            epoch = found[1].partition_epoch - 1
            await self._propose(
                f"in partition epoch {epoch}",
                *found,
                {found[1].leader: self._isr_of(found[1])[found[1].leader]},
                partition_epoch=epoch,
            )

    async def _old_follower(self) -> None:
        """Proposes a follower that has been killed and started again since, as its leader might."""
        found = self._led()
        if found is None:
            return
        out = [each for each in BROKERS if each not in found[1].isr]
        broker_id = self.rng.choice(out) if out else None
        epoch = None if broker_id is None else self._old_epoch(broker_id)
        if broker_id is not None and epoch is not None:
            isr = {**self._isr_of(found[1]), broker_id: epoch}
            await self._propose(f"with broker {broker_id} in epoch {epoch}", *found, isr)

    async def _stopping_follower(self) -> None:
        found, stopping = self._led(), self._stopping()
        if found is None or stopping is None or stopping.broker_id in found[1].isr:
            return
        isr = {**self._isr_of(found[1]), stopping.broker_id: stopping.epoch}
        await self._propose(f"with broker {stopping.broker_id}, which stops", *found, isr)

    # ---- leaders

    async def _old_fetch(self) -> None:
        """A follower's fetch of its life before, at a leader that knows of this life."""
        found = self._led()
        if found is None:
            return
        place, partition = found
        follower = self.rng.choice([each for each in BROKERS if each != partition.leader])
        epoch = self._old_epoch(follower)
        leader = self._cluster.brokers[partition.leader].running
        if epoch is None or leader is None or not leader.is_serving:
            return
        known = leader.broker.metadata.image.brokers.get(follower)
        log = leader.logs.get(place)
        if known is None or known.fenced or known.epoch <= epoch or log is None:
            return
        fetched = {
            "partition": place.partition,
            "current_leader_epoch": partition.leader_epoch,
            "fetch_offset": log.log_end_offset,
            "last_fetched_epoch": -1,
            "log_start_offset": -1,
            "partition_max_bytes": 1,
        }
        fields = {
            "replica_state": {"replica_id": follower, "replica_epoch": epoch},
            "max_wait_ms": 0,
            "min_bytes": 0,
            "max_bytes": 1,
            "isolation_level": 0,
            "session_id": 0,
            "session_epoch": -1,
            "topics": [
                {
                    "topic_id": self._cluster.image.topics[place.topic].topic_id,
                    "partitions": [fetched],
                }
            ],
            "forgotten_topics_data": [],
            "rack_id": "",
        }
        answer = await self.call(partition.leader, "fetch", fields)
        code = answer.error_code or answer.responses[0].partitions[0].error_code
        if (
            self._cluster.brokers[partition.leader].running is not leader
            or leader.broker.metadata.image.brokers.get(follower) is not known
        ):
            return  # of a follower that is fenced the leader does not know any epoch
        self._refused(f"a fetch of {place} by broker {follower} in epoch {epoch}", code)

    async def _old_marker(self) -> None:
        """The marker of a transaction behind which the partition has batches of a later one.

        It has the epoch behind that of its transaction, which the next transaction may have.
        """
        written = self.rng.choice(self._producers).written
        late = [
            (place, producer_id, epoch)
            for number, (place, producer_id, epoch) in enumerate(written[:-1])
            if any(
                each[:2] == (place, producer_id) and each[2] > epoch
                for each in written[number + 1 :]
            )
        ]
        if not late:
            return
        place, producer_id, epoch = self.rng.choice(late)
        epoch += 1
        leader, _ = await self.leader(place)
        marker = {
            "producer_id": producer_id,
            "producer_epoch": epoch,
            "transaction_result": self.rng.random() < 0.5,
            "coordinator_epoch": 1 << 20,
            "transaction_version": 2,
            "topics": [{"name": place.topic, "partition_indexes": [place.partition]}],
        }
        answer = await self.call(leader, "write_txn_markers", {"markers": [marker]})
        code = answer.markers[0].topics[0].partitions[0].error_code
        self._refused(f"a marker of producer {producer_id} in epoch {epoch} for {place}", code)

    # ---- groups

    def _member(self) -> tuple[Member, int, str, int] | None:
        """A member, and a coordinator, id and epoch of its that this coordinator has replaced."""
        member = self.rng.choice(self._members)
        late = [
            (coordinator, member_id, epoch)
            for coordinator, member_id, epoch in member.heard
            if any(
                each[:2] == (coordinator, member_id) and each[2] > epoch for each in member.heard
            )
        ]
        return (member, *self.rng.choice(late)) if late else None

    async def _old_member(self) -> None:
        found = self._member()
        if found is None:
            return
        member, coordinator, member_id, epoch = found
        fields = {
            "group_id": member.group,
            "member_id": member_id,
            "member_epoch": epoch,
            "topic_partitions": None,
        }
        answer = await self.call(coordinator, "consumer_group_heartbeat", fields)
        self._refused(f"a heartbeat of {member.name} in epoch {epoch}", answer.error_code)

    async def _old_commit(self) -> None:
        """The commit of a partition that this member has never had."""
        found = self._member()
        if found is None:
            return
        member, coordinator, member_id, epoch = found
        never = [each for each in member.partitions if each not in member.given(member_id)]
        if not never:
            return
        place = self.rng.choice(never)
        code = await self.commit(coordinator, member.group, member_id, epoch, place, offset=0)
        self._refused(f"a commit of {place} by {member.name} in epoch {epoch}", code)
