"""Waiting for consumer groups: the planner, limits over several logs, running and stopped ones.

The planner is compared with itself: with the plan without groups, and with what groups have read.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cordwood.cleanup.plan.view_after import after_retention
from cordwood.cleanup.rules.blockers import Blocker, Code
from cordwood.cleanup.rules.group_guard import MAX_BYTES, MAX_MS, Consumed, GroupLoss
from cordwood.cleanup.rules.group_losses import GroupLosses
from cordwood.cleanup.rules.log_view import LogView, SegmentView
from cordwood.cleanup.rules.retention import RetentionPlan, age_from_ms, plan_retention
from cordwood.cleanup.rules.shared_retention import (
    DirectoryLimits,
    SharedLog,
    plan_shared_retention,
)
from cordwood.cleanup.schedule.retention_pass import retention_pass
from cordwood.configs.log_config import LogConfig
from cordwood.format.offset_commit import (
    OffsetCommitKey,
    OffsetCommitValue,
    encode_offset_commit_key,
    encode_offset_commit_value,
)
from cordwood.model.topic_partition import TopicPartition
from cordwood.model.uuids import ZERO_UUID
from cordwood.queries.explain.segment_fate import segment_fates
from support.clean import run_clean
from support.log_builder import NOW_MS, LogBuilder, write_log_dir
from support.running_logs import RunningLogs

CONFIG = LogConfig(
    retention_ms=100, cordwood_retention_groups=("g", "h"), cordwood_retention_groups_max_ms=-1
)


def view(
    segments: Sequence[tuple[int, int]],
    consumed: Consumed,
    config: LogConfig = CONFIG,
    *,
    name: str = "t-0",
    start: int = 0,
) -> LogView:
    """Segments are (bytes, largest timestamp), of ten records each; the last is active."""
    end = 10 * len(segments)
    return LogView(
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
        log_start_offset=start,
        log_end_offset=end,
        high_watermark=end,
        last_stable_offset=end,
        cleaner_checkpoint=None,
        config=config,
        consumed=consumed,
    )


def gone(plan: RetentionPlan) -> list[int]:
    return [each.base_offset for each in plan.expired]


def waits_of(plan: RetentionPlan) -> Blocker:
    """The group guard's blocker."""
    (found,) = {each for each in plan.blockers if each.code is Code.GROUP_GUARD}
    return found


def read_to(g: int | None, h: int | None = 1000) -> Consumed:
    return Consumed(committed={"g": g, "h": h})


FOUR = [(50, 1), (50, 2), (50, 3), (50, 4)]


@pytest.mark.parametrize(
    ("consumed", "expected"),
    [
        (read_to(1000), [0, 10, 20, 30]),
        (read_to(20), [0, 10]),
        (read_to(19), [0]),
        (read_to(0), []),
        (read_to(None), []),
        (read_to(1000, 10), [0]),
        (Consumed(committed={"g": 1000}), []),
        (Consumed(committed={"g": 1000}, unknown={"h": "is loading"}), []),
        (Consumed(), []),
    ],
)
def test_a_segment_stays_that_a_group_has_not_consumed(
    consumed: Consumed, expected: list[int]
) -> None:
    plan = plan_retention(view(FOUR, consumed), now_ms=1_000)
    assert gone(plan) == expected
    assert plan.losses == ()
    assert plan.roll == (len(expected) == 4)
    if len(expected) < 4:
        blocker = waits_of(plan)
        assert blocker.until_ms is None


def test_a_blocker_names_the_group_that_is_furthest_behind() -> None:
    def text(consumed: Consumed) -> str:
        return waits_of(plan_retention(view(FOUR, consumed), now_ms=1_000)).text

    assert text(read_to(5, 7)).startswith("group g has committed offset 5 (lag 35), and it has")
    assert text(read_to(5, 3)).startswith("group h has committed offset 3 (lag 37)")
    assert "group g has committed no offset for this partition" in text(read_to(None, 3))
    loading = Consumed(committed={"g": None}, unknown={"h": "its coordinator is still loading"})
    assert "group h: its coordinator is still loading, and" in text(loading)
    assert text(read_to(5)).endswith("offsets up to 9; no limit ends the wait")


def test_the_limit_of_time_ends_the_wait_and_the_loss_is_exact() -> None:
    config = replace(CONFIG, cordwood_retention_groups_max_ms=500)
    log = view(FOUR, read_to(15, 1000), config)
    assert gone(plan_retention(log, now_ms=502)) == [0]
    assert waits_of(plan_retention(log, now_ms=502)).until_ms == 503
    plan = plan_retention(log, now_ms=503)
    assert gone(plan) == [0, 10]
    assert plan.losses == (GroupLoss(group="g", first_offset=15, last_offset=19, setting=MAX_MS),)
    never = plan_retention(view(FOUR, Consumed(), config, start=3), now_ms=503)
    assert [(each.first_offset, each.last_offset) for each in never.losses] == [(3, 19), (3, 19)]
    assert all("may have lost offsets 3 to 19" in each.text for each in never.losses)


