"""Input and output of validation: batches before and after, costs, errors.

Source: org.apache.kafka.storage.internals.log.LogValidator.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from typing import NamedTuple

from cordwood.format.batch_header import BatchHeader
from cordwood.format.control_record import EndTxnMarker
from cordwood.format.varint import Buffer


@dataclass(slots=True)
class ValidationMetrics:
    """Numbers of refused records, by reason; the names are those of Kafka's meters per second.

    Source: LogValidator.MetricsRecorder, org.apache.kafka.storage.log.metrics.BrokerTopicMetrics.
    """

    no_key_compacted_topic_records: int = 0
    invalid_magic_number_records: int = 0
    invalid_message_crc_records: int = 0
    invalid_offset_or_sequence_records: int = 0
    bytes_rejected: int = 0
    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False, compare=False)

    def mark(self, meter: str, count: int = 1) -> None:
        """Adds to one of the counters, by name."""
        with self._lock:
            setattr(self, meter, getattr(self, meter) + count)


#: Counts for those who do not ask.
UNCOUNTED = ValidationMetrics()


class AnalyzedBatch(NamedTuple):
    """A whole batch whose checksum is right.

    One of magic 0 or 1 has a header made up from it: its offset, which is that of its last record,
    is base and last offset at once, and its records count as one.
    """

    header: BatchHeader
    raw: memoryview


class ValidatedBatch(NamedTuple):
    """A batch as it will be on disk.

    `parts`, one behind the other, are its bytes. `marker` is what a transaction coordinator's batch
    says. `position` is where the batch begins in its append, in bytes.
    """

    parts: tuple[Buffer, ...]
    header: BatchHeader
    marker: EndTxnMarker | None = None
    position: int = 0


class RecordStats(NamedTuple):
    """The cost of a validation.

    Source: org.apache.kafka.storage.internals.log.RecordValidationStats.
    """

    temporary_memory_bytes: int = 0
    records_converted: int = 0


class ValidationResult(NamedTuple):
    """Batches that a log may write.

    `log_append_time_ms` is -1 for topics of CreateTime. `offset_of_max_timestamp` is the last
    offset of the batch that holds the record. `size_may_have_changed` says that a batch was built
    again.
    """

    batches: list[ValidatedBatch]
    size_may_have_changed: bool
    log_append_time_ms: int
    max_timestamp: int
    offset_of_max_timestamp: int
    next_offset: int
    record_stats: RecordStats
