"""Batches as producers send them, false ones too, and what a log's validation makes of them."""

from __future__ import annotations

import struct

from cordwood.configs.log_config import LogConfig
from cordwood.format.batch_header import HEADER_BYTES, build_header, parse_header
from cordwood.format.compression import Codec, compress
from cordwood.format.crc32c import crc32c
from cordwood.format.record_batch import Record, RecordBatch, build_batch
from cordwood.model.append_origin import AppendOrigin
from cordwood.model.topic_partition import TopicPartition
from cordwood.storage.append import validator
from cordwood.storage.append.validator import ValidationMetrics, ValidationResult

TOPIC = TopicPartition("topic", 0)
#: What the clock says while records are validated, in ms.
NOW = 1_700_000_000_000


def config_for(codec: Codec | None = None, **settings: object) -> LogConfig:
    """A topic's settings with that codec; None leaves it to the producer."""
    names = {None: "producer", Codec.NONE: "uncompressed"}
    name = names.get(codec) or codec.config_name  # type: ignore[union-attr]
    return LogConfig(compression_type=name, **settings)  # type: ignore[arg-type]


def three(*timestamps: int, codec: Codec = Codec.NONE) -> bytes:
    """Three records without keys, with these timestamps or all with the one."""
    values = (b"hello", b"there", b"beautiful")
    times = timestamps * 3 if len(timestamps) == 1 else timestamps
    records = [
        Record(i, time, None, value)
        for i, (time, value) in enumerate(zip(times, values, strict=True))
    ]
    return build_batch(records, base_offset=0, codec=codec)


def with_header(batch: bytes, **fields: int) -> bytes:
    """The batch with other values in its header, and the CRC that belongs to it."""
    changed = build_header(parse_header(batch)._replace(**fields)) + batch[HEADER_BYTES:]
    return changed[:17] + struct.pack(">I", crc32c(changed[21:])) + changed[21:]


def with_payload(codec: Codec, payload: bytes, *, count: int, **fields: int) -> bytes:
    """A batch of `count` records that are these bytes, or should be."""
    packed = compress(codec, payload)
    header = parse_header(three(NOW))._replace(
        batch_length=HEADER_BYTES - 12 + len(packed),
        attributes=int(codec),
        last_offset_delta=count - 1,
        records_count=count,
    )
    return with_header(build_header(header) + packed, **fields)


def validate(
    records: bytes,
    config: LogConfig | None = None,
    *,
    first_offset: int = 0,
    origin: AppendOrigin = AppendOrigin.CLIENT,
    leader_epoch: int = 0,
    metrics: ValidationMetrics | None = None,
) -> ValidationResult:
    """Validates a leader's append at the time `NOW`.

    Raises:
        KafkaError: it is refused.
    """
    config = config or LogConfig()
    analyzed = validator.analyze(
        records,
        origin=origin,
        topic_partition=TOPIC,
        max_message_bytes=config.max_message_bytes,
        metrics=metrics,
    )
    return validator.validate_and_assign(
        analyzed,
        first_offset=first_offset,
        topic_partition=TOPIC,
        config=config,
        origin=origin,
        leader_epoch=leader_epoch,
        now_ms=NOW,
        metrics=metrics,
    )


def written(result: ValidationResult) -> bytes:
    """The bytes that the log will hold: one batch as its header says, with a right CRC."""
    (batch,) = result.batches
    data = b"".join(batch.parts)
    stored = RecordBatch(parse_header(data), data)
    assert stored.header == batch.header
    assert stored.size_bytes == len(data)
    stored.require_valid()
    return data


def records_of(result: ValidationResult) -> list[Record]:
    """The records that readers of the log will see."""
    data = written(result)
    return RecordBatch(parse_header(data), data).records()
