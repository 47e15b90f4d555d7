"""Dispatch of requests: in a turn, in slices, or refused."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Callable, Sequence
from functools import partial
from types import SimpleNamespace
from typing import Any, cast

import pytest

from cordwood.format.messages.message import Message
from cordwood.model.error_codes import ErrorCode
from cordwood.model.kafka_errors import KafkaError
from cordwood.protocol.data import ApiVersionsResponse, HeartbeatRequest, HeartbeatResponse
from cordwood.protocol.headers import API_VERSIONS
from cordwood.protocol.messages import MalformedMessageError
from cordwood.serving.api import Api
from cordwood.serving.authorizer import AclOperation, Need, on_group
from cordwood.serving.dispatch import Dispatcher, Exchange, Hook
from cordwood.serving.event_loop import LoopIterations
from cordwood.serving.node_services import NodeServices
from cordwood.serving.node_thread import NodeThread
from cordwood.serving.principal import ANONYMOUS
from cordwood.serving.request_context import RequestContext
from cordwood.serving.request_errors import UnservedRequestError
from cordwood.serving.request_metrics import RequestMetrics
from cordwood.serving.session import Session, SessionEvent
from support.wire import request_body, request_frame

HEARTBEAT = 12
SESSION = Session("127.0.0.1", "client", "PLAINTEXT")
SESSION.authenticate(ANONYMOUS)


class ThrottlingQuotaExceededError(KafkaError):
    """A quota has been exceeded."""


class LaterSlices:
    """Keeps the work that is to run in slices."""

    def __init__(self) -> None:
        self.works: list[Callable[[], Any]] = []

    def run(self, work: Callable[[], Any]) -> asyncio.Future[Any]:
        self.works.append(work)
        return asyncio.get_running_loop().create_future()


class Handled:
    """Served APIs that note what they are asked for, and answer with `fields`."""

    def __init__(self, **fields: object) -> None:
        self.requests: list[Any] = []
        self.metrics = RequestMetrics()
        self.slices = LaterSlices()
        self.fields = fields

    def handle(self, _context: object, request: Any) -> Message:
        self.requests.append(request)
        made: Any = (
            HeartbeatResponse if isinstance(request, HeartbeatRequest) else ApiVersionsResponse
        )
        response: Message = made(**self.fields)
        return response

    def dispatcher(
        self,
        *,
        inline_bytes_max: int = 1024,
        node: object = None,
        needs: tuple[Need, ...] = (),
        quotas: Sequence[Hook] = (),
        audits: Sequence[Hook] = (),
    ) -> Dispatcher:
        apis: list[Api[object]] = [
            Api(
                HEARTBEAT, "Heartbeat", 1, 4, self.handle, needs, inline_bytes_max=inline_bytes_max
            ),
            Api(API_VERSIONS, "ApiVersions", 0, 4, self.handle),
        ]
        thread = SimpleNamespace(slices=self.slices, iterations=LoopIterations())
        return Dispatcher(
            {api.key: api for api in apis},
            context_of=partial(RequestContext, cast("NodeServices", node)),
            thread=cast("NodeThread", thread),
            metrics=self.metrics,
            monotonic_s=lambda: 0.0,
            quotas=quotas,
            audits=audits,
        )


def frame_of(key: int, version: int, *, group: str = "g") -> memoryview:
    fields = {"group_id": group, "generation_id": 1, "member_id": "m"} if key == HEARTBEAT else {}
    return memoryview(request_frame(key, version, 7, "client", request_body(key, version, fields)))[
        4:
    ]


@pytest.mark.parametrize(
    ("version", "answer"),
    [(3, struct.pack(">iiih", 10, 7, 0, 27)), (4, struct.pack(">iixihx", 12, 7, 0, 27))],
    ids=["header 0", "header 1"],
)
def test_a_small_request_is_answered_at_once(version: int, answer: bytes) -> None:
    handled = Handled(error_code=27)
    assert handled.dispatcher().answer(frame_of(HEARTBEAT, version), SESSION) == [answer]
    assert [request.group_id for request in handled.requests] == ["g"]
    assert handled.metrics.by_api["Heartbeat"].versions == {version: 1}


def test_the_body_of_a_large_request_is_read_in_slices() -> None:
    handled = Handled(error_code=0)

    async def send() -> None:
        frame = frame_of(HEARTBEAT, 4, group="g" * 200)[:-1]  # cut off: reading it fails
        later = handled.dispatcher(inline_bytes_max=200).answer(frame, SESSION)
        assert asyncio.iscoroutine(later)
        later.close()

    asyncio.run(send())
    (work,) = handled.slices.works
    with pytest.raises(MalformedMessageError):
        work()
    assert not handled.requests


@pytest.mark.parametrize(("key", "version"), [(HEARTBEAT, 0), (HEARTBEAT, 5), (3, 1)])
def test_an_api_or_version_that_is_not_served_is_refused(key: int, version: int) -> None:
    frame = memoryview(struct.pack(">hhih", key, version, 7, -1))
    with pytest.raises(UnservedRequestError, match=f"key {key} .version {version}."):
        Handled().dispatcher().answer(frame, SESSION)


def test_an_unknown_version_of_api_versions_is_answered_in_version_0() -> None:
    frame = memoryview(struct.pack(">hhih", API_VERSIONS, 99, 7, -1))
    (answer,) = cast("list[bytes]", Handled().dispatcher().answer(frame, SESSION))
    code = int(ErrorCode.UNSUPPORTED_VERSION)
    assert answer == struct.pack(">iihihhh", 16, 7, code, 1, API_VERSIONS, 0, 4)


def test_before_the_client_is_known_only_what_makes_it_known_is_served() -> None:
    session = Session("127.0.0.1", "client", "SASL_PLAINTEXT")
    session.on(SessionEvent.CREDENTIALS_REQUIRED)
    dispatcher = Handled(error_code=0).dispatcher()
    with pytest.raises(UnservedRequestError, match="key 12 in state AUTHENTICATING"):
        dispatcher.answer(frame_of(HEARTBEAT, 4), session)
    assert dispatcher.answer(frame_of(API_VERSIONS, 0), session)
    session.authenticate(ANONYMOUS)
    assert dispatcher.answer(frame_of(HEARTBEAT, 4), session)


def test_a_client_that_may_not_do_what_an_api_needs_is_refused_before_its_handler() -> None:
    handled = Handled(error_code=0)
    node = SimpleNamespace(authorizer=SimpleNamespace(authorize=lambda *asked: False))
    dispatcher = handled.dispatcher(node=node, needs=(on_group(AclOperation.READ),))
    answer = dispatcher.answer(frame_of(HEARTBEAT, 3), SESSION)
    code = int(ErrorCode.GROUP_AUTHORIZATION_FAILED)
    assert answer == [struct.pack(">iiih", 10, 7, 0, code)]
    assert not handled.requests
    assert handled.metrics.by_api["Heartbeat"].count == 1


@pytest.mark.parametrize(
    ("refusing", "seen", "code"),
    [
        ("", ["authorize", "quota", "handle", "audit"], 0),
        ("quota", ["authorize", "quota", "audit"], 89),
        ("authorize", ["authorize", "audit"], 30),
    ],
)
def test_the_steps_of_a_request_have_one_order(refusing: str, seen: list[str], code: int) -> None:
    steps: list[str] = []

    def authorize(*_asked: object) -> bool:
        steps.append("authorize")
        return refusing != "authorize"

    def quota(exchange: Exchange) -> None:
        steps.append("quota")
        assert exchange.request.group_id == "g"
        assert exchange.response is None
        if refusing == "quota":
            raise ThrottlingQuotaExceededError

    def audit(exchange: Exchange) -> None:
        steps.append("audit")
        assert isinstance(exchange.response, HeartbeatResponse)
        assert exchange.response.error_code == code
        assert "Heartbeat" not in handled.metrics.by_api, "it is counted last"

    class Steps(Handled):
        def handle(self, context: object, request: Any) -> Message:
            steps.append("handle")
            return super().handle(context, request)

    handled = Steps(error_code=0)
    node = SimpleNamespace(authorizer=SimpleNamespace(authorize=authorize))
    needs = (on_group(AclOperation.READ),)
    dispatcher = handled.dispatcher(node=node, needs=needs, quotas=[quota], audits=[audit])
    assert dispatcher.answer(frame_of(HEARTBEAT, 4), SESSION)
    assert steps == seen
    assert handled.metrics.by_api["Heartbeat"].count == 1
