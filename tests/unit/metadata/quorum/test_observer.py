"""An observer of the metadata quorum: what it asks whom, and what it does with the answers.

Random histories are of a metadata quorum as a model, with random elections, which a real
observer's log follows. The model has what KRaft promises: a leader for an epoch, committed records
in every later leader's log, snapshots of what is committed. It answers as a voter of Kafka does.

Source: org.apache.kafka.raft.RaftLog.validateOffsetAndEpoch, KafkaRaftClient (4.3.0).
"""

from __future__ import annotations

import random
import uuid
from collections import Counter
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from cordwood.client.node_connection import NodeAddress
from cordwood.format.control_record import ControlType
from cordwood.format.record_batch import iter_batches
from cordwood.metadata.loader import MetadataLoader
from cordwood.metadata.publisher import MetadataUpdate
from cordwood.metadata.quorum.observed_log import ObservedLog
from cordwood.metadata.quorum.observer import (
    NO_LEADER,
    UNKNOWN_OFFSET,
    AppendRecords,
    AppendSnapshot,
    Ask,
    BeginSnapshot,
    DropSnapshot,
    Effect,
    FetchAnswer,
    FetchAsk,
    FinishSnapshot,
    KeepLeader,
    LeaderAndEpoch,
    LogEnd,
    MoveHighWatermark,
    OffsetAndEpoch,
    QuorumObserver,
    SnapshotAnswer,
    SnapshotAsk,
    TruncateTo,
)
from cordwood.metadata.records import ApiRecord, feature_record, image_records, topic_record
from cordwood.metadata.replay import Replay, valid_batches
from cordwood.metadata.settings import MetadataLogSettings
from cordwood.metadata.snapshot_file import control_batch, data_batch, snapshot_batches
from cordwood.model.error_codes import ErrorCode
from cordwood.model.errors import CorruptError
from cordwood.model.kafka_errors import StorageError
from cordwood.storage.log.log_context import LogContext
from cordwood.storage.segment.resources import ResourceCache
from cordwood.testing.manual_clock import ManualClock
from cordwood.testing.simulated_filesystem import SimulatedFileSystem
from support.watched import SeededRng, WatchedScheduler

VOTERS = {number: NodeAddress(f"voter-{number}", 9093) for number in (1, 2, 3)}
LOG_DIR = Path("/metadata")
FITTED, WAITED = "in the reserve", "when there was space"
"""How an effect on a full disk was applied."""
NAMES_MAX = 20
RESERVE_BYTES = 600
"""As much as a few batches."""


@dataclass(frozen=True, slots=True)
class ModelBatch:
    """A batch of the leader's log."""

    base: int
    end: int
    epoch: int
    data: bytes


