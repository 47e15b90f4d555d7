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
    UnansweredRequestError,
    UnservedRequestError,
)
from cordwood.broker.error_answers import error_answer
from cordwood.model.kafka_errors import KafkaError
from cordwood.protocol.headers import API_VERSIONS, RequestHeader, parse_start, skip_tags
from cordwood.protocol.messages import (
    MalformedMessageError,
    encode,
    read_request,
    request_class,
    response_class,
)

if TYPE_CHECKING:
    from cordwood.broker.broker import Broker

_log = logging.getLogger(__name__)

_UNKNOWN_SERVER_ERROR = -1
_UNSUPPORTED_VERSION = 35
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
        at = header.body_at
        flexible = _has_flexible_header(key, version)
        if flexible:
            at = skip_tags(frame, at)
        request = read_request(key, version, frame, at)
        call = Call(version, header.client_id, peer, header.correlation_id)
        begun = self._broker.monotonic_s()
        try:
            response = api.handle(self._broker, request, call)
        except Exception as error:  # a fault of one request must not end the others
            response = self._failed(api, call, request, error)
        if response is None or isinstance(response, Mapping | Encoded):
            return self._finished(api, call, request, response, begun)
        later = self._later(api, call, request, response, begun)
        return Parked(later) if api.parks else later

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
        self._broker.metrics.request_done(
            api.name, call.api_version, self._broker.monotonic_s() - begun
        )
        return parts

    def _failed(self, api: Api, call: Call, request: Any, error: Exception) -> Fields:
        """A response that has nothing but the error; raises it where a response cannot say it.

        Source: kafka.server.RequestHandlerHelper.handleError.
        """
        if isinstance(error, UnansweredRequestError):
            raise error
        code = error.code if isinstance(error, KafkaError) else _UNKNOWN_SERVER_ERROR
        if code == _UNKNOWN_SERVER_ERROR:
            _log.error(
                "Unexpected error handling %s version %s",
                api.name,
                call.api_version,
                exc_info=error,
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
            body = [encode(response_class(api.key, version), cast("Mapping[str, Any]", response))]
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
            "error_code": _UNSUPPORTED_VERSION,
            "api_keys": [only | {"max_version": api.max_version}],
        }
        call = Call(0, header.client_id, Peer("", "", ""), header.correlation_id)
        return self._encoded(api, call, fields)
