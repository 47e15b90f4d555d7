"""Limits over several logs: the plan against brute force, running logs, and stopped ones."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cordwood.cleanup.plan.view_after import after_retention
from cordwood.cleanup.rules.log_view import LogView, SegmentView
from cordwood.cleanup.rules.retention import RetentionPlan, plan_retention
from cordwood.cleanup.rules.shared_retention import (
    DIRECTORY_BYTES,
    FREE_BYTES,
    TOPIC_BYTES,
    DirectoryLimits,
    SharedLog,
    joined,
    plan_shared_retention,
)
from cordwood.cleanup.schedule import pinned_logs
from cordwood.cleanup.schedule.retention_pass import retention_pass
from cordwood.configs.broker_config import BrokerConfig
from cordwood.configs.log_config import LogConfig
from cordwood.model.topic_partition import TopicPartition
from support.clean import run_clean
from support.in_process_engine import clean_in_process
from support.log_builder import NOW_MS, LogBuilder, write_log_dir
from support.running_logs import RunningLogs, read_records
from support.small_disk import SmallDisk

NO_LIMITS = DirectoryLimits()
DIR = "/logs"


def log_of(
    name: str,
    segments: Sequence[tuple[int, int]],
    *,
    high_watermark: int | None = None,
    policy: str = "delete",
    limit: int = -1,
    holds: tuple[str, ...] = (),
    log_dir: str = DIR,
    is_deletable: bool = True,
    is_future: bool = False,
) -> SharedLog:
    """Segments are (bytes, largest timestamp), of ten records each; the last is active."""
    end = 10 * len(segments)
    view = LogView(
        topic_partition=TopicPartition.parse(name),
        segments=tuple(
            SegmentView(
                base_offset=10 * number,
                size_bytes=size,
                index_bytes=0,
                time_index_bytes=0,
                largest_record_timestamp=timestamp,
                first_batch_timestamp=timestamp,
                modified_ms=timestamp,
            )
            for number, (size, timestamp) in enumerate(segments)
        ),
        log_start_offset=0,
        log_end_offset=end,
        high_watermark=end if high_watermark is None else high_watermark,
        last_stable_offset=end,
        cleaner_checkpoint=None,
        config=LogConfig(
            cleanup_policy=frozenset(policy.split(",")), cordwood_retention_topic_bytes=limit
        ),
        holds=holds,
    )
    return SharedLog(view=view, log_dir=log_dir, is_deletable=is_deletable, is_future=is_future)


def planned(
    logs: Sequence[SharedLog], limits: DirectoryLimits = NO_LIMITS, free: int = 0
) -> dict[str, list[int]]:
    """Base offsets of the segments that go, by partition."""
    free_bytes = {log.log_dir: free for log in logs}
    plans = plan_shared_retention(logs, limits, free_bytes=free_bytes, now_ms=NOW_MS)
    return {
        str(log.view.topic_partition): [each.base_offset for each in plan.expired]
        for log, plan in zip(logs, plans, strict=True)
        if plan.expired
    }


# ---- the plan


def test_the_oldest_segments_of_a_topic_go_whichever_partition_has_them() -> None:
    logs = [
        log_of("t-0", [(100, 1), (100, 5), (100, 9)], limit=350),
        log_of("t-1", [(100, 2), (100, 3), (100, 8)], limit=350),
        log_of("u-0", [(100, 0), (100, 0)], limit=-1),
    ]
    plans = plan_shared_retention(logs, NO_LIMITS, free_bytes={}, now_ms=NOW_MS)
    assert planned(logs) == {"t-0": [0], "t-1": [0, 10]}
    assert plans[1].log_start_offset == 20
    assert {each.rule for plan in plans for each in plan.expired} == {TOPIC_BYTES}
    assert plans[0].expired[0].text == "cordwood.retention.topic.bytes 350 breach of topic t"


def test_of_two_as_old_the_larger_goes() -> None:
    logs = [
        log_of("t-0", [(10, 1), (1, 9)], limit=30),
        log_of("t-1", [(20, 1), (1, 9)], limit=30),
    ]
    assert planned(logs) == {"t-1": [0]}


def test_an_active_segment_and_what_is_above_the_high_watermark_stay() -> None:
    logs = [
        log_of("t-0", [(100, 1), (100, 2), (100, 3)], limit=0, high_watermark=15),
        log_of("t-1", [(100, 1)], limit=0),
    ]
    assert planned(logs) == {"t-0": [0]}


@pytest.mark.parametrize(
    "log",
    [
        log_of("t-0", [(100, 1), (100, 2)], limit=0, policy="compact"),
        log_of("t-0", [(100, 1), (100, 2)], limit=0, holds=("case 1",)),
        log_of("t-0", [(100, 1), (100, 2)], limit=0, is_deletable=False),
    ],
    ids=["compact", "held", "worked on"],
)
def test_what_may_not_be_deleted_counts_for_its_topic(log: SharedLog) -> None:
    other = log_of("t-1", [(100, 3), (100, 4)], limit=0)
    assert planned([log, other]) == {"t-1": [0]}


def test_a_future_log_counts_for_its_directory_and_not_for_its_topic() -> None:
    log = log_of("t-0", [(100, 1), (100, 2)], limit=200)
    future = log_of("t-0", [(500, 1)], limit=200, is_future=True, is_deletable=False)
    assert planned([log, future]) == {}
    assert planned([log, future], DirectoryLimits(size_bytes_max=600)) == {"t-0": [0]}


def test_a_directory_loses_the_oldest_of_all_its_topics() -> None:
    logs = [
        log_of("a-0", [(100, 5), (100, 9)]),
        log_of("b-0", [(100, 4), (100, 9)]),
        log_of("c-0", [(100, 1), (100, 9)], log_dir="/other"),
    ]
    plans = plan_shared_retention(
        logs, DirectoryLimits(size_bytes_max=399), free_bytes={}, now_ms=NOW_MS
    )
    assert [len(plan.expired) for plan in plans] == [0, 1, 0]
    assert plans[1].expired[0].rule == DIRECTORY_BYTES
    assert "cordwood.log.dir.retention.bytes 399 breach" in plans[1].expired[0].text


def test_free_space_is_made_and_what_another_limit_has_freed_counts() -> None:
    logs = [log_of("t-0", [(100, 1), (100, 2), (100, 3), (100, 4)], limit=300)]
    assert planned(logs, DirectoryLimits(free_bytes_min=150), free=50) == {"t-0": [0]}
    plans = plan_shared_retention(
        logs, DirectoryLimits(free_bytes_min=151), free_bytes={DIR: 50}, now_ms=NOW_MS
    )
    assert [each.rule for each in plans[0].expired] == [TOPIC_BYTES, FREE_BYTES]


SEGMENTS = st.lists(st.tuples(st.integers(0, 50), st.integers(0, 20)), min_size=1, max_size=5)


@given(
    logs=st.lists(st.tuples(SEGMENTS, st.integers(0, 60)), min_size=1, max_size=4),
    limit=st.integers(0, 300),
)
def test_the_plan_is_that_of_a_scan_for_the_oldest_each_time(
    logs: list[tuple[list[tuple[int, int]], int]], limit: int
) -> None:
    shared = [
        log_of(f"t-{n}", segments, limit=limit, high_watermark=min(mark, 10 * len(segments)))
        for n, (segments, mark) in enumerate(logs)
    ]
    gone = [0] * len(shared)

    def left() -> int:
        return sum(
            segment.size_bytes
            for log, count in zip(shared, gone, strict=True)
            for segment in log.view.segments[count:]
        )

    while left() > limit:
        heads = [
            (log.view.segments[count].largest_timestamp, -log.view.segments[count].size_bytes, n)
            for n, (log, count) in enumerate(zip(shared, gone, strict=True))
            if count < len(log.view.segments) - 1
            and log.view.next_base(count) <= log.view.high_watermark
        ]
        if not heads:
            break
        gone[min(heads)[2]] += 1
    plans = plan_shared_retention(shared, NO_LIMITS, free_bytes={}, now_ms=NOW_MS)
    assert [len(plan.expired) for plan in plans] == gone
    after = [
        replace(s, view=after_retention(s.view, p, now_ms=NOW_MS))
        for s, p in zip(shared, plans, strict=True)
    ]
    assert planned(after) == {}, "a second pass finds nothing"


def test_a_plan_comes_behind_that_of_the_logs_own_retention() -> None:
    log = log_of("t-0", [(100, 1), (100, 8), (100, 9)], limit=0)
    view = replace(log.view, config=replace(log.view.config, retention_ms=5))
    own = plan_retention(view, now_ms=10)
    rest = after_retention(view, own, now_ms=NOW_MS)
    (shared,) = plan_shared_retention(
        [replace(log, view=rest)], NO_LIMITS, free_bytes={}, now_ms=NOW_MS
    )
    both = joined(own, shared)
    assert [(each.base_offset, each.rule) for each in both.expired] == [
        (0, "time"),
        (10, TOPIC_BYTES),
    ]
    assert both.log_start_offset == 20
    everything = plan_retention(view, now_ms=1_000)
    assert everything.roll
    assert after_retention(view, everything, now_ms=NOW_MS).size_bytes == 0


# ---- running logs


def fill(logs: RunningLogs, names: Sequence[str], count: int, rng: random.Random) -> None:
    for _ in range(count):
        log = logs.log(rng.choice(names))
        logs.put(log, (b"k", rng.randbytes(rng.randrange(50, 400))))
        logs.clock.advance(rng.randrange(5))


@pytest.mark.parametrize(
    ("policy", "total", "segment_bytes", "rounds", "exceeded_least"),
    [
        ("delete", 100_000, 2_000, 12, 5),
        ("compact,delete", 60_000, 2_000, 4, 2),
        pytest.param(
            "delete", 1_000_000_000, 10_000_000, 400, 20, marks=pytest.mark.nightly, id="1 GB"
        ),
    ],
)
def test_a_topic_of_24_partitions_never_exceeds_its_limit_but_by_active_segments(
    tmp_path: Path,
    policy: str,
    total: int,
    segment_bytes: int,
    rounds: int,
    exceeded_least: int,
) -> None:
    config = LogConfig(
        cleanup_policy=frozenset(policy.split(",")),
        segment_bytes=segment_bytes,
        retention_ms=-1,
        cordwood_retention_topic_bytes=total,
        file_delete_delay_ms=0,
    )
    logs = RunningLogs(tmp_path, {"t": config})
    names = [f"t-{number}" for number in range(24)]
    rng = random.Random(24)
    exceeded = 0
    for _ in range(rounds):
        scale = total // rounds // 100
        for _ in range(250):
            log = logs.log(rng.choice(names[:4] if rng.random() < 0.5 else names))
            logs.put(log, (b"k%d" % rng.randrange(1000), rng.randbytes(rng.randrange(1, scale))))
            logs.clock.advance(1)
        before = sum(logs.log(name).size_bytes for name in names)
        exceeded += before > total
        retention_pass(logs.cleaning)
        now = [logs.log(name) for name in names]
        size = sum(log.size_bytes for log in now)
        assert size <= total or all(len(log.segments) == 1 for log in now)
        assert size <= total + sum(log.active.size_bytes for log in now)
        assert size > total - segment_bytes or before <= total, "no more went than had to"
        assert all(logs.cleaning.states.of(log.topic_partition) is None for log in now)
    assert exceeded >= exceeded_least
    for name in names[:4]:
        log = logs.log(name)
        assert log.log_start_offset > 0
        assert read_records(log)[0].offset == log.log_start_offset


@pytest.mark.parametrize("delay_ms", [0, 60_000])
def test_free_space_is_kept_over_all_topics_and_files_that_wait_are_not_counted_twice(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, delay_ms: int
) -> None:
    caplog.set_level("INFO")
    config = LogConfig(segment_bytes=2_000, retention_ms=-1, file_delete_delay_ms=delay_ms)
    logs = RunningLogs(
        tmp_path,
        {"a": config, "b": config},
        fs=SmallDisk(tmp_path, 100_000),
        cordwood_log_dir_free_bytes_min=60_000,
    )
    fill(logs, ["a-0"], 250, random.Random(1))
    fill(logs, ["b-0"], 50, random.Random(2))
    a, b = logs.log("a-0"), logs.log("b-0")
    assert a.size_bytes + b.size_bytes > 45_000
    assert retention_pass(logs.cleaning) > 0
    left = a.size_bytes + b.size_bytes
    assert 40_000 - 2_000 < left <= 40_000
    assert b.log_start_offset == 0, "the older records are all in the other topic"
    assert "cordwood.log.dir.free.bytes.min 60000 breach" in caplog.text
    assert retention_pass(logs.cleaning) == 0, "what waits for its removal counts as free"
    logs.clock.advance(delay_ms)
    logs.manager.context.scheduler.run_due()
    assert retention_pass(logs.cleaning) == 0


def test_a_directory_keeps_its_size_and_a_change_of_the_limit_takes_effect(
    tmp_path: Path,
) -> None:
    config = LogConfig(segment_bytes=2_000, retention_ms=-1)
    logs = RunningLogs(tmp_path, {"a": config, "b": config}, directories=2)
    for name, directory in (("a-0", 0), ("b-0", 0), ("b-1", 1)):
        logs.log(name, directory=directory)
    fill(logs, ["a-0", "b-0", "b-1"], 300, random.Random(3))
    other = logs.log("b-1").size_bytes
    assert retention_pass(logs.cleaning) == 0
    logs.manager.broker = BrokerConfig({"cordwood.log.dir.retention.bytes": 30_000})
    retention_pass(logs.cleaning)
    size = logs.log("a-0").size_bytes + logs.log("b-0").size_bytes
    assert 30_000 - 2_000 < size <= 30_000
    assert (logs.log("b-1").size_bytes == other) == (other <= 30_000)


# ---- stopped logs


def test_a_dry_run_shows_what_a_run_then_deletes(tmp_path: Path) -> None:
    builders = []
    for number in range(3):
        log = LogBuilder(f"t-{number}")
        for segment in range(4):
            at = NOW_MS - 1_000_000 + 1_000 * segment + number
            log.put(b"k", b"v" * 200, timestamp=at)
            if segment < 3:
                log.roll(modified_ms=at)
        builders.append(log)
    root = write_log_dir(tmp_path / "logs", builders)
    size = sum(each.stat().st_size for each in root.rglob("*.log"))
    one = size // 12
    options = (
        "--set", "t:cleanup.policy=delete", "--set", "t:retention.ms=-1", "--retention-only",
        "--set", f"t:cordwood.retention.topic.bytes={one * 8}",
    )  # fmt: skip
    files = sorted(root.rglob("*.log"))
    dry = run_clean([root], *options, "--dry-run", now_ms=NOW_MS).report
    assert sorted(root.rglob("*.log")) == files
    wet = run_clean([root], *options, now_ms=NOW_MS).report
    for report in (dry, wet):
        found = {each["partition"]: each["expired"] for each in report["partitions"]}
        assert {n: [e["base_offset"] for e in found[n]] for n in found} == {
            0: [0, 1],
            1: [0],
            2: [0],
        }
        assert {each["rule"] for expired in found.values() for each in expired} == {TOPIC_BYTES}
    assert sum(each.stat().st_size for each in root.rglob("*.log")) == one * 8
    properties = tmp_path / "server.properties"
    properties.write_text(f"cordwood.log.dir.retention.bytes={one * 6}\n")
    again = run_clean([root], *options[:5], now_ms=NOW_MS, server_properties=properties).report
    assert sum(len(each["expired"]) for each in again["partitions"]) == 2
    assert sum(each.stat().st_size for each in root.rglob("*.log")) == one * 6


def test_what_a_shared_limit_takes_no_longer_holds_back_the_logs_own_rules(
    tmp_path: Path,
) -> None:
    log = LogBuilder("t-0")
    for at in (NOW_MS + 1_000, NOW_MS - 5_000, NOW_MS - 5_000, NOW_MS):
        log.put(b"k", b"v" * 200, timestamp=at)
        log.roll()
    log.put(b"k", b"v", timestamp=NOW_MS)
    root = write_log_dir(tmp_path, [log])
    size = sum(each.stat().st_size for each in root.rglob("*.log"))
    config = LogConfig(
        cleanup_policy=frozenset({"delete"}),
        retention_ms=2_000,
        cordwood_retention_topic_bytes=size - 1,
    )
    for dry_run in (True, False):
        report = clean_in_process(root, {"t": config}, now_ms=NOW_MS, dry_run=dry_run)
        (partition,) = report.partitions
        assert [(each.base_offset, each.rule) for each in partition.expired] == [
            (0, TOPIC_BYTES),
            (1, "time"),
            (2, "time"),
        ]
    assert partition.log_start_offset == 3
    (partition,) = clean_in_process(root, {"t": config}, now_ms=NOW_MS).partitions
    assert not partition.expired


def test_nothing_is_planned_without_a_limit() -> None:
    logs = [log_of("t-0", [(100, 1), (100, 2)])]
    plans = plan_shared_retention(logs, NO_LIMITS, free_bytes={}, now_ms=NOW_MS)
    assert plans == [RetentionPlan(expired=(), roll=False, log_start_offset=0)]


def test_a_dry_run_counts_the_space_that_a_run_would_have_freed_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    builders = []
    for number in range(2):
        log = LogBuilder(f"t-{number}")
        for segment in range(4):
            log.put(b"k", b"v" * 200, timestamp=NOW_MS - 1_000_000 + 1_000 * segment)
            if segment < 3:
                log.roll(modified_ms=NOW_MS - 1_000_000)
        builders.append(log)
    root = write_log_dir(tmp_path / "logs", builders)
    one = next(root.rglob("*.log")).stat().st_size
    disk = SmallDisk(root, 100_000)
    monkeypatch.setattr(pinned_logs, "OS", disk)
    # Their own retention frees a segment of each, and no more is missing.
    least = disk.free_bytes(root) + 2 * one
    config = LogConfig(
        cleanup_policy=frozenset({"delete"}), retention_ms=-1, retention_bytes=3 * one
    )
    for dry_run in (True, False):
        report = clean_in_process(
            root,
            {"t": config},
            now_ms=NOW_MS,
            dry_run=dry_run,
            compaction=False,
            directory_limits=DirectoryLimits(free_bytes_min=least),
        )
        found = {each.partition: each.expired for each in report.partitions}
        assert {n: [e.base_offset for e in found[n]] for n in found} == {0: [0], 1: [0]}
