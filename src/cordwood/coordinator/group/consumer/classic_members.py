"""Members of the classic protocol in a consumer group, and groups that change their protocol.

A consumer group takes members that send JoinGroup and SyncGroup, while a group is moved from one
protocol to the other. When the first member of the consumer protocol joins a classic group, the
group becomes a consumer group; when the last one leaves, it becomes a classic group again.

Source: org.apache.kafka.coordinator.group.GroupMetadataManager (classicGroupJoinToConsumerGroup,
classicGroupSyncToConsumerGroup, convertToConsumerGroup, convertToClassicGroup),
ConsumerGroup.fromClassicGroup, ClassicGroup.fromConsumerGroup; KIP-848.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import replace

from cordwood.coordinator.errors import CoordinatorRequestError
from cordwood.coordinator.group.change import Change
from cordwood.coordinator.group.classic.answers import heartbeat_key
from cordwood.coordinator.group.classic.group import (
    CONSUMER_PROTOCOL_TYPE,
    ClassicGroup,
)
from cordwood.coordinator.group.classic.member import (
    UNKNOWN_MEMBER_ID,
    JoinAnswer,
    JoinReply,
    JoinRequest,
    LeaveAnswer,
    LeaveReply,
    LeavingMember,
    SyncAnswer,
    SyncRequest,
)
from cordwood.coordinator.group.classic.rebalance import ClassicRebalance
from cordwood.coordinator.group.classic.records import group_metadata, group_tombstone
from cordwood.coordinator.group.consumer.conversion import (
    classic_group_of,
    consumer_group_of,
    with_names,
)
from cordwood.coordinator.group.consumer.group import ConsumerGroup
from cordwood.coordinator.group.consumer.member import (
    LEAVE_STATIC_EPOCH,
    ClassicMetadata,
    ConsumerMember,
    HeartbeatAnswer,
    HeartbeatRequest,
    MemberState,
    Owned,
)
from cordwood.coordinator.group.consumer.member_checks import require_member, require_static
from cordwood.coordinator.group.consumer.rebalance import ConsumerRebalance, MemberTarget
from cordwood.coordinator.group.consumer.records import group_records, group_tombstones
from cordwood.coordinator.group.consumer.topics import Topics
from cordwood.coordinator.group.settings import GroupSettings, MigrationPolicy
from cordwood.format.group_metadata import (
    ConsumerSubscription,
    build_consumer_assignment,
    consumer_protocol_version,
    parse_consumer_subscription,
)
from cordwood.model.error_codes import ErrorCode
from cordwood.model.errors import CorruptError, UnsupportedVersionError

_LOG = logging.getLogger(__name__)


class ClassicMembers:
    """Handles the requests of the classic protocol to consumer groups, and moves groups."""

    def __init__(
        self,
        settings: GroupSettings,
        consumers: ConsumerRebalance,
        classics: ClassicRebalance,
        change: Change,
    ) -> None:
        """`consumers` and `classics` change groups of the two protocols."""
        self._settings = settings
        self._consumers = consumers
        self._timers = consumers.timers
        self._classics = classics
        self._change = change

    # ---- requests

    def join(self, group: ConsumerGroup, request: JoinRequest, reply: JoinReply) -> None:
        """Adds a member of the classic protocol; its generation is its member epoch.

        Raises:
            CoordinatorRequestError: the request is refused.
        """
        self._require_migration(group)
        consumers = self._consumers
        group_id, instance_id = group.group_id, request.group_instance_id
        is_unknown = request.member_id == UNKNOWN_MEMBER_ID
        member_id = consumers.new_member_id() if is_unknown else request.member_id
        consumers.require_capacity(group, member_id, instance_id)
        if not group.supports(request.protocol_type, {each.name for each in request.protocols}):
            raise CoordinatorRequestError(
                ErrorCode.INCONSISTENT_GROUP_PROTOCOL,
                f"Member {member_id}'s protocols are not supported.",
            )
        if is_unknown and request.needs_member_id and instance_id is None:
            answer = JoinAnswer(error_code=ErrorCode.MEMBER_ID_REQUIRED, member_id=member_id)
            self._change.answer(reply, answer)
            return
        if instance_id is None:
            member = consumers.dynamic_member(group, member_id, may_be_new=True)
        elif is_unknown:
            member = consumers.join_static(
                group, member_id, instance_id, uses_classic_protocol=True
            )
        else:
            member = require_static(group, member_id, instance_id)
        existing = group.static_member(instance_id)
        subscription = _subscription_of(request)
        updated = _joined(member, request, subscription)
        names_changed = consumers.write_subscription(group_id, member, updated)
        regex = consumers.regexes.update(group, member, updated, None)
        changed = names_changed or regex.has_changed
        epoch, subscriptions = consumers.refresh(group, member, updated, is_bumped=changed)
        owned = self._owned(subscription)
        if existing is not None and self._may_downgrade(group, [existing], stays=True):
            is_stale = group.assignment_epoch < epoch
            if not is_stale:
                goal = MemberTarget(group.assignment_epoch, group.target(existing.member_id))
                updated = consumers.reconcile(
                    group, updated, goal, has_subscription_changed=changed, owned=owned
                )
            why = f"Downgrade group {group_id} from consumer to classic with stale assignment."
            self.downgrade(group, joining=updated, reason=why if is_stale else None)
        else:
            goal = consumers.update_target(group, member, updated, epoch, subscriptions)
            updated = consumers.reconcile(
                group, updated, goal, has_subscription_changed=changed, owned=owned
            )
            self._await_sync(group_id, updated, request)
        self._timers.joined(group_id, member_id)
        self._change.answer(
            reply,
            JoinAnswer(
                member_id=member_id,
                generation_id=updated.member_epoch,
                protocol_type=CONSUMER_PROTOCOL_TYPE,
                protocol_name=updated.protocols[0].name,
            ),
        )

    def _require_migration(self, group: ConsumerGroup) -> None:
        """Checks that the broker lets groups move at all.

        Raises:
            CoordinatorRequestError: INCONSISTENT_GROUP_PROTOCOL.

        Source: throwIfClassicMemberCannotJoinConsumerGroup.
        """
        if self._settings.consumer.migration_policy is MigrationPolicy.DISABLED:
            text = (
                f"Cannot join the consumer group {group.group_id} with the classic protocol "
                "because the group migration is disabled."
            )
            _LOG.info("%s", text)
            raise CoordinatorRequestError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, text)

    def _await_sync(self, group_id: str, member: ConsumerMember, request: JoinRequest) -> None:
        member_id = member.member_id
        self._timers.begin_session(group_id, member_id, request.session_timeout_ms)
        self._timers.await_sync(group_id, member_id, request.rebalance_timeout_ms)

    def sync(self, group: ConsumerGroup, request: SyncRequest) -> SyncAnswer:
        """Answers with the partitions of a member.

        Raises:
            CoordinatorRequestError: the request is refused.
        """
        member = self._classic_member(group, request.member_id, request.group_instance_id)
        _require_generation(member, request.generation_id)
        _require_protocol(member, request)
        if (
            group.assignment_epoch > member.member_epoch
            and member.state is not MemberState.UNREVOKED_PARTITIONS
        ):
            self._timers.await_join(group.group_id, member)
            raise CoordinatorRequestError(
                ErrorCode.REBALANCE_IN_PROGRESS,
                f"A new rebalance is triggered in group {group.group_id} and member "
                f"{member.member_id} should rejoin to catch up.",
            )
        self._timers.synced(group.group_id, member.member_id)
        self._keep_alive(group.group_id, member)
        return SyncAnswer(
            protocol_type=request.protocol_type,
            protocol_name=request.protocol_name,
            assignment=_assignment_bytes(member, self._consumers.topics),
        )

    def heartbeat(
        self, group: ConsumerGroup, member_id: str, instance_id: str | None, generation_id: int
    ) -> int:
        """The error code that says whether a member has to join again.

        Raises:
            CoordinatorRequestError: the request is refused.
        """
        member = self._classic_member(group, member_id, instance_id)
        _require_generation(member, generation_id)
        self._keep_alive(group.group_id, member)
        is_free = (
            member.state is MemberState.UNRELEASED_PARTITIONS
            and not group.is_waiting_for_others(member)
        )
        if (
            member.member_epoch < group.assignment_epoch
            or member.state is MemberState.UNREVOKED_PARTITIONS
            or is_free
        ):
            self._timers.await_join(group.group_id, member)
            return ErrorCode.REBALANCE_IN_PROGRESS
        return ErrorCode.NONE

    def leave(self, group: ConsumerGroup, members: Sequence[LeavingMember]) -> LeaveReply:
        """Removes members, and says of each what became of it."""
        answers, leaving = [], {}
        for each in members:
            code: int = ErrorCode.NONE
            try:
                if each.group_instance_id is None:
                    member = require_member(group, each.member_id)
                else:
                    known = group.static_member_id(each.group_instance_id) or ""
                    member_id = each.member_id or known
                    member = require_static(group, member_id, each.group_instance_id)
                leaving[member.member_id] = member
            except CoordinatorRequestError as error:
                code = error.code
            answers.append(LeaveAnswer(each.member_id, each.group_instance_id, code))
        self.fence(group, list(leaving.values()))
        return LeaveReply(members=tuple(answers))

    def leave_consumer(self, group: ConsumerGroup, request: HeartbeatRequest) -> HeartbeatAnswer:
        """A member leaves, a static one perhaps for a while.

        Raises:
            CoordinatorRequestError: UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID.

        Source: consumerGroupLeave.
        """
        answer = HeartbeatAnswer(member_id=request.member_id, member_epoch=request.member_epoch)
        if request.instance_id is None:
            member = require_member(group, request.member_id)
        else:
            member = require_static(group, request.member_id, request.instance_id)
            if request.member_epoch == LEAVE_STATIC_EPOCH:
                self._consumers.leave_static(group, member)
                return answer
        _LOG.info(
            "[GroupId %s] Member %s left the consumer group.", group.group_id, member.member_id
        )
        self.fence(group, [member])
        return answer

    def fence(self, group: ConsumerGroup, members: Sequence[ConsumerMember]) -> None:
        """Removes members; the group becomes a classic one if none of the others remains.

        Source: consumerGroupFenceMembers.
        """
        if members and self._may_downgrade(group, members, stays=False):
            why = f"Downgrade group {group.group_id} from consumer to classic for member leaving."
            self.downgrade(group, leaving=members, reason=why)
        else:
            self._consumers.fence(group, members)

    def _classic_member(
        self, group: ConsumerGroup, member_id: str, instance_id: str | None
    ) -> ConsumerMember:
        if instance_id is None:
            member = require_member(group, member_id)
        else:
            member = require_static(group, member_id, instance_id)
        if not member.uses_classic_protocol:
            raise CoordinatorRequestError(
                ErrorCode.UNKNOWN_MEMBER_ID,
                f"Member {member.member_id} does not use the classic protocol.",
            )
        return member

    def _keep_alive(self, group_id: str, member: ConsumerMember) -> None:
        assert member.classic is not None, "checked by the caller"
        self._timers.begin_session(group_id, member.member_id, member.classic.session_timeout_ms)

    def _owned(self, subscription: ConsumerSubscription) -> Owned:
        found = (
            (self._consumers.topics.by_name(topic), partitions)
            for topic, partitions in subscription.owned
        )
        return tuple(
            (topic.topic_id, tuple(partitions)) for topic, partitions in found if topic is not None
        )

    # ---- a classic group becomes a consumer group

    def upgrade(self, group: ClassicGroup) -> ConsumerGroup:
        """The consumer group that takes the place of a classic one, and its records.

        Raises:
            CoordinatorRequestError: GROUP_ID_NOT_FOUND, it may not, or cannot.

        Source: validateOnlineUpgrade, convertToConsumerGroup.
        """
        group_id = group.group_id
        self._require_upgrade(group)
        try:
            upgraded = consumer_group_of(group, self._consumers.topics)
        except UnsupportedVersionError as error:
            raise _not_upgraded(
                group_id,
                "because an unsupported custom assignor is in use. Please refer to the "
                "documentation or switch to a default assignor before re-attempting the upgrade.",
                logging.WARNING,
            ) from error
        except CorruptError as error:
            raise _not_upgraded(
                group_id, "because the embedded consumer protocol is malformed.", logging.WARNING
            ) from error
        self._change.write(group_tombstone(group_id))
        self._change.write_all(group_records(upgraded))
        rebalancing = ErrorCode.REBALANCE_IN_PROGRESS
        for member in group.members():
            join, sync = member.join_reply, member.sync_reply
            if join is not None:
                answer = JoinAnswer(error_code=rebalancing, member_id=member.member_id)
                self._change.answer(join, answer)
            if sync is not None:
                self._change.answer(sync, SyncAnswer(error_code=rebalancing))
            self._change.cancel_timer(heartbeat_key(group, member.member_id))
            self._timers.begin_session(group_id, member.member_id, member.session_timeout_ms)
        self._classics.end(group)
        _LOG.info("[GroupId %s] Converted the classic group to a consumer group.", group_id)
        return upgraded

    def _require_upgrade(self, group: ClassicGroup) -> None:
        group_id, settings = group.group_id, self._settings.consumer
        if not settings.migration_policy.upgrades:
            raise _not_upgraded(group_id, "because online upgrade is disabled.")
        if not group.uses_consumer_protocol:
            raise _not_upgraded(
                group_id, "because the group does not use the consumer embedded protocol."
            )
        if len(group) > settings.max_size:
            raise _not_upgraded(
                group_id, "because the group size exceeds the consumer group maximum size."
            )

    # ---- a consumer group becomes a classic group

    def _may_downgrade(
        self, group: ConsumerGroup, gone: Sequence[ConsumerMember], *, stays: bool
    ) -> bool:
        """Whether all members but these use the classic protocol, and the group may move.

        With `stays`, the only one of them is replaced by a member of the classic protocol.

        Source: validateOnlineDowngradeWithFencedMembers, validateOnlineDowngradeWithReplacedMember.
        """
        if stays and gone[0].uses_classic_protocol:
            return False
        classic_gone = sum(member.uses_classic_protocol for member in gone)
        left = len(group) - len(gone)
        if group.classic_count - classic_gone != left or (left <= 0 and not stays):
            return False
        return self._settings.consumer.migration_policy.downgrades and (
            left + stays <= self._settings.max_size
        )

    def downgrade(
        self,
        group: ConsumerGroup,
        *,
        leaving: Sequence[ConsumerMember] = (),
        joining: ConsumerMember | None = None,
        reason: str | None = None,
    ) -> None:
        """Writes the classic group that takes the place of a consumer group.

        Args:
            group: the group as it was.
            leaving: members that are gone.
            joining: a member of the classic protocol that takes the place of one with its instance
                id; its records are written already.
            reason: why the members have to join again; None if they need not.

        Source: convertToClassicGroup.
        """
        ids = group.member_ids()
        members = [m for m in group.members() if m not in leaving]
        if joining is not None:
            replaced = group.static_member_id(joining.instance_id)
            ids = [joining.member_id if each == replaced else each for each in ids]
            members = [joining if each.member_id == replaced else each for each in members]
        self._change.write_all(group_tombstones(group, ids))
        classic = classic_group_of(group, members, self._consumers.topics, self._change.now_ms)
        assignments = {each.member_id: each.assignment for each in classic.members()}
        for gone in group.members():
            self._timers.cancel_all(group.group_id, gone.member_id)
        self._change.write(group_metadata(classic, assignments))
        for member in classic.members():
            self._classics.keep_alive(classic, member.member_id)
        if reason is not None:
            self._classics.prepare_rebalance(classic, reason)
        _LOG.info("[GroupId %s] Converted the consumer group to a classic group.", group.group_id)


def _not_upgraded(group_id: str, why: str, level: int = logging.INFO) -> CoordinatorRequestError:
    """The error for a member of the consumer protocol; logged, for clients do not try again."""
    text = f"Cannot upgrade classic group {group_id} to consumer group {why}"
    _LOG.log(level, "%s", text)
    return CoordinatorRequestError(ErrorCode.GROUP_ID_NOT_FOUND, text)


# ---- checks


def _require_generation(member: ConsumerMember, generation_id: int) -> None:
    if member.member_epoch != generation_id:
        raise CoordinatorRequestError(
            ErrorCode.ILLEGAL_GENERATION,
            f"The request generation id {generation_id} is not equal to the member epoch "
            f"{member.member_epoch} of member {member.member_id}.",
        )


def _require_protocol(member: ConsumerMember, request: SyncRequest) -> None:
    """Source: throwIfClassicProtocolUnmatched."""
    expected = (
        (CONSUMER_PROTOCOL_TYPE, request.protocol_type, "type"),
        (member.protocols[0].name, request.protocol_name, "name"),
    )
    for known, asked, what in expected:
        if asked is not None and asked != known:
            raise CoordinatorRequestError(
                ErrorCode.INCONSISTENT_GROUP_PROTOCOL,
                f"The protocol {what} {asked} from member {member.member_id} request is not equal "
                f"to the group protocol {what} {known}.",
            )


# ---- values


def _subscription_of(request: JoinRequest) -> ConsumerSubscription:
    try:
        return parse_consumer_subscription(request.protocols[0].metadata)
    except CorruptError as error:
        raise CoordinatorRequestError(
            ErrorCode.INCONSISTENT_GROUP_PROTOCOL,
            "Malformed embedded consumer protocol in subscription deserialization.",
        ) from error


def _joined(
    member: ConsumerMember, request: JoinRequest, subscription: ConsumerSubscription
) -> ConsumerMember:
    instance_id, timeout_ms = request.group_instance_id, request.rebalance_timeout_ms
    return replace(
        member,
        instance_id=member.instance_id if instance_id is None else instance_id,
        rack_id=subscription.rack_id or member.rack_id,
        rebalance_timeout_ms=member.rebalance_timeout_ms if timeout_ms == -1 else timeout_ms,
        topics=frozenset(subscription.topics),
        named=tuple(subscription.topics),
        regex="",
        client=request.client,
        classic=ClassicMetadata(request.session_timeout_ms, request.protocols),
    )


def _assignment_bytes(member: ConsumerMember, topics: Topics) -> bytes:
    """Source: GroupMetadataManager.prepareAssignment."""
    version = consumer_protocol_version(member.protocols[0].metadata)
    return build_consumer_assignment(with_names(member.assigned, topics), version)
