"""`cordwood serve` in a process of its own, to be stopped, or killed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Self

from cordwood.model.errors import CordwoodError
from support.kafka import poll_until
from support.ports import free_port
from support.wire import ConnectionClosedError, Wire

_START_S = 180.0
_STOP_S = 180.0


class ServeError(CordwoodError):
    """The process did not do what was asked of it; its last words are in the text."""


class ServedBroker:
    """The process, its port and its directory; a restart continues in the same directory."""

    def __init__(
        self,
        log_dir: Path,
        properties: Mapping[str, str] | None = None,
        *,
        flags: Sequence[str] = ("--test-clock",),
        environment: Mapping[str, str] | None = None,
        module: str = "cordwood",
        port: int | None = None,
    ) -> None:
        """Nothing runs yet.

        Args:
            log_dir: the one log directory; what the process says is written beside it.
            properties: of server.properties.
            flags: of `cordwood serve`.
            environment: over this process's own.
            module: what is run, with the arguments of `cordwood`.
            port: of Kafka's protocol; a free one if None.
        """
        self.log_dir = log_dir
        self.port = free_port() if port is None else port
        self.http_port = free_port()
        self.log_file = log_dir.with_name(f"{log_dir.name}.serve.log")
        self._properties = dict(properties or {})
        self._flags = flags
        self._module = module
        self._environment = {**os.environ, **(environment or {})}
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def bootstrap_servers(self) -> str:
        """The bootstrap servers for clients."""
        return f"127.0.0.1:{self.port}"

    @property
    def url(self) -> str:
        """The address of metrics and status."""
        return f"http://127.0.0.1:{self.http_port}"

    @property
    def pid(self) -> int:
        """The number of the process."""
        assert self._process is not None, "not started"
        return self._process.pid

    @property
    def is_running(self) -> bool:
        """True between `start` and the end of the process."""
        return self._process is not None and self._process.poll() is None

    @property
    def exit_code(self) -> int | None:
        """The exit code if it has ended by itself; None while it runs."""
        return None if self._process is None else self._process.poll()

    @property
    def log(self) -> str:
        """The lines that it has logged."""
        return self.log_file.read_text(encoding="utf-8", errors="replace")

    def start(self) -> Self:
        """Returns when it answers.

        Raises:
            ServeError: it ended instead.
        """
        overrides = [f"--override={key}={value}" for key, value in self._properties.items()]
        with self.log_file.open("ab") as log:
            self._process = subprocess.Popen(
                [
                    *(sys.executable, "-m", self._module, "serve"),
                    *("--log-dir", str(self.log_dir), "--port", str(self.port)),
                    *("--http-port", str(self.http_port), *self._flags, *overrides),
                ],
                stdout=log,
                stderr=log,
                env=self._environment,
            )
        poll_until(self._answers, timeout_s=_START_S, what="the start of cordwood serve")
        return self

    def _answers(self) -> bool:
        assert self._process is not None
        if self._process.poll() is not None:
            raise ServeError(f"cordwood serve ended: {self.log[-3000:]}")
        try:
            with Wire(self.port, timeout_s=5) as wire:
                return bool(wire.versions())
        except (ConnectionClosedError, OSError):
            return False

    def stop(self) -> int:
        """Stops it by SIGTERM; its exit code."""
        return self._end(signal.SIGTERM)

    def kill(self) -> None:
        """Ends it as `kill -9` does."""
        self._end(signal.SIGKILL)

    def _end(self, number: int) -> int:
        if self._process is None:
            return 0
        self._process.send_signal(number)
        try:
            code = self._process.wait(_STOP_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
            raise ServeError(f"cordwood serve did not end: {self.log[-3000:]}") from None
        self._process = None
        return code

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self._end(signal.SIGTERM)
