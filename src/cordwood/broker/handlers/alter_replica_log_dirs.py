"""AlterReplicaLogDirs (34), versions 1 to 2: moves partitions between directories of this broker.

Answered when the moves have begun; DescribeLogDirs shows their progress (KIP-113). A move copies
beside appends and reads, the cleaner leaves the partition alone meanwhile, and at its end the
controller gets a report.

Source: kafka.server.ReplicaManager.alterReplicaLogDirs, ReplicaAlterLogDirsThread.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from cordwood.broker.broker_context import BrokerContext
from cordwood.model.error_codes import ErrorCode
from cordwood.model.kafka_errors import (
    KafkaError,
    NotLeaderOrFollowerError,
    ReplicaNotAvailableError,
)
from cordwood.model.pauses import in_steps
from cordwood.model.topic_partition import TopicPartition
from cordwood.protocol.data import AlterReplicaLogDirsRequest, AlterReplicaLogDirsResponse
from cordwood.serving.api import Api, Response, always
from cordwood.serving.authorizer import AclOperation, on_cluster
from cordwood.storage.directory_names import has_future_directory_name

_Result = AlterReplicaLogDirsResponse.AlterReplicaLogDirPartitionResult


def handle(context: BrokerContext, request: AlterReplicaLogDirsRequest) -> Response:
    """Begins every move that is not done already."""
    topics: dict[str, list[_Result]] = {}
    begun: list[tuple[asyncio.Future[Any], _Result]] = []
    for target in in_steps(request.dirs):
        for topic in in_steps(target.topics):
            for index in in_steps(topic.partitions, every=8):
                partition = TopicPartition(topic.name, index)
                answer = _Result(partition_index=index)
                topics.setdefault(topic.name, []).append(answer)
                move = _begin(context, partition, Path(target.path))
                if isinstance(move, int):
                    answer.error_code = move
                else:
                    begun.append((move, answer))
    return _answer(topics, begun)


async def _answer(
    topics: dict[str, list[_Result]],
    begun: list[tuple[asyncio.Future[Any], _Result]],
) -> AlterReplicaLogDirsResponse:
    for move, answer in begun:
        try:
            # A client that goes away must not end what has begun.
            await asyncio.shield(move)
        except KafkaError as error:
            answer.error_code = error.code
    return AlterReplicaLogDirsResponse(
        results=[
            AlterReplicaLogDirsResponse.AlterReplicaLogDirTopicResult(
                topic_name=name, partitions=partitions
            )
            for name, partitions in topics.items()
        ]
    )


def _begin(
    context: BrokerContext, partition: TopicPartition, target: Path
) -> int | asyncio.Future[Any]:
    """Begins a move; returns its error code."""
    if not has_future_directory_name(partition):
        return ErrorCode.INVALID_TOPIC_EXCEPTION  # KAFKA-4893
    if target not in context.broker.replicas.log_dirs:
        return ErrorCode.LOG_DIR_NOT_FOUND
    if target in context.broker.replicas.logs.context.failures.offline:
        return ErrorCode.KAFKA_STORAGE_ERROR
    if target in context.broker.replicas.logs.cordoned:
        return ErrorCode.INVALID_REPLICA_ASSIGNMENT
    try:
        context.broker.replicas.readable(partition.topic, partition.partition)
    except NotLeaderOrFollowerError:
        return ReplicaNotAvailableError.code
    except KafkaError as error:
        return error.code
    return context.broker.replicas.moves.begin(partition, target)


API = Api(
    34, "AlterReplicaLogDirs", 1, 2, handle, needs=(on_cluster(AclOperation.ALTER),), is_long=always
)
