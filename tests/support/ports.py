"""Ports for servers that get their port as a setting, and may be stopped and started again."""

from __future__ import annotations

import fcntl
import os
import socket
import tempfile
from pathlib import Path
from typing import Final

from cordwood.model.errors import CordwoodError

#: Below those that Linux gives to sockets that ask for any.
_PORTS: Final = range(20_000, 32_000)
#: Those that Sarama's functional tests connect to; they take no others.
SARAMA_PORTS: Final = range(29_091, 29_096)


class NoFreePortError(CordwoodError):
    """Something listens on each of the ports."""


def free_port() -> int:
    """A loopback port that nothing listens on, and that no other caller was given lately.

    It lies below the ports that the system gives to sockets that ask for any: no other process
    takes it before its server starts, or while that is stopped. Callers in all processes go
    through `_PORTS` in turn, by a file with the last one given.

    Raises:
        NoFreePortError: none of them is free.
    """
    path = Path(tempfile.gettempdir()) / f"cordwood-port-{os.getuid()}"
    with path.open("a+", encoding="ascii") as last:
        fcntl.flock(last, fcntl.LOCK_EX)
        last.seek(0)
        given = int(last.read() or _PORTS[-1])
        for step in range(1, len(_PORTS) + 1):
            port = _PORTS[(given - _PORTS.start + step) % len(_PORTS)]
            if port not in SARAMA_PORTS and _is_free(port):
                last.truncate(0)
                last.write(str(port))
                return port
    raise NoFreePortError(f"no port of {_PORTS} is free")


def listens(port: int) -> bool:
    """Whether a server listens at a port of the loopback interface.

    A client that is refused waits before it connects again, each time longer: a server that starts
    is asked by a client once it listens.
    """
    with socket.socket() as probe:
        probe.settimeout(1)
        return probe.connect_ex(("127.0.0.1", port)) == 0


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
        return True
