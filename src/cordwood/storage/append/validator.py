"""Validation of records before an append, and the changes made to them.

`analyze` needs no lock: sizes, checksums, whole batches. `validate_and_assign` is for records that
get their offsets here: every record is looked at, and the header gets offset, leader epoch and
maximum timestamp. Bytes that need no change are not copied: a batch is rebuilt only when the
topic has another codec.

Stricter than Kafka, which accepts here what no conforming client sends:

- a record of a compressed batch has to be as long as it says, as one of an uncompressed batch has;
- offset deltas other than 0, 1, 2 ... are refused; Kafka takes some in uncompressed batches, and
  renumbers records where it changes the codec;
- a timestamp beyond int64 is refused rather than wrapped;
- a batch marked LogAppendTime, for a topic of CreateTime, is judged by its records' own timestamps
  as well: they are what readers see once the mark is taken off;
- a coordinator's batch needs a count that fits its offsets, as a client's does;
- a compressed batch may expand to `payload.decompressed_bytes_max` and no further, and has no stray
  bytes behind it: Kafka decompresses record by record, and looks at nothing else.

Source: org.apache.kafka.storage.internals.log.LogValidator,
UnifiedLog.analyzeAndValidateRecords, Kafka 4.4.
"""

from __future__ import annotations

from collections.abc import Sequence

from cordwood.configs.log_config import LogConfig
from cordwood.format.batch_header import (
    CONTROL_BIT,
    HEADER_BYTES,
    LOG_APPEND_TIME,
    MAGIC,
    NO_TIMESTAMP,
    TIMESTAMP_TYPE_BIT,
    BatchHeader,
    build_header,
)
from cordwood.format.compression import Codec
from cordwood.format.control_record import EndTxnMarker, parse_end_txn_marker
from cordwood.format.record import parse_fields
from cordwood.format.record_bound import require_records_within
from cordwood.format.varint import Buffer
from cordwood.model.append_origin import AppendOrigin
from cordwood.model.errors import CorruptError, OversizedRecordError
from cordwood.model.kafka_errors import (
    InvalidRecordError,
    RecordTooLargeError,
    UnexpectedAppendOffsetError,
)
from cordwood.model.topic_partition import TopicPartition
from cordwood.storage.append.batch_analysis import CODEC_MASK, analyze, require_clients_own
from cordwood.storage.append.payload import decompressed, decompressed_bytes_max
from cordwood.storage.append.record_conversion import converted, target_codec, with_crc
from cordwood.storage.append.record_rules import RecordRules
from cordwood.storage.append.record_walk import RecordSummary, walk_records, why_malformed
from cordwood.storage.append.validation_result import (
    UNCOUNTED,
    AnalyzedBatch,
    RecordStats,
    ValidatedBatch,
    ValidationMetrics,
    ValidationResult,
)

__all__ = [
    "AnalyzedBatch",
    "RecordStats",
    "ValidatedBatch",
    "ValidationMetrics",
    "ValidationResult",
    "analyze",
    "as_they_are",
    "placed",
    "validate_and_assign",
]

# By their numbers: the call of an enum takes longer.
_CODECS = tuple(Codec)
_LONG_MIN, _LONG_MAX = -(1 << 63), (1 << 63) - 1
_KEPT_ATTRIBUTES = 0x77  # all that mean something, but for the timestamp type


