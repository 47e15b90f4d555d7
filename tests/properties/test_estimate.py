"""Estimates of random logs are exact while all batches are looked at."""

from __future__ import annotations

import random
import shutil
from functools import partial
from pathlib import Path

import pytest

from cordwood.cleanup.estimate.estimate import estimate_compaction
from cordwood.configs.log_config import LogConfig
from support.in_process_engine import clean_in_process
from support.key_distributions import CONFIG
from support.log_builder import NOW_MS, LogBuilder, write_log_dir
from support.random_log import Contents, RandomLog

_DAY_MS = 86_400_000


def random_log_of(rng: random.Random, *, versions: bool, ttl: bool) -> LogBuilder:
    """A log with all that a log may hold, in batches from tiny to large."""
    contents = Contents(
        batches=rng.choice([3, 60, 200]),
        records_max=rng.choice([1, 8, 30]),
        keys=rng.choice([1, 12, 60]),
        value_bytes_max=rng.choice([1, 40, 400]),
        roll=rng.choice([0.05, 0.15, 0.4]),
        versions=versions,
        ttl=ttl,
    )
    return RandomLog(rng, contents, name="t-0", start=rng.choice([0, 1000])).fill()


def random_settings(rng: random.Random, log: LogBuilder, strategy: str, *, ttl: bool) -> LogConfig:
    """Settings under which horizons, lags and groups differ."""
    return LogConfig(
        cleanup_policy=CONFIG.cleanup_policy,
        segment_bytes=rng.choice([300, 2_000, 100_000]),
        index_interval_bytes=log.index_interval_bytes,
        delete_retention_ms=rng.choice([0, 1, _DAY_MS, 5 * _DAY_MS]),
        min_compaction_lag_ms=rng.choice([0, 0, _DAY_MS]),
        min_cleanable_dirty_ratio=0.0,
        cordwood_compaction_strategy=strategy,
        cordwood_compaction_strategy_header="v",
        cordwood_record_ttl_header="ttl" if ttl else "",
        cordwood_tombstone_cleanup=rng.choice([False, True]),
    )


@pytest.mark.parametrize(
    "seeds",
    [
        pytest.param(range(15), id="few"),
        pytest.param(range(1000, 1600), id="many", marks=pytest.mark.nightly),
    ],
)
def test_an_estimate_of_all_batches_is_what_a_cleaning_frees(tmp_path: Path, seeds: range) -> None:
    compacted = expired = 0
    for seed in seeds:
        rng = random.Random(seed)
        strategy = ("offset", "timestamp", "header")[seed % 3]
        ttl = seed % 2 == 1
        log = random_log_of(rng, versions=strategy == "header", ttl=ttl)
        config = random_settings(rng, log, strategy, ttl=ttl)
        root = write_log_dir(tmp_path / str(seed), [log])
        both = partial(
            clean_in_process, root, {"t": config}, now_ms=NOW_MS, dry_run=True, retention=False,
            force=True,
        )  # fmt: skip
        (estimated,) = both(estimator=estimate_compaction).partitions
        (measured,) = both(measured=True).partitions
        shutil.rmtree(root)
        found = estimated.estimate
        assert estimated.warnings == measured.warnings
        assert (found is None) == (measured.before is None or measured.before.records is None)
        if found is None:
            continue
        compacted += 1
        assert measured.before is not None
        assert measured.after is not None
        assert measured.before.records is not None
        assert measured.after.records is not None
        assert found.is_exact
        assert found.bytes_freed == measured.bytes_freed, seed
        assert found.bytes_freed_low == found.bytes_freed_high == found.bytes_freed
        assert found.records_before == measured.before.records
        assert found.records_discarded == measured.before.records - measured.after.records
        assert found.tombstones_discarded == measured.discarded.tombstone
        expired += measured.discarded.expired
    assert compacted > len(seeds) // 2, "hardly a log was compacted"
    assert expired, "no record has expired"
