"""Consumer groups as a kind: heartbeats of both protocols, fenced members, groups that change.

Source: org.apache.kafka.coordinator.group.GroupMetadataManager, the part of consumer groups.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

from cordwood.coordinator.errors import CoordinatorRequestError
from cordwood.coordinator.group.change import Change
from cordwood.coordinator.group.classic.events import Heartbeat, Join, Leave, Sync
from cordwood.coordinator.group.classic.kind import ClassicKind
from cordwood.coordinator.group.classic.member import JoinAnswer, SyncAnswer
from cordwood.coordinator.group.consumer import events
from cordwood.coordinator.group.consumer.classic_members import ClassicMembers
from cordwood.coordinator.group.consumer.group import ConsumerGroup
from cordwood.coordinator.group.consumer.member import (
    JOIN_EPOCH,
    HeartbeatAnswer,
    HeartbeatRequest,
)
from cordwood.coordinator.group.consumer.rebalance import ConsumerRebalance
from cordwood.coordinator.group.consumer.records import (
    CONSUMER_RECORD_TYPES,
    ConsumerRecord,
    group_tombstones,
)
from cordwood.coordinator.group.events import GroupEvent
from cordwood.coordinator.group.kind import GroupKind, Handler, KindContext
from cordwood.format.group_metadata import decode_group_value
from cordwood.model.error_codes import ErrorCode

_LOG = logging.getLogger(__name__)


class ConsumerKind(GroupKind):
    """Groups of the consumer protocol, which may have members of the classic protocol."""

    name = ConsumerGroup.kind
    record_types = CONSUMER_RECORD_TYPES

    def __init__(self, context: KindContext) -> None:
        super().__init__(context)
        self._classics = ClassicKind(context)

    @classmethod
    def record_of(
        cls, record_type: int, key: Mapping[str, Any], value: bytes | None
    ) -> ConsumerRecord:
        """The record of a key's fields and a value."""
        decoded = decode_group_value(record_type, value)
        return ConsumerRecord.of(record_type, key, None if decoded is None else decoded.fields)

    def handlers(self) -> Mapping[type[GroupEvent], Handler]:
        """The handlers of heartbeats, timers and resolved regular expressions."""
        return {
            events.ConsumerHeartbeat: self._consumer_heartbeat,
            events.ConsumerSessionExpired: self._session_expired,
            events.RevocationExpired: self._revocation_expired,
            events.RegexesResolved: self._regexes_resolved,
        }

    def _rebalance(self, change: Change) -> ConsumerRebalance:
        context = self._context
        return ConsumerRebalance(
            context.settings.consumer, context.metadata, context.member_ids.of_consumer, change
        )

    def _classic_members(self, change: Change) -> ClassicMembers:
        return ClassicMembers(
            self._context.settings,
            self._rebalance(change),
            self._classics.rebalance(change),
            change,
        )

    # ---- members of the classic protocol

    def join(self, change: Change, event: Join) -> None:
        """Adds a member of the classic protocol; an empty group becomes a classic one."""
        group = _known(change, event.request.group_id)
        if group.is_empty:
            self._classics.join_new(change, event, group_tombstones(group, ()))
            return
        try:
            self._classic_members(change).join(group, event.request, event.reply_to)
        except CoordinatorRequestError as refusal:
            change.discard()
            change.answer(event.reply_to, JoinAnswer(error_code=refusal.code))

    def sync(self, change: Change, event: Sync) -> None:
        """Answers with the partitions of a member."""
        group = _known(change, event.request.group_id)
        if group.is_empty:
            super().sync(change, event)
            return
        try:
            answer = self._classic_members(change).sync(group, event.request)
        except CoordinatorRequestError as error:
            answer = SyncAnswer(error_code=error.code)
        change.answer(event.reply_to, answer)

    def heartbeat(self, change: Change, event: Heartbeat) -> None:
        """Answers whether a member has to join again."""
        group = _known(change, event.group_id)
        try:
            error = self._classic_members(change).heartbeat(
                group, event.member_id, event.group_instance_id, event.generation_id
            )
        except CoordinatorRequestError as refusal:
            error = refusal.code
        change.answer(event.reply_to, error)

    def leave(self, change: Change, event: Leave) -> None:
        """Removes members."""
        group = _known(change, event.group_id)
        change.answer(event.reply_to, self._classic_members(change).leave(group, event.members))

    # ---- members of the consumer protocol

    def _consumer_heartbeat(self, change: Change, event: events.ConsumerHeartbeat) -> None:
        request = event.request
        try:
            if request.member_epoch < JOIN_EPOCH:
                group = _require_group(change, request.group_id, "Group {} not found.")
                answer = self._classic_members(change).leave_consumer(group, request)
            else:
                group = self._group_for(change, request)
                answer = self._rebalance(change).heartbeat(group, request)
        except CoordinatorRequestError as error:
            change.discard()
            answer = HeartbeatAnswer(error_code=error.code, error_message=str(error))
        change.answer(event.reply_to, answer)

    def _group_for(self, change: Change, request: HeartbeatRequest) -> ConsumerGroup:
        """The group of a heartbeat: a new one, or one that was a classic group, if it joins.

        Raises:
            CoordinatorRequestError: GROUP_ID_NOT_FOUND.

        Source: getOrMaybeCreateConsumerGroup.
        """
        group_id = request.group_id
        if request.member_epoch != JOIN_EPOCH:
            return _require_group(change, group_id, "Consumer group {} not found.")
        shard = change.shard
        classic = shard.classic_group(group_id)
        if classic is None:
            known = group_id in shard.groups
            return _require_group(change, group_id, "") if known else ConsumerGroup(group_id)
        if classic.is_empty:
            self._classics.end(change, group_id)
            return ConsumerGroup(group_id)
        group = change.group(group_id)
        assert group is not None, group_id
        return self._classic_members(change).upgrade(group)

    def _session_expired(self, change: Change, event: events.ConsumerSessionExpired) -> None:
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
            self._rebalance(change).put_resolved(group, event.found)

    # ---- groups

    def on_loaded(self, change: Change, group_id: str) -> None:
        """Begins the sessions of all members."""
        self._rebalance(change).timers.resume(_known(change, group_id))

    def end(self, change: Change, group_id: str) -> None:
        """Writes the tombstones of an empty group."""
        change.write_all(group_tombstones(_known(change, group_id), ()))


def _known(change: Change, group_id: str) -> ConsumerGroup:
    group = change.shard.consumer_group(group_id)
    assert group is not None, group_id
    return group


def _require_group(change: Change, group_id: str, if_unknown: str) -> ConsumerGroup:
    """The group; raises CoordinatorRequestError: GROUP_ID_NOT_FOUND."""
    group = change.shard.consumer_group(group_id)
    if group is None:
        is_other = group_id in change.shard.groups
        why = "Group {} is not a consumer group." if is_other else if_unknown
        raise CoordinatorRequestError(ErrorCode.GROUP_ID_NOT_FOUND, why.format(group_id))
    return group