@dataclass(slots=True)
class ModelQuorum:
    """State of the quorum; see the module. `committed` is one past the last committed offset."""

    rng: random.Random
    batches: list[ModelBatch] = field(default_factory=list)
    leader_id: int = 1
    epoch: int = 0
    start: int = 0
    committed: int = 0
    #: Whether the leader knows that something of its epoch is committed.
    knows_high_watermark: bool = False
    snapshots: dict[OffsetAndEpoch, bytes] = field(default_factory=dict)
    topics: set[str] = field(default_factory=set)
    down: set[int] = field(default_factory=set)

    @property
    def end(self) -> int:
        """One past the leader's last offset."""
        return self.batches[-1].end if self.batches else self.newest_snapshot.offset

    @property
    def newest_snapshot(self) -> OffsetAndEpoch:
        """The id of the newest snapshot; zeros without one."""
        return max(self.snapshots, default=OffsetAndEpoch(0, 0))

    # ---- what happens in a quorum

    def elect(self) -> None:
        """Another leader, which may lack any of what was not committed."""
        kept = [each for each in self.batches if each.end <= self.committed]
        open_ = [each for each in self.batches if each.end > self.committed]
        self.batches = kept + open_[: self.rng.randint(0, len(open_))]
        self.epoch += self.rng.choice((1, 1, 2))
        self.leader_id = self.rng.choice(list(VOTERS))
        self.down.discard(self.leader_id)
        self.knows_high_watermark = False
        voters = [{"voterId": each} for each in VOTERS]
        leader = {"leaderId": self.leader_id, "voters": voters, "grantingVoters": voters}
        self._append(
            control_batch(
                [(ControlType.LEADER_CHANGE, leader)],
                base_offset=self.end,
                timestamp_ms=self.end,
                epoch=self.epoch,
            ),
            1,
        )

    def append(self) -> None:
        """A batch of one or two records."""
        values: list[ApiRecord] = []
        if self.end < 3:
            values.append(feature_record("metadata.version", 30))
        if self.rng.random() < 0.2:
            values.append(ApiRecord("NoOpRecord", 0, {}))
        name = f"topic-{self.end}"
        values.append(topic_record(name, uuid.UUID(int=self.rng.getrandbits(120) | 1 << 121)))
        encoded = [each.encode() for each in values]
        self._append(
            data_batch(encoded, base_offset=self.end, timestamp_ms=self.end, epoch=self.epoch),
            len(values),
        )

    def _append(self, data: bytes, count: int) -> None:
        base = self.end
        self.batches.append(ModelBatch(base, base + count, self.epoch, data))

    def commit(self) -> None:
        """The majority has more of the leader's log; in this epoch, at least its first batch."""
        mine = [each.end for each in self.batches if each.epoch == self.epoch]
        if mine:
            self.committed = max(self.committed, self.rng.choice(mine))
            self.knows_high_watermark = True

    def snapshot(self) -> None:
        """A snapshot of what is committed; some of the log may go."""
        replay = self.replayed(self.committed)
        offset = OffsetAndEpoch(replay.next_offset, max(replay.epoch, 0))
        if not replay.data_records or offset in self.snapshots:
            return
        data = b"".join(
            snapshot_batches(
                image_records(replay.image()),
                epoch=offset.epoch,
                now_ms=0,
                last_contained_ms=replay.timestamp_ms,
            )
        )
        self.snapshots[offset] = data
        if self.rng.random() < 0.6:
            self.start = self.rng.choice(list(self.snapshots)).offset
            self.batches = [each for each in self.batches if each.end > self.start]
            self.snapshots = {k: v for k, v in self.snapshots.items() if k.offset >= self.start}

    def replayed(self, end: int) -> Replay:
        """The records below `end`, from a snapshot and the log."""
        replay = Replay()
        known = [each for each in self.snapshots if each.offset <= end]
        if known:
            newest = max(known)
            for _, batch in iter_batches(self.snapshots[newest]):
                replay.take_batch(batch)  # type: ignore[arg-type]
            replay.next_offset, replay.epoch = newest
        for each in self.batches:
            if replay.next_offset < each.end <= end:
                for batch in valid_batches(each.data):
                    replay.take_log_batch(batch)
        return replay

    # ---- what its voters answer

    def answer_fetch(self, ask: FetchAsk) -> FetchAnswer | None:
        """A voter's answer; None if it is down."""
        error = self._refusal(ask)
        if error is None:
            return None
        answer = FetchAnswer(
            error=error,
            leader=LeaderAndEpoch(self.leader_id, self.epoch),
            leader_address=VOTERS[self.leader_id],
        )
        if error is not ErrorCode.NONE:
            return answer
        at = OffsetAndEpoch(ask.end.offset, ask.end.epoch)
        newest = self.newest_snapshot
        if at.offset == 0 and newest.offset:
            return replace(answer, snapshot_id=newest)
        if at.offset:
            oldest = min(self.snapshots, default=OffsetAndEpoch(0, 0))
            if at.offset < self.start or at.epoch < (oldest.epoch if self.start else 0):
                return replace(answer, snapshot_id=newest)
            end = self._end_of_epoch(at.epoch)
            if end.epoch != at.epoch or end.offset < at.offset:
                return replace(answer, diverging=end)
        found = [each for each in self.batches if each.base >= at.offset]
        data = b"".join(each.data for each in found[: self.rng.randint(1, 4)])
        if found and self.rng.random() < 0.2:
            data += found[-1].data[: self.rng.randint(1, 60)] if len(found) < 4 else b""
        known = self.committed if self.knows_high_watermark else UNKNOWN_OFFSET
        return replace(answer, high_watermark=known, records=data)

    def answer_snapshot(self, ask: SnapshotAsk) -> SnapshotAnswer | None:
        """A voter's answer; None if it is down."""
        error = self._refusal(ask)
        if error is None:
            return None
        if error is ErrorCode.NONE and ask.snapshot_id not in self.snapshots:
            error = ErrorCode.SNAPSHOT_NOT_FOUND
        answer = SnapshotAnswer(
            error=error,
            leader=LeaderAndEpoch(self.leader_id, self.epoch),
            leader_address=VOTERS[self.leader_id],
        )
        if error is not ErrorCode.NONE:
            return answer
        data = self.snapshots[ask.snapshot_id]
        part = data[ask.position : ask.position + self.rng.randint(1, 400)]
        return replace(
            answer,
            snapshot_id=ask.snapshot_id,
            size_bytes=len(data),
            position=ask.position,
            data=part,
        )

    def _refusal(self, ask: Ask) -> ErrorCode | None:
        asked = next(number for number, address in VOTERS.items() if address == ask.to)
        if asked in self.down or self.rng.random() < 0.05:
            return None
        if ask.epoch < self.epoch:
            return ErrorCode.FENCED_LEADER_EPOCH
        assert ask.epoch == self.epoch, f"{ask} is of an epoch that was not yet"
        return ErrorCode.NONE if asked == self.leader_id else ErrorCode.NOT_LEADER_OR_FOLLOWER

    def _end_of_epoch(self, epoch: int) -> OffsetAndEpoch:
        epochs = [(each.epoch, each.end) for each in self.batches if each.epoch <= epoch]
        found = [OffsetAndEpoch(end, of) for of, end in epochs]
        below = [each for each in self.snapshots if each.offset <= self.start]
        return max([*found, *below, OffsetAndEpoch(0, 0)], key=lambda each: each.offset)


