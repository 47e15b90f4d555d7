"""Possible effects of an event on a group that has members of both protocols.

It does not predict a group. It says which answers a request may get, and which changes of the
group an event may make, by the group as it was before. The rules are those of KIP-848:

- Epochs and generations rise while the group has members, also when the group changes its protocol.
- A member comes with its own request. It goes with its own request, if another takes its instance
  id, or in time: when its session ends, or it has not joined a rebalance in time.
- Members of the classic protocol join a consumer group, unless the policy is disabled.
- A classic group becomes a consumer group when a member of the consumer protocol joins it, a
  consumer group a classic one when only classic members remain: if the policy allows it, and then
  always.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

from cordwood.coordinator.group.classic.group import ClassicGroup, GroupState
from cordwood.coordinator.group.consumer.group import ConsumerGroup
from cordwood.coordinator.group.consumer.member import (
    JOIN_EPOCH,
    LEAVE_EPOCH,
    LEAVE_STATIC_EPOCH,
)
from cordwood.coordinator.group.settings import MigrationPolicy
from cordwood.model.error_codes import ErrorCode
from support.group_schedules.client import Beat

Codes = frozenset[int]
_NONE: Final = ErrorCode.NONE
_UNKNOWN: Final[Codes] = frozenset({ErrorCode.UNKNOWN_MEMBER_ID})
_FENCED: Final[Codes] = frozenset({ErrorCode.FENCED_INSTANCE_ID})
_REBALANCING: Final[Codes] = frozenset({ErrorCode.REBALANCE_IN_PROGRESS})
_GRANTED: Final[Codes] = frozenset({_NONE})
_STALE: Final[Codes] = frozenset({ErrorCode.ILLEGAL_GENERATION})
_INCONSISTENT: Final[Codes] = frozenset({ErrorCode.INCONSISTENT_GROUP_PROTOCOL})
_FENCED_EPOCH: Final[Codes] = frozenset({ErrorCode.FENCED_MEMBER_EPOCH})


class Seen(NamedTuple):
    """A member; its epoch is its generation in a classic group."""

    instance_id: str | None
    is_classic: bool
    epoch: int
    previous_epoch: int


class View(NamedTuple):
    """A group after an event. `pending` are ids that were given, and have not come back.

    A classic group has a protocol from its first generation on, until it is empty.
    """

    is_consumer: bool = False
    has_protocol: bool = False
    state: GroupState | None = None
    epoch: int = 0
    assignment_epoch: int = 0
    members: Mapping[str, Seen] = {}
    pending: frozenset[str] = frozenset()

    @property
    def is_classic(self) -> bool:
        """Whether it is a classic group that is not empty."""
        return not self.is_consumer and self.state not in {None, GroupState.EMPTY}

    def static(self, instance_id: str | None) -> str | None:
        """The id of the member with an instance id."""
        return next(
            (
                member_id
                for member_id, each in self.members.items()
                if instance_id is not None and each.instance_id == instance_id
            ),
            None,
        )


def view_of(classic: ClassicGroup | None, consumer: ConsumerGroup | None) -> View:
    """A group as the coordinator has it; None stands for a group of the other protocol, or none."""
    if consumer is not None:
        return View(
            is_consumer=True,
            epoch=consumer.epoch,
            assignment_epoch=consumer.assignment_epoch,
            members={
                each.member_id: Seen(
                    each.instance_id,
                    each.uses_classic_protocol,
                    each.member_epoch,
                    each.previous_epoch,
                )
                for each in consumer.members()
            },
        )
    if classic is None:
        return View()
    generation = classic.generation_id
    return View(
        has_protocol=classic.protocol_name is not None,
        state=classic.state,
        epoch=generation,
        assignment_epoch=generation,
        members={
            each.member_id: Seen(each.group_instance_id, True, generation, generation)
            for each in classic.members()
        },
        pending=frozenset(classic.pending_joins),
    )


@dataclass(slots=True, kw_only=True)
class Standing:
    """Times (ms) of a member: seen last, and `behind_ms`, when it first had to join again."""

    seen_ms: int
    session_ms: int
    rebalance_ms: int
    behind_ms: int | None = None

    def may_be_removed(self, now_ms: int) -> bool:
        """Whether its session is over, or the time in which it had to join again."""
        is_silent = now_ms >= self.seen_ms + self.session_ms
        is_late = self.behind_ms is not None and now_ms >= self.behind_ms + self.rebalance_ms
        return is_silent or is_late


class MixedModel:
    """The group as it was, and the standing of its members."""

    def __init__(self, policy: MigrationPolicy) -> None:
        """A group that does not exist."""
        self.policy = policy
        self.view = View()
        self.now_ms = 0
        self.standing: dict[str, Standing] = {}
        self.is_loaded = False

    @property
    def lets_classic_in(self) -> bool:
        """Whether a member of the classic protocol may join."""
        is_disabled = self.policy is MigrationPolicy.DISABLED
        return not (is_disabled and self.view.is_consumer and self.view.members)

    # ---- answers

    def codes_of_join(self, member_id: str, instance_id: str | None) -> Codes:
        """The error codes that a JoinGroup may be answered with, now or later."""
        view, is_new = self.view, not member_id
        if not self.lets_classic_in:
            return _INCONSISTENT
        # It may have to wait, and in that time be removed, replaced, or the group changed.
        later = _GRANTED | _REBALANCING | _UNKNOWN | _FENCED
        if is_new:
            is_required = instance_id is None
            return frozenset({ErrorCode.MEMBER_ID_REQUIRED}) if is_required else later
        if instance_id is not None:
            holder = view.static(instance_id)
            if holder is None:
                return _UNKNOWN
            return later if holder == member_id else _FENCED
        is_known = member_id in view.members or member_id in view.pending
        return later if is_known or (view.is_consumer and view.members) else _UNKNOWN

    def codes_of_sync(self, member_id: str, instance_id: str | None, generation: int) -> Codes:
        """The error codes that a SyncGroup may be answered with, now or later."""
        refused = self._refused(member_id, instance_id, generation)
        if refused:
            return refused
        if self.view.is_consumer:
            return _GRANTED | _REBALANCING
        if self.view.state is GroupState.PREPARING_REBALANCE:
            return _REBALANCING
        is_stable = self.view.state is GroupState.STABLE
        return _GRANTED if is_stable else _GRANTED | _REBALANCING | _UNKNOWN | _FENCED

    def codes_of_heartbeat(self, member_id: str, instance_id: str | None, generation: int) -> Codes:
        """The error codes that a Heartbeat may be answered with."""
        refused = self._refused(member_id, instance_id, generation)
        if refused:
            return refused
        if self.view.is_consumer:
            is_behind = generation < self.view.assignment_epoch
            return _REBALANCING if is_behind else _GRANTED | _REBALANCING
        is_preparing = self.view.state is GroupState.PREPARING_REBALANCE
        return _REBALANCING if is_preparing else _GRANTED

    def _refused(self, member_id: str, instance_id: str | None, generation: int) -> Codes:
        """Why a classic member's request is refused; no codes if it is not."""
        found = self._refused_id(member_id, instance_id)
        if found:
            return found
        member = self.view.members[member_id]
        if not member.is_classic:
            return _UNKNOWN
        return frozenset() if member.epoch == generation else _STALE

    def _refused_id(self, member_id: str, instance_id: str | None) -> Codes:
        if instance_id is not None:
            holder = self.view.static(instance_id)
            if holder != member_id:
                return _UNKNOWN if holder is None else _FENCED
        return frozenset() if member_id in self.view.members else _UNKNOWN

    def codes_of_leave(self, member_id: str, instance_id: str | None) -> Codes:
        """The error codes that a LeaveGroup of a member may be answered with."""
        if member_id in self.view.pending:
            return _GRANTED
        return self._refused_id(member_id, instance_id) or _GRANTED

    def codes_of_beat(self, beat: Beat) -> Codes:
        """The error codes that a ConsumerGroupHeartbeat may be answered with."""
        view = self.view
        if not view.is_consumer:
            # The members' metadata is not known before they have agreed on a protocol.
            may_upgrade = self.policy.upgrades and (view.has_protocol or not view.members)
            if beat.epoch != JOIN_EPOCH or (view.is_classic and not may_upgrade):
                return frozenset({ErrorCode.GROUP_ID_NOT_FOUND})
        holder = view.static(beat.instance_id)
        if beat.epoch == JOIN_EPOCH:
            held = None if holder is None else view.members[holder]
            is_taken = held is not None and not held.is_classic and held.epoch != LEAVE_STATIC_EPOCH
            return frozenset({ErrorCode.UNRELEASED_INSTANCE_ID}) if is_taken else _GRANTED
        refused = self._refused_id(beat.member_id, beat.instance_id)
        if refused or beat.epoch in {LEAVE_EPOCH, LEAVE_STATIC_EPOCH}:
            return refused or _GRANTED
        member = view.members[beat.member_id]
        if beat.epoch == member.epoch:
            return _GRANTED
        is_previous = beat.epoch == member.previous_epoch and beat.owned is not None
        return _GRANTED | _FENCED_EPOCH if is_previous else _FENCED_EPOCH

    # ---- changes

    def follow(
        self,
        view: View,
        *,
        by: str | None = None,
        instance_id: str | None = None,
        leaves: bool = False,
        is_consumer: bool = False,
        has_time_passed: bool = False,
    ) -> None:
        """Checks the change that an event has made.

        Args:
            view: the group after it.
            by: the member whose request it was; a static one that joins has no id yet.
            instance_id: its instance id.
            leaves: whether the request was to leave.
            is_consumer: whether it was one of the consumer protocol.
            has_time_passed: whether it was no request.
        """
        before, self.view = self.view, view
        if self.is_loaded:
            self.is_loaded = False
            return
        if before.members and view.members:
            assert view.epoch >= before.epoch, f"the epoch falls to {view.epoch}"
            self._follow_kind(before, view, is_consumer=is_consumer)
        for member_id in view.members.keys() - before.members.keys():
            is_static = instance_id is not None and view.static(instance_id) == member_id
            assert member_id == by or is_static, f"{member_id} has come without a request"
        for member_id in before.members.keys() - view.members.keys():
            self._follow_gone(member_id, before, view, by, leaves, has_time_passed)
        self._follow_epochs(before, view)
        is_downgraded = self.policy.downgrades and view.is_consumer and view.members
        if is_downgraded and not all(each.is_classic for each in before.members.values()):
            assert not all(each.is_classic for each in view.members.values()), "no classic group"

    def _follow_kind(self, before: View, view: View, *, is_consumer: bool) -> None:
        if view.is_consumer and not before.is_consumer:
            assert is_consumer, "a consumer group without a member of the consumer protocol"
            assert self.policy.upgrades, "a consumer group against the policy"
        if before.is_consumer and not view.is_consumer:
            assert self.policy.downgrades, "a classic group against the policy"

    def _follow_gone(
        self, member_id: str, before: View, view: View, by: str | None, leaves: bool, timed: bool
    ) -> None:
        standing = self.standing.pop(member_id)
        instance_id = before.members[member_id].instance_id
        is_replaced = instance_id is not None and view.static(instance_id) not in {None, member_id}
        is_allowed = (leaves and member_id == by) or is_replaced
        is_over = timed and standing.may_be_removed(self.now_ms)
        assert is_allowed or is_over, f"{member_id} is removed without a reason: {standing}"

    @staticmethod
    def _follow_epochs(before: View, view: View) -> None:
        for member_id, member in view.members.items():
            known = before.members.get(member_id)
            if known is not None and known.epoch > JOIN_EPOCH and member.epoch > JOIN_EPOCH:
                assert member.epoch >= known.epoch, f"the epoch of {member_id} falls"

    def seen_ms(self, member_id: str) -> int:
        """The time at which a member's session has begun."""
        found = self.standing.get(member_id)
        return self.now_ms if found is None else found.seen_ms

    def unsee(self, member_id: str, seen_ms: int) -> None:
        """A member's session has not begun again since."""
        if member_id in self.standing:
            self.standing[member_id].seen_ms = seen_ms

    def restart(self) -> None:
        """The group is loaded as it was last written; sessions begin again."""
        self.view = View()
        self.standing = {}
        self.is_loaded = True

    def disturb(self, at_ms: int) -> None:
        """Members may have to join again from a time on."""
        for each in self.standing.values():
            if each.behind_ms is None:
                each.behind_ms = at_ms

    def hear(
        self,
        member_id: str,
        session_ms: int,
        rebalance_ms: int,
        *,
        is_level: bool,
        at_ms: int | None = None,
    ) -> None:
        """A member's request was granted, at the earliest at `at_ms`; by default now.

        It is level if it has nothing to do until the group changes.
        """
        seen_ms = self.now_ms if at_ms is None else at_ms
        known = self.standing.get(member_id)
        behind_ms = seen_ms if known is None or known.behind_ms is None else known.behind_ms
        self.standing[member_id] = Standing(
            seen_ms=seen_ms,
            session_ms=session_ms,
            rebalance_ms=rebalance_ms,
            behind_ms=None if is_level else behind_ms,
        )
