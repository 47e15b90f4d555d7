"""JoinGroup in a classic group: new members, known ones, and static ones that come back.

Source: org.apache.kafka.coordinator.group.GroupMetadataManager (classicGroupJoinToClassicGroup,
classicGroupJoinNewMember, classicGroupJoinExistingMember); KIP-345 (static members), KIP-394
(member ids), KIP-389 (group.max.size), KIP-814 (skipped assignments).
"""

from __future__ import annotations

from collections.abc import Callable

from cordwood.coordinator.errors import CoordinatorRequestError
from cordwood.coordinator.group.change import Change
from cordwood.coordinator.group.classic import events
from cordwood.coordinator.group.classic.answers import (
    assignments,
    client_reason,
    heartbeat_key,
    joined,
    refused,
)
from cordwood.coordinator.group.classic.group import ClassicGroup, GroupState
from cordwood.coordinator.group.classic.member import (
    UNKNOWN_MEMBER_ID,
    JoinAnswer,
    JoinReply,
    JoinRequest,
    Member,
    SyncAnswer,
)
from cordwood.coordinator.group.classic.rebalance import ClassicRebalance
from cordwood.coordinator.group.classic.records import group_metadata
from cordwood.coordinator.group.settings import GroupSettings
from cordwood.format.message_schema import STRING_BYTES_MAX
from cordwood.model.error_codes import ErrorCode
from cordwood.model.kafka_errors import KafkaError

_EMPTY = GroupState.EMPTY
_PREPARING = GroupState.PREPARING_REBALANCE
_COMPLETING = GroupState.COMPLETING_REBALANCE
_STABLE = GroupState.STABLE


class Joining:
    """Adds members to a group that may be changed."""

    def __init__(
        self,
        settings: GroupSettings,
        rebalance: ClassicRebalance,
        unique_id: Callable[[], str],
        change: Change,
    ) -> None:
        """Changes nothing yet.

        Args:
            settings: of the broker.
            rebalance: begins the next generation.
            unique_id: makes a random uuid, for the ids of members.
            change: collects effects.
        """
        self._settings = settings
        self._rebalance = rebalance
        self._unique_id = unique_id
        self._change = change

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
            self._rebalance.rebalance_or_complete(
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
        self._rebalance.begin_session(group, member, self._settings.new_member_join_timeout_ms)
        self._rebalance.rebalance_or_complete(
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
        self._rebalance.answer_join(group, old_id, JoinAnswer(error_code=fenced, member_id=old_id))
        self._rebalance.answer_sync(group, old_id, SyncAnswer(error_code=fenced))
        member = group.replace_static(instance, old_id, new_id)
        self._change.cancel_timer(heartbeat_key(group, old_id))
        self._rebalance.begin_session(group, member, member.session_timeout_ms)
        self._update(group, new_id, request, reply)
        if group.state is _STABLE and group.protocol_name == group.select_protocol():
            self._change.write(group_metadata(group, assignments(group)))
            self._change.on_failure = lambda error: events.StaticMemberNotWritten(
                group_id=group.group_id, member_id=old_id, error=error, reply_to=reply
            )
            is_leader = group.is_leader(new_id)
            if request.may_skip_assignment:
                answer = joined(group, new_id, with_members=is_leader)
                self._rebalance.answer_join(
                    group, new_id, answer._replace(skip_assignment=is_leader)
                )
            else:
                # A client without support for skipped assignments must not believe it is the
                # leader.
                answer = joined(group, new_id, with_members=False)
                self._rebalance.answer_join(
                    group, new_id, answer._replace(leader=leader_before or "")
                )
        elif group.state is _STABLE:
            self._rebalance.rebalance_or_complete(
                group,
                "Group's selectedProtocol will change because static member "
                f"{new_id} with instance id {instance} joined with change of protocol; "
                f"client reason: {client_reason(request)}",
            )
        elif group.state is _COMPLETING:
            self._rebalance.prepare_rebalance(
                group,
                f"Updating metadata for static member {new_id} with instance id {instance}; "
                f"client reason: {client_reason(request)}",
            )
        else:
            self._rebalance.complete_join_if_all(group)

    def refuse_static(
        self, group: ClassicGroup, member_id: str, error: KafkaError, reply: JoinReply
    ) -> None:
        """The new id of a static member could not be written: the member keeps its old id."""
        member = group.member(member_id)
        self._rebalance.begin_session(group, member, member.session_timeout_ms)
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