def test_the_limit_of_bytes_ends_the_wait_of_the_oldest_only() -> None:
    config = replace(CONFIG, cordwood_retention_groups_max_bytes=100)
    plan = plan_retention(view(FOUR, read_to(0), config), now_ms=1_000)
    assert gone(plan) == [0, 10]
    assert plan.losses == (GroupLoss(group="g", first_offset=0, last_offset=19, setting=MAX_BYTES),)
    assert "50 bytes are missing to" in waits_of(plan).text


def test_size_waits_too_but_not_what_lies_below_the_log_start_offset() -> None:
    config = replace(CONFIG, retention_ms=-1, retention_bytes=0)
    assert gone(plan_retention(view(FOUR, read_to(12), config), now_ms=1)) == [0]
    deleted = view(FOUR, read_to(None, None), config, start=20)
    plan = plan_retention(deleted, now_ms=1)
    assert gone(plan) == [0, 10]
    assert plan.losses == (), "a client has deleted these records"


POSITIONS = st.one_of(st.none(), st.integers(0, 60))
VIEWS = st.builds(
    view,
    st.lists(st.tuples(st.integers(0, 50), st.integers(0, 200)), min_size=1, max_size=6),
    st.builds(
        Consumed,
        committed=st.dictionaries(st.sampled_from(["g", "h"]), POSITIONS),
        unknown=st.just({}),
    ),
    st.builds(
        LogConfig,
        retention_ms=st.sampled_from([-1, 0, 50, 150]),
        retention_bytes=st.sampled_from([-1, 0, 60]),
        cordwood_retention_groups=st.sampled_from([("g",), ("g", "h")]),
        cordwood_retention_groups_max_ms=st.sampled_from([-1, 0, 80, 300]),
        cordwood_retention_groups_max_bytes=st.sampled_from([-1, 0, 100]),
    ),
    start=st.integers(0, 9),
)
TIMES = st.integers(0, 600)


@given(VIEWS, TIMES)
def test_no_unread_segment_goes_before_a_limit_and_behind_it_all_is_as_without_groups(
    log: LogView, now_ms: int
) -> None:
    config = log.config
    plan = plan_retention(log, now_ms=now_ms)
    free = plan_retention(
        replace(log, config=replace(config, cordwood_retention_groups=())), now_ms=now_ms
    )
    assert gone(plan) == gone(free)[: len(plan.expired)]

    def waits(number: int) -> bool:
        segment, end = log.segments[number], log.next_base(number)
        behind = [log.consumed.position(group) for group in config.cordwood_retention_groups]
        if all(each.committed is not None and each.committed >= end for each in behind):
            return False
        limit_ms, limit = (
            config.cordwood_retention_groups_max_ms,
            config.cordwood_retention_groups_max_bytes,
        )
        is_old = limit_ms >= 0 and now_ms - age_from_ms(segment, config) > limit_ms
        left = sum(each.size_bytes for each in log.segments[number + 1 :])
        return not is_old and not (limit >= 0 and left >= limit)

    assert not any(waits(number) for number in range(len(plan.expired)))
    if len(plan.expired) < len(free.expired):
        assert waits(len(plan.expired)), "else it goes as without groups"
    lost = {}
    for group in config.cordwood_retention_groups:
        committed = log.consumed.position(group).committed
        first = max(log.log_start_offset, 0 if committed is None else committed)
        if first < plan.log_start_offset:
            lost[group] = (first, plan.log_start_offset - 1)
    assert {each.group: (each.first_offset, each.last_offset) for each in plan.losses} == lost


@given(VIEWS, TIMES)
def test_each_segment_goes_at_the_moment_that_is_predicted(log: LogView, now_ms: int) -> None:
    fates = segment_fates(log, plan_retention(log, now_ms=now_ms), now_ms=now_ms)
    moments = [fate.goes_ms for fate in fates]
    for number, moment in enumerate(moments):
        assert moment is not None or all(each is None for each in moments[number:])
        if moment is None:
            assert len(plan_retention(log, now_ms=10_000).expired) <= number
        else:
            assert len(plan_retention(log, now_ms=max(moment, now_ms)).expired) > number
        if moment is not None and moment > now_ms:
            assert len(plan_retention(log, now_ms=moment - 1).expired) <= number
            assert fates[number].blockers


@given(VIEWS)
def test_two_checks_lose_what_one_would_in_ranges_that_follow_each_other(log: LogView) -> None:
    first = plan_retention(log, now_ms=200)
    if first.roll:
        return
    second = plan_retention(after_retention(log, first, now_ms=200), now_ms=600)
    whole = {each.group: each for each in plan_retention(log, now_ms=600).losses}
    losses = GroupLosses()
    for plan in (first, second):
        losses.note(log.topic_partition, plan.losses, 0)
    counted = losses.offsets()
    assert counted == {("t", group): each.offsets for group, each in whole.items()}


# ---- limits of several logs


def shared(log: LogView) -> SharedLog:
    return SharedLog(view=log, log_dir="/logs")


