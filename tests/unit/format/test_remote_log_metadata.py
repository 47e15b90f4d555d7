from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cordwood.format.message_schema import encode_message
from cordwood.format.remote_log_metadata import SCHEMAS, decode_remote_log_metadata
from cordwood.model.errors import CorruptError, UnsupportedVersionError


@pytest.mark.parametrize("name", sorted(SCHEMAS))
def test_every_message_round_trips(name: str) -> None:
    schema = SCHEMAS[name]
    body = encode_message(schema, 0, {"brokerId": 4})
    value = decode_remote_log_metadata(bytes([1, schema.key, 0]) + body)
    assert value.schema.name == name
    assert value.fields["brokerId"] == 4
    with pytest.raises(CorruptError):
        decode_remote_log_metadata(bytes([1, schema.key, 0]) + body + b"x")


def test_the_unknown_is_unsupported() -> None:
    for value in (b"\2\0\0", b"\1\x09\0", b"\1\0\1"):
        with pytest.raises(UnsupportedVersionError):
            decode_remote_log_metadata(value)


@given(st.integers(0, 3), st.binary(max_size=60))
def test_hostile_bytes_are_corrupt(key: int, data: bytes) -> None:
    with contextlib.suppress(CorruptError):
        decode_remote_log_metadata(bytes([1, key, 0]) + data)