def validate_and_assign(
    analyzed: Sequence[AnalyzedBatch],
    *,
    first_offset: int,
    topic_partition: TopicPartition,
    config: LogConfig,
    origin: AppendOrigin,
    leader_epoch: int,
    now_ms: int,
    metrics: ValidationMetrics | None = None,
) -> ValidationResult:
    """Checks every record of a leader's append, and gives the batch its place in the log.

    Args:
        analyzed: what `analyze` gave: of a client or a coordinator exactly one batch; of a Raft
            leader one or more, which have their offsets and are taken as they are.
        first_offset: the log's end.
        topic_partition: named in errors.
        config: the topic's policy, codec, timestamp type and bounds.
        origin: whose the records are; not REPLICATION, whose batches are taken `as_they_are`.
        leader_epoch: stamped on the batch.
        now_ms: what timestamps are measured by.
        metrics: counts what is refused.

    Raises:
        InvalidRecordError: not one batch of magic 2, or its header or a record is malformed.
        RecordValidationError: records break rules of the topic; it names them.
        InvalidTimestampError: a batch to be rebuilt has a negative timestamp.
        RecordTooLargeError: the rebuilt batch takes more than max.message.bytes.
        UnexpectedAppendOffsetError: a Raft leader's records do not begin at `first_offset`.
    """
    if origin is AppendOrigin.RAFT_LEADER:
        return _validate_assigned(analyzed, first_offset, topic_partition, leader_epoch)
    assert origin is not AppendOrigin.REPLICATION, "a follower takes batches as they are"
    metrics = metrics or UNCOUNTED
    header, raw = _only_batch(analyzed, topic_partition, metrics)
    is_client = origin is AppendOrigin.CLIENT
    _require_sound_header(header, topic_partition, metrics, is_client=is_client)
    source = _CODECS[header.attributes & CODEC_MASK]
    packed = raw[HEADER_BYTES:]
    payload, summary = _read_records(header, source, packed, config)
    oldest = header.base_timestamp + summary.min_timestamp_delta
    newest = header.base_timestamp + summary.max_timestamp_delta
    if oldest < _LONG_MIN or newest > _LONG_MAX:
        raise InvalidRecordError(
            f"Timestamps of the record batch in topic partition {topic_partition} do not fit into "
            f"64 bits: they are from {oldest} to {newest}"
        )
    target = target_codec(config, source)
    is_stored_so = target == source or bool(header.attributes & CONTROL_BIT)
    rules = RecordRules(topic_partition, config, now_ms)
    if not rules.are_kept(header, summary):
        is_partly_read = is_stored_so and source is not Codec.NONE
        rules.require_kept(header, payload, are_partly_read=is_partly_read, metrics=metrics)
    is_append_time = config.message_timestamp_type == LOG_APPEND_TIME
    parts: tuple[Buffer, ...]
    if is_stored_so:
        max_timestamp = now_ms if is_append_time else max(newest, NO_TIMESTAMP)
        header = _stamped(header, packed, first_offset, leader_epoch, max_timestamp, is_append_time)
        parts = (build_header(header), packed)
        stats = RecordStats(HEADER_BYTES + len(payload) if source else 0)
    else:
        header, rebuilt = converted(
            header,
            payload,
            summary,
            codec=target,
            config=config,
            first_offset=first_offset,
            leader_epoch=leader_epoch,
            now_ms=now_ms,
        )
        _require_fitting(header, topic_partition, config.max_message_bytes, len(raw), metrics)
        parts = (build_header(header), rebuilt)
        stats = RecordStats(2 * (HEADER_BYTES + len(payload)), header.records_count)
    marker = _marker_of(header, payload) if header.attributes & CONTROL_BIT else None
    last_offset = header.last_offset
    return ValidationResult(
        batches=[ValidatedBatch(parts, header, marker)],
        size_may_have_changed=stats.records_converted > 0,
        log_append_time_ms=now_ms if is_append_time else NO_TIMESTAMP,
        max_timestamp=header.max_timestamp,
        offset_of_max_timestamp=last_offset,
        next_offset=last_offset + 1,
        record_stats=stats,
    )


def placed(result: ValidationResult, first_offset: int) -> ValidationResult:
    """A client's batch that was validated for offset 0, with the offsets from `first_offset` on."""
    (batch,) = result.batches
    header = batch.header._replace(base_offset=first_offset)
    _, *rest = batch.parts
    return result._replace(
        batches=[batch._replace(parts=(build_header(header), *rest), header=header)],
        offset_of_max_timestamp=header.last_offset,
        next_offset=header.next_offset,
    )


def as_they_are(analyzed: Sequence[AnalyzedBatch]) -> list[ValidatedBatch]:
    """The batches of a leader, for its follower: offsets, epochs and bytes stay.

    Raises:
        InvalidRecordError: a transaction marker is malformed.
    """
    batches = []
    position = 0
    for header, raw in analyzed:
        marker = None
        if header.attributes & CONTROL_BIT and header.producer_id >= 0 and header.records_count:
            marker = _marker_of(header, decompressed(header.codec, raw[HEADER_BYTES:]))
        batches.append(ValidatedBatch((raw,), header, marker, position))
        position += len(raw)
    return batches


def _only_batch(
    analyzed: Sequence[AnalyzedBatch],
    topic_partition: TopicPartition,
    metrics: ValidationMetrics,
) -> AnalyzedBatch:
    if not analyzed:
        raise InvalidRecordError("Record batch has no batches at all")
    first = analyzed[0]
    for header, _ in analyzed:
        if header.magic != first.header.magic:
            metrics.mark("invalid_magic_number_records")
            raise InvalidRecordError(
                f"Batch magic {header.magic} is not the same as the first batch's magic byte "
                f"{first.header.magic} in topic partition {topic_partition}"
            )
    if first.header.magic != MAGIC:
        require_clients_own(first.header, topic_partition, metrics)
    if len(analyzed) > 1:
        raise InvalidRecordError("Compressed outer record has more than one batch")
    return first