def test_a_topic_waits_and_a_full_directory_takes_unread_segments_last() -> None:
    old = replace(CONFIG, retention_ms=-1, cordwood_retention_topic_bytes=0)
    unread = view(FOUR, read_to(0), old, name="t-0")
    read = view([(50, 11), (50, 12)], read_to(1000), old, name="t-1")
    logs = [shared(unread), shared(read)]
    plans = plan_shared_retention(logs, DirectoryLimits(), free_bytes={}, now_ms=1)
    assert [gone(plan) for plan in plans] == [[], [0]]
    for limits, setting in (
        (DirectoryLimits(size_bytes_max=200), "cordwood.log.dir.retention.bytes"),
        (DirectoryLimits(free_bytes_min=100), "cordwood.log.dir.free.bytes.min"),
    ):
        plans = plan_shared_retention(logs, limits, free_bytes={"/logs": 0}, now_ms=1)
        assert [gone(plan) for plan in plans] == [[0], [0]]
        assert plans[0].losses == (
            GroupLoss(group="g", first_offset=0, last_offset=9, setting=setting),
        )
        assert plans[1].losses == ()


# ---- running logs


def test_a_running_log_waits_and_notes_what_a_limit_takes(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    config = replace(
        CONFIG,
        segment_bytes=1 << 20,
        cordwood_retention_groups=("g",),
        cordwood_retention_groups_max_ms=1_000,
    )
    logs = RunningLogs(tmp_path, {"t": config})
    log, groups = logs.log(), logs.cleaning.groups
    for _ in range(3):
        logs.fill(log, [[(b"k", b"v")] * 10])
        logs.clock.advance(10)
    logs.clock.advance(500)
    assert retention_pass(logs.cleaning) == 0, "nobody knows how far the group is"
    position = 10
    groups.source = lambda wanted: {
        partition: Consumed(committed={"g": position}) for partition in wanted
    }
    assert retention_pass(logs.cleaning) == 1
    assert log.log_start_offset == 10
    assert groups.losses.of(log.topic_partition) == ()
    position = 13
    logs.clock.advance(500)
    caplog.clear()
    assert retention_pass(logs.cleaning) == 2
    assert (
        "t-0: group g lost offsets 13 to 29 (both inclusive), at most 17 records, by "
        "cordwood.retention.groups.max.ms" in caplog.text
    )
    (noted,) = groups.losses.of(log.topic_partition)
    assert (noted.loss.first_offset, noted.loss.last_offset) == (13, 29)
    assert noted.at_ms == logs.clock.now_ms()
    assert groups.losses.offsets() == {("t", "g"): 17}


# ---- stopped logs


def offsets_log(group: str, offset: int) -> LogBuilder:
    log = LogBuilder("__consumer_offsets-7")
    key = encode_offset_commit_key(OffsetCommitKey(group, "t", 0))
    log.batch(
        [(key, encode_offset_commit_value(OffsetCommitValue(offset, -1, "", 1, -1, ZERO_UUID)))]
    )
    return log


def topic_log() -> LogBuilder:
    log = LogBuilder("t-0")
    for _ in range(3):
        log.batch([(b"k%d" % n, b"v") for n in range(10)])
        log.roll()
    log.put(b"k", b"last")
    return log


SETTINGS = ["--set", "t:retention.ms=1", "--set", "t:cordwood.retention.groups=g", "--defaults"]


def test_clean_waits_for_a_group_of_a_stopped_broker(tmp_path: Path) -> None:
    root = write_log_dir(tmp_path / "logs", [topic_log(), offsets_log("g", 25)])
    (report,) = [
        each
        for each in run_clean([root], *SETTINGS, "--retention-only", now_ms=NOW_MS * 2).report[
            "partitions"
        ]
        if each["topic"] == "t"
    ]
    assert [each["base_offset"] for each in report["expired"]] == [0, 10]
    assert report["log_start_offset"] == 20
    assert report["losses"] == []
    assert "it waits for a group: group g has committed offset 25 (lag 6)" in report["reason"]


def test_clean_keeps_all_where_the_group_is_not_known_and_a_limit_takes_it(tmp_path: Path) -> None:
    root = write_log_dir(tmp_path / "logs", [topic_log()])
    options = [*SETTINGS, "--retention-only"]
    (report,) = run_clean([root], *options, now_ms=NOW_MS * 2).report["partitions"]
    assert report["expired"] == []
    assert "no partition of __consumer_offsets is in the log directories" in report["warnings"][0]
    limit = ["--set", "t:cordwood.retention.groups.max.ms=5"]
    dry = run_clean([root], *options, *limit, "--dry-run", now_ms=NOW_MS * 2).report
    (planned,) = dry["partitions"]
    (report,) = run_clean([root], *options, *limit, now_ms=NOW_MS * 2).report["partitions"]
    assert planned["losses"] == report["losses"]
    (loss,) = report["losses"]
    assert (loss["group"], loss["first_offset"], loss["last_offset"]) == ("g", 0, 30)
    assert any("group g may have lost offsets 0 to 30" in each for each in report["warnings"])
