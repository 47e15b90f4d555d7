"""Logs, a broker's cleaner over them, and its engine in another process."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from cordwood.cleanup.engine.child_session import members
from cordwood.cleanup.engine.spark_child import CHILD_MODULE
from cordwood.cleanup.engine.spark_process import Backoff, SparkProcess
from cordwood.cleanup.plan.cleaner_settings import CleanerSettings
from cordwood.cleanup.schedule.log_cleaner import LogCleaner
from cordwood.configs.log_config import LogConfig
from cordwood.model.clock import MovableClock
from support.running_logs import RunningLogs, newest, read_records

SECONDS_MAX = 600
#: Waits before Spark is started again; the engine's clock is advanced by as much.
SOON = Backoff(60.0, 60.0)
#: Does without Spark.
STAND_IN = "support.stand_in_child"
#: A compaction of some 40 KB then takes long enough to be met in its middle.
SLOW = 8_000.0
FAST = 1e12

COMPACT = LogConfig(
    cleanup_policy=frozenset({"compact"}), segment_bytes=8_000, min_cleanable_dirty_ratio=0.0
)


def until(what: Callable[[], object]) -> None:
    """Waits until something has come about.

    Raises:
        AssertionError: it has not, after ten minutes.
    """
    deadline = time.monotonic() + SECONDS_MAX
    while not what():
        assert time.monotonic() < deadline, "it did not come about"
        time.sleep(0.005)


class CleanerBench:
    """Compacted logs of topic t, which are cleaned on demand.

    `pids` are the children that were seen.
    """

    def __init__(
        self,
        root: Path,
        *,
        module: str = CHILD_MODULE,
        later: Backoff = SOON,
        grace_s: float = SECONDS_MAX,
        **settings: Any,
    ) -> None:
        self.logs = RunningLogs(root, {"t": COMPACT})
        self.settings = CleanerSettings(**settings)
        self._later = later
        self._clock = MovableClock()
        self.engine = SparkProcess(
            unavailable=later, died=later, grace_s=grace_s, module=module, clock=self._clock
        )
        self.cleaner = LogCleaner(
            self.logs.manager, self.logs.cleaning, self.engine, self.logs.clock, self.settings
        )
        self.pids: set[int] = set()

    def fill(self, name: str = "t-0", records: int = 500) -> dict[bytes, tuple[bytes, int]]:
        """Appends records of 50 keys; what a reader then ends with."""
        log = self.logs.log(name)
        for n in range(records):
            self.logs.put(log, (b"%d" % (n % 50), b"%d" % n))
        return self.state(name)

    def state(self, name: str = "t-0") -> dict[bytes, tuple[bytes, int]]:
        """The newest value and offset of each key of a log."""
        return newest(read_records(self.logs.log(name)))

    def reconfigure(self, **settings: Any) -> None:
        """Puts other settings in force."""
        self.settings = replace(self.settings, **settings)
        self.cleaner.reconfigure(self.settings)

    def wait_for_the_next_start(self) -> None:
        """Advances the engine's clock until it may start a process again."""
        self._clock.advance(int(self._later.longest_s * 1000))

    def clean_in_thread(self) -> threading.Thread:
        """Has all that is due cleaned beside the caller."""
        thread = threading.Thread(target=self.cleaner.run_once_now, daemon=True)
        thread.start()
        return thread

    def until_in_a_round(self, name: str = "t-0") -> None:
        """Waits until a task is at work on a log."""
        directory = self.logs.log(name).directory
        until(lambda: list(directory.glob("cordwood.clean.*.staged")))

    @property
    def pid(self) -> int:
        """The child that there is."""
        pid = self.engine.status().pid
        assert isinstance(pid, int), self.engine.status()
        self.pids.add(pid)
        return pid

    def staged(self) -> list[Path]:
        """Staged files that tasks have left in logs' directories."""
        return list(self.logs.directories[0].rglob("*.staged"))

    def last_run(self) -> tuple[str, str]:
        """Outcome of the last compaction, and the error."""
        run = self.cleaner.status().last_runs[0]
        return run.outcome, run.error

    def close(self) -> None:
        """Stops it all.

        Raises:
            AssertionError: processes were left.
        """
        if self.engine.status().pid:
            assert self.pid
        self.cleaner.shutdown()
        left = {pid: members(pid) for pid in self.pids}
        assert not any(left.values()), f"processes were left: {left}"
        assert self.staged() == []
