"""The state machine of groups: an event, the groups of a partition and the time give effects.

Source: org.apache.kafka.coordinator.group.GroupCoordinatorShard.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from cordwood.configs.table import GROUP_OFFSETS_RETENTION
from cordwood.coordinator.effects import Answer, Effects
from cordwood.coordinator.errors import CoordinatorRequestError
from cordwood.coordinator.group import events, offset_requests, records
from cordwood.coordinator.group.change import Change
from cordwood.coordinator.group.classic.answers import answers_at_unload, refused
from cordwood.coordinator.group.classic.group import ClassicGroup, GroupState
from cordwood.coordinator.group.classic.member import (
    UNKNOWN_MEMBER_ID,
    JoinAnswer,
    LeaveAnswer,
    LeaveReply,
    MemberIds,
    SyncAnswer,
)
from cordwood.coordinator.group.classic.rebalance import Rebalance
from cordwood.coordinator.group.consumer.classic_members import ClassicMembers
from cordwood.coordinator.group.consumer.group import ConsumerGroup
from cordwood.coordinator.group.consumer.member import (
    JOIN_EPOCH,
    HeartbeatAnswer,
    HeartbeatRequest,
)
from cordwood.coordinator.group.consumer.rebalance import Cluster, ConsumerRebalance
from cordwood.coordinator.group.consumer.records import group_tombstones
from cordwood.coordinator.group.counters import Count, Counts
from cordwood.coordinator.group.expiry import expired, forecast
from cordwood.coordinator.group.offsets import CommittedOffset, OffsetKey
from cordwood.coordinator.group.records import CoordinatorRecord, OffsetRecord
from cordwood.coordinator.group.settings import GroupSettings, retention_ms_of
from cordwood.coordinator.group.shard import GroupShard
from cordwood.coordinator.timeline import Timeline
from cordwood.model.audit import GroupDeleted, OffsetsDeleted, OffsetsExpired, Requester
from cordwood.model.error_codes import ErrorCode
from cordwood.model.topic_names import GROUP_METADATA_TOPIC

_LOG = logging.getLogger(__name__)

_Handler = Callable[[Change, Any], None]


class GroupStateMachine:
    """The transitions of the groups and offsets of one partition."""

    def __init__(self, settings: GroupSettings, cluster: Cluster, member_ids: MemberIds) -> None:
        """`member_ids` makes the ids of members that have none."""
        self.settings = settings
        self.counts: Counts = Counts()
        self._cluster = cluster
        self._member_ids = member_ids
        self._handlers: Mapping[type[events.GroupEvent], _Handler] = {
            events.Join: self._join,
            events.Sync: self._sync,
            events.Heartbeat: self._heartbeat,
            events.Leave: self._leave,
            events.ConsumerHeartbeat: self._consumer_heartbeat,
            events.Commit: self._commit,
            events.DeleteOffsets: self._delete_offsets,
            events.DeleteGroup: self._delete_group,
            events.TopicsDeleted: self._topics_deleted,
            events.PutBackOffsets: self._put_back_offsets,
            events.ExpireOffsets: self._expire_offsets,
            events.GroupsLoaded: self._groups_loaded,
            events.InitialDelayEnded: self._initial_delay_ended,
            events.JoinsExpired: self._joins_expired,
            events.SyncsExpired: self._syncs_expired,
            events.SessionExpired: self._session_expired,
            events.ConsumerSessionExpired: self._consumer_session_expired,
            events.RevocationExpired: self._revocation_expired,
            events.RegexesResolved: self._regexes_resolved,
            events.AssignmentNotWritten: self._assignment_not_written,
            events.StaticMemberNotWritten: self._static_member_not_written,
            events.CommitNotWritten: self._commit_not_written,
        }

    # ---- as cordwood.coordinator.runtime.StateMachine

    def new_state(self, partition: int, timeline: Timeline) -> GroupShard:
        """No groups."""
        return GroupShard(partition, timeline)

    def handle(
        self, state: GroupShard, event: events.GroupEvent, now_ms: int
    ) -> Effects[CoordinatorRecord]:
        """Changes the groups, and returns what follows."""
        change = Change(state, now_ms, self.counts)
        self._handlers[type(event)](change, event)
        return change.effects()

    def replay(
        self,
        state: GroupShard,
        records: Sequence[CoordinatorRecord],
        first_offset: int,
        producer_id: int,
    ) -> None:
        """Applies records that follow each other in the log."""
        offset = first_offset
        for record in records:
            state.replay(record, offset, producer_id)
            offset += 1

    def end_transaction(self, state: GroupShard, producer_id: int, *, commit: bool) -> None:
        """Commits the offsets of a transaction, or drops them.

        Source: GroupCoordinatorShard.replayEndTransactionMarker.
        """
        state.offsets.end_transaction(producer_id, commit=commit)

    def on_loaded(self, _state: GroupShard, _now_ms: int) -> Sequence[events.GroupEvent]:
        """The sessions of all members begin.

        Source: GroupMetadataManager.onLoaded.
        """
        return [events.GroupsLoaded()]

    def on_unloaded(self, state: GroupShard) -> Sequence[Answer]:
        """The members that wait have to look for their coordinator."""
        return [
            answer
            for group in state.groups.values()
            if isinstance(group, ClassicGroup)
            for answer in answers_at_unload(group)
        ]

    def _rebalance(self, change: Change) -> Rebalance:
        return Rebalance(self.settings, self._member_ids.of_classic, change)

    def _consumers(self, change: Change) -> ConsumerRebalance:
        return ConsumerRebalance(
            self.settings.consumer, self._cluster, self._member_ids.of_consumer, change
        )

    def _classic_members(self, change: Change) -> ClassicMembers:
        return ClassicMembers(
            self.settings, self._consumers(change), self._rebalance(change), change
        )

    # ---- members

    def _join(self, change: Change, event: events.Join) -> None:
        request, reply_to = event.request, event.reply_to
        group_id = request.group_id
        if group_id in change.shard.other_groups:
            error = ErrorCode.INCONSISTENT_GROUP_PROTOCOL
            change.answer(reply_to, JoinAnswer(error_code=error))
            return
        consumer_group = change.shard.consumer_group(group_id)
        if consumer_group is not None and not consumer_group.is_empty:
            try:
                self._classic_members(change).join(consumer_group, request, reply_to)
            except CoordinatorRequestError as refusal:
                change.discard()
                change.answer(reply_to, JoinAnswer(error_code=refusal.code))
            return
        group = change.group(group_id)
        if group is None:
            if request.member_id != UNKNOWN_MEMBER_ID:
                change.answer(reply_to, refused(request, ErrorCode.UNKNOWN_MEMBER_ID))
                return
            if consumer_group is not None:
                for record in group_tombstones(consumer_group, ()):
                    change.write(record)
            # The next load of this partition must find the group.
            group = change.new_group(group_id)
            change.write(records.new_group_metadata(group))
        self._rebalance(change).join(group, request, reply_to)

    def _sync(self, change: Change, event: events.Sync) -> None:
        request = event.request
        consumer_group = change.shard.consumer_group(request.group_id)
        if consumer_group is not None and not consumer_group.is_empty:
            try:
                answer = self._classic_members(change).sync(consumer_group, request)
            except CoordinatorRequestError as error:
                answer = SyncAnswer(error_code=error.code)
            change.answer(event.reply_to, answer)
            return
        group = change.group(request.group_id)
        if group is None:
            change.answer(event.reply_to, SyncAnswer(error_code=ErrorCode.UNKNOWN_MEMBER_ID))
        else:
            self._rebalance(change).sync(group, request, event.reply_to)

    def _heartbeat(self, change: Change, event: events.Heartbeat) -> None:
        group = change.shard.groups.get(event.group_id)
        error: int = ErrorCode.UNKNOWN_MEMBER_ID
        member_id, instance_id = event.member_id, event.group_instance_id
        if isinstance(group, ClassicGroup):
            error = self._rebalance(change).heartbeat(
                group, member_id, instance_id, event.generation_id
            )
        elif group is not None:
            try:
                error = self._classic_members(change).heartbeat(
                    group, member_id, instance_id, event.generation_id
                )
            except CoordinatorRequestError as refusal:
                error = refusal.code
        change.answer(event.reply_to, error)

    def _leave(self, change: Change, event: events.Leave) -> None:
        consumer_group = change.shard.consumer_group(event.group_id)
        if consumer_group is not None:
            answer = self._classic_members(change).leave(consumer_group, event.members)
            change.answer(event.reply_to, answer)
            return
        group = change.group(event.group_id)
        if group is not None:
            self._rebalance(change).leave(group, event.members, event.reply_to)
            return
        unknown = ErrorCode.UNKNOWN_MEMBER_ID
        answers = [
            LeaveAnswer(each.member_id, each.group_instance_id, unknown) for each in event.members
        ]
        change.answer(event.reply_to, LeaveReply(members=tuple(answers)))

    # ---- members of the consumer protocol

    def _consumer_heartbeat(self, change: Change, event: events.ConsumerHeartbeat) -> None:
        request = event.request
        try:
            if request.member_epoch < JOIN_EPOCH:
                group = self._known_consumer_group(change, request.group_id, "Group {} not found.")
                answer = self._classic_members(change).leave_consumer(group, request)
            else:
                group = self._consumer_group_for(change, request)
                answer = self._consumers(change).heartbeat(group, request)
        except CoordinatorRequestError as error:
            change.discard()
            answer = HeartbeatAnswer(error_code=error.code, error_message=str(error))
        change.answer(event.reply_to, answer)

    def _consumer_group_for(self, change: Change, request: HeartbeatRequest) -> ConsumerGroup:
        """The group of a heartbeat: a new one, or one that was a classic group, if it joins.

        Raises:
            CoordinatorRequestError: GROUP_ID_NOT_FOUND.

        Source: getOrMaybeCreateConsumerGroup.
        """
        group_id = request.group_id
        if request.member_epoch != JOIN_EPOCH:
            return self._known_consumer_group(change, group_id, "Consumer group {} not found.")
        known = change.shard.groups.get(group_id)
        if isinstance(known, ConsumerGroup):
            return known
        if group_id in change.shard.other_groups:
            raise _not_found(f"Group {group_id} is not a consumer group.")
        if isinstance(known, ClassicGroup) and not known.is_empty:
            group = change.group(group_id)
            assert group is not None, group_id
            return self._classic_members(change).upgrade(group)
        if known is not None:
            self._end_group(change, group_id)
        return ConsumerGroup(group_id)

    def _known_consumer_group(
        self, change: Change, group_id: str, if_unknown: str
    ) -> ConsumerGroup:
        group = change.shard.consumer_group(group_id)
        if group is None:
            is_other = group_id in change.shard.groups or group_id in change.shard.other_groups
            unknown = "Group {} is not a consumer group." if is_other else if_unknown
            raise _not_found(unknown.format(group_id))
        return group

    def _consumer_session_expired(
        self, change: Change, event: events.ConsumerSessionExpired
    ) -> None:
        self._fence(change, event.group_id, event.member_id)

    def _revocation_expired(self, change: Change, event: events.RevocationExpired) -> None:
        group = change.shard.consumer_group(event.group_id)
        member = None if group is None else group.member(event.member_id)
        if member is not None and member.member_epoch == event.member_epoch:
            self._fence(change, event.group_id, event.member_id)

    def _fence(self, change: Change, group_id: str, member_id: str) -> None:
        """Source: consumerGroupFenceMemberOperation."""
        group = change.shard.consumer_group(group_id)
        member = None if group is None else group.member(member_id)
        if group is not None and member is not None:
            _LOG.info("[GroupId %s] Member %s fenced from the group.", group_id, member_id)
            self._classic_members(change).fence(group, [member])

    def _regexes_resolved(self, change: Change, event: events.RegexesResolved) -> None:
        group = change.shard.consumer_group(event.group_id)
        if group is not None:
            self._consumers(change).put_resolved(group, event.found)

    # ---- offsets and groups that clients change

    def _commit(self, change: Change, event: events.Commit) -> None:
        request = event.request
        try:
            group = offset_requests.require_commit(
                change.shard,
                request,
                metadata_bytes_max=self.settings.offset_metadata_max_bytes,
            )
        except CoordinatorRequestError as error:
            change.answer(event.reply_to, error.code)
            return
        if group is None and request.group_id not in change.shard.other_groups:
            change.new_group(request.group_id)
        change.producer = request.producer
        if request.producer is None:
            if isinstance(group, ClassicGroup):
                self._keep_alive(change, group, request.member_id)
            change.on_failure = lambda error: events.CommitNotWritten(
                request=request, error=error, reply_to=event.reply_to
            )
        change.write_all(event.records)
        change.count(Count.OFFSET_COMMITS, len(event.records))
        change.answer(event.reply_to, ErrorCode.NONE)

    def _delete_offsets(self, change: Change, event: events.DeleteOffsets) -> None:
        shard, group_id = change.shard, event.group_id
        try:
            group = offset_requests.require_offset_delete(shard, group_id)
        except CoordinatorRequestError as error:
            change.answer(event.reply_to, events.DeletedOffsets(error.code))
            return
        errors: list[int] = []
        gone: list[OffsetKey] = []
        for topic, partition in event.partitions:
            key = OffsetKey(group_id, topic, partition)
            if group is not None and group.is_subscribed_to(topic):
                errors.append(ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC)
                continue
            errors.append(ErrorCode.NONE)
            if shard.offsets.get(key) is not None or shard.offsets.is_pending(key):
                gone.append(key)
                change.count(Count.OFFSET_DELETIONS)
        self._delete(change, gone, event.requester)
        change.is_atomic = False
        change.answer(event.reply_to, events.DeletedOffsets(ErrorCode.NONE, tuple(errors)))

    def _delete_group(self, change: Change, event: events.DeleteGroup) -> None:
        try:
            offset_requests.require_group_delete(change.shard, event.group_id)
        except CoordinatorRequestError as error:
            change.answer(event.reply_to, error.code)
            return
        gone = offset_requests.all_offsets(change.shard, event.group_id)
        for key in gone:
            change.write(OffsetRecord(key, None))
        self._end_group(change, event.group_id)
        offsets = _committed(change.shard, gone)
        change.note(GroupDeleted(group=event.group_id, offsets=offsets, requester=event.requester))
        change.is_atomic = False
        change.answer(event.reply_to, ErrorCode.NONE)

    def _end_group(self, change: Change, group_id: str) -> None:
        group = change.shard.groups.get(group_id)
        assert group is not None, group_id
        if isinstance(group, ConsumerGroup):
            for record in group_tombstones(group, ()):
                change.write(record)
            return
        change.write(records.group_tombstone(group_id))
        self._rebalance(change).end(group)

    # ---- what happens without a request

    def _topics_deleted(self, change: Change, event: events.TopicsDeleted) -> None:
        def is_of_deleted(name: str, offset: CommittedOffset) -> bool:
            return offset.topic_id != event.recreated.get(name)

        gone = change.shard.offsets.of_topics(event.names, is_of_deleted)
        self._delete(change, gone, None)
        change.is_atomic = False

    def _delete(
        self, change: Change, gone: Sequence[OffsetKey], requester: Requester | None
    ) -> None:
        """Deletes offsets, for a client or because their topics were deleted."""
        by_group: dict[str, list[OffsetKey]] = {}
        for key in gone:
            change.write(OffsetRecord(key, None))
            by_group.setdefault(key.group_id, []).append(key)
        for group_id, keys in by_group.items():
            offsets = _committed(change.shard, keys)
            if offsets:  # those that wait for the end of a transaction were never committed
                change.note(OffsetsDeleted(group=group_id, offsets=offsets, requester=requester))

    def _put_back_offsets(self, change: Change, event: events.PutBackOffsets) -> None:
        shard = change.shard
        count = 0
        for record in event.records:
            group_id = record.key.group_id
            if shard.offsets.get(record.key) is not None:
                continue
            if shard.groups.get(group_id) is None and group_id not in shard.other_groups:
                change.new_group(group_id)
            change.write(record)
            count += 1
        change.is_atomic = False
        change.answer(event.reply_to, count)

    def _expire_offsets(self, change: Change, event: events.ExpireOffsets) -> None:
        """Source: GroupCoordinatorShard.cleanupGroupMetadata."""
        shard = change.shard
        ended: list[str] = []
        count = 0
        of_broker = self.settings.offsets_retention_ms
        for group_id in event.group_ids:
            group = shard.groups.get(group_id)
            if group is None:
                continue
            minutes = self._cluster.group_setting(group_id, GROUP_OFFSETS_RETENTION)
            retention_ms = retention_ms_of(minutes, of_broker)
            expiries = forecast(shard, group, retention_ms=retention_ms)
            gone = expired(expiries, change.now_ms)
            count += len(gone)
            for key in gone:
                change.write(OffsetRecord(key, None))
            if gone:
                change.note(
                    OffsetsExpired(
                        group=group_id,
                        offsets=_committed(shard, gone),
                        retention_ms=retention_ms,
                        at_ms=change.now_ms,
                    )
                )
            has_none_left = len(gone) == len(expiries)
            is_open = bool(shard.offsets.pending_of_group(group.group_id))
            if has_none_left and not is_open and group.is_empty:
                ended.append(group.group_id)
        for group_id in ended:
            self._end_group(change, group_id)
        if count or ended:
            change.count(Count.OFFSET_EXPIRATIONS, count)
            _LOG.info(
                "Generated %d tombstone records while cleaning up group metadata of %s-%d.",
                count + len(ended),
                GROUP_METADATA_TOPIC,
                shard.partition,
            )
        change.is_atomic = False

    def _groups_loaded(self, change: Change, _event: events.GroupsLoaded) -> None:
        rebalance, consumers = self._rebalance(change), self._consumers(change)
        for group in change.shard.groups.values():
            if isinstance(group, ConsumerGroup):
                consumers.resume(group)
                continue
            rebalance.resume(group)
            if len(group) > self.settings.max_size:
                changed = change.group(group.group_id)
                assert changed is not None
                rebalance.shrink(changed)

    # ---- timers; a group may have been deleted since they were set

    def _initial_delay_ended(self, change: Change, event: events.InitialDelayEnded) -> None:
        group = change.group(event.group_id)
        if group is not None:
            self._rebalance(change).end_initial_delay(group, event.delay_ms, event.remaining_ms)

    def _joins_expired(self, change: Change, event: events.JoinsExpired) -> None:
        group = change.group(event.group_id)
        if group is not None:
            self._rebalance(change).complete_join(group)

    def _syncs_expired(self, change: Change, event: events.SyncsExpired) -> None:
        group = change.group(event.group_id)
        if group is not None:
            self._rebalance(change).expire_syncs(group, event.generation_id)

    def _session_expired(self, change: Change, event: events.SessionExpired) -> None:
        group = change.group(event.group_id)
        if group is not None:
            self._rebalance(change).expire_session(group, event.member_id)

    # ---- records that could not be written

    def _assignment_not_written(self, change: Change, event: events.AssignmentNotWritten) -> None:
        group = change.group(event.group_id)
        assert group is not None, event.group_id
        self._rebalance(change).refuse_assignment(
            group, event.member_id, event.error, event.reply_to
        )

    def _static_member_not_written(
        self, change: Change, event: events.StaticMemberNotWritten
    ) -> None:
        group = change.group(event.group_id)
        assert group is not None, event.group_id
        self._rebalance(change).refuse_static(group, event.member_id, event.error, event.reply_to)

    def _commit_not_written(self, change: Change, event: events.CommitNotWritten) -> None:
        """Resets the session timeout: the request shows that the member is alive."""
        group = change.shard.classic_group(event.request.group_id)
        if group is not None:
            self._keep_alive(change, group, event.request.member_id)
        change.answer(event.reply_to, event.error.code)

    def _keep_alive(self, change: Change, group: ClassicGroup, member_id: str) -> None:
        if group.is_in(GroupState.STABLE, GroupState.PREPARING_REBALANCE):
            self._rebalance(change).keep_alive(group, member_id)


def _not_found(why: str) -> CoordinatorRequestError:
    return CoordinatorRequestError(ErrorCode.GROUP_ID_NOT_FOUND, why)


def _committed(shard: GroupShard, keys: Iterable[OffsetKey]) -> dict[str, int]:
    """The committed ones among these offsets, by partition, for the audit log."""
    found = {key: shard.offsets.get(key) for key in keys}
    return {
        f"{key.topic}-{key.partition}": offset.offset
        for key, offset in found.items()
        if offset is not None
    }
