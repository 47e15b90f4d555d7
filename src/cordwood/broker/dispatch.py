"""From a request's bytes to its handler, and from the handler's answer to bytes.

Source: kafka.server.KafkaApis, org.apache.kafka.common.requests.RequestContext.
"""

from __future__ import annotations

import logging
import struct
from collections.abc import Awaitable, Mapping
from functools import cache
from typing import TYPE_CHECKING, Any, cast

from cordwood.broker.api import (
    Api,
    Call,
    Encoded,
    Fields,
    Parked,
    Part,
    Peer,
    Response,
    never,
)
from cordwood.broker.error_answers import error_answer
from cordwood.broker.request_errors import UnansweredRequestError, UnservedRequestError
from cordwood.model.error_codes import ErrorCode
from cordwood.model.kafka_errors import KafkaError
from cordwood.protocol.headers import API_VERSIONS, RequestHeader, parse_start, skip_tags
from cordwood.protocol.messages import (
    MalformedMessageError,
    encoded,
    read_request,
    request_class,
    response_class,
)

if TYPE_CHECKING:
    from cordwood.broker.broker import Broker

_log = logging.getLogger(__name__)

_COPIED_BYTES_MAX = 1 << 20
_NOTED_S = 0.001
_SIZE_AND_CORRELATION = struct.Struct(">ii")


@cache
def _has_flexible_header(api_key: int, version: int) -> bool:
    return bool(request_class(api_key, version).__flexible__)


