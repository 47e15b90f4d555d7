"""Text of Java's `.properties` files, as `server.properties` is written in.

Source: java.util.Properties.load, Java 17.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from cordwood.model.errors import ConfigError

_SPACE = " \t\f"
_LINE_END = re.compile(r"\r\n|\r|\n")
_ESCAPES = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
_HEX_DIGITS = frozenset("0123456789abcdefABCDEF")


def parse_properties(text: str, *, name: str = "properties") -> dict[str, str]:
    """The settings in `text`; the last one of duplicate keys wins, as in Java.

    `name` is the name of the text in errors. The bytes of a file are Latin-1, as Java reads
    them; other characters are written as `\\uXXXX`.

    Raises:
        ConfigError: a `\\u` is not followed by four hexadecimal digits.
    """
    settings: dict[str, str] = {}
    for number, line in _logical_lines(text):
        end = _end_of_key(line)
        start = _skip(line, end)
        if start < len(line) and line[start] in "=:":
            start = _skip(line, start + 1)
        where = f"{name}, line {number}"
        settings[_unescape(line[:end], where)] = _unescape(line[start:], where)
    return settings


def _logical_lines(text: str) -> Iterator[tuple[int, str]]:
    """Lines with their numbers, continued ones joined, comments and blank lines left out."""
    joined = ""
    first = 0
    lines = _LINE_END.split(text)
    for number, line in enumerate(lines, start=1):
        stripped = line.lstrip(_SPACE)
        if not joined:
            if not stripped or stripped[0] in "#!":
                continue
            first = number
        joined += stripped
        slashes = len(joined) - len(joined.rstrip("\\"))
        if slashes % 2 and number < len(lines):
            joined = joined[:-1]
            continue
        yield first, joined[:-1] if slashes % 2 else joined
        joined = ""


def _end_of_key(line: str) -> int:
    position = 0
    while position < len(line) and line[position] not in "=:" + _SPACE:
        position += 2 if line[position] == "\\" else 1
    return min(position, len(line))


def _skip(line: str, position: int) -> int:
    while position < len(line) and line[position] in _SPACE:
        position += 1
    return position


def _unescape(text: str, where: str) -> str:
    if "\\" not in text:
        return text
    pieces: list[str] = []
    position = 0
    while position < len(text):
        character = text[position]
        position += 1
        if character != "\\" or position == len(text):
            pieces.append(character)
            continue
        escaped = text[position]
        position += 1
        if escaped == "u":
            digits = text[position : position + 4]
            if len(digits) < 4 or not _HEX_DIGITS.issuperset(digits):
                raise ConfigError(f"{where}: Malformed \\uxxxx encoding.")
            pieces.append(chr(int(digits, 16)))
            position += 4
        else:
            pieces.append(_ESCAPES.get(escaped, escaped))
    # Java's characters are UTF-16 units: two escapes may be one character.
    return "".join(pieces).encode("utf-16", "surrogatepass").decode("utf-16", "replace")
