"""The runtime of coordinators, with a state machine that counts and a log in memory."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import pytest

from cordwood.coordinator.effects import (
    Answer,
    CancelTimer,
    Effects,
    ReplyTo,
    SetTimer,
    StartTask,
    TransactionalProducer,
)
from cordwood.coordinator.events import CoordinatorEvent
from cordwood.coordinator.log import Appended, EncodedRecord
from cordwood.coordinator.runtime import CoordinatorRuntime
from cordwood.coordinator.timeline import LATEST, Timeline, TimelineMap
from cordwood.model.errors import CorruptError
from cordwood.model.kafka_errors import KafkaError, NotCoordinatorError, StorageError
from cordwood.model.pauses import pause
from cordwood.testing.manual_clock import ManualClock
from support.groups_under_test import ManualTimers
from support.interruption import Interruption

TIMEOUT_MS = 5_000
NAME = "n"


class Set(NamedTuple):
    """A record: a name has a value, or none."""

    name: str
    value: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Event(CoordinatorEvent):
    """Sets names to values; `notes` are kept in the state without a record."""

    sets: tuple[Set, ...] = ()
    notes: tuple[Set, ...] = ()
    timer_ms: int | None = None
    retry_ms: int | None = None
    cancels: bool = False
    task: Callable[[int], Event] | None = None
    reply_to: ReplyTo[str] | None = None
    is_long: bool = False
    is_atomic: bool = True
    keeps_state: bool = False
    answers_wait: bool = True
    write_timeout_ms: int | None = None
    when_committed: ReplyTo[str] | None = None
    on_failure: Event | None = None


class Counts:
    """The state: values by name."""

    def __init__(self, timeline: Timeline) -> None:
        self.values: TimelineMap[str, int] = TimelineMap(timeline)
        self.waiting: list[ReplyTo[str]] = []

    def check_invariants(self) -> None:
        """Checks nothing: any counts may be."""


class Machine:
    """State machine of counts."""

    def __init__(self) -> None:
        self.handled = 0

    def new_state(self, _partition: int, timeline: Timeline) -> Counts:
        return Counts(timeline)

    def handle(self, state: Counts, event: Event, _now_ms: int) -> Effects[Set]:
        self.handled += 1
        for name, value in event.notes:
            assert value is not None
            state.values.put(name, value)
        timers: list[SetTimer | CancelTimer] = []
        if event.timer_ms is not None:
            later = Event(sets=(Set("timer", self.handled),))
            timers.append(SetTimer(NAME, event.timer_ms, later, retry_ms=event.retry_ms))
        if event.cancels:
            timers.append(CancelTimer(NAME))
        failure = event.on_failure
        return Effects(
            records=event.sets,
            answers=[Answer(event.reply_to, "done")] if event.reply_to is not None else (),
            timers=timers,
            tasks=() if event.task is None else [StartTask(NAME, event.task)],
            on_failure=None if failure is None else lambda _: failure,
            keeps_state=event.keeps_state,
            is_atomic=event.is_atomic,
            answers_wait=event.answers_wait,
            write_timeout_ms=event.write_timeout_ms,
            when_committed=(
                [Answer(event.when_committed, "committed")] if event.when_committed else ()
            ),
        )

    def replay(self, state: Counts, records: Sequence[Set], _first_offset: int, _id: int) -> None:
        for record in records:
            if record.value is None:
                state.values.remove(record.name)
            else:
                state.values.put(record.name, record.value)

    def end_transaction(self, state: Counts, producer_id: int, *, commit: bool) -> None:
        state.values.put(f"producer {producer_id}", int(commit))

    def on_loaded(self, _state: Counts, _now_ms: int) -> Sequence[Event]:
        return [Event(notes=(Set("loaded", 1),))]

    def on_unloaded(self, state: Counts) -> Sequence[Answer]:
        return [Answer(reply_to, "unloaded") for reply_to in state.waiting]


class Log:
    """Log and loader of one partition, in memory."""

    topic = "__counts"
    contents = "counts"
    size_bytes = 0

    def __init__(self) -> None:
        self.batches: list[list[Set]] = []
        self.end_offset = 0
        self.committed = 0
        self.commits_at_once = True
        self.fails_from_batch = 1 << 30
        self.is_corrupt = False

    def partitions(self) -> Collection[int]:
        return (0,)

    def loader(self, partition: int) -> Log:
        if partition:
            raise NotCoordinatorError("there is one partition")
        return self

    def load(self, state: Counts, timeline: Timeline) -> int:
        if self.is_corrupt:
            raise CorruptError("a record is malformed")
        offset = 0
        for batch in self.batches:
            timeline.begin()
            MACHINE.replay(state, batch, offset, -1)
            offset += len(batch)
            timeline.end(offset)
        return self.end_offset

    def encode(self, records: Sequence[Set]) -> list[EncodedRecord]:
        if any(record.name == "too long" for record in records):
            raise NotCoordinatorError("it does not fit")
        if any(record.name == "list" for record in records):
            pause()  # as the codec of messages does in long lists
        return [
            (record.name.encode(), None if record.value is None else str(record.value).encode())
            for record in records
        ]

    def append(
        self,
        _partition: int,
        made: Sequence[EncodedRecord],
        _now_ms: int,
        _producer: TransactionalProducer | None,
    ) -> Appended:
        if len(self.batches) >= self.fails_from_batch:
            raise StorageError("the disk has failed")
        first = self.end_offset
        self.batches.append(
            [Set(key.decode(), None if value is None else int(value)) for key, value in made]
        )
        self.end_offset += len(made)
        if self.commits_at_once:
            self.committed = self.end_offset
        return Appended(first, self.end_offset, self.committed)

    def append_marker(self, _partition: int, _batch: bytes, _transaction_version: int) -> Appended:
        return self.append(0, [(b"marker", b"1")], 0, None)

    def high_watermark(self, _partition: int) -> int:
        return self.committed


MACHINE = Machine()


class Host:
    """Host of the runtime."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.timers = ManualTimers(self.clock)
        self.call_later_ms = self.timers.call_later_ms
        self.in_slices: list[Callable[[], object]] = []

    def run_in_slices(self, run: Callable[[], object]) -> None:
        self.in_slices.append(run)

    def call_soon(self, run: Callable[[], object]) -> None:
        run()

    def after_input(self, run: Callable[[], None]) -> None:
        run()


