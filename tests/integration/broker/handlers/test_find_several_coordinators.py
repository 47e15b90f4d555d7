"""The coordinators of groups and of transactional ids."""

from __future__ import annotations

import pytest

from cordwood.testing.broker import RunningBroker
from support.no_engine import NoEngine
from support.wire import Wire

UNKNOWN_KIND = 9


@pytest.mark.parametrize("kind", [0, 1])
@pytest.mark.parametrize("version", [4, 6])
def test_a_coordinator_among_several_has_no_message(kind: int, version: int) -> None:
    with RunningBroker(engine=NoEngine) as running, Wire(running.port) as wire:
        for _ in range(2):  # the topic is created, then there is a coordinator
            values = {"coordinator_keys": ["a"], "key_type": kind}
            (found,) = wire.ask("find_coordinator", version, values)["coordinators"]
            assert found["error_message"] == ""
        assert (found["error_code"], found["node_id"]) == ("none", 1)


def test_a_kind_that_does_not_exist_is_refused_with_a_message() -> None:
    with RunningBroker(engine=NoEngine) as running, Wire(running.port) as wire:
        values = {"coordinator_keys": ["a"], "key_type": UNKNOWN_KIND}
        (found,) = wire.ask("find_coordinator", 4, values)["coordinators"]
        assert found["error_code"] == "invalid_request"
        assert found["error_message"]
