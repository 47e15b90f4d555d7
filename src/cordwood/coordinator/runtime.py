"""Runs a coordinator's state machine over the partitions that this broker leads.

The way of an event, the same for a request, a timer and a periodic task:

1. The state machine takes the state, the event and the time, and returns effects. It changes the
   state in memory only.
2. The records are appended to the partition's log. If that fails, the state is reverted.
3. The records are replayed into the state by the function that also replays them when the partition
   is loaded.
4. The timers are set, and the tasks are started. A task is long work without the state, in slices;
   it ends with an event.
5. The answers are sent when the high watermark has passed the last record that the state depends
   on. An event without records waits too, if what it has read is not committed.

A partition is loaded from its log when this broker becomes its leader, or is first asked for it; a
large one in a thread. Until then requests are answered COORDINATOR_LOAD_IN_PROGRESS. All else
belongs to the thread that owns the broker's state.

Source: org.apache.kafka.coordinator.common.runtime.CoordinatorRuntime (4.3); KIP-848.
Differs: each event's records are one batch, appended at once (Kafka's
`group.coordinator.append.linger.ms` collects those of several events).
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Collection, Hashable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, Generic, NamedTuple, Protocol, TypeVar, cast

from cordwood.coordinator.deferred_answers import DeferredAnswerQueue, DeferredAnswers
from cordwood.coordinator.effects import (
    Answer,
    Effects,
    ReplyTo,
    SetTimer,
    StartTask,
    TransactionalProducer,
)
from cordwood.coordinator.timeline import Timeline
from cordwood.coordinator.timers import Timers
from cordwood.format.java_map import ConcurrentHashMapKeys
from cordwood.model.clock import Clock
from cordwood.model.errors import CordwoodError
from cordwood.model.kafka_errors import (
    CoordinatorLoadInProgressError,
    KafkaError,
    NotCoordinatorError,
    RequestTimedOutError,
)
from cordwood.model.pauses import in_steps, is_pausing, running
from cordwood.model.timers import Timer
from cordwood.model.topic_partition import TopicPartition

_BATCH_KEY_BYTES_MAX = 256 * 1024
_ENCODED_AT_ONCE = 16
_LOADED_AT_ONCE_BYTES = 64 * 1024
_LOAD_TIMES_MAX = 10_000

_LOG = logging.getLogger(__name__)


class CoordinatorEvent(Protocol):
    """Something that happens to a coordinator's state."""

    @property
    def reply_to(self) -> ReplyTo[Any] | None:
        """Where the answer to the request goes; None if the event is no request."""

    @property
    def is_long(self) -> bool:
        """Whether it may have so many records that they are encoded in slices."""


EncodedRecord = tuple[bytes, bytes | None]
"""A record's key and value as the log has them; no value makes it a tombstone."""


S = TypeVar("S")
E = TypeVar("E", bound=CoordinatorEvent)
R = TypeVar("R", bound=Hashable)
S_contra = TypeVar("S_contra", contravariant=True)
R_contra = TypeVar("R_contra", contravariant=True)


class StateMachine(Protocol[S, E, R]):
    """The transitions of a coordinator's state. It does no I/O; its only clock is `now_ms`."""

    def new_state(self, partition: int, timeline: Timeline, /) -> S:
        """The state of a partition without records."""

    def handle(self, state: S, event: E, now_ms: int, /) -> Effects[R]:
        """Changes the state, and returns what follows."""

    def replay(
        self, state: S, records: Sequence[R], first_offset: int, producer_id: int, /
    ) -> None:
        """Applies records that follow each other in the log, -1 outside of transactions."""

    def end_transaction(self, state: S, producer_id: int, /, *, commit: bool) -> None:
        """Applies a transaction marker that is in the log."""

    def on_loaded(self, state: S, now_ms: int, /) -> Sequence[E]:
        """Events that happen when a partition has been loaded."""

    def on_unloaded(self, state: S, /) -> Sequence[Answer]:
        """The answers of requests that wait in the state."""


class Appended(NamedTuple):
    """The offsets of an appended batch."""

    first_offset: int
    end_offset: int
    high_watermark: int


class LoadTime(NamedTuple):
    """How long the load of a partition took, and when it ended, by the monotonic clock."""

    ended_s: float
    duration_ms: float


