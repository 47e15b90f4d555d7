"""The transitions of a classic group: members join, sync, send heartbeats, leave, or expire.

A function takes a group that may be changed, and collects the effects in a `Change`: records,
answers, timers. A request that cannot be answered yet stays in the group until it can.

Source: org.apache.kafka.coordinator.group.GroupMetadataManager, the classic part; KIP-62, KIP-134
(initial delay), KIP-345 (static members), KIP-394 (member ids), KIP-389 (group.max.size), KIP-814
(skipped assignments).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence

from cordwood.coordinator.effects import ReplyTo
from cordwood.coordinator.errors import CoordinatorRequestError
from cordwood.coordinator.group.change import Change
from cordwood.coordinator.group.classic import events
from cordwood.coordinator.group.classic.answers import (
    assignments,
    client_reason,
    heartbeat_key,
    join_key,
    joined,
    refused,
    sync_error,
    sync_key,
)
from cordwood.coordinator.group.classic.group import ClassicGroup, GroupState
from cordwood.coordinator.group.classic.member import (
    EMPTY_ASSIGNMENT,
    UNKNOWN_MEMBER_ID,
    JoinAnswer,
    JoinReply,
    JoinRequest,
    LeaveAnswer,
    LeaveReply,
    LeavingMember,
    Member,
    SyncAnswer,
    SyncReply,
    SyncRequest,
)
from cordwood.coordinator.group.classic.records import group_metadata
from cordwood.coordinator.group.counters import Count
from cordwood.coordinator.group.settings import GroupSettings
from cordwood.format.message_schema import STRING_BYTES_MAX
from cordwood.model.error_codes import ErrorCode
from cordwood.model.kafka_errors import KafkaError

UniqueId = Callable[[], str]

_LOG = logging.getLogger(__name__)

_EMPTY = GroupState.EMPTY
_PREPARING = GroupState.PREPARING_REBALANCE
_COMPLETING = GroupState.COMPLETING_REBALANCE
_STABLE = GroupState.STABLE


class Rebalance:
    """Changes groups by one event."""

    def __init__(self, settings: GroupSettings, unique_id: UniqueId, change: Change) -> None:
        """`unique_id` makes a random uuid, for the ids of members; `change` collects effects."""
        self._settings = settings
        self._unique_id = unique_id
        self._change = change

    # ---- joining

    def join(self, group: ClassicGroup, request: JoinRequest, reply: JoinReply) -> None:
        """Answers when the next generation begins, or immediately if the group need not change.

        Source: classicGroupJoinToClassicGroup.
        """
        if not self._accepts(group, request.member_id):
            group.remove(request.member_id)
            self._change.answer(reply, JoinAnswer(error_code=ErrorCode.GROUP_MAX_SIZE_REACHED))
        elif not group.supports(request.protocol_type, request.protocols):
            self._change.answer(reply, refused(request, ErrorCode.INCONSISTENT_GROUP_PROTOCOL))
        elif request.member_id == UNKNOWN_MEMBER_ID:
            self._join_new(group, request, reply)
        else:
            self._join_known(group, request, reply)

    def _accepts(self, group: ClassicGroup, member_id: str) -> bool:
        most = self._settings.max_size
        if group.state is _EMPTY:
            return True
        if group.state is _PREPARING:
            is_waiting = member_id in group and group.member(member_id).join_reply is not None
            return is_waiting or group.awaiting_join < most
        return member_id in group or len(group) < most

    def _join_new(self, group: ClassicGroup, request: JoinRequest, reply: JoinReply) -> None:
        instance = request.group_instance_id
        prefix = request.client.client_id if instance is None else instance
        member_id = f"{prefix}-{self._unique_id()}"
        if len(member_id.encode()) > STRING_BYTES_MAX:
            # No answer and no record could hold the id.
            self._change.answer(reply, refused(request, ErrorCode.UNKNOWN_SERVER_ERROR))
            return
        if instance is not None:
            existing = group.static_member_id(instance)
            if existing is not None:
                self._replace_static(group, request, existing, member_id, reply)
                return
        elif request.needs_member_id:
            group.pending_joins.add(member_id)
            self._change.set_timer(
                heartbeat_key(group, member_id),
                request.session_timeout_ms,
                events.SessionExpired(group_id=group.group_id, member_id=member_id),
            )
            self._change.answer(
                reply, JoinAnswer(error_code=ErrorCode.MEMBER_ID_REQUIRED, member_id=member_id)
            )
            return
        self._add(group, request, member_id, reply)

    def _join_known(self, group: ClassicGroup, request: JoinRequest, reply: JoinReply) -> None:
        member_id = request.member_id
        if member_id in group.pending_joins:
            if request.group_instance_id is not None:
                # Only a client without an instance id must join again with a member id.
                self._change.answer(reply, refused(request, ErrorCode.UNKNOWN_SERVER_ERROR))
            else:
                self._add(group, request, member_id, reply)
            return
        try:
            group.require_member(member_id, request.group_instance_id)
        except CoordinatorRequestError as error:
            self._change.answer(reply, refused(request, error.code))
            return
        member = group.member(member_id)
        is_unchanged = member.protocols == request.protocols
        if group.state is _EMPTY:
            self._change.answer(reply, refused(request, ErrorCode.UNKNOWN_MEMBER_ID))
        elif group.state is _COMPLETING and is_unchanged:
            # It has not heard the answer to its last JoinGroup.
            self._change.answer(
                reply, joined(group, member_id, with_members=group.is_leader(member_id))
            )
        elif group.state is _STABLE and is_unchanged and not group.is_leader(member_id):
            self._change.answer(reply, joined(group, member_id, with_members=False))
        else:
            self._update(group, member_id, request, reply)
            self._rebalance_or_complete(
                group,
                f"Member {member_id} re-joins during {group.state.value}; "
                f"client reason: {client_reason(request)}",
            )

    def _add(
        self, group: ClassicGroup, request: JoinRequest, member_id: str, reply: JoinReply
    ) -> None:
        member = Member(
            member_id=member_id,
            group_instance_id=request.group_instance_id,
            client=request.client,
            rebalance_timeout_ms=request.rebalance_timeout_ms,
            session_timeout_ms=request.session_timeout_ms,
            protocol_type=request.protocol_type,
            protocols=request.protocols,
            is_new=True,
            join_reply=reply,
        )
        if group.state is _PREPARING and group.previous_state is _EMPTY:
            group.is_new_member_added = True
        group.add(member)
        # A client that has given up must not be waited for forever: no session covers it before its
        # first rebalance (KAFKA-7610).
        self._watch(group, member, self._settings.new_member_join_timeout_ms)
        self._rebalance_or_complete(
            group,
            f"Adding new member {member_id} with group instance id {request.group_instance_id}; "
            f"client reason: {client_reason(request)}",
        )

    def _replace_static(
        self,
        group: ClassicGroup,
        request: JoinRequest,
        old_id: str,
        new_id: str,
        reply: JoinReply,
    ) -> None:
        """A static member comes back under another id.

        Source: updateStaticMemberThenRebalanceOrCompleteJoin.
        """
        instance = request.group_instance_id
        assert instance is not None
        leader_before = group.leader_id
        fenced = ErrorCode.FENCED_INSTANCE_ID
        self._answer_join(group, old_id, JoinAnswer(error_code=fenced, member_id=old_id))
        self._answer_sync(group, old_id, SyncAnswer(error_code=fenced))
        member = group.replace_static(instance, old_id, new_id)
        self._change.cancel_timer(heartbeat_key(group, old_id))
        self._watch(group, member, member.session_timeout_ms)
        self._update(group, new_id, request, reply)
        if group.state is _STABLE and group.protocol_name == group.select_protocol():
            self._change.write(group_metadata(group, assignments(group)))
            self._change.on_failure = lambda error: events.StaticMemberNotWritten(
                group_id=group.group_id, member_id=old_id, error=error, reply_to=reply
            )
            is_leader = group.is_leader(new_id)
            if request.may_skip_assignment:
                answer = joined(group, new_id, with_members=is_leader)
                self._answer_join(group, new_id, answer._replace(skip_assignment=is_leader))
            else:
                # A client without support for skipped assignments must not believe it is the
                # leader.
                answer = joined(group, new_id, with_members=False)
                self._answer_join(group, new_id, answer._replace(leader=leader_before or ""))
        elif group.state is _STABLE:
            self._rebalance_or_complete(
                group,
                "Group's selectedProtocol will change because static member "
                f"{new_id} with instance id {instance} joined with change of protocol; "
                f"client reason: {client_reason(request)}",
            )
        elif group.state is _COMPLETING:
            self.prepare_rebalance(
                group,
                f"Updating metadata for static member {new_id} with instance id {instance}; "
                f"client reason: {client_reason(request)}",
            )
        else:
            self._complete_join_if_all(group)

    def refuse_static(
        self, group: ClassicGroup, member_id: str, error: KafkaError, reply: JoinReply
    ) -> None:
        """The new id of a static member could not be written: the member keeps its old id."""
        member = group.member(member_id)
        self._watch(group, member, member.session_timeout_ms)
        answer = joined(group, UNKNOWN_MEMBER_ID, with_members=False)
        self._change.answer(reply, answer._replace(error_code=error.code))

    @staticmethod
    def _update(
        group: ClassicGroup, member_id: str, request: JoinRequest, reply: JoinReply
    ) -> None:
        """Updates a member with the fields of its new JoinGroup request."""
        group.update(
            member_id,
            protocols=request.protocols,
            rebalance_timeout_ms=request.rebalance_timeout_ms,
            session_timeout_ms=request.session_timeout_ms,
            join_reply=reply,
        )

    def _answer_join(self, group: ClassicGroup, member_id: str, answer: JoinAnswer) -> None:
        """Answers a member that waits for the rebalance; does nothing for another."""
        reply = group.take_join_reply(member_id)
        if reply is not None:
            self._change.answer(reply, answer)

    def _answer_sync(self, group: ClassicGroup, member_id: str, answer: SyncAnswer) -> bool:
        """Answers a member that waits for its assignment; whether there was one."""
        reply = group.take_sync_reply(member_id)
        if reply is not None:
            self._change.answer(reply, answer)
        return reply is not None

    # ---- from one generation to the next

    def _rebalance_or_complete(self, group: ClassicGroup, reason: str) -> None:
        if group.can_rebalance:
            self.prepare_rebalance(group, reason)
        else:
            self._complete_join_if_all(group)

    def prepare_rebalance(self, group: ClassicGroup, reason: str) -> None:
        """Waits for all members to join again; `reason` is logged."""
        if group.state is _COMPLETING:
            self._assign(group, {}, error=ErrorCode.REBALANCE_IN_PROGRESS)
        group.pending_syncs.clear()
        self._change.cancel_timer(sync_key(group))
        is_initial = group.state is _EMPTY
        if is_initial:
            delay_ms = self._settings.initial_rebalance_delay_ms
            remaining_ms = max(group.rebalance_timeout_ms - delay_ms, 0)
            self._change.set_timer(
                join_key(group),
                delay_ms,
                events.InitialDelayEnded(
                    group_id=group.group_id, delay_ms=delay_ms, remaining_ms=remaining_ms
                ),
            )
        group.transition_to(_PREPARING, self._change.now_ms)
        _LOG.info(
            "Preparing to rebalance group %s in state %s with old generation %d (reason: %s).",
            group.group_id,
            group.state.value,
            group.generation_id,
            reason,
        )
        if is_initial:
            return
        if group.has_all_joined:
            self.complete_join(group)
        else:
            self._wait_for_joins(group)

    def end_initial_delay(self, group: ClassicGroup, delay_ms: int, remaining_ms: int) -> None:
        """Waits again if another member has joined since, up to the rebalance timeout.

        Source: tryCompleteInitialRebalanceElseSchedule.
        """
        if group.is_new_member_added and remaining_ms:
            group.is_new_member_added = False
            next_delay_ms = min(self._settings.initial_rebalance_delay_ms, remaining_ms)
            next_remaining_ms = max(remaining_ms - delay_ms, 0)
            self._change.set_timer(
                join_key(group),
                next_delay_ms,
                events.InitialDelayEnded(
                    group_id=group.group_id,
                    delay_ms=next_delay_ms,
                    remaining_ms=next_remaining_ms,
                ),
            )
        else:
            self.complete_join(group)

    def _wait_for_joins(self, group: ClassicGroup) -> None:
        self._change.set_timer(
            join_key(group),
            group.rebalance_timeout_ms,
            events.JoinsExpired(group_id=group.group_id),
        )

    def _complete_join_if_all(self, group: ClassicGroup) -> None:
        is_initial = group.previous_state is _EMPTY
        if group.state is _PREPARING and not is_initial and group.has_all_joined:
            self.complete_join(group)

    def complete_join(self, group: ClassicGroup) -> None:
        """Begins the next generation with the members that have joined, and the static members.

        Source: completeClassicGroupJoin.
        """
        self._change.cancel_timer(join_key(group))
        for member in group.members():
            if member.join_reply is None and not member.is_static:
                group.remove(member.member_id)
                self._change.cancel_timer(heartbeat_key(group, member.member_id))
        if not group.elect_joined_leader() and len(group):
            # Only static members are left, and they are away: they are waited for again.
            self._wait_for_joins(group)
            return
        group.begin_generation(self._change.now_ms)
        if group.state is _EMPTY:
            _LOG.info(
                "Group %s with generation %d is now empty.", group.group_id, group.generation_id
            )
            # Without the record, a loaded group has members whose sessions expire: it is empty
            # then.
            self._change.write(group_metadata(group, {}))
            self._change.keeps_state = True
            return
        _LOG.info(
            "Stabilized group %s generation %d with %d members.",
            group.group_id,
            group.generation_id,
            len(group),
        )
        for member in group.members():
            answer = joined(group, member.member_id, with_members=group.is_leader(member.member_id))
            self._answer_join(group, member.member_id, answer)
            self._watch(group, member, member.session_timeout_ms)
            group.update(member.member_id, is_new=False)
            group.pending_syncs.add(member.member_id)
        self._change.set_timer(
            sync_key(group),
            group.rebalance_timeout_ms,
            events.SyncsExpired(group_id=group.group_id, generation_id=group.generation_id),
        )

    def expire_syncs(self, group: ClassicGroup, generation_id: int) -> None:
        """Removes members that have joined and not sent SyncGroup."""
        if generation_id != group.generation_id or not group.is_in(_COMPLETING, _STABLE):
            return
        missing = sorted(group.pending_syncs)
        if not missing:
            return
        for member_id in missing:
            group.remove(member_id)
            self._change.cancel_timer(heartbeat_key(group, member_id))
        self.prepare_rebalance(group, f"Removing {missing} on pending sync request expiration")

    # ---- assignments

    def sync(self, group: ClassicGroup, request: SyncRequest, reply: SyncReply) -> None:
        """Answers with a member's assignment once the leader has brought it.

        Source: classicGroupSyncToClassicGroup.
        """
        error = sync_error(group, request)
        if error:
            self._change.answer(reply, SyncAnswer(error_code=error))
            return
        if group.state is _COMPLETING:
            group.update(request.member_id, sync_reply=reply)
        self._end_pending_sync(group, request.member_id)
        if group.state is _STABLE:
            self._change.answer(
                reply,
                SyncAnswer(
                    protocol_type=group.protocol_type,
                    protocol_name=group.protocol_name,
                    assignment=group.member(request.member_id).assignment,
                ),
            )
        elif group.is_leader(request.member_id):
            self._take_assignment(group, request, reply)

    def _take_assignment(self, group: ClassicGroup, request: SyncRequest, reply: SyncReply) -> None:
        brought = dict(request.assignments)
        assignment = {
            member.member_id: brought.get(member.member_id, EMPTY_ASSIGNMENT)
            for member in group.members()
        }
        self._change.write(group_metadata(group, assignment))
        self._change.on_failure = lambda error: events.AssignmentNotWritten(
            group_id=group.group_id, member_id=request.member_id, error=error, reply_to=reply
        )
        self._assign(group, assignment)
        group.transition_to(_STABLE, self._change.now_ms)
        self._change.count(Count.COMPLETED_REBALANCES)

    def refuse_assignment(
        self, group: ClassicGroup, leader_id: str, error: KafkaError, reply: SyncReply
    ) -> None:
        """The assignments were not written: all members that wait for them have to rejoin."""
        group.update(leader_id, sync_reply=reply)
        self._end_pending_sync(group, leader_id)
        self._assign(group, {}, error=error.code)
        self._rebalance_or_complete(
            group, f"Error {error.code} when storing group assignment during SyncGroup"
        )

    def _assign(
        self, group: ClassicGroup, assignment: Mapping[str, bytes], *, error: int = ErrorCode.NONE
    ) -> None:
        is_good = error == ErrorCode.NONE
        answer = SyncAnswer(
            error_code=error,
            protocol_type=group.protocol_type if is_good else None,
            protocol_name=group.protocol_name if is_good else None,
        )
        for member in group.members():
            own = assignment.get(member.member_id, EMPTY_ASSIGNMENT)
            group.update(member.member_id, assignment=own)
            if self._answer_sync(group, member.member_id, answer._replace(assignment=own)):
                self._watch(group, member, member.session_timeout_ms)

    def _end_pending_sync(self, group: ClassicGroup, member_id: str) -> None:
        group.pending_syncs.discard(member_id)
        if not group.pending_syncs:
            self._change.cancel_timer(sync_key(group))

    # ---- sessions

    def heartbeat(
        self, group: ClassicGroup, member_id: str, group_instance_id: str | None, generation_id: int
    ) -> int:
        """Resets a member's session timeout; returns an error code.

        Source: classicGroupHeartbeatToClassicGroup.
        """
        try:
            group.require_member(member_id, group_instance_id)
        except CoordinatorRequestError as error:
            return error.code
        if generation_id != group.generation_id:
            return ErrorCode.ILLEGAL_GENERATION
        if group.state is _EMPTY:
            return ErrorCode.UNKNOWN_MEMBER_ID
        self.keep_alive(group, member_id)
        if group.state is _PREPARING:
            return ErrorCode.REBALANCE_IN_PROGRESS
        return ErrorCode.NONE

    def keep_alive(self, group: ClassicGroup, member_id: str) -> None:
        """Begins a member's session again."""
        member = group.member(member_id)
        self._watch(group, member, member.session_timeout_ms)

    def _watch(self, group: ClassicGroup, member: Member, timeout_ms: int) -> None:
        self._change.set_timer(
            heartbeat_key(group, member.member_id),
            timeout_ms,
            events.SessionExpired(group_id=group.group_id, member_id=member.member_id),
        )

    def expire_session(self, group: ClassicGroup, member_id: str) -> None:
        """Removes a member, unless it waits for an answer."""
        if member_id in group.pending_joins:
            group.remove(member_id)
            if group.state is _PREPARING and group.has_all_joined:
                self.complete_join(group)
        elif member_id in group:
            member = group.member(member_id)
            if not member.is_alive_while_waiting:
                self._lose(group, member)

    def _lose(self, group: ClassicGroup, member: Member) -> None:
        """Source: removeMemberAndUpdateClassicGroup."""
        _LOG.info(
            "Member %s in group %s has failed, removing it from the group.",
            member.member_id,
            group.group_id,
        )
        self._answer_join(
            group, member.member_id, JoinAnswer(error_code=ErrorCode.UNKNOWN_MEMBER_ID)
        )
        group.remove(member.member_id)
        if group.is_in(_STABLE, _COMPLETING):
            self._rebalance_or_complete(
                group, f"removing member {member.member_id} on heartbeat expiration."
            )
        elif group.state is _PREPARING and group.has_all_joined:
            self.complete_join(group)

    # ---- leaving

    def leave(
        self, group: ClassicGroup, leaving: Sequence[LeavingMember], reply: ReplyTo[LeaveReply]
    ) -> None:
        """Removes members, and returns a result for each.

        Source: classicGroupLeaveToClassicGroup.
        """
        answers = [
            LeaveAnswer(each.member_id, each.group_instance_id, self._leave_one(group, each))
            for each in leaving
        ]
        gone = [answer.member_id for answer in answers if not answer.error_code]
        if gone and group.is_in(_STABLE, _COMPLETING):
            self._rebalance_or_complete(
                group, f"explicit `LeaveGroup` request for ({', '.join(gone)}) members."
            )
        elif gone:
            self._complete_join_if_all(group)
        self._change.answer(reply, LeaveReply(members=tuple(answers)))

    def _leave_one(self, group: ClassicGroup, leaving: LeavingMember) -> int:
        member_id, instance, _ = leaving
        if member_id == UNKNOWN_MEMBER_ID:
            existing = None if instance is None else group.static_member_id(instance)
            if existing is None:
                return ErrorCode.UNKNOWN_MEMBER_ID
            member_id = existing
        elif member_id in group.pending_joins:
            group.remove(member_id)
            self._change.cancel_timer(heartbeat_key(group, member_id))
            return ErrorCode.NONE
        else:
            try:
                group.require_member(member_id, instance)
            except CoordinatorRequestError as error:
                return error.code
        self._change.cancel_timer(heartbeat_key(group, member_id))
        _LOG.info(
            "[Group %s] Member %s has left group through explicit `LeaveGroup` request; "
            "client reason: %s",
            group.group_id,
            member_id,
            leaving.reason or "not provided",
        )
        self._answer_join(group, member_id, JoinAnswer(error_code=ErrorCode.UNKNOWN_MEMBER_ID))
        group.remove(member_id)
        return ErrorCode.NONE

    # ---- groups that come and go

    def resume(self, group: ClassicGroup) -> None:
        """Begins the sessions of a group that was loaded.

        Source: GroupMetadataManager.onLoaded.
        """
        for member in group.members():
            self._watch(group, member, member.session_timeout_ms)

    def shrink(self, group: ClassicGroup) -> None:
        """Rebalances a group that was loaded and has more members than it may."""
        self.prepare_rebalance(
            group,
            f"Freshly-loaded group {group.group_id} (size {len(group)}) is over capacity "
            f"{self._settings.max_size}. Rebalancing in order to give a chance for consumers "
            "to commit offsets",
        )

    def end(self, group: ClassicGroup) -> None:
        """Cancels the timers of a group that is deleted, which has no members."""
        self._change.cancel_timer(join_key(group))
        self._change.cancel_timer(sync_key(group))
        for member_id in group.pending_joins:
            self._change.cancel_timer(heartbeat_key(group, member_id))
