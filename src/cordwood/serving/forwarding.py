"""Requests that are the controller's to answer, sent on to it in an Envelope (KIP-590).

A broker whose controller is on another node answers them with the controller's answer, which gets
the name and the address of the client, and decides what the client may do.

Source: kafka.server.ForwardingManagerImpl, KafkaApis.forwardToController, ConfigAdminManager,
org.apache.kafka.common.requests.RequestContext.parseRequest (4.3.0); KIP-590.
"""

from __future__ import annotations

import ipaddress
import logging
from collections.abc import Callable, Mapping
from typing import Any, Final, Protocol

from cordwood.client.errors import ClientError
from cordwood.client.session import Versions
from cordwood.metadata.quorum.active_controller import ActiveController
from cordwood.model.error_codes import ErrorCode
from cordwood.model.kafka_errors import RequestTimedOutError, UnknownServerError
from cordwood.protocol.apis import APIS
from cordwood.protocol.data import EnvelopeRequest
from cordwood.protocol.headers import request_header
from cordwood.protocol.messages import encode, request_codec
from cordwood.serving.api import Api, Encoded
from cordwood.serving.principal import Principal, principal_bytes
from cordwood.serving.request_errors import UnansweredRequestError

_log = logging.getLogger(__name__)

#: Source: the cases of KafkaApis.handle that call forwardToController.
FORWARDED: Final = frozenset({19, 20, 30, 31, 37, 43, 45, 46, 49, 51, 55, 57, 64, 80, 81, 94})
_TIMEOUT_MS: Final = 60_000
# The client's answer has the client's own, whatever the controller is given.
_CORRELATION_ID: Final = 0
_CORRELATION_BYTES: Final = 4


class Client(Protocol):
    """The client whose request it is, as `RequestContext` has it."""

    @property
    def api_version(self) -> int:
        """The version of the request."""

    @property
    def client_id(self) -> str | None:
        """The client's id, as the client gives it."""

    @property
    def client_host(self) -> str:
        """The client's address."""

    @property
    def principal(self) -> Principal:
        """The client's principal."""


class Forwarding:
    """Sends requests on to the active controller; for the event loop's thread."""

    def __init__(
        self,
        controller: ActiveController,
        *,
        versions: Callable[[], Versions],
        timeout_ms: float = _TIMEOUT_MS,
    ) -> None:
        """Sends nothing yet.

        Args:
            controller: gets the requests.
            versions: what the controller serves; empty before it has answered anything.
            timeout_ms: how long it may take to answer one.
        """
        self._controller = controller
        self._versions = versions
        self._timeout_ms = timeout_ms

    def served(self, apis: Mapping[int, Api[Any]]) -> dict[int, Api[Any]]:
        """The APIs of a broker, those in `FORWARDED` answered by the controller."""
        return {**apis, **{key: self._forwarded(key) for key in FORWARDED}}

    def advertised(self, versions: Mapping[int, tuple[int, int]]) -> dict[int, tuple[int, int]]:
        """The versions of a broker's APIs that clients may use: those that the controller has, too.

        Source: ApiVersionsResponse.intersectForwardableApis.
        """
        served = self._versions()
        found = dict(versions)
        for key in FORWARDED & versions.keys() if served else ():
            low, high = served.get(key, (0, -1))
            found[key] = max(low, found[key][0]), min(high, found[key][1])
            if found[key][0] > found[key][1]:
                del found[key]
        return found

    def _forwarded(self, key: int) -> Api[Any]:
        async def handle(client: Client, request: Any) -> Encoded:
            return Encoded([await self.forward(key, client, request)])

        known = APIS[key]
        return Api(key, known.name, known.min_version, known.max_version, handle)

    async def forward(self, api_key: int, client: Client, request: Any) -> bytes:
        """The body of the controller's answer to a request, given as its class or its fields.

        Raises:
            RequestTimedOutError: it did not answer in time.
            UnknownServerError: it refused the envelope, or its answer cannot be read.
            UnansweredRequestError: it does not serve the request's version: the client has to
                connect again.
        """
        codec = request_codec(api_key, client.api_version)
        header = request_header(
            api_key,
            client.api_version,
            _CORRELATION_ID,
            client.client_id,
            flexible=codec.is_flexible,
        )
        envelope = EnvelopeRequest(
            request_data=header + encode(codec, request),
            request_principal=principal_bytes(client.principal),
            client_host_address=ipaddress.ip_address(client.client_host).packed,
        )
        try:
            answer = await self._controller.ask(envelope, timeout_ms=self._timeout_ms)
        except ClientError as error:
            raise RequestTimedOutError(str(error)) from error
        refusal = ErrorCode.of(answer.error_code)
        if refusal is ErrorCode.UNSUPPORTED_VERSION:
            raise UnansweredRequestError("the controller does not serve this version")
        if refusal is not ErrorCode.NONE or answer.response_data is None:
            _log.error("The controller refused a request that was sent on to it: %s", refusal.name)
            raise UnknownServerError("")
        head = _CORRELATION_BYTES + codec.is_flexible  # a flexible header has a byte: no tags
        return bytes(answer.response_data[head:])
