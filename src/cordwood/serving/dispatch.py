"""Takes a request's bytes to its handler, and the handler's answer to bytes.

The steps of a request, in this order: its session admits it, it is read, its client is authorized
for what its API needs, quotas may refuse it, it is handled, its answer is encoded, hooks may audit
it, and it is counted. A change of metadata is written to the audit log when it is committed
(`cordwood.model.audit`).

Source: kafka.server.KafkaApis, org.apache.kafka.common.requests.RequestContext.
"""

from __future__ import annotations

import logging
import struct
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

from cordwood.format.messages.message import Message
from cordwood.model.error_codes import ErrorCode
from cordwood.model.kafka_errors import KafkaError
from cordwood.protocol.data import ApiVersionsResponse
from cordwood.protocol.headers import API_VERSIONS, RequestHeader, parse_start
from cordwood.protocol.messages import (
    MalformedMessageError,
    parts_of,
    response_codec,
)
from cordwood.protocol.requests import RequestReader
from cordwood.serving.api import Api, Encoded, Parked, Part, Response, never
from cordwood.serving.error_answers import error_answer
from cordwood.serving.node_thread import NodeThread
from cordwood.serving.request_context import RequestContext
from cordwood.serving.request_errors import UnansweredRequestError, UnservedRequestError
from cordwood.serving.request_metrics import RequestMetrics
from cordwood.serving.session import Session
from cordwood.storage.reading.batch_heads import FileRange

_log = logging.getLogger(__name__)

_COPIED_BYTES_MAX = 1 << 20
_NOTED_S = 0.001
# Responses that need not be awaited; the usual classes first.
_READY = (Message, Encoded)
_SIZE_AND_CORRELATION = struct.Struct(">ii")


class _Route:
    """One version of a served API: how its requests are read, handled and answered."""

    __slots__ = ("api", "head_end", "reader", "response")

    def __init__(self, api: Api[Any], version: int) -> None:
        self.api = api
        self.reader = RequestReader(api.key, version, distinct=api.distinct)
        self.response = response_codec(api.key, version)
        # What a response's header has behind the correlation id: no tags.
        is_tagged = self.reader.is_flexible and api.key != API_VERSIONS
        self.head_end = b"\0" if is_tagged else b""


class Exchange:
    """A request with its context, and its response once there is one.

    `response` is None before the request is handled, and if the client wants none. `begun_s` is
    when the request arrived, by the clock of the dispatcher.
    """

    __slots__ = ("begun_s", "context", "header", "request", "response", "route")

    def __init__(
        self, route: _Route, header: RequestHeader, context: RequestContext, begun_s: float
    ) -> None:
        self.route = route
        self.header = header
        self.context = context
        self.begun_s = begun_s
        self.request: Any = None
        self.response: Message | Encoded | None = None

    @property
    def api(self) -> Api[Any]:
        """The API of the request."""
        return self.route.api


Hook = Callable[[Exchange], None]
"""A step of every request. A step before the handler raises KafkaError to refuse the request."""