class ObserverUnderTest:
    """An observer on a simulated disk, with the loader that reads its log."""

    def __init__(self, quorum: ModelQuorum, seed: int) -> None:
        self.quorum = quorum
        self.rng = random.Random(seed)  # nothing here is secret
        self.clock = ManualClock()
        self.fs = SimulatedFileSystem(self.clock)
        self.fs.make_directory(LOG_DIR)
        self.updates: list[MetadataUpdate] = []
        self.committed_max = 0
        #: How often each kind of effect was applied.
        self.done: Counter[str] = Counter()
        self._open()

    def _open(self) -> None:
        context = LogContext(
            clock=self.clock,
            rng=SeededRng(self.rng),
            resources=ResourceCache(self.fs),
            scheduler=WatchedScheduler(self.clock),
        )
        self.fs.capacity_bytes = None
        settings = MetadataLogSettings(reserve_bytes=RESERVE_BYTES)
        self.log = ObservedLog(LOG_DIR, context=context, settings=settings)
        self.log.take_reserve()
        self.observer = QuorumObserver(
            servers=list(VOTERS.values()), leader=self.log.leader, rng=SeededRng(self.rng)
        )
        self.loader = MetadataLoader(self.log)
        self.updates.clear()
        self.loader.install(self)

    def on_metadata_update(self, update: MetadataUpdate) -> None:
        """Reports the decisions of an update as events."""
        self.updates.append(update)

    def crash(self, *, loses_power: bool) -> None:
        """The process ends, or the machine; it starts again with what the disk has."""
        if loses_power:
            self.fs = self.rng.choice(list(self.fs.crash_images(4, self.rng)))
        else:
            self.fs = self.fs.process_crash()
        self._open()

    def fill_disk(self) -> None:
        """There is no space left but what is reserved."""
        plenty = 1 << 40
        self.fs.capacity_bytes = plenty
        self.fs.capacity_bytes = plenty - self.fs.free_bytes(LOG_DIR)

    def _apply(self, effect: Effect) -> None:
        before = self.log.end_offset
        is_full = self.fs.capacity_bytes is not None
        try:
            self.log.apply(effect)
        except StorageError as error:
            if not (error.is_out_of_space and is_full):
                raise
            self.done[WAITED] += 1
            self.fs.capacity_bytes = None  # somebody has made space
            self.log.apply(effect)
        else:
            self.done[FITTED] += is_full and self.log.end_offset > before

    def step(self) -> None:
        """One request and its answer, or a wait; then what is committed is published."""
        ask = self.observer.next_ask(self.log.end, self.clock.monotonic_s() * 1000)
        now_ms = self.clock.monotonic_s() * 1000
        if isinstance(ask, (int, float)):
            assert ask > 0
            self.clock.advance(int(ask) + 1)
            return
        effects: list[Effect] = []
        if isinstance(ask, FetchAsk):
            fetched = self.quorum.answer_fetch(ask)
            if fetched is not None:
                effects = self.observer.on_fetched(fetched, now_ms)
            else:
                self.observer.on_failure(now_ms)
        else:
            part = self.quorum.answer_snapshot(ask)
            if part is not None:
                effects = self.observer.on_snapshot_part(part, now_ms)
            elif self.rng.random() < 0.5:
                effects = self.observer.on_snapshot_refused(now_ms)
            else:
                self.observer.on_failure(now_ms)
        for effect in effects:
            self._apply(effect)
            self.done[type(effect).__name__] += 1
        self.loader.catch_up()
        self.check()

    def check(self) -> None:
        """Nothing that is not committed is published, and what is published is the quorum's."""
        quorum = self.quorum
        assert self.log.leader.epoch <= quorum.epoch
        assert self.log.high_watermark <= quorum.committed
        if not self.updates:
            return
        image = self.updates[-1].after
        assert image.next_offset <= quorum.committed
        assert image.next_offset >= self.committed_max or len(self.updates) == 1
        self.committed_max = image.next_offset
        if image.next_offset >= quorum.start:
            expected = quorum.replayed(image.next_offset).image()
            assert list(image_records(image)) == list(image_records(expected))

    @property
    def has_all(self) -> bool:
        """Whether its log is the leader's, and all that is committed is published."""
        return (
            self.log.end_offset == self.quorum.end
            and self.log.high_watermark == self.quorum.committed
        )


