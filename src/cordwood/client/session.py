"""The session of a client on one connection: what is agreed before its first request. No I/O.

Source: KIP-35 (ApiVersions), KIP-511; org.apache.kafka.clients.NetworkClient.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum, auto
from typing import Final

from cordwood import __version__
from cordwood.client.errors import NotSupportedError, require
from cordwood.client.wire import RequestFrame, Wire
from cordwood.format.messages.message import Message
from cordwood.protocol.apis import APIS
from cordwood.protocol.data import (
    ApiVersionsRequest,
    ApiVersionsResponse,
)
from cordwood.protocol.headers import API_VERSIONS

_API_VERSIONS_VERSION: Final = 3
_KEYS: Final[Mapping[str, int]] = {f"{api.name}Request": key for key, api in APIS.items()}

Versions = Mapping[int, tuple[int, int]]
"""The lowest and highest version, both inclusive, of each API that a node serves."""

VERSIONS_REQUEST: Final = RequestFrame(
    API_VERSIONS,
    _API_VERSIONS_VERSION,
    ApiVersionsRequest(client_software_name="cordwood", client_software_version=__version__),
)


class SessionState(Enum):
    """The state of a connection between its opening and its first request."""

    HANDSHAKE = auto()
    """The node is asked for its versions."""
    READY = auto()
    """Requests of callers can be sent."""


class ClientSession:
    """A connection's frames, its state, and the versions of its node.

    A connection that has just been opened exchanges `next_request` for answers, until there is
    none: then it is READY.
    """

    def __init__(self, client_id: str) -> None:
        """`client_id` is what requests say of their sender."""
        self.wire = Wire(client_id)
        self.state = SessionState.HANDSHAKE
        self.versions: Versions = {}

    def next_request(self) -> RequestFrame | None:
        """The request that is due before those of callers; None when the session is READY."""
        return VERSIONS_REQUEST if self.state is SessionState.HANDSHAKE else None

    def on_answer(self, answer: ApiVersionsResponse) -> None:
        """Takes the answer to `next_request`.

        Raises:
            RefusedError: it is an error; close the connection.
        """
        require(answer.error_code)
        self.versions = {
            each.api_key: (each.min_version, each.max_version) for each in answer.api_keys
        }
        self.state = SessionState.READY

    def request(
        self, message: Message, *, version_max: int | None = None, is_answered: bool = True
    ) -> RequestFrame:
        """A request in the highest version that the node and this client have in common.

        Args:
            message: the request.
            version_max: the highest version, inclusive.
            is_answered: whether an answer is to come.

        Raises:
            NotSupportedError: there is no such version.
        """
        key = api_key(message)
        low, high = self.versions.get(key, (0, -1))
        known = APIS[key]
        limit = known.max_version if version_max is None else version_max
        version = min(high, known.max_version, limit)
        if version < max(low, known.min_version):
            raise NotSupportedError(f"The node does not support {known.snake_name.upper()}")
        return RequestFrame(key, version, message, is_answered)


def supports(versions: Versions, request: type[Message], version: int = 0) -> bool:
    """Whether a node with these versions serves a request in that version or in a later one."""
    low, high = versions.get(_KEYS[request.__name__], (0, -1))
    return low <= high and version <= high


def api_key(request: Message) -> int:
    """The key of the API of a request."""
    return _KEYS[type(request).__name__]


def api_name(key: int) -> str | None:
    """An API's name as Kafka writes it, such as `DescribeConfigs`; None if it is unknown."""
    api = APIS.get(key)
    return None if api is None else api.name
