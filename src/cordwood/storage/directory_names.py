"""The names of partitions' directories: live, to be deleted, stray, on their way elsewhere.

Source: org.apache.kafka.storage.internals.log.LocalLog.parseTopicPartitionName, logDeleteDirName,
logFutureDirName, logStrayDirName.
"""

from __future__ import annotations

import re

from cordwood.format.file_names import DELETE_DIR_SUFFIX, FUTURE_DIR_SUFFIX, STRAY_DIR_SUFFIX
from cordwood.model.errors import CordwoodError, NotALogDirError
from cordwood.model.kafka_errors import InvalidTopicError
from cordwood.model.topic_names import TOPIC_NAME_LENGTH_MAX, is_reserved, topic_name_fault
from cordwood.model.topic_partition import TopicPartition

_MARKED = re.compile(r"(\S+)-(\S+)\.(\S+)(-delete|-future|-stray)")
_SUFFIXES = (DELETE_DIR_SUFFIX, FUTURE_DIR_SUFFIX, STRAY_DIR_SUFFIX)
_NAME_LENGTH_MAX = 255
_UNIQUE_ID_LENGTH = 32


def parse_directory_name(name: str, *, parent: str = "") -> tuple[TopicPartition, str]:
    """(partition, suffix) of a directory's name; the suffix is "" for a live one.

    The topic of a `-delete` or `-stray` name may be the beginning of the true one.

    Raises:
        NotALogDirError: the name is no partition's.
    """
    suffix = next((s for s in _SUFFIXES if name.endswith(s)), "")
    matched = _MARKED.fullmatch(name) if suffix else None
    stem = name.rpartition(".")[0] if suffix else name
    try:
        if suffix and matched is None:
            raise CordwoodError(name)
        return TopicPartition.parse(stem), suffix
    except CordwoodError:
        raise NotALogDirError(
            f"Found directory {parent or '.'}/{name}, '{name}' is not in the form of "
            "topic-partition or topic-partition.uniqueId-delete (if marked for deletion).\n"
            "Kafka's log directories (and children) should only contain Kafka topic data."
        ) from None


def live_directory_name(partition: TopicPartition) -> str:
    """The name of the directory of a partition that is served.

    Raises:
        InvalidTopicError: the topic has the name of the metadata log, whose directory that is, or
            one that no topic can have, such as `../x`.
    """
    name = str(partition)
    # Longer names than a topic's do no harm, as long as the directory can have them.
    fault = topic_name_fault(partition.topic[:TOPIC_NAME_LENGTH_MAX])
    if fault is not None or len(name) > _NAME_LENGTH_MAX or partition.partition < 0:
        raise InvalidTopicError(f"{name[:_NAME_LENGTH_MAX]!r} is not the name of a directory")
    if is_reserved(partition.topic):
        raise InvalidTopicError(f"{partition} is the directory of the cluster metadata log")
    return name


def delete_directory_name(partition: TopicPartition, unique_id: str) -> str:
    """The name of a directory to be deleted; its topic is cut where the name would be too long."""
    return _marked_name(partition, unique_id, DELETE_DIR_SUFFIX)


def stray_directory_name(partition: TopicPartition, unique_id: str) -> str:
    """The name of a directory that no partition of this broker's belongs to."""
    return _marked_name(partition, unique_id, STRAY_DIR_SUFFIX)


def future_directory_name(partition: TopicPartition, unique_id: str) -> str:
    """The name of a directory that will take the place of one in another log directory."""
    return f"{partition}.{unique_id}{FUTURE_DIR_SUFFIX}"


def has_future_directory_name(partition: TopicPartition) -> bool:
    """Whether the name of a future directory is short enough for a file system.

    Source: ReplicaManager.alterReplicaLogDirs.
    """
    return len(future_directory_name(partition, "0" * _UNIQUE_ID_LENGTH)) <= _NAME_LENGTH_MAX


def _marked_name(partition: TopicPartition, unique_id: str, suffix: str) -> str:
    tail = f"-{partition.partition}.{unique_id}{suffix}"
    return partition.topic[: _NAME_LENGTH_MAX - len(tail)] + tail
