"""Forecast of a record's removal, checked on the running log under the moved clock."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from cordwood.cleanup.access.capture import capture
from cordwood.cleanup.plan.cleaner_settings import CleanerSettings
from cordwood.cleanup.rules.versions import VersionRule
from cordwood.configs.log_config import LogConfig
from cordwood.queries.explain.answer import RecordState
from cordwood.queries.explain.record_fate import (
    RecordFate,
    key_fates,
    record_fate,
    winners,
)
from cordwood.queries.explain.record_search import FoundRecord, RecordSearch
from support.explained_log import HOUR_MS, ExplainedLog
from support.running_logs import read_records

COMPACT = LogConfig(
    cleanup_policy=frozenset({"compact"}),
    segment_bytes=1 << 20,
    min_cleanable_dirty_ratio=0.5,
    delete_retention_ms=HOUR_MS,
    retention_ms=10 * HOUR_MS,
)


def explained(root: Path, config: LogConfig) -> ExplainedLog:
    return ExplainedLog(root, config, CleanerSettings())


def roll(log: ExplainedLog) -> None:
    log.log.roll()
    log.log.update_high_watermark(log.log.log_end_offset)


def search(log: ExplainedLog) -> RecordSearch:
    captured = capture(log.log)
    return RecordSearch(captured.sources, captured.aborted_above_start)


def fates(log: ExplainedLog, key: bytes) -> list[RecordFate]:
    return key_fates(log.explain(), list(search(log).with_key(key)))


def offsets(log: ExplainedLog) -> list[int]:
    return [record.offset for record in read_records(log.log)]


def states(found: Sequence[RecordFate]) -> list[RecordState]:
    return [each.state for each in found]


def test_a_superseded_record_goes_with_the_next_compaction(tmp_path: Path) -> None:
    log = explained(tmp_path, COMPACT)
    for value in (b"1", b"2"):
        log.logs.put(log.log, (b"k", value))
        roll(log)
    older, newest = fates(log, b"k")
    assert (older.state, older.superseded_by) == (RecordState.SUPERSEDED, 1)
    assert older.gone_by_ms == log.now_ms + log.settings.backoff_ms + 60_000
    assert (newest.state, newest.gone_by_ms) == (RecordState.NEWEST, None)
    log.check()
    assert offsets(log) == [1]


def test_a_lower_version_goes_with_the_next_compaction_though_it_is_newer(tmp_path: Path) -> None:
    by_time = replace(COMPACT, cordwood_compaction_strategy="timestamp")
    log = explained(tmp_path, by_time)
    for age_ms in (1, 3, 2):
        log.logs.put(log.log, (b"k", b"v"), timestamp=log.now_ms - age_ms)
    roll(log)
    found = list(search(log).with_key(b"k"))
    assert winners(found, VersionRule.of(by_time), 0) == [[], [2, 0], [0]]
    fates_of = fates(log, b"k")
    assert states(fates_of) == [
        RecordState.NEWEST,
        RecordState.SUPERSEDED,
        RecordState.SUPERSEDED,
    ]
    assert "highest version" in fates_of[0].text
    assert [each.superseded_by for each in fates_of] == [None, 0, 0]
    assert fates_of[2].gone_by_ms is not None
    log.check()
    assert offsets(log) == [0]


def test_a_version_below_the_log_start_goes_and_beats_nothing(tmp_path: Path) -> None:
    by_time = replace(
        COMPACT, cordwood_compaction_strategy="timestamp", min_cleanable_dirty_ratio=0.2
    )
    log = explained(tmp_path, by_time)
    for age_ms in (1, 3, 2):
        log.logs.put(log.log, (b"k", b"v"), timestamp=log.now_ms - age_ms)
    roll(log)
    log.log.maybe_increment_log_start_offset(1, "a test")
    below, beaten, highest = fates(log, b"k")
    assert states([below, beaten, highest]) == [
        RecordState.BELOW_START,
        RecordState.SUPERSEDED,
        RecordState.NEWEST,
    ]
    assert below.gone_by_ms == beaten.gone_by_ms == log.now_ms + log.settings.backoff_ms + 60_000
    assert (beaten.superseded_by, highest.gone_by_ms) == (2, None)
    log.check()
    assert [search(log).at(offset) is not None for offset in range(3)] == [False, False, True]


def test_a_version_that_retention_removes_first_supersedes_nothing(tmp_path: Path) -> None:
    by_time = replace(
        COMPACT,
        cleanup_policy=frozenset({"compact", "delete"}),
        cordwood_compaction_strategy="timestamp",
        min_compaction_lag_ms=9 * HOUR_MS,
        max_compaction_lag_ms=20 * HOUR_MS,
    )
    log = explained(tmp_path, by_time)
    for key, age_ms in ((b"k", 9 * HOUR_MS), (b"o", HOUR_MS), (b"k", 10 * HOUR_MS)):
        log.logs.put(log.log, (key, b"v"), timestamp=log.now_ms - age_ms)
        if key == b"k":
            roll(log)
    beaten = fates(log, b"k")[1]
    assert (beaten.state, beaten.superseded_by) == (RecordState.SUPERSEDED, 0)
    assert "retention may remove that one before" in beaten.text
    assert beaten.gone_by_ms == log.explain().gone_by_ms(log.explain().fates[1])
    log.require_gone_at(log.now_ms + HOUR_MS + 1)
    assert search(log).at(2) is not None


@pytest.mark.parametrize("idle", [False, True])
def test_a_tombstone_that_has_beaten_a_newer_record_outlasts_it(tmp_path: Path, idle: bool) -> None:
    config = replace(
        COMPACT, cordwood_compaction_strategy="timestamp", cordwood_tombstone_cleanup=idle
    )
    log = explained(tmp_path, config)
    log.logs.put(log.log, (b"k", None), timestamp=log.now_ms + HOUR_MS)
    roll(log)
    log.check()
    log.logs.put(log.log, (b"k", b"late"))
    log.logs.put(log.log, (b"other", b"v" * 500))
    roll(log)
    log.logs.clock.advance(HOUR_MS)
    tombstone, late = fates(log, b"k")
    assert (tombstone.state, late.state) == (RecordState.TOMBSTONE, RecordState.SUPERSEDED)
    log.check()
    if idle:  # it is due again at once
        assert tombstone.gone_by_ms == log.now_ms + log.settings.backoff_ms + 60_000
        assert offsets(log) == [2]
    else:
        assert tombstone.gone_by_ms is None
        assert "beaten the newer record at 1" in tombstone.text
        assert offsets(log) == [0, 2]


def test_a_tombstone_below_the_log_start_waits_for_its_dirty_segment(tmp_path: Path) -> None:
    idle = replace(COMPACT, cordwood_tombstone_cleanup=True, min_cleanable_dirty_ratio=0.9)
    log = explained(tmp_path, idle)
    for record in ((b"k", None), (b"o", b"v")):
        log.logs.put(log.log, record)
    roll(log)
    log.log.maybe_increment_log_start_offset(1, "a test")
    (tombstone,) = fates(log, b"k")
    assert (tombstone.state, tombstone.gone_by_ms) == (RecordState.TOMBSTONE, None)
    assert "no compaction that reaches it is due" in tombstone.text
    log.check()
    assert search(log).at(0) is not None


def test_a_newer_record_in_the_active_segment_does_not_count_yet(tmp_path: Path) -> None:
    log = explained(tmp_path, COMPACT)
    log.logs.put(log.log, (b"k", b"1"))
    roll(log)
    log.logs.put(log.log, (b"k", b"2"))
    older, _ = fates(log, b"k")
    assert (older.state, older.gone_by_ms) == (RecordState.SUPERSEDED, None)
    log.check()
    assert offsets(log) == [0, 1]


def test_a_tombstone_of_an_idle_log_goes_when_it_is_said_to(tmp_path: Path) -> None:
    log = explained(tmp_path, replace(COMPACT, cordwood_tombstone_cleanup=True))
    for record in ((b"k", None), (b"o", b"v")):
        log.logs.put(log.log, record)
    roll(log)
    (dirty,) = fates(log, b"k")
    delays = log.settings.backoff_ms + 60_000
    assert dirty.gone_by_ms == log.now_ms + HOUR_MS + delays + delays
    log.check()
    horizon_ms = log.now_ms + HOUR_MS
    (clean,) = fates(log, b"k")
    assert clean.gone_by_ms == horizon_ms + delays
    explanation = log.explain()
    assert explanation.compaction is not None
    assert (explanation.compaction.due_ms, explanation.answer().segments[0].due_ms) == (
        horizon_ms,
        horizon_ms,
    )
    assert explanation.answer().segments[0].blockers[0].code == "delete-horizon"
    log.logs.clock.advance(HOUR_MS - 1)
    log.check()
    assert offsets(log) == [0, 1]
    log.logs.clock.advance(1)
    compaction = log.explain().answer().compaction
    assert compaction is not None
    assert list(compaction.due_segments) == [0]
    log.check()
    assert offsets(log) == [1]
    due = log.explain().compaction
    assert due is not None
    assert due.due_ms is None


def test_a_tombstone_gets_a_horizon_and_goes_after_it(tmp_path: Path) -> None:
    log = explained(tmp_path, COMPACT)
    log.logs.put(log.log, (b"k", None))
    roll(log)
    (before,) = fates(log, b"k")
    assert (before.state, before.gone_by_ms) == (RecordState.TOMBSTONE, None)
    assert "delete.retention.ms 3600000" in before.text
    log.check()
    (stamped,) = fates(log, b"k")
    assert stamped.found.delete_horizon_ms == log.now_ms + HOUR_MS
    assert "passes in 3600000 ms" in stamped.text
    log.logs.clock.advance(HOUR_MS + 1)
    log.logs.put(log.log, (b"other", b"v"))
    roll(log)
    (due,) = fates(log, b"k")
    assert due.gone_by_ms is not None
    log.check()
    assert offsets(log) == [1]


def test_a_record_without_a_key_goes_with_the_next_compaction(tmp_path: Path) -> None:
    log = explained(tmp_path, replace(COMPACT, cleanup_policy=frozenset({"delete"})))
    log.logs.put(log.log, (None, b"v"))
    roll(log)
    log.log.update_config(COMPACT)
    found = search(log).at(0)
    assert found is not None
    fate = record_fate(log.explain(), found)
    assert fate.state is RecordState.UNKEYED
    assert fate.gone_by_ms is not None
    log.check()
    assert offsets(log) == []


def test_without_compaction_it_goes_with_its_segment(tmp_path: Path) -> None:
    log = explained(tmp_path, replace(COMPACT, cleanup_policy=frozenset({"delete"})))
    log.logs.put(log.log, (b"k", b"v"))
    roll(log)
    found = search(log).at(0)
    assert found is not None
    fate = record_fate(log.explain(), found)
    assert fate.state is RecordState.NOT_COMPACTED
    delays = log.explain().facts.delays
    expired_ms = log.now_ms + 10 * HOUR_MS + 1
    assert fate.gone_by_ms == expired_ms + delays.check_ms + delays.file_delete_ms
    log.require_gone_at(expired_ms)


def test_no_record_is_at_an_offset_that_was_removed(tmp_path: Path) -> None:
    log = explained(tmp_path, COMPACT)
    for _ in range(2):
        log.logs.put(log.log, (b"k", b"v"))
        roll(log)
    log.check()
    assert search(log).at(0) is None
    assert isinstance(search(log).at(1), FoundRecord)
    assert search(log).at(99) is None


@pytest.mark.parametrize("seed", range(40))
def test_every_record_is_gone_when_it_is_said_to_be(tmp_path: Path, seed: int) -> None:
    rng = random.Random(seed)  # nothing here is secret
    config = replace(
        COMPACT,
        cleanup_policy=frozenset(rng.choice(("compact", "compact,delete", "delete")).split(",")),
        min_compaction_lag_ms=rng.choice((0, HOUR_MS)),
        max_compaction_lag_ms=rng.choice((3 * HOUR_MS, COMPACT.max_compaction_lag_ms)),
        min_cleanable_dirty_ratio=rng.choice((0.2, 0.5, 0.9)),
        cordwood_compaction_strategy=rng.choice(("offset", "timestamp")),
        cordwood_tombstone_cleanup=rng.random() < 0.5,
    )
    log = explained(tmp_path, config)
    for _ in range(rng.randint(2, 6)):
        for _ in range(rng.randint(1, 6)):
            value = None if rng.random() < 0.2 else b"v"
            age_ms = rng.choice((0, HOUR_MS // 2, 2 * HOUR_MS, 5 * HOUR_MS))
            key = rng.choice((b"a", b"b", b"c"))
            log.logs.put(log.log, (key, value), timestamp=log.now_ms - age_ms)
        if rng.random() < 0.8:
            roll(log)
        if rng.random() < 0.2:
            log.check()
    if rng.random() < 0.5:
        start = rng.randint(log.log.log_start_offset, log.log.high_watermark)
        log.log.maybe_increment_log_start_offset(start, "a test")
    said = [each for key in (b"a", b"b", b"c") for each in fates(log, key)]
    by_moment = sorted(
        (each.gone_by_ms, each.found.record.offset) for each in said if each.gone_by_ms is not None
    )
    delays = log.explain().facts.delays
    for moment_ms, offset in by_moment:
        # The moment holds the delays of a broker's threads; here a check is made in time.
        due_ms = moment_ms - delays.file_delete_ms
        log.logs.clock.advance(max(0, due_ms - log.now_ms))
        log.check()
        assert search(log).at(offset) is None
