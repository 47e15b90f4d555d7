"""A child process that runs compactions: it dies, hangs, cannot be had, and is no longer needed.

Here the child does without Spark; tests/spark has the real one.
"""

from __future__ import annotations

import json
import logging
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from cordwood.cleanup.engine.child_session import end_session, members
from cordwood.cleanup.engine.run_directory import PREFIX
from cordwood.cleanup.engine.spark_process import Backoff
from cordwood.model.topic_partition import TopicPartition
from cordwood.storage.log.partition_log import PartitionLog
from support.cleaner_bench import (
    FAST,
    SECONDS_MAX,
    SLOW,
    STAND_IN,
    CleanerBench,
    until,
)

T0 = TopicPartition("t", 0)


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[CleanerBench]:
    bench = CleanerBench(tmp_path, module=STAND_IN)
    yield bench
    bench.close()


def test_one_child_serves_round_after_round(bench: CleanerBench) -> None:
    assert bench.engine.status().state == "not started"
    state = bench.fill()
    assert bench.cleaner.run_once_now() == 1
    assert bench.state() == state
    first = bench.pid
    status = bench.engine.status()
    assert (status.state, status.rounds_done, status.starts) == ("warm", 1, 1)
    bench.fill()
    assert bench.cleaner.run_once_now() == 1
    assert bench.pid == first
    assert bench.staged() == []
    (latest, *_) = bench.cleaner.status().last_runs
    assert latest.keys == 50
    assert latest.buffer_utilization == pytest.approx(50 * 64 / (128 << 20), abs=1e-4)


@pytest.mark.parametrize("victim", ["child", "session"])
def test_killed_in_a_round_it_is_started_again_and_nothing_is_lost(
    bench: CleanerBench, victim: str
) -> None:
    state = bench.fill()
    bench.reconfigure(io_max_bytes_per_second=SLOW)
    thread = bench.clean_in_thread()
    bench.until_in_a_round()
    pid = bench.pid
    os.kill(pid, signal.SIGKILL) if victim == "child" else end_session(pid)
    thread.join(SECONDS_MAX)
    assert members(pid) == []
    assert bench.staged() == []
    assert bench.last_run() == ("failed", "the Spark process ended: it was killed by signal 9")
    assert bench.state() == state
    assert bench.engine.status().deaths == 1
    assert not bench.logs.cleaning.uncleanable_partitions(bench.logs.directories[0])
    bench.reconfigure(io_max_bytes_per_second=FAST)
    bench.wait_for_the_next_start()
    assert bench.cleaner.run_once_now() == 1
    assert bench.state() == state
    assert bench.engine.status().state == "warm"
    assert bench.pid != pid


def test_what_cannot_be_had_is_said_once_and_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("STAND_IN", "unavailable")
    bench = CleanerBench(tmp_path, module=STAND_IN)
    state = bench.fill()
    for _ in range(3):
        assert bench.cleaner.run_once_now() == 0
        bench.wait_for_the_next_start()
    status = bench.engine.status()
    assert (status.state, status.reason) == ("unavailable", "there is no Java")
    assert (status.starts or 0) >= 3
    assert bench.cleaner.gauges.engine_available() == 0
    assert bench.last_run() == ("failed", "there is no Java")
    errors = [r.getMessage() for r in caplog.records if r.levelno == logging.ERROR]
    assert len(errors) == 1
    assert errors[0].startswith(
        "Spark is not available, so no log is compacted: there is no Java. "
    )
    monkeypatch.setenv("STAND_IN", "")
    assert bench.cleaner.run_once_now() == 1
    assert bench.cleaner.gauges.engine_available() == 1
    assert bench.state() == state
    bench.cleaner.shutdown()


