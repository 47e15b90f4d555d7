"""A model of a consumer group: what follows from the requests, their answers and the time.

It does not assign. It predicts the members, their epochs and that of the group, and when a member
is removed, and knows from the answers who has which partition. It does not predict when regular
expressions are matched either. The rules are those of KIP-848:

- The group's epoch rises when a member comes, leaves, is removed or subscribes to other topics, and
  when a regular expression is found to match other topics. When a topic of the group has changed,
  it rises with the next heartbeat.
- A member that has to give up partitions keeps its epoch until it has; otherwise a heartbeat brings
  it to the epoch of the target assignment.
- A member has a partition until it says that it has given it up, or is removed.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Final
from uuid import UUID

from cordwood.coordinator.group.consumer.group import ConsumerGroup
from cordwood.coordinator.group.consumer.member import (
    JOIN_EPOCH,
    LEAVE_EPOCH,
    LEAVE_STATIC_EPOCH,
    ConsumerMember,
    HeartbeatAnswer,
    MemberState,
)
from cordwood.metadata.image import TopicImage
from cordwood.model.error_codes import ErrorCode
from support.group_schedules.client import (
    NO_TOPICS,
    NOTHING,
    Beat,
    Partitions,
    Subscription,
    partitions_of,
)

SESSION_MS: Final = 45_000
_FENCE_RETRY_MS: Final = 500

Facts = frozenset[tuple[UUID, int]]
"""Topics by id, each with the number of its partitions."""


@dataclass(slots=True, kw_only=True)
class ModelMember:
    """A member as its requests and their answers show it.

    `revoking` are partitions that it has to give up, and has not; `is_revoking` stays true while it
    is away, as the coordinator does not note that it need not give up anything. `previous_epoch` is
    its epoch before the last one, `is_newest` true if it has had one heartbeat at its epoch.
    """

    instance_id: str | None
    subscription: Subscription = NO_TOPICS
    timeout_ms: int = 0
    epoch: int = JOIN_EPOCH
    previous_epoch: int = JOIN_EPOCH
    is_newest: bool = False
    held: Partitions = NOTHING
    revoking: Partitions = NOTHING
    is_revoking: bool = False
    session_due_ms: int = 0
    revocation_due_ms: int | None = None

    @property
    def is_away(self) -> bool:
        """Whether it is a static one that has left for a while."""
        return self.epoch == LEAVE_STATIC_EPOCH

    @property
    def due_ms(self) -> int:
        """The time at which it is removed."""
        revocation_ms = self.revocation_due_ms
        return min(
            self.session_due_ms, self.session_due_ms if revocation_ms is None else revocation_ms
        )

    def move_to(self, epoch: int) -> None:
        """A heartbeat brings it to an epoch, which may be the one it has."""
        self.is_newest = epoch != self.epoch
        if self.is_newest:
            self.previous_epoch, self.epoch = self.epoch, epoch

    def codes_of_older(self, beat: Beat) -> set[int]:
        """The error codes for a request with an epoch that it had before."""
        is_within = beat.owned is not None and beat.owned <= self.held
        if beat.epoch != self.previous_epoch or not is_within:
            return {ErrorCode.FENCED_MEMBER_EPOCH}
        # Without a change of the epoch, a heartbeat may have made the one before invalid.
        return {ErrorCode.NONE} | (set() if self.is_newest else {ErrorCode.FENCED_MEMBER_EPOCH})

    def revoke(self, held: Partitions, reported: Partitions | None, now_ms: int) -> None:
        """Takes over what it is to have from now on, when it has reported what it has."""
        lost = self.held - held
        if self.revoking and (reported is None or reported & self.revoking):
            self.revoking |= lost
        elif lost and (reported is None or reported & lost):
            self.revoking = lost
        else:
            self.revoking, self.revocation_due_ms = NOTHING, None
        self.held, self.is_revoking = held, bool(self.revoking)
        if self.revoking and lost:
            self.revocation_due_ms = now_ms + self.timeout_ms


class GroupModel:
    """The members of a group, and its epochs."""

    def __init__(self, assignment_interval_ms: int) -> None:
        """A group without members; `assignment_interval_ms` is between two target assignments."""
        self.members: dict[str, ModelMember] = {}
        self.epoch = 1
        self.assignment_epoch = 1
        self.now_ms = 0
        self.topics: Mapping[str, TopicImage] = {}
        self.matched: Mapping[str, frozenset[str]] = {}
        self._interval_ms = assignment_interval_ms
        self._assigned_ms: int | None = None
        self._facts: Facts = frozenset()
        self._may_rise = False

    # ---- requests

    def codes(self, beat: Beat) -> set[int]:
        """The error codes that a request may be answered with, if it can be written."""
        member_id = beat.member_id
        if beat.instance_id is not None:
            known = self._static(beat.instance_id)
            if beat.epoch == JOIN_EPOCH:
                is_taken = known is not None and not self.members[known].is_away
                return {ErrorCode.UNRELEASED_INSTANCE_ID if is_taken else ErrorCode.NONE}
            if known is not None and known != member_id:
                return {ErrorCode.FENCED_INSTANCE_ID}
        if beat.epoch == JOIN_EPOCH:
            return {ErrorCode.NONE}
        member = self.members.get(member_id)
        if member is None:
            return {ErrorCode.UNKNOWN_MEMBER_ID}
        is_older = JOIN_EPOCH < beat.epoch < member.epoch
        return member.codes_of_older(beat) if is_older else {ErrorCode.NONE}

    def _static(self, instance_id: str) -> str | None:
        return next(
            (key for key, each in self.members.items() if each.instance_id == instance_id), None
        )

    def answered(self, beat: Beat, answer: HeartbeatAnswer, group: ConsumerGroup | None) -> None:
        """A request was granted; `group` is as the coordinator has it now."""
        if beat.epoch == LEAVE_EPOCH:
            self._remove(beat.member_id)
        elif beat.epoch == LEAVE_STATIC_EPOCH:
            member = self.members[beat.member_id]
            member.epoch, member.revoking = LEAVE_STATIC_EPOCH, NOTHING
            member.revocation_due_ms = None
        else:
            assert group is not None, "there is no group"
            self._beaten(beat, answer, group.epoch)

    def _beaten(self, beat: Beat, answer: HeartbeatAnswer, group_epoch: int) -> None:
        has_changed = self._subscribed() != self._facts
        member = self._member_for(beat)
        before = member.subscription
        if beat.subscription is not None:
            member.subscription = beat.subscription
        is_bumped = self._is_bumped(before, member.subscription)
        member.timeout_ms = beat.timeout_ms or member.timeout_ms
        member.session_due_ms = self.now_ms + SESSION_MS
        if is_bumped or has_changed or self._rises_late(group_epoch):
            self._rise()
        if self.assignment_epoch < self.epoch and self._may_assign():
            self.assignment_epoch, self._assigned_ms = self.epoch, self.now_ms
        assigned = answer.assignment
        held = member.held if assigned is None else partitions_of(assigned)
        for other_id, other in self.members.items():
            both = (held - member.held) & (other.held | other.revoking)
            assert other is member or not both, f"{both} are given, and {other_id} has them"
        if member.subscription != before:
            self._require_subscribed(member, held)
        member.revoke(held, beat.owned, self.now_ms)
        member.move_to(member.epoch if member.revoking else self.assignment_epoch)
        assert answer.member_epoch == member.epoch, "the epoch that is answered"

    def _member_for(self, beat: Beat) -> ModelMember:
        if beat.epoch == JOIN_EPOCH and beat.instance_id is not None:
            replaced = self._static(beat.instance_id)
            if replaced is not None:
                found = replace(self.members.pop(replaced), epoch=JOIN_EPOCH)
                return self.members.setdefault(beat.member_id, found)
        return self.members.setdefault(beat.member_id, ModelMember(instance_id=beat.instance_id))

    def _require_subscribed(self, member: ModelMember, held: Partitions) -> None:
        """A member that subscribes to other topics keeps nothing of those before."""
        topics = [self.topics.get(name) for name in self.names_of(member.subscription)]
        known = {topic.topic_id for topic in topics if topic is not None}
        foreign = {topic_id for topic_id, _ in held} - known
        assert not foreign, f"partitions of {foreign}, which it does not subscribe to"

    def _is_bumped(self, before: Subscription, after: Subscription) -> bool:
        """Whether a subscription changes the topics; an expression does not before it is matched.

        Of an expression that has no member any more, it is not known what it matches.
        """
        is_matched = after.regex in self.matched if after.regex else bool(before.regex)
        self._forget_expressions()
        return before.names != after.names or (before.regex != after.regex and is_matched)

    def _forget_expressions(self) -> None:
        used = {member.subscription.regex for member in self.members.values()}
        self.matched = {regex: each for regex, each in self.matched.items() if regex in used}

    def _rises_late(self, group_epoch: int) -> bool:
        """Whether the epoch rises for an expression that was replaced by one that is not matched.

        It may rise with that heartbeat, or with a later one.
        """
        facts = self._subscribed()
        self._may_rise |= facts != self._facts
        self._facts = facts
        return self._may_rise and group_epoch == self.epoch + 1

    def _rise(self) -> None:
        self.epoch += 1
        self._facts = self._subscribed()
        self._may_rise = False

    def _may_assign(self) -> bool:
        last_ms = self._assigned_ms
        return last_ms is None or self.now_ms >= last_ms + self._interval_ms

    def _subscribed(self) -> Facts:
        names = {
            name for each in self.members.values() for name in self.names_of(each.subscription)
        }
        found = [self.topics[name] for name in names if name in self.topics]
        return frozenset((topic.topic_id, len(topic.partitions)) for topic in found)

    def names_of(self, subscription: Subscription) -> frozenset[str]:
        """The names of all topics of a subscription."""
        return subscription.names | self.matched.get(subscription.regex, frozenset())

    def _remove(self, member_id: str) -> None:
        del self.members[member_id]
        self._forget_expressions()
        self._rise()
        if not self.members:
            self.assignment_epoch, self._assigned_ms = self.epoch, None

    def match(self, group: ConsumerGroup | None) -> None:
        """Takes over which topics expressions match, if the coordinator has matched them."""
        if group is None:
            return
        found = {regex: each.topics for regex, each in group.resolved.items()}
        assert found.keys() >= self.matched.keys(), "an expression of a member is not known"
        changed = {regex for regex in found if found[regex] != self.matched.get(regex, frozenset())}
        for regex in changed:
            assert found[regex] == self.matches(regex), f"{regex} does not match {found[regex]}"
        self.matched = found
        if changed or (self._may_rise and group.epoch == self.epoch + 1):
            self._rise()

    def matches(self, regex: str) -> frozenset[str]:
        """The topics that an expression matches at present."""
        return frozenset(name for name in self.topics if re.fullmatch(regex, name))

    # ---- time

    def advance(self, ms: int, *, fails: bool) -> Iterator[str]:
        """Lets time pass; the members that are removed in that time."""
        end_ms = self.now_ms + ms
        while self.members:
            member_id, member = min(self.members.items(), key=lambda each: each[1].due_ms)
            if member.due_ms > end_ms:
                break
            if fails:
                _try_later(member)
            else:
                self._remove(member_id)
                yield member_id
        self.now_ms = end_ms

    def reload(self) -> None:
        """The coordinator has loaded the group: sessions begin again."""
        for member in self.members.values():
            member.session_due_ms = self.now_ms + SESSION_MS
            is_revoking = member.is_revoking
            member.revocation_due_ms = self.now_ms + member.timeout_ms if is_revoking else None

    # ---- comparison

    def compare(self, group: ConsumerGroup | None) -> None:
        """Checks that a group is as predicted, and that no partition has two owners."""
        if group is None:
            assert not self.members, "there is no group"
            return
        assert set(group.member_ids()) == set(self.members), "the members"
        epochs = (group.epoch, group.assignment_epoch)
        assert epochs == (self.epoch, self.assignment_epoch), f"epochs: {epochs}"
        owners: dict[tuple[UUID, int], str] = {}
        for member in group.members():
            self._compare_member(member)
            both = (*member.assigned.items(), *member.revoking.items())
            for topic_id, number in partitions_of(both):
                other = owners.setdefault((topic_id, number), member.member_id)
                assert other == member.member_id, f"{topic_id}-{number} has two owners"
                epoch = group.partition_epoch(topic_id, number)
                assert epoch == member.member_epoch, f"{topic_id}-{number} has epoch {epoch}"

    def _compare_member(self, member: ConsumerMember) -> None:
        model, name = self.members[member.member_id], member.member_id
        subscription = Subscription(member.topics, member.regex or "")
        assert subscription == model.subscription, f"subscription of {name}: {subscription}"
        assert member.instance_id == model.instance_id, f"instance of {name}"
        assert member.member_epoch == model.epoch, f"epoch {member.member_epoch} of {name}"
        held = partitions_of(member.assigned.items())
        revoking = partitions_of(member.revoking.items())
        assert held == model.held, f"partitions of {name}: {held}"
        assert revoking == model.revoking, f"partitions that {name} gives up: {revoking}"
        is_revoking = member.state is MemberState.UNREVOKED_PARTITIONS
        assert is_revoking == model.is_revoking, f"state {member.state} of {name}"


def _try_later(member: ModelMember) -> None:
    """Its removal could not be written."""
    if member.revocation_due_ms == member.due_ms:
        member.revocation_due_ms += _FENCE_RETRY_MS
    else:
        member.session_due_ms += _FENCE_RETRY_MS
