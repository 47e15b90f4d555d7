"""Spark's DDL of a schema, such as `id bigint, tags array<string>`, as an Arrow type.

Source: Spark's SQL reference, data types; org.apache.spark.sql.types.DataType.fromDDL.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

import pyarrow as pa

from cordwood.model.errors import ConfigError

_TOKEN: Final = re.compile(
    r"\s*(?:([A-Za-z_]\w*|\d+)|`((?:[^`]|``)+)`|('(?:[^'\\]|\\.|'')*')|(\S))"
)
_DECIMAL: Final = ("decimal", "dec", "numeric")
_PRECISION_MAX: Final = 38
_TYPES: Final[Mapping[str, pa.DataType]] = {
    "boolean": pa.bool_(),
    "tinyint": pa.int8(),
    "byte": pa.int8(),
    "smallint": pa.int16(),
    "short": pa.int16(),
    "int": pa.int32(),
    "integer": pa.int32(),
    "bigint": pa.int64(),
    "long": pa.int64(),
    "float": pa.float32(),
    "real": pa.float32(),
    "double": pa.float64(),
    "string": pa.string(),
    "varchar": pa.string(),
    "char": pa.string(),
    "binary": pa.binary(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us", tz="UTC"),
    "timestamp_ltz": pa.timestamp("us", tz="UTC"),
    "timestamp_ntz": pa.timestamp("us"),
}
_NESTED: Final = ("array", "map", "struct")


def parse_ddl(text: str) -> pa.DataType:
    """The struct of columns `name type, …`, or one type. All of it may be null.

    Raises:
        ConfigError: it is neither; says where.
    """
    parser = _Parser(text)
    found = parser.type() if parser.is_type() else parser.columns("")
    parser.end()
    return found


class _Parser:
    def __init__(self, text: str) -> None:
        self._text = text
        # Words as they are typed, names in backquotes behind a backquote, and single characters.
        self._tokens = [
            word or (quoted and f"`{quoted.replace('``', '`')}") or literal or other
            for word, quoted, literal, other in _TOKEN.findall(text)
        ]
        self._at = 0

    def is_type(self) -> bool:
        """Whether it is one type, and no list of columns."""
        first, second = self._peek().lower(), self._peek(1)
        is_known = first in _TYPES or first in _DECIMAL or first in _NESTED
        return is_known and second in {"", "<", "("}

    def columns(self, closing: str) -> pa.DataType:
        """Columns up to a token, which is not taken."""
        found: list[pa.Field] = []
        while self._peek() != closing:
            if found:
                self._take(",")
            name = self._name()
            if self._peek() == ":":
                self._take(":")
            found.append(pa.field(name, self.type()))
            self._skip_constraints()
        names = [each.name for each in found]
        if not names or len(set(names)) < len(names):
            raise self._wrong("there is no column" if not names else "a column is named twice")
        return pa.struct(found)

    def type(self) -> pa.DataType:
        """A type, with what it holds."""
        name = self._next().lower()
        if name in _DECIMAL:
            return self._decimal()
        if name == "array":
            self._take("<")
            kind = pa.list_(self.type())
        elif name == "map":
            self._take("<")
            key = self.type()
            self._take(",")
            kind = pa.map_(key, self.type())
        elif name == "struct":
            self._take("<")
            kind = self.columns(">")
        elif name in _TYPES:
            if name in {"varchar", "char"} and self._peek() == "(":
                self._numbers()
            return _TYPES[name]
        else:
            raise self._wrong(f"{name!r} is no type")
        self._take(">")
        return kind

    def end(self) -> None:
        """Checks that nothing is left."""
        if self._peek():
            raise self._wrong(f"{self._peek()!r} is not expected")

    def _decimal(self) -> pa.DataType:
        numbers = self._numbers() if self._peek() == "(" else [10]
        precision, scale = [*numbers, 0][:2]
        if not 0 < precision <= _PRECISION_MAX or scale > precision:
            raise self._wrong(f"a decimal has at most {_PRECISION_MAX} digits")
        return pa.decimal128(precision, scale)

    def _numbers(self) -> list[int]:
        self._take("(")
        found: list[int] = []
        while not found or self._peek() == ",":
            if found:
                self._take(",")
            word = self._next()
            if not word.isdecimal():
                raise self._wrong(f"{word!r} is no number")
            found.append(int(word))
        self._take(")")
        return found

    def _skip_constraints(self) -> None:
        """Skips NOT NULL, as a value may lack anything, and comments."""
        if self._peek().lower() == "not":
            self._next()
            if self._next().lower() != "null":
                raise self._wrong("NOT without NULL")
        if self._peek().lower() == "comment":
            self._next()
            self._next()

    def _name(self) -> str:
        word = self._next()
        if word.startswith("`"):
            return word[1:]
        if not re.fullmatch(r"\w+", word):
            raise self._wrong(f"{word!r} is no name")
        return word

    def _peek(self, ahead: int = 0) -> str:
        place = self._at + ahead
        return self._tokens[place] if place < len(self._tokens) else ""

    def _next(self) -> str:
        word = self._peek()
        if not word:
            raise self._wrong("it ends too early")
        self._at += 1
        return word

    def _take(self, token: str) -> None:
        word = self._next()
        if word != token:
            raise self._wrong(f"{token!r} is expected, not {word!r}")

    def _wrong(self, why: str) -> ConfigError:
        return ConfigError(f"schema {self._text!r}: {why}")
