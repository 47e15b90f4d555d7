"""Transactional ids and their transactions: the current state of `__transaction_state`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

import pyarrow as pa

from cordwood.broker.coordinators.transaction_log import TransactionReplay
from cordwood.coordinator.timeline import Timeline
from cordwood.coordinator.transaction.shard import TransactionShard
from cordwood.coordinator.transaction.transaction import Transaction
from cordwood.format.transaction_state import STATE_NAMES
from cordwood.frames.internal_logs import InternalLog, internal_logs
from cordwood.frames.options import FrameOptions
from cordwood.frames.rows import TIMESTAMP, Row, batches_of, timestamp
from cordwood.frames.table import Table
from cordwood.frames.wanted import Wanted
from cordwood.model.topic_names import TRANSACTION_STATE_TOPIC

_PARTITION = pa.struct([pa.field("topic", pa.string()), pa.field("partition", pa.int32())])

_SCHEMA: Final = pa.schema(
    {
        "transactionalId": pa.string(),
        "producerId": pa.int64(),
        "producerEpoch": pa.int16(),
        "state": pa.string(),
        "timeoutMs": pa.int32(),
        "partitions": pa.list_(_PARTITION),
        "startTimestamp": TIMESTAMP,
        "updateTimestamp": TIMESTAMP,
        "previousProducerId": pa.int64(),
        "nextProducerId": pa.int64(),
        "clientTransactionVersion": pa.int16(),
        "recordPartition": pa.int32(),
    }
)


def _parts(options: FrameOptions, _wanted: Wanted) -> list[InternalLog]:
    return internal_logs(TRANSACTION_STATE_TOPIC, options)


def _read(part: InternalLog, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
    shard = TransactionShard(part.partition, Timeline())
    part.replay(TransactionReplay(shard))
    rows = (_row(each, part.partition) for each in shard.transactions.values())
    return batches_of(rows, _SCHEMA, columns)


def _row(transaction: Transaction, number: int) -> Row:
    return {
        "transactionalId": transaction.transactional_id,
        "producerId": transaction.producer_id,
        "producerEpoch": transaction.producer_epoch,
        "state": STATE_NAMES[transaction.state.value],
        "timeoutMs": transaction.timeout_ms,
        "partitions": [
            {"topic": each.topic, "partition": each.partition} for each in transaction.partitions
        ],
        "startTimestamp": timestamp(transaction.start_ms),
        "updateTimestamp": timestamp(transaction.update_ms),
        "previousProducerId": transaction.prev_producer_id,
        "nextProducerId": transaction.next_producer_id,
        "clientTransactionVersion": transaction.client_version,
        "recordPartition": number,
    }


TRANSACTIONS: Final = Table(
    name="transactions",
    schema=_SCHEMA,
    default_columns=tuple(_SCHEMA.names),
    options=("isolation",),
    parts=_parts,
    read=_read,
)
