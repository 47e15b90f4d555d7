"""Transactions that a Kafka left open in a log directory; no coordinator here ends them.

Source: kafka.server.KafkaApis.handleDescribeProducersRequest; KIP-664.
"""

from __future__ import annotations

import datetime as dt
import logging
from collections.abc import Iterable
from typing import Final, NamedTuple

from cordwood.broker.partition import Partition
from cordwood.format.record_batch import parse_header
from cordwood.model.errors import CordwoodError
from cordwood.model.topic_partition import TopicPartition
from cordwood.storage.log.log_reader import Isolation
from cordwood.storage.log.partition_log import PartitionLog

_log = logging.getLogger(__name__)

_LOGGED_MAX: Final = 100


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


def warn_of_open_transactions(partitions: Iterable[Partition]) -> int:
    """Logs each open transaction (at most 100) and how to end it; returns their number."""
    count = 0
    for partition in partitions:
        if partition.log.first_unstable_offset is None:
            continue
        for each in open_transactions(partition.log):
            count += 1
            if count <= _LOGGED_MAX:
                _warn(each)
    if count > _LOGGED_MAX:
        _log.warning("%s more transactions are open", count - _LOGGED_MAX)
    return count


def _warn(found: OpenTransaction) -> None:
    started = dt.datetime.fromtimestamp(found.started_ms / 1000, dt.UTC)
    _log.warning(
        "Partition %s has a transaction of producer %s (epoch %s) open since offset %s, %s. "
        "Transactions are not supported: consumers with isolation.level=read_committed read no "
        "further, and compaction stops there. To end it: cordwood transactions "
        "--bootstrap-server HOST:PORT abort --topic %s --partition %s --start-offset %s",
        found.partition,
        found.producer_id,
        found.producer_epoch,
        found.start_offset,
        started.isoformat(timespec="milliseconds"),
        found.partition.topic,
        found.partition.partition,
        found.start_offset,
    )


def _started_ms(log: PartitionLog, offset: int, otherwise: int) -> int:
    """The timestamp of the batch at an offset; `otherwise` where the log begins behind it."""
    if offset < log.log_start_offset:
        return otherwise
    try:
        data = log.read(offset, 1, isolation=Isolation.LOG_END).read()
        return parse_header(data).base_timestamp if data else otherwise
    except CordwoodError:
        return otherwise
