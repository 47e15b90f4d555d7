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

`cordwood.coordinator.led_partitions` loads and unloads the partitions.

Source: org.apache.kafka.coordinator.common.runtime.CoordinatorRuntime (4.3); KIP-848.
Differs: each event's records are one batch, appended at once (Kafka's
`group.coordinator.append.linger.ms` collects those of several events).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from functools import partial
from typing import Generic, Protocol, TypeVar, cast

from cordwood.coordinator.deferred_answers import DeferredAnswers
from cordwood.coordinator.effects import (
    Answer,
    Effects,
    SetTimer,
    StartTask,
    TransactionalProducer,
)
from cordwood.coordinator.events import CoordinatorEvent
from cordwood.coordinator.led_partitions import (
    LedPartitions,
    LoadedPartition,
    PartitionState,
    RuntimeHost,
)
from cordwood.coordinator.log import Appended, CoordinatorLog, EncodedRecord
from cordwood.coordinator.timeline import Timeline
from cordwood.model.kafka_errors import KafkaError, NotCoordinatorError, RequestTimedOutError
from cordwood.model.pauses import in_steps, is_pausing, running

_BATCH_KEY_BYTES_MAX = 256 * 1024
_ENCODED_AT_ONCE = 16

_LOG = logging.getLogger(__name__)

S = TypeVar("S", bound=PartitionState)
E = TypeVar("E", bound=CoordinatorEvent)
R = TypeVar("R", bound=Hashable)


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


