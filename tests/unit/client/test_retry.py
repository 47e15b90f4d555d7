"""The table of what the client does after each error code, and that the client follows it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import cordwood.client
import cordwood.surfaces
from cordwood.client.cluster_client import GROUP, ClusterClient, Coordinator
from cordwood.client.errors import RefusedError
from cordwood.client.retry import RULES, Action, Backoff, action
from cordwood.client.session import ClientSession, NodeIdentity
from cordwood.client.settings import ClientSettings
from cordwood.client.wire import RequestFrame
from cordwood.format.messages.message import Message, message_of
from cordwood.model.error_codes import ErrorCode
from cordwood.protocol import data
from cordwood.protocol.apis import APIS
from cordwood.protocol.data import ApiVersionsResponse, DescribeGroupsRequest, ListGroupsRequest
from cordwood.testing.manual_clock import ManualClock
from support.requests import request_of

SNAKE_NAMES = {api.name: api.snake_name for api in APIS.values()}
REQUEST = re.compile(r"\b(\w+)Request\(")
OF_CLIENT = [
    pytest.param(api, code, follows, id=f"{api}-{code.name}")
    for api, rule in RULES.items()
    if rule.by_client
    for code, follows in rule.actions.items()
    if follows in {Action.AGAIN, Action.COORDINATOR}
]


def sent() -> Iterator[str]:
    for package in (cordwood.client, cordwood.surfaces):
        (directory,) = package.__path__
        for path in Path(directory).rglob("*.py"):
            names = REQUEST.findall(path.read_text(encoding="utf-8"))
            yield from (SNAKE_NAMES[name] for name in names if name in SNAKE_NAMES)


def answer(api: str, code: int) -> Message:
    """An answer with the code at the last of the places that the table names."""
    *outer, last = RULES[api].places[-1].split(".")
    fields: dict[str, Any] = {last: code, "node_id": 7, "host": "127.0.0.1", "port": 1}
    for name in reversed(outer):
        fields = {name: [fields]}
    (name,) = (each.name for each in APIS.values() if each.snake_name == api)
    return message_of(getattr(data, f"{name}Response"), fields)


class Broker:
    """A `Network` to one broker, and its `Connection`.

    It answers a request with a code so often, then without an error; it counts requests by API.
    """

    def __init__(self, clock: ManualClock, api: str, *codes: int) -> None:
        self.clock = clock
        self.codes = {api: list(codes)}
        self.asked: dict[str, int] = {}
        self.pauses: list[float] = []
        self.session = ClientSession("c")
        keys = [
            ApiVersionsResponse.ApiVersion(api_key=key, min_version=0, max_version=99)
            for key in APIS
        ]
        self.session.on_answer(ApiVersionsResponse(api_keys=keys))

    def client(self) -> ClusterClient:
        settings = ClientSettings(bootstrap_servers="localhost:1", api_timeout_ms=2_000)
        return ClusterClient(settings, warn=pytest.fail, clock=self.clock, network=self)

    def resolve(self, _host: str, _port: int) -> str:
        return "127.0.0.1"

    def connect(
        self, _host: str, _ip: str, _port: int, *, timeout_s: float, identity: NodeIdentity | None
    ) -> Broker:
        assert timeout_s <= 2
        assert identity is None, "no answer names the cluster"
        return self

    def pause(self, seconds: float) -> None:
        self.pauses.append(seconds)
        self.clock.advance(int(seconds * 1000))

    def exchange(self, request: RequestFrame, *, timeout_s: float) -> Any:
        assert timeout_s <= 2
        api = APIS[request.api_key].snake_name
        self.asked[api] = self.asked.get(api, 0) + 1
        codes = self.codes.get(api)
        return answer(api, codes.pop(0) if codes else 0)

    def close(self) -> None:
        pytest.fail("closed")


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


def test_every_request_of_the_client_has_a_row_and_every_row_a_request() -> None:
    assert set(sent()) - {"api_versions"} == set(RULES)


@pytest.mark.parametrize(("api", "code", "follows"), OF_CLIENT)
def test_a_request_is_sent_again_after_a_code_that_the_table_names(
    clock: ManualClock, api: str, code: ErrorCode, follows: Action
) -> None:
    broker = Broker(clock, api, code, code)
    of = None if api == "find_coordinator" else Coordinator(GROUP, "g")
    found = broker.client().call(request_of(api, {}), coordinator=of)
    assert found == answer(api, 0)
    assert broker.asked[api] == 3
    assert broker.pauses == [0.1, 0.2]
    if of is not None:
        looked_for = 3 if follows is Action.COORDINATOR else 1
        assert broker.asked["find_coordinator"] == looked_for


@pytest.mark.parametrize("api", sorted(RULES))
def test_a_code_that_the_table_does_not_name_is_returned_at_once(
    clock: ManualClock, api: str
) -> None:
    code = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    assert action(api, code) is None
    broker = Broker(clock, api, code)
    assert broker.client().call(request_of(api, {})) == answer(api, code)
    assert (broker.asked[api], broker.pauses) == (1, [])


def test_the_last_answer_is_returned_when_the_time_is_over(clock: ManualClock) -> None:
    code = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    broker = Broker(clock, "list_groups", *[code] * 99)
    assert broker.client().call(ListGroupsRequest()) == answer("list_groups", code)
    assert broker.pauses == pytest.approx([0.1, 0.2, 0.4, 0.8, 0.5])


def test_looking_for_a_coordinator_ends_with_the_call(clock: ManualClock) -> None:
    broker = Broker(clock, "describe_groups", *[ErrorCode.NOT_COORDINATOR] * 3)
    broker.codes["find_coordinator"] = [0, 0, 0, *[ErrorCode.COORDINATOR_NOT_AVAILABLE] * 99]
    with pytest.raises(RefusedError, match="The coordinator is not available"):
        broker.client().call(DescribeGroupsRequest(), coordinator=Coordinator(GROUP, "g"))
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
