from __future__ import annotations

import pytest

from cordwood.model.clock import Clock
from cordwood.testing.manual_clock import ManualClock


def test_time_stands_still_until_it_is_advanced() -> None:
    clock: Clock = ManualClock(5_000)
    assert (clock.now_ms(), clock.now_ms()) == (5_000, 5_000)
    assert (clock.monotonic_s(), clock.monotonic_s()) == (0.0, 0.0)


def test_both_counts_go_on_together() -> None:
    clock = ManualClock(5_000)
    clock.advance(1_500)
    clock.advance(0)
    clock.advance(1)
    assert clock.now_ms() == 6_501
    assert clock.monotonic_s() == 1.501


def test_time_is_not_turned_back() -> None:
    clock = ManualClock()
    with pytest.raises(AssertionError, match="-1 ms"):
        clock.advance(-1)
