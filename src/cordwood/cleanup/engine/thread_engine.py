"""The rewriting of an erasure in this process: for logs too small for Spark's start to pay."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

from cordwood.cleanup.access.announcements import end_attempt
from cordwood.cleanup.access.commit import CompactionCommitter
from cordwood.cleanup.engine.commit_loop import begin_all, commit_while, reject_unfinished
from cordwood.cleanup.engine.survivors import Progress, no_progress
from cordwood.cleanup.engine.whole import Lane, WholeCompaction
from cordwood.cleanup.plan.log_compaction import LogCompaction
from cordwood.model.errors import CordwoodError
from cordwood.storage.filesystem import OS, FileSystem


class ThreadEngine:
    """An `Engine` that runs compactions one after the other, in a thread beside the owner's.

    An erasure has no keys to be indexed, so none is too large for it.
    """

    def __init__(self, progress: Progress = no_progress, *, fs: FileSystem = OS) -> None:
        """Takes what is called with the number of bytes read."""
        self._progress = progress
        self._fs = fs

    def run(self, committers: Sequence[CompactionCommitter]) -> None:
        """Runs each; afterwards its committer has an outcome."""
        committers = begin_all(committers)
        with ThreadPoolExecutor(1, thread_name_prefix="erasure") as pool:
            futures = [pool.submit(self._execute, each) for each in committers]
            try:
                commit_while(committers, lambda: not all(future.done() for future in futures))
            except BaseException:
                for future, committer in zip(futures, committers, strict=True):
                    future.cancel()
                    committer.stop_tasks()
                raise
        reject_unfinished(committers)

    def _execute(self, committer: CompactionCommitter) -> None:
        try:
            self._rewrite(committer.compaction)
        except (CordwoodError, OSError) as error:
            committer.reject(error)
            with suppress(OSError, CordwoodError):
                directory = Path(committer.compaction.directory)
                end_attempt(directory, committer.compaction.attempt.token, fs=self._fs)

    def _rewrite(self, compaction: LogCompaction) -> None:
        work = WholeCompaction(compaction, [Lane(self._progress)], fs=self._fs)
        try:
            work.index(0)
            work.rewrite()
            work.finish()
        finally:
            work.end()
