"""Committed offsets: the current state of `__consumer_offsets`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Final

import pyarrow as pa

from cordwood.broker.coordinators.group_log import GroupReplay
from cordwood.coordinator.group.offsets import CommittedOffset, OffsetKey, OffsetStore
from cordwood.coordinator.group.shard import GroupShard
from cordwood.coordinator.timeline import Timeline
from cordwood.frames.internal_logs import InternalLog, internal_logs
from cordwood.frames.options import PARTITIONS_OPTIONS, FrameOptions
from cordwood.frames.rows import TIMESTAMP, Row, batches_of, timestamp
from cordwood.frames.table import Table
from cordwood.frames.wanted import Isolation, Wanted
from cordwood.model.topic_names import GROUP_METADATA_TOPIC
from cordwood.model.topic_partition import TopicPartition
from cordwood.model.uuids import ZERO_UUID, uuid_text

_NO_PRODUCER: Final = -1

_SCHEMA: Final = pa.schema(
    {
        "groupId": pa.string(),
        "topic": pa.string(),
        "partition": pa.int32(),
        "offset": pa.int64(),
        "leaderEpoch": pa.int32(),
        "metadata": pa.string(),
        "commitTimestamp": TIMESTAMP,
        "expireTimestamp": TIMESTAMP,
        "topicId": pa.string(),
        "isPending": pa.bool_(),
        "producerId": pa.int64(),
        "recordPartition": pa.int32(),
        "recordOffset": pa.int64(),
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Commits:
    """The offsets in a log for topics that match a glob, all if there is none, and are wanted.

    Those of open transactions are left out unless `has_pending`.
    """

    log: InternalLog
    topics: tuple[str, ...]
    wanted: Wanted
    has_pending: bool

    @property
    def size_bytes(self) -> int:
        """The bytes that are read, at most."""
        return self.log.size_bytes

    def has(self, key: OffsetKey) -> bool:
        """Whether the offset of a key is one of them."""
        if not self.wanted.has(TopicPartition(key.topic, key.partition)):
            return False
        return not self.topics or any(fnmatchcase(key.topic, glob) for glob in self.topics)


def _parts(options: FrameOptions, wanted: Wanted) -> list[_Commits]:
    return [
        _Commits(
            log=log,
            topics=options.topics,
            wanted=wanted,
            has_pending=options.isolation is not Isolation.READ_COMMITTED,
        )
        for log in internal_logs(GROUP_METADATA_TOPIC, options)
    ]


def _read(part: _Commits, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
    shard = GroupShard(part.log.partition, Timeline())
    part.log.replay(GroupReplay(shard))
    return batches_of(_rows(part, shard.offsets), _SCHEMA, columns)


def _rows(part: _Commits, offsets: OffsetStore) -> Iterator[Row]:
    number = part.log.partition
    for group_id in offsets.group_ids():
        for key, offset in offsets.of_group(group_id):
            if part.has(key):
                yield _row(key, offset, number, _NO_PRODUCER)
    if part.has_pending:
        for producer_id, key, offset in offsets.pending():
            if part.has(key):
                yield _row(key, offset, number, producer_id)


def _row(key: OffsetKey, offset: CommittedOffset, number: int, producer_id: int) -> Row:
    return {
        "groupId": key.group_id,
        "topic": key.topic,
        "partition": key.partition,
        "offset": offset.offset,
        "leaderEpoch": offset.leader_epoch,
        "metadata": offset.metadata,
        "commitTimestamp": timestamp(offset.commit_timestamp_ms),
        "expireTimestamp": timestamp(offset.expire_timestamp_ms),
        "topicId": None if offset.topic_id == ZERO_UUID else uuid_text(offset.topic_id),
        "isPending": producer_id != _NO_PRODUCER,
        "producerId": producer_id,
        "recordPartition": number,
        "recordOffset": offset.record_offset,
    }


OFFSETS: Final = Table(
    name="offsets",
    schema=_SCHEMA,
    default_columns=tuple(_SCHEMA.names),
    options=(*PARTITIONS_OPTIONS, "isolation"),
    parts=_parts,
    read=_read,
)
