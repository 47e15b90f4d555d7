"""Values of settings as people write them: `1d` for 86400000, `10GB`, `unlimited`.

Which settings are durations and which are sizes is in the tables of `cordwood.configs.table`; of a
setting that is not there, its name says so, as all of Kafka's do.
"""

from __future__ import annotations

import re
from typing import Final

from cordwood.configs.table import LOG_BROKER_SETTINGS, TOPIC_SETTINGS
from cordwood.configs.value import LONG_MAX
from cordwood.model.errors import ConfigError
from cordwood.surfaces.cli.values import (
    exact_duration,
    exact_size,
    format_bytes,
    is_duration,
    is_size,
    parse_duration,
    parse_size,
)

_DURATIONS_MS: Final = {"ms": 1, "seconds": 1000, "minutes": 60_000, "hours": 3_600_000}
_SIZES: Final = ("bytes", "bytes/s")
#: Quotas are sizes whose names do not end as such.
_NAMED_SIZES: Final = ("producer_byte_rate", "consumer_byte_rate")
_NO_LIMIT: Final = ("unlimited", "none")
_SPOKEN: Final = re.compile(r"(\d{1,9})\s*([a-zA-Z]{2,12})", re.ASCII)
_WORDS_MS: Final = {
    "millisecond": 1,
    "sec": 1000,
    "second": 1000,
    "min": 60_000,
    "minute": 60_000,
    "hour": 3_600_000,
    "day": 86_400_000,
    "week": 7 * 86_400_000,
}
_NUMBER: Final = re.compile(r"-?\d{1,19}", re.ASCII)
_PROSE_SETTING: Final = re.compile(r"\b([a-z][a-z.]*\.[a-z]+)([ =])(-?\d{4,19}|-1)\b", re.ASCII)
_PROSE_BYTES: Final = re.compile(r"\b(\d{4,19}) bytes\b", re.ASCII)
_PROSE_MS: Final = re.compile(r"\b(\d{4,19}) ?ms\b", re.ASCII)


def unit_of(name: str) -> str:
    """The unit of a setting: `ms`, `minutes`, `hours`, `bytes` and so on; empty if it has none."""
    known = TOPIC_SETTINGS.get(name) or LOG_BROKER_SETTINGS.get(name)
    if known is not None:
        return known.unit
    if name in _NAMED_SIZES:
        return "bytes"
    last = name.rpartition(".")[2]
    return last if last in _DURATIONS_MS or last in _SIZES else ""


def setting_value(name: str, text: str) -> str:
    """The value of a setting as Kafka takes it; a text without a unit stays as it is.

    Raises:
        ConfigError: it is not a whole number in the unit of the setting.
    """
    unit, word = unit_of(name), text.strip()
    if unit not in _DURATIONS_MS and unit not in _SIZES:
        return text
    if word.lower() in _NO_LIMIT:
        return _no_limit(name) or text
    if unit in _SIZES:
        return str(parse_size(word, option=name, least=0)) if is_size(word) else text
    if not is_duration(word):
        return text
    count, rest = divmod(parse_duration(word, option=name), _DURATIONS_MS[unit])
    if rest:
        raise ConfigError(f"{name}={text}: expected whole {unit}")
    return str(count)


def set_option(text: str) -> str:
    """`[TOPIC:]KEY=VALUE` or `KEY=VALUE` with the value as Kafka takes it.

    Raises:
        ConfigError: as `setting_value`, or a duration is in words, as `2 days`.
    """
    left, equals, value = text.partition("=")
    name = left.rpartition(":")[2].strip()
    written = _instead_of_words(name, value)
    if written:
        raise ConfigError(f"{text}: not a number; write {written}")
    return left + equals + setting_value(name, value)


def _instead_of_words(name: str, text: str) -> str:
    """The right form of a duration in words; empty if the text is none."""
    unit, spoken = _DURATIONS_MS.get(unit_of(name)), _SPOKEN.fullmatch(text.strip())
    word = "" if spoken is None else spoken[2].lower().removesuffix("s")
    if unit is None or spoken is None or word not in _WORDS_MS:
        return ""
    ms = int(spoken[1]) * _WORDS_MS[word]
    number = f" or {ms // unit}" if ms % unit == 0 else ""
    return f"{exact_duration(ms)}{number}"


def shown_setting(name: str, text: str) -> str:
    """A value as people read it, which `setting_value` takes, too; others stay as they are."""
    unit = unit_of(name)
    if _NUMBER.fullmatch(text) is None or (unit not in _DURATIONS_MS and unit not in _SIZES):
        return text
    if text == _no_limit(name):
        return "unlimited" if "retention" in name else "none"
    number = int(text)
    if number <= 0:
        return text
    if unit in _SIZES:
        return exact_size(number)
    return exact_duration(number * _DURATIONS_MS[unit]) or text


def shown_text(text: str) -> str:
    """A sentence with the values of settings in it, and other durations in ms, as people read them.

    A setting is followed by its value, after a space or an equals sign.
    """

    def setting(found: re.Match[str]) -> str:
        return found[1] + found[2] + shown_setting(found[1], found[3])

    def duration(found: re.Match[str]) -> str:
        return exact_duration(int(found[1])) or found[0]

    return _PROSE_MS.sub(duration, _PROSE_SETTING.sub(setting, text))


def shown_sizes(text: str) -> str:
    """A sentence with its numbers of bytes as they are in the tables beside it."""
    return _PROSE_BYTES.sub(lambda found: format_bytes(int(found[1])), text)


def _no_limit(name: str) -> str:
    """The value that stands for no limit; empty if there is none."""
    known = TOPIC_SETTINGS.get(name) or LOG_BROKER_SETTINGS.get(name)
    if known is None:
        return ""
    if known.default == LONG_MAX:
        return str(LONG_MAX)
    least = known.rule.at_least
    return "-1" if least is None or least == -1 else ""
