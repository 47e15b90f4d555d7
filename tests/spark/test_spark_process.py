"""Spark in a process of its own, beside a log that is written to and read."""

from __future__ import annotations

import json
import logging
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from cordwood.cleanup.engine.child_session import members
from cordwood.model.topic_partition import TopicPartition
from support.cleaner_bench import FAST, SECONDS_MAX, SLOW, CleanerBench, until
from support.running_logs import read_records

pytestmark = pytest.mark.spark

T0 = TopicPartition("t", 0)


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[CleanerBench]:
    bench = CleanerBench(tmp_path)
    yield bench
    bench.close()


class Beside:
    """Appends to a log and reads it, in threads of their own, until it is stopped."""

    def __init__(self, bench: CleanerBench) -> None:
        self.bench = bench
        self.written = self.passes = 0
        self.errors: list[BaseException] = []
        self._stop = threading.Event()
        self._threads = [self._start(self._write), self._start(self._read)]

    def _start(self, work: Callable[[], None]) -> threading.Thread:
        def run() -> None:
            try:
                work()
            except BaseException as error:
                self.errors.append(error)

        thread = threading.Thread(target=run, daemon=True)
        thread.start()
        return thread

    def _write(self) -> None:
        log = self.bench.logs.log()
        while not self._stop.wait(0.002):
            self.bench.logs.put(log, (b"%d" % (self.written % 50), b"%d" % self.written))
            self.written += 1

    def _read(self) -> None:
        log = self.bench.logs.log()
        while not self._stop.is_set():
            offsets = [record.offset for record in read_records(log)]
            assert offsets == sorted(set(offsets)), "offsets do not ascend"
            self.passes += 1

    def stop(self) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join(SECONDS_MAX)
        assert self.errors == []


def test_a_warm_child_cleans_a_log_beside_appends_and_reads(bench: CleanerBench) -> None:
    bench.fill()
    beside = Beside(bench)
    assert bench.cleaner.run_once_now() >= 1
    for _ in range(3):
        seen = beside.written
        until(lambda seen=seen: beside.written > seen + 300)  # type: ignore[misc]
        bench.cleaner.run_once_now()
    beside.stop()
    assert beside.passes > 1
    status = bench.engine.status()
    assert (status.state, status.starts, status.deaths) == ("warm", 1, 0)
    assert (status.rounds_done or 0) >= 4
    log = bench.logs.log()
    expected = {
        b"%d" % key: beside.written - 1 - (beside.written - 1 - key) % 50 for key in range(50)
    }
    assert {key: int(value) for key, (value, _) in bench.state().items()} == expected
    assert len(read_records(log)) < 500 + beside.written - 300
    niceness = {os.getpriority(os.PRIO_PROCESS, pid) for pid in members(bench.pid)}
    own = os.getpriority(os.PRIO_PROCESS, 0)
    assert niceness == {own + 10}, "its priority is not below that of the process that serves"


def test_keys_that_do_not_fit_the_memory_for_them_are_gathered_by_several_tasks(
    tmp_path: Path,
) -> None:
    bench = CleanerBench(tmp_path, dedupe_buffer_size=(1 << 20) + 1)
    state = bench.fill(records=20_000)
    assert bench.cleaner.run_once_now() == 1
    assert bench.state() == state
    log = bench.logs.log()
    assert len(read_records(log)) < 500
    (run,) = bench.cleaner.status().last_runs
    assert (run.keys or 0) >= 50
    bench.logs.set_checkpoint(log.active.base_offset - 1)
    again = bench.fill()
    assert bench.cleaner.run_once_now() == 1, "a clean section that is looked up"
    assert bench.state() == again
    assert bench.logs.checkpoint() == log.active.base_offset
    bench.close()


VICTIMS = ["child", "machine", "worker"]


@pytest.mark.parametrize("kills", [2, pytest.param(20, marks=pytest.mark.nightly)])
def test_killed_in_the_middle_of_rounds_nothing_is_lost_and_all_is_cleaned(
    bench: CleanerBench, kills: int
) -> None:
    state = bench.fill()
    for number in range(kills):
        bench.reconfigure(io_max_bytes_per_second=SLOW)
        thread = bench.clean_in_thread()
        bench.until_in_a_round()
        pid = bench.pid
        kill(bench, VICTIMS[number % len(VICTIMS)])
        thread.join(SECONDS_MAX)
        assert members(pid) == [], "processes were left"
        assert bench.staged() == []
        assert bench.last_run()[0] == "failed"
        assert bench.state() == state
        assert bench.cleaner.status().partitions[0].uncleanable is None
        bench.wait_for_the_next_start()
    bench.reconfigure(io_max_bytes_per_second=FAST)
    assert bench.cleaner.run_once_now() == 1
    assert bench.state() == state
    assert bench.logs.checkpoint() == bench.logs.log().active.base_offset
    assert bench.engine.status().deaths == kills


