"""Replicas of one partition, and a controller, in a random history: what is committed must stay.

The leader is the state machine under test. Followers, the controller and the network are models:
a follower truncates where its log differs from the leader's and fetches; the controller takes
proposals, fences dead brokers and elects from the ISR. Requests and answers are lost.

Source: org.apache.kafka.controller.ReplicationControlManager, PartitionChangeBuilder (4.3.0).
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from cordwood.broker.replication.leadership import (
    Effect,
    IsrProposal,
    LedPartition,
    MoveHighWatermark,
    PartitionLeadership,
    ProposeIsr,
)
from cordwood.model.error_codes import ErrorCode

LAG_MAX_MS = 100
NO_LEADER = -1


@dataclass(slots=True)
class Replica:
    """A broker with its log: of each record the leader epoch and a number."""

    broker_id: int
    log: list[tuple[int, int]] = field(default_factory=list)
    high_watermark: int = 0
    broker_epoch: int = 0
    is_up: bool = True
    leadership: PartitionLeadership | None = None


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
        self._apply_metadata(0)

    # ---- the brokers as the image has them (`ClusterBrokers`)

    def epoch_of(self, broker_id: int) -> int | None:
        """As `ClusterBrokers`."""
        return self.replicas[broker_id].broker_epoch if self.registered[broker_id] else None

    def is_shutting_down(self, broker_id: int) -> bool:
        """As `ClusterBrokers`."""
        return False

    # ---- what happens

    def step(self) -> None:
        """One random event."""
        actions = {
            self.produce: 8,
            self.fetch: 16,
            self.tick: 3,
            self.controller_takes: 6,
            self.leader_hears: 6,
            self.metadata_arrives: 2,
            self.kill: 1,
            self.start: 3,
        }
        action = self.rng.choices(list(actions), list(actions.values()))[0]
        self.done[action.__name__] += 1
        action()
        self.check()

    def _leaders(self) -> list[tuple[Replica, PartitionLeadership]]:
        found = [(each, each.leadership) for each in self.replicas.values() if each.is_up]
        return [(each, leads) for each, leads in found if leads is not None]

    def produce(self) -> None:
        """A leader appends; one that was replaced does not know it yet, and does so, too."""
        for replica, leads in self.rng.sample(self._leaders(), min(1, len(self._leaders()))):
            self.serial += 1
            replica.log.append((leads.partition.leader_epoch, self.serial))
            self._do(replica, leads.on_append(len(replica.log), self.now_ms))

    def fetch(self) -> None:
        """A follower fetches from the leader that the controller has named."""
        leader = self.replicas.get(self.leader_id)
        follower = self.rng.choice(list(self.replicas.values()))
        if leader is None or follower is leader or not (leader.is_up and follower.is_up):
            return
        leads = leader.leadership
        if leads is None or follower.leadership is not None:
            return
        if leads.partition.leader_epoch != self.partition.leader_epoch:
            return  # fenced by the epoch of the request
        common = 0
        for mine, its in zip(follower.log, leader.log, strict=False):
            if mine != its:
                break
            common += 1
        del follower.log[common:]
        self._do(
            leader,
            leads.on_fetch(
                follower.broker_id,
                common,
                start=0,
                now_ms=self.now_ms,
                broker_epoch=follower.broker_epoch,
            ),
        )
        if self.rng.random() < 0.8:  # otherwise the answer is lost
            follower.log += leader.log[common : common + self.rng.randint(0, 4)]
            follower.high_watermark = min(leads.high_watermark, len(follower.log))

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
        if self.rng.random() < 0.1:
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
        if self.rng.random() < 0.8:
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
        elif replica.leadership is None:
            replica.leadership = PartitionLeadership(
                broker_id,
                self.partition,
                brokers=self,
                own_epoch=replica.broker_epoch,
                end_offset=len(replica.log),
                high_watermark=replica.high_watermark,
                now_ms=self.now_ms,
                min_insync_replicas=self.min_insync_replicas,
                lag_max_ms=LAG_MAX_MS,
            )
            self._do(replica, replica.leadership.refresh(self.now_ms))
        else:
            self._do(replica, replica.leadership.on_metadata(self.partition, self.now_ms))

    def kill(self) -> None:
        """A broker dies, or is cut off from the controller, which fences it and replaces it."""
        broker_id = self.rng.choice(list(self.replicas))
        if not self.registered[broker_id]:
            return
        self.registered[broker_id] = False
        if self.rng.random() < 0.5:
            self.replicas[broker_id].is_up = False
            self.replicas[broker_id].leadership = None
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
        replica.broker_epoch, replica.is_up, replica.leadership = self.next_epoch, True, None
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
        assert moved.offset <= len(replica.log)
        replica.high_watermark = moved.offset
        found = replica.log[: moved.offset]
        same = min(len(found), len(self.committed))
        assert found[:same] == self.committed[:same], "two leaders have committed different records"
        if len(found) > len(self.committed):
            self.committed = found
            self.done["commit"] += 1

    def check(self) -> None:
        """Every in-sync replica has what is committed; above all, the leader has."""
        if self.leader_id != NO_LEADER:
            log = self.replicas[self.leader_id].log
            assert log[: len(self.committed)] == self.committed, (
                f"the leader {self.leader_id} lacks what is committed: it has {len(log)} records, "
                f"and {len(self.committed)} are"
            )
        for broker_id in self.partition.isr:
            log = self.replicas[broker_id].log
            assert log[: len(self.committed)] == self.committed, f"{broker_id} is in sync"


def run_replication(seed: int, steps: int = 400) -> Counter[str]:
    """A random history; how often each kind of event happened.

    Raises:
        AssertionError: something that was committed is lost, or a high watermark fell.
    """
    run = ReplicationRun(seed, min_insync_replicas=1 + seed % 2)
    for _ in range(steps):
        run.step()
    return run.done
