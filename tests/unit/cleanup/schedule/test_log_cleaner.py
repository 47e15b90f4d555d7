"""The cleaner of a broker: its threads, its pace, other settings, its metrics."""

from __future__ import annotations

import json
import logging
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from cordwood.cleanup.access.announcements import require_wanted
from cordwood.cleanup.access.commit import CompactionCommitter
from cordwood.cleanup.engine.commit_loop import begin_all
from cordwood.cleanup.engine.engine_status import EngineStatus
from cordwood.cleanup.plan.cleaner_settings import CleanerSettings
from cordwood.cleanup.schedule.cleaner_answer import CleanerStatus
from cordwood.cleanup.schedule.log_cleaner import LogCleaner
from cordwood.configs.broker_config import BrokerConfig
from cordwood.configs.log_config import LogConfig
from cordwood.model.documents import from_document, to_document
from cordwood.model.errors import ConfigError, EngineError, EngineUnavailableError
from cordwood.model.topic_partition import TopicPartition
from cordwood.storage.filesystem import OS
from cordwood.storage.log.partition_log import PartitionLog
from support.in_process_engine import CompiledEngine
from support.running_logs import RunningLogs, newest, read_records

T0 = TopicPartition("t", 0)
COMPACT = LogConfig(
    cleanup_policy=frozenset({"compact"}), segment_bytes=900, min_cleanable_dirty_ratio=0.0
)
SETTINGS = CleanerSettings(backoff_ms=15_000)
_SECONDS_MAX = 120


def until(what: Callable[[], object]) -> None:
    deadline = time.monotonic() + _SECONDS_MAX
    while not what():
        assert time.monotonic() < deadline, "it did not come about"
        time.sleep(0.005)


def until_at_rest(cleaner: LogCleaner) -> None:
    """Waits until every thread rests: a rest counts from the clock's time when it begins."""
    until(lambda: all(thread.resting for thread in cleaner.status().threads))
    retention = cleaner._retention
    assert retention is not None
    until(lambda: retention.resting)


def fill(logs: RunningLogs, log: PartitionLog, times: int = 3, keys: int = 10) -> None:
    for n in range(keys * times):
        logs.put(log, (b"%d" % (n % keys), b"%d" % n))


def clean_up_to(logs: RunningLogs, log: PartitionLog) -> bool:
    return (logs.checkpoint(str(log.topic_partition)) or 0) >= log.active.base_offset


class Recorder(CompiledEngine):
    """An engine with a life of its own, of which it keeps a record."""

    def __init__(self) -> None:
        super().__init__()
        self.rounds: list[str] = []
        self.configured: list[CleanerSettings] = []
        self.closed = False
        self.unavailable = False

    def run(self, committers: Sequence[CompactionCommitter]) -> None:
        if self.unavailable:
            raise EngineUnavailableError("no Java")
        self.rounds += [committer.compaction.name for committer in committers]
        super().run(committers)

    def configure(self, settings: CleanerSettings) -> None:
        self.configured.append(settings)

    def status(self) -> EngineStatus:
        if self.unavailable:
            return EngineStatus(state="unavailable", reason="no Java")
        return EngineStatus(state="warm" if self.rounds else "not started")

    def close(self) -> None:
        self.closed = True


class Endless(CompiledEngine):
    """Tasks that never come to an end, but listen."""

    def __init__(self) -> None:
        super().__init__()
        self.running = threading.Event()

    def run(self, committers: Sequence[CompactionCommitter]) -> None:
        (committer,) = begin_all(committers)
        self.running.set()
        while committer.outcome is None:
            self._poll(committer)
            time.sleep(0.001)
        with pytest.raises(EngineError, match="given up"):
            require_wanted(
                Path(committer.compaction.directory), committer.compaction.attempt.token, fs=OS
            )


@contextmanager
def running(cleaner: LogCleaner) -> Iterator[LogCleaner]:
    cleaner.startup()
    try:
        yield cleaner
    finally:
        cleaner.shutdown()


def cleaner_of(logs: RunningLogs, engine: Any = None, **settings: Any) -> LogCleaner:
    return LogCleaner(
        logs.manager,
        logs.cleaning,
        engine or Recorder(),
        logs.clock,
        replace(SETTINGS, **settings),
    )


# ---- its pace


