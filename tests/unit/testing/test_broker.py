"""A broker inside a test: its start and end."""

from __future__ import annotations

import socket

import pytest

from cordwood.broker.server import PortInUseError
from cordwood.testing.broker import RunningBroker
from cordwood.testing.no_engine import NoEngine


def test_a_broker_that_cannot_start_leaves_no_directory_behind() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        broker = RunningBroker(port=taken.getsockname()[1], engine=NoEngine)
        with pytest.raises(PortInUseError):
            broker.start()
    assert not broker.log_dir.exists()
    broker.stop()
