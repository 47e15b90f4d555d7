"""Logs that could not be cleaned: set aside with the reason, tried again, healed."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from cordwood.cleanup.schedule.cleaner_answer import UncleanableStatus
from cordwood.cleanup.schedule.log_cleaner import LogCleaner
from cordwood.cleanup.schedule.paused_changes import update_topic_config
from cordwood.cleanup.schedule.quarantine import RetryDelays, Stage
from cordwood.configs.log_config import LogConfig
from cordwood.model.topic_partition import TopicPartition
from cordwood.storage.log.partition_log import PartitionLog
from support.in_process_engine import CompiledEngine
from support.running_logs import RunningLogs, newest, read_records

T0 = TopicPartition("t", 0)
COMPACT = LogConfig(
    cleanup_policy=frozenset({"compact"}), segment_bytes=900, min_cleanable_dirty_ratio=0.0
)
MINUTE_MS = 60_000


class Damaged:
    """A log with a byte that is not what it was."""

    def __init__(self, logs: RunningLogs, config: LogConfig = COMPACT) -> None:
        logs.configs["t"] = config
        self.logs = logs
        self.log: PartitionLog = logs.log()
        for n in range(30):
            logs.put(self.log, (b"%d" % (n % 5), b"%d" % n))
        self.path = self.log.segments[1].path
        self.whole = self.path.read_bytes()
        data = bytearray(self.whole)
        data[100] ^= 1
        self.path.write_bytes(data)
        self.cleaner = LogCleaner(logs.manager, logs.cleaning, CompiledEngine(), logs.clock)

    def mend(self) -> None:
        self.path.write_bytes(self.whole)

    @property
    def attempts(self) -> int:
        mark = self.logs.cleaning.mark_of(self.log)
        return 0 if mark is None else mark.attempts


@pytest.fixture
def damaged(tmp_path: Path) -> Damaged:
    return Damaged(RunningLogs(tmp_path))


def test_a_log_set_aside_is_tried_again_after_waits_that_double(damaged: Damaged) -> None:
    clock = damaged.logs.clock
    assert damaged.cleaner.run_once_now() == 0
    for attempts, wait_min in ((1, 5), (2, 10), (3, 20), (4, 40), (5, 60), (6, 60)):
        assert damaged.attempts == attempts
        clock.advance(wait_min * MINUTE_MS - 1)
        damaged.cleaner.run_once_now()
        assert damaged.attempts == attempts, "too early"
        clock.advance(1)
        damaged.cleaner.run_once_now()
    assert damaged.attempts == 7


def test_a_log_that_was_mended_leaves_the_list(
    damaged: Damaged, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    logs, directory = damaged.logs, damaged.logs.directories[0]
    damaged.cleaner.run_once_now()
    assert logs.cleaning.uncleanable_count(directory) == 1
    damaged.mend()
    state = newest(read_records(damaged.log))
    assert damaged.cleaner.run_once_now() == 0, "its time has not come"
    logs.clock.advance(5 * MINUTE_MS)
    assert damaged.cleaner.run_once_now() == 1
    assert logs.cleaning.uncleanable_count(directory) == 0
    assert logs.cleaning.uncleanable_bytes(directory, logs.clock.now_ms()) == 0
    assert newest(read_records(damaged.log)) == state
    assert "Partition t-0 is cleaned again: compaction succeeded after 1 failed" in caplog.text


def test_while_it_is_tried_again_it_counts_as_uncleanable(damaged: Damaged) -> None:
    damaged.cleaner.run_once_now()
    damaged.logs.clock.advance(5 * MINUTE_MS)
    chosen = damaged.logs.cleaning.grab_filthiest(damaged.logs.clock.now_ms())
    assert chosen is not None
    assert damaged.logs.cleaning.is_uncleanable(damaged.log)
    assert damaged.logs.cleaning.uncleanable_count(damaged.logs.directories[0]) == 1


def test_the_others_are_cleaned_meanwhile(damaged: Damaged) -> None:
    logs = damaged.logs
    other = logs.log("t-1")
    for n in range(30):
        logs.put(other, (b"%d" % (n % 5), b"%d" % n))
    assert damaged.cleaner.run_once_now() == 1
    assert logs.checkpoint("t-1") == other.active.base_offset
    assert logs.checkpoint("t-0") == 0


def test_the_status_says_what_is_wrong_since_when_and_when_it_is_tried_again(
    damaged: Damaged,
) -> None:
    damaged.cleaner.run_once_now()
    since = damaged.logs.clock.now_ms()
    damaged.logs.clock.advance(5 * MINUTE_MS)
    damaged.cleaner.run_once_now()
    damaged.logs.clock.advance(1_000)
    (status,) = damaged.cleaner.status().partitions
    why = f"{damaged.path}: a batch whose CRC does not match at byte"
    assert status.state == "uncleanable"
    assert status.uncleanable is not None
    assert status.uncleanable.reason.startswith(why)
    assert replace(status.uncleanable, reason="") == UncleanableStatus(
        reason="",
        stage="compaction",
        since_ms=since,
        attempts=2,
        retry_at_ms=since + 15 * MINUTE_MS,
    )
    assert not status.due
    assert status.reason.startswith(f"compaction failed: {why}")
    assert status.reason.endswith("; it is retried in 599 s")
    assert damaged.cleaner.status().order == []


def test_a_clock_that_is_put_back_does_not_make_it_wait_for_longer(damaged: Damaged) -> None:
    damaged.cleaner.run_once_now()
    damaged.logs.clock.set(1_000)
    damaged.cleaner.run_once_now()
    assert damaged.attempts == 2


def test_the_retention_of_a_log_that_cannot_be_compacted_continues(tmp_path: Path) -> None:
    both = replace(COMPACT, cleanup_policy=frozenset({"compact", "delete"}), retention_ms=600_000)
    damaged = Damaged(RunningLogs(tmp_path), both)
    for minutes, attempts in ((1, 1), (5, 2), (1, 2)):
        damaged.logs.clock.advance(minutes * MINUTE_MS)
        damaged.cleaner.run_once_now()
        assert damaged.attempts == attempts
        assert damaged.log.log_start_offset == 0
    damaged.logs.clock.advance(4 * MINUTE_MS)
    damaged.cleaner.run_once_now()
    assert damaged.log.log_start_offset == 30, "long before the compaction is tried again"
    assert damaged.attempts == 2
    damaged.logs.clock.advance(60 * MINUTE_MS)
    assert damaged.cleaner.run_once_now() == 0
    assert damaged.attempts == 0


def test_retention_that_has_failed_waits_as_a_compaction_does(damaged: Damaged) -> None:
    cleaning, now_ms = damaged.logs.cleaning, damaged.logs.clock.now_ms()
    cleaning.mark_uncleanable(damaged.log, "a reason", stage=Stage.RETENTION)
    assert cleaning.deletable_logs() == []
    damaged.logs.clock.advance(5 * MINUTE_MS)
    assert cleaning.is_kept_out(damaged.log, now_ms)
    assert cleaning.deletable_logs() == [damaged.log]


def test_changed_settings_have_a_log_tried_again_at_once_and_from_the_first_wait(
    damaged: Damaged,
) -> None:
    damaged.cleaner.run_once_now()
    damaged.logs.clock.advance(5 * MINUTE_MS)
    damaged.cleaner.run_once_now()
    assert damaged.attempts == 2
    update_topic_config(damaged.logs.cleaning, "t", replace(COMPACT, segment_bytes=901))
    damaged.cleaner.run_once_now()
    assert damaged.attempts == 1
    damaged.mend()
    assert damaged.cleaner.run_once_now() == 0, "nothing has changed since"
    update_topic_config(damaged.logs.cleaning, "t", replace(COMPACT, segment_bytes=902))
    assert damaged.cleaner.run_once_now() == 1
    assert damaged.attempts == 0


def test_only_what_had_gone_wrong_takes_a_mark_off(damaged: Damaged) -> None:
    cleaning = damaged.logs.cleaning
    cleaning.mark_uncleanable(damaged.log, "a reason", stage=Stage.RETENTION)
    cleaning.note_sound(damaged.log, Stage.COMPACTION)
    assert cleaning.is_uncleanable(damaged.log)
    cleaning.note_sound(damaged.log, Stage.RETENTION)
    assert not cleaning.is_uncleanable(damaged.log)


def test_a_log_whose_look_had_failed_heals_when_it_can_be_looked_at(damaged: Damaged) -> None:
    cleaning, clock = damaged.logs.cleaning, damaged.logs.clock
    damaged.mend()
    cleaning.mark_uncleanable(damaged.log, "a reason", stage=Stage.LOOK)
    assert cleaning.grab_filthiest(clock.now_ms()) is None
    clock.advance(5 * MINUTE_MS)
    assert cleaning.grab_filthiest(clock.now_ms()) is not None
    assert not cleaning.is_uncleanable(damaged.log)


def test_waits_double_up_to_the_longest() -> None:
    delays = RetryDelays(100, 1_000)
    assert [delays.after(n) for n in (1, 2, 3, 4, 5, 500)] == [100, 200, 400, 800, 1_000, 1_000]
