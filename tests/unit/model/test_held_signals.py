"""A step that is not to be cut in half by a signal."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from types import FrameType

import pytest

from cordwood.model.held_signals import STOP_SIGNALS, held_signals

pytestmark = pytest.mark.usefixtures("no_gc_callbacks")


class _Stopped(BaseException):  # as KeyboardInterrupt
    pass


@pytest.fixture(autouse=True)
def raising() -> Iterator[None]:
    """Every stop signal raises, as in a command."""

    def handler(number: int, _frame: FrameType | None) -> None:
        raise _Stopped(signal.Signals(number).name)

    before = {number: signal.signal(number, handler) for number in STOP_SIGNALS}
    yield
    for number, old in before.items():
        signal.signal(number, old)


@pytest.mark.parametrize("number", STOP_SIGNALS)
def test_signal_is_handled_at_the_end_of_the_block(number: signal.Signals) -> None:
    done: list[str] = []

    def step() -> None:
        with held_signals():
            signal.raise_signal(number)
            done.append("the whole step")

    with pytest.raises(_Stopped, match=number.name):
        step()
    assert done == ["the whole step"]
    with pytest.raises(_Stopped):
        signal.raise_signal(number)


def test_second_signal_is_handled_at_once() -> None:
    done: list[str] = []

    def step() -> None:
        with held_signals():
            signal.raise_signal(signal.SIGINT)
            done.append("after the first")
            signal.raise_signal(signal.SIGTERM)
            done.append("after the second")

    with pytest.raises(_Stopped, match="SIGTERM") as stopped:
        step()
    assert done == ["after the first"]
    assert str(stopped.value.__context__) == "SIGINT"


def test_error_of_the_block_is_not_lost_without_a_signal() -> None:
    with pytest.raises(OSError, match="the disk"), held_signals():
        raise OSError("the disk")
    with pytest.raises(_Stopped):
        signal.raise_signal(signal.SIGINT)


def test_ignored_signal_stays_ignored() -> None:
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    with held_signals():
        assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
        signal.raise_signal(signal.SIGHUP)
    assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN


def test_other_threads_run_the_block_as_it_is() -> None:
    done: list[object] = []
    handlers = [signal.getsignal(number) for number in STOP_SIGNALS]

    def step() -> None:
        with held_signals():
            done.extend(signal.getsignal(number) for number in STOP_SIGNALS)

    thread = threading.Thread(target=step)
    thread.start()
    thread.join()
    assert done == handlers