class PartitionLoader(Protocol[S_contra]):
    """Reads the records of one partition."""

    @property
    def size_bytes(self) -> int:
        """The size of the log that has to be read."""

    def load(self, state: S_contra, timeline: Timeline, /) -> int:
        """Replays all records and returns the log end offset.

        Raises:
            CordwoodError, OSError: the log cannot be read.
        """


class CoordinatorLog(Protocol[S_contra, R_contra]):
    """The topic that a coordinator's records are in."""

    @property
    def topic(self) -> str:
        """Its name."""

    @property
    def contents(self) -> str:
        """The kind of its records for log lines, such as "groups"."""

    def partitions(self) -> Collection[int]:
        """The partitions of the topic; none if there is no such topic."""

    def loader(self, partition: int, /) -> PartitionLoader[S_contra]:
        """Reads a partition that is led here; raises KafkaError for another."""

    def encode(self, records: Sequence[R_contra], /) -> list[EncodedRecord]:
        """The bytes of records; raises KafkaError if a value does not fit."""

    def append(
        self,
        partition: int,
        records: Sequence[EncodedRecord],
        now_ms: int,
        producer: TransactionalProducer | None,
        /,
    ) -> Appended:
        """Appends a batch; raises KafkaError, with the code that clients of the API are given."""

    def append_marker(self, partition: int, batch: bytes, transaction_version: int, /) -> Appended:
        """Appends the batch of a transaction marker; raises KafkaError."""

    def high_watermark(self, partition: int, /) -> int:
        """The offset below which records are committed."""


class RuntimeHost(Protocol):
    """The functions of the process that a runtime uses."""

    @property
    def clock(self) -> Clock:
        """The time of records, and when offsets expire."""

    def call_soon(self, run: Callable[[], object], /) -> object:
        """From any thread: calls a function on the thread that owns the broker's state."""

    def call_later_ms(self, delay_ms: int, run: Callable[[], object], /) -> Timer:
        """Schedules a function on that thread after `delay_ms` of wall-clock time."""

    def after_input(self, run: Callable[[], None], /) -> None:
        """Calls a function when the requests that have arrived by now have been read."""

    def run_in_slices(self, run: Callable[[], object], /) -> object:
        """Calls a function later, whose pauses let other work come first; logs its error."""


class _Partition(Generic[S]):
    """A partition that is loaded."""

    def __init__(self, index: int, state: S, timeline: Timeline, timers: Timers) -> None:
        self.index = index
        self.state = state
        self.timeline = timeline
        self.timers = timers
        self.tasks: set[Hashable] = set()
        self.deferred = DeferredAnswerQueue()
        self.last_written = 0
        self.committed = 0


