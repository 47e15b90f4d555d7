"""Replicas of one partition, and a controller, in a random history: what is committed must stay.

Leaders and followers are the state machines under test, with logs in memory. The controller and
the network are models: the controller takes proposals, fences dead brokers and elects from the ISR;
requests and answers are lost.

Source: org.apache.kafka.controller.ReplicationControlManager, PartitionChangeBuilder (4.3.0).
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from cordwood.broker.replication.following import (
    NO_EPOCH,
    AppendRecords,
    AskOffsets,
    FetchedPartition,
    FetchPosition,
    MoveLogStart,
    PartitionFollowing,
    StartAt,
    TruncateTo,
)
from cordwood.broker.replication.following import Effect as FollowerEffect
from cordwood.broker.replication.following import MoveHighWatermark as FollowerHighWatermark
from cordwood.broker.replication.leadership import (
    Effect,
    IsrProposal,
    LedPartition,
    MoveHighWatermark,
    PartitionLeadership,
    ProposeIsr,
)
from cordwood.model.error_codes import ErrorCode
from cordwood.storage.log.leader_epochs import EpochEndOffset

LAG_MAX_MS = 100
NO_LEADER = -1


@dataclass(slots=True)
class Replica:
    """A broker with its log (`FollowedLog`): of each record the leader epoch and a number.

    `epochs` is its leader epoch cache: epochs and the offsets at which they begin.
    """

    broker_id: int
    records: list[tuple[int, int]] = field(default_factory=list)
    log_start_offset: int = 0
    high_watermark: int = 0
    epochs: list[tuple[int, int]] = field(default_factory=list)
    broker_epoch: int = 0
    is_up: bool = True
    leadership: PartitionLeadership | None = None
    following: PartitionFollowing | None = None

    @property
    def log_end_offset(self) -> int:
        """One past the last offset."""
        return self.log_start_offset + len(self.records)

    @property
    def gap_offset(self) -> int | None:
        """The start of a gap, if there is one."""
        return None

    @property
    def last_epoch(self) -> int | None:
        """The newest epoch."""
        return self.epochs[-1][0] if self.epochs else None

    def end_of_epoch(self, epoch: int) -> EpochEndOffset | None:
        """The end of an epoch, as LeaderEpochFileCache.endOffsetFor gives it."""
        if not self.epochs or epoch > self.epochs[-1][0]:
            return None
        if epoch == self.epochs[-1][0]:
            return EpochEndOffset(epoch, self.log_end_offset)
        known = [each for each, _ in self.epochs if each <= epoch]
        following = next(start for each, start in self.epochs if each > epoch)
        return EpochEndOffset(known[-1] if known else epoch, following)

    def between(self, first: int, end: int) -> list[tuple[int, int]]:
        """The records at offsets from `first` to `end`, exclusive."""
        assert first >= self.log_start_offset
        return self.records[first - self.log_start_offset : end - self.log_start_offset]

    def append(self, epoch: int, number: int) -> None:
        """Another record."""
        self.begin_epoch(epoch)
        self.records.append((epoch, number))

    def begin_epoch(self, epoch: int) -> None:
        """Notes that an epoch begins at the end, unless it has begun."""
        if not self.epochs or self.epochs[-1][0] < epoch:
            self.epochs.append((epoch, self.log_end_offset))

    def truncate_to(self, offset: int) -> None:
        """Cuts the log off."""
        assert offset >= self.high_watermark, "what is committed is cut off"
        del self.records[max(offset - self.log_start_offset, 0) :]
        self.epochs = [each for each in self.epochs if each[1] < offset]

    def start_at(self, offset: int) -> None:
        """Empties the log."""
        self.records, self.epochs = [], []
        self.log_start_offset = self.high_watermark = offset

    def delete_before(self, offset: int) -> None:
        """Moves the log's start."""
        del self.records[: offset - self.log_start_offset]
        self.log_start_offset = offset
        before = [each for each in self.epochs if each[1] <= offset]
        later = [each for each in self.epochs if each[1] > offset]
        self.epochs = [*((epoch, offset) for epoch, _ in before[-1:]), *later]


