"""Lines of standard input, and the records that they represent.

Source: org.apache.kafka.tools.LineMessageReader (4.4.0).
"""

from __future__ import annotations

import re
import select
from collections.abc import Mapping
from dataclasses import dataclass, field

from cordwood.client.errors import ClientError
from cordwood.format.record_batch import Header
from cordwood.surfaces.cli.tools.tool import Terminal

_READ_BYTES = 1 << 16


class LineError(ClientError):
    """A line that does not have the expected form."""


class LineReader:
    """Parses keys, values and headers from lines, according to the reader's properties."""

    def __init__(self, properties: Mapping[str, str]) -> None:
        """Reads the properties.

        Raises:
            LineError: separators that are equal or ambiguous, or an invalid regular expression.
        """
        self._parse_key = _is_true(properties.get("parse.key"))
        self._key_separator = properties.get("key.separator", "\t")
        self._parse_headers = _is_true(properties.get("parse.headers"))
        self._delimiter = properties.get("headers.delimiter", "\t")
        self._separator = properties.get("headers.separator", ",")
        self._header_key_separator = properties.get("headers.key.separator", ":")
        self._ignore_error = _is_true(properties.get("ignore.error"))
        self._null = properties.get("null.marker")
        self._number = 0
        self._check()
        try:
            self._pattern = re.compile(self._separator)
        except re.error as error:
            raise LineError(f"headers.separator={self._separator} is an invalid regex.") from error

    def read(self, line: str) -> tuple[bytes | None, bytes | None, tuple[Header, ...]]:
        """Key, value and headers of the next line.

        Raises:
            LineError: a separator is missing.
        """
        self._number += 1
        position = 0
        headers: str | None = None
        key: str | None = None
        if self._parse_headers:
            headers = self._part(line, 0, self._delimiter, "headers delimiter")
            position = 0 if headers is None else len(headers) + len(self._delimiter)
        if self._parse_key:
            key = self._part(line, position, self._key_separator, "key separator")
            position += 0 if key is None else len(key) + len(self._key_separator)
        found: tuple[Header, ...] = ()
        if headers is not None and headers != self._null:
            found = tuple(map(self._header, self._split(headers)))
        return self._bytes(key), self._bytes(line[position:]), found

    def _check(self) -> None:
        separators = (
            ("headers.delimiter", self._delimiter),
            ("headers.separator", self._separator),
            ("headers.key.separator", self._header_key_separator),
        )
        for index, (name, value) in enumerate(separators):
            for other, text in separators[index + 1 :]:
                if value == text:
                    raise LineError(f"{name} and {other} may not be equal")
        for name, value in (
            ("key.separator", self._key_separator),
            ("headers.separator", self._separator),
            ("headers.delimiter", self._delimiter),
            ("headers.key.separator", self._header_key_separator),
        ):
            if value == self._null:
                raise LineError(f"null.marker and {name} may not be equal")

    def _part(self, line: str, start: int, separator: str, name: str) -> str | None:
        index = line.find(separator, start)
        if index >= 0:
            return line[start:index]
        if self._ignore_error:
            return None
        raise LineError(f"No {name} found on line number {self._number}: '{line}'")

    def _split(self, headers: str) -> list[str]:
        parts = self._pattern.split(headers)
        while len(parts) > 1 and not parts[-1]:
            parts.pop()  # as Pattern.split does
        return parts

    def _header(self, pair: str) -> Header:
        key, separator, value = pair.partition(self._header_key_separator)
        if not separator:
            if self._ignore_error:
                return Header(pair, None)
            raise LineError(
                f"No header key separator found in pair '{pair}' on line number {self._number}"
            )
        if key == self._null:
            raise LineError(
                f"Header keys should not be equal to the null marker '{self._null}' as they can't "
                "be null"
            )
        return Header(key, self._bytes(value))

    def _bytes(self, text: str | None) -> bytes | None:
        return None if text is None or text == self._null else text.encode()


@dataclass(slots=True)
class LineSource:
    """Lines of standard input, with a time limit for each read."""

    terminal: Terminal
    _pending: bytearray = field(default_factory=bytearray)
    _is_over: bool = False
    _is_prompted: bool = False

    def next_line(self, wait_s: float | None) -> tuple[()] | tuple[str] | None:
        """The next line; () if none arrived within `wait_s` seconds; None at the end."""
        while True:
            line = self._complete_line()
            if line is not None:
                self._is_prompted = False
                return (line.decode("utf-8", "replace"),)
            if self._is_over:
                return None
            self._prompt()
            if not self._is_ready(wait_s):
                return ()
            self._read()

    def _complete_line(self) -> bytes | None:
        """The next complete line, by BufferedReader.readLine's rule: LF, CR LF or CR ends it."""
        match = re.search(rb"\r\n|\n|\r", self._pending)
        if match is None or (match[0] == b"\r" and match.end() == len(self._pending)):
            if self._is_over and self._pending:
                match = re.search(rb"\r?\Z", self._pending)
            elif match is None or not self._is_over:
                return None
        assert match is not None, "the end of input ends a line"
        line = bytes(self._pending[: match.start()])
        del self._pending[: match.end()]
        return line

    def _prompt(self) -> None:
        if self.terminal.is_interactive and not self._is_prompted:
            self.terminal.write(b">")
            self.terminal.flush()
            self._is_prompted = True

    def _is_ready(self, wait_s: float | None) -> bool:
        try:
            descriptor = self.terminal.stdin.fileno()
        except (OSError, ValueError):
            return True
        readable, _, _ = select.select([descriptor], [], [], wait_s)
        return bool(readable)

    def _read(self) -> None:
        stdin = self.terminal.stdin
        # What is there, where `read` would wait for more.
        read = getattr(stdin, "read1", stdin.read)
        data = read(_READ_BYTES)
        if data:
            self._pending += data
        else:
            self._is_over = True


def _is_true(text: str | None) -> bool:
    return text is not None and text.strip().lower() == "true"
