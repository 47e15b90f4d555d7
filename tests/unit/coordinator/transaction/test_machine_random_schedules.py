"""Random schedules of producers, whose records are compared with a model after each event.

A schedule has producers, markers, time, failing appends, replication and restarts. The model reads
records in their order and knows only this: the states that may follow each other, that epochs and
producer ids only rise, that each decision is followed by its end and nothing else, and that an id
is removed only if it is old and has no transaction.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from random import Random
from typing import Any, Final, NamedTuple

import pytest

from cordwood.coordinator.timeline import Timeline
from cordwood.coordinator.transaction.markers import TransactionMarker
from cordwood.coordinator.transaction.records import TransactionRecord
from cordwood.coordinator.transaction.requests import EndAnswer, InitProducerIdAnswer
from cordwood.coordinator.transaction.shard import TransactionShard
from cordwood.coordinator.transaction.transaction import (
    EPOCH_MAX,
    PREVIOUS_STATES,
    Producer,
    Transaction,
    TransactionState,
)
from cordwood.model.error_codes import ErrorCode
from cordwood.model.topic_partition import TopicPartition
from support.transactions_under_test import Markers, TransactionRun

_END: Final = {
    TransactionState.PREPARE_COMMIT: TransactionState.COMPLETE_COMMIT,
    TransactionState.PREPARE_ABORT: TransactionState.COMPLETE_ABORT,
}


class Decision(NamedTuple):
    """Whether the transaction of a producer is committed, and the offset of the record."""

    commit: bool
    offset: int


class Model:
    """The records that were read."""

    def __init__(self, expiration_ms: int) -> None:
        self.known: dict[str, Transaction] = {}
        self.decisions: dict[Producer, Decision] = {}
        self.end_offset = 0
        self.removed = 0
        self._expiration_ms = expiration_ms
        self._highest_id: dict[str, int] = {}

    def read(self, record: TransactionRecord, now_ms: int) -> None:
        """Checks the next record."""
        name, after = record.transactional_id, record.transaction
        before = self.known.get(name)
        if after is None:
            self._remove(name, now_ms)
        else:
            if before is None:
                self._begin(after)
            else:
                _require_follows(before, after)
            self._check(after)
            self.known[name] = after
            self._highest_id[name] = after.producer_id
        self.end_offset += 1

    def _remove(self, name: str, now_ms: int) -> None:
        before = self.known.pop(name, None)
        assert before is not None, f"{name} is removed twice"
        assert before.state.is_at_rest, f"{name} is removed in {before.state}"
        assert before.update_ms <= now_ms - self._expiration_ms, f"{name} is not old"
        self.removed += 1

    def _begin(self, after: Transaction) -> None:
        name = after.transactional_id
        assert after.state is TransactionState.EMPTY, f"{name} begins in {after.state}"
        assert after.producer_epoch == 0, after
        assert after.producer_id > self._highest_id.get(name, -1), "an id is used again"

    def _check(self, after: Transaction) -> None:
        assert not after.partitions or not after.state.is_at_rest, after
        assert after.next_producer_id == -1 or after.state.is_prepared, after
        assert (after.start_ms == -1) == (after.state is TransactionState.EMPTY), after
        if after.state in _END:
            producer = Producer(after.producer_id, after.producer_epoch)
            # Before version 2 a producer has the same epoch in all its transactions.
            assert after.client_version < 2 or producer not in self.decisions, producer
            commit = after.state is TransactionState.PREPARE_COMMIT
            self.decisions[producer] = Decision(commit, self.end_offset)

    def sent(self, marker: TransactionMarker, high_watermark: int) -> None:
        """Checks that markers say what is decided and committed."""
        decision = self.decisions[Producer(marker.producer_id, marker.producer_epoch)]
        assert decision.commit is marker.commit, marker
        assert decision.offset < high_watermark, marker


def _require_follows(before: Transaction, after: Transaction) -> None:
    change = f"{before} -> {after}"
    assert before.state in PREVIOUS_STATES[after.state], change
    assert before.update_ms <= after.update_ms, change
    old = Producer(before.producer_id, before.producer_epoch)
    new = Producer(after.producer_id, after.producer_epoch)
    assert old <= new, change
    if before.state in _END:
        assert after.state is _END[before.state], change
        next_id = before.next_producer_id
        assert new == (old if next_id == -1 else Producer(next_id, 0)), change
    if before.state is TransactionState.ONGOING:
        assert set(before.partitions) <= set(after.partitions), change
        assert (after.start_ms, after.timeout_ms) == (before.start_ms, before.timeout_ms), change


EXPIRATION_MS: Final = 100_000
_STEPS: Final = 200
_NOBODY: Final = Producer(-1, -1)
_TIMEOUTS_MS: Final = (1_000, 60_000)
_FAILURES: Final = (
    ErrorCode.NOT_ENOUGH_REPLICAS,
    ErrorCode.KAFKA_STORAGE_ERROR,
    ErrorCode.MESSAGE_TOO_LARGE,
)
#: What a client may be answered whatever it has asked.
_AT_ANY_TIME: Final = frozenset(
    {
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.UNKNOWN_SERVER_ERROR,
        ErrorCode.CONCURRENT_TRANSACTIONS,
        ErrorCode.PRODUCER_FENCED,
    }
)
_OF_AN_ADD: Final = {ErrorCode.INVALID_PRODUCER_ID_MAPPING, *_AT_ANY_TIME}
_OF_AN_END: Final = {ErrorCode.INVALID_TXN_STATE, *_OF_AN_ADD}


@dataclass
class Client:
    """A producer, and what it has been given."""

    transactional_id: str
    producer: Producer = _NOBODY


class CheckedMarkers(Markers):
    """Markers that are checked when they are sent."""

    def __init__(self, check: Callable[[TransactionMarker], None]) -> None:
        super().__init__()
        self._check = check

    def send(
        self,
        state_partition: int,
        marker: TransactionMarker,
        partitions: Sequence[TopicPartition],
        done: Callable[[], None],
    ) -> None:
        """Keeps the markers until `write`."""
        self._check(marker)
        super().send(state_partition, marker, partitions, done)


class Schedule:
    """A coordinator of one partition, and clients of three transactional ids, two of the first."""

    def __init__(self, seed: int, version: int) -> None:
        self.random = Random(seed)
        self.run = TransactionRun(
            version=version,
            markers=CheckedMarkers(self._sent),
            id_expiration_ms=EXPIRATION_MS,
            max_timeout_ms=max(_TIMEOUTS_MS),
        )
        self.clients = [Client(f"x{number % 3}") for number in range(4)]
        self.model = Model(EXPIRATION_MS)
        self._loaded = TransactionShard(0, Timeline())
        self.done: Counter[str] = Counter()
        self._waiting: list[tuple[list[Any], Callable[[Any], None]]] = []
        self._steps: dict[Callable[[], None], int] = {
            self._init: 3,
            self._add: 16,
            self._end: 12,
            self._write_markers: 24,
            self._advance: 3,
            self._abort_timed_out: 2,
            self._expire_ids: 2,
            self._commit: 12,
            self._replicate: 1,
            self._fail: 1,
            self._recover: 8,
            self._restart: 1,
            self._exhaust: 1,
        }

    def play(self) -> None:
        """Takes all steps, and ends what is open."""
        steps = self.random.choices(list(self._steps), list(self._steps.values()), k=_STEPS)
        for step in steps:
            step()
            self._check()
        self._settle()

    # ---- clients

    def _client(self) -> Client:
        """A client, which has mostly been given a producer id."""
        client = self.random.choice(self.clients)
        if client.producer == _NOBODY and self.random.random() < 0.9:
            self._init(client)
        return client

    def _init(self, client: Client | None = None) -> None:
        client = client or self.random.choice(self.clients)
        producer_id, producer_epoch = client.producer
        if self.random.random() < 0.6:
            producer_id, producer_epoch = _NOBODY
        answers = self.run.init_later(
            client.transactional_id,
            timeout_ms=self.random.choice(_TIMEOUTS_MS),
            producer_id=producer_id,
            producer_epoch=producer_epoch,
        )

        def answered(answer: InitProducerIdAnswer) -> None:
            if answer.error_code:
                assert answer.error_code in _AT_ANY_TIME, answer
                return
            client.producer = Producer(answer.producer_id, answer.producer_epoch)
            self.done["initialized"] += 1

        self._waiting.append((answers, answered))

    def _add(self) -> None:
        client = self._client()
        partitions = [
            TopicPartition(self.random.choice("tuv"), self.random.randrange(4))
            for _ in range(self.random.randrange(1, 4))
        ]
        codes = self.run.add_later(
            *client.producer, partitions, transactional_id=client.transactional_id
        )

        def answered(code: int) -> None:
            assert code == ErrorCode.NONE or code in _OF_AN_ADD, code
            self.done["added"] += code == ErrorCode.NONE
            if code == ErrorCode.PRODUCER_FENCED:
                client.producer = _NOBODY

        self._waiting.append((codes, answered))

    def _end(self) -> None:
        client = self._client()
        producer, commit = client.producer, self.random.random() < 0.6
        answers = self.run.end_later(
            *producer, commit=commit, transactional_id=client.transactional_id
        )

        def answered(answer: EndAnswer) -> None:
            if answer.error_code:
                assert answer.error_code in _OF_AN_END, answer
                return
            bumps = self.run.version == 2
            decision = self.model.decisions[
                producer._replace(producer_epoch=producer.producer_epoch + bumps)
            ]
            assert decision.commit is commit, f"{producer} is answered what is not so"
            assert decision.offset < self.run.log.high_watermark(0)
            if bumps:
                client.producer = Producer(answer.producer_id, answer.producer_epoch)
            self.done["committed" if commit else "aborted"] += 1

        self._waiting.append((answers, answered))

    # ---- all else

    def _write_markers(self) -> None:
        waiting = self.run.markers.waiting
        if waiting:
            self.run.markers.write(self.random.randrange(len(waiting)))

    def _advance(self) -> None:
        self.run.host.timers.advance(self.random.choice((1, 500, 1_001, 20_000, 60_001)))

    def _abort_timed_out(self) -> None:
        self.run.coordinator.maintenance.abort_timed_out()

    def _expire_ids(self) -> None:
        self.run.coordinator.maintenance.expire_ids()

    def _commit(self) -> None:
        self.run.commit_log()

    def _replicate(self) -> None:
        self.run.log.is_replicated = not self.run.log.is_replicated
        self.run.commit_log()

    def _fail(self) -> None:
        self.run.log.fails_with = self.random.choice(_FAILURES)

    def _recover(self) -> None:
        self.run.log.fails_with = None

    def _restart(self) -> None:
        self.run.restart()
        self.done["restarted"] += 1

    def _exhaust(self) -> None:
        """The epochs of a producer are nearly used up, as after many transactions."""
        at_rest = [each for each in self.model.known.values() if each.state.is_at_rest]
        if not at_rest or self.run.log.is_replicated or self.run.log.fails_with is not None:
            return
        known = self.random.choice(at_rest)
        if known.is_epoch_exhausted or known.producer_epoch > EPOCH_MAX - 4:
            return
        later = known.with_next_epoch(
            timeout_ms=known.timeout_ms, expected_epoch=None, now_ms=self.run.clock.now_ms()
        )
        self.run.put(replace(later, producer_epoch=EPOCH_MAX - 4))
        for client in self.clients:
            if client.transactional_id == known.transactional_id:
                client.producer = Producer(known.producer_id, EPOCH_MAX - 4)

    # ---- what must hold

    def _sent(self, marker: TransactionMarker) -> None:
        self._read()
        self.model.sent(marker, self.run.log.high_watermark(0))

    def _read(self) -> None:
        for record in self.run.log.records(first=self.model.end_offset):
            self.model.read(record, self.run.clock.now_ms())
            self._loaded.replay(record)

    def _check(self) -> None:
        self._read()
        for answers, answered in self._waiting:
            assert len(answers) <= 1, "answered twice"
            for answer in answers:
                answered(answer)
        self._waiting = [each for each in self._waiting if not each[0]]
        self.run.coordinator.runtime.partitions.check_invariants()
        live, at = self.run.coordinator.runtime.partitions.read(0)
        found = {name: self._stored(each) for name, each in live.transactions.items()}
        expected = {name: self._stored(each) for name, each in self._loaded.transactions.items()}
        assert found == expected, f"{found}, but a load finds {expected}"
        assert at == self.run.log.high_watermark(0)

    def _stored(self, known: Transaction) -> Transaction:
        """A transaction without what is not in the log, and with its partitions in no order."""
        stored = replace(
            known,
            partitions=tuple(sorted(known.partitions)),
            last_producer_epoch=-1,
            has_failed_epoch_fence=False,
            producer_epoch=known.producer_epoch - known.has_failed_epoch_fence,
        )
        if self.run.version == 0:
            stored = replace(stored, prev_producer_id=-1, next_producer_id=-1)
        return stored

    def _settle(self) -> None:
        """Lets everything that is open end, and expire."""
        run = self.run
        run.log.fails_with, run.log.is_replicated = None, False
        run.commit_log()
        run.restart()
        self._check()
        assert self._waiting == [], "a request was not answered"
        run.host.timers.advance(max(_TIMEOUTS_MS) + 1)
        run.coordinator.maintenance.abort_timed_out()
        while run.markers.waiting:
            run.markers.write()
        self._check()
        assert all(each.state.is_at_rest for each in self.model.known.values())
        run.host.timers.advance(EXPIRATION_MS)
        run.coordinator.maintenance.expire_ids()
        self._check()
        assert self.model.known == {}


CHUNK = 25
SEEDS, SEEDS_NIGHTLY = 25, 2_000


@pytest.mark.parametrize("version", [0, 1, 2])
@pytest.mark.parametrize(
    "first",
    [
        *range(0, SEEDS, CHUNK),
        *(pytest.param(n, marks=pytest.mark.nightly) for n in range(SEEDS, SEEDS_NIGHTLY, CHUNK)),
    ],
)
def test_records_are_as_the_model_says_after_each_event(first: int, version: int) -> None:
    done: Counter[str] = Counter()
    for seed in range(first, first + CHUNK):
        schedule = Schedule(seed, version)
        schedule.play()
        done += schedule.done + Counter(removed=schedule.model.removed)
    for what in ("initialized", "added", "committed", "aborted", "restarted", "removed"):
        assert done[what] > 2 * CHUNK // 3, (what, done)
