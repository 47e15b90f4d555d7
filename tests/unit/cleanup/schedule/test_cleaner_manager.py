"""Selection of the running log that is cleaned next, and its abort: LogCleanerManagerTest."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from cordwood.cleanup.access.capture import view_of
from cordwood.cleanup.rules.cleanable import Cleanable, plan_cleanable
from cordwood.cleanup.schedule.cleaner_manager import CleanerManager, LogCleaningError, LogToClean
from cordwood.cleanup.schedule.cleaning_states import (
    Aborted,
    CleaningStateError,
    InProgress,
    LogCleaningAbortedError,
    Paused,
)
from cordwood.configs.log_config import LogConfig
from cordwood.format.control_record import ControlType, build_end_txn_marker
from cordwood.format.file_names import CLEANER_OFFSET_CHECKPOINT
from cordwood.format.offset_checkpoint import parse_offset_checkpoint
from cordwood.format.record_batch import Record, build_batch
from cordwood.model.topic_partition import TopicPartition
from cordwood.storage.log.partition_log import PartitionLog
from support.running_logs import RunningLogs

HOUR_MS = 3_600_000
COMPACT = LogConfig(cleanup_policy=frozenset({"compact"}))
DELETE = LogConfig(cleanup_policy=frozenset({"delete"}))
BOTH = LogConfig(cleanup_policy=frozenset({"compact", "delete"}))
EAGER = replace(COMPACT, min_cleanable_dirty_ratio=0.0)
T0 = TopicPartition("t", 0)


def batches(logs: RunningLogs, log: PartitionLog, count: int) -> None:
    """`count` batches of a record, each in a segment of its own; the active one is empty."""
    logs.fill(log, [[(b"k%d" % n, b"v")] for n in range(log.log_end_offset, count)])


def lines(logs: RunningLogs, directory: int = 0) -> dict[str, int]:
    """The file of a directory's cleaner checkpoint."""
    data = (logs.directories[directory] / CLEANER_OFFSET_CHECKPOINT).read_bytes()
    return {str(partition): offset for partition, offset in parse_offset_checkpoint(data).items()}


def grabbed(logs: RunningLogs) -> str | None:
    """The log that is chosen; it stays in progress."""
    chosen = logs.cleaning.grab_filthiest(logs.clock.now_ms())
    return None if chosen is None else str(chosen.topic_partition)


def section(logs: RunningLogs, log: PartitionLog) -> Cleanable:
    """The section of a log that could be cleaned now."""
    line = logs.cleaning.checkpoints.all().get(log.topic_partition)
    return plan_cleanable(view_of(log, line), now_ms=logs.clock.now_ms())


def dirty_range(logs: RunningLogs, log: PartitionLog) -> tuple[int, int]:
    cleanable = section(logs, log)
    return cleanable.first_dirty, cleanable.first_uncleanable


def one(tmp_path: Path, config: LogConfig = EAGER, *, count: int = 0) -> RunningLogs:
    """One partition, t-0, with so many batches."""
    logs = RunningLogs(tmp_path, {"t": config})
    batches(logs, logs.log(), count)
    return logs


def in_thread(work: Callable[[], None]) -> threading.Thread:
    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    return thread


def in_progress_elsewhere(cleaning: CleanerManager) -> None:
    """Has another thread grab the filthiest log."""
    in_thread(lambda: assert_grabs(cleaning)).join()


def assert_grabs(cleaning: CleanerManager) -> None:
    assert cleaning.grab_filthiest(0) is not None


# ---- the choice


@pytest.fixture
def three(tmp_path: Path) -> RunningLogs:
    """Logs of 20, 25 and 30 batches, the first 20 of each clean."""
    logs = RunningLogs(tmp_path, {"t": EAGER})
    for number, count in enumerate((20, 25, 30)):
        batches(logs, logs.log(f"t-{number}"), count)
        logs.set_checkpoint(20, f"t-{number}")
    return logs


