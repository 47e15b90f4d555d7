"""The requests of a broker to the active controller of its quorum.

Source: kafka.server.RPCProducerIdManager, DefaultAutoTopicCreationManager,
org.apache.kafka.server.AssignmentsManager,
org.apache.kafka.server.partition.DefaultAlterPartitionManager (4.3.0); KIP-497, KIP-730, KIP-858,
KIP-903.
"""

from __future__ import annotations

import uuid
from collections.abc import Awaitable, Callable, Collection, Iterable, Sequence

from cordwood.client.errors import ClientError
from cordwood.format.messages.message import R, Request
from cordwood.metadata.controller_requests import (
    AlteredIsr,
    CreatedTopic,
    DirectoryAssignment,
    IsrChange,
    NewTopic,
)
from cordwood.metadata.quorum.active_controller import ActiveController
from cordwood.model.error_codes import ErrorCode
from cordwood.model.kafka_errors import KafkaError, RequestTimedOutError
from cordwood.protocol.data import (
    AllocateProducerIdsRequest,
    AlterPartitionRequest,
    AssignReplicasToDirsRequest,
    CreateTopicsRequest,
)

_TIMEOUT_MS = 30_000


class QuorumChannel:
    """A `ControllerChannel`; an answer does not wait until this broker has applied the change."""

    def __init__(
        self,
        controller: ActiveController,
        *,
        broker_id: int,
        broker_epoch: Callable[[], int],
        directories_failed: Callable[[Collection[uuid.UUID]], Awaitable[None]],
        cordoned_changed: Callable[[], None],
    ) -> None:
        """Sends nothing yet.

        Args:
            controller: gets the requests.
            broker_id: of this broker.
            broker_epoch: of its registration.
            directories_failed: has heartbeats name failed directories, until one is answered.
            cordoned_changed: has a heartbeat name the cordoned directories.
        """
        self._controller = controller
        self._broker_id = broker_id
        self._broker_epoch = broker_epoch
        self._directories_failed = directories_failed
        self._cordoned_changed = cordoned_changed

    async def create_topics(
        self, wanted: Sequence[NewTopic], *, validate_only: bool = False
    ) -> Sequence[CreatedTopic | KafkaError]:
        """Sends CreateTopics to the active controller."""
        answer = await self._ask(
            CreateTopicsRequest(
                topics=[_topic(each) for each in wanted],
                timeout_ms=_TIMEOUT_MS,
                validate_only=validate_only,
            ),
        )
        found = {each.name: each for each in answer.topics}
        return [
            CreatedTopic(each.name, each.topic_id, each.num_partitions, each.replication_factor)
            if not each.error_code
            else _error(each.error_code, each.error_message)
            for each in (found[topic.name] for topic in wanted)
        ]

    async def allocate_producer_ids(self) -> tuple[int, int]:
        """Sends AllocateProducerIds to the active controller."""
        answer = await self._ask(
            AllocateProducerIdsRequest(broker_id=self._broker_id, broker_epoch=self._broker_epoch())
        )
        if answer.error_code:
            raise _error(answer.error_code)
        return answer.producer_id_start, answer.producer_id_len

    async def alter_partitions(self, changes: Sequence[IsrChange]) -> Sequence[AlteredIsr]:
        """Sends AlterPartition to the active controller."""
        topics: dict[uuid.UUID, list[AlterPartitionRequest.PartitionData]] = {}
        for each in changes:
            topics.setdefault(each.topic_id, []).append(_partition(each))
        answer = await self._ask(
            AlterPartitionRequest(
                broker_id=self._broker_id,
                broker_epoch=self._broker_epoch(),
                topics=[
                    AlterPartitionRequest.TopicData(topic_id=topic_id, partitions=partitions)
                    for topic_id, partitions in topics.items()
                ],
            )
        )
        if answer.error_code:
            raise _error(answer.error_code)
        found = {
            (topic.topic_id, each.partition_index): AlteredIsr(
                ErrorCode.of(each.error_code), each.leader_epoch, each.partition_epoch, each.isr
            )
            for topic in answer.topics
            for each in topic.partitions
        }
        unanswered = AlteredIsr(ErrorCode.UNKNOWN_SERVER_ERROR)
        return [found.get((each.topic_id, each.partition), unanswered) for each in changes]

    async def assign_directories(self, assigned: Iterable[DirectoryAssignment]) -> None:
        """Sends AssignReplicasToDirs to the active controller."""
        directories: dict[uuid.UUID, dict[uuid.UUID, list[int]]] = {}
        for topic_id, partition, directory in assigned:
            directories.setdefault(directory, {}).setdefault(topic_id, []).append(partition)
        of = AssignReplicasToDirsRequest
        answer = await self._ask(
            of(
                broker_id=self._broker_id,
                broker_epoch=self._broker_epoch(),
                directories=[
                    of.DirectoryData(
                        id=directory,
                        topics=[
                            of.TopicData(
                                topic_id=topic_id,
                                partitions=[of.PartitionData(partition_index=n) for n in numbers],
                            )
                            for topic_id, numbers in topics.items()
                        ],
                    )
                    for directory, topics in directories.items()
                ],
            )
        )
        if answer.error_code:
            raise _error(answer.error_code)

    async def directories_failed(self, directories: Collection[uuid.UUID]) -> None:
        """Has the next heartbeats report the failed directories."""
        await self._directories_failed(directories)

    async def directories_cordoned(self, _directories: Collection[uuid.UUID]) -> None:
        """Has a heartbeat report the cordoned directories, which every heartbeat names."""
        self._cordoned_changed()

    async def _ask(self, request: Request[R]) -> R:
        try:
            return await self._controller.ask(request, timeout_ms=_TIMEOUT_MS)
        except ClientError as error:
            raise RequestTimedOutError(str(error)) from error


def _partition(change: IsrChange) -> AlterPartitionRequest.PartitionData:
    return AlterPartitionRequest.PartitionData(
        partition_index=change.partition,
        leader_epoch=change.leader_epoch,
        new_isr=[broker_id for broker_id, _ in change.isr],
        new_isr_with_epochs=[
            AlterPartitionRequest.BrokerState(broker_id=broker_id, broker_epoch=epoch)
            for broker_id, epoch in change.isr
        ],
        leader_recovery_state=change.recovery_state,
        partition_epoch=change.partition_epoch,
    )


def _topic(topic: NewTopic) -> CreateTopicsRequest.CreatableTopic:
    return CreateTopicsRequest.CreatableTopic(
        name=topic.name,
        num_partitions=topic.num_partitions,
        replication_factor=topic.replication_factor,
        assignments=[
            CreateTopicsRequest.CreatableReplicaAssignment(
                partition_index=index, broker_ids=list(brokers)
            )
            for index, brokers in topic.assignments
        ],
        configs=[
            CreateTopicsRequest.CreatableTopicConfig(name=name, value=value)
            for name, value in topic.configs.items()
        ],
    )


def _error(code: int, message: str | None = None) -> KafkaError:
    error = KafkaError(ErrorCode.of(code).message if message is None else message)
    error.code = code
    return error