def run_random_quorum(seed: int, steps: int) -> ObserverUnderTest:
    """An observer of a random quorum; in the end all voters are up, and it has everything.

    Raises:
        AssertionError: it published what is not committed, or missed something.
    """
    rng = random.Random(seed)  # nothing here is secret
    quorum = ModelQuorum(rng)
    quorum.elect()
    observer = ObserverUnderTest(quorum, seed + 1)
    actions = [quorum.append, quorum.append, quorum.commit, quorum.snapshot, quorum.elect]
    weights = [20, 20, 15, 3, 4]
    for _ in range(steps):
        if rng.random() < 0.5:
            rng.choices(actions, weights)[0]()
        elif rng.random() < 0.03:
            observer.crash(loses_power=rng.random() < 0.5)
        elif rng.random() < 0.05:
            observer.fill_disk()
        elif rng.random() < 0.05:
            quorum.down = {rng.choice(list(VOTERS))} - {quorum.leader_id}
        else:
            observer.step()
    quorum.down.clear()
    observer.fs.capacity_bytes = None
    quorum.append()
    quorum.commit()
    for _ in range(400):
        if observer.has_all:
            break
        observer.step()
    assert observer.has_all, f"{observer.log.end}, and the quorum ends at {quorum.end}"
    replay = quorum.replayed(quorum.committed)
    assert observer.updates[-1].after.next_offset == replay.next_offset
    return observer


SEEDS, SEEDS_NIGHTLY = 60, 1500
ONE, TWO = NodeAddress("one", 9093), NodeAddress("two", 9093)
EMPTY = LogEnd(offset=0, epoch=0, high_watermark=-1)
END = LogEnd(offset=10, epoch=3, high_watermark=8)
NOBODY = LeaderAndEpoch(NO_LEADER, 0)
LEADER = LeaderAndEpoch(1, 3)
NEXT = LeaderAndEpoch(2, 4)
SNAPSHOT = OffsetAndEpoch(100, 3)


class First:
    """Draws the first of all."""

    def below(self, bound: int) -> int:
        return 0

    def unique_id(self) -> str:
        raise AssertionError("no id is needed")


def observer_of(leader: LeaderAndEpoch = NOBODY) -> QuorumObserver:
    return QuorumObserver(servers=[ONE, TWO], leader=leader, rng=First())


@pytest.fixture
def observer() -> QuorumObserver:
    """One that follows node 1, at the first address, in epoch 3."""
    found = observer_of()
    found.next_ask(EMPTY, 0)
    effects = found.on_fetched(fetched(ErrorCode.FENCED_LEADER_EPOCH), 0)
    assert effects == [KeepLeader(LEADER)]
    return found


def fetched(
    error: ErrorCode = ErrorCode.NONE,
    leader: LeaderAndEpoch = LEADER,
    address: NodeAddress | None = ONE,
    *,
    high_watermark: int = -1,
    diverging: OffsetAndEpoch | None = None,
    snapshot_id: OffsetAndEpoch | None = None,
    records: bytes = b"",
) -> FetchAnswer:
    return FetchAnswer(
        error=error,
        leader=leader,
        leader_address=address,
        high_watermark=high_watermark,
        diverging=diverging,
        snapshot_id=snapshot_id,
        records=records,
    )


def part(data: bytes, *, position: int = 0, size_bytes: int = 5) -> SnapshotAnswer:
    return SnapshotAnswer(
        error=ErrorCode.NONE,
        leader=LEADER,
        snapshot_id=SNAPSHOT,
        position=position,
        size_bytes=size_bytes,
        data=data,
    )


