"""Committed offsets of the groups of one partition of `__consumer_offsets`.

Offsets that a transaction commits wait for its marker, by producer.

Source: org.apache.kafka.coordinator.group.OffsetMetadataManager, OffsetAndMetadata.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache
from typing import Final, NamedTuple, cast
from uuid import UUID

from cordwood.coordinator.timeline import LATEST, MISSING, Before, Timeline
from cordwood.model.uuids import ZERO_UUID

NO_OFFSET = -1
#: How many keys of committed offsets are kept in a cache.
KEYS_CACHED_MAX: Final = 1 << 14


class CommittedOffset:
    """An offset that a group has committed for a partition; it is not changed.

    A plain class, which takes less time and memory than a named tuple where it is compiled.
    """

    __slots__ = (
        "commit_timestamp_ms",
        "expire_timestamp_ms",
        "leader_epoch",
        "metadata",
        "offset",
        "record_offset",
        "topic_id",
    )

    def __init__(
        self,
        offset: int,
        leader_epoch: int = -1,
        metadata: str = "",
        commit_timestamp_ms: int = -1,
        expire_timestamp_ms: int = -1,
        topic_id: UUID = ZERO_UUID,
        record_offset: int = -1,
    ) -> None:
        """Takes what is known of the commit.

        Args:
            offset: the offset.
            leader_epoch: that the client knows, or -1.
            metadata: the client's text.
            commit_timestamp_ms: when it was committed.
            expire_timestamp_ms: -1 unless the client used OffsetCommit before version 5 and set
                one.
            topic_id: zero in records written before Kafka 4.1.
            record_offset: the offset of the commit's record in the log, -1 if it is not there yet.
        """
        self.offset = offset
        self.leader_epoch = leader_epoch
        self.metadata = metadata
        self.commit_timestamp_ms = commit_timestamp_ms
        self.expire_timestamp_ms = expire_timestamp_ms
        self.topic_id = topic_id
        self.record_offset = record_offset

    def placed(self, record_offset: int) -> CommittedOffset:
        """The same with the offset of its record in the log."""
        return CommittedOffset(
            self.offset,
            self.leader_epoch,
            self.metadata,
            self.commit_timestamp_ms,
            self.expire_timestamp_ms,
            self.topic_id,
            record_offset,
        )

    def _fields(self) -> tuple[object, ...]:
        return (
            self.offset,
            self.leader_epoch,
            self.metadata,
            self.commit_timestamp_ms,
            self.expire_timestamp_ms,
            self.topic_id,
            self.record_offset,
        )

    def __eq__(self, other: object) -> bool:
        return isinstance(other, CommittedOffset) and self._fields() == other._fields()

    def __hash__(self) -> int:
        return hash(self._fields())

    def __repr__(self) -> str:
        return f"CommittedOffset{self._fields()}"

    def is_of(self, topic_id: UUID) -> bool:
        """Whether it may be of the topic with that id; a recreated topic has another id.

        Source: OffsetMetadataManager.isMismatchedTopicId.
        """
        return topic_id == self.topic_id or ZERO_UUID in (topic_id, self.topic_id)


class OffsetKey(NamedTuple):
    """The group and the partition of an offset."""

    group_id: str
    topic: str
    partition: int


@lru_cache(maxsize=KEYS_CACHED_MAX)
def offset_key(group_id: str, topic: str, partition: int) -> OffsetKey:
    """A key. Cached: a group commits the offsets of the same partitions all the time."""
    return OffsetKey(group_id, topic, partition)


_Partitions = dict[int, CommittedOffset]
_Topics = dict[str, _Partitions]


class _Offsets:
    """Offsets by group, topic and partition; no level is empty. Changes are noted in a timeline."""

    def __init__(self, timeline: Timeline) -> None:
        self.by_group: dict[str, _Topics] = {}
        self.count = 0
        self._timeline = timeline

    def check_invariants(self) -> None:
        count = 0
        for group_id, topics in self.by_group.items():
            assert topics, group_id
            for topic, partitions in topics.items():
                assert partitions, (group_id, topic)
                count += len(partitions)
        assert count == self.count, (count, self.count)

    def get(self, key: OffsetKey, at: int = LATEST) -> CommittedOffset | None:
        if at != LATEST and self._timeline.uncommitted_count:
            before = self._timeline.before(self, at)
            if key in before:
                return None if before[key] is MISSING else cast("CommittedOffset", before[key])
        return self.by_group.get(key.group_id, {}).get(key.topic, {}).get(key.partition)

    def put(self, key: OffsetKey, offset: CommittedOffset) -> None:
        group_id, topic, partition = key
        topics = self.by_group.get(group_id)
        if topics is None:
            topics = self.by_group[group_id] = {}
        partitions = topics.get(topic)
        if partitions is None:
            partitions = topics[topic] = {}
        before = partitions.get(partition)
        if self._timeline.is_changing:
            self._timeline.note(self, key, MISSING if before is None else before)
        if before is None:
            self.count += 1
        partitions[partition] = offset

    def remove(self, key: OffsetKey) -> None:
        topics = self.by_group.get(key.group_id, {})
        partitions = topics.get(key.topic, {})
        removed = partitions.pop(key.partition, None)
        if removed is not None:
            self._timeline.note(self, key, removed)
            self.count -= 1
        if not partitions:
            topics.pop(key.topic, None)
        if not topics:
            self.by_group.pop(key.group_id, None)

    def restore(self, before: Before) -> None:
        for key, offset in before.items():
            if offset is MISSING:
                self.remove(key)
            else:
                self.put(key, offset)

    def items(self, group_id: str, at: int = LATEST) -> Iterator[tuple[OffsetKey, CommittedOffset]]:
        before = self._timeline.before(self, at) if self._timeline.uncommitted_count else {}
        for topic, partitions in self.by_group.get(group_id, {}).items():
            for partition, offset in partitions.items():
                key = OffsetKey(group_id, topic, partition)
                if key not in before:
                    yield key, offset
        for known, replaced in before.items():
            if known.group_id == group_id and replaced is not MISSING:
                yield known, replaced


class OffsetStore:
    """All offsets of a partition of `__consumer_offsets`."""

    def __init__(self, timeline: Timeline) -> None:
        self._timeline = timeline
        self._committed = _Offsets(timeline)
        self._pending: dict[int, _Offsets] = {}

    def check_invariants(self) -> None:
        """Checks the committed offsets and those of transactions, and their numbers."""
        for offsets in (self._committed, *self._pending.values()):
            offsets.check_invariants()

    def __len__(self) -> int:
        """The number of committed offsets."""
        return self._committed.count

    def get(self, key: OffsetKey, at: int = LATEST) -> CommittedOffset | None:
        """The offset that was last committed, as seen at an offset of the log."""
        return self._committed.get(key, at)

    def put(self, key: OffsetKey, offset: CommittedOffset) -> None:
        """Commits an offset."""
        self._committed.put(key, offset)

    def put_pending(self, producer_id: int, key: OffsetKey, offset: CommittedOffset) -> None:
        """Keeps an offset until the producer's transaction ends."""
        pending = self._pending.get(producer_id)
        if pending is None:
            self._drop_ended()
            pending = self._pending[producer_id] = _Offsets(self._timeline)
        pending.put(key, offset)

    def _drop_ended(self) -> None:
        """Forgets the transactions that have ended, unless one may have to be restored."""
        if self._timeline.uncommitted_count <= 1:  # the change that is being made
            self._pending = {id_: each for id_, each in self._pending.items() if each.by_group}

    def remove(self, key: OffsetKey) -> None:
        """Removes an offset, including a pending transactional one."""
        self._committed.remove(key)
        for pending in self._pending.values():
            pending.remove(key)

    def end_transaction(self, producer_id: int, *, commit: bool) -> None:
        """Commits the offsets of a producer's transaction, or drops them.

        An offset that was committed behind the transaction's stays.

        Source: OffsetMetadataManager.replayEndTransactionMarker.
        """
        pending = self._pending.get(producer_id)
        if pending is None:
            return
        for group_id in list(pending.by_group):
            for key, offset in list(pending.items(group_id)):
                pending.remove(key)
                existing = self._committed.get(key)
                if commit and (existing is None or offset.record_offset > existing.record_offset):
                    self._committed.put(key, offset)

    def of_group(self, group_id: str, at: int = LATEST) -> list[tuple[OffsetKey, CommittedOffset]]:
        """The committed offsets of a group, as of an offset of the log."""
        return list(self._committed.items(group_id, at))

    def count_of(self, group_id: str) -> int:
        """The number of committed offsets of a group."""
        return sum(map(len, self._committed.by_group.get(group_id, {}).values()))

    def pending(self) -> list[tuple[int, OffsetKey, CommittedOffset]]:
        """The offsets in open transactions, each with the id of its producer."""
        return [
            (producer_id, key, offset)
            for producer_id, each in self._pending.items()
            for group_id in each.by_group
            for key, offset in each.items(group_id)
        ]

    def pending_of_group(self, group_id: str, at: int = LATEST) -> list[OffsetKey]:
        """The keys of a group's offsets in transactions that are open at an offset of the log."""
        return [key for each in self._pending.values() for key, _ in each.items(group_id, at)]

    def is_pending(self, key: OffsetKey) -> bool:
        """Whether an open transaction may still change that offset."""
        return any(each.get(key) is not None for each in self._pending.values())

    def group_ids(self) -> list[str]:
        """The groups that have committed offsets."""
        return list(self._committed.by_group)

    def of_topics(
        self, names: Iterable[str], is_meant: Callable[[str, CommittedOffset], bool]
    ) -> list[OffsetKey]:
        """The offsets for these topics, committed or waiting, that `is_meant` of a name accepts.

        Source: OffsetMetadataManager.onTopicsDeleted.
        """
        wanted = set(names)
        return [
            OffsetKey(group_id, topic, partition)
            for offsets in (self._committed, *self._pending.values())
            for group_id, topics in offsets.by_group.items()
            for topic in topics.keys() & wanted
            for partition, offset in topics[topic].items()
            if is_meant(topic, offset)
        ]
