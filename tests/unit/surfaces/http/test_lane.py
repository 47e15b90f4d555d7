"""Requests that compute: one at a time, so many wait, the others are refused."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from cordwood.surfaces.http import endpoint as endpoint_module
from cordwood.surfaces.http.lane import Lane
from cordwood.surfaces.http.server import Refusal, RequestLimits
from cordwood.testing.broker import RunningBroker
from support.kafka import poll_until
from support.no_engine import NoEngine
from support.scrape import HttpAnswer, probed, standing_still

_PATIENCE_S = 60.0
_WAITING = 3
_REQUESTS = 12


def test_of_many_threads_one_is_let_in_at_a_time() -> None:
    lane = Lane("questions", waiting_max=_REQUESTS)
    inside: list[int] = []
    most: list[int] = []

    def ask() -> None:
        for _ in range(50):
            with lane.turn():
                inside.append(threading.get_ident())
                most.append(len(inside))
                inside.pop()

    with ThreadPoolExecutor(_REQUESTS) as threads:
        for each in [threads.submit(ask) for _ in range(_REQUESTS)]:
            each.result()
    assert len(most) == 50 * _REQUESTS
    assert set(most) == {1}


def test_who_is_in_and_who_waits_are_counted_and_a_further_one_is_told_when_to_come_again() -> None:
    lane = Lane("questions", waiting_max=0)
    with lane.turn():
        with (
            pytest.raises(Refusal, match="1 questions are answered or wait") as refused,
            lane.turn(),
        ):
            pass
        assert refused.value.status == 503
        assert refused.value.retry_after_s == 1
    with lane.turn():
        pass


@pytest.mark.parametrize("path", ["/explain", "/whatif?set=log.retention.ms=1000", "/metrics"])
def test_of_requests_that_look_at_every_log_so_many_wait_and_others_are_answered_meanwhile(
    path: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(endpoint_module, "_LOOP_ANSWERS_S", _PATIENCE_S)
    with (
        RunningBroker({}, log_dir=tmp_path, engine=NoEngine) as broker,
        probed(broker, limits=RequestLimits(waiting=_WAITING)) as probe,
        ThreadPoolExecutor(_REQUESTS) as clients,
    ):
        with standing_still(broker):  # what is asked first waits for the loop
            asked = [clients.submit(probe.ask, path) for _ in range(_REQUESTS)]
            refused = _REQUESTS - _WAITING - 1
            poll_until(
                lambda: sum(each.done() for each in asked) == refused,
                timeout_s=_PATIENCE_S,
                what="those that are refused",
            )
            assert probe.ask("/broker").status == 200
            assert all(_is_told_to_come_again(each.result()) for each in asked if each.done())
        found = sorted(each.result().status for each in asked)
    assert found == [200] * (_WAITING + 1) + [503] * refused


def test_full_lanes_leave_answers_for_other_requests(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(endpoint_module, "_LOOP_ANSWERS_S", _PATIENCE_S)
    paths = ["/explain", "/metrics"] * (_WAITING + 1)
    with (
        RunningBroker({}, log_dir=tmp_path, engine=NoEngine) as broker,
        probed(broker, limits=RequestLimits(answers=1, waiting=_WAITING)) as probe,
        ThreadPoolExecutor(len(paths)) as clients,
    ):
        with standing_still(broker):
            asked = [clients.submit(probe.ask, path) for path in paths]
            poll_until(
                lambda: _answering_count() >= len(paths),
                timeout_s=_PATIENCE_S,
                what="all that wait in the lanes",
            )
            assert probe.ask("/broker").status == 200
        assert [each.result().status for each in asked] == [200] * len(paths)


def _answering_count() -> int:
    return sum(each.name == "http-request" for each in threading.enumerate())


def _is_told_to_come_again(answer: HttpAnswer) -> bool:
    return answer.status == 503 and answer.retry_after_s == "1"
