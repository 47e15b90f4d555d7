from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cordwood.format.metadata_records import (
    SCHEMAS,
    decode_metadata_record,
    encode_metadata_record,
)
from cordwood.model.errors import CorruptError, UnsupportedVersionError

ALL = [
    (name, version)
    for name, schema in SCHEMAS.items()
    for version in range(schema.versions.lowest, schema.versions.highest + 1)
]


def test_known_records() -> None:
    level = decode_metadata_record(bytes.fromhex("010c0011" + b"metadata.version".hex() + "001e00"))
    assert (level.api_key, level.name, level.version) == (12, "FeatureLevelRecord", 0)
    assert level.fields == {"name": "metadata.version", "featureLevel": 30}
    assert level.type_name == "FEATURE_LEVEL_RECORD"
    begin = decode_metadata_record(bytes.fromhex("01170001001212" + b"Bootstrap records".hex()))
    assert begin.json() == {"name": "Bootstrap records"}
    unfence = decode_metadata_record(bytes.fromhex("01110000000001000000000000000b010001ff"))
    assert unfence.json() == {"brokerId": 1, "brokerEpoch": 11, "fenced": -1}
    assert decode_metadata_record(bytes.fromhex("01140000")).json() == {}


@pytest.mark.parametrize(("name", "version"), ALL)
def test_every_version_of_every_record_round_trips(name: str, version: int) -> None:
    value = encode_metadata_record(name, version, {})
    record = decode_metadata_record(value)
    assert (record.name, record.version) == (name, version)
    assert encode_metadata_record(name, version, record.fields) == value


def test_defaults_fill_what_is_left_out() -> None:
    value = encode_metadata_record("PartitionChangeRecord", 2, {"partitionId": 3})
    record = decode_metadata_record(value)
    assert record.fields["leader"] == -2
    assert record.fields["isr"] is None
    assert list(record.json()) == ["partitionId", "topicId"]


def test_the_table_is_that_of_kafka() -> None:
    keys = {schema.key for schema in SCHEMAS.values()}
    assert keys == set(range(30)) - {6, 13, 16}
    assert SCHEMAS["RegisterBrokerRecord"].versions.highest == 4
    with pytest.raises(CorruptError, match="no metadata record"):
        encode_metadata_record("AccessControlRecord", 0, {})


@pytest.mark.parametrize("value", ["001400", "021400", "010600", "014000", "01140100", "010205"])
def test_unknown_frames_types_and_versions_are_unsupported(value: str) -> None:
    with pytest.raises(UnsupportedVersionError):
        decode_metadata_record(bytes.fromhex(value))


def test_bytes_left_over_are_corrupt() -> None:
    with pytest.raises(CorruptError, match="left over"):
        decode_metadata_record(bytes.fromhex("0114000000"))


@given(st.sampled_from(ALL), st.binary(max_size=60))
def test_hostile_bytes_are_corrupt(which: tuple[str, int], data: bytes) -> None:
    name, version = which
    with contextlib.suppress(CorruptError):
        decode_metadata_record(bytes([1, SCHEMAS[name].key, version]) + data).json()
