"""Durability of what a partition's leader commits, for random brokers, requests and answers."""

from __future__ import annotations

from collections import Counter

import pytest

from support.replication_under_test import run_replication

SEEDS, SEEDS_NIGHTLY = 100, 10_000


@pytest.mark.parametrize(
    "seeds",
    [
        pytest.param(range(SEEDS), id="some"),
        pytest.param(range(SEEDS, SEEDS_NIGHTLY), id="all", marks=pytest.mark.nightly),
    ],
)
def test_what_is_committed_stays_whoever_leads(seeds: range) -> None:
    done: Counter[str] = Counter()
    for seed in seeds:
        done.update(run_replication(seed))
    often = ("election", "proposal", "commit", "kill", "AppendRecords")
    assert min(done[each] for each in often) >= len(seeds) // 2, done
    assert min(done[each] for each in ("divergence", "TruncateTo", "StartAt")) > 0, done