def _require_sound_header(
    header: BatchHeader,
    topic_partition: TopicPartition,
    metrics: ValidationMetrics,
    *,
    is_client: bool,
) -> None:
    count = header.records_count
    if header.last_offset_delta + 1 == count > 0 and not (
        is_client
        and (header.attributes & CONTROL_BIT or header.base_sequence < 0 <= header.producer_id)
    ):
        return
    where = f"in topic partition {topic_partition}"
    offsets = f"[{header.base_offset}, {header.last_offset}]"
    if header.last_offset_delta < 0:
        reason = f"Batch has an invalid offset range: {offsets} {where}"
    elif count <= 0:
        reason = f"Invalid reported count for record batch: {count} {where}"
    elif header.last_offset_delta + 1 != count:
        reason = f"Inconsistent batch offset range {offsets} and count of records {count} {where}"
    elif header.attributes & CONTROL_BIT:
        reason = f"Clients are not allowed to write control records {where}"
    else:
        reason = (
            f"Invalid sequence number {header.base_sequence} in record batch with producerId "
            f"{header.producer_id} {where}"
        )
    metrics.mark("invalid_offset_or_sequence_records")
    raise InvalidRecordError(reason)


def _read_records(
    header: BatchHeader, source: Codec, packed: Buffer, config: LogConfig
) -> tuple[Buffer, RecordSummary]:
    """The records, decompressed, and the result of a walk over them."""
    count, record_bytes_max = header.records_count, config.max_decompressed_message_bytes
    payload = decompressed(
        source,
        packed,
        count=count,
        size_max=decompressed_bytes_max(config.max_message_bytes),
        record_bytes_max=record_bytes_max,
    )
    summary = walk_records(payload, count)
    if source and (not summary.ok or len(payload) > record_bytes_max):
        try:
            require_records_within(payload, count, record_bytes_max)
        except OversizedRecordError as error:
            raise InvalidRecordError(error.reason) from error
    if not summary.ok:
        raise InvalidRecordError(why_malformed(payload, count))
    return payload, summary


def _stamped(
    header: BatchHeader,
    packed: Buffer,
    first_offset: int,
    leader_epoch: int,
    max_timestamp: int,
    is_append_time: bool,
) -> BatchHeader:
    """The header of a batch that keeps its records; offset and epoch are outside the CRC.

    Source: DefaultRecordBatch.setLastOffset, setPartitionLeaderEpoch, setMaxTimestamp.
    """
    type_bit = TIMESTAMP_TYPE_BIT if is_append_time else 0
    placed = BatchHeader(first_offset, header[1], leader_epoch, *header[3:])
    if header.max_timestamp == max_timestamp and header.attributes & TIMESTAMP_TYPE_BIT == type_bit:
        return placed
    changed = placed._replace(
        attributes=(header.attributes & _KEPT_ATTRIBUTES) | type_bit, max_timestamp=max_timestamp
    )
    return with_crc(changed, packed)


def _require_fitting(
    header: BatchHeader,
    topic_partition: TopicPartition,
    max_message_bytes: int,
    sent_bytes: int,
    metrics: ValidationMetrics,
) -> None:
    if header.size_bytes > max_message_bytes:
        metrics.mark("bytes_rejected", sent_bytes)
        raise RecordTooLargeError(
            f"Message batch size is {header.size_bytes} bytes in append to partition "
            f"{topic_partition} which exceeds the maximum configured size of {max_message_bytes}."
        )


def _marker_of(header: BatchHeader, payload: Buffer) -> EndTxnMarker | None:
    """The marker in the first record of a transaction coordinator's control batch.

    Source: ProducerAppendInfo.append, which knows control batches without a producer to be KRaft's.
    """
    if header.producer_id < 0:
        return None
    try:
        record = parse_fields(bytes(payload), 0)
        return parse_end_txn_marker(record.key, record.value)
    except CorruptError as error:
        raise InvalidRecordError(str(error)) from error


def _validate_assigned(
    analyzed: Sequence[AnalyzedBatch],
    first_offset: int,
    topic_partition: TopicPartition,
    leader_epoch: int,
) -> ValidationResult:
    """A Raft leader's batches, which have their offsets and epoch."""
    assert analyzed, "nothing to append"
    for header, _ in analyzed:
        if header.partition_leader_epoch != leader_epoch:
            raise InvalidRecordError(
                "Append from Raft leader did not set the batch epoch correctly, expected "
                f"{leader_epoch} but the batch has {header.partition_leader_epoch}"
            )
    last_offset = analyzed[-1].header.last_offset
    base_offset = analyzed[0].header.base_offset
    if base_offset != first_offset:
        raise UnexpectedAppendOffsetError(
            f"Unexpected offset in append to {topic_partition}. First offset {base_offset} is not "
            f"the next offset {first_offset}. Last offset in append: {last_offset}",
            first_offset=base_offset,
            last_offset=last_offset,
        )
    newest = max((header for header, _ in analyzed), key=lambda header: header.max_timestamp)
    return ValidationResult(
        batches=as_they_are(analyzed),
        size_may_have_changed=False,
        log_append_time_ms=NO_TIMESTAMP,
        max_timestamp=newest.max_timestamp,
        offset_of_max_timestamp=newest.last_offset,
        next_offset=last_offset + 1,
        record_stats=RecordStats(),
    )
