"""The grammar of `--where`: columns, literals, operators, listed functions; no more passes."""

from __future__ import annotations

import json
import re

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from cordwood.cleanup.engine.search.condition import COLUMNS, FUNCTIONS, TYPES, parse_condition
from cordwood.cleanup.erasure.criteria import (
    Criteria,
    build_ledger_head,
    parse_ledger,
    parse_target,
)
from cordwood.model.errors import ConfigError, CorruptError
from cordwood.surfaces.http.erasures import parse_erasure

#: What Spark may be given, written apart from the parser: one token after the other.
WRITTEN = re.compile(
    "|".join(
        [
            r"`(?:" + "|".join(COLUMNS) + r")`",
            r"(?:" + "|".join([*FUNCTIONS, "CAST"]) + r")\(",
            r"AS (?:" + "|".join(TYPES) + r")\)",
            r"AS string\)",
            r"(?:TIMESTAMP|DATE) '[0-9T:.+Z -]*'",
            r"X'(?:[0-9a-fA-F]{2})*'",
            r"'[ !#-&(-\[\]-~]*'",
            r"\b(?:AND|OR|NOT|IS|NULL|TRUE|FALSE|BETWEEN|IN|LIKE|RLIKE)\b",
            r"[0-9]+(?:\.[0-9]+)?",
            r"<=>|==|<>|!=|<=|>=|\|\||[=<>+\-*/%(),\[\] ]",
        ]
    ),
    re.ASCII,
)

ATTACKS = [
    "java_method('java.lang.System', 'exit', '1')",
    "reflect('java.lang.Runtime', 'getRuntime') IS NOT NULL",
    "try_reflect('a', 'b') = 'c'",
    "value_text IN (SELECT value FROM text.`/etc/passwd`)",
    "EXISTS (SELECT 1 FROM csv.`/etc/passwd`)",
    "(SELECT max(value) FROM text.`/etc/passwd`) = 'x'",
    "true) OR (SELECT 1",
    "true\n) UNION SELECT (1",
    "'\\u0027 OR java_method(1) OR \\u0027' = key_text",
    "'\\047' = key_text",
    'key_text = "a\\x" OR reflect("a")',
    "1 = 1 -- comment",
    "1 = 1 /* comment */",
    "/*+ BROADCAST(t) */ true",
    "transform(map_keys(headers), x -> java_method(x))",
    "`key_text` = 'a'",
    "headers.trace = X'01'",
    "system.builtin.java_method('a', 'b') = 'c'",
    "java_method ('a', 'b') = 'c'",
    "\u017fubstr(key_text, 1) = 'a'",
    "\uff28\uff25\uff38(key) = 'a'",
    "cast(value AS struct<a: int>) IS NULL",
    "raise_error('x') IS NULL",
    "input_file_name() = 'a'",
    "${spark.home} = 'a'",
    ":parameter = 1",
    "IDENTIFIER('java_method')('a') = 'b'",
    "key_text = r'raw\\'",
    "@@x = 1",
    "key_text LIKE 'a' ESCAPE '/'",
    "1 = 1; SELECT 1",
    "1e400 = 1",
    "\x00true",
    "true\u2028",
    "topic = '\udc80'",
]


@pytest.mark.parametrize("text", ATTACKS)
def test_what_is_not_in_the_grammar_is_refused_with_its_place(text: str) -> None:
    with pytest.raises(ConfigError, match=r"^--where, character \d+: "):
        parse_condition(text)


@pytest.mark.parametrize(
    ("text", "sql"),
    [
        ("key_text = 'b'", "(`key_text` = 'b')"),
        ("OFFSET = 1", "(`offset` = 1)"),
        ("true or false and not null", "(TRUE OR (FALSE AND (NOT NULL)))"),
        ("not offset = 1 + 2 * -3", "(NOT (`offset` = (1 + (2 * (- 3)))))"),
        ("key_text not in ('a', 'b')", "(NOT (`key_text` IN ('a', 'b')))"),
        ("offset not between 1 and 2", "(NOT (`offset` BETWEEN 1 AND 2))"),
        ("headers['x'] is not null", "(`headers`['x'] IS NOT NULL)"),
        ("key = x'00FF'", "(`key` = X'00FF')"),
        ("timestamp < timestamp '2026-01-31 12:00:00'", None),
        ("lower(value_text) like '%a''b%'", None),
        ("cast(value_text as int) between 1 and 2", None),
        ("length(concat(key_text, 'a', \"b\")) <=> 3", None),
    ],
)
def test_what_is_in_the_grammar_is_written_with_all_parentheses(text: str, sql: str | None) -> None:
    condition = parse_condition(text)
    assert condition.text == text
    assert sql is None or condition.sql == sql
    require_allowed(condition.sql)


@pytest.mark.parametrize(
    ("literal", "data"),
    [
        ("'a''b'", b"a'b"),
        ("'a\\'b'", b"a'b"),
        ('"a""b"', b'a"b'),
        ("'a\"\"b'", b'a""b'),
        ("'\\\\d'", b"\\d"),
        ("'10\\%'", b"10\\%"),
        ("'\u00fc'", b"\xc3\xbc"),
    ],
)
def test_a_string_that_needs_an_escape_is_written_as_bytes(literal: str, data: bytes) -> None:
    assert parse_condition(literal).sql == f"CAST(X'{data.hex()}' AS string)"