class Dispatcher:
    """Knows which APIs are served, and by which handler."""

    def __init__(self, broker: Broker, apis: Mapping[int, Api]) -> None:
        self._broker = broker
        self._apis = apis

    def answer(self, frame: memoryview, peer: Peer) -> list[Part] | Awaitable[Any] | Parked | None:
        """A request's response: a list of what is to be sent, or an awaitable of one.

        Raises:
            MalformedMessageError: the request cannot be read.
            UnservedRequestError: it is not served.
        """
        header = parse_start(frame)
        key, version = header.api_key, header.api_version
        api = self._apis.get(key)
        if api is None or not api.min_version <= version <= api.max_version:
            if key == API_VERSIONS and api is not None:
                return self._versions_of_old(api, header)
            raise UnservedRequestError(
                f"Received request for api with key {key} (version {version}), which is not served"
            )
        call = Call(version, header.client_id, peer, header.correlation_id)
        begun = self._broker.monotonic_s()
        if len(frame) > api.inline_bytes_max:
            return self._in_slices(api, call, frame, header.body_at, begun)
        request = self._read(api, call, frame, header.body_at)
        if api.is_long is not never and api.is_long(self._broker, request):
            return self._in_slices(api, call, frame, header.body_at, begun)
        response = self._handled(api, call, request)
        if response is None or isinstance(response, Mapping | Encoded):
            return self._finished(api, call, request, response, begun)
        later = self._later(api, call, request, response, begun)
        return Parked(later) if api.parks else later

    def _read(self, api: Api, call: Call, frame: memoryview, at: int) -> Any:
        if _has_flexible_header(api.key, call.api_version):
            at = skip_tags(frame, at)
        return read_request(api.key, call.api_version, frame, at, distinct=api.distinct)

    def _handled(self, api: Api, call: Call, request: Any) -> Response:
        """What the handler says; a fault of one request must not end the others."""
        try:
            return api.handle(self._broker, request, call)
        except Exception as error:
            return self._failed(api, call, request, error)

    def _in_slices(
        self, api: Api, call: Call, frame: memoryview, at: int, begun: float
    ) -> Awaitable[Parked | list[Part] | None]:
        """The request read, handled and answered in slices (`broker.slices`)."""
        # A small one lies in a buffer that serves other connections soon.
        kept = memoryview(bytes(frame)) if len(frame) < _COPIED_BYTES_MAX else frame

        def work() -> Parked | Awaitable[list[Part] | None] | list[Part] | None:
            request = self._read(api, call, kept, at)
            response = self._handled(api, call, request)
            if response is None or isinstance(response, Mapping | Encoded):
                return self._finished(api, call, request, response, begun)
            later = self._later(api, call, request, response, begun)
            return Parked(later) if api.parks else later

        return self._result_of(self._broker.slices.run(work))

    @staticmethod
    async def _result_of(
        work: Awaitable[Parked | Awaitable[list[Part] | None] | list[Part] | None],
    ) -> Parked | list[Part] | None:
        found = await work
        return found if found is None or isinstance(found, Parked | list) else await found

    async def _later(
        self,
        api: Api,
        call: Call,
        request: Any,
        response: Awaitable[Fields | Encoded | None],
        begun: float,
    ) -> list[Part] | None:
        try:
            value = await response
        except Exception as error:  # as above
            value = self._failed(api, call, request, error)
        return self._finished(api, call, request, value, begun)

    def _finished(
        self, api: Api, call: Call, request: Any, response: Fields | Encoded | None, begun: float
    ) -> list[Part] | None:
        """What is sent; a response that no message can hold becomes an error, as in Kafka."""
        parts = None
        if response is not None:
            try:
                parts = self._encoded(api, call, response)
            except MalformedMessageError as error:
                parts = self._encoded(api, call, self._failed(api, call, request, error))
        seconds = self._broker.monotonic_s() - begun
        self._broker.metrics.request_done(api.name, call.api_version, seconds)
        if seconds > _NOTED_S:
            self._broker.turns.note(f"{api.name} of client {call.client_id}", seconds)
        return parts

    def _failed(self, api: Api, call: Call, request: Any, error: Exception) -> Fields:
        """A response that has nothing but the error; raises it where a response cannot say it.

        Source: kafka.server.RequestHandlerHelper.handleError.
        """
        if isinstance(error, UnansweredRequestError):
            raise error
        code = error.code if isinstance(error, KafkaError) else ErrorCode.UNKNOWN_SERVER_ERROR
        if code == ErrorCode.UNKNOWN_SERVER_ERROR:
            expected = isinstance(error, KafkaError | MalformedMessageError)
            _log.error(
                "Unexpected error handling %s version %s: %s",
                api.name,
                call.api_version,
                error,
                exc_info=None if expected else error,
            )
        answer = error_answer(api.key, call.api_version, request, code, str(error) or None)
        if answer is None:
            raise error
        return answer

    def _encoded(self, api: Api, call: Call, response: Fields | Encoded) -> list[Part]:
        version = call.api_version
        if isinstance(response, Encoded):
            body = list(response.parts)
        else:
            fields = cast("Mapping[str, Any]", response)
            out = encoded(response_class(api.key, version), fields)
            # A large one is not copied.
            body = [bytes(out) if len(out) < _COPIED_BYTES_MAX else memoryview(out)]
        flexible = api.key != API_VERSIONS and _has_flexible_header(api.key, version)
        size = 4 + flexible
        for part in body:
            size += len(part) if isinstance(part, bytes | memoryview) else part.size_bytes
        head = _SIZE_AND_CORRELATION.pack(size, call.correlation_id) + (b"\0" if flexible else b"")
        first = body[0]
        if isinstance(first, bytes):
            body[0] = head + first
            return body
        return [head, *body]

    def _versions_of_old(self, api: Api, header: RequestHeader) -> list[Part]:
        """A version of ApiVersions that is not known is answered in version 0 (KIP-511)."""
        only = {"api_key": API_VERSIONS, "min_version": api.min_version}
        fields: Fields = {
            "error_code": ErrorCode.UNSUPPORTED_VERSION,
            "api_keys": [only | {"max_version": api.max_version}],
        }
        call = Call(0, header.client_id, Peer("", "", ""), header.correlation_id)
        return self._encoded(api, call, fields)
