"""Both halves of an engine in one process: compactions on a Spark session, and their commits."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from cordwood.cleanup.access.announcements import progress_bytes
from cordwood.cleanup.access.commit import CompactionCommitter
from cordwood.cleanup.engine.commit_loop import (
    CommittersOwner,
    begin_all,
    commit_while,
    reject_unfinished,
)
from cordwood.cleanup.engine.spark.job import SparkCompactions
from cordwood.cleanup.engine.spark.runner import Runner
from cordwood.cleanup.engine.spark.task_limits import TaskLimits
from cordwood.model.clock import SystemClock
from cordwood.storage.filesystem import OS, FileSystem

_SHOW_S = 0.25


@dataclass(slots=True)
class EngineCallbacks:
    """Callbacks for the caller of an engine.

    `report` gets (name of the compaction, phase, bytes done, bytes in all) while a phase runs, and
    `overall` (bytes done, bytes in all) of all compactions at the same times. `ended` gets (phase,
    seconds) when a phase is over: `clean` for logs that one task each does as a whole, else
    `index`, `probe` and `rewrite`. A phase ends where the next one begins.
    """

    report: Callable[[str, str, int, int], None] = lambda *_: None
    overall: Callable[[int, int], None] = lambda *_: None
    ended: Callable[[str, float], None] = lambda *_: None


class SparkEngine:
    """Both halves in one process: compactions on a session, their groups put in place meanwhile."""

    def __init__(
        self,
        runner: Runner,
        *,
        slots: int,
        cores: int = 1,
        limits: TaskLimits | None = None,
        callbacks: EngineCallbacks | None = None,
        fs: FileSystem = OS,
    ) -> None:
        self._fs = fs
        self._compactions = SparkCompactions(runner, slots=slots, cores=cores, limits=limits, fs=fs)
        self._callbacks = callbacks or EngineCallbacks()

    def require_visible(self, directories: Sequence[Path]) -> None:
        """Has tasks look for the directories."""
        self._compactions.require_visible(directories)

    def run(self, committers: Sequence[CompactionCommitter]) -> None:
        """Runs each compaction; afterwards its committer has an outcome."""
        committers = begin_all(committers)
        if not committers:
            return
        owner = _ReportingOwner(committers, self._callbacks, self._fs)
        compactions = [committer.compaction for committer in committers]
        pool = ThreadPoolExecutor(max_workers=1, thread_name_prefix="spark-job")
        future: Future[None] = pool.submit(self._compactions.execute, compactions, owner)
        pool.shutdown(wait=False)
        commit_while(committers, lambda: not future.done(), tick=owner.show)
        future.result()
        reject_unfinished(committers)
        owner.finish()


# Which part of a compaction a phase is: where it begins and how much it is. Of logs that are split,
# the index takes most of the time; a verification that is asked for takes as long as it.
_PARTS: Final = {
    "clean": (0.0, 1.0),
    "index": (0.0, 0.6),
    "probe": (0.0, 0.6),
    "rewrite": (0.6, 0.4),
}
_PARTS_VERIFIED: Final = {
    "clean": (0.0, 1.0),
    "index": (0.0, 0.35),
    "probe": (0.0, 0.35),
    "verify": (0.35, 0.4),
    "rewrite": (0.75, 0.25),
}


class _ReportingOwner(CommittersOwner):
    """Shows how far the present phase has come, and all compactions together."""

    def __init__(
        self, committers: Sequence[CompactionCommitter], callbacks: EngineCallbacks, fs: FileSystem
    ) -> None:
        super().__init__(committers)
        self._fs = fs
        self._callbacks = callbacks
        self._clock = SystemClock()
        self._shown_at = self._begun_s = 0.0
        self._phase: tuple[Sequence[str], str, int, int] | None = None
        self._committers = {c.compaction.name: c for c in committers}
        self._show_s = max([_SHOW_S, *(2 * each.look_again_s for each in committers)])
        self._size_bytes = sum(c.compaction.size_bytes for c in committers)

    def begin(self, names: Sequence[str], phase: str, total: int, done: int) -> None:
        """Begins a phase, which ends the one before."""
        self.end()
        self._phase = names, phase, total, done
        self._begun_s = self._clock.monotonic_s()

    def show(self) -> None:
        """Reports the progress, if it is time."""
        phase, now = self._phase, self._clock.monotonic_s()
        if phase is not None and now - self._shown_at > self._show_s:
            self._shown_at = now
            names, what, total, done = phase
            directories = {Path(self._committers[name].compaction.directory) for name in names}
            counted = sum(progress_bytes(each, what, fs=self._fs) for each in directories)
            done = min(done + counted, total)
            self._callbacks.report(_title(names), what, done, total)
            self._report_overall(names, what, done / total if total else 1.0)

    def end(self) -> None:
        """Reports that the present phase is over."""
        if self._phase is not None:
            names, what, total, _ = self._phase
            self._callbacks.report(_title(names), what, total, total)
            self._callbacks.ended(what, self._clock.monotonic_s() - self._begun_s)

    def finish(self) -> None:
        """Reports that all compactions are over: one that changes nothing ends with its index."""
        self.end()
        self._callbacks.overall(self._size_bytes, self._size_bytes)

    def _report_overall(self, names: Sequence[str], phase: str, share: float) -> None:
        present = set(names)
        done_bytes = 0.0
        for name, committer in self._committers.items():
            if name in present:
                parts = _PARTS_VERIFIED if committer.compaction.is_verified else _PARTS
                before, part = parts[phase]
                done_bytes += (before + part * share) * committer.compaction.size_bytes
            elif committer.outcome is not None:
                done_bytes += committer.compaction.size_bytes
        self._callbacks.overall(int(done_bytes), self._size_bytes)


def _title(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{len(names)} partitions"
