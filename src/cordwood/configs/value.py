"""Parsing and validation of setting values, with Kafka's rules and error texts.

Nothing here knows a setting by name: `ValueRule` describes valid values, `parse_value` applies it.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from decimal import Decimal
from enum import StrEnum
from typing import TypeVar

from cordwood.model.errors import ConfigError

LONG_MAX = 2**63 - 1

Value = int | float | bool | str | tuple[str, ...]
"""A parsed value; a list is a tuple of its elements, in the order given."""


class ConfigType(StrEnum):
    """The types of Kafka's settings, by the names that its error texts use.

    Source: org.apache.kafka.common.config.ConfigDef.Type, Kafka 4.3.
    """

    BOOLEAN = "BOOLEAN"
    CLASS = "CLASS"
    DOUBLE = "DOUBLE"
    INT = "INT"
    LIST = "LIST"
    LONG = "LONG"
    PASSWORD = "PASSWORD"  # noqa: S105  # the name of a type
    SHORT = "SHORT"
    STRING = "STRING"


@dataclass(frozen=True, slots=True, kw_only=True)
class ValueRule:
    """The validation rule of a setting.

    `at_least` and `at_most` are inclusive; `or_equal` is one more valid number outside them.
    `choices` are the valid strings (or list elements), any if empty; `any_case` ignores case.
    `offset_reset` is for the start offset of a share group.
    """

    kind: ConfigType
    at_least: float | None = None
    at_most: float | None = None
    or_equal: int | None = None
    choices: tuple[str, ...] = ()
    any_case: bool = False
    empty_refused: bool = False
    offset_reset: bool = False
    element_pattern: str | None = None
    element_note: str = ""

    @property
    def valid_values(self) -> str:
        """The bounds or choices in a few characters, for tables; empty if any value will do."""
        if self.choices:
            return ", ".join(self.choices)
        if self.or_equal is not None:
            return f"{self.or_equal}, {self.at_least} to {self.at_most}"
        if self.at_least is not None and self.at_most is not None:
            return f"{self.at_least} to {self.at_most}"
        return "" if self.at_least is None else f">= {self.at_least}"


_Number = TypeVar("_Number", int, float)
_WIDTHS = {ConfigType.SHORT: 2**15, ConfigType.INT: 2**31, ConfigType.LONG: 2**63}
_WHOLE = re.compile(r"[+-]?\d+")
_DECIMAL = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?[fFdD]?")
_HEXADECIMAL = re.compile(
    r"[+-]?0[xX]([0-9a-fA-F]+\.?[0-9a-fA-F]*|\.[0-9a-fA-F]+)[pP][+-]?[0-9]+[fFdD]?"
)
_NAMED_DOUBLE = re.compile(r"([+-]?)(NaN|Infinity)")
_BY_DURATION = re.compile(
    r"by_duration:(?i:\+?P(?=[T\d+-])([+-]?\d+D)?"
    r"(T(?=.)([+-]?\d+H)?([+-]?\d+M)?([+-]?\d+([.,]\d{0,9})?S)?)?)",
    re.ASCII,
)
_JAVA_SPACE = "".join(map(chr, range(33)))
_LIST_SEPARATOR = re.compile(r"[ \t\n\x0b\f\r]*,[ \t\n\x0b\f\r]*")


def parse_value(name: str, text: str, rule: ValueRule) -> Value:
    """The value of the setting `name` that `text` represents.

    Raises:
        ConfigError: the value is invalid; the text is Kafka's.

    Source: org.apache.kafka.common.config.ConfigDef.parseType and its validators, Kafka 4.3.
    """
    trimmed = text.strip(_JAVA_SPACE)
    match rule.kind:
        case ConfigType.BOOLEAN:
            if trimmed.lower() not in {"true", "false"}:
                raise _refusal(name, text, "Expected value to be either true or false")
            return trimmed.lower() == "true"
        case ConfigType.STRING:
            _require_text(name, trimmed, rule)
            return trimmed
        case ConfigType.CLASS | ConfigType.PASSWORD:
            return trimmed
        case ConfigType.LIST:
            return _parse_list(name, trimmed, rule)
        case ConfigType.DOUBLE:
            return _in_bounds(name, _parse_double(name, text, trimmed), rule)
        case ConfigType.SHORT | ConfigType.INT | ConfigType.LONG:
            return _in_bounds(name, _parse_whole(name, text, trimmed, rule.kind), rule)


def format_value(value: Value) -> str:
    """The text of a value, as Kafka's tools print it."""
    match value:
        case bool():
            return "true" if value else "false"
        case tuple():
            return ",".join(value)
        case float():
            return _format_double(value)
        case _:
            return str(value)


