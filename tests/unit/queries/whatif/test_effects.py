"""Predictions from views: what a compaction takes, the next days, what groups would lose."""

from __future__ import annotations

from dataclasses import replace

from cordwood.cleanup.plan.check_plan import plan_check_alone
from cordwood.cleanup.plan.cleaner_settings import CleanerSettings
from cordwood.cleanup.rules.log_view import LogView, SegmentView
from cordwood.cleanup.rules.shared_retention import SharedLog
from cordwood.configs.levels import METADATA_LOG, Level, Origin
from cordwood.configs.log_config import LogConfig
from cordwood.configs.static_topics import property_name
from cordwood.queries.whatif.comparison import (
    NOW,
    THEN,
    BothSettings,
    Space,
    overruled_by_topics,
    plan_both,
)
from cordwood.queries.whatif.effects import (
    Outcome,
    append_rate,
    changed_settings,
    cost_of,
    forecast,
    kafka_passes,
    settled,
    unread,
)
from support.aged_view import DAILY, aged_view
from support.log_builder import NOW_MS

DAY_MS = 86_400_000


def settled_alone(view: LogView) -> Outcome | None:
    return settled(view, plan_check_alone(view, now_ms=NOW_MS), now_ms=NOW_MS)


def test_what_retention_removes_is_known_without_a_record() -> None:
    outcome = settled_alone(aged_view(LogConfig(retention_ms=DAY_MS + 1)))
    assert outcome is not None
    assert (outcome.segments, outcome.bytes, outcome.bytes_freed) == (2, 2000, 2000)
    assert (outcome.segments_gone, outcome.offsets_gone, outcome.log_start_offset) == (2, 20, 20)


def test_a_compaction_that_is_due_has_to_be_measured() -> None:
    compacted = LogConfig(cleanup_policy=frozenset({"compact"}))
    assert settled_alone(aged_view(compacted)) is None
    clean = replace(aged_view(compacted), cleaner_checkpoint=30)
    assert settled_alone(clean) is not None


def test_settings_that_differ_have_kafkas_names() -> None:
    then = LogConfig(retention_ms=1, cleanup_policy=frozenset({"delete", "compact"}))
    assert changed_settings(LogConfig(), then) == {
        "cleanup.policy": ("delete", "compact,delete"),
        "retention.ms": ("604800000", "1"),
    }


def test_kafka_reads_a_log_again_for_keys_beyond_its_offset_map() -> None:
    """128 MiB are 5,592,405 slots of 24 bytes; 0.9 of them are used."""
    assert kafka_passes(0, CleanerSettings()) == 0
    assert kafka_passes(5_033_164, CleanerSettings()) == 1
    assert kafka_passes(5_033_165, CleanerSettings()) == 2
    assert kafka_passes(5_033_165, CleanerSettings(dedupe_buffer_size=256 << 20)) == 1
    assert kafka_passes(5_033_162, CleanerSettings(threads=2)) == 2


def test_more_keys_take_more_memory_and_more_bytes_more_time() -> None:
    few = cost_of(10 << 20, 1000, cores=2, cleaner=CleanerSettings())
    many = cost_of(10 << 30, 30_000_000, cores=2, cleaner=CleanerSettings())
    assert few.memory_bytes < many.memory_bytes
    # At most half of the slots of 32 bytes are taken.
    assert many.memory_bytes - few.memory_bytes > 30_000_000 * 64
    assert few.seconds_least < few.seconds_most < many.seconds_least < many.seconds_most


def test_a_log_that_grows_evenly_is_forecast_to_stay_as_large_as_its_retention() -> None:
    config = LogConfig(retention_ms=4 * DAY_MS, segment_bytes=DAILY)
    assert append_rate(aged_view(config)) == DAILY / DAY_MS
    sizes = forecast(aged_view(config), now_ms=NOW_MS, days=30)
    assert sizes is not None
    # A segment goes as a whole: there are four days and up to one segment more.
    assert sizes[0] == 5 * DAILY
    assert all(4 * DAILY <= size <= 5 * DAILY for size in sizes[4:]), sizes


def test_without_a_bound_a_log_grows_by_its_rate() -> None:
    sizes = forecast(aged_view(LogConfig(retention_ms=-1)), now_ms=NOW_MS, days=3)
    assert sizes == [5 * DAILY, 6 * DAILY, 7 * DAILY]


def test_what_says_nothing_about_time_or_is_compacted_is_not_forecast() -> None:
    compacted = LogConfig(cleanup_policy=frozenset({"compact"}))
    assert forecast(aged_view(compacted), now_ms=NOW_MS, days=3) is None
    assert forecast(aged_view(LogConfig(), days=1), now_ms=NOW_MS, days=3) is None


def test_a_history_that_is_short_for_the_days_ahead_is_not_forecast() -> None:
    view = aged_view(LogConfig(retention_ms=-1))
    three_days = replace(view, segments=view.segments[-4:])
    assert forecast(three_days, now_ms=NOW_MS, days=300) is not None
    assert forecast(three_days, now_ms=NOW_MS, days=301) is None
    last = view.segments[-1]
    assert isinstance(last, SegmentView)
    seconds = replace(last, base_offset=0, largest_record_timestamp=NOW_MS - 5_000)
    assert forecast(replace(view, segments=(seconds, last)), now_ms=NOW_MS, days=7) is None


def test_a_group_loses_what_lies_between_its_offset_and_the_new_log_start() -> None:
    committed = {("a", "t-0"): 5, ("b", "t-0"): 25, ("c", "t-0"): 1, ("a", "t-1"): 0}
    found = unread(committed, {"t-0": (3, 20)})
    assert [(each.group, each.committed, each.lost) for each in found] == [
        ("a", 5, 15),
        ("c", 1, 17),
    ]


def test_the_next_day_takes_what_a_check_a_day_later_takes_of_what_the_first_one_leaves() -> None:
    view = aged_view(LogConfig(retention_ms=4 * DAY_MS + 1), days=8)
    then_view = replace(view, config=LogConfig(retention_ms=-1, retention_bytes=2 * DAILY))
    shared = SharedLog(view=view, log_dir="/data", is_deletable=True, may_roll=True)
    both = BothSettings(log=shared, then_view=then_view)
    (planned,) = plan_both([both], Space(), now_ms=NOW_MS)
    for check, taken in ((planned.now, planned.next_24h[NOW]), (planned.then, 0)):
        later = plan_check_alone(check.after, now_ms=NOW_MS + DAY_MS)
        assert taken == later.plan.bytes_freed
    assert planned.next_24h == {NOW: DAILY, THEN: 0}, "a limit of size takes what it takes at once"


def test_what_a_topic_has_of_its_own_overrules_a_change_of_the_broker() -> None:
    """At the level of the topic, or by a property of the broker that is for the topic."""
    of_topic = Origin(value="1", level=Level.TOPIC, source=METADATA_LOG, key="retention.ms")
    of_broker = Origin(value="7", level=Level.STATIC_BROKER, source="f", key="log.retention.hours")
    idle = "cordwood.segment.roll.idle"
    property_ = Origin(
        value="true", level=Level.STATIC_BROKER, source="f", key=property_name("a", idle)
    )
    origins = {"a": {"retention.ms": of_topic, idle: property_}, "b": {"retention.ms": of_broker}}
    found = overruled_by_topics(origins, {"log.retention.ms", idle})
    assert [(each.topic, each.setting, each.value) for each in found] == [
        ("a", "retention.ms", "1"),
        ("a", idle, "true"),
    ]
    assert overruled_by_topics(origins, {"log.segment.bytes"}) == []
