"""Committed offsets, read and written quickly: the same bytes as by their schemas."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cordwood.format.group_metadata import GROUP_RECORDS
from cordwood.format.offset_commit import (
    OffsetCommitKey,
    OffsetCommitValue,
    decode_offset_commit_key,
    decode_offset_commit_value,
    encode_offset_commit_key,
    encode_offset_commit_value,
)
from cordwood.model.uuids import ZERO_UUID

TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=300)
INT32 = st.integers(-(2**31), 2**31 - 1)
INT64 = st.integers(-(2**63), 2**63 - 1)
TOPIC_IDS = st.one_of(st.just(ZERO_UUID), st.uuids())
KEYS = st.builds(OffsetCommitKey, TEXTS, TEXTS, INT32)
VALUES = st.builds(OffsetCommitValue, INT64, INT32, TEXTS, INT64, st.just(-1), TOPIC_IDS)


def fields_of(value: OffsetCommitValue) -> dict[str, Any]:
    return {
        "offset": value.offset,
        "leaderEpoch": value.leader_epoch,
        "metadata": value.metadata,
        "commitTimestamp": value.commit_timestamp,
        "expireTimestamp": value.expire_timestamp,
        "topicId": value.topic_id,
    }


@given(KEYS)
def test_keys_are_those_of_the_schema(key: OffsetCommitKey) -> None:
    encoded = encode_offset_commit_key(key)
    assert encoded == GROUP_RECORDS.encode_key(1, key._asdict())
    assert decode_offset_commit_key(encoded) == key


@given(VALUES)
def test_values_are_those_of_the_schema(value: OffsetCommitValue) -> None:
    encoded = encode_offset_commit_value(value)
    assert encoded == GROUP_RECORDS.encode_value(1, 4, fields_of(value))
    assert decode_offset_commit_value(encoded) == value


@given(VALUES, st.integers(0, 2**63 - 1))
def test_values_that_expire_are_of_version_1(value: OffsetCommitValue, expires: int) -> None:
    expiring = value._replace(expire_timestamp=expires)
    encoded = encode_offset_commit_value(expiring)
    assert encoded == GROUP_RECORDS.encode_value(1, 1, fields_of(expiring))
    assert decode_offset_commit_value(encoded) is None, "left to the schema"


@given(VALUES)
def test_values_of_version_3_are_read(value: OffsetCommitValue) -> None:
    encoded = GROUP_RECORDS.encode_value(1, 3, fields_of(value))
    assert decode_offset_commit_value(encoded) == value._replace(topic_id=ZERO_UUID)


def test_old_keys_of_type_0_are_read() -> None:
    encoded = GROUP_RECORDS.encode_key(0, {"group": "g", "topic": "t", "partition": 3})
    assert decode_offset_commit_key(encoded) == OffsetCommitKey("g", "t", 3)


@pytest.mark.parametrize(
    "key",
    [None, b"", b"\0", b"\0\2\0\1g", b"\0\1\0\1", b"\0\1\0\1g\0\1t", b"\0\1\xff\xff\0\1t\0\0\0\0"],
)
def test_other_and_malformed_keys_are_left_to_the_schema(key: bytes | None) -> None:
    assert decode_offset_commit_key(key) is None


@given(VALUES, st.data())
def test_values_that_are_cut_off_are_left_to_the_schema(
    value: OffsetCommitValue, data: st.DataObject
) -> None:
    encoded = encode_offset_commit_value(value)
    cut = data.draw(st.integers(0, len(encoded) - 1))
    found = decode_offset_commit_value(encoded[:cut])
    assert found is None


def test_values_with_tags_that_are_not_known_are_left_to_the_schema() -> None:
    value = OffsetCommitValue(1, 2, "m", 3, -1, ZERO_UUID)
    encoded = encode_offset_commit_value(value)[:-1] + b"\1\7\1x"
    assert decode_offset_commit_value(encoded) is None
