"""Operations that wait: completed once, by a key, by time, or not at all."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from cordwood.purgatory.purgatory import Delayed, Purgatory
from cordwood.testing.manual_clock import ManualClock
from support.groups_under_test import ManualTimers

TIMEOUT_MS = 1_000


class Grows:
    """Waits until its keys have grown by so many bytes, or `is_ready`; notes what happens."""

    def __init__(self, wanted: int, *, is_ready: bool = False) -> None:
        self.wanted = wanted
        self.is_ready = is_ready
        self.happened: list[str] = []

    def try_complete(self, grown_bytes: int | None) -> bool:
        self.wanted -= grown_bytes or 0
        return self.is_ready or self.wanted <= 0

    def on_expiration(self) -> None:
        self.happened.append("expired")

    def on_complete(self) -> None:
        self.happened.append("completed")


class Run:
    def __init__(self) -> None:
        self.timers = ManualTimers(ManualClock())
        self.purgatory: Purgatory[str] = Purgatory(self.timers.call_later_ms)

    def wait(self, operation: Grows, *keys: str) -> Delayed[str]:
        return self.purgatory.try_complete_else_watch(operation, keys, TIMEOUT_MS)

    @property
    def counts(self) -> tuple[int, int, int]:
        """Numbers of waiting operations, watched keys and set timers."""
        return self.purgatory.delayed_count, self.purgatory.watched_count, self.timers.pending


@pytest.fixture
def run() -> Run:
    return Run()


def test_operation_whose_condition_holds_does_not_wait(run: Run) -> None:
    operation = Grows(1, is_ready=True)
    assert run.wait(operation, "a", "b").is_completed
    assert operation.happened == ["completed"]
    assert run.counts == (0, 0, 0)


def test_operation_completes_when_any_of_its_keys_fulfils_it(run: Run) -> None:
    operation = Grows(10)
    run.wait(operation, "a", "b")
    assert run.counts == (1, 2, 1)
    assert run.purgatory.check("a", 4) == 0
    assert run.purgatory.check("c", 100) == 0
    assert operation.happened == []
    assert run.purgatory.check("b", 6) == 1
    assert operation.happened == ["completed"]
    assert run.counts == (0, 0, 0)


def test_completed_operation_is_completed_once(run: Run) -> None:
    operation = Grows(1)
    delayed = run.wait(operation, "a")
    run.purgatory.check("a", 1)
    assert run.purgatory.check("a", 1) == 0
    assert not delayed.complete()
    delayed.expire()
    run.timers.advance(TIMEOUT_MS)
    assert operation.happened == ["completed"]


def test_operation_completes_when_its_time_is_up(run: Run) -> None:
    operation = Grows(1)
    run.wait(operation, "a", "b")
    run.timers.advance(TIMEOUT_MS - 1)
    assert operation.happened == []
    run.timers.advance(1)
    assert operation.happened == ["expired", "completed"]
    assert run.purgatory.expired_count == 1
    assert run.counts == (0, 0, 0)


def test_cancelled_operation_never_completes(run: Run) -> None:
    operation = Grows(1)
    delayed = run.wait(operation, "a")
    delayed.cancel()
    run.purgatory.check("a", 1)
    run.timers.advance(TIMEOUT_MS)
    assert operation.happened == []
    assert run.counts == (0, 0, 0)


def test_operations_complete_in_the_order_in_which_they_began_to_wait(run: Run) -> None:
    order: list[int] = []

    class Noted(Grows):
        def __init__(self, number: int) -> None:
            super().__init__(1)
            self.number = number

        def on_complete(self) -> None:
            order.append(self.number)

    for number in range(5):
        run.wait(Noted(number), "a")
    assert run.purgatory.check("a", 1) == 5
    assert order == list(range(5))


def test_operation_that_completes_another_does_not_complete_it_twice(run: Run) -> None:
    other = Grows(1)

    class Appends(Grows):
        def on_complete(self) -> None:
            super().on_complete()
            run.purgatory.check("a", 1)

    first = Appends(1)
    run.wait(first, "a")
    run.wait(other, "a")
    run.purgatory.check("a", 1)
    assert first.happened == other.happened == ["completed"]
    assert run.counts == (0, 0, 0)


def test_change_between_two_keys_is_not_missed(run: Run) -> None:
    operation = Grows(1)

    def keys() -> Iterator[str]:
        yield "a"
        run.purgatory.check("a", 1)
        yield "b"

    assert run.purgatory.try_complete_else_watch(operation, keys(), TIMEOUT_MS).is_completed
    assert operation.happened == ["completed"]
    assert run.counts == (0, 0, 0)


def test_key_that_is_named_twice_is_watched_once(run: Run) -> None:
    operation = Grows(2)
    run.wait(operation, "a", "a")
    assert run.counts == (1, 1, 1)
    run.purgatory.check("a", 1)
    assert operation.happened == []
    run.purgatory.check("a", 1)
    assert operation.happened == ["completed"]
