"""Values of options: whole numbers."""

from __future__ import annotations

from collections.abc import Mapping

from cordwood.model.errors import ConfigError


def number_of(options: Mapping[str, str], name: str, default: int, *, at_least: int = 0) -> int:
    """The whole number that an option has; `options` are by name in lower case.

    Raises:
        ConfigError: it is no number, or too small.
    """
    text = options.get(name.lower())
    return default if text is None else parse_number(name, text, at_least)


def parse_number(name: str, text: str, at_least: int) -> int:
    """A whole number in the value of an option.

    Raises:
        ConfigError: it is none, or too small.
    """
    try:
        number = int(text)
    except ValueError:
        raise ConfigError(f"option {name}: {text!r} is no number") from None
    if number < at_least:
        raise ConfigError(f"option {name}: {number} is less than {at_least}")
    return number