def test_without_a_server_there_is_no_observer() -> None:
    with pytest.raises(ValueError, match="needs a server"):
        QuorumObserver(servers=[], leader=LEADER, rng=First())


def test_first_answer_names_the_leader_which_is_asked_next(observer: QuorumObserver) -> None:
    assert observer.leader == LEADER
    assert observer.next_ask(EMPTY, 0) == FetchAsk(to=ONE, epoch=3, end=EMPTY)


def test_records_are_kept_and_then_the_high_watermark_moves(observer: QuorumObserver) -> None:
    observer.next_ask(END, 0)
    effects = observer.on_fetched(fetched(records=b"batches", high_watermark=12), 0)
    assert effects == [AppendRecords(b"batches"), MoveHighWatermark(12)]


def test_leader_of_no_known_high_watermark_moves_none(observer: QuorumObserver) -> None:
    observer.next_ask(END, 0)
    assert observer.on_fetched(fetched(records=b"batches"), 0) == [AppendRecords(b"batches")]


def test_leader_that_is_found_with_its_records_is_followed_at_once() -> None:
    observer = observer_of(LeaderAndEpoch(NO_LEADER, 3))
    assert observer.next_ask(END, 0) == FetchAsk(to=ONE, epoch=3, end=END)
    effects = observer.on_fetched(fetched(records=b"batches"), 0)
    assert effects == [KeepLeader(LEADER), AppendRecords(b"batches")]


def test_server_that_failed_is_left_alone_for_the_backoff(observer: QuorumObserver) -> None:
    observer.next_ask(END, 0)
    observer.on_failure(0)
    assert observer.next_ask(END, 5) == FetchAsk(to=TWO, epoch=3, end=END)
    observer.on_failure(10)
    assert observer.next_ask(END, 15) == 5
    assert observer.next_ask(END, 20) == FetchAsk(to=ONE, epoch=3, end=END)


def test_any_voter_tells_of_the_next_leader(observer: QuorumObserver) -> None:
    observer.next_ask(END, 0)
    observer.on_failure(0)
    observer.next_ask(END, 0)
    effects = observer.on_fetched(fetched(ErrorCode.FENCED_LEADER_EPOCH, NEXT, TWO), 0)
    assert effects == [KeepLeader(NEXT)]
    assert observer.next_ask(END, 0) == FetchAsk(to=TWO, epoch=4, end=END)


def test_records_of_an_epoch_that_was_not_asked_for_are_not_taken(
    observer: QuorumObserver,
) -> None:
    observer.next_ask(END, 0)
    answer = fetched(leader=NEXT, address=TWO, records=b"batches")
    assert observer.on_fetched(answer, 0) == [KeepLeader(NEXT)]


def test_epoch_whose_leader_is_not_known_yet_is_kept(observer: QuorumObserver) -> None:
    observer.next_ask(END, 0)
    nobody = LeaderAndEpoch(NO_LEADER, 4)
    effects = observer.on_fetched(fetched(ErrorCode.NOT_LEADER_OR_FOLLOWER, nobody, None), 0)
    assert effects == [KeepLeader(nobody)]
    observer.next_ask(END, 0)
    assert observer.on_fetched(fetched(ErrorCode.NOT_LEADER_OR_FOLLOWER, nobody, None), 0) == []
    observer.next_ask(END, 0)
    assert observer.on_fetched(fetched(ErrorCode.NOT_LEADER_OR_FOLLOWER, NEXT, TWO), 0) == [
        KeepLeader(NEXT)
    ]


@pytest.mark.parametrize(
    ("error", "leader"),
    [
        (ErrorCode.NONE, LeaderAndEpoch(2, 2)),
        (ErrorCode.FENCED_LEADER_EPOCH, LeaderAndEpoch(2, 2)),
        (ErrorCode.UNKNOWN_LEADER_EPOCH, LeaderAndEpoch(2, 2)),
        (ErrorCode.BROKER_NOT_AVAILABLE, LEADER),
        (ErrorCode.UNKNOWN_SERVER_ERROR, LeaderAndEpoch(NO_LEADER, -1)),
    ],
)
def test_answer_of_no_use_changes_nothing(
    observer: QuorumObserver, error: ErrorCode, leader: LeaderAndEpoch
) -> None:
    observer.next_ask(END, 0)
    assert observer.on_fetched(fetched(error, leader, TWO, records=b"batches"), 0) == []
    assert observer.leader == LEADER
    assert observer.next_ask(END, 0) == FetchAsk(to=TWO, epoch=3, end=END)