class CoordinatorRuntime(Generic[S, E, R]):
    """Handles the events of a coordinator's partitions; `partitions` has those that are led."""

    def __init__(
        self,
        machine: StateMachine[S, E, R],
        log: CoordinatorLog[S, R],
        host: RuntimeHost,
        *,
        write_timeout_ms: int,
        topic_partitions: int,
        reloads: bool = False,
        on_unloaded: Callable[[int], object] | None = None,
    ) -> None:
        """Creates an object without a loaded partition.

        Args:
            machine: what happens to the state.
            log: where its records are.
            host: time, and the thread that owns the state.
            write_timeout_ms: how long an answer waits until its records are committed.
            topic_partitions: the number of partitions of the topic when it is created.
            reloads: whether a loaded partition is loaded again in a new leader epoch.
            on_unloaded: called with the number of a partition that is not loaded any more.
        """
        self._machine = machine
        self._log = log
        self._host = host
        self._write_timeout_ms = write_timeout_ms
        self._on_unloaded = on_unloaded
        self.partitions: LedPartitions[S] = LedPartitions(
            log,
            host,
            topic_partitions=topic_partitions,
            new_state=machine.new_state,
            on_loaded=self._resume,
            on_unloaded=self._end,
            reloads=reloads,
        )

    # ---- events

    def write(self, partition: int, event: E) -> None:
        """Handles an event; a request is refused if the partition is not loaded."""
        try:
            active = self.partitions.require(partition)
            now_ms = self._host.clock.now_ms()
            encoded: Mapping[R, EncodedRecord] = {}
            if event.is_long and is_pausing():
                encoded = self._encode_ahead(active, event, now_ms)
                active = self.partitions.require(partition)  # it may be unloaded during a pause
        except KafkaError as error:
            _refuse(event, error)
        else:
            self._handle(active, event, now_ms, encoded)

    def _encode_ahead(
        self, active: LoadedPartition[S], event: E, now_ms: int
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
        active: LoadedPartition[S],
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

    def _handle_failure(self, active: LoadedPartition[S], event: object, now_ms: int) -> None:
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
        active: LoadedPartition[S],
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
        active: LoadedPartition[S],
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
        active: LoadedPartition[S],
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
        active = self.partitions.require(partition)
        appended = self._log.append_marker(partition, batch, transaction_version)
        active.timeline.begin()
        self._machine.end_transaction(active.state, producer_id, commit=commit)
        self._end_change(active, appended.end_offset)
        self._advance(active, appended.high_watermark)
        return appended

    @staticmethod
    def _end_change(active: LoadedPartition[S], end_offset: int) -> None:
        active.last_written = end_offset
        active.timeline.end(end_offset)
        active.timeline.commit(active.committed)

    def _set_timers(self, active: LoadedPartition[S], effects: Effects[R]) -> None:
        for timer in effects.timers:
            if isinstance(timer, SetTimer):
                if timer.if_absent and timer.key in active.timers:
                    continue
                self._set_timer(active, timer, timer.delay_ms)
            else:
                active.timers.cancel(timer.key)

    def _set_timer(self, active: LoadedPartition[S], timer: SetTimer, delay_ms: int) -> None:
        active.timers.set(timer.key, delay_ms, partial(self._due, active, timer))

    def _due(self, active: LoadedPartition[S], timer: SetTimer) -> None:
        """Handles a timer's event. The timers of a partition are cancelled when it is unloaded.

        Source: CoordinatorTimerImpl.schedule.
        """
        took_effect = self._handle(active, cast("E", timer.event), self._host.clock.now_ms())
        if not took_effect and timer.retry_ms is not None:
            self._set_timer(active, timer, timer.retry_ms)

    def _start_tasks(self, active: LoadedPartition[S], effects: Effects[R]) -> None:
        for task in effects.tasks:
            if task.key not in active.tasks:
                active.tasks.add(task.key)
                self._host.run_in_slices(partial(self._run_task, active, task))

    def _run_task(self, active: LoadedPartition[S], task: StartTask) -> None:
        """Runs a task, and handles its event unless the partition was unloaded meanwhile.

        Source: CoordinatorExecutorImpl.schedule.
        """
        try:
            event = task.run(self._host.clock.now_ms())
        finally:
            active.tasks.discard(task.key)
        if self.partitions.active(active.index) is active:
            self._handle(active, cast("E", event), self._host.clock.now_ms())

    # ---- answers

    def _answer(self, active: LoadedPartition[S], effects: Effects[R]) -> None:
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
            active = self.partitions.require(partition)
        except KafkaError as error:
            answer.reply_to.refuse(error)
        else:
            self._answer(active, Effects(answers=(answer,)))

    @staticmethod
    def _time_out(active: LoadedPartition[S], deferred: DeferredAnswers) -> None:
        active.deferred.remove(deferred)
        deferred.refuse(RequestTimedOutError("The records were not committed in time"))

    def on_high_watermark(self, partition: int, high_watermark: int) -> None:
        """Sends the answers whose records are now committed."""
        active = self.partitions.active(partition)
        if active is not None:
            self._advance(active, high_watermark)

    @staticmethod
    def _advance(active: LoadedPartition[S], high_watermark: int) -> None:
        if high_watermark > active.committed:
            active.committed = high_watermark
            active.timeline.commit(high_watermark)
            for deferred in active.deferred.take(high_watermark):
                deferred.send()

    # ---- loading and unloading

    def _resume(self, loaded: LoadedPartition[S]) -> None:
        """Handles the events with which a partition begins that was loaded."""
        try:
            self._advance(loaded, self._log.high_watermark(loaded.index))
            now_ms = self._host.clock.now_ms()
            for event in self._machine.on_loaded(loaded.state, now_ms):
                self._handle(loaded, event, now_ms)
        except Exception:  # requests that wait for the load must be answered
            _LOG.exception(
                "Cannot resume the %s of %s-%d", self._log.contents, self._log.topic, loaded.index
            )

    def _end(self, active: LoadedPartition[S]) -> None:
        """Refuses the requests that wait; nothing happens to the state any more."""
        active.timers.cancel_all()
        error = NotCoordinatorError(f"{self._log.topic}-{active.index} is not led here")
        for deferred in active.deferred.take_all():
            deferred.refuse(error)
        for reply_to, value in self._machine.on_unloaded(active.state):
            reply_to.send(value)
        if self._on_unloaded is not None:
            self._on_unloaded(active.index)


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