def kill(bench: CleanerBench, victim: str) -> None:
    """Kills the child, its virtual machine, or a process that does a task's work."""
    machine = next(pid for pid in members(bench.pid) if "java" in name_of(pid))
    others = {0, os.getpid(), machine}
    workers = [pid for pid in members(bench.pid) if parent_of(pid) not in others]
    pids = {"child": [bench.pid], "machine": [machine], "worker": workers}[victim]
    pids = [pid for pid in pids if pid != machine or victim == "machine"]
    assert pids, f"no {victim}"
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def name_of(pid: int) -> str:
    """Empty for a process that has ended."""
    with suppress(OSError):
        return Path(f"/proc/{pid}/comm").read_text()
    return ""


def parent_of(pid: int) -> int:
    """0 for a process that has ended."""
    with suppress(OSError):
        stat = Path(f"/proc/{pid}/stat").read_text()
        return int(stat[stat.rindex(")") + 2 :].split()[1])
    return 0


def test_without_java_the_status_says_so_and_it_is_found_when_it_comes(
    bench: CleanerBench, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    state = bench.fill()
    with monkeypatch.context() as without:
        without.setenv("PATH", "")
        without.setenv("JAVA_HOME", "")
        for _ in range(2):
            assert bench.cleaner.run_once_now() == 0
            bench.wait_for_the_next_start()
        status = bench.cleaner.status().engine
    assert status.state == "unavailable"
    assert "needs Java 17 or newer; none was found" in status.reason
    assert bench.cleaner.gauges.engine_available() == 0
    assert sum(record.levelno == logging.ERROR for record in caplog.records) == 1
    bench.fill("t-1")
    assert bench.cleaner.run_once_now() == 2
    assert bench.state() == state
    assert bench.cleaner.gauges.engine_available() == 1


def test_a_topic_deleted_in_the_middle_of_a_round_is_let_go_and_spark_serves_on(
    bench: CleanerBench,
) -> None:
    bench.fill("t-1")
    bench.cleaner.run_once_now()
    pid = bench.pid
    # The compaction would take minutes.
    bench.reconfigure(io_max_bytes_per_second=SLOW / 40)
    bench.fill()
    thread = bench.clean_in_thread()
    bench.until_in_a_round()
    begun = time.monotonic()
    bench.logs.manager.delete(T0)
    assert time.monotonic() - begun < 60
    thread.join(SECONDS_MAX)
    assert bench.last_run()[0] == "aborted"
    bench.reconfigure(io_max_bytes_per_second=FAST)
    bench.fill("t-1")
    assert bench.cleaner.run_once_now() == 1
    assert bench.pid == pid


PROGRAM = """
import json, sys, threading, time
from dataclasses import replace
from pathlib import Path
from cordwood.cleanup.schedule.cleaner_manager import CleanerManager
from cordwood.cleanup.plan.cleaner_settings import CleanerSettings
from cordwood.cleanup.schedule.log_cleaner import LogCleaner
from cordwood.cleanup.engine.spark_process import SparkProcess
from cordwood.format.batch_header import (CREATE_TIME)
from cordwood.format.record_batch import (Record, build_batch)
from cordwood.configs.log_config import LogConfig
from cordwood.model.topic_partition import TopicPartition
from cordwood.storage.log_manager import LogManager

compact = LogConfig(
    cleanup_policy=frozenset({"compact"}), segment_bytes=8_000, min_cleanable_dirty_ratio=0.0
)
logs = LogManager([Path(sys.argv[1])], topic_config=lambda _: compact)
logs.load()
log = logs.get_or_create(TopicPartition("t", 0))
engine = SparkProcess()
settings = CleanerSettings(backoff_ms=50)
cleaner = LogCleaner(logs, CleanerManager(logs), engine, logs.context.clock, settings)

def fill():
    for n in range(500):
        records = [Record(0, logs.context.clock.now_ms(), b"%d" % (n % 50), b"%d" % n)]
        log.append_as_leader(build_batch(records, base_offset=0, timestamp_type=CREATE_TIME))
        log.update_high_watermark(log.log_end_offset)

fill()
cleaner.startup()
while not cleaner.status().last_runs:
    time.sleep(0.05)
heavy = [m for m in ("numpy", "numba", "pyarrow", "pandas", "pyspark", "py4j") if m in sys.modules]
outcome = cleaner.status().last_runs[0].outcome
print(json.dumps([outcome, heavy, engine.status().pid]), flush=True)
cleaner.reconfigure(replace(settings, io_max_bytes_per_second=8_000.0))
fill()
while not list(log.directory.glob("cordwood.clean.*.staged")):
    time.sleep(0.005)
print("in a compaction", flush=True)
threading.Event().wait()
"""


def test_the_process_that_serves_loads_nothing_heavy_and_takes_spark_along_when_it_is_killed(
    tmp_path: Path,
) -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", PROGRAM, str(tmp_path)], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    try:
        outcome, heavy, pid = json.loads(process.stdout.readline())
        assert (outcome, heavy) == ("cleaned", [])
        assert process.stdout.readline() == "in a compaction\n"
        assert len(members(pid)) >= 3, "Python, Java, and a worker"
    finally:
        process.kill()
        process.communicate()
    until(lambda: members(pid) == [])
