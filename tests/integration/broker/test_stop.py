"""A broker that stops: what clients that are still connected get."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress

import pytest

from cordwood.testing.broker import RunningBroker
from support.no_engine import NoEngine
from support.wire import ConnectionClosedError
from support.wire_client import WireClient, batch_of

_PATIENCE_S = 60.0


class _SlowToClose(NoEngine):
    """An engine that is closed when the test says so."""

    closing = threading.Event()
    may_close = threading.Event()

    def close(self) -> None:
        self.closing.set()
        assert self.may_close.wait(_PATIENCE_S)


_AFTERWARDS: Mapping[str, Callable[[WireClient], object]] = {
    "creates a topic": lambda client: client.create("late"),
    "deletes a topic": lambda client: client.delete("early"),
    "produces": lambda client: client.produce("early", batch_of(b"late")),
    "fetches": lambda client: client.fetch("early", wait_ms=0),
    "joins a group": lambda client: client.ask(
        "join_group",
        0,
        {
            "group_id": "late",
            "session_timeout_ms": 30_000,
            "member_id": "",
            "protocol_type": "consumer",
            "protocols": [{"name": "range", "metadata": b""}],
        },
    ),
    "begins transactions": lambda client: client.ask(
        "init_producer_id", 0, {"transactional_id": "late", "transaction_timeout_ms": 60_000}
    ),
}


def test_a_broker_that_stops_answers_nobody_once_its_parts_stop_and_logs_no_error(
    caplog: pytest.LogCaptureFixture,
) -> None:
    _SlowToClose.closing.clear()
    _SlowToClose.may_close.clear()
    with RunningBroker({}, engine=_SlowToClose) as broker:
        clients = {what: WireClient(broker.port) for what in _AFTERWARDS}
        next(iter(clients.values())).create("early")
        stopping = threading.Thread(target=broker.stop)
        stopping.start()
        try:
            assert _SlowToClose.closing.wait(_PATIENCE_S)
            answered = {}
            for what, request in _AFTERWARDS.items():
                with suppress(ConnectionClosedError, ConnectionError):
                    answered[what] = request(clients[what])
        finally:
            _SlowToClose.may_close.set()
            stopping.join(_PATIENCE_S)
    assert answered == {}
    assert [each for each in caplog.records if each.levelno >= logging.ERROR] == []
