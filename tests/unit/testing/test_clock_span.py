"""Durations by which a test advances a clock."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from cordwood.model.errors import ConfigError
from cordwood.testing.clock_span import needs_units, span_ms


@pytest.mark.parametrize(
    ("span", "ms"),
    [
        ({}, 0),
        ({"days": 7}, 604_800_000),
        ({"hours": 1, "milliseconds": 5}, 3_600_005),
        ({"days": 1, "hours": -1}, 82_800_000),
        ({"seconds": 0.5}, 500),
        ({"weeks": 1}, 604_800_000),
    ],
)
def test_a_span_is_what_timedelta_takes(span: Mapping[str, float], ms: int) -> None:
    assert span_ms(span) == ms


@pytest.mark.parametrize(
    ("span", "said"),
    [
        ({"day": 1}, "day is no unit; did you mean days=1?"),
        ({"hour": 2}, "hour is no unit; did you mean hours=2?"),
        ({"x": 1}, "x is no unit; use weeks, days, hours, minutes, seconds, milliseconds, micro"),
        ({"days": -1}, "a clock cannot be moved back: days=-1"),
        ({"days": "7"}, "days='7' is no time"),
        ({"days": float("nan")}, "days=nan is no time"),
        ({"days": 1e12}, "days=1000000000000.0 is too long"),
    ],
)
def test_what_is_none_says_what_to_write(span: Mapping[str, float], said: str) -> None:
    with pytest.raises(ConfigError) as refused:
        span_ms(span)
    assert str(refused.value).startswith(f"advance: {said}")


class _Clock:
    @needs_units
    def advance(self, **span: float) -> int:
        return span_ms(span)


def test_a_number_without_a_unit_has_one_proposed() -> None:
    with pytest.raises(ConfigError, match=r"advance: 8 of what\? Such as days=8"):
        _Clock().advance(8)  # type: ignore[call-arg]
    assert _Clock().advance(days=1) == 86_400_000
