"""The leader of a partition, as a state machine: its followers, the ISR, and the high watermark.

An event gives back what has to be done: the log's high watermark to move, an ISR to propose to the
controller. One proposal is in flight at a time. Until it is answered, the maximal ISR counts:
what the ISR may be by then.

Source: kafka.cluster.Partition, Replica, PartitionState (4.3.0); KIP-497, KIP-841, KIP-903,
KIP-966.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Protocol, Self

from cordwood.broker.replication.follower_state import FollowerState, SessionFetches
from cordwood.metadata.image import PartitionImage
from cordwood.model.error_codes import ErrorCode
from cordwood.model.kafka_errors import NotLeaderOrFollowerError

_log = logging.getLogger(__name__)

NO_BROKER_EPOCH = -1


class ClusterBrokers(Protocol):
    """The brokers as the metadata image has them."""

    def epoch_of(self, broker_id: int) -> int | None:
        """The epoch of a broker that is alive; None if it is fenced, or not registered."""

    def is_shutting_down(self, broker_id: int) -> bool:
        """Whether a broker is in a controlled shutdown."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LedPartition:
    """A partition's state in the image; the epochs only grow."""

    leader_epoch: int
    partition_epoch: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]

    @classmethod
    def of(cls, image: PartitionImage) -> Self:
        """The part of a partition's image that its leader uses."""
        return cls(
            leader_epoch=image.leader_epoch,
            partition_epoch=image.partition_epoch,
            replicas=image.replicas,
            isr=image.isr,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class IsrProposal:
    """An ISR for the controller, as AlterPartition has it: broker ids and their epochs."""

    leader_epoch: int
    partition_epoch: int
    isr: tuple[tuple[int, int], ...]

    @property
    def members(self) -> frozenset[int]:
        """The ids of the brokers."""
        return frozenset(broker_id for broker_id, _ in self.isr)


@dataclass(frozen=True, slots=True)
class MoveHighWatermark:
    """Records below `offset` are committed."""

    offset: int


@dataclass(frozen=True, slots=True)
class ProposeIsr:
    """Send a proposal; its answer goes to `on_isr_altered` or `on_isr_refused`."""

    proposal: IsrProposal


Effect = MoveHighWatermark | ProposeIsr

#: After these the leader waits for the metadata of the partition.
_WAITS_FOR_METADATA = frozenset(
    {
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.INVALID_UPDATE_VERSION,
        ErrorCode.INVALID_REQUEST,
        ErrorCode.NEW_LEADER_ELECTED,
    }
)
_REFUSED = frozenset({ErrorCode.INELIGIBLE_REPLICA, ErrorCode.OPERATION_NOT_ATTEMPTED})


class PartitionLeadership:
    """The state machine; see the module.

    Invariants: the high watermark never falls, and is at most the end of each log in the maximal
    ISR; `isr` has this node, unless the controller has removed it.
    """

    def __init__(
        self,
        node_id: int,
        partition: LedPartition,
        *,
        brokers: ClusterBrokers,
        own_epoch: Callable[[], int],
        end_offset: int,
        high_watermark: int,
        now_ms: float,
        min_insync_replicas: int = 1,
        lag_max_ms: float = 30_000,
    ) -> None:
        """Leads a partition in a new epoch, which begins at the log's end.

        Call `refresh` then: a leader without followers commits at once.

        Args:
            node_id: of this broker.
            partition: as the image has it.
            brokers: the others.
            own_epoch: of this broker's registration.
            end_offset: of the log.
            high_watermark: of the log.
            now_ms: the time.
            min_insync_replicas: of the topic.
            lag_max_ms: replica.lag.time.max.ms.
        """
        self._node_id = node_id
        self._brokers = brokers
        self._own_epoch = own_epoch
        self._lag_max_ms = lag_max_ms
        self.min_insync_replicas = min_insync_replicas
        self._end_offset = end_offset
        self._high_watermark = high_watermark
        self._partition = partition
        self._epoch_start_offset = end_offset
        self._proposal: IsrProposal | None = None
        self._followers = {
            each: FollowerState(last_caught_up_ms=now_ms if each in partition.isr else 0)
            for each in partition.replicas
            if each != node_id
        }

    @property
    def partition(self) -> LedPartition:
        """The epochs, the replicas and the committed ISR."""
        return self._partition

    @property
    def high_watermark(self) -> int:
        """One past the last committed record."""
        return self._high_watermark

    @property
    def followers(self) -> Mapping[int, FollowerState]:
        """The state of each other replica."""
        return self._followers

    @property
    def maximal_isr(self) -> frozenset[int]:
        """The brokers that may be in sync: with those that are proposed, or still with the others.

        Source: PartitionState.maximalIsr.
        """
        committed = frozenset(self._partition.isr)
        return committed if self._proposal is None else committed | self._proposal.members

    @property
    def others_in_sync(self) -> frozenset[int]:
        """The followers that are in sync whatever the controller answers to a proposal."""
        committed = frozenset(self._partition.isr) - {self._node_id}
        return committed if self._proposal is None else committed & self._proposal.members

    @property
    def effective_min_isr(self) -> int:
        """`min.insync.replicas`, and at most the number of replicas."""
        return min(self.min_insync_replicas, len(self._partition.replicas))

    @property
    def is_under_min_isr(self) -> bool:
        """Whether too few replicas are in sync to commit anything."""
        return len(self._partition.isr) < self.effective_min_isr

    def check_invariants(self) -> None:
        """Checks that followers, ISR, proposal and offsets agree."""
        known, end, mark = self._partition, self._end_offset, self._high_watermark
        others = {each for each in known.replicas if each != self._node_id}
        assert self._followers.keys() == others, (self._followers.keys(), others)
        assert len(set(known.isr)) == len(known.isr), known.isr
        assert set(known.isr) <= set(known.replicas), (known.isr, known.replicas)
        assert mark <= end, (mark, end)
        if self._proposal is not None:
            proposal = self._proposal
            assert proposal.leader_epoch == known.leader_epoch, (proposal, known)
            assert proposal.partition_epoch == known.partition_epoch, (proposal, known)
        for broker_id, state in self._followers.items():
            if state.omitted_by is not None:
                assert state.log_end_offset == end, (broker_id, state, end)

    # ---- events

    def on_metadata(self, partition: LedPartition, now_ms: float) -> list[Effect]:
        """The image has another ISR or other replicas, or a new epoch with this leader again.

        Metadata that is older than what is known is left out. Metadata of the epoch of an answer
        to a proposal has that ISR, and may have other replicas, where it ended a reassignment.

        Differs: Kafka drops a proposal that was sent after such an answer when the metadata of
        that answer arrives. It commits then without the replica that the controller adds.

        Source: Partition.makeLeader.
        """
        known = self._partition
        if partition.partition_epoch < known.partition_epoch:
            return []
        self._end_omissions()
        self._followers = {
            each: self._followers.get(each, FollowerState())
            for each in partition.replicas
            if each != self._node_id
        }
        if partition.leader_epoch > known.leader_epoch:
            self._epoch_start_offset = self._end_offset
            for broker_id, state in self._followers.items():
                since = now_ms if broker_id in partition.isr else 0
                self._followers[broker_id] = replace(
                    state,
                    leader_end_at_fetch=self._end_offset,
                    last_fetch_ms=since,
                    last_caught_up_ms=since,
                )
        if partition.partition_epoch > known.partition_epoch:
            self._partition = partition
            self._proposal = None
        else:
            self._partition = replace(known, replicas=partition.replicas)
        return self.refresh(now_ms)

    def on_append(self, end_offset: int, now_ms: float) -> list[Effect]:
        """The log ends at `end_offset`, exclusive, from now on."""
        self._end_omissions()
        self._end_offset = end_offset
        return self.refresh(now_ms)

    def omit(self, broker_id: int, fetches: SessionFetches) -> bool:
        """Whether a follower's session may leave the partition out until something changes.

        It has all, all of it is committed, and it is in the ISR: another fetch would change
        nothing but times, for which `fetches` stand from now on. The changes are an append, other
        metadata, and `end_omission`.
        """
        self.end_omission(broker_id)
        state = self._followers.get(broker_id)
        if (
            state is None
            or self._proposal is not None
            or broker_id not in self._partition.isr
            or not state.log_end_offset == self._end_offset == self._high_watermark
        ):
            return False
        self._followers[broker_id] = replace(state, omitted_by=fetches)
        return True

    def end_omission(self, broker_id: int, fetches: SessionFetches | None = None) -> None:
        """Ends the omission of the partition by a follower's session; by any session for None."""
        state = self._followers.get(broker_id)
        if state is not None and (fetches is None or fetches is state.omitted_by):
            self._followers[broker_id] = state.after_omission()

    def _end_omissions(self) -> None:
        for broker_id in self._followers:
            self.end_omission(broker_id)

    def on_fetch(
        self, broker_id: int, offset: int, *, start: int, now_ms: float, broker_epoch: int
    ) -> list[Effect]:
        """A follower has fetched from `offset`, which is where its log ends.

        Args:
            broker_id: the follower.
            offset: where its log ends.
            start: where its log starts.
            now_ms: the time.
            broker_epoch: that of the request; `NO_BROKER_EPOCH` if it has none.

        Raises:
            NotLeaderOrFollowerError: it is no replica of the partition, or has been registered
                again since.
        """
        self.end_omission(broker_id)
        state = self._followers.get(broker_id)
        if state is None:
            raise NotLeaderOrFollowerError(
                f"Broker {broker_id} is no replica of the partition, whose replicas are "
                f"{list(self._partition.replicas)}"
            )
        known_epoch = self._brokers.epoch_of(broker_id)
        is_stale = known_epoch is not None and broker_epoch < known_epoch
        if broker_epoch != NO_BROKER_EPOCH and is_stale:
            raise NotLeaderOrFollowerError(
                f"Received stale fetch state update. broker epoch={broker_epoch} vs "
                f"expected={known_epoch}"
            )
        self._followers[broker_id] = state.fetched(
            offset,
            start=start,
            leader_end=self._end_offset,
            now_ms=now_ms,
            broker_epoch=broker_epoch,
        )
        return [*self._expand(broker_id), *self.refresh(now_ms)]

    def on_tick(self, now_ms: float) -> list[Effect]:
        """Removes from the ISR what lags; to be called every half of `replica.lag.time.max.ms`.

        Source: Partition.maybeShrinkIsr.
        """
        if self._proposal is not None:
            return []
        lagging = {
            each
            for each in self._partition.isr
            if each != self._node_id and not self._is_caught_up(each, now_ms)
        }
        if not lagging:
            return []
        kept = [each for each in self._partition.isr if each not in lagging]
        _log.info("Shrinking ISR from %s to %s", list(self._partition.isr), kept)
        return [self._propose(kept)]

    def on_isr_altered(
        self, proposal: IsrProposal, answer: LedPartition, now_ms: float
    ) -> list[Effect]:
        """The controller has taken a proposal; the answer has the epochs and the ISR.

        Source: Partition.handleAlterPartitionUpdate.
        """
        if self._proposal is not proposal:
            return []
        known = self._partition
        if (
            answer.leader_epoch != known.leader_epoch
            or answer.partition_epoch < known.partition_epoch
        ):
            return []
        self._proposal = None
        self._partition = replace(known, isr=answer.isr, partition_epoch=answer.partition_epoch)
        return self.refresh(now_ms)

    def on_isr_refused(self, proposal: IsrProposal, error: ErrorCode) -> list[Effect]:
        """The controller has refused a proposal: it is dropped, sent again, or waits for metadata.

        Source: Partition.handleAlterPartitionError.
        """
        if self._proposal is not proposal:
            return []
        if error in _REFUSED:
            self._proposal = None
            return []
        if error in _WAITS_FOR_METADATA:
            return []
        _log.warning("The ISR %s was refused with %s; it is proposed again", proposal, error.name)
        return [ProposeIsr(proposal)]

    def refresh(self, now_ms: float) -> list[Effect]:
        """Moves the high watermark to where all logs that count reach.

        Source: Partition.maybeIncrementLeaderHW.
        """
        if self.is_under_min_isr:
            return []
        found = self._end_offset
        maximal = self.maximal_isr
        for broker_id, state in self._followers.items():
            if state.log_end_offset >= found:
                continue
            counts = broker_id in maximal or (
                self._is_caught_up(broker_id, now_ms) and self._is_eligible(broker_id)
            )
            if counts:
                found = state.log_end_offset
        if found <= self._high_watermark:
            return []
        self._high_watermark = found
        return [MoveHighWatermark(found)]

    # ---- questions

    def committed(self, offset: int) -> ErrorCode | None:
        """The answer to an append whose records end at `offset`, exclusive; None if it waits.

        Source: Partition.checkEnoughReplicasReachOffset.
        """
        if self._high_watermark < offset:
            return None
        if len(self.maximal_isr) < self.effective_min_isr:
            return ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND
        return ErrorCode.NONE

    @property
    def is_catching_up(self) -> bool:
        """Whether what was committed before this leader epoch may be above the high watermark.

        Source: Partition.fetchOffsetForTimestamp; KIP-207.
        """
        return self._epoch_start_offset > self._high_watermark

    def nearest_reader(self, brokers: Collection[int], offset: int, now_ms: float) -> int | None:
        """The follower in the ISR, of some brokers, to read from `offset` on; None without one.

        It is the one that has most, or else was caught up last.

        Source: ReplicaManager.findPreferredReadReplica, RackAwareReplicaSelector; KIP-392.
        """
        found = [
            (state.log_end_offset, state.caught_up_ms - now_ms, broker_id)
            for broker_id, state in self._followers.items()
            if broker_id in brokers
            and broker_id in self._partition.isr
            and state.log_start_offset <= offset <= state.log_end_offset
        ]
        return max(found)[2] if found else None

    def low_watermark(self, own_start: int) -> int:
        """The lowest log start offset of the live replicas; DeleteRecords waits for it.

        Source: Partition.lowWatermarkIfLeader.
        """
        alive = [
            state.log_start_offset
            for broker_id, state in self._followers.items()
            if self._brokers.epoch_of(broker_id) is not None
        ]
        return min([own_start, *alive])

    # ---- the ISR

    def _expand(self, broker_id: int) -> Iterator[Effect]:
        """Source: Partition.maybeExpandIsr."""
        state = self._followers[broker_id]
        if (
            self._proposal is None
            and broker_id not in self._partition.isr
            and self._is_eligible(broker_id)
            and state.log_end_offset >= max(self._high_watermark, self._epoch_start_offset)
        ):
            grown = [*self._partition.isr, broker_id]
            _log.info("Expanding ISR from %s to %s", list(self._partition.isr), grown)
            yield self._propose(grown)

    def _propose(self, isr: Sequence[int]) -> ProposeIsr:
        self._proposal = IsrProposal(
            leader_epoch=self._partition.leader_epoch,
            partition_epoch=self._partition.partition_epoch,
            isr=tuple((each, self._epoch_for(each)) for each in isr),
        )
        return ProposeIsr(self._proposal)

    def _epoch_for(self, broker_id: int) -> int:
        if broker_id == self._node_id:
            return self._own_epoch()
        state = self._followers.get(broker_id)
        known = None if state is None else state.broker_epoch
        return NO_BROKER_EPOCH if known is None else known

    def _is_caught_up(self, broker_id: int, now_ms: float) -> bool:
        state = self._followers.get(broker_id)
        return state is not None and state.is_caught_up(self._end_offset, now_ms, self._lag_max_ms)

    def _is_eligible(self, broker_id: int) -> bool:
        """Source: Partition.isReplicaIsrEligible."""
        stored = self._followers[broker_id].broker_epoch
        alive = self._brokers.epoch_of(broker_id)
        return (
            alive is not None
            and not self._brokers.is_shutting_down(broker_id)
            and stored is not None
            and stored in {NO_BROKER_EPOCH, alive}
        )