class CoordinatorRuntime(Generic[S, E, R]):
    """The partitions of a coordinator's topic: loaded, being loaded, or failed.

    Invariant: a partition is in one of `_active`, `_loading` and `_failed`, or in none; except one
    that was resigned while it was being loaded.
    """

    def __init__(
        self,
        machine: StateMachine[S, E, R],
        log: CoordinatorLog[S, R],
        host: RuntimeHost,
        *,
        write_timeout_ms: int,
    ) -> None:
        """Nothing is loaded yet.

        Args:
            machine: what happens to the state.
            log: where its records are.
            host: time, and the thread that owns the state.
            write_timeout_ms: how long an answer waits until its records are committed.

        `load_times` has those of the last loads, the newest last.
        """
        self._machine = machine
        self._log = log
        self._host = host
        self._write_timeout_ms = write_timeout_ms
        self._active: dict[int, _Partition[S]] = {}
        #: All that were led here since the last `resign` of each, in the order of Kafka's map.
        self._led: ConcurrentHashMapKeys[TopicPartition] = ConcurrentHashMapKeys()
        #: The number of the load of each partition that is being loaded.
        self._loading: dict[int, int] = {}
        self._loads = 0
        self._failed: set[int] = set()
        self._pending_loads: list[tuple[set[int], Callable[[], None]]] = []
        self._load_thread: ThreadPoolExecutor | None = None
        self.load_times: deque[LoadTime] = deque(maxlen=_LOAD_TIMES_MAX)
        # Loads that began under a smaller number are of partitions that were unloaded since.

    # ---- events

    def write(self, partition: int, event: E) -> None:
        """Handles an event; a request is refused if the partition is not loaded."""
        try:
            active = self._require_active(partition)
            now_ms = self._host.clock.now_ms()
            encoded: Mapping[R, EncodedRecord] = {}
            if event.is_long and is_pausing():
                encoded = self._encode_ahead(active, event, now_ms)
                active = self._require_active(partition)  # it may be unloaded during a pause
        except KafkaError as error:
            _refuse(event, error)
        else:
            self._handle(active, event, now_ms, encoded)

    def _encode_ahead(
        self, active: _Partition[S], event: E, now_ms: int
    ) -> Mapping[R, EncodedRecord]:
        """The records of an event, encoded with pauses in which other events may come first.

        The event is handled for its records only, and again after the last pause: then the records
        that are still wanted are already encoded.
        """
        active.timeline.begin()
        try:
            records = self._machine.handle(active.state, event, now_ms).records
        finally:
            active.timeline.revert()
        encoded: dict[R, EncodedRecord] = {}
        for start in in_steps(range(0, len(records), _ENCODED_AT_ONCE)):
            few = records[start : start + _ENCODED_AT_ONCE]
            encoded.update(zip(few, self._log.encode(few), strict=True))
        return encoded

    def _handle(
        self,
        active: _Partition[S],
        event: E,
        now_ms: int,
        encoded: Mapping[R, EncodedRecord] | None = None,
    ) -> bool:
        """Handles one event from beginning to end, without a pause.

        Returns whether it took effect: its records were appended, or it keeps its state.
        """
        if is_pausing():
            # The codec of messages pauses in long lists: no other event may see an open change.
            with running(None):
                return self._handle(active, event, now_ms, encoded)
        effects, error = self._apply(active, event, now_ms, encoded or {})
        if error is None:
            self._set_timers(active, effects)
            self._start_tasks(active, effects)
            self._answer(active, effects)
        elif effects.on_failure is None:
            _refuse(event, error)
        else:
            self._handle_failure(active, effects.on_failure(error), now_ms)
        return error is None

    def _handle_failure(self, active: _Partition[S], event: object, now_ms: int) -> None:
        """The event that follows a failure. Its answers are errors, which depend on no record."""
        effects, error = self._apply(active, cast("E", event), now_ms, {})
        if error is not None:  # it is refused again, and not endlessly
            _refuse(cast("E", event), error)
            return
        self._set_timers(active, effects)
        self._start_tasks(active, effects)
        for reply_to, value in effects.answers:
            reply_to.send(value)

    def _apply(
        self,
        active: _Partition[S],
        event: E,
        now_ms: int,
        encoded: Mapping[R, EncodedRecord],
    ) -> tuple[Effects[R], KafkaError | None]:
        """The effects of an event, and the error with which its changes were reverted, if any."""
        timeline = active.timeline
        timeline.begin()
        try:
            effects = self._machine.handle(active.state, event, now_ms)
            try:
                self._append(active, effects, now_ms, encoded)
            except KafkaError as error:
                if not effects.keeps_state:
                    timeline.revert()
                    return effects, error
                self._end_change(active, active.last_written)
        except BaseException:
            if timeline.is_changing:
                timeline.revert()
            raise
        if effects.on_applied is not None:
            effects.on_applied()
        return effects, None

    def _append(
        self,
        active: _Partition[S],
        effects: Effects[R],
        now_ms: int,
        encoded: Mapping[R, EncodedRecord],
    ) -> None:
        """Appends and replays the records of the open change, and closes the change.

        Raises:
            KafkaError: the records were not appended; the change is still open.
        """
        records = effects.records
        if not records:
            self._end_change(active, active.last_written)
            return
        made = self._encoded(records, encoded)
        if effects.is_atomic:
            self._append_batch(active, records, made, now_ms, effects.producer)
            return
        for start, end in _parts(made):
            if start:
                active.timeline.begin()
            self._append_batch(active, records[start:end], made[start:end], now_ms, None)

    def _encoded(
        self, records: Sequence[R], encoded: Mapping[R, EncodedRecord]
    ) -> list[EncodedRecord]:
        """The bytes of records, of which `encoded` has those that are encoded already."""
        if not encoded:
            return self._log.encode(records)
        missing = [each for each in records if each not in encoded]
        rest = dict(zip(missing, self._log.encode(missing), strict=True))
        return [encoded.get(each) or rest[each] for each in records]

    def _append_batch(
        self,
        active: _Partition[S],
        records: Sequence[R],
        made: Sequence[EncodedRecord],
        now_ms: int,
        producer: TransactionalProducer | None,
    ) -> None:
        """Appends and replays a batch, and closes the open change."""
        first_offset, end_offset, high_watermark = self._log.append(
            active.index, made, now_ms, producer
        )
        is_committed = end_offset <= high_watermark
        if is_committed:
            active.timeline.settle()
        producer_id = -1 if producer is None else producer.producer_id
        self._machine.replay(active.state, records, first_offset, producer_id)
        if is_committed:
            active.last_written = end_offset
        else:
            self._end_change(active, end_offset)
        self._advance(active, high_watermark)

    def complete_transaction(
        self,
        partition: int,
        batch: bytes,
        producer_id: int,
        *,
        commit: bool,
        transaction_version: int,
    ) -> Appended:
        """Appends a transaction marker and applies it.

        Raises:
            KafkaError: the partition is not loaded, or the marker cannot be appended.
        """
        active = self._require_active(partition)
        appended = self._log.append_marker(partition, batch, transaction_version)
        active.timeline.begin()
        self._machine.end_transaction(active.state, producer_id, commit=commit)
        self._end_change(active, appended.end_offset)
        self._advance(active, appended.high_watermark)
        return appended

    @staticmethod
    def _end_change(active: _Partition[S], end_offset: int) -> None:
        active.last_written = end_offset
        active.timeline.end(end_offset)
        active.timeline.commit(active.committed)

    def _set_timers(self, active: _Partition[S], effects: Effects[R]) -> None:
        for timer in effects.timers:
            if isinstance(timer, SetTimer):
                if timer.if_absent and timer.key in active.timers:
                    continue
                self._set_timer(active, timer, timer.delay_ms)
            else:
                active.timers.cancel(timer.key)

    def _set_timer(self, active: _Partition[S], timer: SetTimer, delay_ms: int) -> None:
        active.timers.set(timer.key, delay_ms, partial(self._due, active, timer))

    def _due(self, active: _Partition[S], timer: SetTimer) -> None:
        """Handles a timer's event. The timers of a partition are cancelled when it is unloaded.

        Source: CoordinatorTimerImpl.schedule.
        """
        took_effect = self._handle(active, cast("E", timer.event), self._host.clock.now_ms())
        if not took_effect and timer.retry_ms is not None:
            self._set_timer(active, timer, timer.retry_ms)

    def _start_tasks(self, active: _Partition[S], effects: Effects[R]) -> None:
        for task in effects.tasks:
            if task.key not in active.tasks:
                active.tasks.add(task.key)
                self._host.run_in_slices(partial(self._run_task, active, task))

    def _run_task(self, active: _Partition[S], task: StartTask) -> None:
        """Runs a task, and handles its event unless the partition was unloaded meanwhile.

        Source: CoordinatorExecutorImpl.schedule.
        """
        try:
            event = task.run(self._host.clock.now_ms())
        finally:
            active.tasks.discard(task.key)
        if self._active.get(active.index) is active:
            self._handle(active, cast("E", event), self._host.clock.now_ms())

    # ---- answers

    def _answer(self, active: _Partition[S], effects: Effects[R]) -> None:
        """Sends the answers of an event, or has them wait. Sending one may cause another event."""
        offset = active.last_written
        is_committed = offset <= active.committed
        if is_committed or not effects.answers_wait:
            assert is_committed or not effects.when_committed, "their event must have waited"
            for reply_to, value in (*effects.answers, *effects.when_committed):
                reply_to.send(value)
            return
        if effects.answers:
            deferred = DeferredAnswers(offset, effects.answers)
            timeout_ms = effects.write_timeout_ms
            deferred.timeout = self._host.call_later_ms(
                self._write_timeout_ms if timeout_ms is None else timeout_ms,
                partial(self._time_out, active, deferred),
            )
            active.deferred.add(deferred)
        if effects.when_committed:
            active.deferred.add(DeferredAnswers(offset, effects.when_committed))

    def await_commit(self, partition: int, answer: Answer) -> None:
        """Sends an answer when all that is written is committed; refuses it after a time.

        Source: CoordinatorRuntime.scheduleWriteOperation, of an operation without a record.
        """
        try:
            active = self._require_active(partition)
        except KafkaError as error:
            answer.reply_to.refuse(error)
        else:
            self._answer(active, Effects(answers=(answer,)))

    @staticmethod
    def _time_out(active: _Partition[S], deferred: DeferredAnswers) -> None:
        active.deferred.remove(deferred)
        deferred.refuse(RequestTimedOutError("The records were not committed in time"))

    def on_high_watermark(self, partition: int, high_watermark: int) -> None:
        """Sends the answers whose records are now committed."""
        active = self._active.get(partition)
        if active is not None:
            self._advance(active, high_watermark)

    @staticmethod
    def _advance(active: _Partition[S], high_watermark: int) -> None:
        if high_watermark > active.committed:
            active.committed = high_watermark
            active.timeline.commit(high_watermark)
            for deferred in active.deferred.take(high_watermark):
                deferred.send()

    # ---- reading

    def read(self, partition: int) -> tuple[S, int]:
        """A partition's state, and the offset up to which it is committed.

        Raises:
            CoordinatorLoadInProgressError: the partition is being loaded.
            NotCoordinatorError: this broker does not lead the partition, or cannot load it.
        """
        active = self._require_active(partition)
        return active.state, active.committed

    def read_all(self) -> list[tuple[int, S, int]]:
        """The partitions that are loaded, in Kafka's order, each as `read` gives it.

        Raises:
            CoordinatorLoadInProgressError: one is being loaded.
        """
        if self._loading:
            raise CoordinatorLoadInProgressError("A partition is being loaded")
        return self.loaded()

    def loaded(self) -> list[tuple[int, S, int]]:
        """As `read_all`, while others may be being loaded."""
        found = (self._active.get(led.partition) for led in self._led)
        return [(each.index, each.state, each.committed) for each in found if each is not None]

    def timers_of(self, kind: str) -> int:
        """How many timers are set whose key is a tuple that begins with `kind`."""
        return sum(active.timers.count_of(kind) for active in self._active.values())

    def is_active(self, partition: int) -> bool:
        """Whether a partition is loaded."""
        return partition in self._active

    def _require_active(self, partition: int) -> _Partition[S]:
        """A loaded partition; begins to load another one."""
        self._begin_load(partition)
        found = self._active.get(partition)
        if found is not None:
            return found
        if partition in self._loading:
            raise CoordinatorLoadInProgressError(f"{self._log.topic}-{partition} is being loaded")
        raise NotCoordinatorError(f"{self._log.topic}-{partition} is not led here")

    # ---- loading and unloading

    def load_all(self, then: Callable[[], None]) -> None:
        """Loads all partitions that are not loaded yet, and calls `then` when all are loaded."""
        for partition in in_steps(self._log.partitions()):
            self._begin_load(partition)
        if self._loading:
            self._pending_loads.append((set(self._loading), then))
        else:
            then()

    def elect(self, partition: int) -> None:
        """Loads a partition that this broker leads now, unless it is loaded already."""
        self._failed.discard(partition)
        self._begin_load(partition)

    def resign(self, partition: int) -> None:
        """Unloads a partition that is not led here any more; it is not loaded until `elect`.

        What a load has read that is under way is not used, also if the partition is led again
        before that ends: another leader may have written meanwhile.
        """
        self._failed.add(partition)
        self._led.discard(TopicPartition(self._log.topic, partition))
        if self._loading.pop(partition, None) is not None:
            self._loaded(partition)
        active = self._active.pop(partition, None)
        if active is not None:
            self._end(active)

    def unload(self) -> None:
        """Unloads all partitions. Pending `load_all` callbacks run immediately."""
        ended = list(self._active.values())
        pending, self._pending_loads = self._pending_loads, []
        self._active.clear()
        for led in list(self._led):
            self._led.discard(led)
        self._loading.clear()
        self._failed.clear()
        if self._load_thread is not None:
            self._load_thread.shutdown(wait=False, cancel_futures=True)
            self._load_thread = None
        for _, then in pending:
            then()
        for active in ended:
            self._end(active)

    def _end(self, active: _Partition[S]) -> None:
        """Refuses the requests that wait; nothing happens to the state any more."""
        active.timers.cancel_all()
        error = NotCoordinatorError(f"{self._log.topic}-{active.index} is not led here")
        for deferred in active.deferred.take_all():
            deferred.refuse(error)
        for reply_to, value in self._machine.on_unloaded(active.state):
            reply_to.send(value)

    def _begin_load(self, partition: int) -> None:
        if partition in self._active or partition in self._loading or partition in self._failed:
            return
        try:
            loader = self._log.loader(partition)
        except KafkaError:
            return
        self._led.add(TopicPartition(self._log.topic, partition))
        self._loads += 1
        number = self._loading[partition] = self._loads
        if loader.size_bytes <= _LOADED_AT_ONCE_BYTES:
            self._end_load(partition, number, self._load(partition, loader))
            return
        if self._load_thread is None:
            self._load_thread = ThreadPoolExecutor(1, thread_name_prefix="coordinator-load")
        self._load_thread.submit(self._load_in_thread, partition, number, loader)

    def _load_in_thread(self, partition: int, number: int, loader: PartitionLoader[S]) -> None:
        loaded = self._load(partition, loader)
        self._host.call_soon(partial(self._end_load, partition, number, loaded))

    def _load(self, partition: int, loader: PartitionLoader[S]) -> _Partition[S] | None:
        """A partition's state; None if its log cannot be read, which is logged."""
        log, timeline, clock = self._log, Timeline(), self._host.clock
        state = self._machine.new_state(partition, timeline)
        begun_s = clock.monotonic_s()
        try:
            end_offset = loader.load(state, timeline)
        except (CordwoodError, OSError) as error:
            _LOG.error("Cannot load the %s of %s-%d: %s", log.contents, log.topic, partition, error)
            return None
        except Exception:  # otherwise clients would be answered forever that it is being loaded
            _LOG.exception("Cannot load the %s of %s-%d", log.contents, log.topic, partition)
            return None
        ended_s = clock.monotonic_s()
        self.load_times.append(LoadTime(ended_s, 1000 * (ended_s - begun_s)))
        timers = Timers(self._host.call_later_ms, self._host.after_input)
        loaded = _Partition(partition, state, timeline, timers)
        loaded.last_written = end_offset
        return loaded

    def _end_load(self, partition: int, number: int, loaded: _Partition[S] | None) -> None:
        if self._loading.get(partition) != number:
            return  # it was resigned, or all were unloaded
        del self._loading[partition]
        if loaded is None:
            self._failed.add(partition)
        else:
            self._activate(loaded)
        self._loaded(partition)

    def _loaded(self, partition: int) -> None:
        """Calls those that wait for the last load."""
        ready = []
        for waits_for, then in self._pending_loads:
            waits_for.discard(partition)
            if not waits_for:
                ready.append(then)
        self._pending_loads = [each for each in self._pending_loads if each[0]]
        for then in ready:
            then()

    def _activate(self, loaded: _Partition[S]) -> None:
        self._active[loaded.index] = loaded
        try:
            self._advance(loaded, self._log.high_watermark(loaded.index))
            now_ms = self._host.clock.now_ms()
            for event in self._machine.on_loaded(loaded.state, now_ms):
                self._handle(loaded, event, now_ms)
        except Exception:  # requests that wait for the load must be answered
            _LOG.exception(
                "Cannot resume the %s of %s-%d", self._log.contents, self._log.topic, loaded.index
            )


def _refuse(event: CoordinatorEvent, error: KafkaError) -> None:
    if event.reply_to is not None:
        event.reply_to.refuse(error)


def _parts(made: Sequence[EncodedRecord]) -> Iterator[tuple[int, int]]:
    """The ranges of records that any log accepts as a batch, by the size of their keys."""
    start, size_bytes = 0, 0
    for end, (key, _) in enumerate(made, start=1):
        size_bytes += len(key)
        if size_bytes >= _BATCH_KEY_BYTES_MAX or end == len(made):
            yield start, end
            start, size_bytes = end, 0
