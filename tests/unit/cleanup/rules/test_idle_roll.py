"""Active segments that are rolled because no record arrives."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from cordwood.cleanup.schedule.retention_pass import retain, retention_pass
from cordwood.configs.log_config import LogConfig
from cordwood.testing.manual_clock import ManualClock
from support.clean import run_clean
from support.log_builder import NOW_MS, LogBuilder, write_log_dir
from support.running_logs import RunningLogs, read_records
from support.segments import set_last_modified

HOUR_MS = 3_600_000
IDLE = LogConfig(segment_ms=HOUR_MS, retention_ms=10 * HOUR_MS, cordwood_segment_roll_idle=True)
COMPACT = replace(IDLE, cleanup_policy=frozenset({"compact"}), min_cleanable_dirty_ratio=0.0)


def bases(logs: RunningLogs, name: str = "t-0") -> list[int]:
    return [segment.base_offset for segment in logs.log(name).segments]


def test_a_log_to_which_nothing_is_written_rolls_when_its_first_batch_is_too_old(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    logs = RunningLogs(
        tmp_path, {"t": IDLE, "kafka": replace(IDLE, cordwood_segment_roll_idle=False)}
    )
    for name in ("t-0", "kafka-0"):
        logs.put(logs.log(name), (None, b"a"))
    logs.clock.advance(HOUR_MS // 2)
    for name in ("t-0", "kafka-0"):
        logs.put(logs.log(name), (None, b"b"))
    logs.clock.advance(HOUR_MS // 2)
    retention_pass(logs.cleaning)
    assert bases(logs) == [0]
    logs.clock.advance(1)
    retention_pass(logs.cleaning)
    assert bases(logs) == [0, 2]
    assert bases(logs, "kafka-0") == [0]
    assert "at offset 2 due to cordwood.segment.roll.idle" in caplog.text
    for _ in range(3):
        logs.clock.advance(2 * HOUR_MS)
        retention_pass(logs.cleaning)
    assert bases(logs) == [0, 2], "an empty segment is not rolled again"
    logs.clock.advance(10 * HOUR_MS)
    assert retention_pass(logs.cleaning) == 2, "one of each topic"
    assert logs.put(logs.log(), (None, b"c")) == 2


def test_what_is_above_the_high_watermark_is_not_rolled(tmp_path: Path) -> None:
    logs = RunningLogs(tmp_path, {"t": IDLE})
    log = logs.log()
    logs.put(log, (None, b"a"))
    log.update_high_watermark(0)
    logs.clock.advance(HOUR_MS + 1)
    retain(log, logs.clock.now_ms())
    assert bases(logs) == [0]
    log.update_high_watermark(1)
    retain(log, logs.clock.now_ms())
    assert bases(logs) == [0, 1]


@pytest.mark.parametrize(
    ("timestamp", "policy", "rolls"),
    [
        (-1, "kafka", True),
        (NOW_MS + 1_000 * HOUR_MS, "kafka", False),
        (NOW_MS + 1_000 * HOUR_MS, "append-time", True),
    ],
)
def test_without_a_timestamp_or_with_one_of_the_future_the_append_counts(
    tmp_path: Path, timestamp: int, policy: str, rolls: bool
) -> None:
    config = replace(
        IDLE, cordwood_timestamp_future_policy=policy, message_timestamp_after_max_ms=1 << 62
    )
    logs = RunningLogs(tmp_path, {"t": config}, clock=ManualClock(NOW_MS))
    log = logs.log()
    logs.put(log, (None, b"a"), timestamp=timestamp)
    set_last_modified(log.active, NOW_MS)
    logs.clock.advance(HOUR_MS)
    retain(log, logs.clock.now_ms())
    assert bases(logs) == [0]
    logs.clock.advance(1)
    retain(log, logs.clock.now_ms())
    assert bases(logs) == ([0, 1] if rolls else [0])


def test_compaction_reaches_the_last_records_of_an_idle_log(tmp_path: Path) -> None:
    logs = RunningLogs(tmp_path, {"t": COMPACT})
    log = logs.log()
    for value in (b"1", b"2", b"3"):
        logs.put(log, (b"k", value))
    assert not logs.cleaner.clean_once(), "all of it is in the active segment"
    logs.clock.advance(HOUR_MS + 1)
    assert not logs.cleaner.clean_once(), "retention, which rolls, comes after the search"
    assert logs.cleaner.clean_once()
    assert [(each.offset, each.value) for each in read_records(log)] == [(2, b"3")]
    assert logs.put(log, (b"k", b"4")) == 3


def stopped(root: Path, *, clean_shutdown: bool = True) -> Path:
    log = LogBuilder("t-0", modified_ms=NOW_MS - 2 * HOUR_MS)
    for value in (b"1", b"2", b"3"):
        log.put(b"k", value, timestamp=NOW_MS - 2 * HOUR_MS)
    return write_log_dir(root, [log], clean_shutdown=clean_shutdown)


OPTIONS = (
    *("--set", "t:cleanup.policy=delete", "--set", "t:retention.ms=36000000"),
    *("--set", "t:segment.ms=3600000", "--set", "t:cordwood.segment.roll.idle=true"),
)


def test_a_stopped_log_is_rolled_as_a_dry_run_shows_and_continues_behind_it(
    tmp_path: Path,
) -> None:
    root = stopped(tmp_path / "logs-0")
    (before,) = root.rglob("*.log")
    (dry,) = run_clean([root], *OPTIONS, "--dry-run", now_ms=NOW_MS).report["partitions"]
    assert list(root.rglob("*.log")) == [before]
    (wet,) = run_clean([root], *OPTIONS, now_ms=NOW_MS).report["partitions"]
    assert [each.name[:20] for each in sorted(root.rglob("*.log"))] == [f"{0:020d}", f"{3:020d}"]
    for report in (dry, wet):
        assert (report["rolled_at"], report["segments_after"], report["expired"]) == (3, 2, [])
    assert (dry["status"], wet["status"]) == ("planned", "cleaned")
    (again,) = run_clean([root], *OPTIONS, now_ms=NOW_MS).report["partitions"]
    assert (again["rolled_at"], again["status"]) == (None, "unchanged")
    (root / "meta.properties").unlink()  # of another cluster than these running logs
    logs = RunningLogs(tmp_path, {"t": IDLE}, clock=ManualClock(NOW_MS))
    assert bases(logs) == [0, 3]
    assert logs.put(logs.log(), (b"k", b"4")) == 3
    assert [each.offset for each in read_records(logs.log())] == [0, 1, 2, 3]


def test_after_an_unclean_shutdown_nothing_is_rolled(tmp_path: Path) -> None:
    root = stopped(tmp_path / "logs-0", clean_shutdown=False)
    (report,) = run_clean([root], *OPTIONS, now_ms=NOW_MS).report["partitions"]
    assert (report["rolled_at"], report["segments_after"]) == (None, 1)
