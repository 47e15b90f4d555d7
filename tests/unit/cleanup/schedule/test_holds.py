"""Legal holds: nothing of what is held is removed, offline or in a broker, until the release."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from cordwood.cleanup.plan.report import Report, Status
from cordwood.cleanup.rules.cleanable import plan_cleanable
from cordwood.cleanup.rules.retention import plan_retention
from cordwood.cleanup.schedule.holds import add_hold
from cordwood.cleanup.schedule.retention_pass import retention_pass
from cordwood.configs.log_config import LogConfig
from cordwood.format.file_names import HOLDS_FILE
from cordwood.model.errors import ConfigError
from cordwood.model.hold import Hold
from cordwood.model.topic_partition import TopicPartition
from cordwood.queries.cleaning import cleaned_partition
from cordwood.storage.filesystem import OS
from cordwood.storage.holds import UNREADABLE, HoldRegistry
from support.clean_case import log_dir, log_of, snapshot_of
from support.in_process_engine import clean_in_process
from support.log_builder import NOW_MS
from support.running_logs import RunningLogs, newest, read_records

BOTH = LogConfig(
    cleanup_policy=frozenset({"compact", "delete"}),
    retention_ms=172_800_000,
    min_cleanable_dirty_ratio=0.0,
)
CONFIGS = {"x": BOTH, "y": BOTH}


def hold(name: str, topic: str = "x", partition: int | None = None) -> Hold:
    return Hold(id=name, topic=topic, partition=partition, reason="case 7", by="me", created_ms=1)


def registry_of(*log_dirs: Path) -> HoldRegistry:
    registry = HoldRegistry(OS)
    registry.read(log_dirs)
    return registry


def statuses(report: Report) -> dict[str, tuple[Status, str]]:
    return {f"{p.topic}-{p.partition}": (p.status, p.reason) for p in report.partitions}


# ---- the planners


def test_the_planners_leave_a_held_log_and_say_why(tmp_path: Path) -> None:
    log = log_of("x-0")
    view = log.capture(log.write(tmp_path / "x-0"), BOTH).view
    free = plan_cleanable(view, now_ms=NOW_MS)
    assert len(plan_retention(view, now_ms=NOW_MS).expired) == 2
    assert free.reason is None
    held = replace(view, holds=("case-7", "b"), log_start_offset=4)
    plan = plan_retention(held, now_ms=NOW_MS)
    assert (plan.expired, plan.roll, plan.log_start_offset) == ((), False, 4)
    for force in (False, True):
        assert plan_cleanable(held, now_ms=NOW_MS, force=force).reason == "held: case-7, b"
    assert plan_cleanable(replace(view, holds=("b",)), now_ms=NOW_MS).ratio == free.ratio


# ---- offline


@pytest.mark.parametrize("dry_run", [False, True])
def test_clean_changes_no_byte_of_a_held_partition(tmp_path: Path, dry_run: bool) -> None:
    root = log_dir(tmp_path / "logs", "x-0", "x-1", "y-0")
    leftover = root / "x-0" / f"{0:020d}.log.deleted"
    leftover.write_bytes(b"an earlier removal that was cut off")
    registry_of(root).add(hold("case-7", partition=0))
    before = snapshot_of(root / "x-0")
    report = clean_in_process(root, CONFIGS, now_ms=NOW_MS, dry_run=dry_run, force=True)
    assert snapshot_of(root / "x-0") == before
    done = Status.PLANNED if dry_run else Status.CLEANED
    assert statuses(report)["x-0"] == (Status.HELD, "case-7")
    assert [status for status, _ in statuses(report).values()] == [Status.HELD, done, done]
    held = cleaned_partition(report.partitions[0])
    assert held.holds == ("case-7",)
    assert held.segments_before == held.segments_after == 3
    assert report.failed == []


def test_released_partition_is_cleaned_at_the_next_run(tmp_path: Path) -> None:
    held, free = (log_dir(tmp_path / name, "x-0") for name in ("held", "free"))
    registry_of(held).add(hold("case-7"))
    clean_in_process(held, CONFIGS, now_ms=NOW_MS)
    registry_of(held).release("case-7", by="ada")
    for root in (held, free):
        report = clean_in_process(root, CONFIGS, now_ms=NOW_MS)
        assert statuses(report) == {"x-0": (Status.CLEANED, "")}
    names = [path.name for path in sorted((free / "x-0").iterdir())]
    assert [path.name for path in sorted((held / "x-0").iterdir())] == names
    for name in names:
        assert (held / "x-0" / name).read_bytes() == (free / "x-0" / name).read_bytes()


def test_a_hold_of_one_directory_counts_in_all_that_are_cleaned(tmp_path: Path) -> None:
    first, second = log_dir(tmp_path / "first", "x-0"), log_dir(tmp_path / "second", "x-1")
    registry_of(first).add(hold("case-7"))
    report = clean_in_process(first, CONFIGS, now_ms=NOW_MS, log_dirs=(first, second))
    assert {status for status, _ in statuses(report).values()} == {Status.HELD}


def test_damaged_holds_fail_their_directory_and_nothing_in_it_is_cleaned(tmp_path: Path) -> None:
    first, second = log_dir(tmp_path / "first", "x-0"), log_dir(tmp_path / "second", "y-0")
    (first / HOLDS_FILE).write_bytes(b'{"version": 1, "holds": [')
    before = snapshot_of(first)
    report = clean_in_process(first, CONFIGS, now_ms=NOW_MS, log_dirs=(first, second))
    assert snapshot_of(first) == before
    assert [p.topic for p in report.failed] == ["x"]
    assert f"{first / HOLDS_FILE}: not a file of legal holds" in report.failed[0].reason
    assert statuses(report)["y-0"] == (Status.CLEANED, "")


# ---- in a broker


def logs_of(root: Path) -> RunningLogs:
    logs = RunningLogs(root, {"x": replace(BOTH, retention_ms=1_000), "d": DELETED})
    for name in ("x-0", "d-0"):
        rounds = [[(b"k", b"%d" % number), (b"l", b"v")] for number in range(4)]
        logs.fill(logs.log(name), rounds)
    return logs


DELETED = LogConfig(retention_ms=1_000)


def test_retention_and_compaction_pass_over_held_logs_until_the_release(tmp_path: Path) -> None:
    logs = logs_of(tmp_path)
    add_hold(logs.cleaning, hold("c", "x"))
    add_hold(logs.cleaning, hold("d", "d", 0))
    files = snapshot_of(tmp_path / "logs-0" / "x-0") | snapshot_of(tmp_path / "logs-0" / "d-0")
    for _ in range(2):
        logs.clock.advance(10_000)
        assert not logs.cleaner.clean_once()
        assert retention_pass(logs.cleaning) == 0
        logs.clock.advance(100_000)
        logs.manager.context.scheduler.run_due()
        logs.restart()
    for path, facts in files.items():
        if path.endswith(".log"):
            assert snapshot_of(Path(path))[path][2] == facts[2]
    holds = logs.manager.context.holds
    holds.release("d", by="ada")
    assert retention_pass(logs.cleaning) == 4
    assert not logs.cleaner.clean_once()
    assert len(logs.log("x-0").segments) == 5
    holds.release("c", by="ada")
    state = newest(read_records(logs.log("x-0")))
    assert logs.cleaner.clean_once()
    assert newest(read_records(logs.log("x-0"))).items() <= state.items()
    assert len(logs.log("x-0").segments) < 5


def test_compaction_that_was_chosen_before_the_hold_is_not_begun(tmp_path: Path) -> None:
    """The logs are looked at without the lock: the hold may come in between."""
    logs = logs_of(tmp_path)
    looks = logs.cleaning._look_at

    def look_then_hold(log, line, now_ms):  # type: ignore[no-untyped-def]
        found = looks(log, line, now_ms)
        if not log.holds:
            add_hold(logs.cleaning, hold("c", "x"))
        return found

    logs.cleaning._look_at = look_then_hold  # type: ignore[method-assign]
    assert logs.cleaning.grab_filthiest(logs.clock.now_ms()) is None
    assert logs.log("x-0").holds == ("c",)
    assert logs.cleaning.states.of(TopicPartition("x", 0)) is None


def test_a_hold_needs_a_log_that_is_here(tmp_path: Path) -> None:
    logs = logs_of(tmp_path)
    for wrong in (hold("c", "nothing"), hold("c", "x", 7)):
        with pytest.raises(ConfigError, match="this broker has no such log"):
            add_hold(logs.cleaning, wrong)
    assert logs.manager.context.holds.all() == []


@pytest.mark.parametrize("together", [False, True])
def test_held_log_that_a_controller_deletes_is_kept_as_stray(
    tmp_path: Path, together: bool
) -> None:
    logs = logs_of(tmp_path)
    add_hold(logs.cleaning, hold("c", "d"))
    before = {p.name: p.read_bytes() for p in (tmp_path / "logs-0" / "d-0").glob("*.log")}
    if together:
        logs.manager.delete_all([TopicPartition("d", 0)])
    else:
        logs.manager.delete(TopicPartition("d", 0))
    logs.restart()
    logs.clock.advance(1_000_000)
    logs.manager.context.scheduler.run_due()
    (stray,) = (tmp_path / "logs-0").glob("d-0.*-stray")
    assert {p.name: p.read_bytes() for p in stray.glob("*.log")} == before
    assert logs.manager.get(TopicPartition("d", 0)) is None


def test_a_replica_that_was_moved_leaves_its_old_place_although_it_is_held(tmp_path: Path) -> None:
    logs = RunningLogs(tmp_path, {"d": DELETED}, directories=2)
    log = logs.log("d-0", directory=0)
    logs.put(log, (b"k", b"v"))
    add_hold(logs.cleaning, hold("c", "d"))
    assert all((each / HOLDS_FILE).exists() for each in logs.directories)
    future = logs.manager.add_future(log.topic_partition, logs.directories[1])
    future.append_as_follower(OS.read_bytes(log.active.path), leader_epoch=0)
    logs.manager.replace_current_with_future(log.topic_partition)
    assert logs.log("d-0").holds == ("c",)
    assert list(logs.directories[0].glob("*-stray")) == []
    assert len(list(logs.directories[0].glob("*-delete"))) == 1


def test_holds_that_cannot_be_read_hold_the_whole_directory_of_a_broker(tmp_path: Path) -> None:
    logs = logs_of(tmp_path)
    (logs.directories[0] / HOLDS_FILE).write_bytes(b"{")
    logs.restart()
    logs.clock.advance(10_000)
    assert logs.log("d-0").holds == (UNREADABLE,)
    assert retention_pass(logs.cleaning) == 0
    assert not logs.cleaner.clean_once()
    assert str(logs.manager.why_not_to_delete("d")) == f"Topic d is held: {UNREADABLE}"
