"""The states of a session, and what a connection serves in them."""

from __future__ import annotations

import asyncio
import socket
from itertools import product

import pytest

from cordwood.serving.connection import Connection, Later
from cordwood.serving.principal import ANONYMOUS, Principal
from cordwood.serving.session import (
    ADMITTED,
    TRANSITIONS,
    Session,
    SessionEvent,
    SessionState,
)
from cordwood.serving.transport import PlainTransport

ALICE = Principal("User", "alice")


def new_session() -> Session:
    return Session("127.0.0.1", "client", "SSL")


@pytest.mark.parametrize(("state", "event"), [*product(SessionState, SessionEvent)])
def test_an_event_has_a_next_state_or_cannot_happen(
    state: SessionState, event: SessionEvent
) -> None:
    session = new_session()
    session.state = state
    if (state, event) in TRANSITIONS:
        session.on(event)
        assert session.state is TRANSITIONS[state, event]
    else:
        with pytest.raises(AssertionError, match=f"{event.name} in state {state.name}"):
            session.on(event)


def test_every_state_but_authenticated_says_what_it_admits() -> None:
    assert set(ADMITTED) == set(SessionState) - {SessionState.AUTHENTICATED}


def test_a_client_is_anonymous_until_it_is_known() -> None:
    session = new_session()
    assert session.principal == ANONYMOUS
    session.on(SessionEvent.CREDENTIALS_REQUIRED)
    session.authenticate(ALICE)
    assert (session.principal, session.state) == (ALICE, SessionState.AUTHENTICATED)


class SlowHandshake(PlainTransport):
    """Needs a byte from the client, beside the first, before requests are received."""

    def handshake(self) -> None:
        if self._socket.recv(1) != b"!":
            raise BlockingIOError


def test_nothing_is_served_before_the_handshake_has_ended() -> None:
    async def states() -> list[SessionState]:
        loop = asyncio.get_running_loop()
        near, far = socket.socketpair()
        near.setblocking(False)
        session = new_session()
        served = loop.create_future()

        def answer(request: memoryview, of: Session) -> Later:
            assert of is session
            served.set_result(bytes(request))
            return None

        connection = Connection(
            SlowHandshake(near),
            session,
            loop=loop,
            answer=answer,
            scratch=memoryview(bytearray(1024)),
            max_request_bytes=100,
            on_close=lambda _: None,
        )
        found = [session.state]
        far.send(b"?")
        while session.state is SessionState.CONNECTED:
            await asyncio.sleep(0)
        found.append(session.state)
        far.send(b"!\0\0\0\1x")
        assert await served == b"x"
        found.append(session.state)
        connection.close(None)
        far.close()
        return [*found, session.state]

    assert asyncio.run(states()) == [
        SessionState.CONNECTED,
        SessionState.HANDSHAKE,
        SessionState.AUTHENTICATED,
        SessionState.CLOSING,
    ]