class Run:
    """A runtime, and what is asked of it."""

    def __init__(self) -> None:
        self.log = Log()
        self.host = Host()
        self.machine = Machine()
        self.runtime: CoordinatorRuntime[Counts, Event, Set] = CoordinatorRuntime(
            self.machine,
            self.log,
            self.host,
            write_timeout_ms=TIMEOUT_MS,
            topic_partitions=1,
        )

    def ask(self, *sets: Set, partition: int = 0, **fields: object) -> list[str]:
        """The answers to a request that sets names, now and later."""
        answers: list[str] = []
        reply_to = ReplyTo(answers.append, lambda error: type(error).__name__)
        self.runtime.write(partition, Event(sets=sets, reply_to=reply_to, **fields))  # type: ignore[arg-type]
        return answers

    def commit(self) -> None:
        """Advances the high watermark to the log's end."""
        self.log.committed = self.log.end_offset
        self.runtime.on_high_watermark(0, self.log.committed)

    def value(self, name: str, *, committed: bool = False) -> int | None:
        """The value in the state, or its committed value."""
        state, at = self.runtime.partitions.read(0)
        return state.values.get(name, at if committed else LATEST)


@pytest.fixture
def run() -> Run:
    return Run()


def test_committed_event_is_answered_at_once(run: Run) -> None:
    assert run.ask(Set("a", 1)) == ["done"]
    assert run.value("a", committed=True) == 1
    assert run.log.batches == [[Set("a", 1)]]


def test_answer_waits_until_the_high_watermark_has_passed_its_records(run: Run) -> None:
    run.log.commits_at_once = False
    answers = run.ask(Set("a", 1), Set("b", 1))
    run.runtime.on_high_watermark(0, 1)
    assert answers == []
    run.runtime.on_high_watermark(0, 2)
    assert answers == ["done"]
    assert run.host.timers.pending == 0


def test_answer_that_depends_on_nothing_uncommitted_does_not_wait(run: Run) -> None:
    run.log.commits_at_once = False
    first = run.ask(Set("a", 1))
    assert run.ask(answers_wait=False) == ["done"]
    assert first == []


def test_answer_waits_as_long_as_its_event_says(run: Run) -> None:
    run.log.commits_at_once = False
    answers = run.ask(Set("a", 1), write_timeout_ms=TIMEOUT_MS + 5)
    run.host.timers.advance(TIMEOUT_MS + 4)
    assert answers == []
    run.host.timers.advance(1)
    assert answers == ["RequestTimedOutError"]


