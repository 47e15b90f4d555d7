from __future__ import annotations

import contextlib
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cordwood.format.message_schema import (
    VersionRange,
    decode_message,
    encode_message,
    message_json,
    require_readable,
    schemas,
)
from cordwood.format.varint import CutOffError
from cordwood.model.errors import CorruptError, EncodingError, UnsupportedVersionError

SCHEMAS = schemas(
    """
message Old versions=0-1 flexible=none
  name string
  note string?1+
  data bytes? default=null
  list []int16
  late int32 1+ default=-1

message New key=7 versions=0-2 flexible=1+
  number int8
  inner {}?
    flag bool
    port uint16
  many []{}
    id uuid
    real float64
  gone int64 0
  tagged []int32? 1+ tag=0 default=null
  extra int32 2+ tag=3 default=-2
  box {}? 1+ tag=4
    size int32
"""
)
OLD, NEW = SCHEMAS["Old"], SCHEMAS["New"]
FULL: dict[str, Any] = {
    "number": -3,
    "inner": {"flag": True, "port": 65535},
    "many": [{"id": UUID(bytes=bytes(range(16))), "real": -0.5}],
    "tagged": [1, -1],
    "extra": 9,
    "box": None,
}


def test_old_messages_use_fixed_lengths() -> None:
    data = encode_message(
        OLD, 1, {"name": "ab", "note": None, "data": b"x", "list": [1], "late": 5}
    )
    assert data.hex() == "00026162ffff000000017800000001000100000005"
    assert decode_message(OLD, 1, data).fields["list"] == [1]


def test_what_a_version_lacks_has_its_default_and_no_place_in_json() -> None:
    value = decode_message(OLD, 0, encode_message(OLD, 0, {"name": "", "note": "n"}))
    assert value.fields["late"] == -1
    assert list(message_json(value)) == ["name", "note", "data", "list"]


@pytest.mark.parametrize("version", [1, 2])
def test_flexible_round_trip(version: int) -> None:
    value = decode_message(NEW, version, encode_message(NEW, version, FULL))
    expected = dict(FULL, gone=0)
    if version == 1:
        expected["extra"] = -2
    assert value.fields == expected
    assert encode_message(NEW, version, value.fields) == encode_message(NEW, version, FULL)


def test_tagged_fields_at_their_default_are_left_out() -> None:
    value = decode_message(NEW, 2, encode_message(NEW, 2, {"number": 1, "inner": None}))
    assert message_json(value) == {"number": 1, "inner": None, "many": []}
    assert value.fields["box"] == {"size": 0}


def test_null_in_a_tagged_struct_is_an_unsigned_varint() -> None:
    data = encode_message(NEW, 2, {"inner": None, "box": None})
    assert data.hex() == "00ff0101040100"
    assert message_json(decode_message(NEW, 2, data))["box"] is None


def test_unknown_tags_are_passed_over() -> None:
    data = encode_message(NEW, 1, {"inner": None})
    assert data.endswith(b"\0")
    tagged = data[:-1] + b"\x01\x63\x02xy"
    assert decode_message(NEW, 1, tagged).fields["tagged"] is None


@pytest.mark.parametrize(
    ("data", "words"),
    [
        ("00ff0101030100000001", "Tag 3 is not valid for version 1"),
        ("00ff0000", "non-nullable field many was serialized as null"),
        ("00ff6300", "Tried to allocate a collection of size 98"),
        ("00ff01016305", "Error reading byte array of 5 byte"),
        ("00ff0100ee", "1 bytes are left over"),
    ],
)
def test_errors_are_in_the_words_of_kafka(data: str, words: str) -> None:
    with pytest.raises(CorruptError, match=words):
        decode_message(NEW, 1, bytes.fromhex(data))


def test_a_number_that_is_cut_off_is_told_apart() -> None:
    with pytest.raises(CutOffError):
        decode_message(NEW, 1, b"")


def test_unknown_versions_are_unsupported() -> None:
    with pytest.raises(UnsupportedVersionError):
        decode_message(NEW, 3, b"")
    with pytest.raises(UnsupportedVersionError):
        encode_message(OLD, 2, {})


def test_version_ranges() -> None:
    assert 5 in VersionRange.parse("2+")
    assert 1 not in VersionRange.parse("2+")
    assert 3 in VersionRange.parse("3")
    assert 4 not in VersionRange.parse("0-3")
    assert 0 not in VersionRange.parse("none")


@given(st.sampled_from([OLD, NEW]), st.integers(0, 2), st.binary(max_size=60))
def test_hostile_bytes_are_corrupt(schema: Any, version: int, data: bytes) -> None:
    with contextlib.suppress(CorruptError):
        message_json(decode_message(schema, version, data))


TEXT = schemas(
    """
message Text key=8 versions=0-1 flexible=1+
  name string
  note string?
  number int32
"""
)["Text"]
LONGEST = "x" * 32_767


@pytest.mark.parametrize("version", [0, 1], ids=["legacy", "compact"])
def test_a_string_has_at_most_32767_bytes_in_every_version(version: int) -> None:
    fields = {"name": LONGEST, "note": LONGEST, "number": 1}
    assert decode_message(TEXT, version, encode_message(TEXT, version, fields)).fields == fields
    for wrong in ({"name": LONGEST + "x"}, {"note": "\u00e9" * 16_384}):
        with pytest.raises(EncodingError, match="too long to be serialized: 32768 bytes"):
            encode_message(TEXT, version, wrong)


@pytest.mark.parametrize("version", [0, 1], ids=["legacy", "compact"])
@pytest.mark.parametrize(
    "wrong",
    [{"name": None}, {"number": 1 << 31}, {"number": None}, {"name": 5}, {"name": "\ud800"}],
    ids=["null", "too large", "no number", "no text", "surrogate"],
)
def test_a_value_that_does_not_fit_its_field_is_not_written(
    version: int, wrong: dict[str, Any]
) -> None:
    with pytest.raises(EncodingError, match=f"Text of version {version}"):
        encode_message(TEXT, version, wrong)


def test_a_compact_string_that_is_too_long_is_not_read() -> None:
    good = encode_message(TEXT, 1, {"name": "x", "note": None, "number": 1})
    long = b"\x81\x80\x02" + b"x" * 32_768 + good[2:]
    with pytest.raises(CorruptError, match="string field name had invalid length 32768"):
        decode_message(TEXT, 1, long)


def test_what_is_written_is_read_back_and_compared() -> None:
    data = encode_message(NEW, 1, FULL)
    require_readable(NEW, 1, FULL, data)
    require_readable(NEW, 1, {**FULL, "many": tuple(FULL["many"])}, data)
    with pytest.raises(EncodingError, match="reads back with another number"):
        require_readable(NEW, 1, {**FULL, "number": 4}, data)
    with pytest.raises(EncodingError, match="reads back with another many"):
        require_readable(NEW, 1, {**FULL, "many": []}, data)
    with pytest.raises(EncodingError, match="cannot be read back"):
        require_readable(NEW, 1, FULL, data[:-1])
