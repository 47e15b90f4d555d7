"""Changes of offsets and groups without a request: expiry, and topics that change.

Source: org.apache.kafka.coordinator.group.GroupCoordinatorService (onMetadataUpdate),
GroupCoordinatorShard.cleanupGroupMetadata.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from functools import partial
from uuid import UUID

from cordwood.coordinator.effects import Reply, ReplyTo
from cordwood.coordinator.group import events
from cordwood.coordinator.group.consumer.topics import CoordinatorMetadata
from cordwood.coordinator.group.offset_records import OffsetRecord
from cordwood.coordinator.group.offsets import CommittedOffset, OffsetKey
from cordwood.coordinator.group.shard import CoordinatorRecord, GroupShard
from cordwood.coordinator.led_partitions import CoordinatorHost
from cordwood.coordinator.runtime import CoordinatorRuntime
from cordwood.model.kafka_errors import KafkaError
from cordwood.model.timers import Timer
from cordwood.model.topic_names import GROUP_METADATA_TOPIC

KeptOffsets = Mapping[OffsetKey, CommittedOffset]
"""Committed offsets that outlive their topic."""

_LOG = logging.getLogger(__name__)

#: How many groups and offsets are checked in one turn of the loop.
_EXPIRED_AT_ONCE = 1_000


class GroupMaintenance:
    """Deletes offsets that have expired or whose topics are deleted, and puts them back."""

    def __init__(
        self,
        runtime: CoordinatorRuntime[GroupShard, events.GroupEvent, CoordinatorRecord],
        metadata: CoordinatorMetadata,
        host: CoordinatorHost,
    ) -> None:
        """Does nothing before `start`."""
        self._runtime = runtime
        self._metadata = metadata
        self._host = host
        self._expiry: Timer | None = None

    def start(self, interval_ms: int) -> None:
        """Checks in each interval which offsets have expired."""
        self._expiry = self._host.schedule(
            "delete-expired-group-metadata", interval_ms, self.expire_offsets
        )

    def close(self) -> None:
        """Ends the checks."""
        if self._expiry is not None:
            self._expiry.cancel()

    # ---- expiry

    def expire_offsets(self) -> None:
        """Deletes offsets that nobody has used for long enough, and groups that have none."""
        partitions = self._runtime.partitions
        partitions.load_all(lambda: partitions.do_between_requests(self._expiries()))

    def _expiries(self) -> Iterator[tuple[int, Callable[[], None]]]:
        """The checks of each partition, each of some groups that have not too many offsets."""
        for partition, shard, _ in self._runtime.partitions.read_all():
            part: list[str] = []
            count = 0
            for group_id, _ in shard.groups.items():
                part.append(group_id)
                count += 1 + shard.offsets.count_of(group_id)
                if count >= _EXPIRED_AT_ONCE:
                    yield partition, partial(self._expire, partition, tuple(part))
                    part, count = [], 0
            if part:
                yield partition, partial(self._expire, partition, tuple(part))

    def _expire(self, partition: int, group_ids: tuple[str, ...]) -> None:
        event = events.ExpireOffsets(group_ids=group_ids, reply_to=self._logged(partition))
        self._runtime.write(partition, event)

    # ---- topics

    def on_topics_changed(self, names: Collection[str]) -> None:
        """Topics are new, deleted or changed: groups that subscribe to them look at them again."""
        if not names:
            return
        try:
            shards = self._runtime.partitions.read_all()
        except KafkaError:  # a group looks at the topics at the first heartbeat after its load
            return
        for _, shard, _ in shards:
            for group in shard.groups.values():
                group.on_topics_changed(names)

    def on_topics_deleted(
        self, names: Iterable[str], note: Callable[[str, KeptOffsets], object] | None = None
    ) -> None:
        """Deletes the offsets of deleted topics; there may be new topics with the same names.

        Args:
            names: the topics'.
            note: called with a topic and offsets of it, before these are deleted.

        Source: GroupCoordinatorService.onMetadataUpdate, OffsetMetadataManager.onTopicsDeleted.
        """
        deleted = frozenset(names) - {GROUP_METADATA_TOPIC}
        if deleted:
            self._runtime.partitions.load_all(partial(self._delete_of_topics, deleted, note))

    def _delete_of_topics(
        self, names: frozenset[str], note: Callable[[str, KeptOffsets], object] | None
    ) -> None:
        topics = self._metadata.topics
        found = {name: topics.by_name(name) for name in names}
        recreated = {name: topic.topic_id for name, topic in found.items() if topic is not None}
        if note is not None:
            for name, offsets in self._committed_of(names, recreated).items():
                note(name, offsets)
        for partition, _, _ in self._runtime.partitions.read_all():
            event = events.TopicsDeleted(
                names=names,
                recreated=recreated,
                reply_to=self._logged(partition),
            )
            self._runtime.write(partition, event)

    def _committed_of(
        self, names: frozenset[str], recreated: Mapping[str, UUID]
    ) -> dict[str, KeptOffsets]:
        """The committed offsets of topics that are to be deleted, by topic."""
        found: dict[str, list[tuple[OffsetKey, CommittedOffset]]] = {}
        for _, shard, _ in self._runtime.partitions.read_all():
            for key in shard.offsets.of_topics(names, lambda *_: True):
                offset = shard.offsets.get(key)
                if offset is not None and offset.topic_id != recreated.get(key.topic):
                    found.setdefault(key.topic, []).append((key, offset))
        return {name: dict(offsets) for name, offsets in found.items()}

    def put_back_offsets(self, offsets: KeptOffsets, reply: Reply[int | None]) -> None:
        """Commits the offsets of a restored topic again, and answers how many.

        The answer is None if some cannot be committed now; they can be later. Where a group has
        committed since, the newer offset stays. The others count as committed now, so that none
        expires at once.
        """
        self._runtime.partitions.load_all(partial(self._put_back, offsets, reply))

    def _put_back(self, offsets: KeptOffsets, reply: Reply[int | None]) -> None:
        by_partition: dict[int, list[OffsetRecord]] = {}
        for key, offset in offsets.items():
            partition = self._runtime.partitions.index_for(key.group_id)
            by_partition.setdefault(partition, []).append(OffsetRecord(key, offset))
        counts: list[int | None] = []

        def done(count: int | None) -> None:
            counts.append(count)
            if len(counts) == len(by_partition):
                reply(None if None in counts else sum(each or 0 for each in counts))

        def failed(error: KafkaError) -> None:
            _LOG.error("Cannot put back offsets of a restored topic", exc_info=error)

        if not by_partition:
            reply(0)
        for partition, records in by_partition.items():
            event = events.PutBackOffsets(records=records, reply_to=ReplyTo(done, failed))
            self._runtime.write(partition, event)

    @staticmethod
    def _logged(partition: int) -> ReplyTo[None]:
        """Logs the error of an event that no client has requested."""

        def log(error: KafkaError) -> None:
            _LOG.error(
                "Cannot write tombstones to %s-%d", GROUP_METADATA_TOPIC, partition, exc_info=error
            )

        return ReplyTo(lambda _: None, log)
