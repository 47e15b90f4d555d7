"""Offset checkpoints: `<topic> <partition> <offset>`, a line to a partition of the log directory.

Source: org.apache.kafka.storage.internals.checkpoint.OffsetCheckpointFile.
"""

from __future__ import annotations

from collections.abc import Mapping

from cordwood.format.checkpoint_text import (
    build_checkpoint_text,
    parse_checkpoint_text,
    parse_number,
)
from cordwood.format.varint import Buffer
from cordwood.model.topic_partition import TopicPartition


def parse_offset_checkpoint(data: Buffer | str) -> dict[TopicPartition, int]:
    """The offset of each partition, in the order stored; of a partition twice there, the last.

    Raises:
        CorruptError: the text is malformed.
        UnsupportedVersionError: its version is not 0.
    """
    return {
        TopicPartition(topic, parse_number(partition)): parse_number(offset)
        for topic, partition, offset in parse_checkpoint_text(data, fields_per_entry=3)
    }


def build_offset_checkpoint(offsets: Mapping[TopicPartition, int]) -> bytes:
    """The bytes of a file with those offsets, in that order."""
    return build_checkpoint_text(
        f"{name.topic} {name.partition} {offset}" for name, offset in offsets.items()
    )
