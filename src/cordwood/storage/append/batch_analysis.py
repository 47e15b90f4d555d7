"""Checks of an append before its log is locked: sizes, checksums, whole batches.

Source: org.apache.kafka.storage.internals.log.UnifiedLog.analyzeAndValidateRecords, Kafka 4.3.
"""

from __future__ import annotations

import logging
import struct
import zlib
from collections.abc import Iterator

from cordwood.format.batch_header import (
    CRC_START,
    HEADER_BYTES,
    LOG_OVERHEAD_BYTES,
    MAGIC,
    MAGIC_BYTES_MIN,
    TIMESTAMP_TYPE_BIT,
    BatchHeader,
    parse_header_of_any_magic,
)
from cordwood.format.compression import Codec
from cordwood.format.crc32c import crc32c
from cordwood.format.legacy import LEGACY_OVERHEAD_V0, LegacyBatch
from cordwood.format.varint import Buffer
from cordwood.model.append_origin import AppendOrigin
from cordwood.model.errors import CorruptError
from cordwood.model.kafka_errors import (
    CorruptMessageError,
    InvalidRecordError,
    OffsetsOutOfOrderError,
    RecordTooLargeError,
    UnsupportedCompressionTypeError,
)
from cordwood.model.topic_partition import TopicPartition
from cordwood.storage.append.validation_result import UNCOUNTED, AnalyzedBatch, ValidationMetrics

_log = logging.getLogger(__name__)

_LENGTH = struct.Struct(">i")
_LEGACY_CRC_START = 16

#: The attribute bits that name the codec.
CODEC_MASK = 0x07
_CODEC_MAX = int(max(Codec))


def analyze(
    records: Buffer,
    *,
    origin: AppendOrigin,
    topic_partition: TopicPartition,
    max_message_bytes: int | None,
    leader_epoch: int | None = None,
    metrics: ValidationMetrics | None = None,
) -> list[AnalyzedBatch]:
    """Divides `records` into batches of right size and checksum; none is copied.

    A partial batch at the end is left out. That there is no batch at all is no error.

    Args:
        records: batches, one behind the other. Those of a client are of magic 2.
        origin: whose they are.
        topic_partition: named in errors.
        max_message_bytes: max.message.bytes; None to take batches of any size, as followers do.
        leader_epoch: a follower's; the first batch of a higher one and all behind it are left out.
        metrics: counts what is refused.

    Raises:
        CorruptMessageError: a length, a magic or a checksum is wrong.
        RecordTooLargeError: a batch takes more than `max_message_bytes`.
        InvalidRecordError: a client's batch is of magic 0 or 1, or has a base offset.
        UnsupportedCompressionTypeError: a batch names a codec that is none.
        OffsetsOutOfOrderError: batches that have their offsets already do not ascend.
    """
    metrics = metrics or UNCOUNTED
    view = memoryview(records)
    batches: list[AnalyzedBatch] = []
    for batch in _iter_batches(view):
        header, raw = batch
        if origin is AppendOrigin.CLIENT:
            require_clients_own(header, topic_partition, metrics)
        elif _is_ahead(header, origin, leader_epoch):
            break
        if max_message_bytes is not None and len(raw) > max_message_bytes:
            metrics.mark("bytes_rejected", len(view))
            # The stray bracket is Kafka's.
            raise RecordTooLargeError(
                f"The record batch size in the append to {topic_partition} is {len(raw)} bytes "
                f"which exceeds the maximum configured value of {max_message_bytes})."
            )
        is_current = header.magic == MAGIC
        crc = crc32c(raw[CRC_START:]) if is_current else zlib.crc32(raw[_LEGACY_CRC_START:])
        if crc != header.crc:
            metrics.mark("invalid_message_crc_records")
            raise CorruptMessageError(
                f"Record is corrupt (stored crc = {header.crc}) in topic partition "
                f"{topic_partition}."
            )
        if header.attributes & CODEC_MASK > _CODEC_MAX:
            raise UnsupportedCompressionTypeError(
                f"Unknown compression type id: {header.attributes & CODEC_MASK}"
            )
        batches.append(batch)
    if origin is AppendOrigin.REPLICATION or origin is AppendOrigin.RAFT_LEADER:
        _require_ascending(batches, topic_partition)
    return batches


