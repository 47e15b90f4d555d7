"""`cordwood transactions blocking`: which open transaction holds back which partition.

Kafka's tool has no such command; kafka-transactions needs one call for each partition.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from cordwood.client.admin import Admin
from cordwood.client.blocking_transactions import BlockingTransaction, find_blocking
from cordwood.client.cluster_client import ClusterClient
from cordwood.client.errors import ClientError
from cordwood.model.topic_partition import TopicPartition
from cordwood.surfaces.cli.tools.options import Options
from cordwood.surfaces.cli.tools.pretty_table import show_rows
from cordwood.surfaces.cli.tools.tool import Terminal, ToolError
from cordwood.surfaces.cli.values import format_duration

_HEADERS = (
    *("Topic", "Partition", "StartOffset", "LastStableOffset", "HighWatermark", "HeldBack"),
    *("ProducerId", "ProducerEpoch", "TransactionalId", "TransactionState", "StartTimeMs"),
    *("DurationMs", "TimeoutMs"),
)


def show_blocking(options: Options, cluster: ClusterClient, terminal: Terminal) -> None:
    """Prints the open transactions of partitions, and what ends the first of each.

    Raises:
        ToolError: a broker cannot be asked, or --partition is there without --topic.
    """
    topic, partition = options.value("topic"), options.number("partition")
    if topic is None and partition is not None:
        raise ToolError("The --partition argument requires --topic to be provided")
    try:
        asked = [
            TopicPartition(each.name, one.partition)
            for each in Admin(cluster).topics(None if topic is None else [topic])
            for one in each.partitions
            if partition is None or one.partition == partition
        ]
        found = find_blocking(cluster, asked)
    except ClientError as error:
        raise ToolError(f"Failed to find blocking transactions: {error}") from error
    now_ms = terminal.clock.now_ms()
    show_rows(_HEADERS, [_row(each, now_ms) for each in found], options, terminal)
    if options.has("json"):
        return
    for each in found:
        terminal.line(_advice(each, now_ms))


def _row(each: BlockingTransaction, now_ms: int) -> Sequence[Any]:
    known = each.known
    began_ms = _began_ms(each)
    return [
        *(each.partition.topic, each.partition.partition, each.start_offset),
        *(each.last_stable_offset, each.high_watermark, each.held_back),
        *(each.producer_id, each.producer_epoch, each.transactional_id or "None"),
        *("None" if known is None else known.state, began_ms, now_ms - began_ms),
        "None" if known is None else known.timeout_ms,
    ]


def _began_ms(each: BlockingTransaction) -> int:
    """The start of the transaction; if no coordinator knows it, the time of its last record."""
    known = each.known
    return each.last_timestamp_ms if known is None or known.started_ms < 0 else known.started_ms


def _advice(each: BlockingTransaction, now_ms: int) -> str:
    """The action that ends a transaction, in words."""
    tp = each.partition
    what = f"{tp} from offset {each.start_offset}:"
    if each.known is None:
        return (
            f"{what} no coordinator knows the transaction of producer {each.producer_id}. End it "
            f"with: abort --topic {tp.topic} --partition {tp.partition} --start-offset "
            f"{each.start_offset}"
        )
    if each.known.state != "Ongoing":
        return f"{what} {each.transactional_id} is in {each.known.state}: its markers are written"
    left_ms = _began_ms(each) + each.known.timeout_ms - now_ms
    due = f"in {format_duration(left_ms)}" if left_ms > 0 else "at its next check"
    return (
        f"{what} {each.transactional_id} commits or aborts it, or its coordinator aborts it {due}"
    )
