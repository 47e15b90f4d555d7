"""Logs that lose power at every operation of a workload are found right; see the engine."""

from __future__ import annotations

from collections import Counter

import pytest

from cordwood.testing.log_crash import CrashPlan, CrashRun


def judged(images_wanted: int, *, steps: int, first_seed: int) -> tuple[int, Counter[str]]:
    """(images opened and judged, steps taken) of as many workloads as it takes."""
    images, seed = 0, first_seed
    taken: Counter[str] = Counter()
    while images < images_wanted:
        report = CrashRun(CrashPlan(seed=seed, steps=steps)).run()
        images += report.images
        taken.update(report.steps)
        seed += 1
    return images, taken


def test_five_hundred_power_losses_lose_nothing_flushed_and_invent_nothing() -> None:
    images, taken = judged(500, steps=30, first_seed=0)
    assert images >= 500
    assert taken["append"] > 0


@pytest.mark.nightly
def test_ten_thousand_power_losses_lose_nothing_flushed_and_invent_nothing() -> None:
    images, taken = judged(10_000, steps=60, first_seed=1_000)
    assert images >= 10_000
    for step in (
        *("append", "append_idempotent", "append_transactional", "end_transaction", "roll"),
        *("flush", "retain", "delete_records", "clean", "truncate", "lose_power", "kill", "move"),
    ):
        assert taken[step] > 0, f"no {step} in {dict(taken)}"
    print(f"{images} images judged after {sum(taken.values())} steps: {dict(taken)}")
