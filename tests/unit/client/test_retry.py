"""The table of what the client does after each error code, and that the client follows it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import cordwood.client
import cordwood.surfaces
from cordwood.client.core import (
    GROUP,
    Address,
    ClientCore,
    ClientSettings,
    Coordinator,
    Effect,
    Exchange,
    Once,
    Open,
    Pause,
    Steps,
)
from cordwood.client.errors import RefusedError
from cordwood.client.retry import RULES, Action, Backoff, action
from cordwood.model.error_codes import ErrorCode
from cordwood.protocol.apis import APIS
from cordwood.testing.manual_clock import ManualClock

CALL = re.compile(r'\._?call\(\s*"(\w+)"')
OF_CORE = [
    pytest.param(api, code, follows, id=f"{api}-{code.name}")
    for api, rule in RULES.items()
    if rule.by_core
    for code, follows in rule.actions.items()
    if follows in {Action.AGAIN, Action.COORDINATOR}
]


def sent() -> Iterator[str]:
    for package in (cordwood.client, cordwood.surfaces):
        (directory,) = package.__path__
        for path in Path(directory).rglob("*.py"):
            yield from CALL.findall(path.read_text(encoding="utf-8"))


def answer(api: str, code: int) -> Any:
    """An answer with the code at the last of the places that the table names."""
    *outer, last = RULES[api].places[-1].split(".")
    found = SimpleNamespace(**{last: code, "node_id": 7, "host": "127.0.0.1", "port": 1})
    for name in reversed(outer):
        found = SimpleNamespace(**{name: [found]})
    return found


class Broker:
    """Answers a request with a code so often, then without an error; counts requests by API."""

    def __init__(self, clock: ManualClock, api: str, *codes: int) -> None:
        self.clock = clock
        self.codes = {api: list(codes)}
        self.asked: dict[str, int] = {}
        self.pauses: list[float] = []

    def run(self, steps: Steps[Any]) -> Any:
        try:
            effect = next(steps)
            while True:
                effect = steps.send(self._result(effect))
        except StopIteration as end:
            return end.value

    def _result(self, effect: Effect) -> Any:
        match effect:
            case Open():
                return True
            case Once():
                return self.run(effect.steps)
            case Pause():
                self.pauses.append(effect.seconds)
                self.clock.advance(int(effect.seconds * 1000))
            case Exchange():
                return self._answer(APIS[effect.request.api_key].module)
        return None

    def _answer(self, api: str) -> Any:
        self.asked[api] = self.asked.get(api, 0) + 1
        if api == "api_versions":
            keys = [SimpleNamespace(api_key=key, min_version=0, max_version=99) for key in APIS]
            return SimpleNamespace(error_code=0, api_keys=keys)
        codes = self.codes.get(api)
        return answer(api, codes.pop(0) if codes else 0)


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def core(clock: ManualClock) -> ClientCore:
    settings = ClientSettings(bootstrap_servers="", api_timeout_ms=2_000)
    address = Address("localhost", "127.0.0.1", 1)
    return ClientCore(settings, [address], warn=pytest.fail, clock=clock)


def test_every_request_of_the_client_has_a_row_and_every_row_a_request() -> None:
    assert set(sent()) == set(RULES)


@pytest.mark.parametrize(("api", "code", "follows"), OF_CORE)
def test_a_request_is_sent_again_after_a_code_that_the_table_names(
    core: ClientCore, clock: ManualClock, api: str, code: ErrorCode, follows: Action
) -> None:
    broker = Broker(clock, api, code, code)
    of = None if api == "find_coordinator" else Coordinator(GROUP, "g")
    found = broker.run(core.call(api, {}, coordinator=of))
    assert found == answer(api, 0)
    assert broker.asked[api] == 3
    assert broker.pauses == [0.1, 0.2]
    if of is not None:
        looked_for = 3 if follows is Action.COORDINATOR else 1
        assert broker.asked["find_coordinator"] == looked_for


@pytest.mark.parametrize("api", sorted(RULES))
def test_a_code_that_the_table_does_not_name_is_returned_at_once(
    core: ClientCore, clock: ManualClock, api: str
) -> None:
    code = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    assert action(api, code) is None
    broker = Broker(clock, api, code)
    assert broker.run(core.call(api, {})) == answer(api, code)
    assert (broker.asked[api], broker.pauses) == (1, [])


def test_the_last_answer_is_returned_when_the_time_is_over(
    core: ClientCore, clock: ManualClock
) -> None:
    code = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    broker = Broker(clock, "list_groups", *[code] * 99)
    assert broker.run(core.call("list_groups", {})) == answer("list_groups", code)
    assert broker.pauses == pytest.approx([0.1, 0.2, 0.4, 0.8, 0.5])


def test_looking_for_a_coordinator_ends_with_the_call(core: ClientCore, clock: ManualClock) -> None:
    broker = Broker(clock, "describe_groups", *[ErrorCode.NOT_COORDINATOR] * 3)
    broker.codes["find_coordinator"] = [0, 0, 0, *[ErrorCode.COORDINATOR_NOT_AVAILABLE] * 99]
    with pytest.raises(RefusedError, match="The coordinator is not available"):
        broker.run(core.call("describe_groups", {}, coordinator=Coordinator(GROUP, "g")))
    assert broker.pauses == pytest.approx([0.1, 0.2, 0.4, 0.1, 0.2, 0.4, 0.6])


def test_times_between_attempts_double_up_to_a_maximum() -> None:
    backoff = Backoff(first_ms=100, max_ms=500)
    assert [backoff.next_s() for _ in range(5)] == [0.1, 0.2, 0.4, 0.5, 0.5]


def test_all_that_a_producer_repeats_is_what_kafka_calls_retriable() -> None:
    retriable = {code for code in ErrorCode if code.is_retriable}
    own = {
        ErrorCode.MESSAGE_TOO_LARGE,
        ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
        ErrorCode.UNKNOWN_PRODUCER_ID,
        ErrorCode.DUPLICATE_SEQUENCE_NUMBER,
    }
    assert set(RULES["produce"].actions) == retriable | own
