"""`cordwood transactions blocking`: which open transaction holds back which partition.

Kafka's tool has no such command; kafka-transactions needs one call for each partition.
"""

from __future__ import annotations

from cordwood.client.admin import Admin
from cordwood.client.cluster_client import ClusterClient
from cordwood.client.errors import ClientError
from cordwood.model.topic_partition import TopicPartition
from cordwood.queries.transactions import HeldBack, Missing, blocking_transactions
from cordwood.surfaces.cli.tools.options import Options
from cordwood.surfaces.cli.tools.pretty_table import show_rows
from cordwood.surfaces.cli.tools.tool import Terminal, ToolError
from cordwood.surfaces.cli.values import format_duration


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
        found = blocking_transactions(cluster, asked, terminal.clock)
    except ClientError as error:
        raise ToolError(f"Failed to find blocking transactions: {error}") from error
    show_rows(HeldBack, found, options, terminal)
    if options.has("json"):
        return
    for each in found:
        terminal.line(_advice(each))


def _advice(each: HeldBack) -> str:
    """The action that ends a transaction, in words."""
    what = f"{each.topic}-{each.partition} from offset {each.start_offset}:"
    if isinstance(each.timeout_ms, Missing):
        return (
            f"{what} no coordinator knows the transaction of producer {each.producer_id}. End it "
            f"with: abort --topic {each.topic} --partition {each.partition} --start-offset "
            f"{each.start_offset}"
        )
    if each.transaction_state != "Ongoing":
        return (
            f"{what} {each.transactional_id} is in {each.transaction_state}: its markers are "
            "written"
        )
    left_ms = each.timeout_ms - each.duration_ms
    due = f"in {format_duration(left_ms)}" if left_ms > 0 else "at its next check"
    return (
        f"{what} {each.transactional_id} commits or aborts it, or its coordinator aborts it {due}"
    )
