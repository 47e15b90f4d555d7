"""The transactions that are open in a log.

Source: kafka.server.KafkaApis.handleDescribeProducersRequest; KIP-664.
"""

from __future__ import annotations

from typing import NamedTuple

from cordwood.format.batch_header import parse_header
from cordwood.model.errors import CordwoodError
from cordwood.model.topic_partition import TopicPartition
from cordwood.storage.log.log_reader import Isolation
from cordwood.storage.log.partition_log import PartitionLog


class OpenTransaction(NamedTuple):
    """A transaction without a marker; `started_ms` is the timestamp of its first batch."""

    partition: TopicPartition
    producer_id: int
    producer_epoch: int
    start_offset: int
    started_ms: int


def open_transactions(log: PartitionLog) -> list[OpenTransaction]:
    """The open transactions of a log, by their first offset."""
    with log.lock:
        entries = [
            (entry.current_txn_first_offset, entry)
            for entry in log.producer_state.active_producers.values()
            if entry.current_txn_first_offset is not None
        ]
    return [
        OpenTransaction(
            log.topic_partition,
            entry.producer_id,
            entry.producer_epoch,
            offset,
            _started_ms(log, offset, entry.last_timestamp),
        )
        for offset, entry in sorted(entries, key=lambda each: each[0])
    ]


def _started_ms(log: PartitionLog, offset: int, otherwise: int) -> int:
    """The timestamp of the batch at an offset; `otherwise` where the log begins behind it."""
    if offset < log.log_start_offset:
        return otherwise
    try:
        data = log.reader.read(offset, 1, isolation=Isolation.LOG_END).read()
        return parse_header(data).base_timestamp if data else otherwise
    except CordwoodError:
        return otherwise
