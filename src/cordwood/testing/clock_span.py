"""How far a test advances a clock: what `advance` takes, in milliseconds."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from difflib import get_close_matches
from typing import Final

from cordwood.model.errors import ConfigError

_UNITS: Final = ("weeks", "days", "hours", "minutes", "seconds", "milliseconds", "microseconds")


def span_ms(span: Mapping[str, float], *, misplaced: tuple[object, ...] = ()) -> int:
    """The milliseconds of a span, as `datetime.timedelta` takes it: `days=7, hours=1`.

    Args:
        span: numbers by unit.
        misplaced: arguments without a unit.

    Raises:
        ConfigError: a unit or a number is none, the span is negative, or a number has no unit.
    """
    if misplaced:
        raise ConfigError(f"advance: {misplaced[0]} of what? Such as days={misplaced[0]}")
    for unit, count in span.items():
        if unit not in _UNITS:
            close = get_close_matches(unit, _UNITS, n=1)
            advice = f"did you mean {close[0]}={count}?" if close else f"use {', '.join(_UNITS)}"
            raise ConfigError(f"advance: {unit} is no unit; {advice}")
    said = ", ".join(f"{unit}={count!r}" for unit, count in span.items())
    try:
        total_ms = timedelta(**span) // timedelta(milliseconds=1)
    except (TypeError, ValueError) as error:
        raise ConfigError(f"advance: {said} is no time") from error
    except OverflowError as error:
        raise ConfigError(f"advance: {said} is too long") from error
    if total_ms < 0:
        raise ConfigError(f"advance: a clock cannot be moved back: {said}")
    return total_ms