def test_without_the_extra_no_process_is_started_and_the_status_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setitem(sys.modules, "pyspark", None)
    bench = CleanerBench(tmp_path, module=STAND_IN)
    state = bench.fill()
    for _ in range(3):
        assert bench.cleaner.run_once_now() == 0
        bench.wait_for_the_next_start()
    reason = (
        "compaction needs the extra 'spark': pyspark is not installed. "
        "Install it: pip install 'cordwood[spark]'"
    )
    status = bench.engine.status()
    assert (status.state, status.reason, status.starts) == ("unavailable", reason, 0)
    assert bench.cleaner.gauges.engine_available() == 0
    assert bench.last_run() == ("failed", reason)
    (error,) = [r.getMessage() for r in caplog.records if r.levelno == logging.ERROR]
    assert reason in error
    assert bench.state() == state
    monkeypatch.undo()
    assert bench.cleaner.run_once_now() == 1, "it was installed meanwhile"
    bench.cleaner.shutdown()


def test_a_machine_on_which_it_cannot_be_started_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "not there"))
    bench = CleanerBench(tmp_path, module=STAND_IN)
    bench.fill()
    assert bench.cleaner.run_once_now() == 0
    status = bench.engine.status()
    assert status.state == "unavailable"
    assert status.reason.startswith("it could not be started: [Errno 2]")
    assert not bench.logs.manager.context.failures.offline
    assert not bench.logs.cleaning.uncleanable_partitions(bench.logs.directories[0])
    bench.close()


def test_a_fault_of_the_servers_own_ends_the_tasks_of_the_round(bench: CleanerBench) -> None:
    bench.fill()
    bench.reconfigure(io_max_bytes_per_second=SLOW)
    thread = bench.clean_in_thread()
    bench.until_in_a_round()
    pid = bench.pid
    cleaning = bench.logs.cleaning

    def fail_once(log: PartitionLog) -> None:
        del cleaning.check_cleaning_aborted
        raise TypeError(f"a fault of the server's own at {log.topic_partition}")

    cleaning.check_cleaning_aborted = fail_once  # type: ignore[method-assign]
    thread.join(SECONDS_MAX)
    assert members(pid) == []
    assert bench.staged() == []
    assert bench.last_run()[0] == "failed"


def test_between_two_tries_nothing_is_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STAND_IN", "dies at start")
    bench = CleanerBench(tmp_path, module=STAND_IN, later=Backoff(3600, 3600))
    bench.fill()
    assert bench.cleaner.run_once_now() == 0
    assert bench.cleaner.run_once_now() == 0
    status = bench.engine.status()
    assert (status.state, status.starts) == ("died", 1)
    assert status.reason == "it ended with 1: a bad start"
    assert 3000 < (status.retry_in_s or 0) <= 3600
    bench.cleaner.shutdown()


def test_a_topic_deleted_in_a_round_is_let_go_and_the_child_serves_on(bench: CleanerBench) -> None:
    bench.fill()
    # The compaction would take minutes.
    bench.reconfigure(io_max_bytes_per_second=SLOW / 40)
    thread = bench.clean_in_thread()
    bench.until_in_a_round()
    pid = bench.pid
    begun = time.monotonic()
    bench.logs.manager.delete(T0)
    assert time.monotonic() - begun < 60
    thread.join(SECONDS_MAX)
    assert bench.last_run()[0] == "aborted"
    assert bench.pid == pid
    bench.reconfigure(io_max_bytes_per_second=FAST)
    bench.fill("t-1")
    assert bench.cleaner.run_once_now() == 1
    assert bench.engine.status().starts == 1


def test_a_child_that_does_not_listen_does_not_keep_a_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STAND_IN", "deaf")
    bench = CleanerBench(tmp_path, module=STAND_IN, grace_s=0.5)
    bench.fill()
    thread = bench.clean_in_thread()
    until(lambda: bench.engine.status().state == "warm")
    pid = bench.pid
    begun = time.monotonic()
    bench.logs.manager.delete(T0)
    assert time.monotonic() - begun < 60
    thread.join(SECONDS_MAX)
    assert bench.last_run()[0] == "aborted"
    assert members(pid) == []
    monkeypatch.setenv("STAND_IN", "")
    bench.fill("t-1")
    assert bench.cleaner.run_once_now() == 1
    bench.cleaner.shutdown()


