"""The result of an append."""

from __future__ import annotations

from typing import NamedTuple

from cordwood.storage.producers.producer_entry import BatchMetadata


class AppendResult(NamedTuple):
    """The result of an append.

    `first_offset` and `last_offset` (inclusive) are those the records have, which for a batch that
    the producer sent before are those of the first time; both are -1 when there was nothing to
    append. `log_append_time_ms` is -1 for CreateTime, but for a batch
    sent before the largest timestamp it had. `records_converted` counts the records of
    batches that were rebuilt.

    Source: org.apache.kafka.storage.internals.log.LogAppendInfo.
    """

    first_offset: int
    last_offset: int
    max_timestamp: int
    log_append_time_ms: int
    log_start_offset: int
    record_count: int
    size_bytes: int
    is_duplicate: bool = False
    records_converted: int = 0

    @classmethod
    def of_nothing(cls, log_start_offset: int) -> AppendResult:
        """The result of an append without a whole batch."""
        return cls(
            first_offset=-1,
            last_offset=-1,
            max_timestamp=-1,
            log_append_time_ms=-1,
            log_start_offset=log_start_offset,
            record_count=0,
            size_bytes=0,
        )

    @classmethod
    def of_duplicate(cls, batch: BatchMetadata, log_start_offset: int) -> AppendResult:
        """The result of an append of a batch that is in the log already."""
        return cls(
            first_offset=batch.first_offset,
            last_offset=batch.last_offset,
            max_timestamp=batch.timestamp,
            log_append_time_ms=batch.timestamp,
            log_start_offset=log_start_offset,
            record_count=0,
            size_bytes=0,
            is_duplicate=True,
        )
