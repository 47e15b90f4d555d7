"""Reports the state of a service to systemd, or what speaks its protocol: sd_notify(3).

The service manager names a datagram socket in NOTIFY_SOCKET, and gets lines of `NAME=VALUE`. Where
no socket is named, nothing is sent. With WATCHDOG_USEC it ends a service that is silent so long.
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
from collections.abc import MutableMapping
from typing import Final

_log = logging.getLogger("cordwood.serve")

_SEND_S: Final = 1.0
_VARIABLES: Final = ("NOTIFY_SOCKET", "WATCHDOG_PID", "WATCHDOG_USEC")


class ServiceManager:
    """The service manager of this process; without one, the methods do nothing."""

    def __init__(self, socket_path: str | None = None, *, watchdog_s: float | None = None) -> None:
        """Creates an object that has sent no request.

        Args:
            socket_path: the manager's socket; `@` at its start is the abstract namespace.
            watchdog_s: after so many seconds of silence the manager ends this process.
        """
        self._address = socket_path
        self._watchdog_s = watchdog_s
        # Kept from the first message on: one that is made for each fails without a free descriptor.
        self._socket: socket.socket | None = None
        self._is_reached = True
        self._next_sign: asyncio.TimerHandle | None = None
        self._is_stopping = False

    @classmethod
    def of_environment(cls, environment: MutableMapping[str, str]) -> ServiceManager:
        """The manager that the environment names, which is removed: it is not that of children."""
        path, of_process, usec = (environment.pop(name, None) for name in _VARIABLES)
        is_ours = of_process is None or of_process == str(os.getpid())
        watchdog_s = int(usec) / 1e6 if usec and usec.isdecimal() and is_ours else None
        return cls(path or None, watchdog_s=watchdog_s or None)

    def status(self, text: str) -> None:
        """Says in words what the service does; `systemctl status` shows it."""
        self._send(f"STATUS={text}")

    def ready(self, text: str) -> None:
        """Says that the service serves; from now on the watchdog gets signs of the event loop."""
        self._send("READY=1", f"STATUS={text}")
        self._sign()

    def stopping(self) -> None:
        """Says that the service stops; once."""
        if self._is_stopping:
            return
        self._is_stopping = True
        if self._next_sign is not None:
            self._next_sign.cancel()
        self._send("STOPPING=1", "STATUS=Shutting down")
        if self._socket is not None:
            self._socket.close()
        self._address = self._socket = None

    def _sign(self) -> None:
        """A sign of life now, and again after half of the time that the watchdog waits."""
        if self._address is None or self._watchdog_s is None:
            return
        self._next_sign = asyncio.get_running_loop().call_later(self._watchdog_s / 2, self._sign)
        self._send("WATCHDOG=1")

    def _send(self, *lines: str) -> None:
        """Sends a message; where that fails, the next one is tried again, and one line logged."""
        if self._address is None:
            return
        address = f"\0{self._address[1:]}" if self._address.startswith("@") else self._address
        try:
            if self._socket is None:
                self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
                self._socket.settimeout(_SEND_S)
            self._socket.sendto("\n".join(lines).encode(), address)
        except OSError as error:
            if self._is_reached:
                _log.warning(
                    "The service manager cannot be reached at NOTIFY_SOCKET=%s: %s. It may take "
                    "this process for one that has not started, or that hangs",
                    self._address,
                    error,
                )
            self._is_reached = False
        else:
            self._is_reached = True