def test_threads_clean_what_is_due_and_rest_until_the_clock_has_moved(tmp_path: Path) -> None:
    logs = RunningLogs(tmp_path, {"t": COMPACT})
    log = logs.log()
    fill(logs, log)
    engine = Recorder()
    with running(cleaner_of(logs, engine)) as cleaner:
        until(lambda: clean_up_to(logs, log))
        until_at_rest(cleaner)
        state = newest(read_records(log))
        fill(logs, log)
        rounds = len(engine.rounds)
        logs.clock.advance(14_999)
        cleaner.clock_moved()
        time.sleep(0.05)
        assert len(engine.rounds) == rounds, "the rest is not over"
        logs.clock.advance(1)
        cleaner.clock_moved()
        until(lambda: clean_up_to(logs, log))
        assert len(engine.rounds) == rounds + 1
        assert set(newest(read_records(log))) == set(state)


def test_a_cleaner_that_rests_is_woken(tmp_path: Path) -> None:
    logs = RunningLogs(tmp_path, {"t": COMPACT})
    log = logs.log()
    with running(cleaner_of(logs)) as cleaner:
        until(lambda: logs.cleaning.states.of(T0) is None)
        fill(logs, log)
        cleaner.wake()
        until(lambda: clean_up_to(logs, log))


def test_in_this_thread_everything_due_is_cleaned_at_once(tmp_path: Path) -> None:
    logs = RunningLogs(tmp_path, {"t": COMPACT})
    for n in range(3):
        fill(logs, logs.log(f"t-{n}"), times=3 + n)
    engine = Recorder()
    cleaner = cleaner_of(logs, engine)
    assert cleaner.run_once_now() == 3
    assert sorted(engine.rounds) == ["t-0", "t-1", "t-2"]
    assert cleaner.run_once_now() == 0
    assert len(engine.rounds) == 3


class Slow(Recorder):
    """An engine whose first compaction waits for the test."""

    def __init__(self) -> None:
        super().__init__()
        self.running, self.go_on = threading.Event(), threading.Event()

    def run(self, committers: Sequence[CompactionCommitter]) -> None:
        if not self.running.is_set():
            self.running.set()
            assert self.go_on.wait(_SECONDS_MAX)
        super().run(committers)


def test_cleaning_at_once_waits_for_what_a_thread_is_at(tmp_path: Path) -> None:
    logs = RunningLogs(tmp_path, {"t": COMPACT})
    first, second = logs.log("t-0"), logs.log("t-1")
    fill(logs, first)
    fill(logs, second)
    engine = Slow()
    with running(cleaner_of(logs, engine)) as cleaner:
        assert engine.running.wait(_SECONDS_MAX)
        at_once = threading.Thread(target=cleaner.run_once_now)
        at_once.start()
        assert not clean_up_to(logs, first)
        assert cleaner.gauges.idle_thread_count() == 0
        engine.go_on.set()
        at_once.join(_SECONDS_MAX)
        assert not at_once.is_alive()
        assert clean_up_to(logs, first)
        assert clean_up_to(logs, second)
        assert sorted(engine.rounds) == ["t-0", "t-1"]


def test_threads_that_are_held_stop_all_the_same(tmp_path: Path) -> None:
    logs = RunningLogs(tmp_path, {"t": COMPACT})
    with running(cleaner_of(logs)) as cleaner, ExitStack() as held:
        for thread in cleaner._threads:
            held.enter_context(thread.held())
        cleaner.wake()
        cleaner.shutdown()
        assert not any(thread.alive for thread in cleaner._threads)


