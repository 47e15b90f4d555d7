"""Throttling of a task's reads and writes."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from cordwood.cleanup.access.announcements import begin_attempt, end_attempt
from cordwood.cleanup.access.commit import CompactionCommitter
from cordwood.cleanup.engine import tasks
from cordwood.cleanup.engine.progress_file import ProgressFile
from cordwood.cleanup.engine.rewrite import GroupRewriter
from cordwood.cleanup.plan.log_compaction import LogCompaction
from cordwood.cleanup.schedule.cleaner import OnlineCleaner
from cordwood.configs.log_config import LogConfig
from cordwood.model.clock import MovableClock, SystemClock
from cordwood.model.errors import EngineError
from cordwood.storage.filesystem import OS
from support.in_process_engine import CompiledEngine
from support.running_logs import RunningLogs
from support.whole_compaction import survivors_of


def test_what_is_read_and_what_is_written_both_count(tmp_path: Path) -> None:
    clock = SystemClock()
    begin_attempt(tmp_path, "a", fs=OS)
    progress = ProgressFile(str(tmp_path), "a", "clean", bytes_per_s=10_000)
    begun = clock.monotonic_s()
    progress(1_000)
    assert 0.1 <= clock.monotonic_s() - begun < 30
    progress.wrote(1_000)
    assert clock.monotonic_s() - begun >= 0.2
    (file,) = tmp_path.glob("cordwood.clean.*")
    assert file.read_text() == "1000", "progress is what was read"
    progress.close()


def test_a_task_that_waits_ends_when_its_round_is_given_up(tmp_path: Path) -> None:
    begin_attempt(tmp_path, "a", fs=OS)
    progress = ProgressFile(str(tmp_path), "a", "clean", bytes_per_s=1)
    end_attempt(tmp_path, "a", fs=OS)
    for move in (progress, progress.wrote):
        with pytest.raises(EngineError, match="given up"):
            move(1_000)


@pytest.mark.parametrize("moved", [0, 100], ids=["before it begins", "between two blocks"])
def test_a_task_that_waited_does_not_go_faster_afterwards(tmp_path: Path, moved: int) -> None:
    clock = MovableClock()
    begin_attempt(tmp_path, "a", fs=OS)
    progress = ProgressFile(str(tmp_path), "a", "clean", bytes_per_s=10_000, clock=clock)
    if moved:
        progress(moved)
    clock.advance(600_000)
    begun = clock.monotonic_s()
    progress(8_000)
    assert clock.monotonic_s() - begun >= 0.5, "all but what the last 300 ms allow"


class Counting(CompiledEngine):
    """Notes what a compaction's task reads and writes, and what its groups take."""

    def __init__(self) -> None:
        super().__init__()
        self.rounds: list[LogCompaction] = []
        self.read: list[int] = []
        self.wrote: list[int] = []

    def _run(self, committer: CompactionCommitter) -> None:
        # A stage of its own, so that groups need not be put in place meanwhile.
        compaction = replace(
            committer.compaction, groups=(tuple(b for g in committer.compaction.groups for b in g),)
        )
        found = survivors_of(compaction)
        specs = tasks.rewrite_specs(compaction, found)
        rewriter = GroupRewriter(self.read.append, self.wrote.append)
        manifest = rewriter.rewrite(specs[0])
        assert sum(self.read) == sum(s.size_bytes for s in compaction.segments)
        assert sum(self.wrote) == manifest.log_bytes > 0
        super()._run(committer)


def test_a_rewrite_says_how_much_it_wrote(tmp_path: Path) -> None:
    compact = LogConfig(
        cleanup_policy=frozenset({"compact"}), segment_bytes=2_000, min_cleanable_dirty_ratio=0.0
    )
    logs = RunningLogs(tmp_path, {"t": compact})
    for n in range(100):
        logs.put(logs.log(), (b"%d" % (n % 70), b"%d" % n))
    engine = Counting()
    assert OnlineCleaner(logs.cleaning, engine).clean_once()
    assert engine.wrote
