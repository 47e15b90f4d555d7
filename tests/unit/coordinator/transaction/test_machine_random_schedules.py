"""Random schedules of producers, whose records are compared with a model after each event."""

from __future__ import annotations

from collections import Counter

import pytest

from support.transaction_schedules.schedule import Schedule

CHUNK = 25
SEEDS, SEEDS_NIGHTLY = 25, 2_000


@pytest.mark.parametrize("version", [0, 1, 2])
@pytest.mark.parametrize(
    "first",
    [
        *range(0, SEEDS, CHUNK),
        *(pytest.param(n, marks=pytest.mark.nightly) for n in range(SEEDS, SEEDS_NIGHTLY, CHUNK)),
    ],
)
def test_records_are_as_the_model_says_after_each_event(first: int, version: int) -> None:
    done: Counter[str] = Counter()
    for seed in range(first, first + CHUNK):
        schedule = Schedule(seed, version)
        schedule.play()
        done += schedule.done + Counter(removed=schedule.model.removed)
    for what in ("initialized", "added", "committed", "aborted", "restarted", "removed"):
        assert done[what] > 2 * CHUNK // 3, (what, done)
