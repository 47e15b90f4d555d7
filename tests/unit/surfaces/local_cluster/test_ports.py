"""Ports that are kept for servers that start later, and again."""

from __future__ import annotations

import socket
from contextlib import closing

import pytest

from cordwood.surfaces.local_cluster.ports import HOST, Ports, PortTakenError


def test_a_server_may_take_a_reserved_port_again_and_again() -> None:
    with closing(Ports()) as ports:
        port = ports.reserve()
        for _ in range(2):
            with (
                socket.create_server((HOST, port)) as server,
                socket.create_connection((HOST, port)),
            ):
                server.accept()[0].close()


def test_the_system_gives_a_reserved_port_to_nobody_else() -> None:
    with closing(Ports()) as ports:
        reserved = {ports.reserve() for _ in range(200)}
        assert len(reserved) == 200
        others = [socket.create_server((HOST, 0)) for _ in range(200)]
        try:
            assert reserved.isdisjoint(each.getsockname()[1] for each in others)
        finally:
            for each in others:
                each.close()


def test_a_port_that_another_process_uses_is_refused_by_its_number() -> None:
    with (
        closing(Ports()) as ports,
        socket.create_server((HOST, 0)) as server,
        pytest.raises(PortTakenError, match=f"port {server.getsockname()[1]} of {HOST} is not"),
    ):
        ports.reserve(server.getsockname()[1])


def test_a_number_that_is_no_port_is_refused() -> None:
    with closing(Ports()) as ports, pytest.raises(PortTakenError, match="expected 0 to 65535"):
        ports.reserve(65_536)
