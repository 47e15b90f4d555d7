"""Log directories that have failed: once offline, never tried again while the process lives.

An error of a file in a directory, a failed fsync before all, says nothing certain about what is on
its disk; the directory goes offline and every log in it refuses, while other directories live on. A
full disk is no such failure: the append is refused, what is there stays readable, and the log says
so, once a minute for each directory while it lasts.

Source: org.apache.kafka.storage.internals.log.LogDirFailureChannel,
LocalLog.maybeHandleIOException.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from types import TracebackType

from cordwood.model.clock import Clock, SystemClock
from cordwood.model.errors import CordwoodError, NoSpaceError
from cordwood.model.kafka_errors import StorageError

_log = logging.getLogger(__name__)

_FULL_REPORT_PERIOD_S = 60.0


class FailureChannel:
    """The offline log directories, and the listeners for failures.

    `clock` says how long ago a full disk was last reported.
    """

    def __init__(self, clock: Clock | None = None) -> None:
        self._clock: Clock = clock or SystemClock()
        self._lock = threading.Lock()
        self._offline: dict[Path, str] = {}
        self._listeners: list[Callable[[Path, str], None]] = []
        # When a directory's full disk was last logged, and how many refusals there were since.
        self._full_logged_s: dict[Path, float] = {}
        self._full_unlogged: dict[Path, int] = {}

    @property
    def offline(self) -> dict[Path, str]:
        """The directories that are offline, and why."""
        with self._lock:
            return dict(self._offline)

    def subscribe(self, listener: Callable[[Path, str], None]) -> None:
        """Registers `listener`, called once for each directory that fails, with the reason."""
        self._listeners.append(listener)

    def fail(self, log_dir: Path, reason: str) -> None:
        """Takes a directory offline; the first reason is kept."""
        with self._lock:
            if log_dir in self._offline:
                return
            self._offline = {**self._offline, log_dir: reason}
        _log.error("Stopping serving logs in dir %s: %s", log_dir, reason)
        for listener in self._listeners:
            listener(log_dir, reason)

    def report_full(self, log_dir: Path, reason: str) -> None:
        """Logs that the disk of a directory is full and what helps, at most once a minute."""
        now_s = self._clock.monotonic_s()
        with self._lock:
            logged_s = self._full_logged_s.get(log_dir)
            if logged_s is not None and now_s - logged_s < _FULL_REPORT_PERIOD_S:
                self._full_unlogged[log_dir] = self._full_unlogged.get(log_dir, 0) + 1
                return
            self._full_logged_s[log_dir] = now_s
            unlogged = self._full_unlogged.pop(log_dir, 0)
        _log.warning(
            "The disk of log directory %s is full: writes that do not fit are refused until there "
            "is space, reads continue. Delete topics or records, lower retention.ms or "
            "retention.bytes, or enlarge the disk. %s%s",
            log_dir,
            reason,
            f"; {unlogged} more since the last such message" if unlogged else "",
        )

    def check(self, log_dir: Path) -> None:
        """Refuses work in a directory that is offline.

        Raises:
            StorageError: it is.
        """
        if self._offline and log_dir in self._offline:
            raise StorageError(
                f"The log dir {log_dir} is already offline due to a previous IO exception."
            )

    def guard(self, log_dir: Path, doing: str, what: object = "") -> AbstractContextManager[None]:
        """Work on files of `log_dir`; `doing` and `what` say which, for the error's text.

        Raises:
            StorageError: the directory is offline already, or a file's error has now taken it
                offline; or the disk is full, and the directory stays online.
        """
        return _Guard(self, log_dir, doing, what)


class RaisedFailures(FailureChannel):
    """Failure channel of logs that no broker serves: errors of files reach the caller unchanged.

    No directory goes offline: what fails in one log says nothing about the others.
    """

    def guard(self, log_dir: Path, doing: str, what: object = "") -> AbstractContextManager[None]:
        """Guards nothing."""
        return nullcontext()


class _Guard:
    """See `FailureChannel.guard`. No generator, no text made ahead: every read enters one."""

    __slots__ = ("_channel", "_doing", "_log_dir", "_what")

    def __init__(self, channel: FailureChannel, log_dir: Path, doing: str, what: object) -> None:
        self._channel = channel
        self._log_dir = log_dir
        self._doing = doing
        self._what = what

    def __enter__(self) -> None:
        self._channel.check(self._log_dir)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if not isinstance(error, (NoSpaceError, OSError)):
            return
        reason = f"Error while {f'{self._doing} {self._what}'.rstrip()}: {error}"
        if isinstance(error, OSError):
            self._channel.fail(self._log_dir, reason)
        else:
            self._channel.report_full(self._log_dir, reason)
        raise StorageError(reason) from error


@contextmanager
def reported(log: object, doing: str) -> Iterator[None]:
    """Logs the error of one log, so that work on the others continues."""
    try:
        yield
    except CordwoodError:
        _log.exception("Error %s %s", doing, log)


@contextmanager
def quiet_failure() -> Iterator[None]:
    """Logs a failed write: a failed directory is offline by now, a full one is tried again.

    Of a full disk `FailureChannel` logs once a minute, whatever is refused.
    """
    try:
        yield
    except StorageError as error:
        _log.log(logging.DEBUG if error.is_out_of_space else logging.WARNING, "%s", error)
