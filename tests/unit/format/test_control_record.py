from __future__ import annotations

import contextlib
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cordwood.format.batch_header import parse_header
from cordwood.format.control_record import (
    ControlType,
    build_control_key,
    build_end_txn_marker,
    parse_control_key,
    parse_control_type_id,
    parse_end_txn_marker,
    parse_kraft_control_value,
)
from cordwood.format.record_batch import RecordBatch
from cordwood.model.errors import CorruptError, UnsupportedVersionError


def test_the_known_marker_is_built_and_read() -> None:
    data = build_end_txn_marker(
        offset=13,
        timestamp=1700000000000,
        producer_id=23,
        producer_epoch=5,
        control_type=ControlType.COMMIT,
        coordinator_epoch=7,
        partition_leader_epoch=3,
    )
    assert data.hex() == (
        "000000000000000d000000420000000302094c37fb0030000000000000018bcfe568000000018bcfe56800"
        "00000000000000170005ffffffff000000012000000008000000010c00000000000700"
    )
    header = parse_header(data)
    (record,) = RecordBatch(header, data).records()
    marker = parse_end_txn_marker(record.key, record.value)
    assert (marker.control_type, marker.coordinator_epoch) == (ControlType.COMMIT, 7)
    assert header.is_control
    assert header.is_transactional


@pytest.mark.parametrize("kind", [ControlType.ABORT, ControlType.COMMIT])
def test_marker_batch_is_read_with_its_producer_epochs_and_offset(kind: ControlType) -> None:
    data = build_end_txn_marker(
        offset=983,
        timestamp=1700000000000,
        producer_id=73,
        producer_epoch=13,
        control_type=kind,
        coordinator_epoch=347,
        partition_leader_epoch=29,
    )
    batch = RecordBatch(parse_header(data), data)
    header = batch.header
    assert batch.is_valid()
    assert header.size_bytes == len(data)
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (73, 13, -1)
    assert (header.base_offset, header.last_offset) == (983, 983)
    assert (header.is_control, header.is_transactional) == (True, True)
    assert header.partition_leader_epoch == 29
    (record,) = batch.records()
    marker = parse_end_txn_marker(record.key, record.value)
    assert (marker.control_type, marker.coordinator_epoch) == (kind, 347)


def test_keys_round_trip() -> None:
    for kind in ControlType:
        if kind is not ControlType.UNKNOWN:
            assert parse_control_key(build_control_key(kind)) is kind


def test_types_of_the_future_are_unknown() -> None:
    for type_id in (7, 99, -1, -2):
        key = struct.pack(">hh", 0, type_id)
        assert parse_control_key(key) is ControlType.UNKNOWN
        assert parse_control_type_id(key) == type_id


def test_later_versions_are_read_as_the_current_one() -> None:
    marker = parse_end_txn_marker(struct.pack(">hhh", 5, 0, 1), struct.pack(">hib", 4, 9, 1))
    assert (marker.control_type, marker.version, marker.coordinator_epoch) == (
        ControlType.ABORT,
        4,
        9,
    )


def test_malformed_markers_are_corrupt() -> None:
    commit = build_control_key(ControlType.COMMIT)
    for key, value in [
        (None, b""),
        (b"abc", b""),
        (struct.pack(">hh", -1, 0), bytes(6)),
        (build_control_key(ControlType.LEADER_CHANGE), bytes(6)),
        (commit, None),
        (commit, b"\0"),
        (commit, bytes(5)),
        (commit, struct.pack(">hi", -1, 0)),
    ]:
        with pytest.raises(CorruptError):
            parse_end_txn_marker(key, value)


def test_kraft_records_are_read_by_the_version_they_begin_with() -> None:
    leader = parse_kraft_control_value(
        ControlType.LEADER_CHANGE, bytes.fromhex("0000000000010200000001000200000001 00 00")
    )
    assert leader.fields["leaderId"] == 1
    assert [voter["voterId"] for voter in leader.fields["voters"]] == [1]
    footer = parse_kraft_control_value(ControlType.SNAPSHOT_FOOTER, bytes(3))
    assert footer.fields == {"version": 0}
    with pytest.raises(UnsupportedVersionError):
        parse_kraft_control_value(ControlType.SNAPSHOT_FOOTER, b"\0\1\0")
    for kind, value in [(ControlType.COMMIT, bytes(6)), (ControlType.KRAFT_VERSION, None)]:
        with pytest.raises(CorruptError):
            parse_kraft_control_value(kind, value)


@given(st.sampled_from(list(ControlType)), st.binary(max_size=60))
def test_hostile_bytes_are_corrupt(kind: ControlType, data: bytes) -> None:
    for parse in (
        lambda: parse_control_key(data),
        lambda: parse_end_txn_marker(data, data),
        lambda: parse_kraft_control_value(kind, b"\0\0" + data),
    ):
        with contextlib.suppress(CorruptError):
            parse()
