"""Bugs that are put into the real code on purpose, to show that the checkers find them.

Each is a context manager that replaces a function or a method while a seed runs. Which checker has
found which is in docs/design/simulation.md.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import Any, Final

from cordwood.broker import transaction_markers
from cordwood.broker.coordinator_log import LogLoader
from cordwood.broker.handlers import fetch
from cordwood.broker.replication import following, leadership
from cordwood.broker.replication.following import Effect as FollowerEffect
from cordwood.broker.replication.following import FetchedPartition, FetchPosition
from cordwood.broker.replication.leadership import PartitionLeadership
from cordwood.controller import partition_change
from cordwood.coordinator.deferred_answers import DeferredAnswerQueue
from cordwood.coordinator.group.consumer.group import ConsumerGroup
from cordwood.format.record_batch import TRANSACTIONAL_BIT
from cordwood.model.topic_names import CLUSTER_METADATA_TOPIC
from cordwood.storage.log.log_reader import Isolation
from cordwood.storage.log.partition_log import PartitionLog
from cordwood.storage.producers.append_producers import AppendProducers
from cordwood.storage.segment.log_segment import LogSegment


@contextmanager
def _replaced(owner: Any, name: str, value: Any) -> Iterator[None]:
    before = owner.__dict__[name] if isinstance(owner, type) else getattr(owner, name)
    setattr(owner, name, value)
    try:
        yield
    finally:
        setattr(owner, name, before)


# ---- the log


def skipped_fsync() -> AbstractContextManager[None]:
    """A flush does not sync the records, and the recovery point moves all the same."""
    return _replaced(LogSegment, "flush_log", lambda _self: None)


def duplicates_appended() -> AbstractContextManager[None]:
    """What idempotent producers have written is not remembered: what they repeat is appended."""
    real = AppendProducers.analyze

    def analyze(self: AppendProducers, batches: Any) -> Any:
        if any(batch.header.attributes & TRANSACTIONAL_BIT for batch in batches):
            return real(self, batches)
        return None

    return _replaced(AppendProducers, "analyze", analyze)


# ---- the leader and the follower


def high_watermark_without_followers() -> AbstractContextManager[None]:
    """The leader commits what the fastest replica has, its own: records are not waited for."""

    def refresh(self: PartitionLeadership, _now_ms: float) -> list[leadership.Effect]:
        if self.is_under_min_isr or self._end_offset <= self._high_watermark:
            return []
        self._high_watermark = self._end_offset
        return [leadership.MoveHighWatermark(self._end_offset)]

    return _replaced(PartitionLeadership, "refresh", refresh)


def pending_isr_not_counted() -> AbstractContextManager[None]:
    """The high watermark passes a replica that is about to be added to the ISR."""
    return _replaced(
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

    return _replaced(PartitionLog, "append_as_leader", append)


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

    @contextmanager
    def both() -> Iterator[None]:
        with (
            _replaced(following.PartitionFollowing, "on_fetched", on_fetched),
            _replaced(fetch, "_diverging_epoch", lambda _log, _wanted: None),
        ):
            yield

    return both()


def truncation_below_the_high_watermark() -> AbstractContextManager[None]:
    """A follower begins each leader epoch by cutting off its last committed batches."""
    real = following.PartitionFollowing.begin

    def begin(
        self: following.PartitionFollowing, log: following.FollowedLog
    ) -> list[FollowerEffect]:
        found = real(self, log)
        return found or [following.TruncateTo(max(log.log_start_offset, log.high_watermark - 3))]

    return _replaced(following.PartitionFollowing, "begin", begin)


# ---- the controller


def fenced_broker_stays_in_sync() -> AbstractContextManager[None]:
    """The controller fences a broker, and leaves it in the ISRs; the leader moves all the same."""
    real = partition_change.PartitionChange.record

    def record(self: partition_change.PartitionChange) -> Any:
        if len(self.isr) < len(self.old.isr):
            gone = [each for each in self.old.isr if each not in self.isr]
            self.isr = [*self.isr, *gone]
        return real(self)

    return _replaced(partition_change.PartitionChange, "record", record)


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

    @contextmanager
    def both() -> Iterator[None]:
        with (
            _replaced(PartitionLeadership, "_expand", expand),
            _replaced(
                PartitionLeadership,
                "maximal_isr",
                property(lambda self: frozenset(self._partition.isr) - set(_newcomers(self))),
            ),
        ):
            yield

    return both()


def unclean_replica_elected() -> AbstractContextManager[None]:
    """Any replica that is alive is elected, as if unclean elections were allowed."""
    return _replaced(
        partition_change.PartitionChange,
        "_is_eligible",
        lambda self, replica: self._may_lead(replica),
    )


# ---- coordinators


def marker_forgotten() -> AbstractContextManager[None]:
    """The marker of a transaction is not written to its last partition, if it has several."""
    return _markers_sent(lambda marker, wanted: (marker, wanted[: max(1, len(wanted) - 1)]))


def abort_marker_commits() -> AbstractContextManager[None]:
    """An aborted transaction is ended by a marker that says that it is committed."""
    return _markers_sent(lambda marker, wanted: (marker._replace(commit=True), wanted))


def _markers_sent(change: Callable[[Any, Any], tuple[Any, Any]]) -> AbstractContextManager[None]:
    """Other markers, to other partitions, are sent than those that the coordinator asks for."""
    real = transaction_markers.MarkerSender.send

    def send(
        self: transaction_markers.MarkerSender,
        state_partition: int,
        marker: Any,
        wanted: Any,
        done: Callable[[], None],
    ) -> None:
        real(self, state_partition, *change(marker, wanted), done)

    return _replaced(transaction_markers.MarkerSender, "send", send)


def answered_before_committed() -> AbstractContextManager[None]:
    """Coordinators answer when a record is appended, not when it is committed."""
    real = DeferredAnswerQueue.add

    def add(self: DeferredAnswerQueue, deferred: Any) -> None:
        real(self, deferred)
        self.remove(deferred)
        deferred.send()

    return _replaced(DeferredAnswerQueue, "add", add)


def loaded_to_the_high_watermark() -> AbstractContextManager[None]:
    """A coordinator that is elected reads its log up to the high watermark that it knows."""
    real = LogLoader.load

    def load(self: LogLoader[Any], state: Any, timeline: Any) -> int:
        log = self._log
        self._log = _UpToTheMark(log)  # type: ignore[assignment]
        try:
            return real(self, state, timeline)
        finally:
            self._log = log

    return _replaced(LogLoader, "load", load)


class _UpToTheMark:
    """A log that ends at its high watermark."""

    def __init__(self, log: PartitionLog) -> None:
        self._log = log

    def __getattr__(self, name: str) -> Any:
        return getattr(self._log, "high_watermark" if name == "log_end_offset" else name)

    def read(self, offset: int, max_bytes: int, *, isolation: Isolation) -> Any:
        """As the log, for a reader of what is committed."""
        del isolation
        return self._log.read(offset, max_bytes, isolation=Isolation.HIGH_WATERMARK)


def partition_given_twice() -> AbstractContextManager[None]:
    """The group coordinator gives a partition to a member that another one has not released."""
    return _replaced(ConsumerGroup, "partition_epoch", lambda _self, _topic_id, _partition: -1)


@dataclass(frozen=True, slots=True)
class Bug:
    """A bug, and the first seed in which a checker finds it."""

    put_in: Callable[[], AbstractContextManager[None]]
    seed: int


BUGS: Final[Mapping[str, Bug]] = {
    each.put_in.__name__: each
    for each in (
        Bug(skipped_fsync, 1),
        Bug(duplicates_appended, 1),
        Bug(high_watermark_without_followers, 0),
        Bug(pending_isr_not_counted, 6),
        Bug(divergence_ignored, 0),
        Bug(older_epoch_stamped, 0),
        Bug(truncation_below_the_high_watermark, 1),
        Bug(fenced_broker_stays_in_sync, 1),
        Bug(lagging_replica_added, 6),
        Bug(unclean_replica_elected, 1),
        Bug(marker_forgotten, 0),
        Bug(abort_marker_commits, 0),
        Bug(answered_before_committed, 1),
        Bug(partition_given_twice, 2),
        Bug(loaded_to_the_high_watermark, 0),
    )
}
"""The bugs by name."""
