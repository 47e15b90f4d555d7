"""A running log, written to and read while Spark compacts it, in a process of its own.

Run as `python -m support.online_run MASTER`, with a job on standard input; what came of it
is written to standard output.
"""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from cordwood.cleanup.schedule.cleaner import OnlineCleaner
from cordwood.configs.log_config import LogConfig
from cordwood.storage.log.partition_log import PartitionLog
from support.running_logs import RunningLogs, newest, read_records

_SECONDS_MAX = 600


@dataclass(frozen=True, slots=True, kw_only=True)
class OnlineJob:
    """A log of `records` records of `keys` keys, compacted `rounds` times while more are written.

    `entries_max` and `whole_bytes` are the engine's limits: small ones split the log over tasks.
    """

    root: str
    records: int
    keys: int
    rounds: int
    entries_max: int
    whole_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveOutcome:
    """Result of a run.

    `written` records in all, `left` of them; `passes` of a reader, from the log's start to its end.
    `newest` are the offsets of the newest record of each key, by key.
    """

    written: int
    left: int
    passes: int
    checkpoint: int
    newest: dict[str, int]
    errors: list[str]
    uncleanable: list[str]


def run_online(master: str, job: OnlineJob) -> LiveOutcome:
    """Runs a job on a session in another process.

    Raises:
        AssertionError: the process failed.
    """
    done = subprocess.run(
        [sys.executable, "-m", "support.online_run", master],
        input=json.dumps(asdict(job)),
        capture_output=True,
        text=True,
        timeout=_SECONDS_MAX,
        check=False,
    )
    assert done.returncode == 0, f"{done.stdout[-2000:]}\n{done.stderr[-4000:]}"
    return LiveOutcome(**json.loads(done.stdout))


class _Run:
    """One job."""

    def __init__(self, job: OnlineJob) -> None:
        config = LogConfig(
            cleanup_policy=frozenset({"compact"}),
            segment_bytes=40_000,
            index_interval_bytes=500,
            min_cleanable_dirty_ratio=0.0,
        )
        self.job = job
        self.logs = RunningLogs(Path(job.root), {"t": config})
        self.log: PartitionLog = self.logs.log("t-0")
        self.written = self.passes = 0
        self.errors: list[str] = []
        self._stop = threading.Event()

    def write(self, count: int) -> None:
        """Appends so many records, in batches of ten."""
        for _ in range(count // 10):
            at = self.written
            records = [
                (b"key-%d" % ((at + n) % self.job.keys), b"%d" % (at + n)) for n in range(10)
            ]
            self.logs.put(self.log, *records)
            self.written += 10

    def _keep_writing(self) -> None:
        while not self._stop.wait(0.002):
            self.write(10)

    def _keep_reading(self) -> None:
        while not self._stop.is_set():
            offsets = [record.offset for record in read_records(self.log)]
            assert offsets == sorted(set(offsets)), "offsets do not ascend"
            self.passes += 1

    def _guarded(self, work: Callable[[], None]) -> Callable[[], None]:
        def run() -> None:
            try:
                work()
            except BaseException as error:
                self.errors.append(repr(error))

        return run

    def go(self, engine: Any) -> LiveOutcome:
        """Writes, then writes and reads while compactions run."""
        job = self.job
        self.write(job.records)
        cleaner = OnlineCleaner(self.logs.cleaning, engine)
        threads = [
            threading.Thread(target=self._guarded(work), daemon=True)
            for work in (self._keep_writing, self._keep_reading)
        ]
        for thread in threads:
            thread.start()
        for _ in range(job.rounds):
            cleaner.clean_once()
        self._stop.set()
        for thread in threads:
            thread.join(60)
        records = read_records(self.log)
        marked = self.logs.cleaning.uncleanable_partitions(self.log.log_dir)
        outcome = LiveOutcome(
            written=self.written,
            left=len(records),
            passes=self.passes,
            checkpoint=self.logs.checkpoint() or 0,
            newest={key.decode(): offset for key, (_, offset) in newest(records).items()},
            errors=self.errors,
            uncleanable=list(marked.values()),
        )
        self.logs.manager.shutdown()
        return outcome


def main() -> None:
    """The process that `run_online` starts."""
    from cordwood.cleanup.engine.spark.engine import SparkEngine  # noqa: PLC0415  # seconds to import
    from cordwood.cleanup.engine.spark.session import spark_runner  # noqa: PLC0415
    from cordwood.cleanup.engine.spark.task_limits import TaskLimits  # noqa: PLC0415  # seconds to import

    master = sys.argv[1]
    job = OnlineJob(**json.load(sys.stdin))
    with spark_runner(master) as runner:
        limits = TaskLimits(entries_max=job.entries_max, whole_bytes=job.whole_bytes)
        engine = SparkEngine(runner, slots=runner.slots, limits=limits)
        outcome = _Run(job).go(engine)
    print(json.dumps(asdict(outcome)))  # noqa: T201  # the answer


if __name__ == "__main__":
    main()
