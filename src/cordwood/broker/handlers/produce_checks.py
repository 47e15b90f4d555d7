"""Checks of a Produce request before its partitions are looked up.

Source: org.apache.kafka.common.requests.ProduceRequest.validateRecords,
RequestUtils.hasTransactionalRecords, ByteBufferLogInputStream.
"""

from __future__ import annotations

import struct
from typing import Final

from cordwood.format.batch_header import (
    HEADER_BYTES,
    MAGIC,
    TRANSACTIONAL_BIT,
    BatchHeader,
    parse_header,
)
from cordwood.format.compression import Codec
from cordwood.format.varint import Buffer
from cordwood.model.kafka_errors import (
    CorruptMessageError,
    InvalidRecordError,
    UnknownServerError,
    UnsupportedCompressionTypeError,
)
from cordwood.protocol.data import ProduceRequest

_CODEC_MASK: Final = 0x07
_OVERHEAD_BYTES: Final = 12
_UP_TO_MAGIC_BYTES: Final = 17
_RECORD_BYTES_MIN: Final = 14
_ATTRIBUTES_AT: Final = 21
_ZSTD_SINCE: Final = 7
_SIZE = struct.Struct(">i")
_SIZE_AND_MAGIC = struct.Struct(">i4xb")


def has_transactional_batch(request: ProduceRequest) -> bool:
    """Whether a batch of the request is of a transaction.

    Raises:
        CorruptMessageError: a first batch is none. All partitions of the request get the error.
    """
    for topic in request.topic_data:
        for data in topic.partition_data:
            records = data.records
            if records and _batch_bytes(records, 0) and _is_transactional(records):
                return True
    return False


def transactional_batch(records: Buffer | None) -> BatchHeader | None:
    """The header of a first batch that is of a transaction; None for any other.

    Raises:
        CorruptMessageError: it is no batch.
    """
    if not records or _batch_bytes(records, 0) < HEADER_BYTES or not _is_transactional(records):
        return None
    header = parse_header(records)
    return header if header.producer_id >= 0 else None


def require_one_batch(records: Buffer | None, version: int) -> None:
    """Refuses anything but one whole batch of magic 2, in a codec that the version has.

    Raises:
        InvalidRecordError: no batch, a second one, or messages of an old format.
        CorruptMessageError: what follows the batch is no batch.
        UnsupportedCompressionTypeError: zstd before version 7.
        UnknownServerError: a codec that there is not, which Kafka notices here before version 7.
    """
    size = _batch_bytes(records, 0) if records else 0
    if not records or not size:
        raise InvalidRecordError(
            f"Produce requests with version {version} must have at least one record batch per "
            "partition"
        )
    if records[16] != MAGIC:
        raise InvalidRecordError(
            f"Produce requests with version {version} are only allowed to contain record batches "
            "with magic version 2"
        )
    codec = records[_ATTRIBUTES_AT + 1] & _CODEC_MASK
    if version < _ZSTD_SINCE and codec == Codec.ZSTD:
        raise UnsupportedCompressionTypeError(
            f"Produce requests with version {version} are not allowed to use ZStandard compression"
        )
    if version < _ZSTD_SINCE and codec > max(Codec):
        raise UnknownServerError(f"Unknown compression type id: {codec}")
    if len(records) > size and _batch_bytes(records, size):
        raise InvalidRecordError(
            f"Produce requests with version {version} are only allowed to contain exactly one "
            "record batch per partition"
        )


def _is_transactional(records: Buffer) -> bool:
    if records[16] != MAGIC:
        return False
    return bool(records[_ATTRIBUTES_AT + 1] & TRANSACTIONAL_BIT)


def _batch_bytes(records: Buffer, position: int) -> int:
    """The bytes of the batch that begins there; 0 if it is cut off.

    Raises:
        CorruptMessageError: its size or its magic cannot be.
    """
    left = len(records) - position
    if left >= _UP_TO_MAGIC_BYTES:
        size, magic = _SIZE_AND_MAGIC.unpack_from(records, position + 8)
    elif left >= _OVERHEAD_BYTES:
        (size,), magic = _SIZE.unpack_from(records, position + 8), None
    else:
        return 0
    if size < _RECORD_BYTES_MIN:
        raise CorruptMessageError(
            f"Record size {size} is less than the minimum record overhead ({_RECORD_BYTES_MIN})"
        )
    if magic is None:
        return 0
    if not 0 <= magic <= MAGIC:
        raise CorruptMessageError(f"Invalid magic found in record: {magic}")
    size += _OVERHEAD_BYTES
    return size if left >= size else 0
