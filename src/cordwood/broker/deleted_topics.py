"""Notes of deleted topics in the trash, with which they can be restored."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from uuid import UUID

from cordwood.coordinator.group.maintenance import KeptOffsets
from cordwood.coordinator.group.offsets import CommittedOffset, OffsetKey
from cordwood.format.trash_notes import RemovedOffset, RemovedTopic
from cordwood.metadata.image import TopicImage
from cordwood.model.errors import TrashError
from cordwood.model.topic_names import INTERNAL_TOPICS
from cordwood.model.topic_partition import TopicPartition
from cordwood.storage.log_manager import LogManager
from cordwood.storage.trashed_logs import removed_partition

_log = logging.getLogger(__name__)


class DeletedTopics:
    """The deleted topics of one change of the metadata, which are noted in the trash."""

    def __init__(self, logs: LogManager) -> None:
        self._logs = logs
        self._ids: dict[str, UUID] = {}

    def note(self, topic: TopicImage, settings: Mapping[str, str]) -> None:
        """Notes a deleted topic whose logs are still served, if its settings say so.

        Where the trash refuses, the note waits beside the logs, which stay until it is taken.

        Args:
            topic: as it was.
            settings: its own.
        """
        trash = self._logs.context.trash
        if trash is None or topic.name in INTERNAL_TOPICS:
            return
        found = [
            (log, image)
            for number, image in topic.partitions.items()
            if (log := self._logs.get(TopicPartition(topic.name, number))) is not None
        ]
        keep_ms = found[0][0].config.cordwood_trash_ms if found else 0
        if keep_ms == 0:
            return
        now_ms = self._logs.context.clock.now_ms()
        removed = RemovedTopic(
            at_ms=now_ms,
            expires_ms=now_ms + keep_ms,
            name=topic.name,
            topic_id=topic.topic_id,
            settings=dict(settings),
            replicas=max(len(image.replicas) for _, image in found),
            partitions=tuple(
                removed_partition(
                    log, leader_epoch=image.leader_epoch, partition_epoch=image.partition_epoch
                )
                for log, image in found
            ),
        )
        try:
            trash.note_topic(removed)
        except TrashError as error:
            _log.error("%s; the topic is deleted and cannot be restored", error)
        else:
            self._ids[topic.name] = topic.topic_id

    def note_offsets(self, name: str, offsets: KeptOffsets) -> None:
        """Notes the committed offsets of a topic, if it is noted."""
        trash, topic_id = self._logs.context.trash, self._ids.get(name)
        if trash is None or topic_id is None:
            return
        try:
            trash.note_offsets(topic_id, [_noted(*each) for each in offsets.items()])
        except TrashError as error:
            _log.error("%s; the groups will not resume if it is restored", error)


def _noted(key: OffsetKey, offset: CommittedOffset) -> RemovedOffset:
    return RemovedOffset(
        group=key.group_id,
        partition=key.partition,
        offset=offset.offset,
        leader_epoch=offset.leader_epoch,
        metadata=offset.metadata,
        expire_ms=offset.expire_timestamp_ms,
    )


def kept_offsets(topic: RemovedTopic, *, now_ms: int) -> KeptOffsets:
    """The noted offsets of a topic that is restored, as committed at `now_ms`."""
    return {
        OffsetKey(each.group, topic.name, each.partition): CommittedOffset(
            each.offset,
            each.leader_epoch,
            each.metadata,
            now_ms,
            each.expire_ms,
            topic.topic_id,
        )
        for each in topic.offsets
    }
