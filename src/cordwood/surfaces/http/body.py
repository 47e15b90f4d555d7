"""JSON that a client sends: read within bounds, so that no body is more than a wrong request."""

from __future__ import annotations

import json
import math
import re
from typing import Any, Final

from cordwood.model.errors import ConfigError

DEPTH_MAX: Final = 16

_STRING: Final = re.compile(rb'"(?:[^"\\]|\\.)*+"?', re.DOTALL)
_BRACKET: Final = re.compile(rb"[\[\]{}]")
_SURROGATE: Final = re.compile("[\ud800-\udfff]")


def read_json(body: bytes) -> Any:
    """The value in a body of UTF-8: finite numbers, text that UTF-8 can hold.

    Raises:
        ConfigError: it is none, or is nested deeper than `DEPTH_MAX`.
    """
    _require_shallow(body)
    try:
        value = json.loads(
            body.decode(),
            parse_constant=_refuse_constant,
            parse_float=_finite,
            object_pairs_hook=_object,
        )
    except ValueError as error:
        raise ConfigError(f"not JSON that is taken here: {error}") from error
    if _SURROGATE.search(json.dumps(value, ensure_ascii=False)):
        raise ConfigError("not JSON that is taken here: it has text that UTF-8 cannot hold")
    return value


def _require_shallow(body: bytes) -> None:
    """Raises ConfigError before the parser, which calls itself for each level, is called."""
    depth = 0
    for bracket in _BRACKET.finditer(_STRING.sub(b"", body)):
        depth += 1 if bracket[0] in b"[{" else -1
        if depth > DEPTH_MAX:
            raise ConfigError(
                f"not JSON that is taken here: it is nested deeper than {DEPTH_MAX} levels"
            )


def _refuse_constant(text: str) -> Any:
    raise ValueError(f"{text} is not a number of JSON")


def _finite(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise ValueError(f"the number {text[:40]} is too large")
    return value


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    value = dict(pairs)
    if len(value) != len(pairs):
        raise ValueError("a name occurs twice in an object")
    return value
