"""What happens to a classic group: members join, sync, send heartbeats, leave, or are lost.

Nothing here waits. A question that cannot be answered yet keeps its `reply` until the group has
gone on; timers come from `timers`; what has to outlive a crash is handed to `store`, which
has written it when it returns.

Source: org.apache.kafka.coordinator.group.GroupMetadataManager, the classic part; KIP-62, KIP-134
(initial delay), KIP-345 (static members), KIP-394 (member ids), KIP-389 (group.max.size), KIP-814
(skipped assignments).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from functools import partial

from cordwood.broker.groups.answers import (
    assignments,
    client_reason,
    heartbeat_key,
    join_key,
    joined,
    refused,
    sync_error,
    sync_key,
)
from cordwood.broker.groups.errors import GroupError, GroupRequestError
from cordwood.broker.groups.group import ClassicGroup, GroupState
from cordwood.broker.groups.member import (
    EMPTY_ASSIGNMENT,
    UNKNOWN_MEMBER_ID,
    JoinAnswer,
    JoinReply,
    JoinRequest,
    LeaveAnswer,
    LeavingMember,
    Member,
    SyncAnswer,
    SyncReply,
    SyncRequest,
)
from cordwood.broker.groups.settings import GroupSettings
from cordwood.broker.groups.timers import Timers
from cordwood.format.message_schema import STRING_BYTES_MAX

Store = Callable[[ClassicGroup, Mapping[str, bytes]], int]
"""Writes a group with the assignments of its members, by their ids; 0 or an error code."""
UniqueId = Callable[[], str]

_LOG = logging.getLogger(__name__)

_EMPTY = GroupState.EMPTY
_PREPARING = GroupState.PREPARING_REBALANCE
_COMPLETING = GroupState.COMPLETING_REBALANCE
_STABLE = GroupState.STABLE
_DEAD = GroupState.DEAD


class Rebalancer:
    """Takes groups from one generation to the next."""

    def __init__(
        self,
        settings: GroupSettings,
        timers: Timers,
        store: Store,
        unique_id: UniqueId,
    ) -> None:
        """Rules for all groups.

        Args:
            settings: bounds and delays.
            timers: of real time.
            store: writes a group.
            unique_id: makes a random uuid, for the ids of members.
        """
        self._settings = settings
        self._timers = timers
        self._store = store
        self._unique_id = unique_id

    # ---- joining

    def join(self, group: ClassicGroup, request: JoinRequest, reply: JoinReply) -> None:
        """Answers once the group has its next generation, or at once if it need not change.

        Source: classicGroupJoinToClassicGroup.
        """
        if not self._accepts(group, request.member_id):
            group.remove(request.member_id)
            reply(JoinAnswer(error_code=GroupError.GROUP_MAX_SIZE_REACHED))
        elif group.state is _DEAD:
            reply(refused(request, GroupError.COORDINATOR_NOT_AVAILABLE))
        elif not group.supports(request.protocol_type, request.protocols):
            reply(refused(request, GroupError.INCONSISTENT_GROUP_PROTOCOL))
        elif request.member_id == UNKNOWN_MEMBER_ID:
            self._join_new(group, request, reply)
        else:
            self._join_known(group, request, reply)

    def _accepts(self, group: ClassicGroup, member_id: str) -> bool:
        most = self._settings.max_size
        if group.is_in(_EMPTY, _DEAD):
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
            reply(refused(request, GroupError.UNKNOWN_SERVER_ERROR))
            return
        if instance is not None:
            existing = group.static_member_id(instance)
            if existing is not None:
                self._replace_static(group, request, existing, member_id, reply)
                return
        elif request.needs_member_id:
            group.pending_joins.add(member_id)
            self._timers.set(
                heartbeat_key(group, member_id),
                request.session_timeout_ms,
                partial(self._expire_heartbeat, group, member_id),
            )
            reply(JoinAnswer(error_code=GroupError.MEMBER_ID_REQUIRED, member_id=member_id))
            return
        self._add(group, request, member_id, reply)

    def _join_known(self, group: ClassicGroup, request: JoinRequest, reply: JoinReply) -> None:
        member_id = request.member_id
        if member_id in group.pending_joins:
            if request.group_instance_id is not None:
                # Only who has no instance id is asked to come back with a member id.
                reply(refused(request, GroupError.UNKNOWN_SERVER_ERROR))
            else:
                self._add(group, request, member_id, reply)
            return
        try:
            group.require_member(member_id, request.group_instance_id)
        except GroupRequestError as error:
            reply(refused(request, error.code))
            return
        member = group.member(member_id)
        is_unchanged = member.protocols == request.protocols
        if group.state is _EMPTY:
            reply(refused(request, GroupError.UNKNOWN_MEMBER_ID))
        elif group.state is _COMPLETING and is_unchanged:
            # It has not heard the answer to its last JoinGroup.
            reply(joined(group, member_id, with_members=group.is_leader(member_id)))
        elif group.state is _STABLE and is_unchanged and not group.is_leader(member_id):
            reply(joined(group, member_id, with_members=False))
        else:
            group.update(
                member,
                request.protocols,
                rebalance_timeout_ms=request.rebalance_timeout_ms,
                session_timeout_ms=request.session_timeout_ms,
                reply=reply,
            )
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
        )
        if group.state is _PREPARING and group.previous_state is _EMPTY:
            group.is_new_member_added = True
        group.add(member, reply)
        # A client that has given up may still be waited for: no session covers it before its first
        # rebalance, so that it is let go after a while (KAFKA-7610).
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
        member = group.replace_static(instance, old_id, new_id)
        self._timers.cancel(heartbeat_key(group, old_id))
        self._watch(group, member, member.session_timeout_ms)
        before = (member.protocols, member.rebalance_timeout_ms, member.session_timeout_ms)
        group.update(
            member,
            request.protocols,
            rebalance_timeout_ms=request.rebalance_timeout_ms,
            session_timeout_ms=request.session_timeout_ms,
            reply=reply,
        )
        if group.state is _STABLE and group.protocol_name == group.select_protocol():
            error = self._store(group, assignments(group))
            if error:
                protocols, rebalance_ms, session_ms = before
                group.update(
                    member,
                    protocols,
                    rebalance_timeout_ms=rebalance_ms,
                    session_timeout_ms=session_ms,
                    reply=None,
                )
                old = group.replace_static(instance, new_id, old_id)
                self._timers.cancel(heartbeat_key(group, new_id))
                self._watch(group, old, old.session_timeout_ms)
                reply(
                    joined(group, UNKNOWN_MEMBER_ID, with_members=False)._replace(
                        error_code=error, leader=leader_before or ""
                    )
                )
            elif request.may_skip_assignment:
                is_leader = group.is_leader(new_id)
                answer = joined(group, new_id, with_members=is_leader)
                group.answer_join(member, answer._replace(skip_assignment=is_leader))
            else:
                # One that does not know of skipped assignments must not take itself for the leader.
                answer = joined(group, new_id, with_members=False)
                group.answer_join(member, answer._replace(leader=leader_before or ""))
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

    # ---- from one generation to the next

    def _rebalance_or_complete(self, group: ClassicGroup, reason: str) -> None:
        if group.can_rebalance:
            self.prepare_rebalance(group, reason)
        else:
            self._complete_join_if_all(group)

    def prepare_rebalance(self, group: ClassicGroup, reason: str) -> None:
        """Waits for all members to join anew; `reason` is logged."""
        if group.state is _COMPLETING:
            self._assign(group, {}, error=GroupError.REBALANCE_IN_PROGRESS)
        group.pending_syncs.clear()
        self._timers.cancel(sync_key(group))
        is_initial = group.state is _EMPTY
        if is_initial:
            delay_ms = self._settings.initial_rebalance_delay_ms
            remaining_ms = max(group.rebalance_timeout_ms - delay_ms, 0)
            self._timers.set(
                join_key(group),
                delay_ms,
                partial(self._end_initial_delay, group, delay_ms, remaining_ms),
            )
        group.transition_to(_PREPARING)
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
            self._complete_join(group)
        else:
            self._wait_for_joins(group)

    def _end_initial_delay(self, group: ClassicGroup, delay_ms: int, remaining_ms: int) -> None:
        """Waits again if another member has joined meanwhile, but never beyond what members allow.

        Source: tryCompleteInitialRebalanceElseSchedule.
        """
        if group.is_new_member_added and remaining_ms:
            group.is_new_member_added = False
            next_delay_ms = min(self._settings.initial_rebalance_delay_ms, remaining_ms)
            next_remaining_ms = max(remaining_ms - delay_ms, 0)
            self._timers.set(
                join_key(group),
                next_delay_ms,
                partial(self._end_initial_delay, group, next_delay_ms, next_remaining_ms),
            )
        else:
            self._complete_join(group)

    def _wait_for_joins(self, group: ClassicGroup) -> None:
        self._timers.set(
            join_key(group), group.rebalance_timeout_ms, partial(self._complete_join, group)
        )

    def _complete_join_if_all(self, group: ClassicGroup) -> None:
        is_initial = group.previous_state is _EMPTY
        if group.state is _PREPARING and not is_initial and group.has_all_joined:
            self._complete_join(group)

    def _complete_join(self, group: ClassicGroup) -> None:
        """Begins the next generation with those who have joined, and static members.

        Source: completeClassicGroupJoin.
        """
        self._timers.cancel(join_key(group))
        if group.state is _DEAD:
            return
        for member in group.members():
            if member.join_reply is None and not member.is_static:
                group.remove(member.member_id)
                self._timers.cancel(heartbeat_key(group, member.member_id))
        if not group.elect_joined_leader() and len(group):
            # None but static members, who are away: they are waited for again.
            self._wait_for_joins(group)
            return
        group.begin_generation()
        if group.state is _EMPTY:
            _LOG.info(
                "Group %s with generation %d is now empty.", group.group_id, group.generation_id
            )
            self._store(group, {})
            return
        _LOG.info(
            "Stabilized group %s generation %d with %d members.",
            group.group_id,
            group.generation_id,
            len(group),
        )
        for member in group.members():
            answer = joined(group, member.member_id, with_members=group.is_leader(member.member_id))
            group.answer_join(member, answer)
            self._watch(group, member, member.session_timeout_ms)
            member.is_new = False
            group.pending_syncs.add(member.member_id)
        self._timers.set(
            sync_key(group),
            group.rebalance_timeout_ms,
            partial(self._expire_syncs, group, group.generation_id),
        )

    def _expire_syncs(self, group: ClassicGroup, generation_id: int) -> None:
        """Removes members that have joined and never asked for their assignment."""
        if generation_id != group.generation_id or not group.is_in(_COMPLETING, _STABLE):
            return
        missing = sorted(group.pending_syncs)
        if not missing:
            return
        for member_id in missing:
            group.remove(member_id)
            self._timers.cancel(heartbeat_key(group, member_id))
        self.prepare_rebalance(group, f"Removing {missing} on pending sync request expiration")

    # ---- assignments

    def sync(self, group: ClassicGroup, request: SyncRequest, reply: SyncReply) -> None:
        """Answers with a member's assignment once the leader has brought it.

        Source: classicGroupSyncToClassicGroup.
        """
        error = sync_error(group, request)
        if error:
            reply(SyncAnswer(error_code=error))
            return
        member = group.member(request.member_id)
        if group.state is _COMPLETING:
            member.sync_reply = reply
        self._end_pending_sync(group, request.member_id)
        if group.state is _STABLE:
            reply(
                SyncAnswer(
                    protocol_type=group.protocol_type,
                    protocol_name=group.protocol_name,
                    assignment=member.assignment,
                )
            )
        elif group.is_leader(request.member_id):
            self._take_assignment(group, dict(request.assignments))

    def _take_assignment(self, group: ClassicGroup, brought: Mapping[str, bytes]) -> None:
        assignment = {
            member.member_id: brought.get(member.member_id, EMPTY_ASSIGNMENT)
            for member in group.members()
        }
        error = self._store(group, assignment)
        if error:
            self._assign(group, {}, error=error)
            self._rebalance_or_complete(
                group, f"Error {error} when storing group assignment during SyncGroup"
            )
        else:
            self._assign(group, assignment)
            group.transition_to(_STABLE)

    def _assign(
        self, group: ClassicGroup, assignment: Mapping[str, bytes], *, error: int = GroupError.NONE
    ) -> None:
        is_good = error == GroupError.NONE
        answer = SyncAnswer(
            error_code=error,
            protocol_type=group.protocol_type if is_good else None,
            protocol_name=group.protocol_name if is_good else None,
        )
        for member in group.members():
            member.assignment = assignment.get(member.member_id, EMPTY_ASSIGNMENT)
            if group.answer_sync(member, answer._replace(assignment=member.assignment)):
                self._watch(group, member, member.session_timeout_ms)

    def _end_pending_sync(self, group: ClassicGroup, member_id: str) -> None:
        group.pending_syncs.discard(member_id)
        if not group.pending_syncs:
            self._timers.cancel(sync_key(group))

    # ---- sessions

    def heartbeat(
        self, group: ClassicGroup, member_id: str, group_instance_id: str | None, generation_id: int
    ) -> int:
        """Keeps a member's session alive; an error code.

        Source: classicGroupHeartbeatToClassicGroup.
        """
        if group.state is _DEAD:
            return GroupError.COORDINATOR_NOT_AVAILABLE
        try:
            group.require_member(member_id, group_instance_id)
        except GroupRequestError as error:
            return error.code
        if generation_id != group.generation_id:
            return GroupError.ILLEGAL_GENERATION
        if group.state is _EMPTY:
            return GroupError.UNKNOWN_MEMBER_ID
        self.keep_alive(group, member_id)
        if group.state is _PREPARING:
            return GroupError.REBALANCE_IN_PROGRESS
        return GroupError.NONE

    def keep_alive(self, group: ClassicGroup, member_id: str) -> None:
        """Begins a member's session anew."""
        member = group.member(member_id)
        self._watch(group, member, member.session_timeout_ms)

    def _watch(self, group: ClassicGroup, member: Member, timeout_ms: int) -> None:
        self._timers.set(
            heartbeat_key(group, member.member_id),
            timeout_ms,
            partial(self._expire_heartbeat, group, member.member_id),
        )

    def _expire_heartbeat(self, group: ClassicGroup, member_id: str) -> None:
        if group.state is _DEAD:
            return
        if member_id in group.pending_joins:
            group.remove(member_id)
            if group.state is _PREPARING and group.has_all_joined:
                self._complete_join(group)
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
        group.answer_join(member, JoinAnswer(error_code=GroupError.UNKNOWN_MEMBER_ID))
        group.remove(member.member_id)
        if group.is_in(_STABLE, _COMPLETING):
            self._rebalance_or_complete(
                group, f"removing member {member.member_id} on heartbeat expiration."
            )
        elif group.state is _PREPARING and group.has_all_joined:
            self._complete_join(group)

    # ---- leaving

    def leave(self, group: ClassicGroup, leaving: Sequence[LeavingMember]) -> list[LeaveAnswer]:
        """Takes members out, and tells of each whether it was one.

        Raises:
            GroupRequestError: the group is dead.

        Source: classicGroupLeaveToClassicGroup.
        """
        if group.state is _DEAD:
            raise GroupRequestError(GroupError.COORDINATOR_NOT_AVAILABLE)
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
        return answers

    def _leave_one(self, group: ClassicGroup, leaving: LeavingMember) -> int:
        member_id, instance, _ = leaving
        if member_id == UNKNOWN_MEMBER_ID:
            existing = None if instance is None else group.static_member_id(instance)
            if existing is None:
                return GroupError.UNKNOWN_MEMBER_ID
            member_id = existing
        elif member_id in group.pending_joins:
            group.remove(member_id)
            self._timers.cancel(heartbeat_key(group, member_id))
            return GroupError.NONE
        else:
            try:
                group.require_member(member_id, instance)
            except GroupRequestError as error:
                return error.code
        self._timers.cancel(heartbeat_key(group, member_id))
        _LOG.info(
            "[Group %s] Member %s has left group through explicit `LeaveGroup` request; "
            "client reason: %s",
            group.group_id,
            member_id,
            leaving.reason or "not provided",
        )
        group.answer_join(
            group.member(member_id), JoinAnswer(error_code=GroupError.UNKNOWN_MEMBER_ID)
        )
        group.remove(member_id)
        return GroupError.NONE

    # ---- groups that come and go

    def resume(self, group: ClassicGroup) -> None:
        """Begins the sessions of a group that was loaded; one that is too large is rebalanced.

        Source: GroupMetadataManager.onLoaded.
        """
        for member in group.members():
            self._watch(group, member, member.session_timeout_ms)
        if len(group) > self._settings.max_size:
            self.prepare_rebalance(
                group,
                f"Freshly-loaded group {group.group_id} (size {len(group)}) is over capacity "
                f"{self._settings.max_size}. Rebalancing in order to give a chance for consumers "
                "to commit offsets",
            )

    def end(self, group: ClassicGroup) -> None:
        """Declares a group dead: it was deleted, or is no longer this coordinator's.

        Source: GroupMetadataManager.onUnloaded.
        """
        group.transition_to(_DEAD)
        self._timers.cancel(join_key(group))
        self._timers.cancel(sync_key(group))
        for member_id in group.pending_joins:
            self._timers.cancel(heartbeat_key(group, member_id))
        for member in group.members():
            self._timers.cancel(heartbeat_key(group, member.member_id))
            group.answer_join(
                member,
                JoinAnswer(error_code=GroupError.NOT_COORDINATOR, member_id=member.member_id),
            )
            group.answer_sync(member, SyncAnswer(error_code=GroupError.NOT_COORDINATOR))

    def close(self) -> None:
        """Stops all timers."""
        self._timers.cancel_all()