def test_coordinator_itself_waits_for_the_commit_without_a_limit(run: Run) -> None:
    run.log.commits_at_once = False
    noted: list[str] = []
    answers = run.ask(Set("a", 1), when_committed=ReplyTo(noted.append))
    run.host.timers.advance(10 * TIMEOUT_MS)
    assert (answers, noted) == (["RequestTimedOutError"], [])
    run.commit()
    assert noted == ["committed"]


def test_coordinator_itself_follows_the_answer(run: Run) -> None:
    order: list[str] = []
    event = Event(
        sets=(Set("a", 1),),
        reply_to=ReplyTo(order.append),
        when_committed=ReplyTo(order.append),
    )
    run.runtime.write(0, event)
    assert order == ["done", "committed"]


def test_coordinator_itself_waits_no_more_when_the_partition_is_unloaded(run: Run) -> None:
    run.log.commits_at_once = False
    noted: list[str] = []
    run.ask(Set("a", 1), when_committed=ReplyTo(noted.append))
    run.runtime.partitions.resign(0)
    run.commit()
    assert noted == []


def test_event_may_cause_another_one_when_it_is_committed(run: Run) -> None:
    done: list[str] = []

    def again(_: str) -> None:
        run.runtime.write(0, Event(sets=(Set("b", 1),), reply_to=ReplyTo(done.append)))

    run.log.commits_at_once = False
    run.ask(Set("a", 1), when_committed=ReplyTo(again))
    run.commit()
    assert (run.value("b"), done) == (1, [])
    run.commit()
    assert done == ["done"]


def test_one_value_is_read_as_it_is_committed(run: Run) -> None:
    run.ask(Set("a", 1), Set("b", 1))
    run.log.commits_at_once = False
    run.ask(Set("a", 2), Set("c", 2))
    run.ask(Set("a", 3), Set("b", None))
    state, _ = run.runtime.partitions.read(0)
    assert [state.values.committed(name) for name in "abcd"] == [1, 1, None, None]
    run.commit()
    assert [state.values.committed(name) for name in "abcd"] == [3, None, 2, None]


def test_event_without_records_waits_for_what_it_may_have_read(run: Run) -> None:
    run.log.commits_at_once = False
    run.ask(Set("a", 1))
    answers = run.ask()
    assert answers == []
    run.commit()
    assert answers == ["done"]
    assert run.ask() == ["done"]


def test_readers_see_what_is_committed(run: Run) -> None:
    run.ask(Set("a", 1), Set("b", 1))
    run.log.commits_at_once = False
    run.ask(Set("a", 2), Set("b", None), Set("c", 2))
    run.ask(Set("a", 3))
    assert [run.value(name, committed=True) for name in "abc"] == [1, 1, None]
    assert [run.value(name) for name in "abc"] == [3, None, 2]
    state, at = run.runtime.partitions.read(0)
    assert dict(state.values.items(at)) == {"loaded": 1, "a": 1, "b": 1}
    run.commit()
    assert [run.value(name, committed=True) for name in "abc"] == [3, None, 2]


def test_answer_that_waits_for_too_long_is_a_timeout_and_the_record_may_yet_count(run: Run) -> None:
    run.log.commits_at_once = False
    answers = run.ask(Set("a", 1))
    run.host.timers.advance(TIMEOUT_MS - 1)
    assert answers == []
    run.host.timers.advance(1)
    assert answers == ["RequestTimedOutError"]
    run.commit()
    assert answers == ["RequestTimedOutError"]
    assert run.value("a", committed=True) == 1


@pytest.mark.parametrize("name", ["a", "too long"])
def test_event_whose_records_cannot_be_appended_has_not_happened(run: Run, name: str) -> None:
    run.ask(Set("a", 1), notes=(Set("note", 1),))
    run.log.fails_from_batch = 1
    answers = run.ask(Set(name, 2), notes=(Set("note", 2), Set("new", 2)), timer_ms=10)
    assert answers == ["NotCoordinatorError" if name == "too long" else "StorageError"]
    assert [run.value(each) for each in ("a", "note", "new")] == [1, 1, None]
    assert run.host.timers.pending == 0
    run.log.fails_from_batch = 1 << 30
    assert run.ask(Set("a", 3)) == ["done"]
    assert run.value("a") == 3


def test_revert_leaves_earlier_uncommitted_changes(run: Run) -> None:
    run.log.commits_at_once = False
    first = run.ask(Set("a", 1))
    run.log.fails_from_batch = 1
    run.ask(Set("a", 2), notes=(Set("a", 5),))
    assert (run.value("a"), run.value("a", committed=True)) == (1, None)
    run.commit()
    assert first == ["done"]
    assert run.value("a", committed=True) == 1


