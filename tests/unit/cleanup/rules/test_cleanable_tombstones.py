"""Tombstones of idle logs: they go when their delete horizon has passed, and nothing else moves."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from cordwood.cleanup.rules.cleanable import plan_cleanable
from cordwood.configs.log_config import LogConfig
from cordwood.format.control_record import ControlType, build_control_key
from cordwood.format.record_batch import Record, build_batch
from cordwood.model.documents import to_document
from cordwood.queries.cleaning import cleaning_of
from cordwood.storage.log.partition_log import PartitionLog
from cordwood.testing.manual_clock import ManualClock
from support.clean import digest_tree
from support.in_process_engine import clean_in_process
from support.log_builder import NOW_MS, LogBuilder, write_log_dir
from support.running_logs import RunningLogs, read_records

HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS
COMPACT = LogConfig(
    cleanup_policy=frozenset({"compact"}),
    min_cleanable_dirty_ratio=0.5,
    delete_retention_ms=DAY_MS,
    segment_bytes=300,
    cordwood_tombstone_cleanup=True,
)


def clean_all(logs: RunningLogs) -> int:
    """One check of the cleaner; how many logs it cleaned."""
    count = 0
    while logs.cleaner.clean_once():
        count += 1
        assert count < 10, "the cleaner does not come to rest"
    return count


def files_of(log: PartitionLog) -> dict[str, str]:
    return digest_tree(log.directory)


def idle(root: Path, config: LogConfig = COMPACT) -> RunningLogs:
    """A log of three clean segments of a few records each; a tombstone is in the middle one."""
    logs = RunningLogs(root, {"t": config})
    log = logs.log()
    logs.fill(
        log,
        [
            [(b"a", b"1" * 150), (b"b", b"1" * 50)],
            [(b"c", b"1" * 150), (b"b", None), (b"d", b"1")],
            [(b"e", b"1" * 200)],
        ],
    )
    assert clean_all(logs) == 1
    assert [each.key for each in read_records(log)] == [b"a", b"c", b"b", b"d", b"e"]
    return logs


def test_a_tombstone_of_an_idle_log_goes_at_its_horizon_and_nothing_else_changes(
    tmp_path: Path,
) -> None:
    logs = idle(tmp_path)
    log = logs.log()
    before, records = files_of(log), read_records(log)
    bases = [segment.base_offset for segment in log.segments]
    logs.clock.advance(DAY_MS - 1)
    assert clean_all(logs) == 0
    assert files_of(log) == before
    checkpoint = logs.checkpoint()
    logs.clock.advance(1)
    assert clean_all(logs) == 1
    after = files_of(log)
    changed = {name[:20] for name in {*before, *after} if before.get(name) != after.get(name)}
    (gone,) = [each.offset for each in records if each.value is None]
    assert changed == {f"{max(b for b in bases if b <= gone):020d}"}
    assert read_records(log) == [each for each in records if each.value is not None]
    assert logs.checkpoint() == checkpoint
    for _ in range(3):
        assert clean_all(logs) == 0
        logs.clock.advance(30 * DAY_MS)
    assert files_of(log) == after
    assert logs.put(log, (b"a", b"2")) == 6


def test_without_the_setting_it_stays_as_in_kafka(tmp_path: Path) -> None:
    logs = idle(tmp_path, replace(COMPACT, cordwood_tombstone_cleanup=False))
    before = files_of(logs.log())
    logs.clock.advance(300 * DAY_MS)
    assert clean_all(logs) == 0
    assert files_of(logs.log()) == before


def test_a_check_of_an_idle_log_reads_no_segment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    logs = idle(tmp_path)
    clean_all(logs)
    read: list[object] = []
    scan_due = "cordwood.cleanup.access.due_scan.scan_due"
    monkeypatch.setattr(scan_due, lambda *each, **_: read.append(each))
    for _ in range(5):
        logs.clock.advance(HOUR_MS)
        assert clean_all(logs) == 0
    assert read == []


def test_a_lag_that_was_raised_holds_a_tombstone_back_and_so_does_a_legal_hold(
    tmp_path: Path,
) -> None:
    logs = idle(tmp_path)
    log = logs.log()
    before = files_of(log)
    logs.clock.advance(DAY_MS)
    log.update_config(replace(COMPACT, min_compaction_lag_ms=2 * DAY_MS))
    assert clean_all(logs) == 0
    assert files_of(log) == before
    logs.clock.advance(DAY_MS)
    view = logs.cleaning.view_of(log, logs.checkpoint())
    held = plan_cleanable(replace(view, holds=("case",)), now_ms=logs.clock.now_ms())
    assert (held.reason, held.due) == ("held: case", ())
    assert clean_all(logs) == 1


def test_a_due_cleaning_leaves_dirty_records_for_their_own(tmp_path: Path) -> None:
    logs = idle(tmp_path)
    log = logs.log()
    logs.put(log, (b"a", b"2"))
    log.roll()
    log.update_high_watermark(log.log_end_offset)
    checkpoint = logs.checkpoint()
    assert clean_all(logs) == 0, "the dirty ratio is low"
    logs.clock.advance(DAY_MS)
    assert clean_all(logs) == 1
    assert [each.key for each in read_records(log)] == [b"a", b"c", b"d", b"e", b"a"]
    assert logs.checkpoint() == checkpoint
    assert clean_all(logs) == 0


@pytest.mark.parametrize("strategy", ["offset", "timestamp"])
def test_a_tombstone_that_has_no_horizon_gets_one_at_the_next_check(
    tmp_path: Path, strategy: str
) -> None:
    logs = RunningLogs(tmp_path, {"t": replace(COMPACT, cordwood_compaction_strategy=strategy)})
    log = logs.log()
    logs.fill(log, [[(b"a", b"1"), (b"b", None)], [(b"c", b"1")]])
    logs.set_checkpoint(log.active.base_offset)  # as an older Kafka has cleaned it
    assert clean_all(logs) == 1
    assert len(read_records(log)) == 3
    assert clean_all(logs) == 0
    logs.clock.advance(DAY_MS)
    assert clean_all(logs) == 1
    assert [each.key for each in read_records(log)] == [b"a", b"c"]
    assert clean_all(logs) == 0


def test_a_marker_that_has_to_stay_is_rewritten_once(tmp_path: Path) -> None:
    """A horizon at a marker whose data is still there: no cleaning removes it."""
    log_dir = write_log_dir(tmp_path / "logs-0", [marked_log()])
    (log_dir / "meta.properties").unlink()
    logs = RunningLogs(tmp_path, {"t": COMPACT}, clock=ManualClock(NOW_MS))
    log = logs.log()
    records = read_records(log)
    assert clean_all(logs) == 1
    before = files_of(log)
    for _ in range(3):
        logs.clock.advance(DAY_MS)
        assert clean_all(logs) == 0
    assert files_of(log) == before
    assert read_records(log) == records


def marked_log() -> LogBuilder:
    log = LogBuilder("t-0")
    log.batch([(b"a", b"1")], producer=(7, 0), transactional=True)
    offset = log.next_offset
    record = Record(offset, NOW_MS, build_control_key(ControlType.COMMIT), bytes(6))
    log.append(
        build_batch(
            [record],
            base_offset=offset,
            producer_id=7,
            producer_epoch=0,
            is_transactional=True,
            is_control=True,
            delete_horizon_ms=NOW_MS - 1,
        )
    )
    log.roll()
    log.batch([(b"b", b"1")])
    log.cleaner_checkpoint = log.active.base_offset
    return log


def stopped(root: Path) -> Path:
    """The same idle log as files: three clean segments, and a tombstone past its horizon."""
    log = LogBuilder("t-0")
    log.batch([(b"a", b"1")])
    log.roll()
    log.batch([(b"b", None), (b"c", b"1")], delete_horizon_ms=NOW_MS)
    log.batch([(b"d", b"1")], delete_horizon_ms=NOW_MS - 1)  # its tombstone has gone
    log.roll()
    log.batch([(b"e", b"1")])
    log.cleaner_checkpoint = log.active.base_offset
    return write_log_dir(root / "logs-0", [log])


@pytest.mark.parametrize("verify", [False, True])
def test_a_stopped_log_is_cleaned_as_a_dry_run_shows(tmp_path: Path, verify: bool) -> None:
    log_dir = stopped(tmp_path)
    configs = {"t": COMPACT}

    def run(**options: Any) -> Any:
        return to_document(cleaning_of(clean_in_process(log_dir, configs, **options)))

    before = digest_tree(log_dir)
    early = run(now_ms=NOW_MS - 1, verify=verify)
    assert early["partitions"][0]["status"] == "unchanged"
    dry = run(now_ms=NOW_MS, dry_run=True)
    assert digest_tree(log_dir) == before
    (planned,) = [each["compaction"] for each in dry["plan"]]
    assert planned["groups"] == [[1]]
    done = run(now_ms=NOW_MS, verify=verify)
    (report,) = done["partitions"]
    assert (report["status"], report["discarded"]["tombstone"]) == ("cleaned", 1)
    assert report["records_before"] - report["records_after"] == 1
    after = digest_tree(log_dir)
    changed = {name for name in {*before, *after} if before.get(name) != after.get(name)}
    assert {name for name in changed if name.endswith(".log")} == {f"t-0/{1:020d}.log"}
    again = run(now_ms=NOW_MS, verify=verify)
    assert again["partitions"][0]["status"] == "unchanged"
    assert digest_tree(log_dir) == after
