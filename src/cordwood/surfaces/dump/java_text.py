"""Text in the format of Java and Jackson, so that output equals that of Kafka's tools."""

from __future__ import annotations

import math
from typing import Any

_ESCAPES = {
    '"': '\\"',
    "\\": "\\\\",
    "\b": "\\b",
    "\t": "\\t",
    "\n": "\\n",
    "\f": "\\f",
    "\r": "\\r",
}
_ESCAPE_TABLE = {code: f"\\u{code:04X}" for code in range(32)} | {
    ord(character): escape for character, escape in _ESCAPES.items()
}


def json_text(value: Any) -> str:
    """JSON as Jackson prints a tree: no spaces, keys in order, only what must be is escaped."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return java_boolean(value)
    if isinstance(value, str):
        return '"' + value.translate(_ESCAPE_TABLE) + '"'
    if isinstance(value, float):
        return java_double(value) if math.isfinite(value) else f'"{java_double(value)}"'
    if isinstance(value, dict):
        members = (f"{json_text(key)}:{json_text(member)}" for key, member in value.items())
        return "{" + ",".join(members) + "}"
    if isinstance(value, list):
        return "[" + ",".join(map(json_text, value)) + "]"
    return str(value)


def java_boolean(value: bool) -> str:
    """`true` or `false`."""
    return "true" if value else "false"


def java_double(value: float) -> str:
    """A double as `Double.toString` prints it: `1.0`, `1.5E10`, `NaN`."""
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "Infinity" if value > 0 else "-Infinity"
    sign = "-" if math.copysign(1.0, value) < 0 else ""
    magnitude = abs(value)
    if magnitude == 0:
        return sign + "0.0"
    digits, exponent = _digits(magnitude)
    if 1e-3 <= magnitude < 1e7:
        if exponent < 0:
            return f"{sign}0.{'0' * (-exponent - 1)}{digits}"
        whole = digits[: exponent + 1].ljust(exponent + 1, "0")
        return f"{sign}{whole}.{digits[exponent + 1 :] or '0'}"
    return f"{sign}{digits[0]}.{digits[1:] or '0'}E{exponent}"


def java_optional(value: int | None, *, kind: str = "OptionalLong") -> str:
    """`OptionalLong[5]`, or `OptionalLong.empty` for None."""
    return f"{kind}.empty" if value is None else f"{kind}[{value}]"


def _digits(magnitude: float) -> tuple[str, int]:
    """The shortest decimal digits of a positive number, and the exponent of the first."""
    mantissa, _, exponent = f"{magnitude!r}".partition("e")
    whole, _, fraction = mantissa.partition(".")
    power = int(exponent or "0") + len(whole) - 1
    digits = whole + ("" if fraction == "0" else fraction)
    stripped = digits.lstrip("0")
    power -= len(digits) - len(stripped)
    return stripped.rstrip("0") or "0", power
