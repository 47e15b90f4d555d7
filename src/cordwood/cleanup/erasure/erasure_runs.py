"""Erasures of a running broker, each in a thread beside its clients, one at a time.

Compiled code is loaded by the first of them. An erasure that a stop or a crash of the broker has
interrupted is listed as such until the next one, which completes it.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from cordwood.cleanup.erasure.erasure_answer import (
    Erasures,
    ErasureStatus,
    InterruptedErasure,
)
from cordwood.cleanup.erasure.pending import Pending
from cordwood.cleanup.erasure.report import ErasureReport
from cordwood.cleanup.erasure.request import EraseRequest
from cordwood.cleanup.schedule.log_cleaner import LogCleaner
from cordwood.model.errors import ConfigError, CordwoodError, EngineError
from cordwood.model.extras import NATIVE, require_extra
from cordwood.model.topic_names import INTERNAL_TOPICS
from cordwood.model.topic_partition import TopicPartition

if TYPE_CHECKING:
    from cordwood.cleanup.erasure.request import Erasure

_log = logging.getLogger(__name__)

_KEPT = 16

RUNNING, DONE, FAILED = "running", "done", "failed"


class ErasureRunsError(CordwoodError):
    """Another erasure is under way."""


@dataclass(slots=True, kw_only=True)
class ErasureRun:
    """One erasure: how far it is, and its result.

    `state` is `running`, `done` or `failed`; `report` is there unless it failed as a whole, with
    `error` then. Of the present phase, `done` of `total` are done: bytes, or partitions if
    `in_bytes` is False; `total` is 0 where it is unknown. `is_usage`: the request is wrong.
    """

    request: EraseRequest
    started_ms: int
    state: str = RUNNING
    phase: str = "starting"
    done: int = 0
    total: int = 0
    in_bytes: bool = False
    error: str = ""
    is_usage: bool = False
    report: ErasureReport | None = None
    warnings: list[str] = field(default_factory=list)
    over: threading.Event = field(default_factory=threading.Event)

    def answer(self) -> ErasureStatus:
        """Status of it at this moment."""
        return ErasureStatus(
            id=self.request.id,
            topics=[str(target) for target in self.request.targets],
            dry_run=self.request.dry_run,
            started_ms=self.started_ms,
            state=self.state,
            phase=self.phase,
            done=self.done,
            total=self.total,
            in_bytes=self.in_bytes,
            error=self.error,
            usage=self.is_usage,
            report=self.report,
            warnings=self.warnings,
        )


def require_topics(request: EraseRequest, partitions: Collection[TopicPartition]) -> None:
    """Refuses topics of which nothing is here, and those that coordinators have in memory.

    Raises:
        ConfigError: there is one.
    """
    for target in request.targets:
        if target.topic in INTERNAL_TOPICS:  # a glob leaves them out
            raise ConfigError(
                f"--topic {target}: a coordinator has its records in memory, and would write them "
                "again: stop the broker, and erase in its LOG_DIR"
            )
        if not any(target.covers(partition) for partition in partitions):
            raise ConfigError(f"--topic {target}: this broker has no such log")


class ErasureRuns:
    """Starts erasures, and knows of the last ones; any thread may call it."""

    def __init__(self, cleaner: LogCleaner) -> None:
        """Takes the cleaner of the logs, whose engine rewrites what is large."""
        self._cleaner = cleaner
        self._lock = threading.Lock()
        self._operations: deque[ErasureRun] = deque(maxlen=_KEPT)
        self._thread: threading.Thread | None = None
        self._stopping = False

    def start(self, request: EraseRequest) -> ErasureRun:
        """Starts an erasure, and returns at once.

        Raises:
            ErasureRunsError: another one is under way.
            ConfigError: a topic is not here, or is internal.
            MissingExtraError: compiled code is not installed.
            CordwoodError: the broker is being stopped.
        """
        require_extra(NATIVE, what="an erasure")
        manager = self._cleaner.manager
        require_topics(request, [log.topic_partition for log in manager.current_logs()])
        with self._lock:
            if self._stopping:
                raise CordwoodError("the broker is being stopped")
            running = next((each for each in self._operations if each.state == RUNNING), None)
            if running is not None:
                raise ErasureRunsError(
                    f"{running.request.id} is under way: a broker runs one erasure at a time"
                )
            operation = ErasureRun(request=request, started_ms=manager.logs.context.clock.now_ms())
            self._operations.append(operation)
            self._thread = threading.Thread(
                target=self._run, args=(operation,), name="cordwood-erasure", daemon=True
            )
            self._thread.start()
        return operation

    def status(self, operation_id: str | None = None) -> Erasures:
        """The last erasures, the newest first, or one of them; and interrupted ones.

        Raises:
            CorruptError: the plan of an interrupted one cannot be read.
        """
        with self._lock:
            operations = [
                each
                for each in reversed(self._operations)
                if operation_id in {None, each.request.id}
            ]
            is_running = any(each.state == RUNNING for each in self._operations)
        return Erasures(
            erasures=[each.answer() for each in operations],
            interrupted=[] if is_running else self._interrupted(),
        )

    def _interrupted(self) -> list[InterruptedErasure]:
        logs = self._cleaner.logs
        found = []
        for directory in logs.directories:
            if directory.path in logs.context.failures.offline:
                continue
            pending = Pending.read(directory.path, fs=logs.context.fs)
            if pending is not None:
                found.append(
                    InterruptedErasure(
                        id=pending.id,
                        log_dir=str(directory.path),
                        topics=pending.topics,
                        partitions=sorted(planned.partition for planned in pending.parts.values()),
                    )
                )
        return found

    def close(self) -> None:
        """Ends the erasure that is under way, and returns when it has ended.

        What is in place stays; the next erasure completes it.
        """
        with self._lock:
            self._stopping = True
            thread = self._thread
        if thread is not None:
            thread.join()

    # ---- its thread

    def _run(self, operation: ErasureRun) -> None:
        request = operation.request
        _log.info("Erasure %s of %s begins", request.id, ", ".join(map(str, request.targets)))
        try:
            result = self._erased(operation)
        except (CordwoodError, OSError) as error:
            operation.error = str(error)
            operation.is_usage = isinstance(error, ConfigError)
            operation.state = FAILED
            _log.warning("Erasure %s failed: %s", request.id, error)
        except Exception as error:
            operation.error = f"{type(error).__name__}: {error}"
            operation.state = FAILED
            _log.exception("Erasure %s failed", request.id)
        else:
            operation.report = result.report
            operation.warnings = list(result.warnings)
            operation.state = DONE
            _log.info("Erasure %s: %s", request.id, result.report.status)
        finally:
            operation.over.set()

    def _erased(self, operation: ErasureRun) -> Erasure:
        # Compiled code, which a broker without an erasure does not load.
        from cordwood.cleanup.erasure.erase_running import erase_online  # noqa: PLC0415
        from cordwood.cleanup.erasure.running_backend import RunningBackend  # noqa: PLC0415

        progress = _Progress(operation, self._require_wanted)
        backend = RunningBackend(
            operation.request,
            self._cleaner.engine,
            progress=progress,
            require_wanted=self._require_wanted,
            fs=self._cleaner.logs.context.fs,
        )
        return erase_online(
            operation.request,
            backend,
            self._cleaner.manager,
            listener=progress,
            require_wanted=self._require_wanted,
        )

    def _require_wanted(self) -> None:
        if self._stopping:
            raise EngineError("the broker is being stopped: erase again when it runs")


class _Progress:
    """A `Listener` and a counter of bytes, for the status of an operation."""

    def __init__(self, operation: ErasureRun, require_wanted: Callable[[], None]) -> None:
        self._operation = operation
        self._require_wanted = require_wanted

    def begin(self, phase: str, total: int) -> None:
        """Begins a phase; one of bytes gets its total by `begin_bytes`."""
        self._begin(phase, total, in_bytes=False)

    def begin_bytes(self, phase: str, total: int) -> None:
        """A phase over so many bytes begins."""
        self._begin(phase, total, in_bytes=True)

    def _begin(self, phase: str, total: int, *, in_bytes: bool) -> None:
        operation = self._operation
        operation.phase, operation.done, operation.total = phase, 0, total
        operation.in_bytes = in_bytes

    def advance(self, name: str) -> None:
        """Counts a step, and ends the erasure if it is not wanted any more."""
        del name
        self._require_wanted()
        if not self._operation.in_bytes:
            self._operation.done += 1

    def bytes_done(self, size_bytes: int) -> None:
        """Counts bytes that were read.

        Raises:
            EngineError: the broker is being stopped.
        """
        self._require_wanted()
        self._operation.done += size_bytes
