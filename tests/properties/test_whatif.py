"""Prediction of a changed setting, compared with a cleaning with that setting."""

from __future__ import annotations

import random
import shutil
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from cordwood.cleanup.plan.report import PartitionReport
from cordwood.cleanup.plan.request import CleanRequest, Resolved
from cordwood.cleanup.rules.shared_retention import DIRECTORY_BYTES, TOPIC_BYTES, DirectoryLimits
from cordwood.configs.log_config import LogConfig
from cordwood.model.clock import SystemClock
from cordwood.queries.whatif.compared_cleanings import compare
from cordwood.queries.whatif.comparison import Compared
from cordwood.queries.whatif.effects import How, Outcome
from support.clean import digest_tree
from support.in_process_engine import clean_in_process, in_process
from support.log_builder import NOW_MS, LogBuilder, write_log_dir
from support.random_log import Contents, RandomLog

_DAY_MS = 86_400_000
_LOGS = 3
_CHANGES: dict[str, list[Any]] = {
    "retention_ms": [-1, _DAY_MS, 2 * _DAY_MS, 5 * _DAY_MS],
    "retention_bytes": [-1, 300, 3_000, 30_000],
    "cleanup_policy": [
        frozenset({"compact"}),
        frozenset({"delete"}),
        frozenset({"compact", "delete"}),
        frozenset(),
    ],
    "delete_retention_ms": [0, 1, _DAY_MS, 5 * _DAY_MS],
    "min_compaction_lag_ms": [0, _DAY_MS, 4 * _DAY_MS],
    "max_compaction_lag_ms": [(1 << 63) - 1, _DAY_MS, 4 * _DAY_MS],
    "min_cleanable_dirty_ratio": [0.0, 0.2, 0.5, 0.9],
    "segment_bytes": [300, 2_000, 100_000],
    "segment_index_bytes": [24, 10_000],
    "cordwood_segment_roll_idle": [False, True],
    "segment_ms": [_DAY_MS, 7 * _DAY_MS],
    "cordwood_tombstone_cleanup": [False, True],
    "cordwood_compaction_strategy": ["offset", "timestamp"],
    "cordwood_record_ttl_header": ["", "ttl"],
}
#: Settings that matter for limits of several logs.
_SHARED: dict[str, list[Any]] = {
    "cleanup_policy": [frozenset({"delete"}), frozenset({"compact", "delete"})],
    "cordwood_retention_topic_bytes": [-1, 500, 3_000, 8_000],
    "cordwood_segment_roll_idle": [False, True],
    "retention_ms": [-1, 5 * _DAY_MS],
    "min_cleanable_dirty_ratio": [0.5, 1.0],
}
_DIRECTORY_BYTES = [-1, 2_000, 10_000, 20_000]


Choices = dict[str, list[Any]]


def random_config(
    rng: random.Random, interval_bytes: int, choices: Choices = _CHANGES
) -> LogConfig:
    given = {name: rng.choice(values) for name, values in choices.items()}
    return LogConfig(**given, index_interval_bytes=interval_bytes)


def changed(rng: random.Random, config: LogConfig, choices: Choices = _CHANGES) -> LogConfig:
    """One to four settings have other values."""
    while True:
        names = rng.sample(sorted(choices), rng.randint(1, 4))
        found = replace(config, **{name: rng.choice(choices[name]) for name in names})
        if found != config:
            return found


def request_of(
    root: Path, configs: dict[str, LogConfig], directory_bytes: int = -1
) -> CleanRequest:
    return CleanRequest(
        log_dirs=(root,),
        resolve=lambda topic: Resolved(config=configs[topic], origin={}),
        now_ms=NOW_MS,
        directory_limits=DirectoryLimits(size_bytes_max=directory_bytes),
        dry_run=True,
    )


def as_cleaned(
    root: Path, configs: dict[str, LogConfig], directory_bytes: int = -1
) -> dict[str, PartitionReport]:
    """The report of cleaning a copy, by partition."""
    copy = root.with_name("copy")
    shutil.copytree(root, copy)
    limits = DirectoryLimits(size_bytes_max=directory_bytes)
    report = clean_in_process(copy, configs, now_ms=NOW_MS, directory_limits=limits)
    shutil.rmtree(copy)
    return {f"{each.topic}-{each.partition}": each for each in report.partitions}


