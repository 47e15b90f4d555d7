"""The transitions of a classic group: generations, assignments, heartbeats, leaving, timeouts.

A function takes a group that may be changed, and collects the effects in a `Change`: records,
answers, timers. A request that cannot be answered yet stays in the group until it can.

Source: org.apache.kafka.coordinator.group.GroupMetadataManager, the classic part; KIP-62, KIP-134
(initial delay).
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence

from cordwood.coordinator.effects import ReplyTo
from cordwood.coordinator.errors import CoordinatorRequestError
from cordwood.coordinator.group.change import Change
from cordwood.coordinator.group.classic import events
from cordwood.coordinator.group.classic.answers import (
    heartbeat_key,
    join_key,
    joined,
    sync_error,
    sync_key,
)
from cordwood.coordinator.group.classic.group import ClassicGroup, GroupState
from cordwood.coordinator.group.classic.member import (
    EMPTY_ASSIGNMENT,
    UNKNOWN_MEMBER_ID,
    JoinAnswer,
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
from cordwood.model.error_codes import ErrorCode
from cordwood.model.kafka_errors import KafkaError

_LOG = logging.getLogger(__name__)

_EMPTY = GroupState.EMPTY
_PREPARING = GroupState.PREPARING_REBALANCE
_COMPLETING = GroupState.COMPLETING_REBALANCE
_STABLE = GroupState.STABLE


class ClassicRebalance:
    """Changes groups by one event."""

    def __init__(self, settings: GroupSettings, change: Change) -> None:
        """`change` collects effects."""
        self._settings = settings
        self._change = change

    # ---- members that wait

    def answer_join(self, group: ClassicGroup, member_id: str, answer: JoinAnswer) -> None:
        """Answers a member that waits for the rebalance; does nothing for another."""
        reply = group.take_join_reply(member_id)
        if reply is not None:
            self._change.answer(reply, answer)

    def answer_sync(self, group: ClassicGroup, member_id: str, answer: SyncAnswer) -> bool:
        """Answers a member that waits for its assignment; whether there was one."""
        reply = group.take_sync_reply(member_id)
        if reply is not None:
            self._change.answer(reply, answer)
        return reply is not None

    # ---- from one generation to the next

    def rebalance_or_complete(self, group: ClassicGroup, reason: str) -> None:
        """Begins a rebalance, for a reason that is logged, or ends one if all members have joined.

        Source: maybePrepareRebalanceOrCompleteJoin.
        """
        if group.can_rebalance:
            self.prepare_rebalance(group, reason)
        else:
            self.complete_join_if_all(group)

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

    def complete_join_if_all(self, group: ClassicGroup) -> None:
        """Ends a rebalance, but for the first one of a group, if all members have joined."""
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
            self.answer_join(group, member.member_id, answer)
            self.begin_session(group, member, member.session_timeout_ms)
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
        self.rebalance_or_complete(
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
            if self.answer_sync(group, member.member_id, answer._replace(assignment=own)):
                self.begin_session(group, member, member.session_timeout_ms)

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
        self.begin_session(group, member, member.session_timeout_ms)

    def begin_session(self, group: ClassicGroup, member: Member, timeout_ms: int) -> None:
        """Removes a member in `timeout_ms`, unless its session begins again before."""
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
        self.answer_join(
            group, member.member_id, JoinAnswer(error_code=ErrorCode.UNKNOWN_MEMBER_ID)
        )
        group.remove(member.member_id)
        if group.is_in(_STABLE, _COMPLETING):
            self.rebalance_or_complete(
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
            self.rebalance_or_complete(
                group, f"explicit `LeaveGroup` request for ({', '.join(gone)}) members."
            )
        elif gone:
            self.complete_join_if_all(group)
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
        self.answer_join(group, member_id, JoinAnswer(error_code=ErrorCode.UNKNOWN_MEMBER_ID))
        group.remove(member_id)
        return ErrorCode.NONE

    # ---- groups that come and go

    def resume(self, group: ClassicGroup) -> None:
        """Begins the sessions of a group that was loaded.

        Source: GroupMetadataManager.onLoaded.
        """
        for member in group.members():
            self.begin_session(group, member, member.session_timeout_ms)

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
