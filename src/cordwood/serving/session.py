"""The session of a client's connection: who the client is, and which requests it may send now.

Source: org.apache.kafka.common.network.KafkaChannel,
org.apache.kafka.common.security.authenticator.SaslServerAuthenticator (4.3.0); KIP-152, KIP-368.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum, auto
from typing import Final

from cordwood.serving.addresses import Address
from cordwood.serving.principal import ANONYMOUS, Principal
from cordwood.serving.request_errors import UnservedRequestError

_SASL_HANDSHAKE, _API_VERSIONS, _SASL_AUTHENTICATE = 17, 18, 36


class SessionState(Enum):
    """The state of a session, from the accepted connection to its end."""

    CONNECTED = auto()
    """The connection is accepted, and nothing is received yet."""
    HANDSHAKE = auto()
    """The transport of both ends agrees on how to encrypt."""
    AUTHENTICATING = auto()
    """The client has to say who it is."""
    AUTHENTICATED = auto()
    """The client is known, also as ANONYMOUS: requests are served."""
    REAUTHENTICATING = auto()
    """The credentials of the client have expired: it has to present them again."""
    CLOSING = auto()
    """The connection is closed, or about to be: nothing is served."""


class SessionEvent(Enum):
    """An event that changes the state of a session."""

    HANDSHAKE_BEGUN = auto()
    CREDENTIALS_REQUIRED = auto()
    PRINCIPAL_KNOWN = auto()
    CLOSED = auto()


_S, _E = SessionState, SessionEvent

TRANSITIONS: Final[Mapping[tuple[SessionState, SessionEvent], SessionState]] = {
    (_S.CONNECTED, _E.HANDSHAKE_BEGUN): _S.HANDSHAKE,
    (_S.CONNECTED, _E.CREDENTIALS_REQUIRED): _S.AUTHENTICATING,
    (_S.CONNECTED, _E.PRINCIPAL_KNOWN): _S.AUTHENTICATED,
    (_S.HANDSHAKE, _E.HANDSHAKE_BEGUN): _S.HANDSHAKE,
    (_S.HANDSHAKE, _E.CREDENTIALS_REQUIRED): _S.AUTHENTICATING,
    (_S.HANDSHAKE, _E.PRINCIPAL_KNOWN): _S.AUTHENTICATED,
    (_S.AUTHENTICATING, _E.PRINCIPAL_KNOWN): _S.AUTHENTICATED,
    (_S.AUTHENTICATED, _E.CREDENTIALS_REQUIRED): _S.REAUTHENTICATING,
    (_S.REAUTHENTICATING, _E.PRINCIPAL_KNOWN): _S.AUTHENTICATED,
    **{(state, _E.CLOSED): _S.CLOSING for state in SessionState},
}
"""The next state by state and event; no other event happens in a state."""

_BEFORE_AUTHENTICATION: Final = frozenset({_SASL_HANDSHAKE, _API_VERSIONS, _SASL_AUTHENTICATE})
ADMITTED: Final[Mapping[SessionState, frozenset[int]]] = {
    _S.CONNECTED: frozenset(),
    _S.HANDSHAKE: frozenset(),
    _S.AUTHENTICATING: _BEFORE_AUTHENTICATION,
    _S.REAUTHENTICATING: _BEFORE_AUTHENTICATION,
    _S.CLOSING: frozenset(),
}
"""The keys of the APIs that are served in a state; in AUTHENTICATED, all are."""

_AUTHENTICATED: Final = SessionState.AUTHENTICATED


class Session:
    """A client at the other end of a connection; for the event loop's thread.

    `name` is unique among the open connections, `listener` the name of the listener. `software`
    is what the client says it is (KIP-511). `reached` is the address of this machine that it
    connected to, where clients get that one; None where they get what is advertised.
    """

    __slots__ = ("host", "listener", "name", "principal", "reached", "software", "state")

    def __init__(
        self, host: str, name: str, listener: str, *, reached: Address | None = None
    ) -> None:
        self.host = host
        self.name = name
        self.listener = listener
        self.reached = reached
        self.principal = ANONYMOUS
        self.software = ("unknown", "unknown")
        self.state = SessionState.CONNECTED

    def on(self, event: SessionEvent) -> None:
        """Changes the state."""
        next_state = TRANSITIONS.get((self.state, event))
        assert next_state is not None, f"{event.name} in state {self.state.name}"
        self.state = next_state

    def authenticate(self, principal: Principal) -> None:
        """The client is `principal`: its requests are served."""
        self.on(SessionEvent.PRINCIPAL_KNOWN)
        self.principal = principal

    def require_admitted(self, api_key: int) -> None:
        """Checks that requests of an API are served in this state.

        Raises:
            UnservedRequestError: they are not.
        """
        if self.state is not _AUTHENTICATED and api_key not in ADMITTED[self.state]:
            raise UnservedRequestError(
                f"Received request for api with key {api_key} in state {self.state.name}"
            )