def require_same(outcome: Outcome | None, cleaned: PartitionReport, compared: Compared) -> None:
    assert outcome is not None, compared.reason
    before, after = cleaned.before, cleaned.after
    assert before is not None
    assert after is not None
    assert (outcome.segments, outcome.bytes) == (after.segments, after.bytes), compared.name
    assert outcome.bytes_freed == before.bytes - after.bytes
    assert outcome.log_start_offset == cleaned.log_start_offset
    discarded = (before.records or 0) - (after.records or 0)
    assert outcome.records_discarded == discarded, compared.name
    assert outcome.tombstones_discarded == cleaned.discarded.tombstone, compared.name


@pytest.mark.parametrize(
    "seeds",
    [
        pytest.param(range(10), id="few"),
        pytest.param(range(500, 600), id="many", marks=pytest.mark.nightly),
    ],
)
def test_a_predicted_change_is_what_the_cleaning_does(tmp_path: Path, seeds: range) -> None:
    known_by = set()
    differences = 0
    for seed in seeds:
        rng = random.Random(seed)
        top = tmp_path / str(seed)
        logs: list[LogBuilder] = [
            RandomLog(
                rng, Contents(roll=rng.choice([0.1, 0.3]), ttl=True), name=f"log{number}-0"
            ).fill()
            for number in range(_LOGS)
        ]
        root = write_log_dir(top / "here", logs)
        now = {
            log.topic_partition.topic: random_config(rng, log.index_interval_bytes) for log in logs
        }
        then = {topic: changed(rng, config) for topic, config in now.items()}
        before = digest_tree(root)
        comparison = compare(
            request_of(root, now), request_of(root, then), in_process, clock=SystemClock()
        )
        assert digest_tree(root) == before
        cleaned_now, cleaned_then = as_cleaned(root, now), as_cleaned(root, then)
        assert {each.topic for each in comparison.partitions} == set(now)
        for compared in comparison.partitions:
            now_report, then_report = cleaned_now[compared.name], cleaned_then[compared.name]
            assert compared.now is not None
            assert compared.then is not None
            if compared.is_same and compared.now.how is How.RETENTION:
                # A compaction is not measured where the change makes no difference to it.
                assert compared.then == compared.now
                assert then_report.after == now_report.after
                continue
            require_same(compared.now, now_report, compared)
            require_same(compared.then, then_report, compared)
            known_by |= {compared.now.how, compared.then.how}
            differences += compared.now.bytes != compared.then.bytes
        shutil.rmtree(top)
    assert known_by == {How.PLANNED, How.MEASURED}
    assert differences > len(seeds) // 2, "hardly a change had an effect"


@pytest.mark.parametrize(
    "seeds",
    [
        pytest.param(range(4), id="few"),
        pytest.param(range(500, 600), id="many", marks=pytest.mark.nightly),
    ],
)
def test_limits_that_logs_share_are_predicted_for_all_of_them(tmp_path: Path, seeds: range) -> None:
    by_rule: Counter[str] = Counter()
    for seed in seeds:
        rng = random.Random(seed)
        top = tmp_path / str(seed)
        contents = Contents(roll=0.3, transactions=False)
        names = ["a-0", "a-1", "b-0", "b-1", "c-0"]
        logs: list[LogBuilder] = [RandomLog(rng, contents, name=name).fill() for name in names]
        root = write_log_dir(top / "here", logs)
        interval_bytes = logs[0].index_interval_bytes
        now = {topic: random_config(rng, interval_bytes, _SHARED) for topic in "abc"}
        # One topic stays as it is: a limit that it shares may change what it loses.
        then = now | {topic: changed(rng, now[topic], _SHARED) for topic in "ab"}
        now_bytes, then_bytes = (rng.choice(_DIRECTORY_BYTES) for _ in range(2))
        comparison = compare(
            request_of(root, now, now_bytes),
            request_of(root, then, then_bytes),
            in_process,
            clock=SystemClock(),
        )
        cleaned_now = as_cleaned(root, now, now_bytes)
        cleaned_then = as_cleaned(root, then, then_bytes)
        for compared in comparison.partitions:
            require_same(compared.now, cleaned_now[compared.name], compared)
            require_same(compared.then, cleaned_then[compared.name], compared)
        # What is not shown has the same on both sides.
        for name in set(names) - {each.name for each in comparison.partitions}:
            assert name == "c-0"
            assert cleaned_now[name].expired == cleaned_then[name].expired
        is_changed = bool(comparison.broker_changes)
        assert is_changed == (now_bytes != then_bytes)
        by_rule.update(gone.rule for each in cleaned_then.values() for gone in each.expired)
        shutil.rmtree(top)
    assert by_rule[TOPIC_BYTES] > len(seeds)
    assert by_rule[DIRECTORY_BYTES] > len(seeds) // 2