def test_the_log_with_the_highest_dirty_ratio_is_picked(three: RunningLogs) -> None:
    assert grabbed(three) == "t-2"
    assert isinstance(three.cleaning.states.of(TopicPartition("t", 2)), InProgress)
    assert three.cleaning.dirtiest_ratio == pytest.approx(10 / 30, abs=0.01)
    assert three.cleaning.max_dirty_percent == 33


def test_an_uncleanable_log_is_not_picked(three: RunningLogs) -> None:
    three.cleaning.mark_uncleanable(three.log("t-2"), "a reason")
    assert grabbed(three) == "t-1"


def test_a_log_in_progress_is_not_picked(three: RunningLogs) -> None:
    assert [grabbed(three), grabbed(three), grabbed(three)] == ["t-2", "t-1", None]


def test_nothing_is_picked_when_the_third_is_in_progress_and_the_second_uncleanable(
    three: RunningLogs,
) -> None:
    assert grabbed(three) == "t-2"
    three.cleaning.mark_uncleanable(three.log("t-1"), "a reason")
    assert grabbed(three) is None


def test_a_log_to_be_passed_over_is_not_picked(three: RunningLogs) -> None:
    passing = {TopicPartition("t", 2)}
    chosen = three.cleaning.grab_filthiest(three.clock.now_ms(), passing_over=passing)
    assert chosen is not None
    assert chosen.topic_partition == TopicPartition("t", 1)


def test_a_log_within_its_dirty_ratio_is_not_picked_unless_it_is_past_its_lag(
    tmp_path: Path,
) -> None:
    config = replace(COMPACT, min_cleanable_dirty_ratio=1.0, max_compaction_lag_ms=HOUR_MS)
    logs = one(tmp_path, config, count=4)
    assert grabbed(logs) is None
    logs.clock.advance(HOUR_MS + 7)
    chosen = logs.cleaning.grab_filthiest(logs.clock.now_ms())
    assert chosen is not None
    assert (chosen.delayed_partitions, chosen.max_delay_ms) == (1, 7)
    assert chosen.cleanable_partitions == 1


def test_an_error_while_a_log_is_looked_at_names_the_log(tmp_path: Path) -> None:
    logs = one(tmp_path, replace(EAGER, max_compaction_lag_ms=HOUR_MS), count=3)
    logs.restart()
    log = logs.log()
    log.segments[0].path.unlink()
    with pytest.raises(LogCleaningError, match="Failed to calculate log cleaning stats") as raised:
        grabbed(logs)
    assert raised.value.log is log
    assert logs.cleaning.states.of(T0) is None


def test_a_log_that_cannot_be_looked_at_is_marked_and_the_others_are_cleaned(
    tmp_path: Path,
) -> None:
    logs = RunningLogs(tmp_path, {"t": replace(EAGER, max_compaction_lag_ms=HOUR_MS)})
    for name in ("t-0", "t-1"):
        batches(logs, logs.log(name), 3)
    logs.restart()
    logs.log("t-0").segments[0].path.unlink()
    assert not logs.cleaner.clean_once()
    assert logs.cleaning.is_uncleanable(logs.log("t-0"))
    assert logs.cleaner.clean_once()
    assert lines(logs) == {"t-1": 3}


# ---- the checkpoint as it is found