def test_a_stopped_child_does_not_keep_the_cleaner(bench: CleanerBench) -> None:
    bench.fill()
    bench.reconfigure(io_max_bytes_per_second=SLOW)
    thread = bench.clean_in_thread()
    bench.until_in_a_round()
    for pid in members(bench.pid):
        os.kill(pid, signal.SIGSTOP)
    begun = time.monotonic()
    bench.cleaner.shutdown()
    assert time.monotonic() - begun < 120
    thread.join(SECONDS_MAX)
    assert not thread.is_alive()
    assert bench.staged() == []
    assert bench.engine.status().state == "closed"


def test_idle_for_long_it_is_stopped_and_started_when_needed(bench: CleanerBench) -> None:
    bench.reconfigure(spark_idle_ms=50)
    bench.fill()
    assert bench.cleaner.run_once_now() == 1
    until(lambda: bench.engine.status().state == "not started")
    assert bench.engine.status().deaths == 0
    bench.fill()
    assert bench.cleaner.run_once_now() == 1
    assert bench.engine.status().starts == 2


def test_for_another_number_of_threads_it_is_started_anew(bench: CleanerBench) -> None:
    bench.fill()
    bench.cleaner.run_once_now()
    first = bench.pid
    bench.reconfigure(threads=2)
    until(lambda: members(first) == [])
    bench.fill()
    bench.cleaner.run_once_now()
    status = bench.engine.status()
    assert (status.cores, status.key_table_bytes) == (2, 64 << 20)
    assert bench.pid != first


def test_the_round_of_a_closed_engine_fails(bench: CleanerBench) -> None:
    bench.fill()
    bench.engine.close()
    assert bench.cleaner.run_once_now() == 0
    assert bench.last_run() == ("failed", "the engine was closed")


def test_whoever_started_it_is_killed_and_it_ends_with_all_it_started(tmp_path: Path) -> None:
    program = (
        "import json, sys, time\n"
        "from pathlib import Path\n"
        "from cordwood.cleanup.engine.spark_child import SparkChild\n"
        "class Keeper:\n"
        "    def heard(self, child, message):\n"
        "        print(json.dumps([child.pid, child.machine]), flush=True)\n"
        "    def idle_s(self, child): return None\n"
        "    def retire(self, child): return False\n"
        "    def ended(self, child): pass\n"
        "child = SparkChild(Keeper(), cores=1, module='support.stand_in_child')\n"
        "child.start()\n"
        "time.sleep(600)\n"
    )
    process = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE)
    assert process.stdout is not None
    pid, machine = json.loads(process.stdout.readline())
    assert {pid, machine} <= set(members(pid))
    process.kill()
    process.communicate()
    # The stand-in for a virtual machine does not see that its parent is gone; the child's end does.
    until(lambda: pid not in members(pid))
    end_session(pid)


def test_its_temporary_files_are_in_a_directory_that_is_gone_when_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    left = tmp_path / f"{PREFIX}left"
    left.mkdir()
    (left / "output").touch()
    bench = CleanerBench(tmp_path / "logs", module=STAND_IN)
    bench.fill()
    bench.cleaner.run_once_now()
    (run,) = tmp_path.glob(f"{PREFIX}*")
    assert run != left
    bench.close()
    assert not list(tmp_path.glob(f"{PREFIX}*"))


def test_signals_to_every_process_of_a_group_leave_the_child_to_its_parent(
    bench: CleanerBench,
) -> None:
    bench.fill()
    bench.cleaner.run_once_now()
    pid = bench.pid
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        os.kill(pid, number)
    bench.fill()
    bench.cleaner.run_once_now()
    assert bench.pid == pid
    assert bench.engine.deaths == 0


def test_a_session_is_ended_with_whatever_was_started_in_it() -> None:
    leader = subprocess.Popen(
        ["sh", "-c", "sleep 600 & setsid --help >/dev/null; (sleep 600 &) ; wait"],
        start_new_session=True,
    )
    until(lambda: len(members(leader.pid)) >= 3)
    assert end_session(leader.pid)
    assert members(leader.pid) == []
    leader.wait()
