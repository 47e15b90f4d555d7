"""Notifications of `cordwood serve` to systemd: over real datagram sockets, by sd_notify(3)."""

from __future__ import annotations

import asyncio
import os
import resource
import secrets
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from cordwood.surfaces.cli.service_manager import ServiceManager
from support.served import ServedBroker

_WAIT_S = 60.0


class Manager:
    """The other end: what a service manager hears."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.settimeout(_WAIT_S)
        self._socket.bind(f"\0{name[1:]}" if name.startswith("@") else name)

    def hear(self) -> list[str]:
        """The lines of the next datagram."""
        return self._socket.recv(4096).decode().split("\n")

    def close(self) -> None:
        self._socket.close()


@contextmanager
def managed(name: str) -> Iterator[Manager]:
    manager = Manager(name)
    try:
        yield manager
    finally:
        manager.close()


@pytest.mark.parametrize(
    "name_in", [lambda top: str(top / "notify"), lambda _: f"@cordwood-{secrets.token_hex(8)}"]
)
def test_a_socket_in_a_directory_or_in_the_abstract_namespace_hears_each_state(
    tmp_path: Path, name_in: Callable[[Path], str]
) -> None:
    with managed(name_in(tmp_path)) as heard:
        service = ServiceManager(heard.name)
        service.status("Starting")
        service.ready("Serving")
        service.stopping()
        assert heard.hear() == ["STATUS=Starting"]
        assert heard.hear() == ["READY=1", "STATUS=Serving"]
        assert heard.hear() == ["STOPPING=1", "STATUS=Shutting down"]


def test_a_watchdog_gets_signs_for_as_long_as_the_event_loop_runs(tmp_path: Path) -> None:
    async def serve(heard: Manager) -> list[list[str]]:
        service = ServiceManager(heard.name, watchdog_s=0.02)
        service.ready("Serving")
        signs = [await asyncio.to_thread(heard.hear) for _ in range(4)]
        service.stopping()
        while (last := await asyncio.to_thread(heard.hear)) == ["WATCHDOG=1"]:
            pass
        return [*signs, last]

    with managed(str(tmp_path / "notify")) as heard:
        ready, *signs, stopping = asyncio.run(serve(heard))
    assert ready[0] == "READY=1"
    assert signs == [["WATCHDOG=1"]] * 3
    assert stopping[0] == "STOPPING=1"


@pytest.mark.parametrize(
    ("more", "watchdog_s"),
    [
        ({}, None),
        ({"WATCHDOG_USEC": "30000000"}, 30.0),
        ({"WATCHDOG_USEC": "30000000", "WATCHDOG_PID": str(os.getpid())}, 30.0),
        ({"WATCHDOG_USEC": "30000000", "WATCHDOG_PID": "1"}, None),
        ({"WATCHDOG_USEC": "0"}, None),
        ({"WATCHDOG_USEC": "soon"}, None),
    ],
)
def test_the_variables_are_those_of_this_process_and_not_of_its_children(
    more: dict[str, str], watchdog_s: float | None
) -> None:
    environment = {"NOTIFY_SOCKET": "@manager", "PATH": "/bin", **more}
    service = ServiceManager.of_environment(environment)
    assert environment == {"PATH": "/bin"}
    assert service._watchdog_s == watchdog_s


def test_a_manager_that_is_gone_is_warned_of_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    service = ServiceManager(str(tmp_path / "gone"))
    service.status("Starting")
    service.stopping()
    (record,) = caplog.records
    assert f"NOTIFY_SOCKET={tmp_path / 'gone'}" in record.getMessage()


def test_signs_are_sent_again_when_the_manager_is_back(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def serve() -> list[str]:
        service = ServiceManager(str(tmp_path / "notify"), watchdog_s=0.02)
        service.ready("Serving")
        with managed(str(tmp_path / "notify")) as heard:
            sign = await asyncio.to_thread(heard.hear)
            service.stopping()
        return sign

    assert asyncio.run(serve()) == ["WATCHDOG=1"]
    (record,) = caplog.records
    assert "cannot be reached" in record.getMessage()


def test_a_process_without_a_free_file_descriptor_gives_signs(tmp_path: Path) -> None:
    with managed(str(tmp_path / "notify")) as heard:
        service = ServiceManager(heard.name)
        service.status("Starting")
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (1, hard))
        try:
            service.status("Serving")
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        service.stopping()
        assert [heard.hear()[0] for _ in range(3)] == [
            "STATUS=Starting",
            "STATUS=Serving",
            "STOPPING=1",
        ]


def test_serve_is_ready_when_it_answers_and_says_that_it_stops(tmp_path: Path) -> None:
    with managed(str(tmp_path / "notify")) as heard:
        environment = {"NOTIFY_SOCKET": heard.name}
        broker = ServedBroker(tmp_path / "logs", environment=environment).start()
        try:
            assert heard.hear() == ["STATUS=Starting"]
            ready, status = heard.hear()
            assert ready == "READY=1"
            assert status == f"STATUS=Serving at PLAINTEXT://127.0.0.1:{broker.port}"
        finally:
            assert broker.stop() == 0
        assert heard.hear()[0] == "STOPPING=1"
