"""The session of a client on one connection: what is agreed before its first request. No I/O.

Source: KIP-35 (ApiVersions), KIP-511, KIP-1242; org.apache.kafka.clients.NetworkClient (4.4.0).
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum, auto
from typing import Final, NamedTuple

from cordwood import __version__
from cordwood.client.errors import NotSupportedError, require
from cordwood.client.wire import RequestFrame, Wire
from cordwood.format.messages.message import Message
from cordwood.model.error_codes import ErrorCode
from cordwood.protocol.apis import APIS
from cordwood.protocol.data import (
    ApiVersionsRequest,
    ApiVersionsResponse,
)
from cordwood.protocol.headers import API_VERSIONS

_LATEST: Final = APIS[API_VERSIONS].max_version
_NO_NODE: Final = -1
_KEYS: Final[Mapping[str, int]] = {f"{api.name}Request": key for key, api in APIS.items()}

Versions = Mapping[int, tuple[int, int]]
"""The lowest and highest version, both inclusive, of each API that a node serves."""


class NodeIdentity(NamedTuple):
    """The broker that a client means to reach: the id of its cluster, and its own."""

    cluster_id: str
    node_id: int


class SessionState(Enum):
    """The state of a connection between its opening and its first request."""

    HANDSHAKE = auto()
    """The node is asked for its versions."""
    READY = auto()
    """Requests of callers can be sent."""


class ClientSession:
    """A connection's frames, its state, and the versions of its node.

    A connection that has just been opened exchanges `next_request` for answers, until there is
    none: then it is READY. A node that does not know the latest version of ApiVersions is asked
    again in the one that it names.
    """

    def __init__(self, client_id: str, identity: NodeIdentity | None = None) -> None:
        """Begins the handshake.

        Args:
            client_id: what requests say of their sender.
            identity: of the node, where it is known; another node refuses the session.
        """
        self.wire = Wire(client_id)
        self.state = SessionState.HANDSHAKE
        self.versions: Versions = {}
        self._identity = identity
        self._version = _LATEST

    def next_request(self) -> RequestFrame | None:
        """The request that is due before those of callers; None when the session is READY."""
        if self.state is not SessionState.HANDSHAKE:
            return None
        cluster_id, node_id = self._identity or (None, _NO_NODE)
        request = ApiVersionsRequest(
            client_software_name="cordwood",
            client_software_version=__version__,
            cluster_id=cluster_id,
            node_id=node_id,
        )
        return RequestFrame(API_VERSIONS, self._version, request)

    def on_answer(self, answer: ApiVersionsResponse) -> None:
        """Takes the answer to `next_request`.

        Raises:
            RefusedError: it is an error; close the connection. REBOOTSTRAP_REQUIRED says that the
                node is another one.
        """
        served = {each.api_key: (each.min_version, each.max_version) for each in answer.api_keys}
        if answer.error_code == ErrorCode.UNSUPPORTED_VERSION:
            # Brokers before Kafka 2.4 do not say which versions they have.
            _, latest = served.get(API_VERSIONS, (0, 0))
            if latest < self._version:
                self._version = latest
                return
        require(answer.error_code)
        self.versions = served
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
