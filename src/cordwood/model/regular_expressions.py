"""Regular expressions of requests, in the syntax of RE2 as Kafka's own.

Python's `re` differs in syntax, and takes exponential time for some patterns: a client could stop
the broker with one.

Source: com.google.re2j.Pattern; KIP-848, KIP-1152.
"""

from __future__ import annotations

import re
from typing import Final, Protocol, cast

from cordwood.model.kafka_errors import InvalidRegularExpressionError

#: RE2 in C++ knows it, RE2/J does not.
_ONE_BYTE: Final = r"\C"
_ESCAPE: Final = re.compile(r"\\Q.*?(?:\\E|\Z)|\\.", re.DOTALL)


class RegularExpression(Protocol):
    """A compiled pattern."""

    def fullmatch(self, text: str) -> object | None:
        """None if the whole text does not match."""


def compile_regular_expression(pattern: str) -> RegularExpression:
    """The pattern, compiled.

    Raises:
        InvalidRegularExpressionError: it is not in RE2's syntax.
    """
    import re2  # noqa: PLC0415  # few requests have a pattern

    if _ONE_BYTE in _escapes(pattern):
        raise InvalidRegularExpressionError(
            f"Invalid regular expression {pattern!r}: invalid escape sequence: {_ONE_BYTE}"
        )
    options = re2.Options()
    options.log_errors = False
    try:
        return cast("RegularExpression", re2.compile(pattern, options))
    except re2.error as error:
        (reason,) = error.args
        raise InvalidRegularExpressionError(
            f"Invalid regular expression {pattern!r}: {reason.decode(errors='replace')}"
        ) from None


def _escapes(pattern: str) -> list[str]:
    """The escape sequences of a pattern; a quotation is one."""
    return _ESCAPE.findall(pattern)
