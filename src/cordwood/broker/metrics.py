"""The counters of a serving broker; metrics read them at a scrape.

Counting is plain addition on the event loop's thread; the reader computes rates, quantiles and
names.

Source: org.apache.kafka.storage.log.metrics.BrokerTopicMetrics.
"""

from __future__ import annotations

from cordwood.model.kafka_errors import (
    CorruptMessageError,
    NotLeaderOrFollowerError,
    RecordBatchTooLargeError,
    RecordTooLargeError,
    StorageError,
    UnknownTopicIdError,
    UnknownTopicOrPartitionError,
)
from cordwood.serving.request_metrics import RequestMetrics
from cordwood.storage.log.append_result import AppendResult

# Errors of clients or of the cluster's state: Kafka counts only failures of the broker.
_NOT_FAILED = (
    UnknownTopicOrPartitionError,
    NotLeaderOrFollowerError,
    RecordTooLargeError,
    RecordBatchTooLargeError,
    CorruptMessageError,
    StorageError,
    UnknownTopicIdError,
)


class TopicCounters:
    """Totals since the start, of one topic or of all."""

    __slots__ = (
        "bytes_in",
        "bytes_out",
        "bytes_rejected",
        "failed_fetch_requests",
        "failed_produce_requests",
        "messages_in",
        "produce_message_conversions",
        "total_fetch_requests",
        "total_produce_requests",
    )

    def __init__(self) -> None:
        self.messages_in = 0
        self.bytes_in = 0
        self.bytes_out = 0
        self.bytes_rejected = 0
        self.failed_produce_requests = 0
        self.failed_fetch_requests = 0
        self.produce_message_conversions = 0
        self.total_produce_requests = 0
        self.total_fetch_requests = 0


class BrokerMetrics:
    """Counters of requests by API, and of data by topic; `all_topics` is their sum."""

    def __init__(self) -> None:
        self.all_topics = TopicCounters()
        self.topics: dict[str, TopicCounters] = {}
        self.requests = RequestMetrics()
        self.isr_shrinks = 0
        self.isr_expands = 0
        self.failed_isr_updates = 0

    def isr_changed(self, grown: int | None) -> None:
        """Counts an answer to a proposed ISR: by how many replicas it grew, None if refused.

        Source: kafka.cluster.AlterPartitionListener.
        """
        if grown is None:
            self.failed_isr_updates += 1
        elif grown > 0:
            self.isr_expands += 1
        elif grown < 0:
            self.isr_shrinks += 1

    def topic(self, name: str) -> TopicCounters:
        """The counters of a topic; only for existing topics, as counters are kept."""
        found = self.topics.get(name)
        if found is None:
            found = self.topics[name] = TopicCounters()
        return found

    def topic_deleted(self, name: str) -> None:
        """Forgets a topic."""
        self.topics.pop(name, None)

    def appended(self, topic: str, result: AppendResult, size_bytes: int) -> None:
        """Counts an append to a partition of that topic; `size_bytes` as sent, not as stored.

        A batch that was there already counts again.

        Source: ReplicaManager.appendRecordsToLeader, LogAppendInfo.numMessages.
        """
        count = result.last_offset - result.first_offset + 1 if result.last_offset >= 0 else 0
        for each in (self.topic(topic), self.all_topics):
            each.total_produce_requests += 1
            each.messages_in += count
            each.bytes_in += size_bytes
            each.produce_message_conversions += result.records_converted

    def append_refused(self, topic: str, error: Exception, size_bytes: int) -> None:
        """Counts an append that was refused, or failed.

        Source: ReplicaManager.appendRecordsToLeader, UnifiedLog.analyzeAndValidateRecords.
        """
        for each in (self.topic(topic), self.all_topics):
            each.total_produce_requests += 1
            if isinstance(error, RecordTooLargeError):
                each.bytes_rejected += size_bytes
            if not isinstance(error, _NOT_FAILED):
                each.failed_produce_requests += 1

    def fetch_failed(self, topic: str) -> None:
        """Counts a fetch from a partition of that topic that failed with an unexpected error."""
        self.topic(topic).failed_fetch_requests += 1
        self.all_topics.failed_fetch_requests += 1
