r"""`partition.metadata`: the id of the topic that a partition directory belongs to.

Two lines, `version: 0` and `topic_id: <22 characters>`, the second without an end of line.

Source: org.apache.kafka.storage.internals.log.PartitionMetadataFile.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from uuid import UUID

from cordwood.format.varint import Buffer
from cordwood.model.errors import CorruptError
from cordwood.model.uuids import ZERO_UUID, parse_uuid, uuid_text

VERSION = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionMetadata:
    """The file's version, and the topic's id."""

    version: int
    topic_id: UUID


def parse_partition_metadata(data: Buffer | str) -> PartitionMetadata:
    """The file's content.

    Raises:
        CorruptError: a line is malformed or missing, or the id is no uuid or the zero one.
    """
    try:
        text = data if isinstance(data, str) else bytes(data).decode()
    except UnicodeDecodeError as error:
        raise CorruptError("partition.metadata is not UTF-8", position=error.start) from None
    lines = text.splitlines()
    if len(lines) < 2:
        raise CorruptError(f"partition.metadata of {len(lines)} lines")
    version = re.fullmatch(r"version:\s+(\d{1,9})", lines[0])
    topic_id = re.fullmatch(r"topic_id:\s+(\S+)", lines[1])
    if version is None or topic_id is None:
        raise CorruptError(f"malformed partition.metadata: {text[:100]!r}")
    found = parse_uuid(topic_id[1])
    if found == ZERO_UUID:
        raise CorruptError("partition.metadata holds the zero topic id")
    return PartitionMetadata(version=int(version[1]), topic_id=found)


def build_partition_metadata(topic_id: UUID) -> bytes:
    """The file's bytes for a topic with that id."""
    return f"version: {VERSION}\ntopic_id: {uuid_text(topic_id)}".encode()
