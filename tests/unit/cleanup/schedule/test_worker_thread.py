"""A thread that works and rests: when others may count on its first rest."""

from __future__ import annotations

import threading

from cordwood.cleanup.schedule.worker_thread import WorkerThread
from cordwood.testing.manual_clock import ManualClock

SECONDS_MAX = 60


def test_the_first_rest_comes_after_the_work_that_is_due_before_it() -> None:
    may_work = threading.Event()
    done: list[int] = []

    def work() -> int:
        if not done:
            assert may_work.wait(SECONDS_MAX)
        done.append(len(done))
        return 0 if len(done) < 3 else 1_000

    thread = WorkerThread("worker", work, clock=ManualClock())
    assert not thread.wait_for_rest(0)
    thread.start()
    assert not thread.wait_for_rest(0)
    may_work.set()
    assert thread.wait_for_rest(SECONDS_MAX)
    assert done == [0, 1, 2]
    assert thread.resting
    thread.stop()
    assert thread.join(SECONDS_MAX)


def test_a_thread_that_ends_keeps_nobody_waiting_for_its_rest() -> None:
    def fail() -> int:
        raise RuntimeError("a fault of the work's own")

    thread = WorkerThread("worker", fail, clock=ManualClock())
    thread.start()
    assert thread.wait_for_rest(SECONDS_MAX)
    assert thread.join(SECONDS_MAX)
    assert thread.failed
