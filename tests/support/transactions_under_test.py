"""A transaction coordinator for a test: a log in memory, clock, timers and markers in its hand."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import replace
from typing import Any, NamedTuple, TypeVar

from cordwood.coordinator.effects import TransactionalProducer
from cordwood.coordinator.log import Appended, EncodedRecord
from cordwood.coordinator.timeline import Timeline
from cordwood.coordinator.timers import at_once
from cordwood.coordinator.transaction import records
from cordwood.coordinator.transaction.errors import error_of_append
from cordwood.coordinator.transaction.markers import TransactionMarker
from cordwood.coordinator.transaction.records import TransactionRecord
from cordwood.coordinator.transaction.requests import (
    EndAnswer,
    EndRequest,
    InitProducerIdAnswer,
    InitProducerIdRequest,
)
from cordwood.coordinator.transaction.service import TransactionCoordinator
from cordwood.coordinator.transaction.settings import TransactionSettings
from cordwood.coordinator.transaction.shard import TransactionShard
from cordwood.coordinator.transaction.transaction import Transaction
from cordwood.model.kafka_errors import KafkaError, NotLeaderOrFollowerError
from cordwood.model.topic_names import TRANSACTION_STATE_TOPIC
from cordwood.model.topic_partition import TopicPartition
from cordwood.testing.manual_clock import ManualClock
from support.groups_under_test import ManualTimer, ManualTimers

A = TypeVar("A")


class AppendFailure(KafkaError):
    """An append that a test has fail, with the code that clients are answered."""

    def __init__(self, code: int) -> None:
        super().__init__("the append fails")
        self.code = code
        self.code = error_of_append(self)


class MemoryLog:
    """`TransactionStateLog` in memory: records as bytes.

    `fails_with` is the code with which appends fail. With `is_replicated`, records are committed
    when the test says so.
    """

    topic = TRANSACTION_STATE_TOPIC
    contents = "transactions"

    def __init__(self, partitions: int = 1) -> None:
        self.batches: dict[int, list[list[EncodedRecord]]] = {n: [] for n in range(partitions)}
        self.high_watermarks = dict.fromkeys(range(partitions), 0)
        self.epoch = 4
        self.fails_with: int | None = None
        self.is_replicated = False
        self.led: Collection[int] = range(partitions)

    def partitions(self) -> Collection[int]:
        """The partitions of the topic."""
        return self.batches.keys()

    def loader(self, partition: int) -> _Loader:
        """Reads a partition."""
        self._require_led(partition)
        return _Loader(self, partition)

    def _require_led(self, partition: int) -> None:
        if partition not in self.led:
            raise NotLeaderOrFollowerError("it is led elsewhere")

    def encode(self, new: Sequence[TransactionRecord]) -> list[EncodedRecord]:
        """The bytes of records."""
        return [records.encode(record) for record in new]

    def append(
        self,
        partition: int,
        made: Sequence[EncodedRecord],
        _now_ms: int,
        _producer: TransactionalProducer | None,
    ) -> Appended:
        """Appends a batch, which is committed at once unless `is_replicated`."""
        if self.fails_with is not None:
            raise AppendFailure(self.fails_with)
        first = self.end_offset(partition)
        self.batches[partition].append(list(made))
        end = self.end_offset(partition)
        if not self.is_replicated:
            self.high_watermarks[partition] = end
        return Appended(first, end, self.high_watermarks[partition])

    def append_marker(self, _partition: int, _batch: bytes, _version: int) -> Appended:
        """Transactions have no records here."""
        raise AssertionError

    def end_offset(self, partition: int) -> int:
        """The log end offset."""
        return sum(map(len, self.batches[partition]))

    def high_watermark(self, partition: int) -> int:
        """The offset below which records are committed."""
        return self.high_watermarks[partition]

    def leader_epoch(self, partition: int) -> int:
        """The leader epoch."""
        self._require_led(partition)
        return self.epoch

    def records(self, partition: int = 0, *, first: int = 0) -> list[TransactionRecord]:
        """All records from an offset on."""
        stored = [each for batch in self.batches[partition] for each in batch]
        return [records.decode(*each) for each in stored[first:]]


class _Loader(NamedTuple):
    log: MemoryLog
    partition: int
    size_bytes: int = 0

    def load(self, state: TransactionShard, timeline: Timeline) -> int:
        """Replays all records."""
        offset = 0
        for batch in self.log.batches[self.partition]:
            offset += len(batch)
            is_committed = offset <= self.log.high_watermarks[self.partition]
            if not is_committed:
                timeline.begin()
            for each in batch:
                state.replay(records.decode(*each))
            if not is_committed:
                timeline.end(offset)
        return offset


class Host:
    """`TransactionHost` whose periodic tasks are run by the test."""

    def __init__(self) -> None:
        self.clock = ManualClock(1_000_000)
        self.timers = ManualTimers(self.clock)
        self.call_later_ms = self.timers.call_later_ms
        self.after_input = at_once
        self.tasks: dict[str, tuple[int, Callable[[], object]]] = {}
        self._soon: list[Callable[[], object]] = []
        self._is_running = False

    def call_soon(self, run: Callable[[], object]) -> None:
        """Calls a function after those that are running."""
        self._soon.append(run)
        if self._is_running:
            return
        self._is_running = True
        while self._soon:
            self._soon.pop(0)()
        self._is_running = False

    def run_in_slices(self, run: Callable[[], object]) -> None:
        """Calls a function at once."""
        run()

    def schedule(self, name: str, period_ms: int, run: Callable[[], object]) -> ManualTimer:
        """Notes the period."""
        self.tasks[name] = period_ms, run
        return ManualTimer(run)


class Sent(NamedTuple):
    """A marker, the partitions it is for, and what to call when they have it."""

    state_partition: int
    marker: TransactionMarker
    partitions: tuple[TopicPartition, ...]
    done: Callable[[], None]


class Markers:
    """`MarkerSender` whose markers are written when the test says so."""

    def __init__(self) -> None:
        self.sent: list[Sent] = []
        self.waiting: list[Sent] = []
        self.cancelled: list[int] = []

    def send(
        self,
        state_partition: int,
        marker: TransactionMarker,
        partitions: Sequence[TopicPartition],
        done: Callable[[], None],
    ) -> None:
        """Keeps the markers until `write`."""
        sent = Sent(state_partition, marker, tuple(partitions), done)
        self.sent.append(sent)
        self.waiting.append(sent)

    def cancel(self, state_partition: int) -> None:
        """Forgets the markers of a partition."""
        self.cancelled.append(state_partition)
        self.waiting = [each for each in self.waiting if each.state_partition != state_partition]

    def write(self, index: int = 0) -> None:
        """The partitions have the markers that were sent first, or have waited `index` others."""
        self.waiting.pop(index).done()


class ProducerIds:
    """`ProducerIdSource` of ids from 1,000 on."""

    def __init__(self) -> None:
        self.next_id = 1_000
        self.fails_with: KafkaError | None = None
        self.waiting: list[Callable[[], object]] = []
        self.is_slow = False

    def draw(self, then: Callable[[int | KafkaError], object]) -> None:
        """Gives an id at once, or at `deliver`."""

        def give() -> None:
            if self.fails_with is not None:
                then(self.fails_with)
                return
            self.next_id += 1
            then(self.next_id - 1)

        self.waiting.append(give)
        if not self.is_slow:
            self.deliver()

    def deliver(self) -> None:
        """Gives the id that was asked for first."""
        self.waiting.pop(0)()


class TransactionRun:
    """A coordinator, and clients that ask it by short calls.

    Answers are error codes, or (error code, producer id, producer epoch); None while they wait.
    """

    def __init__(
        self,
        log: MemoryLog | None = None,
        *,
        version: int = 2,
        markers: Markers | None = None,
        **settings: Any,
    ) -> None:
        self.log = log or MemoryLog()
        self.host = Host()
        self.clock = self.host.clock
        self.markers = markers or Markers()
        self.ids = ProducerIds()
        self.version = version
        self.coordinator = TransactionCoordinator(
            self.log,
            self.host,
            TransactionSettings(**settings),
            version=lambda: self.version,
            producer_ids=self.ids,
            markers=self.markers,
        )
        self.coordinator.start()

    def init_later(
        self, transactional_id: str | None = "x", *, timeout_ms: int = 60_000, **fields: Any
    ) -> list[InitProducerIdAnswer]:
        """Sends InitProducerId; the list has the answer when it is there."""
        answers: list[InitProducerIdAnswer] = []
        request = InitProducerIdRequest(
            transactional_id=transactional_id, timeout_ms=timeout_ms, **fields
        )
        self.coordinator.init_producer_id(request, answers.append)
        return answers

    def init(self, transactional_id: str | None = "x", **fields: Any) -> InitProducerIdAnswer:
        """The answer to InitProducerId, which is given at once."""
        return only(self.init_later(transactional_id, **fields))

    def add_later(
        self,
        producer_id: int,
        producer_epoch: int,
        partitions: Iterable[TopicPartition] = (),
        *,
        transactional_id: str = "x",
        version: int | None = None,
    ) -> list[int]:
        """Adds partitions; the list has the error code when it is there."""
        codes: list[int] = []
        self.coordinator.add_partitions(
            transactional_id,
            producer_id,
            producer_epoch,
            tuple(partitions) or (TopicPartition("t", 0),),
            self.version if version is None else version,
            codes.append,
        )
        return codes

    def add(self, producer_id: int, producer_epoch: int, *names: str, **fields: Any) -> int:
        """The answer to AddPartitionsToTxn for partitions by name, `t-0` without names."""
        partitions = map(TopicPartition.parse, names)
        return only(self.add_later(producer_id, producer_epoch, partitions, **fields))

    def end_later(
        self,
        producer_id: int,
        producer_epoch: int,
        *,
        commit: bool = True,
        transactional_id: str = "x",
        version: int | None = None,
    ) -> list[EndAnswer]:
        """Sends EndTxn; the list has the answer when it is there."""
        answers: list[EndAnswer] = []
        request = EndRequest(
            transactional_id=transactional_id,
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            commit=commit,
            client_version=self.version if version is None else version,
        )
        self.coordinator.end(request, answers.append)
        return answers

    def end(self, producer_id: int, producer_epoch: int, **fields: Any) -> EndAnswer:
        """The answer to EndTxn, which is given at once."""
        return only(self.end_later(producer_id, producer_epoch, **fields))

    def commit_log(self, partition: int = 0) -> None:
        """Advances the high watermark to the log's end."""
        self.log.high_watermarks[partition] = self.log.end_offset(partition)
        self.coordinator.runtime.on_high_watermark(partition, self.log.high_watermarks[partition])

    def known(self, transactional_id: str = "x") -> Transaction | None:
        """The last record of a transactional id; None if there is none, or a tombstone."""
        partition = self.coordinator.partition_for(transactional_id).partition
        found = [
            each
            for each in self.log.records(partition)
            if each.transactional_id == transactional_id
        ]
        return found[-1].transaction if found else None

    def state(self, transactional_id: str = "x") -> str:
        """The state in DescribeTransactions."""
        return self.coordinator.describe(transactional_id).state

    def put(self, transaction: Transaction, partition: int = 0) -> None:
        """Has a transaction be in the log, as another coordinator has written it; loads again."""
        version = records.value_version_of(self.version)
        record = TransactionRecord(transaction.transactional_id, transaction, version)
        self.log.append(partition, self.log.encode([record]), 0, None)
        self.restart()

    def restart(self) -> None:
        """Ends the coordinator, and starts the one that follows it over the same log."""
        self.coordinator.close()
        self.coordinator = TransactionCoordinator(
            self.log,
            self.host,
            self.coordinator.settings,
            version=lambda: self.version,
            producer_ids=self.ids,
            markers=self.markers,
        )
        self.coordinator.start()


def transaction(**fields: Any) -> Transaction:
    """A transaction of `x` with producer 7, at epoch 3."""
    plain = Transaction(
        transactional_id="x",
        producer_id=7,
        prev_producer_id=7,
        producer_epoch=3,
        timeout_ms=60_000,
        update_ms=1_000_000,
    )
    return replace(plain, **fields)


def only(answers: Sequence[A]) -> A:
    """The answer to a request that is answered at once."""
    (answer,) = answers
    return answer
