"""Times, sizes and rates as people write them on a command line, and as they like to read them."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from fractions import Fraction
from pathlib import Path

import typer

from cordwood.model.errors import ConfigError
from cordwood.storage.log_dir_urls import log_dir_of

_UNITS = {"": 0, "b": 0, "k": 10, "m": 20, "g": 30, "t": 40}
_SIZE = re.compile(
    r"(\d{1,40}(?:\.\d{1,40})?)\s*([kmgt]?)(?:i?b)?(?:/s)?", re.IGNORECASE | re.ASCII
)
_SIZE_MAX = (1 << 63) - 1
#: The last millisecond that ISO 8601 can write: of the year 9999.
_TIME_MS_MAX = 253_402_300_799_999
_DIGITS_MAX = 40
_UNITS_MS = {"d": 86_400_000, "h": 3_600_000, "m": 60_000, "s": 1000, "ms": 1}
_PART = re.compile(r"(\d{1,19}(?:\.\d{1,19})?)(ms|[dhms])", re.ASCII)
_WHOLE_DURATION = re.compile(r"(?:\d{1,19}(?:\.\d{1,19})?(?:ms|[dhms]))+", re.ASCII)
_UNITS_SHOWN = 2


def parse_path(text: str) -> Path:
    """A path.

    Raises:
        BadParameter: it is empty, as that of a variable that is not set.
    """
    if not text:
        raise typer.BadParameter("the path is empty")
    return Path(text)


def parse_log_dir(text: str) -> Path:
    """A log directory: a path, or of a URL the directory at which what it names is mounted.

    Raises:
        BadParameter: it is empty, or the URL has not the form of one.
        MissingExtraError: what speaks to object storage is not installed.
    """
    try:
        return log_dir_of(text) if text else parse_path(text)
    except ConfigError as error:
        raise typer.BadParameter(str(error)) from error


def parse_time(text: str, *, option: str) -> int:
    """Milliseconds since the epoch, from a number or ISO 8601 (UTC unless it has a zone).

    Raises:
        ConfigError: it is neither, or is not between the years 1970 and 9999.
    """
    is_number = text.isascii() and text.isdigit()
    try:
        if is_number:
            time_ms = int(text[:_DIGITS_MAX])
        else:
            moment = datetime.fromisoformat(text)
            if moment.tzinfo is None:
                moment = moment.replace(tzinfo=UTC)
            time_ms = int(moment.timestamp() * 1000)
    except ValueError:
        raise ConfigError(
            f"{option} {text}: expected milliseconds since the epoch, or ISO 8601 such as "
            "2026-01-31T12:00:00Z"
        ) from None
    if not 0 <= time_ms <= _TIME_MS_MAX:
        raise ConfigError(
            f"{option} {text[:_DIGITS_MAX]}: expected a time of the years 1970 to 9999, which is "
            f"at most {_TIME_MS_MAX} ms since the epoch"
        )
    return time_ms


def parse_size(text: str, *, option: str, least: int = 1) -> int:
    """Bytes, from a number with an optional unit: 1048576, 64M, 1.5GiB, 20MB/s.

    Raises:
        ConfigError: it is none, less than `least`, beyond 64 bits, or a part of a byte.
    """
    match = _SIZE.fullmatch(text.strip())
    if match is None:
        raise ConfigError(
            f"{option} {text[:_DIGITS_MAX]}: expected a number of bytes, such as 512M or 2GiB"
        )
    size = int(Fraction(match[1]) * (1 << _UNITS[match[2].lower()]))
    if not match[2] and Fraction(match[1]) != size:
        raise ConfigError(f"{option} {text[:_DIGITS_MAX]}: expected whole bytes")
    if not least <= size <= _SIZE_MAX:
        raise ConfigError(
            f"{option} {text}: expected {format_bytes(least)} bytes at least, {_SIZE_MAX} at most"
        )
    return size


def parse_duration(text: str, *, option: str) -> int:
    """Milliseconds, from numbers with units: 500ms, 90s, 5m, 12h, 7d, 1d12h.

    Raises:
        ConfigError: it is none, a unit is missing, or it is not whole.
    """
    if not is_duration(text):
        raise ConfigError(f"{option} {text}: expected a duration such as 7d, 12h, 5m, 90s or 500ms")
    total_ms = sum(Fraction(number) * _UNITS_MS[unit] for number, unit in _PART.findall(text))
    if total_ms != int(total_ms):
        raise ConfigError(f"{option} {text}: expected whole milliseconds")
    return int(total_ms)


def format_duration(ms: int) -> str:
    """A duration in its two largest units: 7d, 1d12h, 1m30s, 500ms."""
    found = []
    for unit, size in sorted(_UNITS_MS.items(), key=lambda each: -each[1]):
        count, ms = divmod(ms, size)
        if count:
            found.append(f"{count}{unit}")
        elif found:
            break
    return "".join(found[:2]) or "0s"


def format_moment(ms: int) -> str:
    """A moment in UTC, to the second; a number where no calendar has it."""
    try:
        return datetime.fromtimestamp(ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%SZ")
    except (ValueError, OverflowError, OSError):
        return str(ms)


def iso_moment(ms: int, *, timespec: str = "seconds") -> str:
    """A moment in UTC, in ISO 8601: 2026-01-31T12:00:00Z."""
    moment = datetime.fromtimestamp(ms / 1000, UTC)
    return moment.isoformat(timespec=timespec).replace("+00:00", "Z")


def format_bytes(count: float) -> str:
    """A byte count with about three digits, in powers of 1024: 512, 1.4K, 20.1M, 3.0G."""
    for unit in ("", "K", "M"):
        if abs(count) < 1024:
            return f"{count:.1f}{unit}" if unit else f"{count:.0f}"
        count /= 1024
    return f"{count:.1f}G"


def counted(number: int, noun: str) -> str:
    """A number of things: 1 topic, 1,200 topics."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def is_duration(text: str) -> bool:
    """Whether `parse_duration` takes it."""
    return _WHOLE_DURATION.fullmatch(text.strip()) is not None


def is_size(text: str) -> bool:
    """Whether it is a number of bytes with a unit, which `parse_size` takes."""
    return _SIZE.fullmatch(text.strip()) is not None and not text.strip().isdigit()


def exact_duration(ms: int) -> str:
    """A duration that `parse_duration` takes, in at most two units; empty if it needs more."""
    found = _counts(ms)
    return "".join(found) if len(found) <= _UNITS_SHOWN else ""


def whole_duration(ms: int) -> str:
    """A duration in as many units as it needs, so that sums are those of their terms."""
    return "".join(_counts(ms)) or "0s"


def _counts(ms: int) -> list[str]:
    found = []
    for unit, size in _UNITS_MS.items():
        count, ms = divmod(ms, size)
        if count:
            found.append(f"{count}{unit}")
    return found


def exact_size(count: int) -> str:
    """A number of bytes that `parse_size` takes: with a unit if that divides it, as 10M."""
    for unit in ("T", "G", "M", "K"):
        size = 1 << _UNITS[unit.lower()]
        if count % size == 0:
            return f"{count // size}{unit}"
    return str(count)
