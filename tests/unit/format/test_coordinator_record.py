from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cordwood.format.coordinator_record import CoordinatorSchemas
from cordwood.model.errors import CorruptError, UnsupportedVersionError

RECORDS = CoordinatorSchemas.parse(
    keys="message ThingKey key=3 versions=0 flexible=none\n  name string\n",
    values="message ThingValue key=3 versions=0-1 flexible=1+\n  size int32\n",
)


@given(st.text(st.characters(exclude_categories=["Cs"]), max_size=20), st.integers(0, 1))
def test_round_trip(name: str, version: int) -> None:
    key = RECORDS.decode_key(RECORDS.encode_key(3, {"name": name}))
    assert (key.record_type, key.name, key.fields) == (3, "ThingKey", {"name": name})
    value = RECORDS.decode_value(3, RECORDS.encode_value(3, version, {"size": 5}))
    assert value is not None
    assert (value.version, value.fields) == (version, {"size": 5})


def test_null_is_a_tombstone() -> None:
    assert RECORDS.decode_value(3, None) is None


def test_bytes_after_the_last_field_are_not_looked_at() -> None:
    value = RECORDS.decode_value(3, RECORDS.encode_value(3, 0, {"size": 5}) + b"more")
    assert value is not None
    assert value.fields == {"size": 5}


def test_the_unknown_is_unsupported() -> None:
    with pytest.raises(UnsupportedVersionError):
        RECORDS.decode_key(b"\0\4abc")
    with pytest.raises(UnsupportedVersionError):
        RECORDS.decode_value(4, b"\0\0")
    with pytest.raises(UnsupportedVersionError):
        RECORDS.decode_value(3, b"\0\2\0\0\0\0")


def test_what_is_cut_off_is_corrupt() -> None:
    for key in (None, b"", b"\0", b"\0\3", b"\0\3\0\5ab"):
        with pytest.raises(CorruptError):
            RECORDS.decode_key(key)
    with pytest.raises(CorruptError):
        RECORDS.decode_value(3, b"")
