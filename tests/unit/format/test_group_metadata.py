from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cordwood.format.group_metadata import (
    GROUP_METADATA_TYPE,
    GROUP_RECORDS,
    OFFSET_COMMIT_TYPES,
    decode_consumer_assignment,
    decode_consumer_subscription,
    decode_group_key,
    decode_group_value,
)
from cordwood.model.errors import CorruptError


def test_a_committed_offset() -> None:
    key = decode_group_key(bytes.fromhex("000100016700017400000002"))
    assert key.record_type in OFFSET_COMMIT_TYPES
    assert key.fields == {"group": "g", "topic": "t", "partition": 2}
    value = decode_group_value(
        key.record_type,
        bytes.fromhex("00030000000000000005ffffffff00000000018bcfe56800"),
    )
    assert value is not None
    assert value.fields["offset"] == 5
    assert value.fields["commitTimestamp"] == 1700000000000
    assert value.fields["expireTimestamp"] == -1


def test_members_of_classic_groups_keep_their_own_format_inside() -> None:
    subscription = bytes.fromhex("000100000001000174ffffffff00000000")
    assert decode_consumer_subscription(subscription).fields["topics"] == ["t"]
    assignment = bytes.fromhex("0000000000010001740000000100000000ffffffff")
    (partition,) = decode_consumer_assignment(assignment).fields["assignedPartitions"]
    assert partition == {"topic": "t", "partitions": [0]}
    with pytest.raises(CorruptError):
        decode_consumer_subscription(b"\0")


@pytest.mark.parametrize("record_type", sorted(GROUP_RECORDS.values))
def test_every_type_round_trips(record_type: int) -> None:
    schema = GROUP_RECORDS.values[record_type]
    key = GROUP_RECORDS.encode_key(record_type, {})
    assert decode_group_key(key).record_type == record_type
    for version in range(schema.versions.lowest, schema.versions.highest + 1):
        data = GROUP_RECORDS.encode_value(record_type, version, {})
        value = decode_group_value(record_type, data)
        assert value is not None
        assert GROUP_RECORDS.encode_value(record_type, version, value.fields) == data


@given(st.sampled_from(sorted(GROUP_RECORDS.values)), st.binary(max_size=60))
def test_hostile_bytes_are_corrupt(record_type: int, data: bytes) -> None:
    for decode in (
        lambda: decode_group_key(record_type.to_bytes(2, "big") + data),
        lambda: decode_group_value(record_type, b"\0\0" + data),
        lambda: decode_group_value(GROUP_METADATA_TYPE, b"\0\3" + data),
        lambda: decode_consumer_subscription(b"\0\3" + data),
        lambda: decode_consumer_assignment(data),
    ):
        with contextlib.suppress(CorruptError):
            decode()
