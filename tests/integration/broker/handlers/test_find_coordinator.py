"""FindCoordinator of transactional ids, whose topic is created when somebody first asks."""

from __future__ import annotations

from typing import Any

import pytest

from cordwood.testing.broker import RunningBroker
from support.kafka import poll_until
from support.no_engine import NoEngine
from support.wire import Plain
from support.wire_client import WireClient

TRANSACTION = 1


def found(wire: WireClient, version: int, key: str) -> Plain:
    asked: dict[str, Any] = {"key_type": TRANSACTION, "key": key, "coordinator_keys": [key]}
    answer = wire.ask("find_coordinator", version, asked)
    return dict(answer["coordinators"][0]) if version >= 4 else answer


@pytest.mark.parametrize("version", range(1, 7))
def test_the_coordinator_of_a_transactional_id(version: int) -> None:
    settings = {"transaction.state.log.num.partitions": 3}
    with RunningBroker(settings, engine=NoEngine) as running, WireClient(running.port) as wire:
        first = found(wire, version, "x")
        assert (first["error_code"], first["node_id"]) == ("coordinator_not_available", -1)
        assert (first["host"], first["port"]) == ("", -1)
        poll_until(
            lambda: found(wire, version, "x")["error_code"] == "none",
            timeout_s=60,
            what="a coordinator",
        )
        answer = found(wire, version, "x")
        assert (answer["node_id"], answer["host"], answer["port"]) == (
            1,
            "127.0.0.1",
            running.port,
        )
        assert answer["error_message"] == ("" if version >= 4 else "NONE")
        assert len(wire.partitions("__transaction_state")) == 3
