"""The layout of `LocalTieredStorage`, the remote storage of Kafka's own tests: a directory.

`<topic>-<partition>-<topic id>/<20 digits of the start offset>-<segment id><suffix>`.

Source: org.apache.kafka.server.log.remote.storage.LocalTieredStorage, RemoteLogSegmentFileset.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final
from uuid import UUID

from cordwood.format.file_names import (
    INDEX_SUFFIX,
    LOG_SUFFIX,
    OFFSET_DIGITS,
    PRODUCER_SNAPSHOT_SUFFIX,
    TIME_INDEX_SUFFIX,
    TXN_INDEX_SUFFIX,
)
from cordwood.model.topic_partition import TopicPartition
from cordwood.model.uuids import uuid_text
from cordwood.storage.filesystem import OS
from cordwood.storage.tiered.remote_log import RemoteSegment

#: That it makes below the directory of its configuration.
DIRECTORY: Final = "kafka-tiered-storage"

_OPTIONAL: Final = (TXN_INDEX_SUFFIX, PRODUCER_SNAPSHOT_SUFFIX)
_SUFFIXES: Final = (LOG_SUFFIX, INDEX_SUFFIX, TIME_INDEX_SUFFIX, *_OPTIONAL)


class LocalTieredStorage:
    """The files of remote segments in a directory."""

    def __init__(self, directory: Path) -> None:
        """Takes the directory of its configuration, or the one with the partitions' below that."""
        self._directory = directory

    def files_of(
        self, log: TopicPartition, topic_id: UUID, segment: RemoteSegment
    ) -> dict[str, Path]:
        """The files of a segment by suffix, which are those of a log directory.

        The index of aborted transactions is there if it has any, and the producer snapshot is that
        of the end of the segment.
        """
        below = self._directory / DIRECTORY
        root = below if OS.is_directory(below) else self._directory
        name = f"{segment.start_offset:0{OFFSET_DIGITS}d}-{uuid_text(segment.segment_id)}"
        stem = root / f"{log}-{uuid_text(topic_id)}" / name
        paths = {suffix: stem.with_name(f"{name}{suffix}") for suffix in _SUFFIXES}
        return {
            suffix: path
            for suffix, path in paths.items()
            if suffix not in _OPTIONAL or OS.exists(path)
        }