def _parse_whole(name: str, text: str, trimmed: str, kind: ConfigType) -> int:
    width = _WIDTHS[kind]
    # The length is bounded first: int() of a very long text would be slow, or refuse to be.
    if len(trimmed) <= 64 and _WHOLE.fullmatch(trimmed):
        number = int(trimmed)
        if -width <= number < width:
            return number
    raise _refusal(name, text, f"Not a number of type {kind}")


def _parse_double(name: str, text: str, trimmed: str) -> float:
    if match := _NAMED_DOUBLE.fullmatch(trimmed):
        return float(match[1] + match[2].lower())
    if _DECIMAL.fullmatch(trimmed):
        return float(trimmed.rstrip("fFdD"))
    if _HEXADECIMAL.fullmatch(trimmed):
        try:
            return float.fromhex(trimmed.rstrip("fFdD"))
        except OverflowError:
            return -math.inf if trimmed.startswith("-") else math.inf
    raise _refusal(name, text, "Not a number of type DOUBLE")


def _parse_list(name: str, trimmed: str, rule: ValueRule) -> tuple[str, ...]:
    elements = tuple(_LIST_SEPARATOR.split(trimmed)) if trimmed else ()
    if rule.element_pattern is not None:
        pattern = re.compile(rule.element_pattern)
        if not all(pattern.fullmatch(element) for element in elements) and elements != ("*",):
            shown = f"[{', '.join(elements)}]"
            raise _refusal(name, shown, f"{name} {rule.element_note}")
        return elements
    if not elements and rule.empty_refused:
        valid = f"[{', '.join(rule.choices)}]" if rule.choices else "any non-empty value"
        raise ConfigError(
            f"Configuration '{name}' must not be empty. Valid values include: {valid}"
        )
    # A duplicate is used once: Kafka logs a warning and continues.
    elements = tuple(dict.fromkeys(elements))
    for element in elements:
        if not element:
            raise ConfigError(f"Configuration '{name}' values must not be empty.")
        _require_choice(name, element, rule)
    return elements


def _require_text(name: str, text: str, rule: ValueRule) -> None:
    if rule.empty_refused and not text:
        raise _refusal(name, text, "String must be non-empty")
    if rule.any_case:
        if text.upper() not in {choice.upper() for choice in rule.choices}:
            listed = ", ".join(rule.choices)
            raise _refusal(name, text, f"String must be one of (case insensitive): {listed}")
        return
    if rule.offset_reset and not _is_offset_reset(text):
        raise _refusal(
            name,
            text,
            f"Invalid value `{text}` for configuration {name}. The value must be either "
            "'earliest', 'latest' or of the format 'by_duration:<PnDTnHnMn.nS>'.",
        )
    _require_choice(name, text, rule)


def _is_offset_reset(text: str) -> bool:
    """Whether `text` is an offset reset policy; a duration must not be negative as a whole."""
    if text in {"earliest", "latest"}:
        return True
    match = _BY_DURATION.fullmatch(text)
    return match is not None and _seconds(text.partition(":")[2]) >= 0


def _seconds(duration: str) -> float:
    """The length of an ISO 8601 duration of days, hours, minutes and seconds."""
    units = {"D": 86_400, "H": 3_600, "M": 60, "S": 1}
    parts = re.findall(r"([+-]?[\d.,]+)([DHMS])", duration.upper())
    return sum(float(number.replace(",", ".")) * units[unit] for number, unit in parts)


def _require_choice(name: str, text: str, rule: ValueRule) -> None:
    if rule.choices and text not in rule.choices:
        raise _refusal(name, text, f"String must be one of: {', '.join(rule.choices)}")


def _in_bounds(name: str, number: _Number, rule: ValueRule) -> _Number:
    if rule.or_equal is not None:
        assert rule.at_least is not None, name
        assert rule.at_most is not None, name
        if number != rule.or_equal and not rule.at_least <= number <= rule.at_most:
            bounds = f"between {rule.at_least} and {rule.at_most} or equal to {rule.or_equal}"
            raise _refusal(name, format_value(number), f"Value must be {bounds}")
        return number
    if rule.at_least is not None and number < rule.at_least:
        raise _refusal(name, format_value(number), f"Value must be at least {rule.at_least}")
    if rule.at_most is not None and number > rule.at_most:
        raise _refusal(name, format_value(number), f"Value must be no more than {rule.at_most}")
    return number


def _format_double(number: float) -> str:
    if math.isinf(number):
        return "Infinity" if number > 0 else "-Infinity"
    if math.isnan(number):
        return "NaN"
    if number == 0 or 1e-3 <= abs(number) < 1e7:
        return repr(number)
    sign, digits, shift = Decimal(repr(number)).normalize().as_tuple()
    assert isinstance(shift, int), number
    fraction = "".join(map(str, digits[1:])) or "0"
    return f"{'-' * sign}{digits[0]}.{fraction}E{shift + len(digits) - 1}"


def _refusal(name: str, text: str, why: str) -> ConfigError:
    return ConfigError(f"Invalid value {text} for configuration {name}: {why}")
