"""DescribeLogDirs (35), versions 1 to 5: directories, with partitions and their sizes.

Versions: 2 flexible, 3 an error for the whole response, 4 total and usable bytes (KIP-827), 5
cordoned directories (KIP-1066).

Source: kafka.server.ReplicaManager.describeLogDirs.
"""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path

from cordwood.broker.broker_context import BrokerContext
from cordwood.metadata.records import has_cordoned_directories
from cordwood.model.error_codes import ErrorCode
from cordwood.model.pauses import in_steps
from cordwood.protocol.data import DescribeLogDirsRequest, DescribeLogDirsResponse
from cordwood.serving.api import Api, Response, always
from cordwood.serving.authorizer import AclOperation
from cordwood.storage.log.partition_log import PartitionLog

_UNKNOWN = -1


def handle(context: BrokerContext, request: DescribeLogDirsRequest) -> Response:
    """Lists every directory, with the partitions asked for or all."""
    if not context.authorize_cluster(AclOperation.DESCRIBE):
        return DescribeLogDirsResponse(
            error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED, results=[]
        )
    wanted = _wanted(request)
    by_directory: dict[Path, list[tuple[PartitionLog, bool]]] = defaultdict(list)
    for log, is_future in in_steps(context.broker.replicas.logs_with_futures(), every=64):
        partition = log.topic_partition
        if wanted is None or (partition.topic, partition.partition) in wanted:
            by_directory[log.log_dir].append((log, is_future))
    offline = context.broker.replicas.logs.context.failures.offline
    is_reported = has_cordoned_directories(context.broker.metadata.image.metadata_version)
    cordoned = context.broker.replicas.logs.cordoned if is_reported else frozenset()
    results: list[DescribeLogDirsResponse.DescribeLogDirsResult] = []
    for directory in context.broker.replicas.log_dirs:
        if directory in offline:
            results.append(_offline(directory))
            continue
        try:
            total, usable = context.broker.replicas.logs.context.fs.space(directory)
        except OSError:  # it has failed, and nothing was done there since
            results.append(_offline(directory))
            continue
        results.append(
            DescribeLogDirsResponse.DescribeLogDirsResult(
                log_dir=str(directory),
                topics=_topics(context, by_directory[directory]),
                total_bytes=total,
                usable_bytes=usable,
                is_cordoned=directory in cordoned,
            )
        )
    return DescribeLogDirsResponse(results=results)


def _wanted(request: DescribeLogDirsRequest) -> set[tuple[str, int]] | None:
    if request.topics is None:
        return None
    return {
        (topic.topic, index)
        for topic in in_steps(request.topics, every=16)
        for index in in_steps(topic.partitions, every=64)
    }


def _offline(directory: Path) -> DescribeLogDirsResponse.DescribeLogDirsResult:
    return DescribeLogDirsResponse.DescribeLogDirsResult(
        error_code=ErrorCode.KAFKA_STORAGE_ERROR,
        log_dir=str(directory),
        total_bytes=_UNKNOWN,
        usable_bytes=_UNKNOWN,
    )


def _topics(
    context: BrokerContext, logs: list[tuple[PartitionLog, bool]]
) -> list[DescribeLogDirsResponse.DescribeLogDirsTopic]:
    topics: dict[str, list[DescribeLogDirsResponse.DescribeLogDirsPartition]] = defaultdict(list)
    for log, is_future in in_steps(logs, every=16):
        topics[log.topic_partition.topic].append(
            DescribeLogDirsResponse.DescribeLogDirsPartition(
                partition_index=log.topic_partition.partition,
                partition_size=log.size_bytes,
                offset_lag=_lag(context, log) if is_future else 0,
                is_future_key=is_future,
            )
        )
    return [
        DescribeLogDirsResponse.DescribeLogDirsTopic(name=name, partitions=partitions)
        for name, partitions in topics.items()
    ]


def _lag(context: BrokerContext, future: PartitionLog) -> int:
    current = context.broker.replicas.logs.get(future.topic_partition)
    return 0 if current is None else max(0, current.log_end_offset - future.log_end_offset)


API = Api(35, "DescribeLogDirs", 1, 5, handle, is_long=always)