def test_a_pass_of_retention_waits_for_one_that_is_under_way(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    logs = RunningLogs(tmp_path, {"t": COMPACT})
    cleaner = cleaner_of(logs)
    begun, go_on = threading.Event(), threading.Event()
    passes = []

    def slow(manager: object) -> int:
        passes.append(manager)
        begun.set()
        assert go_on.wait(_SECONDS_MAX)
        return len(passes)

    monkeypatch.setattr("cordwood.cleanup.schedule.log_cleaner.retention_pass", slow)
    threads = [threading.Thread(target=cleaner.retention_once_now) for _ in range(2)]
    threads[0].start()
    assert begun.wait(_SECONDS_MAX)
    threads[1].start()
    assert len(passes) == 1
    go_on.set()
    for thread in threads:
        thread.join(_SECONDS_MAX)
    assert len(passes) == 2


def test_the_engine_is_left_alone_while_no_log_is_due(tmp_path: Path) -> None:
    config = replace(COMPACT, min_cleanable_dirty_ratio=1.0)
    logs = RunningLogs(tmp_path, {"t": config})
    fill(logs, logs.log())
    engine = Recorder()
    cleaner = cleaner_of(logs, engine)
    assert cleaner.run_once_now() == 0
    assert engine.rounds == []
    assert cleaner.status().engine == EngineStatus(state="not started")


def test_retention_of_logs_without_compact_follows_the_clock(tmp_path: Path) -> None:
    delete = LogConfig(segment_bytes=900, retention_ms=1_000)
    logs = RunningLogs(tmp_path, {"d": delete})
    log = logs.log("d-0")
    fill(logs, log)
    with running(cleaner_of(logs)) as cleaner:
        until_at_rest(cleaner)
        logs.clock.advance(29_999)
        cleaner.clock_moved()
        time.sleep(0.05)
        assert log.log_start_offset == 0
        logs.clock.advance(1)
        cleaner.clock_moved()
        until(lambda: log.log_start_offset == 30)
        until_at_rest(cleaner)
        fill(logs, log)
        logs.clock.advance(300_000)
        cleaner.clock_moved()
        until(lambda: log.log_start_offset == 60)


def test_switched_off_it_compacts_nothing_and_retention_goes_on(tmp_path: Path) -> None:
    logs = RunningLogs(
        tmp_path, {"t": COMPACT, "d": LogConfig(segment_bytes=900, retention_ms=1_000)}
    )
    fill(logs, logs.log())
    fill(logs, logs.log("d-0"))
    logs.clock.advance(10_000)
    with running(cleaner_of(logs, enable=False, initial_task_delay_ms=0)) as cleaner:
        until(lambda: logs.log("d-0").log_start_offset == 30)
        assert cleaner.status().threads == []
        assert cleaner.gauges.idle_thread_count() == 0
        assert logs.checkpoint() is None


# ---- it stops


def test_stopped_in_the_middle_of_a_round_it_gives_the_round_up(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    logs = RunningLogs(tmp_path, {"t": COMPACT})
    log = logs.log()
    fill(logs, log)
    state = newest(read_records(log))
    engine = Endless()
    cleaner = cleaner_of(logs, engine)
    others = set(threading.enumerate())  # such as those of a broker that other tests share
    cleaner.startup()
    assert engine.running.wait(_SECONDS_MAX)
    cleaner.shutdown()
    assert "does not stop" not in caplog.text
    assert logs.cleaning.states.of(T0) is None
    assert newest(read_records(log)) == state
    assert not list(log.directory.glob("*.staged"))
    assert [run.outcome for run in cleaner.status().last_runs] == ["aborted"]
    left = set(threading.enumerate()) - others
    assert not [thread for thread in left if thread.name.startswith("kafka-log-")]


def test_stopping_it_ends_the_engine(tmp_path: Path) -> None:
    engine = Recorder()
    with running(cleaner_of(RunningLogs(tmp_path), engine)):
        assert not engine.closed
    assert engine.closed


def test_a_topic_deleted_in_the_middle_of_a_round_is_let_go_at_once(tmp_path: Path) -> None:
    logs = RunningLogs(tmp_path, {"t": COMPACT})
    fill(logs, logs.log())
    engine = Endless()
    with running(cleaner_of(logs, engine)) as cleaner:
        assert engine.running.wait(_SECONDS_MAX)
        logs.manager.delete(T0)  # the compaction would never end by itself
        until(lambda: cleaner.status().last_runs)
        assert cleaner.status().last_runs[0].outcome == "aborted"
        assert cleaner.status().partitions == []
        assert cleaner.gauges.dead_thread_count() == 0


# ---- engines that cannot be had


def test_without_an_engine_logs_stay_as_they_are_and_retention_goes_on(tmp_path: Path) -> None:
    both = replace(COMPACT, cleanup_policy=frozenset({"compact", "delete"}), retention_ms=1_000)
    logs = RunningLogs(tmp_path, {"t": COMPACT, "b": both})
    fill(logs, logs.log())
    fill(logs, logs.log("b-0"))
    logs.clock.advance(10_000)
    engine = Recorder()
    engine.unavailable = True
    cleaner = cleaner_of(logs, engine)
    assert cleaner.run_once_now() == 0
    assert logs.log("b-0").log_start_offset == 30
    status = cleaner.status()
    assert status.engine == EngineStatus(state="unavailable", reason="no Java")
    assert cleaner.gauges.engine_available() == 0
    assert [p.uncleanable for p in status.partitions] == [None, None]
    assert {run.error for run in status.last_runs} == {"no Java"}
    engine.unavailable = False
    assert cleaner.run_once_now() == 1
    assert clean_up_to(logs, logs.log())


# ---- other settings


def test_other_settings_take_hold_while_it_runs(tmp_path: Path) -> None:
    logs = RunningLogs(tmp_path, {"t": COMPACT})
    engine = Recorder()
    others = set(threading.enumerate())
    with running(cleaner_of(logs, engine)) as cleaner:
        new = replace(SETTINGS, threads=2, io_max_bytes_per_second=20e6, backoff_ms=7)
        cleaner.reconfigure(new)
        names = [thread.name for thread in cleaner.status().threads]
        assert names == ["kafka-log-cleaner-thread-0", "kafka-log-cleaner-thread-1"]
        assert engine.configured[-1] == new
        until_at_rest(cleaner)
        fill(logs, logs.log())
        logs.clock.advance(7)
        cleaner.clock_moved()
        until(lambda: clean_up_to(logs, logs.log()))
        own = set(threading.enumerate()) - others
        alive = [t.name for t in own if t.name.startswith("kafka-log-cleaner")]
        assert sorted(alive) == names


@pytest.mark.parametrize(
    ("old", "new", "why"),
    [
        (1, 0, "should be at least 1"),
        (4, 1, "cannot be reduced to less than half the current value 4"),
        (2, 5, "cannot be increased to more than double the current value 2"),
        (1, 2, "log.cleaner.dedupe.buffer.size must be at least 1MB per cleaner thread."),
    ],
)
def test_changes_that_kafka_refuses_are_refused(
    tmp_path: Path, old: int, new: int, why: str
) -> None:
    logs = RunningLogs(tmp_path)
    settings = replace(SETTINGS, threads=old)
    if "dedupe" in why:
        settings = replace(settings, dedupe_buffer_size=2 << 20)
    cleaner = LogCleaner(logs.manager, logs.cleaning, Recorder(), logs.clock, settings)
    with pytest.raises(ConfigError, match=why):
        cleaner.reconfigure(replace(settings, threads=new))
    assert cleaner.settings == settings


def test_settings_come_from_the_brokers() -> None:
    broker = BrokerConfig(
        {
            "log.cleaner.threads": 3,
            "log.cleaner.io.max.bytes.per.second": 5.0,
            "cordwood.cleaner.spark.idle.ms": 7,
            "cordwood.cleaner.uncleanable.retry.ms": 9,
            "cordwood.cleaner.verify": True,
        }
    )
    settings = CleanerSettings.of(broker)
    assert settings == CleanerSettings(
        threads=3, io_max_bytes_per_second=5.0, spark_idle_ms=7, uncleanable_retry_ms=9, verify=True
    )


def test_threads_share_the_rate(tmp_path: Path) -> None:
    logs = RunningLogs(tmp_path, {"t": COMPACT})
    fill(logs, logs.log())
    seen: list[int | None] = []

    class Spy(CompiledEngine):
        def run(self, committers: Sequence[CompactionCommitter]) -> None:
            seen.extend(
                committer.compaction.attempt.limits.throttle_bytes for committer in committers
            )
            super().run(committers)

    cleaner_of(logs, Spy(), threads=2, io_max_bytes_per_second=1e6).run_once_now()
    assert seen == [500_000]


# ---- metrics and words


def test_metrics_are_those_of_kafka(tmp_path: Path) -> None:
    logs = RunningLogs(tmp_path, {"t": COMPACT}, directories=2)
    fill(logs, logs.log(directory=0))
    with running(cleaner_of(logs)) as cleaner:
        until(lambda: clean_up_to(logs, logs.log()))
        until(lambda: cleaner.gauges.cleaner_recopy_percent() > 0)
        until_at_rest(cleaner)  # the last look is over
        logs.clock.advance(2_000)
        found = {(g.type, g.name, *g.tags.values()): g.read() for g in cleaner.gauges.all()}
    directories = [str(path) for path in logs.directories]
    assert set(found) == {
        ("LogCleaner", "cleaner-recopy-percent"),
        ("LogCleaner", "max-clean-time-secs"),
        ("LogCleaner", "max-buffer-utilization-percent"),
        ("LogCleaner", "max-compaction-delay-secs"),
        ("LogCleaner", "DeadThreadCount"),
        ("LogCleaner", "cordwood-engine-available"),
        ("LogCleaner", "cordwood-due-bytes"),
        ("LogCleaner", "cordwood-falling-behind"),
        ("LogCleaner", "cordwood-idle-threads"),
        ("LogCleanerManager", "max-dirty-percent"),
        ("LogCleanerManager", "time-since-last-run-ms"),
        *(("LogCleanerManager", "uncleanable-partitions-count", d) for d in directories),
        *(("LogCleanerManager", "uncleanable-bytes", d) for d in directories),
    }
    assert 0 < found["LogCleaner", "cleaner-recopy-percent"] < 60
    assert found["LogCleanerManager", "time-since-last-run-ms"] == 2_000
    assert found["LogCleaner", "DeadThreadCount"] == 0
    assert found["LogCleaner", "cordwood-idle-threads"] == 1


def test_a_thread_that_ends_by_an_error_is_counted_until_the_threads_are_made_anew(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    logs = RunningLogs(tmp_path, {"t": COMPACT})

    def fail(_: int) -> None:
        raise RuntimeError("a fault of the cleaner's own")

    whole = logs.cleaning.maintain_uncleanable
    logs.cleaning.maintain_uncleanable = lambda: fail(0)  # type: ignore[method-assign]
    with running(cleaner_of(logs)) as cleaner:
        until(lambda: cleaner.gauges.dead_thread_count() == 1)
        assert "[kafka-log-cleaner-thread-0]: Error due to" in caplog.text
        logs.cleaning.maintain_uncleanable = whole  # type: ignore[method-assign]
        cleaner.reconfigure(SETTINGS)
        assert cleaner.gauges.dead_thread_count() == 0
        fill(logs, logs.log())
        cleaner.wake()
        until(lambda: clean_up_to(logs, logs.log()))


def test_start_and_stop_are_told_in_kafkas_words(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    with running(cleaner_of(RunningLogs(tmp_path))) as cleaner:
        cleaner.reconfigure(replace(SETTINGS, io_max_bytes_per_second=20_000_000.0))
    lines = [record.getMessage() for record in caplog.records]
    assert [line for line in lines if "log cleaner" in line or "Updating" in line] == [
        "Starting the log cleaner",
        "Updating logCleanerIoMaxBytesPerSecond: 20000000.0",
        "Shutting down the log cleaner.",
        "Starting the log cleaner",
        "Shutting down the log cleaner.",
    ]
    assert "Starting log cleanup with a period of 300000 ms." in lines
    assert lines.count("[kafka-log-cleaner-thread-0]: Starting") == 2
    assert lines.count("[kafka-log-cleaner-thread-0]: Stopped") == 2


def test_the_status_is_an_answer(tmp_path: Path) -> None:
    logs = RunningLogs(tmp_path, {"t": COMPACT})
    fill(logs, logs.log())
    cleaner = cleaner_of(logs)
    cleaner.run_once_now()
    document = json.loads(json.dumps(to_document(cleaner.status())))
    assert to_document(from_document(CleanerStatus, document)) == document
    (run,) = cleaner.status().last_runs
    assert (run.partition, run.outcome, run.messages_written) == ("t-0", "cleaned", 10)
    (partition,) = cleaner.status().partitions
    assert partition.last_cleaned_ms == logs.clock.now_ms()
    assert partition.last_run == run


def test_a_topic_made_again_has_not_been_cleaned(tmp_path: Path) -> None:
    logs = RunningLogs(tmp_path, {"t": COMPACT})
    logs.manager.get_or_create(T0, topic_id=UUID(int=1))
    fill(logs, logs.log())
    cleaner = cleaner_of(logs)
    cleaner.run_once_now()
    logs.manager.delete(T0)
    logs.manager.get_or_create(T0, topic_id=UUID(int=2))
    (partition,) = cleaner.status().partitions
    assert partition.last_cleaned_ms is None
    assert partition.last_run is None
