"""Transactions, read and written quickly: the same bytes as by their schemas."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cordwood.format.message_schema import MessageValue
from cordwood.format.transaction_log_value import (
    TransactionLogValue,
    decode_transaction_key,
    decode_transaction_value,
    encode_transaction_key,
    encode_transaction_value,
)
from cordwood.format.transaction_state import TRANSACTION_RECORDS
from cordwood.model.errors import CordwoodError, CorruptError, EncodingError

TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=300)
INT8 = st.integers(-(2**7), 2**7 - 1)
INT16 = st.integers(-(2**15), 2**15 - 1)
INT32 = st.integers(-(2**31), 2**31 - 1)
INT64 = st.integers(-(2**63), 2**63 - 1)
IDS = st.one_of(st.just(-1), INT64)
NUMBERS = st.lists(INT32, max_size=200).map(tuple)
TOPICS = st.one_of(st.none(), st.lists(st.tuples(TEXTS, NUMBERS), max_size=5))
VALUES = st.builds(
    TransactionLogValue, INT64, IDS, IDS, INT16, INT32, INT8, TOPICS, INT64, INT64, INT16
)
PLAIN: dict[str, Any] = {"previous_producer_id": -1, "next_producer_id": -1, "client_version": 0}
SAMPLE = TransactionLogValue(7, 6, 8, 3, 60_000, 1, [("t", (0, 1)), ("u", ())], 12, 11, 2)


def fields_of(value: TransactionLogValue, version: int) -> dict[str, Any]:
    topics = value.partitions
    fields = {
        "producerId": value.producer_id,
        "producerEpoch": value.producer_epoch,
        "transactionTimeoutMs": value.timeout_ms,
        "transactionStatus": value.status,
        "transactionPartitions": None
        if topics is None
        else [{"topic": topic, "partitionIds": list(numbers)} for topic, numbers in topics],
        "transactionLastUpdateTimestampMs": value.update_ms,
        "transactionStartTimestampMs": value.start_ms,
    }
    if version:
        fields["previousProducerId"] = value.previous_producer_id
        fields["nextProducerId"] = value.next_producer_id
        fields["clientTransactionVersion"] = value.client_version
    return fields


@given(TEXTS)
def test_keys_are_those_of_the_schema(name: str) -> None:
    encoded = encode_transaction_key(name)
    assert encoded == TRANSACTION_RECORDS.encode_key(0, {"transactionalId": name})
    assert decode_transaction_key(encoded) == name


@given(VALUES)
def test_values_are_those_of_the_schema(value: TransactionLogValue) -> None:
    encoded = encode_transaction_value(value, 1)
    assert encoded == TRANSACTION_RECORDS.encode_value(0, 1, fields_of(value, 1))
    assert decode_transaction_value(encoded) == (value, 1)


@given(VALUES)
def test_values_of_version_0_are_those_of_the_schema(value: TransactionLogValue) -> None:
    plain = value._replace(**PLAIN)
    encoded = encode_transaction_value(plain, 0)
    assert encoded == TRANSACTION_RECORDS.encode_value(0, 0, fields_of(plain, 0))
    assert decode_transaction_value(encoded) == (plain, 0)


@pytest.mark.parametrize("key", [None, b"", b"\0", b"\0\1\0\1x", b"\0\0\0\2x", b"\0\0\xff\xff"])
def test_other_and_malformed_keys_are_left_to_the_schema(key: bytes | None) -> None:
    assert decode_transaction_key(key) is None


@pytest.mark.parametrize("version", [0, 1])
def test_a_value_that_is_cut_off_is_left_to_the_schema(version: int) -> None:
    encoded = encode_transaction_value(SAMPLE, version)
    for size in range(len(encoded)):
        assert decode_transaction_value(encoded[:size]) is None, size


@pytest.mark.parametrize("version", [0, 1])
def test_as_many_partitions_as_no_reader_takes_are_left_to_the_schema(version: int) -> None:
    for count, is_read in ((1_000_000, True), (1_000_001, False)):
        value = SAMPLE._replace(partitions=[("t", (0,) * count)])
        encoded = encode_transaction_value(value, version)
        assert (decode_transaction_value(encoded) is not None) == is_read
        if not is_read:
            with pytest.raises(CorruptError, match="exceeds the maximum allowed size"):
                TRANSACTION_RECORDS.decode_value(0, encoded)


@given(st.sampled_from([0, 1]), st.integers(0), st.integers(0, 255))
def test_a_changed_value_is_read_as_by_the_schema_or_left_to_it(
    version: int, at: int, byte: int
) -> None:
    encoded = bytearray(encode_transaction_value(SAMPLE, version))
    encoded[at % len(encoded)] = byte
    found = decode_transaction_value(bytes(encoded))
    by_schema: MessageValue | None = None
    try:
        by_schema = TRANSACTION_RECORDS.decode_value(0, bytes(encoded))
    except CordwoodError:
        assert found is None
    if found is not None:
        assert by_schema is not None
        value, version = found
        wanted = fields_of(value, version)
        assert wanted == {name: by_schema.fields[name] for name in wanted}


def test_values_with_other_tags_are_left_to_the_schema() -> None:
    fields = {**fields_of(SAMPLE, 1), "nextProducerEpoch": 4}
    assert decode_transaction_value(TRANSACTION_RECORDS.encode_value(0, 1, fields)) is None


@pytest.mark.parametrize(
    "change",
    [
        {"producer_epoch": 2**15},
        {"status": 128},
        {"client_version": 2**15},
        {"partitions": [("x" * 2**15, (0,))]},
        {"partitions": [("\ud800", (0,))]},
        {"partitions": [("x", (2**31,))]},
    ],
)
@pytest.mark.parametrize("version", [0, 1])
def test_values_that_do_not_fit_are_refused(change: dict[str, Any], version: int) -> None:
    if version or "client_version" not in change:
        with pytest.raises(EncodingError):
            encode_transaction_value(SAMPLE._replace(**change), version)


def test_ids_that_do_not_fit_are_refused() -> None:
    for name in ("x" * 2**15, "\ud800"):
        with pytest.raises(EncodingError):
            encode_transaction_key(name)