class ReplicationRun:
    """A random history; see the module."""

    def __init__(self, seed: int, *, replicas: int = 3, min_insync_replicas: int = 1) -> None:
        self.rng = random.Random(seed)  # noqa: S311  # nothing here is secret
        self.now_ms = 0.0
        self.replicas = {number: Replica(number, broker_epoch=number) for number in range(replicas)}
        self.min_insync_replicas = min_insync_replicas
        ids = tuple(self.replicas)
        self.registered = dict.fromkeys(ids, True)
        self.partition = LedPartition(leader_epoch=0, partition_epoch=0, replicas=ids, isr=ids)
        self.leader_id = 0
        self.next_epoch = replicas
        self.serial = 0
        #: Every record below a high watermark that a leader has had.
        self.committed: list[tuple[int, int]] = []
        self.proposals: list[tuple[int, IsrProposal]] = []
        self.answers: list[tuple[int, IsrProposal, LedPartition | ErrorCode]] = []
        self.done: Counter[str] = Counter()
        #: Whether nothing is lost or fails any more.
        self.is_calm = False
        #: The records of the last answer to a fetch.
        self.sent: list[tuple[int, int]] = []
        self._apply_metadata(0)

    # ---- the brokers as the image has them (`ClusterBrokers`)

    def epoch_of(self, broker_id: int) -> int | None:
        """The epoch of a broker that is alive."""
        return self.replicas[broker_id].broker_epoch if self.registered[broker_id] else None

    def is_shutting_down(self, broker_id: int) -> bool:
        """Whether a broker shuts down."""
        return False

    # ---- what happens

    def step(self) -> None:
        """One random event."""
        actions = {
            self.produce: 8,
            self.fetch: 16,
            self.delete_records: 1,
            self.tick: 3,
            self.controller_takes: 6,
            self.leader_hears: 6,
            self.metadata_arrives: 4,
            self.kill: 1,
            self.start: 3,
        }
        action = self.rng.choices(list(actions), list(actions.values()))[0]
        self.done[action.__name__] += 1
        action()
        self.check()
        self.check_invariants()

    def settle(self) -> None:
        """All brokers come back and nothing is lost any more: all get in sync, and equal."""
        self.is_calm = True
        while not all(self.registered.values()):
            self.start()
        for _ in range(300):
            self.now_ms += 1
            for replica in self.replicas.values():
                self._apply_metadata(replica.broker_id)
                self._fetch(replica)
            self.controller_takes()
            self.leader_hears()
            self.check()
        leader = self.replicas[self.leader_id]
        assert set(self.partition.isr) == set(self.replicas), self.partition
        for replica in self.replicas.values():
            start = max(replica.log_start_offset, leader.log_start_offset)
            assert replica.log_end_offset == leader.log_end_offset, f"{replica.broker_id} lags"
            ends = leader.log_end_offset
            assert replica.between(start, ends) == leader.between(start, ends), (
                f"{replica.broker_id} has another log than the leader"
            )
            assert replica.high_watermark == leader.high_watermark == ends

    def _is_lost(self, probability: float) -> bool:
        return not self.is_calm and self.rng.random() < probability

    def _leaders(self) -> list[tuple[Replica, PartitionLeadership]]:
        found = [(each, each.leadership) for each in self.replicas.values() if each.is_up]
        return [(each, leads) for each, leads in found if leads is not None]

    def check_invariants(self) -> None:
        """Checks each state machine in itself."""
        for replica in self.replicas.values():
            if replica.leadership is not None:
                replica.leadership.check_invariants()
            if replica.following is not None:
                replica.following.check_invariants()

    def produce(self) -> None:
        """A leader appends; one that was replaced does not know it yet, and does so, too."""
        for replica, leads in self.rng.sample(self._leaders(), min(1, len(self._leaders()))):
            self.serial += 1
            replica.append(leads.partition.leader_epoch, self.serial)
            self._do(replica, leads.on_append(replica.log_end_offset, self.now_ms))

    def delete_records(self) -> None:
        """Old committed records of a leader go."""
        for replica, _ in self._leaders():
            if self.rng.random() < 0.5:
                offset = self.rng.randint(replica.log_start_offset, replica.high_watermark)
                replica.delete_before(offset)

    def fetch(self) -> None:
        """A follower fetches from the leader that it knows."""
        self._fetch(self.rng.choice(list(self.replicas.values())))

    def _fetch(self, follower: Replica) -> None:
        following = follower.following
        if not follower.is_up or following is None:
            return
        position = following.next_fetch(follower, self.now_ms)
        if not isinstance(position, FetchPosition):
            return
        answer = self._answer(self.replicas[following.leader_id], follower, position)
        if answer is None or self._is_lost(0.1):
            following.on_failure(self.now_ms)
            return
        self._follow(follower, following.on_fetched(position, answer, follower, self.now_ms))

    def _answer(
        self, leader: Replica, follower: Replica, position: FetchPosition
    ) -> FetchedPartition | None:
        """The leader's answer; None if it is down.

        Source: Partition.fetchRecords, readRecords.
        """
        if not leader.is_up:
            return None
        leads = leader.leadership
        if leads is None:
            return FetchedPartition(error=ErrorCode.NOT_LEADER_OR_FOLLOWER)
        if position.leader_epoch != leads.partition.leader_epoch:
            is_old = position.leader_epoch < leads.partition.leader_epoch
            return FetchedPartition(
                error=ErrorCode.FENCED_LEADER_EPOCH if is_old else ErrorCode.UNKNOWN_LEADER_EPOCH
            )
        offset = position.offset
        if position.last_epoch != NO_EPOCH:
            end = leader.end_of_epoch(position.last_epoch)
            if end is None:
                return FetchedPartition(error=ErrorCode.OFFSET_OUT_OF_RANGE)
            if end.epoch < position.last_epoch or end.end_offset < offset:
                self.done["divergence"] += 1
                return FetchedPartition(diverging=end)
        if not leader.log_start_offset <= offset <= leader.log_end_offset:
            return FetchedPartition(error=ErrorCode.OFFSET_OUT_OF_RANGE)
        effects = leads.on_fetch(
            follower.broker_id,
            offset,
            start=position.log_start_offset,
            now_ms=self.now_ms,
            broker_epoch=follower.broker_epoch,
        )
        self._do(leader, effects)
        self.sent = leader.between(offset, offset + self.rng.randint(int(self.is_calm), 4))
        return FetchedPartition(
            high_watermark=leads.high_watermark,
            log_start_offset=leader.log_start_offset,
            records=b"records" if self.sent else b"",
        )

    def _follow(self, follower: Replica, effects: Iterable[FollowerEffect]) -> None:
        """Does with a log in memory what a follower has to do."""
        for effect in effects:
            self.done[type(effect).__name__] += 1
            match effect:
                case AppendRecords():
                    for epoch, number in self.sent:
                        assert epoch <= effect.leader_epoch
                        follower.append(epoch, number)
                case TruncateTo(offset):
                    follower.truncate_to(offset)
                case StartAt(offset):
                    follower.start_at(offset)
                case FollowerHighWatermark(offset):
                    known = min(offset, follower.log_end_offset)
                    follower.high_watermark = max(follower.high_watermark, known)
                case MoveLogStart(offset):
                    if follower.log_start_offset < offset <= follower.high_watermark:
                        follower.delete_before(offset)
                case AskOffsets():
                    self._ask_offsets(follower)

    def _ask_offsets(self, follower: Replica) -> None:
        following = follower.following
        assert following is not None
        leader = self.replicas[following.leader_id]
        if not leader.is_up or leader.leadership is None or self._is_lost(0.2):
            following.on_failure(self.now_ms)
            return
        if leader.leadership.partition.leader_epoch != following.leader_epoch:
            following.on_failure(self.now_ms)
            return
        effects = following.on_offsets(
            leader.log_start_offset, leader.log_end_offset, follower, self.now_ms
        )
        self._follow(follower, effects)

    def tick(self) -> None:
        """Time passes."""
        self.now_ms += self.rng.choice((1, 10, LAG_MAX_MS / 2, LAG_MAX_MS * 1.5))
        for replica, leads in self._leaders():
            self._do(replica, leads.on_tick(self.now_ms))

    def controller_takes(self) -> None:
        """The controller gets a proposal, checks it and answers; or it is lost, and sent again."""
        if not self.proposals:
            return
        sender, proposal = self.proposals.pop(self.rng.randrange(len(self.proposals)))
        if self._is_lost(0.1):
            self.answers.append((sender, proposal, ErrorCode.UNKNOWN_SERVER_ERROR))
            return
        known = self.partition
        answer: LedPartition | ErrorCode
        if proposal.leader_epoch < known.leader_epoch:
            answer = ErrorCode.FENCED_LEADER_EPOCH
        elif proposal.partition_epoch < known.partition_epoch:
            answer = ErrorCode.INVALID_UPDATE_VERSION
        elif any(
            self.epoch_of(each) not in {epoch, None if epoch < 0 else epoch}
            or not self.registered[each]
            for each, epoch in proposal.isr
        ):
            answer = ErrorCode.INELIGIBLE_REPLICA
        else:
            isr = tuple(each for each, _ in proposal.isr)
            self.partition = answer = replace(
                known, isr=isr, partition_epoch=known.partition_epoch + 1
            )
        if self._is_lost(0.2):
            # Without an answer the leader's broker sends the request again.
            self.proposals.append((sender, proposal))
        else:
            self.answers.append((sender, proposal, answer))

    def leader_hears(self) -> None:
        """A leader gets an answer of the controller."""
        if not self.answers:
            return
        sender, proposal, answer = self.answers.pop(self.rng.randrange(len(self.answers)))
        replica = self.replicas[sender]
        if replica.leadership is None:
            return
        if isinstance(answer, ErrorCode):
            self._do(replica, replica.leadership.on_isr_refused(proposal, answer))
        else:
            self._do(replica, replica.leadership.on_isr_altered(proposal, answer, self.now_ms))

    def metadata_arrives(self) -> None:
        """A broker applies the newest image."""
        self._apply_metadata(self.rng.choice(list(self.replicas)))

    def _apply_metadata(self, broker_id: int) -> None:
        replica = self.replicas[broker_id]
        if not replica.is_up:
            return
        if broker_id != self.leader_id:
            replica.leadership = None
            known = replica.following
            is_known = known is not None and known.leader_epoch == self.partition.leader_epoch
            if self.leader_id != NO_LEADER and not is_known:
                replica.following = PartitionFollowing(
                    self.leader_id, self.partition.leader_epoch, fetch_backoff_ms=5
                )
                self._follow(replica, replica.following.begin(replica))
        elif replica.leadership is None:
            replica.following = None
            replica.begin_epoch(self.partition.leader_epoch)
            replica.leadership = PartitionLeadership(
                broker_id,
                self.partition,
                brokers=self,
                own_epoch=lambda: replica.broker_epoch,
                end_offset=replica.log_end_offset,
                high_watermark=replica.high_watermark,
                now_ms=self.now_ms,
                min_insync_replicas=self.min_insync_replicas,
                lag_max_ms=LAG_MAX_MS,
            )
            self._do(replica, replica.leadership.refresh(self.now_ms))
        else:
            if self.partition.leader_epoch > replica.leadership.partition.leader_epoch:
                replica.begin_epoch(self.partition.leader_epoch)
            self._do(replica, replica.leadership.on_metadata(self.partition, self.now_ms))

    def kill(self) -> None:
        """A broker dies, or is cut off from the controller, which fences it and replaces it."""
        broker_id = self.rng.choice(list(self.replicas))
        if not self.registered[broker_id]:
            return
        self.registered[broker_id] = False
        if self.rng.random() < 0.5:
            self.replicas[broker_id].is_up = False
            self.replicas[broker_id].leadership = self.replicas[broker_id].following = None
        isr = tuple(each for each in self.partition.isr if each != broker_id)
        leader_epoch = self.partition.leader_epoch
        if broker_id == self.leader_id:
            leader_epoch += 1
            self.leader_id = next((each for each in isr if self.registered[each]), NO_LEADER)
            if self.leader_id != NO_LEADER:
                self.done["election"] += 1
        self.partition = replace(
            self.partition,
            isr=isr or self.partition.isr,  # the last one stays
            leader_epoch=leader_epoch,
            partition_epoch=self.partition.partition_epoch + 1,
        )

    def start(self) -> None:
        """A fenced broker is registered again, with a new epoch, and leads nothing yet."""
        fenced = [each for each, alive in self.registered.items() if not alive]
        if not fenced:
            return
        broker_id = self.rng.choice(fenced)
        replica = self.replicas[broker_id]
        self.next_epoch += 1
        replica.broker_epoch, replica.is_up = self.next_epoch, True
        replica.leadership = replica.following = None
        self.registered[broker_id] = True
        if self.leader_id == NO_LEADER and broker_id in self.partition.isr:
            self.leader_id = broker_id
            self.partition = replace(
                self.partition,
                leader_epoch=self.partition.leader_epoch + 1,
                partition_epoch=self.partition.partition_epoch + 1,
            )

    # ---- what must hold

    def _do(self, replica: Replica, effects: Iterable[Effect]) -> None:
        for effect in effects:
            if isinstance(effect, ProposeIsr):
                self.proposals.append((replica.broker_id, effect.proposal))
                self.done["proposal"] += 1
            else:
                self._committed(replica, effect)

    def _committed(self, replica: Replica, moved: MoveHighWatermark) -> None:
        assert moved.offset > replica.high_watermark, "a high watermark never falls"
        assert moved.offset <= replica.log_end_offset
        replica.high_watermark = moved.offset
        start, known = replica.log_start_offset, len(self.committed)
        found = replica.between(start, moved.offset)
        assert found[: known - start] == self.committed[start : moved.offset], (
            "two leaders have committed different records"
        )
        if moved.offset > known:
            self.committed += replica.between(known, moved.offset)
            self.done["commit"] += 1

    def check(self) -> None:
        """Every in-sync replica has what is committed; the leader is one of them."""
        assert self.leader_id in {NO_LEADER, *self.partition.isr}
        for broker_id in self.partition.isr:
            replica = self.replicas[broker_id]
            start, known = replica.log_start_offset, len(self.committed)
            assert start <= known
            assert replica.between(start, known) == self.committed[start:], (
                f"{broker_id} is in sync, ends at {replica.log_end_offset}, and lacks of {known}"
            )


def run_replication(seed: int, steps: int = 400) -> Counter[str]:
    """A random history; how often each kind of event happened.

    Raises:
        AssertionError: something that was committed is lost, or a high watermark fell.
    """
    run = ReplicationRun(seed, min_insync_replicas=1 + seed % 2)
    for _ in range(steps):
        run.step()
    run.settle()
    return run.done
