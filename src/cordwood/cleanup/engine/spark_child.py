"""One child process with a Spark session: its start, its messages, its end.

A thread of its own keeps it: it starts the process, reads its messages, and when the process has
ended ends whatever that had started. The process lives no longer than this one.
"""

from __future__ import annotations

import json
import logging
import os
import select
import socket
import subprocess
import sys
import threading
from contextlib import suppress
from typing import Any, Protocol

from cordwood.cleanup.engine.child_session import end_session
from cordwood.cleanup.engine.run_directory import RunDirectory
from cordwood.model.clock import SystemClock, pause

_log = logging.getLogger(__name__)

#: What runs in the process.
CHILD_MODULE = "cordwood.cleanup.engine.spark.child"
_HEAP = "1g"
# It starts at a low priority: on a machine that is busy that takes minutes.
_START_S = 600.0
_STOP_S = 10.0
_LOOK_S = 1.0
_EXIT_S = 10.0
_SEND_S = 30.0
_READ_BYTES = 1 << 16
_WORDS = "output"
_WORDS_BYTES = 2_000

Message = dict[str, Any]


class Keeper(Protocol):
    """The receiver of a child's reports, called in the child's thread."""

    def heard(self, child: SparkChild, message: Message) -> None:
        """Handles a message of the child."""

    def idle_s(self, child: SparkChild) -> float | None:
        """The number of seconds that it may be idle; None while it has work."""

    def retire(self, child: SparkChild) -> bool:
        """Retires the child if it is idle; returns whether it was."""

    def ended(self, child: SparkChild) -> None:
        """Handles the end of the child and all its processes."""


