"""The transitions of a consumer group: heartbeats, members that leave, and timeouts.

A function reads the group, and collects records, timers and an answer in a `Change`. The records
change the group when they are replayed.

Source: org.apache.kafka.coordinator.group.GroupMetadataManager, the part of consumer groups
(4.4.0); KIP-848.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Final, NamedTuple

from cordwood.coordinator.errors import CoordinatorRequestError
from cordwood.coordinator.group.change import Change
from cordwood.coordinator.group.consumer.group import ConsumerGroup, Target
from cordwood.coordinator.group.consumer.member import (
    JOIN_EPOCH,
    LEAVE_STATIC_EPOCH,
    ConsumerMember,
    Epochs,
    HeartbeatAnswer,
    HeartbeatRequest,
    Owned,
    TopicAssignment,
)
from cordwood.coordinator.group.consumer.member_checks import (
    require_epoch,
    require_member,
    require_static,
)
from cordwood.coordinator.group.consumer.reconcile import Reconciliation
from cordwood.coordinator.group.consumer.records import (
    RecordType,
    current_record,
    epoch_record,
    member_record,
    member_tombstones,
    regex_record,
    target_epoch_record,
    target_record,
    tombstone,
)
from cordwood.coordinator.group.consumer.regexes import GroupRegexes
from cordwood.coordinator.group.consumer.subscriptions import ResolvedRegex, Subscriptions
from cordwood.coordinator.group.consumer.target import new_target
from cordwood.coordinator.group.consumer.timers import MemberTimers
from cordwood.coordinator.group.consumer.topics import CoordinatorMetadata
from cordwood.coordinator.group.counters import Count
from cordwood.coordinator.group.settings import ConsumerGroupSettings
from cordwood.model.error_codes import ErrorCode

_REFRESH_INTERVAL_MS: Final = 2**31 - 1

_LOG = logging.getLogger(__name__)


class MemberTarget(NamedTuple):
    """The target assignment of a member, and its epoch."""

    epoch: int
    target: Target


class ConsumerRebalance:
    """Handles the events of consumer groups for one change of the state."""

    def __init__(
        self,
        settings: ConsumerGroupSettings,
        metadata: CoordinatorMetadata,
        unique_id: Callable[[], str],
        change: Change,
    ) -> None:
        """`unique_id` makes the ids of members; `change` collects effects."""
        self.settings = settings
        self.topics = metadata.topics
        self.timers = MemberTimers(settings, metadata, change)
        self.regexes = GroupRegexes(settings, self.topics, change)
        self._metadata = metadata
        self._unique_id = unique_id
        self._change = change

    def new_member_id(self) -> str:
        """An id for a member that has none."""
        return self._unique_id()

    # ---- heartbeats

    def heartbeat(self, group: ConsumerGroup, request: HeartbeatRequest) -> HeartbeatAnswer:
        """A member joins, or shows that it is alive, and gets what has changed for it.

        Raises:
            CoordinatorRequestError: the request is refused.

        Source: GroupMetadataManager.consumerGroupHeartbeat.
        """
        group_id = group.group_id
        self.require_capacity(group, request.member_id, request.instance_id)
        member_id = request.member_id or self._unique_id()
        request = replace(request, member_id=member_id)
        member = self._member_for(group, request)
        updated = _updated(member, request)
        names_changed = self.write_subscription(group_id, member, updated)
        regex = self.regexes.update(group, member, updated, request.may_describe)
        changed = names_changed or regex.has_changed
        epoch, subscriptions = self.refresh(
            group,
            member,
            updated,
            is_bumped=names_changed
            or regex.is_resolved
            or self._has_assignor_changed(group, member, updated),
        )
        goal = self.update_target(group, member, updated, epoch, subscriptions)
        updated = self.reconcile(
            group, updated, goal, has_subscription_changed=changed, owned=request.owned
        )
        self.timers.begin_session(group_id, member_id)
        is_told = (
            request.member_epoch == JOIN_EPOCH
            or request.is_full
            or member.assigned != updated.assigned
        )
        return HeartbeatAnswer(
            member_id=member_id,
            member_epoch=updated.member_epoch,
            heartbeat_interval_ms=self._metadata.group_setting(
                group_id, "consumer.heartbeat.interval.ms", self.settings.heartbeat_interval_ms
            ),
            assignment=_assignment_of(updated.assigned) if is_told else None,
        )

    def require_capacity(
        self, group: ConsumerGroup, member_id: str, instance_id: str | None
    ) -> None:
        """Checks that a group has a place for a member; a known instance id has one.

        Raises:
            CoordinatorRequestError: GROUP_MAX_SIZE_REACHED.

        Source: throwIfConsumerGroupIsFull.
        """
        if group.static_member_id(instance_id) is not None:
            return
        most = self.settings.max_size
        if len(group) >= most and (not member_id or member_id not in group):
            raise CoordinatorRequestError(
                ErrorCode.GROUP_MAX_SIZE_REACHED,
                f"The consumer group has reached its maximum capacity of {most} members.",
            )

    def _member_for(self, group: ConsumerGroup, request: HeartbeatRequest) -> ConsumerMember:
        is_joining = request.member_epoch == JOIN_EPOCH
        if request.instance_id is None:
            member = self.dynamic_member(group, request.member_id, may_be_new=is_joining)
            require_epoch(member, request)
            return member
        if is_joining:
            return self.join_static(group, request.member_id, request.instance_id)
        member = require_static(group, request.member_id, request.instance_id)
        require_epoch(member, request)
        return member

    def dynamic_member(
        self, group: ConsumerGroup, member_id: str, *, may_be_new: bool
    ) -> ConsumerMember:
        """The member of an id, or a new one.

        Raises:
            CoordinatorRequestError: UNKNOWN_MEMBER_ID.
        """
        return (
            ConsumerMember(member_id=member_id)
            if (may_be_new and member_id not in group)
            else require_member(group, member_id)
        )

    def join_static(
        self,
        group: ConsumerGroup,
        member_id: str,
        instance_id: str,
        *,
        uses_classic_protocol: bool = False,
    ) -> ConsumerMember:
        """A static member that is new, or takes the place of the one that had its instance id.

        Raises:
            CoordinatorRequestError: UNRELEASED_INSTANCE_ID.

        Source: getOrMaybeSubscribeStaticConsumerGroupMember.
        """
        existing = group.static_member(instance_id)
        if existing is None:
            return self.dynamic_member(group, member_id, may_be_new=True)
        is_consumer = not uses_classic_protocol and not existing.uses_classic_protocol
        if is_consumer and existing.member_epoch != LEAVE_STATIC_EPOCH:
            raise CoordinatorRequestError(
                ErrorCode.UNRELEASED_INSTANCE_ID,
                f"Static member {member_id} with instance id {instance_id} cannot join the group "
                f"because the instance id is owned by {existing.member_id} member.",
            )
        member = replace(existing, member_id=member_id, member_epoch=0, previous_epoch=0)
        group_id = group.group_id
        self._change.write_all(
            [
                *member_tombstones(group_id, existing.member_id),
                member_record(group_id, member),
                target_record(group_id, member_id, group.target(existing.member_id)),
                current_record(group_id, member),
            ]
        )
        return member

    # ---- the steps of a heartbeat

    def write_subscription(
        self, group_id: str, member: ConsumerMember, updated: ConsumerMember
    ) -> bool:
        """Writes a member that has changed; returns whether the topics that it names have.

        Source: hasMemberSubscriptionChanged.
        """
        if updated == member:
            return False
        self._change.write(member_record(group_id, updated))
        return updated.topics != member.topics

    def _has_assignor_changed(
        self, group: ConsumerGroup, member: ConsumerMember, updated: ConsumerMember
    ) -> bool:
        """Whether the group's assignor is another one with the changed member.

        Both are the first of as many votes, in tables of different order: where one member asks
        for one assignor and one for another, the heartbeats of one of them raise the epoch.

        Source: hasPreferredServerAssignorChanged.
        """
        if member.assignor is None and updated.assignor is None:
            return False
        default = self.settings.assignors[0]
        before = group.preferred_assignor or default
        return before != (group.preferred_assignor_after(member, updated) or default)

    def refresh(
        self,
        group: ConsumerGroup,
        member: ConsumerMember,
        updated: ConsumerMember,
        *,
        is_bumped: bool,
    ) -> tuple[int, Subscriptions]:
        """Raises the group's epoch if the topics have changed, or have to be assigned again.

        Returns:
            The group's epoch, and its subscriptions with the changed member.

        Source: updateSubscriptionMetadata.
        """
        now_ms = self._change.now_ms
        if not is_bumped and not group.must_refresh(now_ms):
            return group.epoch, group.subscriptions
        epoch = group.epoch
        subscriptions = _subscriptions_after(group, member, updated)
        metadata_hash = group.hash_of(subscriptions, self.topics)
        if is_bumped or metadata_hash != group.metadata_hash:
            epoch += 1
            self._write_epoch(group, epoch, metadata_hash)
            self._change.count(Count.CONSUMER_REBALANCES)
        group.refresh_at(now_ms + _REFRESH_INTERVAL_MS, epoch)
        if group.has_partition_metadata:
            self._change.write(tombstone(RecordType.PARTITION_METADATA, group.group_id))
        return epoch, subscriptions

    def update_target(
        self,
        group: ConsumerGroup,
        member: ConsumerMember,
        updated: ConsumerMember,
        epoch: int,
        subscriptions: Subscriptions,
    ) -> MemberTarget:
        """Computes the target assignment of a higher epoch, unless the last one is too new.

        Source: maybeUpdateTargetAssignment.
        """
        if group.assignment_epoch >= epoch or not self._may_assign(group):
            previous_id = group.static_member_id(updated.instance_id)
            member_id = updated.member_id if updated.instance_id is None else previous_id
            return MemberTarget(group.assignment_epoch, group.target(member_id))
        name = group.preferred_assignor_after(member, updated) or self.settings.assignors[0]
        made, target = new_target(
            group,
            updated,
            epoch=epoch,
            assignor=name,
            are_alike=subscriptions.are_alike(_count_after(group, updated)),
            topics=self.topics,
            now_ms=self._change.now_ms,
        )
        self._change.write_all(made)
        _LOG.info(
            "[GroupId %s] Computed a new target assignment for epoch %d with '%s' assignor.",
            group.group_id,
            epoch,
            name,
        )
        return MemberTarget(epoch, target)

    def _may_assign(self, group: ConsumerGroup) -> bool:
        """Whether the interval since the last target assignment is over.

        Differs: Kafka waits for a time in the future, too. The clock of the coordinator before this
        one has set it, and until it comes nobody would get the partitions of a member that is gone.

        Source: canComputeNextTargetAssignment.
        """
        interval_ms = self._metadata.group_setting(
            group.group_id, "consumer.assignment.interval.ms", self.settings.assignment_interval_ms
        )
        last_ms, now_ms = group.assignment_timestamp_ms, self._change.now_ms
        return not last_ms or not interval_ms or now_ms >= last_ms + interval_ms or now_ms < last_ms

    def reconcile(
        self,
        group: ConsumerGroup,
        member: ConsumerMember,
        goal: MemberTarget,
        *,
        has_subscription_changed: bool,
        owned: Owned | None,
    ) -> ConsumerMember:
        """Takes a member a step towards its target assignment.

        Raises:
            CoordinatorRequestError: FENCED_MEMBER_EPOCH.

        Source: maybeReconcile.
        """
        if not has_subscription_changed and member.is_reconciled_to(goal.epoch):
            return member
        names = group.topics_of(member)
        found = (self.topics.by_name(name) for name in names)
        updated = Reconciliation(
            target_epoch=goal.epoch,
            target=goal.target,
            subscribed=frozenset(topic.topic_id for topic in found if topic is not None),
            has_topics=bool(names),
            has_subscription_changed=has_subscription_changed,
            owned=owned,
            partition_epoch=group.partition_epoch,
        ).of(member)
        if updated == member:
            return member
        self._change.write(current_record(group.group_id, updated))
        if not updated.uses_classic_protocol:
            self.timers.await_revocation(group.group_id, updated)
        return updated

    # ---- members that leave

    def leave_static(self, group: ConsumerGroup, member: ConsumerMember) -> None:
        """A static member leaves, and its place is kept.

        Source: consumerGroupStaticMemberGroupLeave.
        """
        gone = replace(
            member,
            member_epoch=LEAVE_STATIC_EPOCH,
            revoking={},
            assigned={
                topic_id: dict.fromkeys(partitions, 0)
                for topic_id, partitions in member.assigned.items()
            },
        )
        self._change.write(current_record(group.group_id, gone))

    def fence(self, group: ConsumerGroup, members: Sequence[ConsumerMember]) -> None:
        """Removes members, and has their partitions be assigned to others.

        Source: consumerGroupFenceMembers.
        """
        if not members:
            return
        group_id = group.group_id
        for member in members:
            self._change.write_all(member_tombstones(group_id, member.member_id))
        subscriptions = group.subscriptions.copy()
        for member in members:
            subscriptions.count_member(member, -1)
        counts = Counter(member.regex for member in members if member.regex)
        for regex, count in counts.items():
            if group.subscribers_of(regex) == count:
                self._change.write(tombstone(RecordType.REGEX, group_id, regex))
                resolved = group.resolved.get(regex)
                if resolved is not None:
                    subscriptions.count_resolved(resolved.topics, -1)
        metadata_hash = group.hash_of(subscriptions, self.topics)
        epoch = group.epoch + 1
        self._write_epoch(group, epoch, metadata_hash)
        if len(members) == len(group):
            # Nobody is left to whom anything could be assigned.
            self._change.write(target_epoch_record(group_id, epoch, 0))
        for member in members:
            self.timers.cancel_all(group_id, member.member_id)

    # ---- regular expressions

    def put_resolved(self, group: ConsumerGroup, found: Mapping[str, ResolvedRegex]) -> None:
        """Writes the topics of regular expressions; the epoch rises if they have changed.

        Source: handleRegularExpressionsResult.
        """
        subscriptions = group.subscriptions.copy()
        is_bumped = False
        for regex, resolved in found.items():
            if not group.subscribers_of(regex):
                continue
            before = group.resolved.get(regex)
            topics = frozenset() if before is None else before.topics
            if topics != resolved.topics:
                is_bumped = True
                subscriptions.count_resolved(topics, -1)
                subscriptions.count_resolved(resolved.topics, 1)
            self._change.write(regex_record(group.group_id, regex, resolved))
        metadata_hash = group.hash_of(subscriptions, self.topics)
        if is_bumped or metadata_hash != group.metadata_hash:
            epoch = group.epoch + 1
            self._write_epoch(group, epoch, metadata_hash)
            self._change.count(Count.CONSUMER_REBALANCES)
            group.refresh_at(self._change.now_ms + _REFRESH_INTERVAL_MS, epoch)

    def _write_epoch(self, group: ConsumerGroup, epoch: int, metadata_hash: int) -> None:
        self._change.write(epoch_record(group.group_id, epoch, metadata_hash))
        _LOG.info(
            "[GroupId %s] Bumped group epoch to %d with metadata hash %d.",
            group.group_id,
            epoch,
            metadata_hash,
        )


# ---- values


def _updated(member: ConsumerMember, request: HeartbeatRequest) -> ConsumerMember:
    """The member with what the request says."""
    timeout_ms = request.rebalance_timeout_ms
    return replace(
        member,
        instance_id=member.instance_id if request.instance_id is None else request.instance_id,
        rack_id=member.rack_id if request.rack_id is None else request.rack_id,
        rebalance_timeout_ms=member.rebalance_timeout_ms if timeout_ms == -1 else timeout_ms,
        assignor=member.assignor if request.assignor is None else request.assignor,
        topics=member.topics if request.topics is None else frozenset(request.topics),
        named=member.named if request.topics is None else tuple(request.topics),
        regex=member.regex if request.regex is None else request.regex,
        client=request.client,
        classic=None,
    )


def _subscriptions_after(
    group: ConsumerGroup, member: ConsumerMember, updated: ConsumerMember
) -> Subscriptions:
    """Source: ConsumerGroup.computeSubscribedTopicNames, computeSubscribedRegularExpressions."""
    subscriptions = group.subscriptions.copy()
    old = member.regex
    if old and old != updated.regex and group.subscribers_of(old) == 1 and old in group.resolved:
        subscriptions.count_resolved(group.resolved[old].topics, -1)
    subscriptions.count_member(member, -1)
    subscriptions.count_member(updated, 1)
    return subscriptions


def _count_after(group: ConsumerGroup, updated: ConsumerMember) -> int:
    is_known = updated.member_id in group or (
        group.static_member_id(updated.instance_id) is not None
    )
    return len(group) + (not is_known)


def _assignment_of(assigned: Epochs) -> tuple[TopicAssignment, ...]:
    return tuple(
        TopicAssignment(topic_id, tuple(partitions)) for topic_id, partitions in assigned.items()
    )
