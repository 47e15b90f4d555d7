"""The rules on single records: offsets that count up, keys where needed, timestamps within bounds.

Source: org.apache.kafka.storage.internals.log.LogValidator.validateRecord, processRecordErrors.
"""

from __future__ import annotations

from cordwood.configs.log_config import LogConfig
from cordwood.format.batch_header import (
    LOG_APPEND_TIME,
    NO_TIMESTAMP,
    TIMESTAMP_TYPE_BIT,
    BatchHeader,
)
from cordwood.format.varint import Buffer
from cordwood.model.kafka_errors import (
    InvalidRecordError,
    InvalidTimestampError,
    KafkaError,
    RecordError,
    RecordValidationError,
)
from cordwood.model.topic_partition import TopicPartition
from cordwood.storage.append.record_walk import RecordFacts, RecordSummary, iter_facts
from cordwood.storage.append.validation_result import ValidationMetrics

_SHOWN_MAX = 3


def _int64(value: int) -> int:
    """The value as Kafka computes it: in 64 bits, with overflow."""
    return (value + (1 << 63)) % (1 << 64) - (1 << 63)


class RecordRules:
    """The rules of a topic for records at the time `now_ms`."""

    __slots__ = ("_config", "_is_append_time", "_newest", "_now_ms", "_oldest", "_topic_partition")

    def __init__(self, topic_partition: TopicPartition, config: LogConfig, now_ms: int) -> None:
        self._topic_partition = topic_partition
        self._config = config
        self._now_ms = now_ms
        self._is_append_time = config.message_timestamp_type == LOG_APPEND_TIME
        # Timestamps are within these, both inclusive.
        self._oldest = now_ms - config.message_timestamp_before_max_ms
        self._newest = now_ms + config.message_timestamp_after_max_ms

    def are_kept(self, header: BatchHeader, summary: RecordSummary) -> bool:
        """Whether the records obey every rule, as far as their summary shows.

        False may be wrong: the records out of bounds can be those without a timestamp.
        """
        if header.attributes & TIMESTAMP_TYPE_BIT or not summary.sequential_offsets:
            return False
        if summary.null_keys and self._config.compact:
            return False
        if self._is_append_time:
            return True
        oldest = header.base_timestamp + summary.min_timestamp_delta
        newest = header.base_timestamp + summary.max_timestamp_delta
        if self._oldest <= oldest and newest <= self._newest:
            return True
        return oldest == newest == NO_TIMESTAMP

    def require_kept(
        self,
        header: BatchHeader,
        payload: Buffer,
        *,
        are_partly_read: bool,
        metrics: ValidationMetrics,
    ) -> None:
        """Refuses records that break a rule.

        Args:
            header: the batch's own.
            payload: its records, decompressed and well-formed.
            are_partly_read: Kafka would not read keys and values, and calls such records so.
            metrics: counts them.

        Raises:
            RecordValidationError: some do; it names every one.
        """
        found: list[RecordError] = []
        unkeyed = misplaced = untimely = 0
        name = "PartialDefaultRecord" if are_partly_read else "DefaultRecord"
        for index, facts in enumerate(iter_facts(payload, header.records_count)):
            if self._config.compact and facts.key_size < 0:
                unkeyed += 1
                text = (
                    "Compacted topic cannot accept message without key in topic partition "
                    f"{self._topic_partition}"
                )
                found.append(RecordError(index, text))
            elif (reason := self._bad_timestamp(header, facts, name)) is not None:
                untimely += 1
                found.append(RecordError(index, reason))
            elif facts.offset_delta != index:
                misplaced += 1
                text = (
                    f"Offset delta {facts.offset_delta} of a record is not the expected {index} in "
                    f"topic partition {self._topic_partition}"
                )
                found.append(RecordError(index, text))
        if not found:
            return
        metrics.mark("no_key_compacted_topic_records", unkeyed)
        metrics.mark("invalid_offset_or_sequence_records", min(misplaced, 1))
        cause: KafkaError
        if untimely:
            cause = InvalidTimestampError(
                "One or more records have been rejected due to invalid timestamp"
            )
        else:
            shown = ", ".join(
                f"RecordError(batchIndex={error.index}, message='{error.message}')"
                for error in found[:_SHOWN_MAX]
            )
            cause = InvalidRecordError(
                f"One or more records have been rejected due to {len(found)} record errors in "
                f"total, and only showing the first three errors at most: [{shown}]"
            )
        raise RecordValidationError(cause, found)

    def _bad_timestamp(self, header: BatchHeader, facts: RecordFacts, name: str) -> str | None:
        """Why the record's timestamp cannot be, or None."""
        own = header.base_timestamp + facts.timestamp_delta
        is_marked = bool(header.attributes & TIMESTAMP_TYPE_BIT)
        timestamp = header.max_timestamp if is_marked else own
        offset = header.base_offset + facts.offset_delta
        if not self._is_append_time and timestamp != NO_TIMESTAMP:
            # The mark will be taken off, and then readers see the record's own timestamp.
            for value in {timestamp, own} - {NO_TIMESTAMP}:
                age = _int64(self._now_ms - value)
                before = self._config.message_timestamp_before_max_ms
                if age > before or _int64(-age) > self._config.message_timestamp_after_max_ms:
                    return (
                        f"Timestamp {value} of message with offset {offset} is out of range. The "
                        f"timestamp should be within [{_int64(self._oldest)}, "
                        f"{_int64(self._newest)}]"
                    )
        elif is_marked:
            sizes = (facts.key_size, facts.value_size)
            key, value = sizes if name.startswith("Partial") else (max(0, size) for size in sizes)
            return (
                f"Invalid timestamp type in message {name}(offset={offset}, timestamp={timestamp}, "
                f"key={key} bytes, value={value} bytes). Producer should not set timestamp type to "
                "LogAppendTime."
            )
        return None