class SparkChild:
    """See the module. `trouble` is why it ended: "unavailable" or "died", and the reason.

    None if it was stopped. `state` is `starting`, `warm`, `stopping` or `ended`; `since_ms`
    is since when.
    """

    def __init__(self, keeper: Keeper, *, cores: int, module: str = CHILD_MODULE) -> None:
        """Prepares; `start` starts it, with so many tasks at once."""
        self.cores = cores
        self._module = module
        self.state = "starting"
        self.trouble: tuple[str, str] | None = None
        self.pid: int | None = None
        self.machine: int | None = None
        self._clock = SystemClock()
        self.since_ms = self._clock.now_ms()
        self._keeper = keeper
        self._lock = threading.Lock()
        self._pending: dict[int, Message] = {}
        self._end_wanted = False
        self._socket: socket.socket | None = None
        self._process: subprocess.Popen[bytes] | None = None
        # For all temporary files of the process, and of those that it starts.
        self._run_directory: RunDirectory | None = None
        self._wake_out, self._wake_in = os.pipe()
        # The process ends with the thread that started it: this one outlives it.
        self._thread = threading.Thread(target=self._keep, name="cordwood-spark", daemon=True)

    # ---- for any thread

    def start(self) -> None:
        """Starts the child in its thread, and returns immediately."""
        self._thread.start()

    def join(self) -> None:
        """Waits until it is gone."""
        self._thread.join()

    def send(self, number: int, message: Message) -> None:
        """Sends a message when the child is ready; `number` allows to withdraw it."""
        with self._lock:
            if self.state == "starting":
                self._pending[number] = message
                return
        self._say(message)

    def withdraw(self, number: int) -> bool:
        """Withdraws a message that is not sent yet; returns whether it was withdrawn."""
        with self._lock:
            return self._pending.pop(number, None) is not None

    def kill(self, reason: str, *, kind: str | None = None) -> None:
        """Ends the child immediately; records a kind of failure if given."""
        with self._lock:
            if self._end_wanted or self.state == "ended":
                return
            self._end_wanted = True
            if kind is not None:
                self.trouble = kind, reason
        _log.info("Ending the Spark process: %s", reason)
        self.look()

    def look(self) -> None:
        """Makes its thread check whether the child is still needed."""
        with self._lock:
            if self.state != "ended":
                os.write(self._wake_in, b"!")

    def _say(self, message: Message) -> None:
        data = json.dumps(message).encode() + b"\n"
        with self._lock:
            if self._socket is None:
                return  # it has ended; callers that wait for an answer are notified
            try:
                self._socket.sendall(data)
            except TimeoutError:
                self._end_wanted = True
                self.trouble = "died", "it does not stop"
            except OSError:
                return
        self.look()

    # ---- its thread

    def _keep(self) -> None:
        try:
            self._spawn()
            self._listen()
        except OSError as error:
            self.trouble = self.trouble or ("unavailable", f"it could not be started: {error}")
        except Exception as error:
            _log.exception("the Spark process cannot be supervised")
            self.trouble = self.trouble or ("died", f"it sent an invalid message: {error}")
        finally:
            self._bury()
            self._keeper.ended(self)

    def _spawn(self) -> None:
        run = self._run_directory = RunDirectory()
        mine, its = socket.socketpair()
        mine.settimeout(_SEND_S)
        numbers = (its.fileno(), os.getpid(), run.lock)
        command = [sys.executable, "-m", self._module, *map(str, numbers)]
        with its, (run.path / _WORDS).open("wb") as words:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=words,
                stderr=words,
                pass_fds=[its.fileno(), run.lock],
                env=os.environ | {"TMPDIR": str(run.path)},
                start_new_session=True,
            )
        with self._lock:
            self._socket = mine
        self.pid = self._process.pid
        self._say({"cores": self.cores, "heap": _HEAP})

    def _listen(self) -> None:
        """Reads its messages until it ends, or is to end."""
        assert self._socket is not None, "it was started"
        handle, rest = self._socket, b""
        begun_s = idle_since_s = self._clock.monotonic_s()
        while not self._is_to_end():
            ends: list[Any] = [handle, self._wake_out]
            ready, _, _ = select.select(ends, [], [], _LOOK_S)
            now_s = self._clock.monotonic_s()
            if self._wake_out in ready:
                os.read(self._wake_out, _READ_BYTES)
                if self._is_to_end():
                    return
            if handle in ready:
                data = handle.recv(_READ_BYTES)
                if not data:
                    self._note_end()
                    return
                *lines, rest = (rest + data).split(b"\n")
                for line in lines:
                    self._hear(json.loads(line))
            if self.state == "starting" and now_s - begun_s > _START_S:
                self.trouble = "unavailable", f"Spark did not start within {_START_S:.0f} s"
                return
            idle_s = self._keeper.idle_s(self)
            if idle_s is None or self.state == "starting":
                idle_since_s = now_s
            elif now_s - idle_since_s >= idle_s and self._keeper.retire(self):
                self._dismiss(handle)
                return

    def _is_to_end(self) -> bool:
        return self._end_wanted

    def _hear(self, message: Message) -> None:
        kind = message["of"]
        if kind == "ready":
            self.machine = message["machine"]
            with self._lock:
                self.state, self.since_ms = "warm", self._clock.now_ms()
                pending, self._pending = list(self._pending.values()), {}
            self._keeper.heard(self, message)
            for waiting in pending:
                self._say(waiting)
        elif kind in {"unavailable", "broken"}:
            trouble = "unavailable" if kind == "unavailable" else "died"
            self.trouble = self.trouble or (trouble, message["reason"])
            self._end_wanted = True
        else:
            self._keeper.heard(self, message)

    def _note_end(self) -> None:
        """Handles a child that has ended by itself."""
        assert self._process is not None, "it was started"
        # Its number stays its own until it is waited for: look, and leave the rest to `_bury`.
        # A busy machine may take a while between the end of its socket and its own.
        deadline = self._clock.monotonic_s() + _EXIT_S
        while self._exit_status() is None and self._clock.monotonic_s() < deadline:
            if self._is_to_end():
                break
            pause(0.01)
        status = self._exit_status()
        how = "it ended" if status is None else status
        words = self._last_words()
        self.trouble = self.trouble or ("died", f"{how}: {words}" if words else how)

    def _exit_status(self) -> str | None:
        assert self._process is not None, "it was started"
        try:
            found = os.waitid(os.P_PID, self._process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        except ChildProcessError:  # somebody else has waited for it
            return "it ended"
        if found is None:
            return None
        if found.si_code == os.CLD_EXITED:
            return f"it ended with {found.si_status}"
        return f"it was killed by signal {found.si_status}"

    def _last_words(self) -> str:
        assert self._run_directory is not None, "it was started"
        with suppress(OSError):
            data = (self._run_directory.path / _WORDS).read_bytes()[-_WORDS_BYTES:]
            lines = [line for line in data.decode(errors="replace").splitlines() if line.strip()]
            return lines[-1].strip() if lines else ""
        return ""

    def _dismiss(self, handle: socket.socket) -> None:
        """Lets the child end cleanly, within time limits."""
        self.state = "stopping"
        _log.info("Stopping Spark, which has been idle")
        self._say({"do": "stop"})
        deadline = self._clock.monotonic_s() + _STOP_S
        while self._clock.monotonic_s() < deadline:
            ready, _, _ = select.select([handle], [], [], _LOOK_S)
            if ready and not handle.recv(_READ_BYTES):
                return

    def _bury(self) -> None:
        """Ends all that is left of it."""
        process = self._process
        if process is not None:
            if not end_session(process.pid):
                _log.error("Processes of the Spark session %s do not end", process.pid)
            with suppress(subprocess.TimeoutExpired):
                process.wait(_STOP_S)
        with self._lock:
            self.state, self.since_ms = "ended", self._clock.now_ms()
            handle, self._socket = self._socket, None
            self._pending.clear()
            for end in (self._wake_in, self._wake_out):
                os.close(end)
        if handle is not None:
            handle.close()
        if self._run_directory is not None:
            self._run_directory.remove()