class Dispatcher:
    """Has each request answered by the handler of its API."""

    def __init__(
        self,
        apis: Mapping[int, Api[Any]],
        *,
        context_of: Callable[[RequestHeader, Session], RequestContext],
        thread: NodeThread,
        metrics: RequestMetrics,
        monotonic_s: Callable[[], float],
        quotas: Sequence[Hook] = (),
        audits: Sequence[Hook] = (),
    ) -> None:
        """Serves `apis`.

        Args:
            apis: the served APIs by key.
            context_of: makes the context that a handler gets.
            thread: runs long requests in slices, and learns which requests make an iteration long.
            metrics: counts the answered requests.
            monotonic_s: returns the time in seconds; it advances while a handler runs.
            quotas: steps between the authorization of a request and its handler.
            audits: steps between the answer of a request and its count, also if it was refused.
        """
        self._apis = apis
        self._routes: dict[tuple[int, int], _Route] = {}
        self._context_of = context_of
        self._slices = thread.slices
        self._iterations = thread.iterations
        self._metrics = metrics
        self._monotonic_s = monotonic_s
        self._before: Sequence[Hook] = (_authorize, *quotas)
        self._after: Sequence[Hook] = (*audits, self._count)

    def answer(
        self, frame: memoryview, session: Session
    ) -> list[Part] | Awaitable[Any] | Parked | None:
        """A request's response: a list of what is to be sent, or an awaitable of one.

        Raises:
            MalformedMessageError: the request cannot be read.
            UnservedRequestError: it is not served.
        """
        begun_s = self._monotonic_s()
        header = parse_start(frame)
        session.require_admitted(header.api_key)
        route = self._routes.get((header.api_key, header.api_version)) or self._route_of(header)
        if route is None:
            return self._unserved(header)
        api = route.api
        exchange = Exchange(route, header, self._context_of(header, session), begun_s)
        if len(frame) > api.inline_bytes_max:
            return self._in_slices(exchange, frame)
        exchange.request = route.reader.read(frame, header.body_at)
        if api.is_long is not never and api.is_long(exchange.context, exchange.request):
            return self._in_slices(exchange, frame)
        return self._handled(exchange)

    def _route_of(self, header: RequestHeader) -> _Route | None:
        api = self._apis.get(header.api_key)
        if api is None or not api.min_version <= header.api_version <= api.max_version:
            return None
        route = _Route(api, header.api_version)
        self._routes[header.api_key, header.api_version] = route
        return route

    def _handled(self, exchange: Exchange) -> list[Part] | Awaitable[Any] | Parked | None:
        api = exchange.api
        response: Response
        try:
            for step in self._before:
                step(exchange)
            response = api.handle(exchange.context, exchange.request)
        except Exception as error:
            response = self._failed(exchange, error)
        if response is None or isinstance(response, _READY):
            return self._finished(exchange, response)
        later = self._later(exchange, response)
        return Parked(later) if api.parks else later

    def _in_slices(
        self, exchange: Exchange, frame: memoryview
    ) -> Awaitable[Parked | list[Part] | None]:
        """The request is read, handled and answered in slices (`cordwood.serving.slices`)."""
        # A small one lies in a buffer that serves other connections soon.
        kept = memoryview(bytes(frame)) if len(frame) < _COPIED_BYTES_MAX else frame

        def work() -> Parked | Awaitable[list[Part] | None] | list[Part] | None:
            exchange.request = exchange.route.reader.read(kept, exchange.header.body_at)
            return self._handled(exchange)

        return self._result_of(self._slices.run(work))

    @staticmethod
    async def _result_of(
        work: Awaitable[Parked | Awaitable[list[Part] | None] | list[Part] | None],
    ) -> Parked | list[Part] | None:
        found = await work
        return found if found is None or isinstance(found, Parked | list) else await found

    async def _later(
        self, exchange: Exchange, response: Awaitable[Message | Encoded | None]
    ) -> list[Part] | None:
        try:
            value = await response
        except Exception as error:  # as above
            value = self._failed(exchange, error)
        return self._finished(exchange, value)

    def _finished(
        self, exchange: Exchange, response: Message | Encoded | None
    ) -> list[Part] | None:
        """The parts to send; a response that no message can hold becomes an error, as in Kafka."""
        parts = None
        exchange.response = response
        if response is not None:
            try:
                parts = self._encoded(exchange.route, exchange.header, response)
            except MalformedMessageError as error:
                exchange.response = failed = self._failed(exchange, error)
                parts = self._encoded(exchange.route, exchange.header, failed)
        for step in self._after:
            step(exchange)
        return parts

    def _count(self, exchange: Exchange) -> None:
        api, header = exchange.api, exchange.header
        seconds = self._monotonic_s() - exchange.begun_s
        name = api.name if api.counted_as is None else api.counted_as(exchange.request)
        self._metrics.answered(name, header.api_version, seconds)
        if seconds > _NOTED_S:
            self._iterations.note(f"{api.name} of client {header.client_id}", seconds)

    def _failed(self, exchange: Exchange, error: Exception) -> Message:
        """A response that has nothing but the error; raises it where a response cannot say it.

        Source: kafka.server.RequestHandlerHelper.handleError.
        """
        if isinstance(error, UnansweredRequestError):
            raise error
        api, version = exchange.api, exchange.header.api_version
        code = error.code if isinstance(error, KafkaError) else ErrorCode.UNKNOWN_SERVER_ERROR
        if code == ErrorCode.UNKNOWN_SERVER_ERROR:
            expected = isinstance(error, KafkaError | MalformedMessageError)
            _log.error(
                "Unexpected error handling %s version %s: %s",
                api.name,
                version,
                error,
                exc_info=None if expected else error,
            )
        answer = error_answer(api.key, version, exchange.request, code, str(error) or None)
        if answer is None:
            raise error
        return answer

    def _encoded(
        self, route: _Route, header: RequestHeader, response: Message | Encoded
    ) -> list[Part]:
        if isinstance(response, Encoded):
            body = list(response.parts)
        else:
            body = parts_of(route.response, response)
        size = 4 + len(route.head_end)
        for part in body:
            size += part.size_bytes if isinstance(part, FileRange) else len(part)
        head = _SIZE_AND_CORRELATION.pack(size, header.correlation_id) + route.head_end
        first = body[0]
        if isinstance(first, bytes):
            body[0] = head + first
            return body
        return [head, *body]

    def _unserved(self, header: RequestHeader) -> list[Part]:
        """A version of ApiVersions that is not known is answered in version 0 (KIP-511).

        Raises:
            UnservedRequestError: it is another request.
        """
        api = self._apis.get(header.api_key)
        if api is None or api.key != API_VERSIONS:
            raise UnservedRequestError(
                f"Received request for api with key {header.api_key} "
                f"(version {header.api_version}), which is not served"
            )
        only = ApiVersionsResponse.ApiVersion(
            api_key=API_VERSIONS, min_version=api.min_version, max_version=api.max_version
        )
        response = ApiVersionsResponse(error_code=ErrorCode.UNSUPPORTED_VERSION, api_keys=[only])
        return self._encoded(_Route(api, 0), header, response)


def _authorize(exchange: Exchange) -> None:
    for need in exchange.api.needs:
        exchange.context.require(need, exchange.request)
