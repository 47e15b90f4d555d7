"""An answer becomes a document and again the same answer; its schema takes just such documents."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any, Literal

import jsonschema
import pytest

from cordwood.model.documents import (
    ABSENT,
    KEY,
    CamelCase,
    document_text,
    from_document,
    keys_of,
    schema_of,
    to_document,
)
from cordwood.model.errors import CorruptError


class Color(StrEnum):
    RED = "red"
    GREEN = "green"


@dataclass(frozen=True, slots=True, kw_only=True)
class Inner:
    name: str
    count: int | None
    pairs: tuple[tuple[str, int], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Outer:
    color: Color
    ratio: float
    is_due: bool
    inner: Inner | None
    inners: Sequence[Inner]
    by_name: Mapping[str, Inner]
    texts: Sequence[str] | None = field(default=None, metadata=ABSENT)
    later: int = 7


INNER = Inner(name="a", count=None, pairs=(("x", 1), ("y", 2)))
OUTER = Outer(
    color=Color.GREEN,
    ratio=0.5,
    is_due=True,
    inner=None,
    inners=(INNER, Inner(name="b", count=3)),
    by_name={"c": INNER},
)
DOCUMENT: dict[str, Any] = {
    "color": "green",
    "ratio": 0.5,
    "is_due": True,
    "inner": None,
    "inners": [
        {"name": "a", "count": None, "pairs": [["x", 1], ["y", 2]]},
        {"name": "b", "count": 3, "pairs": []},
    ],
    "by_name": {"c": {"name": "a", "count": None, "pairs": [["x", 1], ["y", 2]]}},
    "later": 7,
}


def fits(document: Any) -> bool:
    return bool(jsonschema.Draft202012Validator(schema_of(Outer, "outer")).is_valid(document))


@dataclass(frozen=True, slots=True, kw_only=True)
class Written:
    kind: Literal["a"] = "a"
    raw: bytes | None


def test_bytes_are_a_text_or_in_base64() -> None:
    schema = schema_of(Written, "written")
    for raw, document in (
        (b"\xc3\xa9", {"kind": "a", "raw": "\xe9"}),
        (b"\xff", {"kind": "a", "raw_base64": "/w=="}),
        (None, {"kind": "a", "raw": None}),
    ):
        assert to_document(Written(raw=raw)) == document
        jsonschema.validate(document, schema, jsonschema.Draft202012Validator)
    for document in (
        {"kind": "a"},
        {"kind": "b", "raw": None},
        {"kind": "a", "raw": "", "raw_base64": ""},
        {"kind": "a", "raw_base64": None},
    ):
        with pytest.raises(jsonschema.ValidationError):
            jsonschema.validate(document, schema, jsonschema.Draft202012Validator)


def test_the_fields_are_the_keys_in_their_order() -> None:
    assert document_text(OUTER) == json.dumps(DOCUMENT)
    assert keys_of(Inner) == ("name", "count", "pairs")
    assert to_document(Path("/data")) == "/data"


def test_what_is_absent_has_no_key_only_if_it_is_none() -> None:
    texts = Outer(**{name: getattr(OUTER, name) for name in DOCUMENT}, texts=())
    assert to_document(texts) == DOCUMENT | {"texts": []}


def test_a_document_is_read_as_the_answer() -> None:
    assert from_document(Outer, json.loads(json.dumps(DOCUMENT))) == OUTER


def test_keys_of_a_later_version_are_ignored_and_those_of_an_earlier_one_have_their_default() -> (
    None
):
    document = {name: value for name, value in DOCUMENT.items() if name != "later"}
    assert from_document(Outer, document | {"new": 1}) == OUTER


@pytest.mark.parametrize(
    "change",
    [
        {"color": "blue"},
        {"ratio": "x"},
        {"is_due": 1},
        {"inners": {}},
        {"inners": [1]},
        {"inner": 3},
    ],
)
def test_another_value_is_no_answer_and_does_not_fit_the_schema(change: dict[str, Any]) -> None:
    with pytest.raises(CorruptError, match="not an answer of this version"):
        from_document(Outer, DOCUMENT | change)
    assert not fits(DOCUMENT | change)


@pytest.mark.parametrize("missing", ["color", "inner", "by_name"])
def test_a_missing_key_is_no_answer_and_does_not_fit_the_schema(missing: str) -> None:
    document = {name: value for name, value in DOCUMENT.items() if name != missing}
    with pytest.raises(CorruptError):
        from_document(Outer, document)
    assert not fits(document)


def test_the_schema_takes_the_documents_of_answers_and_no_other_keys() -> None:
    assert fits(DOCUMENT)
    assert fits(DOCUMENT | {"texts": ["a"]})
    assert not fits(DOCUMENT | {"new": 1})


@dataclass(frozen=True, slots=True, kw_only=True)
class Either:
    found: Sequence[Inner | Outer | None]


def test_a_part_of_a_union_is_read_as_the_first_type_whose_keys_it_has() -> None:
    either = Either(found=(OUTER, INNER, None))
    assert from_document(Either, to_document(either)) == either
    validator = jsonschema.Draft202012Validator(schema_of(Either, "either"))
    assert validator.is_valid(to_document(either))
    with pytest.raises(CorruptError, match="no type of the union"):
        from_document(Either, {"found": [{"color": "red"}]})


@dataclass(frozen=True, slots=True, kw_only=True)
class Kafkas(CamelCase):
    log_end_offset: int
    inner: Inner
    duration_min: int = field(metadata={KEY: "duration(min)"})
    last_known_elr: int | None = field(default=None, metadata=ABSENT)


def test_keys_may_be_in_camel_case_or_named() -> None:
    answer = Kafkas(log_end_offset=3, inner=INNER, duration_min=7)
    document = to_document(answer)
    assert [*document] == ["logEndOffset", "inner", "duration(min)"]
    assert keys_of(Kafkas) == ("logEndOffset", "inner", "duration(min)", "lastKnownElr")
    assert from_document(Kafkas, document) == answer
    assert from_document(Kafkas, document | {"lastKnownElr": 1}).last_known_elr == 1
    validator = jsonschema.Draft202012Validator(schema_of(Kafkas, "kafkas"))
    assert validator.is_valid(json.loads(json.dumps(document)))
    assert not validator.is_valid({"log_end_offset": 3})
