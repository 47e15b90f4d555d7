"""Rebuilds a validated batch with another codec.

Its records are not taken apart: their bytes are compressed again, no more.

Source: org.apache.kafka.storage.internals.log.LogValidator.buildRecordsAndAssignOffsets,
org.apache.kafka.server.record.BrokerCompressionType.
"""

from __future__ import annotations

from cordwood.configs.log_config import LogConfig
from cordwood.format.batch_header import (
    CRC_START,
    HEADER_BYTES,
    LOG_APPEND_TIME,
    LOG_OVERHEAD_BYTES,
    NO_TIMESTAMP,
    TIMESTAMP_TYPE_BIT,
    TRANSACTIONAL_BIT,
    BatchHeader,
    build_header,
    parse_header,
)
from cordwood.format.compression import Codec, compress
from cordwood.format.crc32c import crc32c
from cordwood.format.record_batch import RecordBatch, build_batch
from cordwood.format.varint import Buffer
from cordwood.model.kafka_errors import InvalidTimestampError
from cordwood.storage.append.record_walk import RecordSummary, iter_facts

_CODEC_OF_NAME = {
    "uncompressed": Codec.NONE,
    **{codec.config_name: codec for codec in Codec if codec is not Codec.NONE},
}


def target_codec(config: LogConfig, source: Codec) -> Codec:
    """The codec that the log's batches have: the topic's, or else the producer's."""
    return _CODEC_OF_NAME.get(config.compression_type, source)


def converted(
    header: BatchHeader,
    payload: Buffer,
    summary: RecordSummary,
    *,
    codec: Codec,
    config: LogConfig,
    first_offset: int,
    leader_epoch: int,
    now_ms: int,
) -> tuple[BatchHeader, Buffer]:
    """The header and the records' bytes of a new batch with the same records.

    Producer, sequence and transaction stay; offsets count from `first_offset`; the
    base timestamp is that of the first record, which clients see to already.

    Args:
        header: the batch's own.
        payload: its records, decompressed and well-formed.
        summary: what a walk over them found.
        codec: that of the new batch.
        config: the topic's timestamp type, and the level to compress at.
        first_offset: the first record's new offset.
        leader_epoch: stamped on the batch.
        now_ms: the timestamp of all records if the topic's type is LogAppendTime.

    Raises:
        InvalidTimestampError: a timestamp is negative and not -1.
    """
    oldest = header.base_timestamp + summary.min_timestamp_delta
    if oldest < NO_TIMESTAMP:
        raise InvalidTimestampError(f"Invalid negative timestamp {oldest}")
    if _first_delta(payload, header.records_count):
        header, payload = _with_new_base(header, payload)
        newest = header.max_timestamp
    else:
        newest = header.base_timestamp + summary.max_timestamp_delta
    is_append_time = config.message_timestamp_type == LOG_APPEND_TIME
    packed = compress(codec, payload, level=target_level(config, codec)) if codec else payload
    converted_header = header._replace(
        base_offset=first_offset,
        batch_length=HEADER_BYTES - LOG_OVERHEAD_BYTES + len(packed),
        partition_leader_epoch=leader_epoch,
        attributes=(header.attributes & TRANSACTIONAL_BIT)
        | (TIMESTAMP_TYPE_BIT if is_append_time else 0)
        | codec,
        max_timestamp=now_ms if is_append_time else max(newest, NO_TIMESTAMP),
    )
    return with_crc(converted_header, packed), packed


def with_crc(header: BatchHeader, packed: Buffer) -> BatchHeader:
    """The header with the CRC that belongs to it; `packed` is all that follows it in the batch."""
    crc = crc32c(packed, value=crc32c(build_header(header)[CRC_START:]))
    return header._replace(crc=crc)


def _with_new_base(header: BatchHeader, payload: Buffer) -> tuple[BatchHeader, Buffer]:
    """The same batch, uncompressed, whose base timestamp is that of its first record."""
    plain = header._replace(base_offset=0, attributes=0)
    records = RecordBatch(plain, build_header(plain) + bytes(payload)).records()
    batch = build_batch(
        records,
        base_offset=0,
        producer_id=header.producer_id,
        producer_epoch=header.producer_epoch,
        base_sequence=header.base_sequence,
    )
    return parse_header(batch)._replace(attributes=header.attributes), batch[HEADER_BYTES:]


def _first_delta(payload: Buffer, count: int) -> int:
    return next(iter_facts(payload, count)).timestamp_delta


def target_level(config: LogConfig, codec: Codec) -> int | None:
    """The level set for the topic's own codec; the producer's codec has the default one."""
    if config.compression_type != codec.config_name:
        return None
    return {
        Codec.GZIP: config.compression_gzip_level,
        Codec.LZ4: config.compression_lz4_level,
        Codec.ZSTD: config.compression_zstd_level,
    }.get(codec)
