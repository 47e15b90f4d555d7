"""Random schedules of clients of a group, compared with a model after each event."""

from __future__ import annotations

from pathlib import Path

import pytest

from support.group_schedules.mixed_schedule import MixedSchedule
from support.group_schedules.schedule import Schedule

CHUNK = 50
SEEDS, SEEDS_NIGHTLY = 50, 1_100
CHUNKS = [
    *range(0, SEEDS, CHUNK),
    *(pytest.param(n, marks=pytest.mark.nightly) for n in range(SEEDS, SEEDS_NIGHTLY, CHUNK)),
]


@pytest.mark.parametrize("first", CHUNKS)
def test_group_is_as_the_model_says_after_each_event(first: int, tmp_path: Path) -> None:
    for seed in range(first, first + CHUNK):
        schedule = Schedule(tmp_path / str(seed), seed)
        schedule.play()
        schedule.broker.close()


@pytest.mark.parametrize("first", CHUNKS)
def test_group_of_both_protocols_changes_only_as_the_model_allows(
    first: int, tmp_path: Path
) -> None:
    moves: set[str] = set()
    for seed in range(first, first + CHUNK):
        schedule = MixedSchedule(tmp_path / str(seed), seed)
        schedule.play()
        schedule.broker.close()
        moves |= schedule.moves
    assert moves == {"upgrade", "downgrade"}
