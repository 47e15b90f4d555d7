"""Control records: transaction markers, and KRaft's own records in the metadata log.

The key is `int16 version | int16 type`; a marker's value is `int16 version | int32 coordinator
epoch`.

Source: org.apache.kafka.common.record.ControlRecordType, EndTransactionMarker, ControlRecordUtils.
"""

from __future__ import annotations

import enum
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from cordwood.format.byte_reader import ByteReader
from cordwood.format.message_schema import MessageValue, encode_message, read_message, schemas
from cordwood.format.record import Record
from cordwood.format.record_batch import build_batch
from cordwood.model.errors import CorruptError

_KEY = struct.Struct(">hh")
_MARKER = struct.Struct(">hi")


class ControlType(enum.IntEnum):
    """The type of a control record; `UNKNOWN` stands for future types."""

    UNKNOWN = -1
    ABORT = 0
    COMMIT = 1
    LEADER_CHANGE = 2
    SNAPSHOT_HEADER = 3
    SNAPSHOT_FOOTER = 4
    KRAFT_VERSION = 5
    KRAFT_VOTERS = 6


@dataclass(frozen=True, slots=True, kw_only=True)
class EndTxnMarker:
    """The end of a transaction: COMMIT or ABORT, and the epoch of the coordinator that ended it."""

    control_type: ControlType
    version: int
    coordinator_epoch: int


_SCHEMAS = schemas(
    """
message LeaderChangeMessage versions=0-1 flexible=0+
  version int16
  leaderId int32
  voters []{}
    voterId int32
    voterDirectoryId uuid 1+
  grantingVoters []{}
    voterId int32
    voterDirectoryId uuid 1+

message SnapshotHeaderRecord versions=0 flexible=0+
  version int16
  lastContainedLogTimestamp int64

message SnapshotFooterRecord versions=0 flexible=0+
  version int16

message KRaftVersionRecord versions=0 flexible=0+
  version int16
  kRaftVersion int16

message VotersRecord versions=0 flexible=0+
  version int16
  voters []{}
    voterId int32
    voterDirectoryId uuid
    endpoints []{}
      name string
      host string
      port uint16
    kRaftVersionFeature {}
      minSupportedVersion int16
      maxSupportedVersion int16
"""
)

_SCHEMA_OF_TYPE = {
    ControlType.LEADER_CHANGE: _SCHEMAS["LeaderChangeMessage"],
    ControlType.SNAPSHOT_HEADER: _SCHEMAS["SnapshotHeaderRecord"],
    ControlType.SNAPSHOT_FOOTER: _SCHEMAS["SnapshotFooterRecord"],
    ControlType.KRAFT_VERSION: _SCHEMAS["KRaftVersionRecord"],
    ControlType.KRAFT_VOTERS: _SCHEMAS["VotersRecord"],
}


def parse_control_type_id(key: bytes | None) -> int:
    """The numeric type of a control record.

    Raises:
        CorruptError: the key is null, shorter than 4 bytes, or of a negative version.

    Source: ControlRecordType.parseTypeId.
    """
    if key is None or len(key) < _KEY.size:
        size = None if key is None else len(key)
        raise CorruptError(f"control record key of {size} bytes, not {_KEY.size}")
    version, type_id = _KEY.unpack_from(key)
    if version < 0:
        raise CorruptError(f"control record key of version {version}")
    return int(type_id)


def parse_control_key(key: bytes | None) -> ControlType:
    """The type of a control record; `UNKNOWN` for a type that Kafka 4.3 does not know.

    Raises:
        CorruptError: the key is null, shorter than 4 bytes, or of a negative version.
    """
    type_id = parse_control_type_id(key)
    known = 0 <= type_id <= ControlType.KRAFT_VOTERS
    return ControlType(type_id) if known else ControlType.UNKNOWN


def build_control_key(control_type: ControlType) -> bytes:
    """The 4 bytes of a control record's key."""
    return _KEY.pack(0, control_type)


def parse_end_txn_marker(key: bytes | None, value: bytes | None) -> EndTxnMarker:
    """The transaction marker with that key and value; later versions are read as the current one.

    Raises:
        CorruptError: the record is not a COMMIT or ABORT, or its value is cut off or of a negative
            version.

    Source: EndTransactionMarker.deserialize.
    """
    control_type = parse_control_key(key)
    if control_type not in {ControlType.ABORT, ControlType.COMMIT}:
        raise CorruptError(f"{control_type.name} is not the end of a transaction")
    if value is None or len(value) < 2:
        raise CorruptError("transaction marker without a version")
    (version,) = struct.unpack_from(">h", value)
    if version < 0:
        raise CorruptError(f"transaction marker of version {version}")
    if len(value) < _MARKER.size:
        raise CorruptError(f"transaction marker of {len(value)} bytes, not {_MARKER.size}")
    return EndTxnMarker(
        control_type=control_type,
        version=version,
        coordinator_epoch=_MARKER.unpack_from(value)[1],
    )


def build_end_txn_marker(
    *,
    offset: int,
    timestamp: int,
    producer_id: int,
    producer_epoch: int,
    control_type: ControlType,
    coordinator_epoch: int,
    partition_leader_epoch: int = -1,
) -> bytes:
    """A batch with one transaction marker; `timestamp` is in ms.

    Source: MemoryRecords.withEndTransactionMarker.
    """
    record = Record(
        offset, timestamp, build_control_key(control_type), _MARKER.pack(0, coordinator_epoch)
    )
    return build_batch(
        [record],
        base_offset=offset,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        is_transactional=True,
        is_control=True,
        partition_leader_epoch=partition_leader_epoch,
    )


def parse_kraft_control_value(control_type: ControlType, value: bytes | None) -> MessageValue:
    """The decoded value of a KRaft control record; the value begins with its version.

    Raises:
        CorruptError: the value is null or malformed.
        UnsupportedVersionError: the version is unknown.

    Source: ControlRecordUtils.
    """
    schema = _SCHEMA_OF_TYPE.get(control_type)
    if schema is None:
        raise CorruptError(f"{control_type.name} is not a control record of KRaft")
    if value is None or len(value) < 2:
        raise CorruptError(f"{control_type.name} without a version")
    (version,) = struct.unpack_from(">h", value)
    return read_message(schema, version, ByteReader(value))


def build_kraft_control_value(
    control_type: ControlType, version: int, fields: Mapping[str, Any]
) -> bytes:
    """The value of a KRaft control record; omitted fields have their defaults.

    Raises:
        UnsupportedVersionError: the record has no such version.
    """
    return encode_message(_SCHEMA_OF_TYPE[control_type], version, {**fields, "version": version})
