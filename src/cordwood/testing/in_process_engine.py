"""Rounds run in this process, without Spark: a task in a thread, the log's owner beside it.

It is to the cleaning what `cordwood.cleanup.spark.job.SparkEngine` is, for tests that need no JVM.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from cordwood.cleanup import tasks
from cordwood.cleanup.commit import RoundCommitter
from cordwood.cleanup.request import Engine
from cordwood.model.clock import pause
from cordwood.model.errors import CordwoodError

_POLL_S = 0.001


class InProcessEngine:
    """Runs rounds one after the other."""

    def run(self, committers: Sequence[RoundCommitter]) -> None:
        """Runs every round; afterwards each committer is done or has an error in its result."""
        for committer in committers:
            self._run(committer)

    def _run(self, committer: RoundCommitter) -> None:
        errors: list[Exception] = []

        def work() -> None:
            try:
                tasks.clean_whole(committer.round)
            except (CordwoodError, OSError) as error:
                errors.append(error)

        task = threading.Thread(target=work, name=f"task of {committer.round.name}")
        task.start()
        while task.is_alive():
            if not self._poll(committer):
                pause(_POLL_S)
        task.join()
        self._poll(committer)
        if errors and committer.result.error is None:
            committer.result.error = str(errors[0])

    def _poll(self, committer: RoundCommitter) -> bool:
        if committer.done or committer.result.error is not None:
            return False
        try:
            return committer.poll()
        except (OSError, CordwoodError) as error:
            committer.give_up(str(error))
            return False


@contextmanager
def in_process() -> Iterator[Engine]:
    """An engine factory for `cordwood.cleanup.clean.clean`."""
    yield InProcessEngine()
