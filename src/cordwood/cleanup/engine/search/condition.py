"""The expressions of `--where`: a part of Spark SQL, parsed here and written again for Spark.

Spark evaluates SQL with functions that run any static Java method, and with queries that read any
file. So no text of a user reaches it: an expression is parsed by the grammar below, and what Spark
gets is written from the parsed tree, with names of this module and quoted literals only. Whatever
the grammar does not have is refused where it stands.

    or:       and {OR and}
    and:      not {AND not}
    not:      NOT not | test
    test:     sum [(= | == | <> | != | < | <= | > | >= | <=>) sum
              | IS [NOT] (NULL | TRUE | FALSE) | [NOT] BETWEEN sum AND sum
              | [NOT] IN (or {, or}) | [NOT] (LIKE | RLIKE) sum]
    sum:      product {(+ | - | ||) product}
    product:  unary {(* | / | %) unary}
    unary:    (- | +) unary | primary
    primary:  literal | column | headers[or] | function(or, ...) | CAST(or AS type) | (or)

Source: Spark's SqlBaseParser.g4 (`booleanExpression`, `valueExpression`, `predicate`), whose
precedences these are; org.apache.spark.sql.catalyst.util.SparkParserUtils.unescapeSQLString.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from cordwood.model.errors import ConfigError

COLUMNS: Final = (
    "topic",
    "partition",
    "offset",
    "timestamp",
    "timestamp_ms",
    "key",
    "value",
    "key_text",
    "value_text",
    "headers",
)
#: The functions, and how many arguments each takes, at least and at most.
FUNCTIONS: Final = {
    "abs": (1, 1),
    "coalesce": (1, 16),
    "concat": (1, 16),
    "contains": (2, 2),
    "endswith": (2, 2),
    "get_json_object": (2, 2),
    "hex": (1, 1),
    "instr": (2, 2),
    "left": (2, 2),
    "length": (1, 1),
    "lower": (1, 1),
    "ltrim": (1, 1),
    "map_contains_key": (2, 2),
    "md5": (1, 1),
    "nullif": (2, 2),
    "octet_length": (1, 1),
    "right": (2, 2),
    "rtrim": (1, 1),
    "sha2": (2, 2),
    "startswith": (2, 2),
    "substr": (2, 3),
    "substring": (2, 3),
    "trim": (1, 1),
    "unhex": (1, 1),
    "upper": (1, 1),
}
TYPES: Final = (
    "bigint",
    "binary",
    "boolean",
    "date",
    "double",
    "int",
    "string",
    "timestamp",
)
_LENGTH_MAX = 65_536
#: Of Spark's parser, each level takes some frames of a Java thread's stack.
_DEPTH_MAX = 64
_SHOWN_MAX = 40

_COMPARISONS: Final = frozenset(["=", "==", "<>", "!=", "<", "<=", ">", ">=", "<=>"])
_TOKEN: Final = re.compile(
    r"""(?P<space>[ \t\r\n]+)
    | (?P<comment>--|/\*)
    | (?P<string>'(?:[^'\\]|\\.|'')*'|"(?:[^"\\]|\\.|"")*")
    | (?P<number>[0-9]{1,38}(?:\.[0-9]{1,38})?(?![0-9A-Za-z_.]))
    | (?P<name>[A-Za-z_][A-Za-z0-9_]*)
    | (?P<symbol><=>|==|<>|!=|<=|>=|\|\||[=<>+\-*/%(),\[\]])
    """,
    re.VERBOSE | re.ASCII | re.DOTALL,
)
_ESCAPES: Final = {"n": "\n", "t": "\t", "r": "\r", "%": "\\%", "_": "\\_"}
_ESCAPE: Final = re.compile(r"""\\([\\'"ntr%_])|\\.|''|\"\"""", re.DOTALL)
_PLAIN: Final = re.compile(r"[ !#-&(-\[\]-~]*", re.ASCII)
_TIME: Final = re.compile(
    r"[0-9]{4}-[0-9]{2}-[0-9]{2}([ T][0-9]{2}:[0-9]{2}(:[0-9]{2}(\.[0-9]{1,6})?)?)?"
    r"(Z|[+-][0-9]{2}:[0-9]{2})?",
    re.ASCII,
)
_DATE: Final = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}", re.ASCII)


@dataclass(frozen=True, slots=True, kw_only=True)
class Condition:
    """A boolean expression: `text` as it was given, `sql` as Spark gets it."""

    text: str
    sql: str


def parse_condition(text: str) -> Condition:
    """Parses an expression; that it is boolean, only Spark finds out.

    Raises:
        ConfigError: it is not of the grammar; says where, and what is allowed.
    """
    parser = _Parser(text)
    return Condition(text=text, sql=parser.whole())


def quoted(text: str) -> str:
    """A literal of Spark SQL for a string; where an escape would be needed, its bytes.

    Raises:
        ValueError: it is no Unicode text.
    """
    if _PLAIN.fullmatch(text):
        return f"'{text}'"
    return f"CAST(X'{text.encode().hex()}' AS string)"


@dataclass(frozen=True, slots=True)
class _Token:
    """`kind` is string, number, name, symbol, or end; `at` is its first character, from 0."""

    kind: str
    text: str
    at: int

    @property
    def word(self) -> str:
        """A name or symbol in capitals; nothing for others."""
        return self.text.upper() if self.kind in {"name", "symbol"} else ""


@dataclass(frozen=True, slots=True)
class _Node:
    """A parsed expression, and how many levels it has."""

    sql: str
    depth: int = 1


class _Parser:
    """Parses one expression, by a method for each rule."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._nesting = 0
        if len(text) > _LENGTH_MAX:
            raise ConfigError(
                f"--where: an expression of {len(text):,} characters; {_LENGTH_MAX:,} are allowed"
            )
        self._tokens = self._split()
        self._next = 0

    def _split(self) -> list[_Token]:
        tokens: list[_Token] = []
        at = 0
        while at < len(self._text):
            match = _TOKEN.match(self._text, at)
            if match is None or match.lastgroup is None or match.lastgroup == "comment":
                raise self._wrong(
                    at,
                    "is not of an expression: there are names, numbers, strings in quotes, "
                    "X'00ff', TIMESTAMP '2026-01-31 00:00:00', operators and parentheses",
                )
            if match.lastgroup != "space":
                tokens.append(_Token(match.lastgroup, match.group(), at))
            at = match.end()
        tokens.append(_Token("end", "", len(self._text)))
        return tokens

    def _wrong(self, at: int, what: str) -> ConfigError:
        shown = self._text[at : at + _SHOWN_MAX]
        where = repr(shown) if shown else "the end of the expression"
        return ConfigError(f"--where, character {at + 1}: {where} {what}")

    # ---- tokens

    @property
    def _token(self) -> _Token:
        return self._tokens[self._next]

    def _take(self, *words: str) -> str:
        """The next token's word if it is one of these, which is then passed; else nothing."""
        word = self._token.word
        if not word or word not in words:
            return ""
        self._next += 1
        return word

    def _require(self, word: str) -> None:
        if not self._take(word):
            raise self._wrong(self._token.at, f"is there in place of {word}")

    def _node(self, at: int, sql: str, *parts: _Node) -> _Node:
        depth = 1 + max((part.depth for part in parts), default=0)
        if depth > _DEPTH_MAX:
            raise self._wrong(at, f"is nested too deeply: {_DEPTH_MAX} levels are allowed")
        return _Node(sql, depth)

    # ---- rules

    def whole(self) -> str:
        """The whole text."""
        node = self._or()
        if self._token.kind != "end":
            raise self._wrong(
                self._token.at, "does not continue an expression; AND, OR or an operator would"
            )
        return node.sql

    def _or(self) -> _Node:
        at = self._token.at
        self._nesting += 1
        if self._nesting > _DEPTH_MAX:
            raise self._wrong(at, f"is nested too deeply: {_DEPTH_MAX} levels are allowed")
        parts = [self._and()]
        while self._take("OR"):
            parts.append(self._and())
        self._nesting -= 1
        return self._joined(at, "OR", parts)

    def _and(self) -> _Node:
        at = self._token.at
        parts = [self._not()]
        while self._take("AND"):
            parts.append(self._not())
        return self._joined(at, "AND", parts)

    def _joined(self, at: int, word: str, parts: list[_Node]) -> _Node:
        if len(parts) == 1:
            return parts[0]
        return self._node(at, f"({f' {word} '.join(part.sql for part in parts)})", *parts)

    def _not(self) -> _Node:
        at, count = self._token.at, 0
        while self._take("NOT"):
            count += 1
        node = self._test()
        for _ in range(count):
            node = self._node(at, f"(NOT {node.sql})", node)
        return node

    def _test(self) -> _Node:
        at = self._token.at
        left = self._sum()
        operator = self._take(*_COMPARISONS)
        if operator:
            right = self._sum()
            return self._node(at, f"({left.sql} {operator} {right.sql})", left, right)
        if self._take("IS"):
            negated = "NOT " if self._take("NOT") else ""
            what = self._take("NULL", "TRUE", "FALSE")
            if not what:
                raise self._wrong(self._token.at, "is there in place of NULL, TRUE or FALSE")
            return self._node(at, f"({left.sql} IS {negated}{what})", left)
        if self._token.word == "NOT" and self._tokens[self._next + 1].word in {
            "BETWEEN",
            "IN",
            "LIKE",
            "RLIKE",
        }:
            self._next += 1
            node = self._chosen(at, left)
            assert node is not None, "one of the words is there"
            return self._node(at, f"(NOT {node.sql})", node)
        return self._chosen(at, left) or left

    def _chosen(self, at: int, left: _Node) -> _Node | None:
        """BETWEEN, IN, LIKE or RLIKE after its left operand; None if there is none."""
        if self._take("BETWEEN"):
            low = self._sum()
            self._require("AND")
            high = self._sum()
            sql = f"({left.sql} BETWEEN {low.sql} AND {high.sql})"
            return self._node(at, sql, left, low, high)
        if self._take("IN"):
            self._require("(")
            choices = self._list()
            sql = f"({left.sql} IN ({', '.join(each.sql for each in choices)}))"
            return self._node(at, sql, left, *choices)
        word = self._take("LIKE", "RLIKE")
        if not word:
            return None
        pattern = self._sum()
        return self._node(at, f"({left.sql} {word} {pattern.sql})", left, pattern)

    def _sum(self) -> _Node:
        at = self._token.at
        node = self._product()
        while operator := self._take("+", "-", "||"):
            right = self._product()
            node = self._node(at, f"({node.sql} {operator} {right.sql})", node, right)
        return node

    def _product(self) -> _Node:
        at = self._token.at
        node = self._unary()
        while operator := self._take("*", "/", "%"):
            right = self._unary()
            node = self._node(at, f"({node.sql} {operator} {right.sql})", node, right)
        return node

    def _unary(self) -> _Node:
        at, signs = self._token.at, []
        while sign := self._take("-", "+"):
            signs.append(sign)
        node = self._primary()
        for sign in reversed(signs):
            node = self._node(at, f"({sign} {node.sql})", node)
        return node

    def _primary(self) -> _Node:
        token = self._token
        if token.kind == "number":
            self._next += 1
            return _Node(token.text)
        if token.kind == "string":
            self._next += 1
            return _Node(self._quoted(token))
        if self._take("("):
            node = self._or()
            self._require(")")
            return node
        if self._take("NULL", "TRUE", "FALSE"):
            return _Node(token.word)
        if token.word in {"X", "TIMESTAMP", "DATE"} and self._is_string_next():
            self._next += 1
            return self._typed(token)
        if token.kind == "name" and self._tokens[self._next + 1].word == "(":
            return self._cast() if token.word == "CAST" else self._call()
        return self._column()

    def _is_string_next(self) -> bool:
        return self._tokens[self._next + 1].kind == "string"

    def _quoted(self, token: _Token) -> str:
        try:
            return quoted(self._string(token))
        except ValueError:
            raise self._wrong(token.at, "is no Unicode text") from None

    def _string(self, token: _Token) -> str:
        def unescaped(match: re.Match[str]) -> str:
            if match.group(1):
                return _ESCAPES.get(match.group(1), match.group(1))
            if match.group().startswith("\\"):
                raise self._wrong(
                    token.at + 1 + match.start(),
                    "has an escape that is not one of \\\\ \\' \\\" \\n \\t \\r \\% \\_",
                )
            # Two quotes of the kind that delimits stand for one; two others for themselves.
            return match.group()[0] if match.group()[0] == token.text[0] else match.group()

        return _ESCAPE.sub(unescaped, token.text[1:-1])

    def _typed(self, kind: _Token) -> _Node:
        """X'00ff', TIMESTAMP '...' or DATE '...', whose first word is passed."""
        token = self._token
        self._next += 1
        text = self._string(token)
        if kind.word == "X":
            if not re.fullmatch(r"([0-9A-Fa-f]{2})*", text, re.ASCII):
                raise self._wrong(token.at, "is not hexadecimal")
        elif not (_TIME if kind.word == "TIMESTAMP" else _DATE).fullmatch(text):
            raise self._wrong(
                token.at, "is no time; write it as '2026-01-31' or '2026-01-31 12:00:00'"
            )
        return _Node(f"{kind.word} '{text}'" if kind.word != "X" else f"X'{text}'")

    def _column(self) -> _Node:
        token = self._token
        name = token.text.lower()
        if token.kind != "name" or name not in COLUMNS:
            raise self._wrong(
                token.at,
                f"is there in place of a literal, a function or a column: {', '.join(COLUMNS)}",
            )
        self._next += 1
        if name == "headers" and self._take("["):
            index = self._or()
            self._require("]")
            return self._node(token.at, f"`headers`[{index.sql}]", index)
        return _Node(f"`{name}`")

    def _call(self) -> _Node:
        token = self._token
        name = token.text.lower()
        if name not in FUNCTIONS:
            raise self._wrong(
                token.at,
                f"is no function that is allowed here; those are {', '.join(FUNCTIONS)} and CAST",
            )
        self._next += 2
        arguments = self._list()
        least, most = FUNCTIONS[name]
        if not least <= len(arguments) <= most:
            wanted = f"{least}" if least == most else f"{least} to {most}"
            raise self._wrong(token.at, f"has {len(arguments)} arguments, and takes {wanted}")
        sql = f"{name}({', '.join(each.sql for each in arguments)})"
        return self._node(token.at, sql, *arguments)

    def _cast(self) -> _Node:
        token = self._token
        self._next += 2
        node = self._or()
        self._require("AS")
        name = self._token.text.lower()
        if self._token.kind != "name" or name not in TYPES:
            raise self._wrong(self._token.at, f"is there in place of a type: {', '.join(TYPES)}")
        self._next += 1
        self._require(")")
        return self._node(token.at, f"CAST({node.sql} AS {name})", node)

    def _list(self) -> list[_Node]:
        """Expressions up to the closing parenthesis; the opening one is passed."""
        found = [self._or()]
        while self._take(","):
            found.append(self._or())
        self._require(")")
        return found
