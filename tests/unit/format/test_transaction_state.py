from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cordwood.format.transaction_state import (
    TRANSACTION_RECORDS,
    decode_transaction_key,
    decode_transaction_value,
)
from cordwood.model.errors import CorruptError, UnsupportedVersionError


@pytest.mark.parametrize("version", [0, 1])
def test_round_trip(version: int) -> None:
    key = decode_transaction_key(TRANSACTION_RECORDS.encode_key(0, {"transactionalId": "t"}))
    assert key.fields == {"transactionalId": "t"}
    fields = {
        "producerId": 9,
        "nextProducerId": 10,
        "transactionStatus": 1,
        "transactionPartitions": [{"topic": "a", "partitionIds": [0, 2]}],
    }
    value = decode_transaction_value(0, TRANSACTION_RECORDS.encode_value(0, version, fields))
    assert value is not None
    assert value.fields["transactionPartitions"] == fields["transactionPartitions"]
    # The tagged fields came with version 1.
    assert value.fields["nextProducerId"] == (10 if version else -1)


def test_unknown_types_are_unsupported() -> None:
    with pytest.raises(UnsupportedVersionError):
        decode_transaction_key(b"\0\1\0\0")


@given(st.integers(0, 1), st.binary(max_size=60))
def test_hostile_bytes_are_corrupt(version: int, data: bytes) -> None:
    for decode in (
        lambda: decode_transaction_key(data),
        lambda: decode_transaction_value(0, bytes([0, version]) + data),
    ):
        with contextlib.suppress(CorruptError):
            decode()
