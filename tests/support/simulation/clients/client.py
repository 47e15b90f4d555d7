"""Common part of all clients: finds leaders and coordinators, asks, and tries again.

Real: `NodeConnection` with its wire and codecs. The clients themselves are written for the
simulation, in the words of Kafka's protocol; each is a process of its own in the network.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Mapping
from typing import Any, Final
from uuid import UUID

from cordwood.client.errors import ClientError
from cordwood.client.node_connection import NodeAddress, NodeConnection
from cordwood.model.error_codes import ErrorCode
from cordwood.model.topic_partition import TopicPartition
from support.requests import request_of
from support.simulation.event_loop import Process, SimulatedLoop
from support.simulation.events import Event
from support.simulation.history import History
from support.simulation.settings import BROKER_PORT, broker_name

TIMEOUT_S: Final = 1.2
BACKOFF_S: Final = 0.05
BROKERS: Final = (1, 2, 3)
GROUP, TRANSACTION = 0, 1
"""The kinds of coordinators."""


class NoAnswerError(Exception):
    """A request that may be tried again: it had no answer, or nobody knows whom to ask."""


class Client:
    """A client, and what it knows of the cluster."""

    def __init__(self, name: str, loop: SimulatedLoop, rng: random.Random, history: History):
        """Knows nothing yet.

        Args:
            name: of the client, and of its node in the network.
            loop: the loop.
            rng: of this client.
            history: receives what happens.
        """
        self.name = name
        self.rng = rng
        self.process = Process(name)
        self.loop = loop
        self._history = history
        self._connections: dict[int, NodeConnection] = {}
        self._leaders: dict[TopicPartition, tuple[int, int]] = {}
        #: The newest leader epoch of each partition; what a broker says of an older one is skipped.
        self._epochs: dict[TopicPartition, int] = {}
        self._topic_ids: dict[str, UUID] = {}
        self._coordinators: dict[tuple[int, str], int] = {}

    def note(self, event: Event) -> None:
        """Adds an event to the history."""
        self._history.note(self.name, event)

    async def call(
        self,
        broker_id: int,
        api: str,
        fields: Mapping[str, Any],
        version_max: int | None = None,
        timeout_s: float = TIMEOUT_S,
    ) -> Any:
        """A broker's answer.

        Raises:
            NoAnswerError: there is none.
        """
        connection = self._connections.get(broker_id)
        if connection is None:
            connection = self._connections[broker_id] = NodeConnection(
                lambda: NodeAddress(broker_name(broker_id), BROKER_PORT),
                client_id=self.name,
                timeout_s=timeout_s,
            )
        try:
            return await connection.call(request_of(api, fields), version_max=version_max)
        except ClientError as error:
            self._leaders.clear()
            self._coordinators.clear()
            raise NoAnswerError(str(error)) from error

    async def back_off(self) -> None:
        """Waits a little before the next attempt."""
        self._leaders.clear()
        self._coordinators.clear()
        await asyncio.sleep(BACKOFF_S * (1 + self.rng.random()))

    async def leader(self, partition: TopicPartition) -> tuple[int, int]:
        """The leader of a partition and its epoch, as a broker knows them.

        Raises:
            NoAnswerError: none is known.
        """
        if partition not in self._leaders:
            await self._look_up()
        found = self._leaders.get(partition)
        if found is None or found[0] < 0:
            raise NoAnswerError(f"no leader of {partition} is known")
        return found

    async def topic_id(self, topic: str) -> UUID:
        """The id of a topic.

        Raises:
            NoAnswerError: it is not known.
        """
        if topic not in self._topic_ids:
            await self._look_up()
        if topic not in self._topic_ids:
            raise NoAnswerError(f"no topic {topic} is known")
        return self._topic_ids[topic]

    def topic_of(self, topic_id: UUID) -> str:
        """The name of a topic that is known."""
        return next(name for name, found in self._topic_ids.items() if found == topic_id)

    async def _look_up(self) -> None:
        """Source: org.apache.kafka.clients.Metadata.updateLatestMetadata."""
        fields = {"topics": None, "allow_auto_topic_creation": False}
        answer = await self.call(self.rng.choice(BROKERS), "metadata", fields)
        for topic in answer.topics:
            if topic.error_code:
                continue
            self._topic_ids[topic.name] = topic.topic_id
            for each in topic.partitions:
                place = TopicPartition(topic.name, each.partition_index)
                if each.leader_epoch >= self._epochs.get(place, -1):
                    self._epochs[place] = each.leader_epoch
                    self._leaders[place] = each.leader_id, each.leader_epoch

    async def coordinator(self, kind: int, key: str) -> int:
        """The broker that coordinates a group or a transactional id.

        Raises:
            NoAnswerError: none is known.
        """
        found = self._coordinators.get((kind, key))
        if found is None:
            fields = {"key_type": kind, "coordinator_keys": [key]}
            # Version 6 would have CreateTopics of internal topics as well.
            answer = await self.call(self.rng.choice(BROKERS), "find_coordinator", fields)
            (each,) = answer.coordinators
            if each.error_code:
                raise NoAnswerError(f"no coordinator of {key}: {name_of(each.error_code)}")
            found = self._coordinators[kind, key] = each.node_id
        return found

    async def commit(
        self,
        coordinator: int,
        group: str,
        member_id: str,
        epoch: int,
        partition: TopicPartition,
        *,
        offset: int,
    ) -> int:
        """Has a member commit an offset (OffsetCommit); returns the error code.

        Raises:
            NoAnswerError: there is none.
        """
        committed = {
            "partition_index": partition.partition,
            "committed_offset": offset,
            "committed_leader_epoch": -1,
            "committed_metadata": "",
        }
        topic = {
            "name": partition.topic,
            "topic_id": await self.topic_id(partition.topic),
            "partitions": [committed],
        }
        fields = {
            "group_id": group,
            "generation_id_or_member_epoch": epoch,
            "member_id": member_id,
            "topics": [topic],
        }
        answer = await self.call(coordinator, "offset_commit", fields)
        return int(answer.topics[0].partitions[0].error_code)


def name_of(code: int) -> str:
    """The name of an error code."""
    return ErrorCode.of(code).name