def _iter_batches(view: memoryview) -> Iterator[AnalyzedBatch]:
    """Yields whole batches; a partial one ends the iteration.

    Source: org.apache.kafka.common.record.ByteBufferLogInputStream.
    """
    position, size = 0, len(view)
    while size - position >= LOG_OVERHEAD_BYTES:
        (length,) = _LENGTH.unpack_from(view, position + 8)
        if length < LEGACY_OVERHEAD_V0:
            raise CorruptMessageError(
                f"Record size {length} is less than the minimum record overhead "
                f"({LEGACY_OVERHEAD_V0})"
            )
        if size - position < MAGIC_BYTES_MIN:
            return
        magic = view[position + MAGIC_BYTES_MIN - 1]
        if magic > MAGIC:
            raise CorruptMessageError(
                f"Invalid magic found in record: {magic - 256 if magic > 127 else magic}"
            )
        end = position + LOG_OVERHEAD_BYTES + length
        if end > size:
            return
        raw = view[position:end]
        yield AnalyzedBatch(_header_of(raw) if magic == MAGIC else _legacy_header(raw), raw)
        position = end


def _header_of(raw: memoryview) -> BatchHeader:
    if len(raw) < HEADER_BYTES:
        raise CorruptMessageError(
            f"Record batch is corrupt (the size {len(raw)} is smaller than the minimum allowed "
            f"overhead {HEADER_BYTES})"
        )
    return parse_header_of_any_magic(raw)


def _legacy_header(raw: memoryview) -> BatchHeader:
    try:
        batch = LegacyBatch.parse(raw)
    except CorruptError as error:
        raise CorruptMessageError(f"Record is corrupt ({error})") from error
    known = CODEC_MASK | (TIMESTAMP_TYPE_BIT if batch.magic else 0)
    return BatchHeader(
        base_offset=batch.offset,
        batch_length=len(raw) - LOG_OVERHEAD_BYTES,
        partition_leader_epoch=-1,
        magic=batch.magic,
        crc=batch.crc,
        attributes=batch.attributes & known,
        last_offset_delta=0,
        base_timestamp=batch.timestamp,
        max_timestamp=batch.timestamp,
        producer_id=-1,
        producer_epoch=-1,
        base_sequence=-1,
        records_count=1,
    )


def require_clients_own(
    header: BatchHeader, topic_partition: TopicPartition, metrics: ValidationMetrics
) -> None:
    """Refuses what the API of Kafka 4 takes from no client.

    Raises:
        InvalidRecordError: the batch is of magic 0 or 1, or has a base offset.

    Source: org.apache.kafka.common.requests.ProduceRequest.validateRecords.
    """
    if header.magic != MAGIC:
        metrics.mark("invalid_magic_number_records")
        raise InvalidRecordError(
            "Produce requests are only allowed to contain record batches with magic version 2"
        )
    if header.base_offset:
        raise InvalidRecordError(
            f"The baseOffset of the record batch in the append to {topic_partition} should be 0, "
            f"but it is {header.base_offset}"
        )


def _is_ahead(header: BatchHeader, origin: AppendOrigin, leader_epoch: int | None) -> bool:
    """Whether a follower must not take the batch yet: its leader is newer than it knows."""
    if origin is not AppendOrigin.REPLICATION or leader_epoch is None:
        return False
    if header.partition_leader_epoch <= leader_epoch:
        return False
    _log.info(
        "Skipping batch of offsets [%s, %s] from an origin of %s because its partition leader "
        "epoch %s is higher than the replica's current leader epoch %s",
        header.base_offset,
        header.last_offset,
        origin.name,
        header.partition_leader_epoch,
        leader_epoch,
    )
    return True


def _require_ascending(batches: list[AnalyzedBatch], topic_partition: TopicPartition) -> None:
    last_offset = -1
    for header, _ in batches:
        if header.last_offset <= last_offset or header.last_offset_delta < 0:
            offsets = ",".join(str(batch.header.last_offset) for batch in batches)
            raise OffsetsOutOfOrderError(
                f"Out of order offsets found in append to {topic_partition}: {offsets}"
            )
        last_offset = header.last_offset
