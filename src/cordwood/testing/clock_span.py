"""Time by which a test advances a clock, in milliseconds."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import timedelta
from difflib import get_close_matches
from functools import wraps
from typing import Final, ParamSpec, TypeVar

from cordwood.model.errors import ConfigError

P = ParamSpec("P")
R = TypeVar("R")

_UNITS: Final = ("weeks", "days", "hours", "minutes", "seconds", "milliseconds", "microseconds")


def needs_units(method: Callable[P, R]) -> Callable[P, R]:
    """Has a method that takes a span refuse a number without a unit with a hint."""

    @wraps(method)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        if len(args) > 1:
            raise ConfigError(f"advance: {args[1]} of what? Such as days={args[1]}")
        return method(*args, **kwargs)

    return call


def span_ms(span: Mapping[str, float]) -> int:
    """The milliseconds of a span, as `datetime.timedelta` takes it: `days=7, hours=1`.

    Raises:
        ConfigError: a unit or a number is none, or the span is negative.
    """
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
