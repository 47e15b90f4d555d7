"""Compactions run in this process, without Spark: a task in a thread, the log's owner beside it.

It is to the cleaning what `cordwood.cleanup.spark.job.SparkEngine` is, for tests that need no JVM.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from cordwood.cleanup import whole
from cordwood.cleanup.announcements import require_wanted
from cordwood.cleanup.clean import clean
from cordwood.cleanup.cleaner_settings import CleanerSettings
from cordwood.cleanup.commit import CompactionCommitter
from cordwood.cleanup.estimate.values import Estimator
from cordwood.cleanup.report import Report
from cordwood.cleanup.request import CleanRequest, Engine, Listener, Resolved
from cordwood.cleanup.supervise import begin_all, commit_ready
from cordwood.model.clock import SystemClock, pause
from cordwood.model.config import LogConfig
from cordwood.model.errors import CordwoodError
from cordwood.storage.filesystem import OS, FileSystem
from support.whole_compaction import clean_whole

_POLL_S = 0.001


class InProcessEngine:
    """Runs compactions one after the other; several threads may run some at once."""

    #: Where the tasks read and write.
    fs: FileSystem = OS
    #: No batch may take more memory, as with `--memory` on Spark; no bound of its own if None.
    batch_bytes_max: int | None = None

    def __init__(self, *, batch_bytes_max: int | None = None) -> None:
        """Takes the bound, if there is one."""
        if batch_bytes_max is not None:
            self.batch_bytes_max = batch_bytes_max

    def run(self, committers: Sequence[CompactionCommitter]) -> None:
        """Runs each compaction; afterwards its committer is done or has an error in its result."""
        for committer in begin_all(committers):
            self._run(committer)

    def _run(self, committer: CompactionCommitter) -> None:
        errors: list[Exception] = []
        planned = committer.compaction
        if self.batch_bytes_max is not None:
            planned = replace(planned, batch_bytes_max=self.batch_bytes_max)

        def go_on(_: int) -> None:
            compaction = committer.compaction
            require_wanted(Path(compaction.directory), compaction.attempt, fs=self.fs)

        def work() -> None:
            try:
                clean_whole(planned, [whole.Lane(go_on)], fs=self.fs)
            except (CordwoodError, OSError) as error:
                errors.append(error)

        task = threading.Thread(target=work, name=f"task of {committer.compaction.name}")
        try:
            # A signal that the task itself raises may be handled before `start` has returned.
            task.start()
            while task.is_alive():
                if not self._poll(committer):
                    pause(_POLL_S)
        except KeyboardInterrupt:
            committer.stop_tasks()
            task.join()
            raise
        task.join()
        self._poll(committer)
        if errors and committer.result.error is None:
            committer.result.error = errors[0]

    def _poll(self, committer: CompactionCommitter) -> bool:
        return commit_ready([committer])


class ManagedInProcessEngine(InProcessEngine):
    """The same, as a broker takes it."""

    def configure(self, settings: CleanerSettings) -> None:
        """Takes what there is."""

    def status(self) -> Mapping[str, Any]:
        """Always there."""
        return {"state": "in process", "reason": ""}

    def close(self) -> None:
        """Has nothing to end."""


@contextmanager
def in_process() -> Iterator[Engine]:
    """An engine factory for `cordwood.cleanup.clean.clean`."""
    yield InProcessEngine()


def clean_in_process(
    log_dir: Path, configs: Mapping[str, LogConfig], *, now_ms: int, **options: Any
) -> Report:
    """Cleans a log directory without Spark.

    `options` are fields of `CleanRequest`, or `listener`, `engine` or `estimator`, which `clean`
    takes.

    Topics without an entry in `configs` are those that no source describes.
    """

    def resolve(topic: str) -> Resolved | None:
        config = configs.get(topic)
        return None if config is None else Resolved(config=config, origin={})

    listener: Listener | None = options.pop("listener", None)
    engine = options.pop("engine", in_process)
    estimator: Estimator | None = options.pop("estimator", None)
    given: dict[str, Any] = {"log_dirs": (log_dir,), "resolve": resolve, "now_ms": now_ms}
    return clean(
        CleanRequest(**given | options),
        engine,
        clock=SystemClock(),
        listener=listener,
        estimator=estimator,
    )
