"""Bugs in leaders and followers."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager
from typing import Any

from cordwood.broker import reading
from cordwood.broker.replication import following, leadership
from cordwood.broker.replication.following import Effect as FollowerEffect
from cordwood.broker.replication.following import FetchedPartition, FetchPosition
from cordwood.broker.replication.leadership import PartitionLeadership
from cordwood.broker.replication.replica_log import ReplicaLog
from cordwood.model.topic_names import CLUSTER_METADATA_TOPIC
from cordwood.storage.log.partition_log import PartitionLog
from support.simulation.bugs.planting import all_of, replaced


def high_watermark_without_followers() -> AbstractContextManager[None]:
    """The leader commits what the fastest replica has, its own: records are not waited for."""

    def refresh(self: PartitionLeadership, _now_ms: float) -> list[leadership.Effect]:
        if self.is_under_min_isr or self._end_offset <= self._high_watermark:
            return []
        self._high_watermark = self._end_offset
        return [leadership.MoveHighWatermark(self._end_offset)]

    return replaced(PartitionLeadership, "refresh", refresh)


def pending_isr_not_counted() -> AbstractContextManager[None]:
    """The high watermark passes a replica that is about to be added to the ISR."""
    return replaced(
        PartitionLeadership,
        "maximal_isr",
        property(lambda self: frozenset(self._partition.isr) - set(_newcomers(self))),
    )


def _newcomers(leads: PartitionLeadership) -> Iterator[int]:
    """The followers that have not fetched to the high watermark in this epoch."""
    for broker_id, state in leads.followers.items():
        if state.log_end_offset < leads.high_watermark:
            yield broker_id


def older_epoch_stamped() -> AbstractContextManager[None]:
    """A leader writes the epoch of the leader before it into its batches."""
    real = PartitionLog.append_as_leader

    def append(self: PartitionLog, records: Any, *, leader_epoch: int = 0, **rest: Any) -> Any:
        is_metadata = self.topic_partition.topic == CLUSTER_METADATA_TOPIC
        epoch = leader_epoch if is_metadata else max(0, leader_epoch - 1)
        return real(self, records, leader_epoch=epoch, **rest)

    return replaced(PartitionLog, "append_as_leader", append)


def divergence_ignored() -> AbstractContextManager[None]:
    """A follower whose log has parted from the leader's does not cut it off: it fetches on."""
    real = following.PartitionFollowing.on_fetched

    def on_fetched(
        self: following.PartitionFollowing,
        position: FetchPosition,
        answer: FetchedPartition,
        log: following.FollowedLog,
        now_ms: float,
    ) -> list[FollowerEffect]:
        effects = real(self, position, answer, log, now_ms)
        return [each for each in effects if not isinstance(each, following.TruncateTo)]

    return all_of(
        replaced(following.PartitionFollowing, "on_fetched", on_fetched),
        replaced(reading, "_diverging_epoch", lambda _log, _wanted: None),
    )


def truncation_below_the_high_watermark() -> AbstractContextManager[None]:
    """A follower begins each leader epoch by cutting off its last committed batches."""
    real = following.PartitionFollowing.begin

    def begin(
        self: following.PartitionFollowing, log: following.FollowedLog
    ) -> list[FollowerEffect]:
        found = real(self, log)
        return found or [following.TruncateTo(max(log.log_start_offset, log.high_watermark - 3))]

    return replaced(following.PartitionFollowing, "begin", begin)


def lagging_replica_added() -> AbstractContextManager[None]:
    """The leader has a follower added to the ISR before it has what is committed."""
    real = PartitionLeadership._expand

    def expand(self: PartitionLeadership, broker_id: int) -> Iterator[leadership.Effect]:
        mark, start = self._high_watermark, self._epoch_start_offset
        self._high_watermark = self._epoch_start_offset = 0
        try:
            yield from list(real(self, broker_id))
        finally:
            self._high_watermark, self._epoch_start_offset = mark, start

    return all_of(
        replaced(PartitionLeadership, "_expand", expand),
        replaced(
            PartitionLeadership,
            "maximal_isr",
            property(lambda self: frozenset(self._partition.isr) - set(_newcomers(self))),
        ),
    )


def log_start_not_followed() -> AbstractContextManager[None]:
    """A follower keeps records that its leader has deleted."""
    real = ReplicaLog.apply

    def apply(self: ReplicaLog, effect: FollowerEffect, *rest: Any) -> None:
        if not isinstance(effect, following.MoveLogStart):
            real(self, effect, *rest)

    return replaced(ReplicaLog, "apply", apply)


def shrunk_isr_counted_at_once() -> AbstractContextManager[None]:
    """A leader commits without a lagging replica before the controller has removed it."""

    def maximal_isr(self: PartitionLeadership) -> frozenset[int]:
        proposal = self._proposal
        return frozenset(self._partition.isr) if proposal is None else proposal.members

    return replaced(PartitionLeadership, "maximal_isr", property(maximal_isr))


def epoch_start_not_awaited() -> AbstractContextManager[None]:
    """A follower is added to the ISR that lacks what the leader had when it was elected."""
    real = PartitionLeadership._expand

    def expand(self: PartitionLeadership, broker_id: int) -> Iterator[leadership.Effect]:
        start, self._epoch_start_offset = self._epoch_start_offset, 0
        try:
            yield from list(real(self, broker_id))
        finally:
            self._epoch_start_offset = start

    return replaced(PartitionLeadership, "_expand", expand)


def fetches_of_old_registrations_taken() -> AbstractContextManager[None]:
    """A leader takes the fetch of a follower's life before for one of this life (KIP-903)."""
    real = PartitionLeadership.on_fetch

    def on_fetch(
        self: PartitionLeadership, broker_id: int, offset: int, **rest: Any
    ) -> list[leadership.Effect]:
        known = self._brokers.epoch_of(broker_id)
        if known is not None:
            rest["broker_epoch"] = known
        return real(self, broker_id, offset, **rest)

    return replaced(PartitionLeadership, "on_fetch", on_fetch)


def gap_kept() -> AbstractContextManager[None]:
    """A follower does not fetch again what a crash has taken out of the middle of its log."""
    return replaced(ReplicaLog, "gap_offset", property(lambda _self: None))
