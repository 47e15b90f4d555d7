"""A running log explained: the reason that is given is what is in the way, the moment is kept.

In each case the clock is moved to just before the moment that was said, where a check changes
nothing, and then to that moment, where it does.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from cordwood.cleanup.plan.cleaner_settings import CleanerSettings
from cordwood.cleanup.rules.blockers import Code
from cordwood.cleanup.rules.group_guard import Consumed
from cordwood.cleanup.schedule.holds import add_hold
from cordwood.configs.log_config import LogConfig
from cordwood.format.record import Record
from cordwood.format.record_batch import build_batch
from cordwood.model.hold import Hold
from cordwood.queries.explain.answer import Section
from support.explained_log import HOUR_MS, NAME, PARTITION, TEN, ExplainedLog

DELETE = LogConfig(
    cleanup_policy=frozenset({"delete"}),
    segment_bytes=1 << 20,
    retention_ms=10 * HOUR_MS,
    retention_bytes=-1,
)
COMPACT = replace(DELETE, cleanup_policy=frozenset({"compact"}), min_cleanable_dirty_ratio=0.5)


Make = Callable[..., ExplainedLog]


@pytest.fixture
def make(tmp_path: Path) -> Make:
    def made(config: LogConfig, settings: CleanerSettings | None = None) -> ExplainedLog:
        return ExplainedLog(tmp_path, config, settings or CleanerSettings())

    return made


# ---- retention


def test_a_young_segment_goes_after_retention_ms(make: Make) -> None:
    bench = make(DELETE)
    bench.segment(HOUR_MS)
    bench.segment(0)
    assert bench.codes() == [Code.TIME]
    bench.require_gone_at(bench.explain().fates[0].goes_ms)


def test_the_active_segment_goes_too_when_all_have_expired(make: Make) -> None:
    bench = make(DELETE)
    bench.logs.put(bench.log, (b"a", b"v"))
    explanation = bench.explain()
    assert explanation.section(explanation.fates[0]) == Section.ACTIVE
    assert bench.codes() == [Code.TIME]
    bench.require_gone_at(explanation.fates[0].goes_ms)


def test_a_future_timestamp_pins_a_segment_and_those_behind_it(make: Make) -> None:
    bench = make(replace(DELETE, message_timestamp_after_max_ms=10 * HOUR_MS))
    bench.segment(-5 * HOUR_MS)
    bench.segment(20 * HOUR_MS)
    bench.segment(0)
    assert bench.codes(0) == [Code.FUTURE_TIMESTAMP]
    assert bench.codes(1) == [Code.OLDER_SEGMENT]
    first, second, *_ = bench.explain().fates
    assert first.goes_ms == second.goes_ms
    bench.require_gone_at(second.goes_ms, second.segment.base_offset)


def test_retention_bytes_is_for_a_partition_and_says_how_much_is_missing(make: Make) -> None:
    bench = make(replace(DELETE, retention_ms=-1))
    size = bench.segment(0).size_bytes
    bench.log.update_config(replace(DELETE, retention_ms=-1, retention_bytes=3 * size))
    bench.segment(0)
    bench.segment(0)
    assert bench.codes() == [Code.SIZE]
    assert f"when {size} more are appended" in bench.explain().fates[0].blockers[0].text
    bench.check()
    assert 0 in bench.bases
    bench.segment(0)
    assert bench.explain().fates[0].goes_now
    bench.check()
    assert bench.bases[0] == len(TEN)


def test_nothing_at_or_above_the_high_watermark_goes(make: Make) -> None:
    bench = make(DELETE)
    bench.segment(20 * HOUR_MS)
    bench.log.update_high_watermark(5)
    assert bench.codes() == [Code.HIGH_WATERMARK]
    assert bench.explain().fates[0].goes_ms is None
    bench.check()
    assert 0 in bench.bases
    bench.log.update_high_watermark(len(TEN))
    assert bench.explain().fates[0].goes_now
    bench.check()
    assert 0 not in bench.bases


def test_what_lies_below_the_log_start_offset_goes_under_any_policy(make: Make) -> None:
    bench = make(COMPACT)
    bench.segment(0)
    bench.segment(0)
    assert Code.POLICY in bench.codes()
    bench.log.maybe_increment_log_start_offset(15, "test")
    assert [fate.rule for fate in bench.explain().fates] == ["log start offset", None, None]


def test_without_a_limit_a_segment_stays(make: Make) -> None:
    bench = make(replace(DELETE, retention_ms=-1))
    bench.segment(1000 * HOUR_MS)
    assert bench.codes() == [Code.NO_LIMIT]
    assert bench.explain().fates[0].goes_ms is None


def test_a_hold_stops_everything_until_it_is_released(make: Make) -> None:
    bench = make(DELETE)
    bench.segment(20 * HOUR_MS)
    holds = bench.logs.manager.context.holds
    hold = Hold(id="case-7", topic="t", partition=0, reason="", by="", created_ms=0)
    add_hold(bench.logs.cleaning, hold)
    assert bench.codes() == [Code.HOLD]
    assert "case-7" in bench.explain().fates[0].blockers[0].text
    assert bench.explain().fates[0].goes_ms is None
    bench.check()
    assert 0 in bench.bases
    holds.release("case-7", by="ada")
    assert bench.explain().fates[0].goes_now
    bench.check()
    assert 0 not in bench.bases


def test_a_group_is_waited_for_until_it_commits_or_the_limit_takes_it(make: Make) -> None:
    config = replace(
        DELETE,
        cordwood_retention_groups=("readers",),
        cordwood_retention_groups_max_ms=30 * HOUR_MS,
    )
    bench = make(config)
    bench.segment(20 * HOUR_MS)
    bench.segment(15 * HOUR_MS)
    bench.segment(0)
    position = 5
    bench.logs.cleaning.groups.source = lambda wanted: {
        partition: Consumed(committed={"readers": position}) for partition in wanted
    }
    assert bench.codes(0) == bench.codes(1) == [Code.GROUP_GUARD]
    assert bench.codes(2) == [Code.TIME, Code.GROUP_GUARD]
    first, second, *_ = bench.explain().fates
    (blocker,) = first.blockers
    assert (blocker.offset, blocker.setting) == (5, "cordwood.retention.groups")
    assert "group readers has committed offset 5 (lag 25)" in blocker.text
    assert first.goes_ms == blocker.until_ms == bench.now_ms + 10 * HOUR_MS + 1
    bench.check()
    assert bench.bases[0] == 0
    position = 10
    assert bench.explain().fates[0].goes_now
    bench.check()
    assert bench.bases[0] == 10
    bench.require_gone_at(second.goes_ms, second.segment.base_offset)
    answer = bench.explain().answer()
    assert answer.groups[0].committed_offset == 10
    (loss,) = answer.losses
    assert (loss.first_offset, loss.last_offset) == (10, 19)


def test_a_limit_of_the_topic_is_named_as_the_rule(make: Make) -> None:
    bench = make(replace(DELETE, retention_ms=-1))
    size = bench.segment(3 * HOUR_MS).size_bytes
    bench.segment(2 * HOUR_MS)
    limited = replace(DELETE, retention_ms=-1, cordwood_retention_topic_bytes=size)
    bench.log.update_config(limited)
    first, second, _ = bench.explain().fates
    assert (first.rule, first.goes_now, second.goes_now) == ("topic size", True, False)
    assert first.text == f"cordwood.retention.topic.bytes {size} breach of topic t"
    assert bench.explain().answer().deletable_bytes == size
    bench.check()
    assert bench.bases[0] == second.segment.base_offset


# ---- compaction


def test_an_idle_active_segment_is_compacted_when_it_has_been_rolled(make: Make) -> None:
    bench = make(replace(COMPACT, segment_ms=HOUR_MS, cordwood_segment_roll_idle=True))
    bench.logs.put(bench.log, (b"a", b"v"))
    (blocker, *_) = bench.explain().blockers(bench.explain().fates[0])
    assert (blocker.code, blocker.setting) == (Code.ACTIVE_SEGMENT, "cordwood.segment.roll.idle")
    assert blocker.until_ms == bench.now_ms + HOUR_MS + 1
    bench.logs.clock.advance(HOUR_MS)
    bench.check()
    assert bench.bases == [0]
    bench.logs.clock.advance(1)
    bench.check()
    assert bench.bases == [0, 1]


def test_the_sections_of_a_compacted_log(make: Make) -> None:
    bench = make(replace(COMPACT, min_compaction_lag_ms=HOUR_MS))
    for age_ms in (3 * HOUR_MS, 2 * HOUR_MS, 0):
        bench.segment(age_ms)
    bench.logs.set_checkpoint(10, NAME)
    explanation = bench.explain()
    sections = [explanation.section(fate) for fate in explanation.fates]
    assert sections == [Section.CLEAN, Section.DIRTY, Section.UNCLEANABLE, Section.ACTIVE]
    assert [bench.codes(n)[0] for n in (0, 2, 3)] == [
        Code.NOTHING_DIRTY,
        Code.MIN_LAG,
        Code.ACTIVE_SEGMENT,
    ]


def test_the_minimum_lag_ends_when_it_says(make: Make) -> None:
    bench = make(replace(COMPACT, min_compaction_lag_ms=HOUR_MS))
    bench.segment(HOUR_MS // 2)
    bench.segment(0)
    explanation = bench.explain()
    assert [each.code for each in explanation.compaction_blockers()] == [Code.MIN_LAG]
    assert explanation.compaction is not None
    bench.require_compacted_at(explanation.compaction.due_ms)


def test_the_dirty_ratio_holds_until_the_maximum_lag(make: Make) -> None:
    bench = make(replace(COMPACT, max_compaction_lag_ms=HOUR_MS))
    for age_ms in (3 * HOUR_MS, 3 * HOUR_MS, HOUR_MS // 4):
        bench.segment(age_ms)
    bench.logs.set_checkpoint(20, NAME)
    explanation = bench.explain()
    assert Code.DIRTY_RATIO in [each.code for each in explanation.compaction_blockers()]
    assert explanation.compaction is not None
    bench.require_compacted_at(explanation.compaction.due_ms)


def test_all_but_the_active_segment_is_clean(make: Make) -> None:
    bench = make(COMPACT)
    bench.segment(0)
    bench.check()
    explanation = bench.explain()
    assert explanation.compaction_blockers()[0].code is Code.NOTHING_DIRTY
    assert explanation.compaction is not None
    assert explanation.compaction.due_ms is None


def test_an_open_transaction_is_named(make: Make) -> None:
    bench = make(COMPACT)
    batch = build_batch(
        [Record(0, bench.now_ms, b"k", b"v")],
        base_offset=0,
        producer_id=77,
        producer_epoch=3,
        base_sequence=0,
        is_transactional=True,
    )
    guard = bench.log.maybe_start_verification(77, 0, 3)
    bench.log.append_as_leader(batch, verification_guard=guard)
    bench.segment(0)
    explanation = bench.explain()
    assert explanation.compaction_blockers()[0].code is Code.LAST_STABLE_OFFSET
    (transaction,) = explanation.facts.transactions
    assert (transaction.producer_id, transaction.start_offset) == (77, 0)
    bench.check()
    assert bench.logs.checkpoint(NAME) is None


def test_a_damaged_log_is_uncleanable_until_its_retry(make: Make) -> None:
    bench = make(COMPACT)
    path = bench.segment(0).path
    sound = path.read_bytes()
    path.write_bytes(sound[:100] + bytes([sound[100] ^ 1]) + sound[101:])
    bench.check()
    (blocker, *_) = bench.explain().compaction_blockers()
    assert blocker.code is Code.UNCLEANABLE
    assert str(path) in blocker.text
    path.write_bytes(sound)
    bench.require_compacted_at(blocker.until_ms)


def test_a_paused_cleaning_is_said(make: Make) -> None:
    bench = make(COMPACT)
    bench.segment(0)
    bench.logs.cleaning.states.abort_and_pause(PARTITION)
    assert bench.explain().compaction_blockers()[0].code is Code.PAUSED
    assert bench.explain().cleaned_by_ms is None


def test_a_throttled_cleaning_takes_its_time(make: Make) -> None:
    bench = make(COMPACT, CleanerSettings(io_max_bytes_per_second=100.0))
    size = bench.segment(0).size_bytes
    (blocker, *_) = bench.explain().compaction_blockers()[-1:]
    assert blocker.code is Code.THROTTLED
    assert blocker.until_ms == bench.now_ms + -(-2 * size * 1000 // 100)
    cleaned_by_ms = bench.explain().cleaned_by_ms
    assert cleaned_by_ms == blocker.until_ms + bench.settings.backoff_ms


def test_a_cleaner_that_is_off_is_said(make: Make) -> None:
    bench = make(COMPACT, CleanerSettings(enable=False))
    bench.segment(0)
    assert bench.explain().compaction_blockers()[0].code is Code.CLEANER_OFF
    assert bench.explain().cleaned_by_ms is None
