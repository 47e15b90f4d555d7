"""Producers of partitions, with the transactions that are open there.

They are known when a log has been opened: a task reads nothing more.

Source: org.apache.kafka.storage.internals.log.ProducerStateManager (DescribeProducers, KIP-664).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import pyarrow as pa

from cordwood.format.producer_snapshot import ENTRY_BYTES, ProducerEntry
from cordwood.frames.options import PARTITIONS_OPTIONS, FrameOptions
from cordwood.frames.rows import TIMESTAMP, Row, batches_of, timestamp
from cordwood.frames.survey import captured_logs
from cordwood.frames.table import Table
from cordwood.frames.wanted import Wanted
from cordwood.model.topic_partition import TopicPartition

_SCHEMA: Final = pa.schema(
    {
        "topic": pa.string(),
        "partition": pa.int32(),
        "producerId": pa.int64(),
        "producerEpoch": pa.int16(),
        "coordinatorEpoch": pa.int32(),
        "lastSequence": pa.int32(),
        "lastTimestamp": TIMESTAMP,
        "currentTransactionStartOffset": pa.int64(),
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Producers:
    """The producers of a partition."""

    partition: TopicPartition
    entries: tuple[ProducerEntry, ...]

    @property
    def size_bytes(self) -> int:
        """The bytes of the entries in a snapshot."""
        return len(self.entries) * ENTRY_BYTES


def _parts(options: FrameOptions, wanted: Wanted) -> list[_Producers]:
    return [
        _Producers(partition=captured.view.topic_partition, entries=captured.producers)
        for captured in captured_logs(options, wanted)
        if captured.producers
    ]


def _read(part: _Producers, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
    return batches_of((_row(part.partition, each) for each in part.entries), _SCHEMA, columns)


def _row(partition: TopicPartition, entry: ProducerEntry) -> Row:
    first_offset = entry.current_txn_first_offset
    return {
        "topic": partition.topic,
        "partition": partition.partition,
        "producerId": entry.producer_id,
        "producerEpoch": entry.producer_epoch,
        "coordinatorEpoch": entry.coordinator_epoch,
        "lastSequence": entry.last_sequence,
        "lastTimestamp": timestamp(entry.timestamp),
        "currentTransactionStartOffset": None if first_offset == -1 else first_offset,
    }


PRODUCERS: Final = Table(
    name="producers",
    schema=_SCHEMA,
    default_columns=tuple(_SCHEMA.names),
    options=PARTITIONS_OPTIONS,
    parts=_parts,
    read=_read,
)
