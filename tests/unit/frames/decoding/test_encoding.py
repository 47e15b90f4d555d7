"""The options of encodings: what is taken, and what is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from cordwood.frames.decoding.encoding import (
    Encoding,
    Format,
    Malformed,
    Prefix,
    parse_encodings,
)
from cordwood.frames.options import parse_options
from cordwood.model.errors import ConfigError


def test_nothing_is_decoded_by_default() -> None:
    assert parse_encodings({}) == ()
    assert parse_encodings({"valueformat": "binary", "keyformat": "BINARY"}) == ()


def test_keys_and_values_have_options_of_their_own() -> None:
    options = {
        "keyformat": "JSON",
        "keyschema": "string",
        "valueformat": "avro",
        "valueschema": '"long"',
        "valueprefix": "confluent",
        "valueschemas": '{"7": "\\"int\\"", "3": {"type": "long"}}',
        "malformed": "null",
    }
    assert parse_encodings(options) == (
        Encoding(column="key", format=Format.JSON, schema=b"string", malformed=Malformed.NULL),
        Encoding(
            column="value",
            format=Format.AVRO,
            schema=b'"long"',
            prefix=Prefix.CONFLUENT,
            writer_schemas=((3, '{"type": "long"}'), (7, '"int"')),
            malformed=Malformed.NULL,
        ),
    )


def test_schemas_may_be_in_files(tmp_path: Path) -> None:
    avro, proto = tmp_path / "a.avsc", tmp_path / "p.desc"
    avro.write_text('"int"')
    proto.write_bytes(b"\xff\0")
    (found,) = parse_encodings(
        {
            "valueformat": "avro",
            "valueschema": str(avro),
            "valueprefix": "confluent",
            "valueschemas": f'{{"1": "{avro}"}}',
        }
    )
    assert (found.schema, found.writer_schemas) == (b'"int"', ((1, '"int"'),))
    (found,) = parse_encodings(
        {"keyformat": "protobuf", "keyschema": str(proto), "keymessage": "a.B"}
    )
    assert (found.schema, found.message) == (b"\xff\0", "a.B")
    with pytest.raises(FileNotFoundError):
        parse_encodings({"valueformat": "avro", "valueschema": str(tmp_path / "none")})


AVRO = {"valueformat": "avro", "valueschema": '"int"'}
FRAMED = {**AVRO, "valueprefix": "confluent"}


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"valueformat": "xml"}, "valueFormat: 'xml' is none of binary, json, avro, protobuf"),
        ({"valueschema": "a int"}, "valueSchema needs valueFormat: json, avro, protobuf"),
        ({"keyprefix": "none"}, "keyPrefix needs keyFormat"),
        ({"keyformat": "json"}, "keySchema is missing: keyFormat=json needs it"),
        (
            {"valueformat": "protobuf", "valueschema": "f"},
            "valueMessage is missing: valueFormat=protobuf needs it",
        ),
        ({**AVRO, "valuemessage": "m"}, "valueMessage is not for valueFormat=avro"),
        ({**AVRO, "valueprefix": "x"}, "valuePrefix: 'x' is none of none, confluent"),
        ({**AVRO, "malformed": "skip"}, "malformed: 'skip' is none of fail, null"),
        ({**AVRO, "valueschemas": "{}"}, "valueSchemas is for valueFormat=avro with"),
        ({**FRAMED, "valueschemas": "{}"}, "valueSchemas: expected a JSON object"),
        ({**FRAMED, "valueschemas": "[1]"}, "valueSchemas: expected a JSON object"),
        ({**FRAMED, "valueschemas": "{"}, "valueSchemas: expected a JSON object"),
        ({**FRAMED, "valueschemas": '{"x": "int"}'}, "valueSchemas: expected a JSON object"),
        ({**FRAMED, "valueschemas": '{"-1": "int"}'}, "valueSchemas: expected a JSON object"),
    ],
)
def test_what_cannot_be_used_is_refused(options: dict[str, str], why: str) -> None:
    with pytest.raises(ConfigError, match=why):
        parse_encodings(options)


def test_they_are_options_of_a_table_in_whatever_case() -> None:
    options = parse_options(
        {"path": "x", "valueFormat": "json", "VALUESCHEMA": "a int", "valueprefix": "none"}
    )
    assert [each.column for each in options.encodings] == ["value"]