def test_failure_is_handled_by_the_event_that_the_effects_name(run: Run) -> None:
    answers: list[str] = []
    reply_to = ReplyTo(answers.append)
    run.log.fails_from_batch = 0
    after = Event(notes=(Set("failed", 1),), reply_to=reply_to)
    event = Event(sets=(Set("a", 1),), notes=(Set("note", 1),), on_failure=after)
    run.runtime.write(0, event)
    assert answers == ["done"]
    assert [run.value(each) for each in ("a", "note", "failed")] == [None, None, 1]


def test_answer_of_an_event_that_follows_a_failure_does_not_wait(run: Run) -> None:
    run.log.commits_at_once = False
    first = run.ask(Set("a", 1))
    run.log.fails_from_batch = 1
    answers: list[str] = []
    after = Event(reply_to=ReplyTo(answers.append))
    run.runtime.write(0, Event(sets=(Set("a", 2),), on_failure=after))
    assert (first, answers) == ([], ["done"])


def test_event_that_the_machine_cannot_handle_changes_nothing(run: Run) -> None:
    with pytest.raises(AssertionError):
        run.ask(notes=(Set("note", 1), Set("note", None)))
    assert run.value("note") is None
    assert run.ask(Set("a", 1)) == ["done"]


def test_event_that_keeps_its_state_happens_without_its_records(run: Run) -> None:
    run.log.fails_from_batch = 0
    answers = run.ask(Set("a", 1), notes=(Set("note", 1),), timer_ms=10, keeps_state=True)
    assert answers == ["done"]
    assert (run.value("a"), run.value("note")) == (None, 1)
    assert run.host.timers.pending == 1


def test_tombstones_are_appended_in_batches_and_those_before_a_failure_stay(run: Run) -> None:
    names = [f"{number:0100000}" for number in range(6)]
    run.ask(*(Set(name, 1) for name in names))
    run.log.fails_from_batch = 2
    answers = run.ask(*(Set(name, None) for name in names), is_atomic=False)
    assert answers == ["StorageError"]
    assert [len(batch) for batch in run.log.batches] == [6, 3]
    assert [run.value(name) for name in names] == [None] * 3 + [1] * 3


def test_timer_is_an_event_that_is_written(run: Run) -> None:
    run.ask(timer_ms=10)
    run.host.timers.advance(10)
    assert run.log.batches == [[Set("timer", 2)]]
    run.ask(timer_ms=10)
    run.ask(cancels=True)
    run.host.timers.advance(10)
    assert len(run.log.batches) == 1


@pytest.mark.parametrize(("retry_ms", "pending"), [(None, 0), (3, 1)])
def test_timer_that_is_retried_is_due_again_until_its_event_is_written(
    run: Run, retry_ms: int | None, pending: int
) -> None:
    run.log.fails_from_batch = 0
    run.ask(timer_ms=10, retry_ms=retry_ms)
    before = run.machine.handled
    run.host.timers.advance(17)
    assert run.machine.handled - before == 1 + 2 * pending, "at 10, and perhaps at 13 and 16"
    assert run.host.timers.pending == pending
    run.log.fails_from_batch = 1
    run.host.timers.advance(2)
    assert run.log.batches == [[Set("timer", 2)]] * pending
    assert run.host.timers.pending == 0


def test_timer_that_is_retried_may_be_cancelled(run: Run) -> None:
    run.log.fails_from_batch = 0
    run.ask(timer_ms=10, retry_ms=3)
    run.host.timers.advance(10)
    run.log.fails_from_batch = 1
    run.ask(cancels=True)
    run.host.timers.advance(10)
    assert run.log.batches == []


def test_long_event_lets_others_come_between_and_sees_what_they_did(run: Run) -> None:
    others = Interruption(lambda: run.ask(Set("a", 7)))
    sets = tuple(Set(f"n{number}", number) for number in range(20))
    answers = others.run(lambda: run.ask(*sets, is_long=True))
    assert answers == ["done"]
    assert others.count == 2
    assert run.log.batches == [[Set("a", 7)], [Set("a", 7)], list(sets)]


def test_event_of_a_request_in_slices_is_handled_without_a_pause(run: Run) -> None:
    others = Interruption(lambda: run.ask(Set("a", 7)))
    assert others.run(lambda: run.ask(Set("list", 1))) == ["done"]
    assert (others.count, run.log.batches) == (0, [[Set("list", 1)]])


def test_partition_that_is_unloaded_while_a_long_event_is_encoded_refuses_it(run: Run) -> None:
    others = Interruption(lambda: run.runtime.partitions.resign(0))
    assert others.run(lambda: run.ask(Set("a", 1), is_long=True)) == ["NotCoordinatorError"]
    assert run.log.batches == []


