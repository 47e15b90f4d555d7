"""`__remote_log_metadata` in log directories: the remote segments of all logs.

Source: org.apache.kafka.server.log.remote.metadata.storage.RemotePartitionMetadataStore.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final
from uuid import UUID

from cordwood.format.file_names import is_log_file
from cordwood.format.remote_log_metadata import SCHEMAS, decode_remote_log_metadata
from cordwood.model.errors import ConfigError, CorruptError
from cordwood.model.topic_partition import TopicPartition
from cordwood.storage.filesystem import OS
from cordwood.storage.reading.batches import LogFile
from cordwood.storage.tiered.remote_log import RemoteLog

TOPIC: Final = "__remote_log_metadata"

#: Records about a segment. A partition that is deleted, the subject of another, comes never again.
_OF_SEGMENTS: Final = (
    SCHEMAS["RemoteLogSegmentMetadataRecord"],
    SCHEMAS["RemoteLogSegmentMetadataUpdateRecord"],
)

RemoteLogs = dict[tuple[UUID, TopicPartition], RemoteLog]


def metadata_segments(log_dirs: Sequence[Path]) -> list[Path]:
    """The `.log` files of the topic, those of a partition in order.

    Of a partition that several directories have, the first counts.

    Raises:
        ConfigError: no directory has one.
        OSError: a directory cannot be read.
    """
    found: dict[str, list[Path]] = {}
    for log_dir in log_dirs:
        for name in OS.names_in(log_dir):
            if TopicPartition.is_name(name) and name.rpartition("-")[0] == TOPIC:
                directory = log_dir / name
                names = [each for each in OS.names_in(directory) if is_log_file(each)]
                found.setdefault(name, [directory / each for each in names])
    if not found:
        raise ConfigError(
            f"no partition of {TOPIC} is in {', '.join(map(str, log_dirs))}: metadata-dir names "
            "where they are, once for each directory"
        )
    return [path for paths in found.values() for path in paths]


def read_remote_logs(segments: Sequence[Path]) -> RemoteLogs:
    """The remote segments of all logs, by topic id and partition.

    Raises:
        CorruptError: a record cannot be understood; names the file.
        OSError: a file cannot be read.
    """
    logs: RemoteLogs = {}
    for path in segments:
        for value in _values(path):
            try:
                message = decode_remote_log_metadata(value)
                if message.schema not in _OF_SEGMENTS:
                    continue
                owner = message.fields["remoteLogSegmentId"]["topicIdPartition"]
                key = owner["id"], TopicPartition(owner["name"], owner["partition"])
                logs.setdefault(key, RemoteLog()).take(message.fields)
            except ValueError as error:
                raise CorruptError(f"a record is invalid: {error}", path=str(path)) from error
            except CorruptError as error:
                raise error.located(path=str(path)) from error
    return logs


def _values(path: Path) -> Iterator[bytes]:
    with LogFile(path) as log:
        for placed in log.batches():
            try:
                placed.batch.require_valid()
                records = placed.batch.records()
            except CorruptError as error:
                raise error.located(path=str(path), base_position=placed.position) from error
            for record in records:
                if record.value is not None:
                    yield bytes(record.value)
