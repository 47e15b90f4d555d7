"""A thread that waits for brokers which the event loop asks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from cordwood.broker import broker_answers
from cordwood.broker.broker_answers import BrokerAnswers


class EventLoop:
    """A `NodeThread` that is free: it runs calls at once."""

    def call_soon(self, run: Callable[[], Any]) -> None:
        run()


class EndedLoop:
    """A thread whose event loop is closed."""

    def call_soon(self, _run: Callable[[], Any]) -> None:
        raise RuntimeError("Event loop is closed")


def gather(answers: BrokerAnswers, thread: Any, ask: Callable[[], Any]) -> str | None:
    return answers.gather(thread, ask)


def test_an_answer_that_is_there_before_the_others_are_asked_ends_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(broker_answers, "_WAIT_S", 0.0)
    answers = BrokerAnswers()

    def ask() -> list[int]:
        answers.answered(2)
        assert not answers._done.is_set()
        return [1, 2, 3]

    assert gather(answers, EventLoop(), ask) is None
    assert answers.late == {1, 3}
    answers.answered(3)
    assert answers.late == {1}
    assert not answers._done.is_set()
    answers.answered(1)
    assert not answers.late
    assert answers._done.is_set()


def test_nobody_is_waited_for_where_nobody_is_asked() -> None:
    answers = BrokerAnswers()
    assert gather(answers, EventLoop(), list) is None
    assert not answers.late


def test_what_fails_on_the_event_loop_is_said_at_once() -> None:
    answers = BrokerAnswers()
    assert gather(answers, EventLoop(), lambda: [1 // 0]) == "integer division or modulo by zero"
    assert gather(BrokerAnswers(), EndedLoop(), list) == "Event loop is closed"
