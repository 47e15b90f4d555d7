"""What a changed setting would do is what a cleaning with that setting then does."""

from __future__ import annotations

import random
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from cordwood.cleanup.report import PartitionReport
from cordwood.cleanup.request import CleanRequest, Resolved
from cordwood.insight.compared_cleanings import compare
from cordwood.insight.comparison import Compared
from cordwood.insight.whatif import How, Outcome
from cordwood.model.clock import SystemClock
from cordwood.model.config import LogConfig
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
}


def random_config(rng: random.Random, interval_bytes: int) -> LogConfig:
    given = {name: rng.choice(values) for name, values in _CHANGES.items()}
    return LogConfig(**given, index_interval_bytes=interval_bytes)


def changed(rng: random.Random, config: LogConfig) -> LogConfig:
    """One to four settings have other values."""
    while True:
        names = rng.sample(sorted(_CHANGES), rng.randint(1, 4))
        found = replace(config, **{name: rng.choice(_CHANGES[name]) for name in names})
        if found != config:
            return found


def request_of(root: Path, configs: dict[str, LogConfig]) -> CleanRequest:
    return CleanRequest(
        log_dirs=(root,),
        resolve=lambda topic: Resolved(config=configs[topic], origin={}),
        now_ms=NOW_MS,
        dry_run=True,
    )


def as_cleaned(root: Path, configs: dict[str, LogConfig]) -> dict[str, PartitionReport]:
    """The report of cleaning a copy, by topic."""
    copy = root.with_name("copy")
    shutil.copytree(root, copy)
    report = clean_in_process(copy, configs, now_ms=NOW_MS)
    shutil.rmtree(copy)
    return {each.topic: each for each in report.partitions}


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
            RandomLog(rng, Contents(roll=rng.choice([0.1, 0.3])), name=f"log{number}-0").fill()
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
            require_same(compared.now, cleaned_now[compared.topic], compared)
            require_same(compared.then, cleaned_then[compared.topic], compared)
            assert compared.now is not None
            assert compared.then is not None
            known_by |= {compared.now.how, compared.then.how}
            differences += compared.now.bytes != compared.then.bytes
        shutil.rmtree(top)
    assert known_by == {How.PLANNED, How.MEASURED}
    assert differences > len(seeds) // 2, "hardly a change had an effect"