def test_a_checkpoint_beyond_the_log_end_is_reset_to_the_log_start(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    logs = one(tmp_path, count=5)
    logs.set_checkpoint(200)
    chosen = logs.cleaning.grab_filthiest(logs.clock.now_ms())
    assert chosen is not None
    assert chosen.cleanable.first_dirty == 0
    assert lines(logs) == {"t-0": 0}
    assert "The last checkpoint dirty offset for partition t-0 is 200, which is larger" in (
        caplog.text
    )


def test_a_checkpoint_below_the_log_start_is_reset_to_it(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    logs = one(tmp_path, count=20)
    logs.set_checkpoint(0)
    logs.log().maybe_increment_log_start_offset(10, "test")
    chosen = logs.cleaning.grab_filthiest(logs.clock.now_ms())
    assert chosen is not None
    assert chosen.cleanable.first_dirty == 10
    assert lines(logs) == {"t-0": 10}
    assert "Resetting first dirty offset of t-0 to log start offset 10" in caplog.text


def test_under_compact_and_delete_the_reset_is_silent(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    logs = one(tmp_path, replace(BOTH, min_cleanable_dirty_ratio=0.0), count=20)
    logs.set_checkpoint(0)
    logs.log().maybe_increment_log_start_offset(10, "test")
    assert grabbed(logs) == "t-0"
    assert lines(logs) == {"t-0": 10}
    assert "Resetting" not in caplog.text


def test_a_log_of_an_active_segment_alone_has_nothing_to_clean(tmp_path: Path) -> None:
    logs = one(tmp_path)
    for n in range(4):
        logs.put(logs.log(), (b"k", b"%d" % n))
    logs.set_checkpoint(0)
    logs.log().maybe_increment_log_start_offset(2, "test")
    assert section(logs, logs.log()).cleanable_bytes == 0
    assert grabbed(logs) is None


def test_a_dirty_offset_above_the_active_base_leaves_nothing_to_clean(tmp_path: Path) -> None:
    logs = one(tmp_path)
    for n in range(4):
        logs.put(logs.log(), (b"k", b"%d" % n))
    logs.set_checkpoint(3)
    assert dirty_range(logs, logs.log()) == (3, 0)
    assert section(logs, logs.log()).cleanable_bytes == 0
    assert grabbed(logs) is None


@pytest.mark.parametrize(
    ("log_start", "checkpoint", "kept"), [(10, 15, True), (20, 15, False), (10, 25, False)]
)
def test_a_checkpoint_is_kept_only_between_log_start_and_end(
    tmp_path: Path, log_start: int, checkpoint: int, kept: bool
) -> None:
    logs = one(tmp_path, count=20)
    logs.set_checkpoint(checkpoint)
    logs.log().maybe_increment_log_start_offset(log_start, "test")
    logs.cleaning.grab_filthiest(logs.clock.now_ms())
    assert lines(logs) == {"t-0": checkpoint if kept else log_start}


def test_an_invalid_checkpoint_of_a_log_that_is_not_chosen_is_repaired_too(tmp_path: Path) -> None:
    logs = RunningLogs(tmp_path, {"t": EAGER})
    for name, count, log_start, line in (("t-0", 25, 20, 10), ("t-1", 40, 15, 10)):
        batches(logs, logs.log(name), count)
        logs.log(name).maybe_increment_log_start_offset(log_start, "test")
        logs.set_checkpoint(line, name)
    assert grabbed(logs) in {"t-0", "t-1"}
    assert lines(logs) == {"t-0": 20, "t-1": 15}


def test_a_repair_that_is_all_there_is_to_do_is_done(tmp_path: Path) -> None:
    logs = one(tmp_path)
    logs.put(logs.log(), (b"k", b"v"))
    logs.set_checkpoint(50)
    assert grabbed(logs) is None
    assert lines(logs) == {"t-0": 0}


def test_an_unreadable_checkpoint_counts_as_empty(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    logs = one(tmp_path, count=5)
    logs.set_checkpoint(5)
    assert grabbed(logs) is None
    (logs.directories[0] / CLEANER_OFFSET_CHECKPOINT).write_text("0\nnonsense\n")
    assert grabbed(logs) == "t-0"
    assert "Error occurred while reading" in caplog.text


# ---- how far cleaning may go


def test_nothing_above_the_high_watermark_is_cleanable(tmp_path: Path) -> None:
    logs = one(tmp_path, count=100)
    logs.log().update_high_watermark(50)
    assert logs.log().last_stable_offset == 50
    assert dirty_range(logs, logs.log()) == (0, 50)


def test_a_replicated_log_is_cleanable_up_to_its_active_segment(tmp_path: Path) -> None:
    logs = one(tmp_path, count=100)
    logs.put(logs.log(), (b"k", b"v"))
    assert dirty_range(logs, logs.log()) == (0, 100)


def test_what_was_written_within_the_min_compaction_lag_is_not_cleanable(tmp_path: Path) -> None:
    logs = one(tmp_path, replace(EAGER, min_compaction_lag_ms=HOUR_MS), count=8)
    log = logs.log()
    active_then = log.active.base_offset
    logs.put(log, (b"k", b"old"))
    logs.clock.advance(HOUR_MS // 2 + 1)
    logs.put(log, (b"k", b"new"))
    log.roll()
    batches(logs, log, 14)
    logs.clock.advance(HOUR_MS // 2)
    assert dirty_range(logs, log) == (0, active_then)


def test_without_anything_young_all_but_the_active_segment_is_cleanable(tmp_path: Path) -> None:
    logs = one(tmp_path, replace(EAGER, min_compaction_lag_ms=HOUR_MS), count=8)
    logs.clock.advance(HOUR_MS + 1)
    assert dirty_range(logs, logs.log()) == (0, logs.log().active.base_offset)


def test_all_that_is_young_leaves_nothing_cleanable(tmp_path: Path) -> None:
    logs = one(tmp_path, replace(EAGER, min_compaction_lag_ms=HOUR_MS), count=8)
    assert dirty_range(logs, logs.log()) == (0, 0)
    assert grabbed(logs) is None


def test_an_undecided_transaction_holds_cleaning_back_until_its_marker_is_replicated(
    tmp_path: Path,
) -> None:
    logs = one(tmp_path, replace(EAGER, min_compaction_lag_ms=HOUR_MS))
    log = logs.log()
    now = logs.clock.now_ms()
    log.append_as_follower(
        build_batch(
            [Record(n, now, b"%d" % n, b"v") for n in range(3)],
            base_offset=0,
            producer_id=15,
            producer_epoch=0,
            base_sequence=0,
            is_transactional=True,
            partition_leader_epoch=0,
        )
    )
    log.update_high_watermark(3)
    log.roll()
    logs.clock.advance(HOUR_MS + 1)
    assert dirty_range(logs, log) == (0, 0)
    log.append_as_follower(
        build_end_txn_marker(
            offset=3,
            timestamp=logs.clock.now_ms(),
            producer_id=15,
            producer_epoch=0,
            control_type=ControlType.ABORT,
            coordinator_epoch=29,
            partition_leader_epoch=0,
        )
    )
    log.roll()
    log.update_high_watermark(4)
    assert dirty_range(logs, log) == (0, 3)
    logs.clock.advance(HOUR_MS + 1)
    assert dirty_range(logs, log) == (0, 4)


# ---- who may delete


@pytest.mark.parametrize(("config", "expected"), [(DELETE, 0), (BOTH, 1), (COMPACT, 1)])
def test_the_cleaner_deletes_from_logs_with_compact_alone(
    tmp_path: Path, config: LogConfig, expected: int
) -> None:
    logs = one(tmp_path, config)
    assert len(logs.cleaning.deletable_logs()) == expected
    assert len(logs.cleaning.pause_for_retention()) == 1 - expected


def test_the_cleaner_deletes_from_an_uncleanable_log(tmp_path: Path) -> None:
    logs = one(tmp_path, BOTH)
    logs.cleaning.mark_uncleanable(logs.log(), "a reason")
    assert logs.cleaning.deletable_logs() == [logs.log()]


def test_a_log_that_retention_paused_is_not_cleaned_though_its_policy_becomes_compact(
    tmp_path: Path,
) -> None:
    logs = one(tmp_path, DELETE, count=3)
    assert logs.cleaning.pause_for_retention() == [logs.log()]
    logs.manager.update_topic_config("t", EAGER)
    assert grabbed(logs) is None
    assert logs.cleaning.deletable_logs() == []
    logs.cleaning.states.resume_cleaning([T0])
    assert logs.cleaning.deletable_logs() == [logs.log()]
    logs.cleaning.states.done([T0])
    assert grabbed(logs) == "t-0"


def test_retention_gets_a_log_that_became_delete_only_when_the_cleaner_is_done_with_it(
    tmp_path: Path,
) -> None:
    logs = one(tmp_path, BOTH)
    assert logs.cleaning.deletable_logs() == [logs.log()]
    logs.manager.update_topic_config("t", DELETE)
    assert logs.cleaning.pause_for_retention() == []
    logs.cleaning.states.done([T0])
    assert logs.cleaning.pause_for_retention() == [logs.log()]


# ---- states


def test_done_cleaning_needs_a_log_in_progress(tmp_path: Path) -> None:
    logs = one(tmp_path)
    cleaning, directory = logs.cleaning, logs.directories[0]
    with pytest.raises(CleaningStateError, match="State for partition t-0 should exist"):
        cleaning.done_cleaning(T0, directory, 1)
    cleaning.states.abort_and_pause(T0)
    with pytest.raises(CleaningStateError, match=r"cannot be in LogCleaningPaused\(1\) state"):
        cleaning.done_cleaning(T0, directory, 1)


def test_done_cleaning_writes_the_checkpoint_and_forgets_the_state(tmp_path: Path) -> None:
    logs = one(tmp_path, count=3)
    assert grabbed(logs) == "t-0"
    logs.cleaning.done_cleaning(T0, logs.directories[0], 1)
    assert logs.cleaning.states.of(T0) is None
    assert lines(logs) == {"t-0": 1}


def test_done_cleaning_of_an_aborted_log_pauses_it_and_writes_no_checkpoint(
    tmp_path: Path,
) -> None:
    logs = one(tmp_path, count=3)
    assert grabbed(logs) == "t-0"
    aborter = aborting(logs.cleaning, logs.cleaning.states.abort_and_pause)
    logs.cleaning.done_cleaning(T0, logs.directories[0], 1)
    aborter.join(120)
    assert logs.cleaning.states.of(T0) == Paused(1)
    assert not (logs.directories[0] / CLEANER_OFFSET_CHECKPOINT).exists()


def aborting(cleaning: CleanerManager, how: Callable[[TopicPartition], None]) -> threading.Thread:
    """A thread that waits for the cleaner to let go of t-0."""
    thread = in_thread(lambda: how(T0))
    while not isinstance(cleaning.states.of(T0), Aborted):
        assert thread.is_alive(), "it waits until the cleaner has let go"
    return thread


def test_done_deleting_needs_a_log_in_progress(tmp_path: Path) -> None:
    logs = one(tmp_path)
    with pytest.raises(CleaningStateError, match="State for partition t-0 should exist"):
        logs.cleaning.states.done([T0])
    logs.cleaning.states.abort_and_pause(T0)
    with pytest.raises(CleaningStateError, match=r"cannot be in LogCleaningPaused\(1\) state"):
        logs.cleaning.states.done([T0])


def test_done_deleting_forgets_the_state_or_pauses_what_was_aborted(tmp_path: Path) -> None:
    logs = one(tmp_path)
    assert logs.cleaning.deletable_logs()
    logs.cleaning.states.done([T0])
    assert logs.cleaning.states.of(T0) is None
    assert logs.cleaning.deletable_logs()
    aborter = aborting(logs.cleaning, logs.cleaning.states.abort_and_pause)
    logs.cleaning.states.done([T0])
    aborter.join(120)
    assert logs.cleaning.states.of(T0) == Paused(1)


def test_nested_pauses_need_as_many_resumes(tmp_path: Path) -> None:
    logs = one(tmp_path, count=3)
    cleaning = logs.cleaning
    for count in (1, 2, 3):
        cleaning.states.abort_and_pause(T0)
        assert cleaning.states.of(T0) == Paused(count)
    for left in (Paused(2), Paused(1), None):
        assert grabbed(logs) is None
        cleaning.states.resume_cleaning([T0])
        assert cleaning.states.of(T0) == left
    assert grabbed(logs) == "t-0"


def test_pauses_and_resumes_of_several_threads_leave_no_state(tmp_path: Path) -> None:
    logs = one(tmp_path, count=3)

    def pause_and_resume() -> None:
        for _ in range(200):
            logs.cleaning.states.abort_and_pause(T0)
            logs.cleaning.states.resume_cleaning([T0])

    threads = [in_thread(pause_and_resume) for _ in range(2)]
    for thread in threads:
        thread.join(120)
    assert logs.cleaning.states.of(T0) is None


def test_resuming_what_is_not_paused_is_refused(tmp_path: Path) -> None:
    logs = one(tmp_path, count=3)
    with pytest.raises(CleaningStateError, match="cannot be resumed since it is not paused"):
        logs.cleaning.states.resume_cleaning([T0])
    assert grabbed(logs) == "t-0"
    with pytest.raises(CleaningStateError, match="since it is in LogCleaningInProgress state"):
        logs.cleaning.states.resume_cleaning([T0])


def test_several_may_abort_a_cleaning_but_not_the_thread_that_does_it(tmp_path: Path) -> None:
    logs = one(tmp_path, count=3)
    assert grabbed(logs) == "t-0"
    aborters = [aborting(logs.cleaning, logs.cleaning.states.abort_and_pause) for _ in range(3)]
    with pytest.raises(CleaningStateError, match="since it is in LogCleaningAborted state"):
        logs.cleaning.states.abort_and_pause(T0)
    logs.cleaning.done_cleaning(T0, logs.directories[0], 1)
    for aborter in aborters:
        aborter.join(120)
    assert logs.cleaning.states.of(T0) == Paused(3)


def test_a_thread_that_aborts_its_own_cleaning_is_refused_instead_of_waiting_for_ever(
    tmp_path: Path,
) -> None:
    logs = one(tmp_path, count=3)
    assert grabbed(logs) == "t-0"
    with pytest.raises(CleaningStateError, match="LogCleaningInProgress"):
        logs.cleaning.states.abort_cleaning(T0)


def test_abort_waits_until_the_cleaner_has_seen_it_and_leaves_no_state(tmp_path: Path) -> None:
    logs = one(tmp_path, count=3)
    assert grabbed(logs) == "t-0"
    log = logs.log()
    logs.cleaning.check_cleaning_aborted(log)
    aborter = aborting(logs.cleaning, logs.cleaning.states.abort_cleaning)
    with pytest.raises(LogCleaningAbortedError):
        logs.cleaning.check_cleaning_aborted(log)
    assert aborter.is_alive()
    logs.cleaning.done_cleaning(T0, logs.directories[0], 1)
    aborter.join(120)
    assert not aborter.is_alive()
    assert logs.cleaning.states.of(T0) is None


# ---- checkpoints


def test_a_line_is_added_and_removed(tmp_path: Path) -> None:
    logs = RunningLogs(tmp_path)
    logs.log("t-0")
    logs.set_checkpoint(7)
    assert lines(logs) == {"t-0": 7}
    logs.cleaning.checkpoints.update(logs.directories[0], remove=T0)
    assert lines(logs) == {}


def test_lines_of_partitions_that_are_gone_are_dropped_on_the_next_write(tmp_path: Path) -> None:
    logs = RunningLogs(tmp_path)
    logs.log("t-0")
    logs.set_checkpoint(7)
    (logs.directories[0] / CLEANER_OFFSET_CHECKPOINT).write_text("0\n2\nt 0 7\ngone 3 9\n")
    logs.cleaning.checkpoints.update(logs.directories[0], line=(T0, 8))
    assert lines(logs) == {"t-0": 8}


def test_the_checkpoint_of_a_failed_directory_is_forgotten_and_not_written(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    logs = RunningLogs(tmp_path, directories=2)
    logs.log("t-0", directory=0)
    logs.log("u-0", directory=1)
    logs.set_checkpoint(7)
    logs.set_checkpoint(9, "u-0")
    logs.cleaning.checkpoints.handle_log_dir_failure(logs.directories[0])
    assert logs.cleaning.checkpoints.all() == {TopicPartition("u", 0): 9}
    logs.cleaning.checkpoints.update(logs.directories[0], line=(T0, 8))
    assert lines(logs) == {"t-0": 7}
    assert f"Stopping cleaning logs in dir {logs.directories[0]}" in caplog.text


@pytest.mark.parametrize(("offset", "left"), [(1000, 15), (1, 1)])
def test_a_truncation_lowers_the_checkpoint_and_never_raises_it(
    tmp_path: Path, offset: int, left: int
) -> None:
    logs = one(tmp_path)
    logs.set_checkpoint(15)
    logs.cleaning.checkpoints.maybe_truncate(logs.directories[0], T0, offset)
    assert lines(logs) == {"t-0": left}


def test_the_checkpoint_of_a_log_without_compact_is_left_alone(tmp_path: Path) -> None:
    logs = one(tmp_path, DELETE)
    logs.set_checkpoint(15)
    logs.cleaning.checkpoints.maybe_truncate(logs.directories[0], T0, 1)
    assert lines(logs) == {"t-0": 15}


def test_a_line_and_a_mark_move_to_another_directory(tmp_path: Path) -> None:
    logs = RunningLogs(tmp_path, directories=2)
    log = logs.log("t-0", directory=0)
    logs.set_checkpoint(7)
    logs.cleaning.mark_uncleanable(log, "a reason")
    logs.cleaning.alter_checkpoint_dir(T0, *logs.directories)
    assert (lines(logs, 0), lines(logs, 1)) == ({}, {"t-0": 7})
    assert logs.cleaning.uncleanable_partitions(logs.directories[0]) == {}
    assert logs.cleaning.uncleanable_partitions(logs.directories[1]) == {T0: "a reason"}


def test_a_partition_without_a_line_has_none_to_move(tmp_path: Path) -> None:
    logs = RunningLogs(tmp_path, directories=2)
    logs.log("t-0", directory=0)
    logs.cleaning.alter_checkpoint_dir(T0, *logs.directories)
    assert not (logs.directories[1] / CLEANER_OFFSET_CHECKPOINT).exists()


# ---- logs that go


def test_a_deleted_log_loses_its_line_and_its_cleaning_is_stopped_first(tmp_path: Path) -> None:
    logs = one(tmp_path, count=3)
    log = logs.log()
    logs.set_checkpoint(1)
    in_progress_elsewhere(logs.cleaning)
    deleter = in_thread(lambda: assert_deleted(logs))
    while not isinstance(logs.cleaning.states.of(T0), Aborted):
        assert deleter.is_alive()
    assert log.directory.name == "t-0", "it has its name while it is being cleaned"
    logs.cleaning.done_cleaning(T0, logs.directories[0], 2)
    deleter.join(120)
    assert log.directory.name.endswith("-delete")
    assert logs.cleaning.states.of(T0) is None
    assert lines(logs) == {}


def assert_deleted(logs: RunningLogs) -> None:
    assert logs.manager.delete(T0) is not None


def test_a_topic_made_anew_is_cleaned_though_the_old_one_could_not_be(tmp_path: Path) -> None:
    logs = one(tmp_path, count=3)
    logs.cleaning.mark_uncleanable(logs.log(), "a reason")
    assert grabbed(logs) is None
    logs.manager.delete(T0)
    batches(logs, logs.log(), 3)
    assert grabbed(logs) == "t-0"


def test_uncleanable_logs_are_counted_by_directory_until_they_are_gone(tmp_path: Path) -> None:
    logs = RunningLogs(tmp_path, {"t": EAGER}, directories=2)
    for name, directory in (("t-0", 0), ("t-1", 0), ("t-2", 1)):
        batches(logs, logs.log(name, directory=directory), 3)
        logs.cleaning.mark_uncleanable(logs.log(name), f"bad {name}")
    first, second = logs.directories
    now = logs.clock.now_ms()
    size = logs.log("t-0").size_bytes
    assert size > 0
    assert [logs.cleaning.uncleanable_count(d) for d in (first, second)] == [2, 1]
    assert [logs.cleaning.uncleanable_bytes(d, now) for d in (first, second)] == [2 * size, size]
    logs.set_checkpoint(1, "t-1")
    assert logs.cleaning.uncleanable_bytes(first, now) == size + size * 2 // 3
    logs.manager.delete(TopicPartition("t", 1))
    logs.cleaning.maintain_uncleanable()
    assert logs.cleaning.uncleanable_partitions(first) == {T0: "bad t-0"}
    assert [logs.cleaning.uncleanable_count(d) for d in (first, second)] == [1, 1]


def test_a_failed_directory_ends_the_cleaning_of_its_logs_without_waiting(tmp_path: Path) -> None:
    logs = one(tmp_path, count=3)
    log = logs.log()
    assert grabbed(logs) == "t-0"
    logs.manager.context.failures.fail(logs.directories[0], "a disk that died")
    with pytest.raises(LogCleaningAbortedError, match="offline"):
        logs.cleaning.check_cleaning_aborted(log)
    logs.cleaning.done_cleaning(T0, logs.directories[0], 1)
    assert logs.cleaning.states.of(T0) is None
    assert not (logs.directories[0] / CLEANER_OFFSET_CHECKPOINT).exists()


# ---- gauges


def test_the_time_since_the_last_run_counts_from_the_last_look(tmp_path: Path) -> None:
    logs = one(tmp_path)
    assert grabbed(logs) is None
    logs.clock.advance(1_234)
    assert logs.cleaning.time_since_last_run_ms(logs.clock.now_ms()) == 1_234


def test_a_look_at_clean_logs_reads_nothing_of_them(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    logs = one(tmp_path, count=5)
    logs.set_checkpoint(5)
    logs.restart()
    for path in (logs.directories[0] / "t-0").glob("*.log"):
        path.unlink()
    with caplog.at_level(logging.WARNING):
        assert grabbed(logs) is None
    assert not caplog.records


# ---- who waits for whom


def test_nobody_waits_for_a_log_that_is_being_looked_at(three: RunningLogs) -> None:
    cleaning = three.cleaning
    found: list[LogToClean | None] = []
    log = three.log("t-1")
    with log.lock:  # as somebody who writes to a slow disk holds it
        looker = in_thread(lambda: found.append(cleaning.grab_filthiest(0)))
        looker.join(0.2)
        assert looker.is_alive(), "it looks at the log"
        assert cleaning.states.of(TopicPartition("t", 2)) is None
        others = in_thread(lambda: cleaning.states.abort_cleaning(TopicPartition("t", 0)))
        others.join(120)
        assert not others.is_alive(), "it has to wait"
    looker.join(120)
    assert found[0] is not None
    assert str(found[0].topic_partition) == "t-2"


def test_a_log_that_was_paused_while_it_was_looked_at_is_not_taken(three: RunningLogs) -> None:
    cleaning = three.cleaning
    found: list[LogToClean | None] = []
    with three.log("t-1").lock:
        looker = in_thread(lambda: found.append(cleaning.grab_filthiest(0)))
        looker.join(0.2)
        cleaning.states.abort_and_pause(TopicPartition("t", 2))
    looker.join(120)
    assert found[0] is not None
    assert str(found[0].topic_partition) == "t-1"


def test_a_log_that_was_cleaned_while_it_was_looked_at_is_looked_at_again(
    three: RunningLogs,
) -> None:
    cleaning = three.cleaning
    found: list[LogToClean | None] = []
    with three.log("t-1").lock:
        looker = in_thread(lambda: found.append(cleaning.grab_filthiest(0)))
        looker.join(0.2)
        for number in (1, 2):
            three.set_checkpoint(three.log(f"t-{number}").active.base_offset, f"t-{number}")
    looker.join(120)
    assert found == [None]
