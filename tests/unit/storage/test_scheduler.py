"""Tasks put off: when they run, in which order, and what a failure does."""

from __future__ import annotations

import threading

from cordwood.storage.scheduler import Scheduler
from cordwood.testing.manual_clock import ManualClock


def _scheduler() -> tuple[Scheduler, ManualClock]:
    clock = ManualClock(1_000)
    return Scheduler(clock), clock


def test_nothing_runs_before_it_is_due_and_then_once() -> None:
    scheduler, clock = _scheduler()
    ran: list[int] = []
    scheduler.schedule_once("task", lambda: ran.append(clock.now_ms()), delay_ms=100)
    assert scheduler.next_due_ms() == 1_100
    clock.advance(99)
    assert scheduler.run_due() == 0
    clock.advance(1)
    assert scheduler.run_due() == 1
    assert scheduler.run_due() == 0
    assert ran == [1_100]
    assert scheduler.next_due_ms() is None


def test_tasks_run_by_moment_and_those_of_one_moment_in_the_order_given() -> None:
    scheduler, clock = _scheduler()
    ran: list[str] = []
    scheduler.schedule_once("late", lambda: ran.append("late"), delay_ms=20)
    scheduler.schedule_once("first", lambda: ran.append("first"), delay_ms=10)
    scheduler.schedule_once("second", lambda: ran.append("second"), delay_ms=10)
    clock.advance(50)
    scheduler.run_due()
    assert ran == ["first", "second", "late"]


def test_a_periodic_task_runs_once_for_each_period_that_has_passed() -> None:
    scheduler, clock = _scheduler()
    ran: list[int] = []
    task = scheduler.schedule("p", lambda: ran.append(1), delay_ms=5, period_ms=10)
    clock.advance(25)
    assert scheduler.run_due() == 3
    task.cancel()
    clock.advance(100)
    assert scheduler.run_due() == 0
    assert len(ran) == 3


def test_a_task_may_schedule_another_which_runs_in_the_same_turn_if_due() -> None:
    scheduler, _ = _scheduler()
    ran: list[str] = []
    scheduler.schedule_once("a", lambda: scheduler.schedule_once("b", lambda: ran.append("b")))
    scheduler.run_due()
    assert ran == ["b"]


def test_a_task_that_fails_is_logged_and_the_next_ones_run(caplog: object) -> None:
    scheduler, _ = _scheduler()
    ran: list[str] = []

    def fail() -> None:
        raise ValueError("a bug")

    scheduler.schedule_once("bad", fail)
    scheduler.schedule_once("good", lambda: ran.append("good"))
    assert scheduler.run_due() == 2
    assert ran == ["good"]
    assert "Uncaught exception in scheduled task 'bad'" in caplog.text  # type: ignore[attr-defined]


def test_who_moved_the_clock_can_wait_for_tasks_of_another_thread() -> None:
    scheduler, _ = _scheduler()
    begun, may_end = threading.Event(), threading.Event()
    done: list[str] = []

    def slow() -> None:
        begun.set()
        may_end.wait(120)
        done.append("slow")

    scheduler.schedule_once("slow", slow)
    other = threading.Thread(target=scheduler.run_due)
    other.start()
    assert begun.wait(120)
    assert scheduler.run_due() == 0
    assert not done
    threading.Timer(0.01, may_end.set).start()
    scheduler.wait_for_others()
    assert done == ["slow"]
    other.join()