# ---- tasks


def test_task_ends_with_an_event_and_others_come_between(run: Run) -> None:
    def task(now_ms: int) -> Event:
        assert now_ms == run.host.clock.now_ms()
        pause()
        return Event(sets=(Set("found", run.machine.handled),))

    assert run.ask(task=task) == ["done"]
    others = Interruption(lambda: run.ask(Set("a", 7)))
    (work,) = run.host.in_slices
    others.run(work)
    assert run.log.batches == [[Set("a", 7)], [Set("found", 3)]]


def test_task_is_started_once_until_it_has_ended(run: Run) -> None:
    def fail(_: int) -> Event:
        run.ask(task=fail)
        raise StorageError("it has failed")

    run.ask(task=fail)
    run.ask(task=fail)
    (work,) = run.host.in_slices
    with pytest.raises(StorageError):
        work()
    assert len(run.host.in_slices) == 1
    run.ask(task=fail)
    assert len(run.host.in_slices) == 2


def test_task_of_an_event_that_is_not_written_is_not_started(run: Run) -> None:
    run.log.fails_from_batch = 0
    assert run.ask(Set("a", 1), task=lambda _: Event()) == ["StorageError"]
    assert not run.host.in_slices


def test_event_of_a_task_is_dropped_if_the_partition_was_unloaded_meanwhile(run: Run) -> None:
    run.ask(task=lambda _: Event(sets=(Set("found", 1),)))
    run.runtime.partitions.unload()
    assert run.value("loaded") == 1
    (work,) = run.host.in_slices
    work()
    assert run.log.batches == []


def test_resigned_partition_refuses_all_that_waits_and_is_not_loaded_again(run: Run) -> None:
    run.log.commits_at_once = False
    written = run.ask(Set("a", 1), timer_ms=10)
    waiting: list[str] = []
    state, _ = run.runtime.partitions.read(0)
    state.waiting.append(ReplyTo(waiting.append))
    run.runtime.partitions.resign(0)
    assert written == ["NotCoordinatorError"]
    assert waiting == ["unloaded"]
    assert run.host.timers.pending == 0
    assert run.ask(Set("a", 1)) == ["NotCoordinatorError"]


def test_elected_partition_is_loaded_though_it_was_resigned_and_nobody_asks(run: Run) -> None:
    run.ask(Set("a", 1))
    run.runtime.partitions.resign(0)
    assert run.runtime.partitions.active(0) is None
    run.runtime.partitions.elect(0)
    assert run.runtime.partitions.active(0) is not None
    assert run.value("a") == 1
    state, _ = run.runtime.partitions.read(0)
    run.runtime.partitions.elect(0)
    assert run.runtime.partitions.read(0)[0] is state, "it is loaded already"


def test_unloaded_partition_is_loaded_again_from_its_records(run: Run) -> None:
    run.ask(Set("a", 1), Set("b", 2))
    run.ask(Set("a", None))
    run.runtime.partitions.unload()
    assert (run.value("a"), run.value("b"), run.value("loaded")) == (None, 2, 1)


def test_records_that_are_loaded_and_not_committed_are_not_read(run: Run) -> None:
    run.ask(Set("a", 1))
    run.log.commits_at_once = False
    run.ask(Set("a", 2))
    run.runtime.partitions.unload()
    assert (run.value("a"), run.value("a", committed=True)) == (2, 1)
    answers = run.ask()
    assert answers == []
    run.commit()
    assert answers == ["done"]
    assert run.value("a", committed=True) == 2


def test_partition_that_cannot_be_read_refuses_requests(
    run: Run, caplog: pytest.LogCaptureFixture
) -> None:
    run.log.is_corrupt = True
    assert run.ask(Set("a", 1)) == ["NotCoordinatorError"]
    assert "a record is malformed" in caplog.text


def test_partition_that_is_not_led_here_refuses_requests(run: Run) -> None:
    assert run.ask(Set("a", 1), partition=1) == ["NotCoordinatorError"]


def test_transaction_marker_is_appended_and_applied(run: Run) -> None:
    appended = run.runtime.complete_transaction(0, b"", 7, commit=True, transaction_version=2)
    assert appended.first_offset == 0
    assert run.value("producer 7", committed=True) == 1
    run.log.fails_from_batch = 1
    with pytest.raises(KafkaError):
        run.runtime.complete_transaction(0, b"", 8, commit=True, transaction_version=2)
    assert run.value("producer 8") is None