@pytest.mark.parametrize(
    "text", ["(" * 5000 + "1" + ")" * 5000, "NOT " * 5000 + "true", "- " * 5000 + "1", "'" * 65537]
)
def test_what_would_take_much_stack_or_memory_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match=r"nested too deeply|characters; 65,536 are allowed"):
        parse_condition(text)


def require_allowed(sql: str) -> list[str]:
    """The tokens of what Spark gets, each of which is allowed."""
    tokens, at = [], 0
    while at < len(sql):
        match = WRITTEN.match(sql, at)
        assert match is not None, sql[at:]
        tokens.append(match.group())
        at = match.end()
    return tokens


PIECES = [
    *COLUMNS,
    *FUNCTIONS,
    *TYPES,
    *[
        "AND",
        "OR",
        "NOT",
        "IS",
        "NULL",
        "TRUE",
        "FALSE",
        "BETWEEN",
        "IN",
        "LIKE",
        "RLIKE",
        "CAST",
        "AS",
        "X",
        "TIMESTAMP",
        "DATE",
    ],
    *[
        "java_method",
        "reflect",
        "SELECT",
        "FROM",
        "text",
        "EXISTS",
        "IDENTIFIER",
        "ESCAPE",
        "ALL",
        "ANY",
    ],
    *[
        "(",
        ")",
        "[",
        "]",
        ",",
        ".",
        "`",
        "'",
        '"',
        "\\",
        "--",
        "/*",
        "*/",
        ";",
        "->",
        ":",
        "?",
        "${",
        "}",
        "@",
        "=",
        "==",
        "<>",
        "<=>",
        "<",
        "+",
        "-",
        "*",
        "/",
        "%",
        "||",
        "!",
        "&",
        "|",
        "^",
        "~",
    ],
    *["'a'", "'2026-01-31'", "'00ff'", "1", "1.5", "0x1", "\\u0027", "\n", "\x00", "\u00e9"],
]
NEAR = st.lists(st.sampled_from(PIECES), max_size=20).map(" ".join)


@given(st.one_of(NEAR, st.lists(st.sampled_from(PIECES), max_size=12).map("".join), st.text()))
@example("key_text IN ('a') OR headers['x'] = X'00' AND NOT cast(value AS string) RLIKE 'b'")
@settings(max_examples=1000, deadline=None)
def test_whatever_passes_is_written_with_allowed_words_only(text: str) -> None:
    try:
        sql = parse_condition(text).sql
    except ConfigError:
        return
    again = "".join(t.strip("`") if t.startswith("`") else t for t in require_allowed(sql))
    assert parse_condition(again).sql == sql


@given(st.text())
def test_no_string_leaves_its_literal(text: str) -> None:
    try:
        escaped = text.replace("\\", "\\\\").replace("'", "''")
        sql = parse_condition(f"key_text = '{escaped}'").sql
    except ConfigError:
        assert any("\ud800" <= character <= "\udfff" for character in text)
        return
    require_allowed(sql)
    written = re.fullmatch(r"\(`key_text` = CAST\(X'([0-9a-f]*)' AS string\)\)", sql)
    found = sql[len("(`key_text` = '") : -2] if written is None else ""
    assert text == (found if written is None else bytes.fromhex(written[1]).decode())


def test_a_criterion_a_request_and_a_ledger_refuse_alike() -> None:
    attack = ATTACKS[0]
    with pytest.raises(ConfigError, match=r"character 1: .* is no function that is allowed here"):
        Criteria(where=attack)
    body = {
        "id": "erasure-0123456789ab",
        "topics": ["t"],
        "keys": [],
        "where": attack,
        "salt": "00" * 32,
        "ledger_salt": "00" * 32,
        "reason": "",
        "operator": "",
        "dry_run": False,
        "max_extra_bytes": None,
    }
    with pytest.raises(ConfigError, match="is no function that is allowed here"):
        parse_erasure(json.dumps(body).encode(), now_ms=0)
    line = {"id": "erasure-0", "time_ms": 1, "topics": ["t"], "until": {}, "where": attack}
    data = build_ledger_head(bytes(32)) + json.dumps(line).encode() + b"\n"
    with pytest.raises(CorruptError, match=r"line 2 .* is no function that is allowed here"):
        parse_ledger(data, path="ledger")


def test_the_names_of_a_ledger_cannot_leave_their_literals() -> None:
    name = "t' OR java_method('a', 'b') OR '"
    line = {
        "id": "erasure-0",
        "time_ms": 1,
        "topics": [name],
        "until": {f"{name}-0": 5},
        "where": "true",
    }
    data = build_ledger_head(bytes(32)) + json.dumps(line).encode() + b"\n"
    (condition,) = parse_ledger(data, path="ledger").conditions()
    assert "java_method" not in condition.sql
    assert parse_target("t").topic == "t"
