"""A measured cleaning gives the report of the cleaning, and leaves the directory as it is."""

from __future__ import annotations

import random
import shutil
from pathlib import Path
from typing import Any

import pytest

from cordwood.configs.log_config import LogConfig
from cordwood.model.documents import to_document
from cordwood.queries.cleaning import cleaning_of
from support.clean import digest_tree
from support.in_process_engine import clean_in_process
from support.log_builder import NOW_MS, LogBuilder, write_log_dir
from support.random_log import Contents, RandomLog

_DAY_MS = 86_400_000
_LOGS = 4


def random_logs(rng: random.Random) -> list[LogBuilder]:
    """Some partitions of one topic each, unlike each other."""
    logs = []
    for number in range(_LOGS):
        contents = Contents(
            batches=rng.choice([3, 30, 60]),
            records_max=rng.choice([1, 8, 30]),
            keys=rng.choice([1, 12, 60]),
            value_bytes_max=rng.choice([1, 40, 400]),
            roll=rng.choice([0.05, 0.15, 0.4]),
            legacy=rng.random() < 0.5,
            transactions=rng.random() < 0.7,
        )
        start = rng.choice([0, 1000])
        logs.append(RandomLog(rng, contents, name=f"log{number}-0", start=start).fill())
    return logs


def random_config(rng: random.Random, log: LogBuilder) -> LogConfig:
    """Settings that make retention and compaction meet in as many ways as there are."""
    policy = rng.choice([{"compact"}, {"compact"}, {"compact", "delete"}, {"delete"}])
    return LogConfig(
        cleanup_policy=frozenset(policy),
        retention_ms=rng.choice([-1, _DAY_MS, 3 * _DAY_MS, 6 * _DAY_MS]),
        retention_bytes=rng.choice([-1, -1, 500, 5_000, 50_000]),
        segment_bytes=rng.choice([300, 2_000, 100_000]),
        segment_index_bytes=rng.choice([24, 10_000]),
        index_interval_bytes=log.index_interval_bytes,
        delete_retention_ms=rng.choice([0, 1, _DAY_MS, 5 * _DAY_MS]),
        min_compaction_lag_ms=rng.choice([0, 0, _DAY_MS, 4 * _DAY_MS]),
        max_compaction_lag_ms=rng.choice([(1 << 63) - 1, _DAY_MS, 4 * _DAY_MS]),
        min_cleanable_dirty_ratio=rng.choice([0.0, 0.3, 0.5, 0.9]),
    )


def without_status(report: dict[str, Any], root: Path) -> list[dict[str, Any]]:
    """The partitions of a report, as they are told whether or not anything was changed."""
    found = []
    for partition in report["partitions"]:
        status = partition.pop("status")
        partition["changed"] = status in {"planned", "cleaned"}
        assert partition["changed"] or status == "unchanged", partition
        found.append({k: str(v).replace(str(root), "") for k, v in partition.items()})
    return found


def measured_and_cleaned(
    top: Path, logs: list[LogBuilder], configs: dict[str, LogConfig], **options: Any
) -> list[dict[str, Any]]:
    """The report of a measurement, checked against that of a cleaning of a copy."""
    here, copy = write_log_dir(top / "here", logs), top / "copy"
    shutil.copytree(here, copy)
    before = digest_tree(here)
    report = clean_in_process(here, configs, now_ms=NOW_MS, dry_run=True, measured=True, **options)
    measured = to_document(cleaning_of(report))
    assert digest_tree(here) == before, "a measurement changed a file"
    report = clean_in_process(copy, configs, now_ms=NOW_MS, **options)
    cleaned = to_document(cleaning_of(report))
    assert measured["plan"] == cleaned["plan"]
    partitions = without_status(measured, here)
    assert partitions == without_status(cleaned, copy)
    return partitions


@pytest.mark.parametrize(
    "seeds",
    [
        pytest.param(range(12), id="few"),
        pytest.param(range(1000, 1400), id="many", marks=pytest.mark.nightly),
    ],
)
def test_a_measurement_equals_the_cleaning_of_a_copy(tmp_path: Path, seeds: range) -> None:
    changed = compacted = 0
    for seed in seeds:
        rng = random.Random(seed)
        logs = random_logs(rng)
        configs = {log.topic_partition.topic: random_config(rng, log) for log in logs}
        top = tmp_path / str(seed)
        top.mkdir()
        found = measured_and_cleaned(top, logs, configs, force=rng.random() < 0.5)
        changed += sum(each["changed"] == "True" for each in found)
        compacted += sum(each["records_before"] != "None" for each in found)
        shutil.rmtree(top)
    assert changed > len(seeds), "hardly a log was changed"
    assert compacted > len(seeds), "hardly a log was compacted"