def test_epoch_of_two_leaders_is_refused(observer: QuorumObserver) -> None:
    observer.next_ask(END, 0)
    with pytest.raises(CorruptError, match="one:9093 names 2 as the leader of epoch 3"):
        observer.on_fetched(fetched(leader=LeaderAndEpoch(2, 3)), 0)


def test_log_that_diverges_is_truncated_but_not_below_what_is_committed(
    observer: QuorumObserver,
) -> None:
    observer.next_ask(END, 0)
    at = OffsetAndEpoch(8, 2)
    assert observer.on_fetched(fetched(diverging=at), 0) == [TruncateTo(at)]
    observer.next_ask(END, 0)
    with pytest.raises(CorruptError, match="those below 8 are committed"):
        observer.on_fetched(fetched(diverging=OffsetAndEpoch(7, 2)), 0)


def test_snapshot_is_fetched_in_parts(observer: QuorumObserver) -> None:
    observer.next_ask(EMPTY, 0)
    assert observer.on_fetched(fetched(snapshot_id=SNAPSHOT), 0) == [BeginSnapshot(SNAPSHOT)]
    assert observer.next_ask(EMPTY, 0) == SnapshotAsk(
        to=ONE, epoch=3, snapshot_id=SNAPSHOT, position=0
    )
    assert observer.on_snapshot_part(part(b"abc"), 0) == [AppendSnapshot(b"abc")]
    assert observer.next_ask(EMPTY, 0) == SnapshotAsk(
        to=ONE, epoch=3, snapshot_id=SNAPSHOT, position=3
    )
    assert observer.on_snapshot_part(part(b"de", position=3), 0) == [
        AppendSnapshot(b"de"),
        FinishSnapshot(SNAPSHOT),
        MoveHighWatermark(100),
    ]
    assert isinstance(observer.next_ask(EMPTY, 0), FetchAsk)


def test_part_that_was_not_asked_for_is_refused(observer: QuorumObserver) -> None:
    observer.next_ask(EMPTY, 0)
    observer.on_fetched(fetched(snapshot_id=SNAPSHOT), 0)
    observer.next_ask(EMPTY, 0)
    with pytest.raises(CorruptError, match="sent byte 3 of snapshot"):
        observer.on_snapshot_part(part(b"de", position=3), 0)


@pytest.mark.parametrize("ends", ["not found", "refused", "another leader"])
def test_snapshot_that_cannot_be_had_is_dropped(observer: QuorumObserver, ends: str) -> None:
    observer.next_ask(EMPTY, 0)
    observer.on_fetched(fetched(snapshot_id=SNAPSHOT), 0)
    observer.next_ask(EMPTY, 0)
    if ends == "refused":
        assert observer.on_snapshot_refused(0) == [DropSnapshot()]
    elif ends == "not found":
        lost = SnapshotAnswer(error=ErrorCode.SNAPSHOT_NOT_FOUND, leader=LEADER)
        assert observer.on_snapshot_part(lost, 0) == [DropSnapshot()]
    else:
        other = SnapshotAnswer(error=ErrorCode.FENCED_LEADER_EPOCH, leader=NEXT, leader_address=TWO)
        assert observer.on_snapshot_part(other, 0) == [DropSnapshot(), KeepLeader(NEXT)]
    assert isinstance(observer.next_ask(EMPTY, 0), FetchAsk)


def test_one_request_is_in_flight_at_a_time(observer: QuorumObserver) -> None:
    observer.next_ask(END, 0)
    with pytest.raises(ValueError, match="is in flight"):
        observer.next_ask(END, 0)


# ---- with a log, beside a model of the quorum


def check_random_quorums(seeds: range) -> Counter[str]:
    done: Counter[str] = Counter()
    for seed in seeds:
        done.update(run_random_quorum(seed, 150).done)
    return done


@pytest.mark.parametrize(
    "seeds",
    [
        pytest.param(range(SEEDS), id="some"),
        pytest.param(range(SEEDS, SEEDS_NIGHTLY), id="all", marks=pytest.mark.nightly),
    ],
)
def test_what_a_random_quorum_commits_is_published_and_nothing_else(seeds: range) -> None:
    done = check_random_quorums(seeds)
    effects = (AppendRecords, TruncateTo, FinishSnapshot, DropSnapshot, KeepLeader)
    assert all(done[each.__name__] for each in effects), done
    assert done[FITTED]
    assert done[WAITED]
