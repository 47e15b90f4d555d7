"""Random schedules of clients of a consumer group, compared with a model after each event."""

from __future__ import annotations

from pathlib import Path

import pytest

from support.group_schedules.schedule import Schedule

CHUNK = 50
SEEDS, SEEDS_NIGHTLY = 100, 1_100


@pytest.mark.parametrize(
    "first",
    [
        *range(0, SEEDS, CHUNK),
        *(pytest.param(n, marks=pytest.mark.nightly) for n in range(SEEDS, SEEDS_NIGHTLY, CHUNK)),
    ],
)
def test_group_is_as_the_model_says_after_each_event(first: int, tmp_path: Path) -> None:
    for seed in range(first, first + CHUNK):
        schedule = Schedule(tmp_path / str(seed), seed)
        schedule.play()
        schedule.broker.close()
