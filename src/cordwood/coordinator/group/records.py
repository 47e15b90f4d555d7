"""Records of `__consumer_offsets` of all kinds, as bytes.

Encoded records with text are decoded again before they are written: what is written must be
readable when the groups are loaded.

Source: org.apache.kafka.coordinator.group.GroupCoordinatorRecordSerde (4.3.0).
"""

from __future__ import annotations

from collections.abc import Sequence

from cordwood.coordinator.effects import TransactionalProducer
from cordwood.coordinator.group.kinds import KIND_OF_RECORD
from cordwood.coordinator.group.offset_records import (
    OffsetEncoder,
    OffsetRecord,
    decode_any_offset,
    decode_offset,
)
from cordwood.coordinator.group.shard import CoordinatorRecord
from cordwood.coordinator.log import EncodedRecord
from cordwood.format.compression import Codec
from cordwood.format.coordinator_record import CoordinatorKey
from cordwood.format.group_metadata import OFFSET_COMMIT_TYPES, decode_group_key
from cordwood.format.record_batch import build_batch_of
from cordwood.model.errors import UnsupportedVersionError


def encode(records: Sequence[CoordinatorRecord]) -> list[EncodedRecord]:
    """The keys and values of records; raises EncodingError for a value that does not fit."""
    offsets = OffsetEncoder()
    return [
        offsets.encode(record) if isinstance(record, OffsetRecord) else record.encoded()
        for record in records
    ]


def decode(key: bytes | None, value: bytes | None) -> CoordinatorRecord | None:
    """The record of a key and a value; None for one of a type that is not used here.

    Raises:
        UnknownRecordTypeError: the key is of an unknown type.
        CorruptError: it is malformed, or its value is of an unknown version.
    """
    offset = decode_offset(key, value)
    if offset is not None:
        return offset
    decoded_key = _decode_key(key)
    if decoded_key.record_type in OFFSET_COMMIT_TYPES:
        return decode_any_offset(decoded_key, value)
    kind = KIND_OF_RECORD.get(decoded_key.record_type)
    if kind is None:
        return None
    return kind.record_of(decoded_key.record_type, decoded_key.fields, value)


class UnknownRecordTypeError(UnsupportedVersionError):
    """A record of a type that this release does not know."""


def _decode_key(key: bytes | None) -> CoordinatorKey:
    try:
        return decode_group_key(key)
    except UnsupportedVersionError as error:
        raise UnknownRecordTypeError(error.reason) from error


def batch_of(
    records: Sequence[EncodedRecord],
    *,
    now_ms: int,
    codec: Codec,
    producer: TransactionalProducer | None = None,
) -> bytes:
    """The batch that writes them, as a part of the producer's transaction if there is one."""
    # The sequence is Kafka's, with and without a producer.
    if producer is None:
        return build_batch_of(records, timestamp=now_ms, codec=codec, base_sequence=0)
    return build_batch_of(
        records,
        timestamp=now_ms,
        codec=codec,
        base_sequence=0,
        producer_id=producer.producer_id,
        producer_epoch=producer.producer_epoch,
        is_transactional=True,
    )
