"""Bugs in the coordinators of groups, and in what all coordinators share."""

from __future__ import annotations

from contextlib import AbstractContextManager
from dataclasses import replace
from typing import Any

from cordwood.broker.coordinators.coordinator_log import LogLoader
from cordwood.coordinator.deferred_answers import DeferredAnswerQueue
from cordwood.coordinator.group.consumer import member_checks, rebalance
from cordwood.coordinator.group.consumer.group import ConsumerGroup
from cordwood.coordinator.group.consumer.member import LEAVE_STATIC_EPOCH, Epochs
from cordwood.coordinator.group.consumer.rebalance import ConsumerRebalance
from cordwood.coordinator.group.consumer.reconcile import Reconciliation
from cordwood.coordinator.group.consumer.timers import MemberTimers
from cordwood.storage.log.log_reader import Isolation
from cordwood.storage.log.partition_log import PartitionLog
from support.simulation.bugs.planting import replaced


def answered_before_committed() -> AbstractContextManager[None]:
    """Coordinators answer when a record is appended, not when it is committed."""
    real = DeferredAnswerQueue.add

    def add(self: DeferredAnswerQueue, deferred: Any) -> None:
        real(self, deferred)
        self.remove(deferred)
        deferred.send()

    return replaced(DeferredAnswerQueue, "add", add)


def loaded_to_the_high_watermark() -> AbstractContextManager[None]:
    """A coordinator that is elected reads its log up to the high watermark that it knows."""
    real = LogLoader.load

    def load(self: LogLoader[Any, Any], state: Any, timeline: Any) -> int:
        log = self._log
        self._log = _UpToTheMark(log)  # type: ignore[assignment]
        try:
            return real(self, state, timeline)
        finally:
            self._log = log

    return replaced(LogLoader, "load", load)


class _UpToTheMark:
    """A log that ends at its high watermark."""

    def __init__(self, log: PartitionLog) -> None:
        self._log = log

    def __getattr__(self, name: str) -> Any:
        return getattr(self._log, "high_watermark" if name == "log_end_offset" else name)

    @property
    def reader(self) -> _UpToTheMark:
        """Reads of the log."""
        return self

    def read(self, offset: int, max_bytes: int, *, isolation: Isolation) -> Any:
        """Reads the log for a reader of committed records."""
        del isolation
        return self._log.reader.read(offset, max_bytes, isolation=Isolation.HIGH_WATERMARK)


def partition_given_twice() -> AbstractContextManager[None]:
    """The group coordinator gives a partition to a member that another one has not released."""
    return replaced(ConsumerGroup, "partition_epoch", lambda _self, _topic_id, _partition: -1)


def stale_commits_taken() -> AbstractContextManager[None]:
    """A member commits offsets of partitions that others have been given."""
    return replaced(ConsumerGroup, "require_commit", lambda *_, **__: None)


def partitions_left_out_are_given_up() -> AbstractContextManager[None]:
    """A heartbeat that does not say which partitions a member has is taken for one with none."""
    real = Reconciliation._still_has

    def still_has(self: Reconciliation, partitions: Epochs) -> bool:
        return self.owned is not None and real(self, partitions)

    return replaced(Reconciliation, "_still_has", still_has)


def revocation_never_expires() -> AbstractContextManager[None]:
    """A member that does not give its partitions up is waited for without an end."""
    return replaced(MemberTimers, "await_revocation", lambda _self, _group, _member: None)


def stale_member_epochs_taken() -> AbstractContextManager[None]:
    """A heartbeat is taken that a member has sent in an epoch that is long over."""
    real = member_checks.require_epoch

    def require_epoch(member: Any, request: Any) -> None:
        if request.member_epoch > member.member_epoch:
            real(member, request)

    return replaced(rebalance, "require_epoch", require_epoch)


def instance_taken_over() -> AbstractContextManager[None]:
    """A static member takes the place of one that has not left."""
    real = ConsumerRebalance.join_static

    def join(self: ConsumerRebalance, group: ConsumerGroup, *arguments: Any, **options: Any) -> Any:
        def static_member(known: ConsumerGroup, instance_id: str | None) -> Any:
            member = find(known, instance_id)
            return None if member is None else replace(member, member_epoch=LEAVE_STATIC_EPOCH)

        find = ConsumerGroup.static_member
        with replaced(ConsumerGroup, "static_member", static_member):
            return real(self, group, *arguments, **options)

    return replaced(ConsumerRebalance, "join_static", join)


def offsets_expire_under_members() -> AbstractContextManager[None]:
    """Offsets of a group expire although it has members that read their topics."""
    return replaced(ConsumerGroup, "is_subscribed_to", lambda _self, _topic: False)
