"""Commits, deletions and expiry of offsets, and of groups of any kind.

Source: org.apache.kafka.coordinator.group.OffsetMetadataManager, GroupCoordinatorShard.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence

from cordwood.configs.table import GROUP_OFFSETS_RETENTION
from cordwood.coordinator.errors import CoordinatorRequestError
from cordwood.coordinator.group import events
from cordwood.coordinator.group.change import Change
from cordwood.coordinator.group.counters import Count
from cordwood.coordinator.group.expiry import expired, forecast
from cordwood.coordinator.group.group import Group
from cordwood.coordinator.group.kind import GroupKind, Handler, KindContext
from cordwood.coordinator.group.offset_records import OffsetRecord
from cordwood.coordinator.group.offset_requests import CommitRequest
from cordwood.coordinator.group.offsets import CommittedOffset, OffsetKey
from cordwood.coordinator.group.settings import retention_ms_of
from cordwood.coordinator.group.shard import GroupShard
from cordwood.model.audit import GroupDeleted, OffsetsDeleted, OffsetsExpired, Requester
from cordwood.model.error_codes import ErrorCode
from cordwood.model.topic_names import GROUP_METADATA_TOPIC

_LOG = logging.getLogger(__name__)


class OffsetChanges:
    """Handles the events of offsets, which groups of all kinds have."""

    def __init__(self, context: KindContext, kinds: Mapping[str, GroupKind]) -> None:
        """`kinds` are by name."""
        self._context = context
        self._kinds = kinds

    def handlers(self) -> Mapping[type[events.GroupEvent], Handler]:
        """The handlers by the class of their events."""
        return {
            events.Commit: self._commit,
            events.CommitNotWritten: self._commit_not_written,
            events.DeleteOffsets: self._delete_offsets,
            events.DeleteGroup: self._delete_group,
            events.TopicsDeleted: self._topics_deleted,
            events.PutBackOffsets: self._put_back_offsets,
            events.ExpireOffsets: self._expire_offsets,
        }

    # ---- requests

    def _commit(self, change: Change, event: events.Commit) -> None:
        request = event.request
        try:
            group = self._require_commit(change.shard, request)
        except CoordinatorRequestError as error:
            change.answer(event.reply_to, error.code)
            return
        if group is None:
            change.new_group(request.group_id)
        change.producer = request.producer
        if request.producer is None:
            if group is not None:
                self._kinds[group.kind].on_commit(change, request.group_id, request.member_id)
            change.on_failure = lambda error: events.CommitNotWritten(
                request=request, error=error, reply_to=event.reply_to
            )
        change.write_all(event.records)
        change.count(Count.OFFSET_COMMITS, len(event.records))
        change.answer(event.reply_to, ErrorCode.NONE)

    def _require_commit(self, shard: GroupShard, request: CommitRequest) -> Group | None:
        """The group of a commit; None for one that does not exist yet.

        Raises:
            CoordinatorRequestError: the client may not commit now, or not to this group.
        """
        group = shard.groups.get(request.group_id)
        if group is not None:
            limit = self._context.settings.offset_metadata_max_bytes
            group.require_commit(request, metadata_bytes_max=limit)
        elif request.generation_id >= 0:
            raise CoordinatorRequestError(
                ErrorCode.GROUP_ID_NOT_FOUND
                if request.knows_member_epochs
                else ErrorCode.ILLEGAL_GENERATION
            )
        return group

    def _commit_not_written(self, change: Change, event: events.CommitNotWritten) -> None:
        request = event.request
        group = change.shard.groups.get(request.group_id)
        if group is not None:
            self._kinds[group.kind].on_commit(change, request.group_id, request.member_id)
        change.answer(event.reply_to, event.error.code)

    def _delete_offsets(self, change: Change, event: events.DeleteOffsets) -> None:
        shard, group_id = change.shard, event.group_id
        try:
            group = _require_group(shard, group_id)
            group.require_offset_delete()
        except CoordinatorRequestError as error:
            change.answer(event.reply_to, events.DeletedOffsets(error.code))
            return
        errors: list[int] = []
        deleted: list[OffsetKey] = []
        for topic, partition in event.partitions:
            key = OffsetKey(group_id, topic, partition)
            if group.is_subscribed_to(topic):
                errors.append(ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC)
                continue
            errors.append(ErrorCode.NONE)
            if shard.offsets.get(key) is not None or shard.offsets.is_pending(key):
                deleted.append(key)
                change.count(Count.OFFSET_DELETIONS)
        _delete(change, deleted, event.requester)
        change.is_atomic = False
        change.answer(event.reply_to, events.DeletedOffsets(ErrorCode.NONE, tuple(errors)))

    def _delete_group(self, change: Change, event: events.DeleteGroup) -> None:
        shard, group_id = change.shard, event.group_id
        try:
            group = _require_group(shard, group_id)
            group.require_delete()
        except CoordinatorRequestError as error:
            change.answer(event.reply_to, error.code)
            return
        committed = [key for key, _ in shard.offsets.of_group(group_id)]
        deleted = dict.fromkeys([*committed, *shard.offsets.pending_of_group(group_id)])
        for key in deleted:
            change.write(OffsetRecord(key, None))
        self._kinds[group.kind].end(change, group_id)
        offsets = _committed(shard, deleted)
        change.note(GroupDeleted(group=group_id, offsets=offsets, requester=event.requester))
        change.is_atomic = False
        change.answer(event.reply_to, ErrorCode.NONE)

    # ---- deleted and restored topics

    def _topics_deleted(self, change: Change, event: events.TopicsDeleted) -> None:
        def is_of_deleted(name: str, offset: CommittedOffset) -> bool:
            return offset.topic_id != event.recreated.get(name)

        _delete(change, change.shard.offsets.of_topics(event.names, is_of_deleted), None)
        change.is_atomic = False

    def _put_back_offsets(self, change: Change, event: events.PutBackOffsets) -> None:
        shard = change.shard
        count = 0
        for record in event.records:
            group_id = record.key.group_id
            if shard.offsets.get(record.key) is not None:
                continue
            if group_id not in shard.groups:
                change.new_group(group_id)
            change.write(record)
            count += 1
        change.is_atomic = False
        change.answer(event.reply_to, count)

    # ---- expiry

    def _expire_offsets(self, change: Change, event: events.ExpireOffsets) -> None:
        """Source: GroupCoordinatorShard.cleanupGroupMetadata."""
        shard = change.shard
        ended: list[Group] = []
        count = 0
        for group_id in event.group_ids:
            group = shard.groups.get(group_id)
            if group is None or not group.expires:
                continue
            minutes = self._context.metadata.group_setting(group_id, GROUP_OFFSETS_RETENTION, None)
            retention_ms = retention_ms_of(minutes, self._context.settings.offsets_retention_ms)
            expiries = forecast(shard, group, retention_ms=retention_ms)
            deleted = expired(expiries, change.now_ms)
            count += len(deleted)
            for key in deleted:
                change.write(OffsetRecord(key, None))
            if deleted:
                change.note(
                    OffsetsExpired(
                        group=group_id,
                        offsets=_committed(shard, deleted),
                        retention_ms=retention_ms,
                        at_ms=change.now_ms,
                    )
                )
            has_none_left = len(deleted) == len(expiries)
            is_open = bool(shard.offsets.pending_of_group(group_id))
            if has_none_left and not is_open and group.is_empty:
                ended.append(group)
        for group in ended:
            self._kinds[group.kind].end(change, group.group_id)
        if count or ended:
            change.count(Count.OFFSET_EXPIRATIONS, count)
            _LOG.info(
                "Generated %d tombstone records while cleaning up group metadata of %s-%d.",
                count + len(ended),
                GROUP_METADATA_TOPIC,
                shard.partition,
            )
        change.is_atomic = False


def _require_group(shard: GroupShard, group_id: str) -> Group:
    group = shard.groups.get(group_id)
    if group is None:
        raise CoordinatorRequestError(ErrorCode.GROUP_ID_NOT_FOUND)
    return group


def _delete(change: Change, keys: Sequence[OffsetKey], requester: Requester | None) -> None:
    """Deletes offsets, for a client or because their topics were deleted."""
    by_group: dict[str, list[OffsetKey]] = {}
    for key in keys:
        change.write(OffsetRecord(key, None))
        by_group.setdefault(key.group_id, []).append(key)
    for group_id, of_group in by_group.items():
        offsets = _committed(change.shard, of_group)
        if offsets:  # those that wait for the end of a transaction were never committed
            change.note(OffsetsDeleted(group=group_id, offsets=offsets, requester=requester))


def _committed(shard: GroupShard, keys: Iterable[OffsetKey]) -> dict[str, int]:
    """The committed ones among these offsets, by partition, for the audit log."""
    found = {key: shard.offsets.get(key) for key in keys}
    return {
        f"{key.topic}-{key.partition}": offset.offset
        for key, offset in found.items()
        if offset is not None
    }
