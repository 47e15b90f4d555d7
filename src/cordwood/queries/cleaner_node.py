"""The cleaner of a node in this process."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from cordwood.cleanup.schedule.cleaner_answer import CleanerStatus, LogStatus
from cordwood.node.node import Node
from cordwood.queries.on_loop import OnLoop


def cleaner_of(node: Node, on_loop: OnLoop) -> CleanerStatus:
    """The cleaner of a node, with the transactional ids of open transactions."""
    status = node.cleaner.status()
    if not any(each.open_transactions for each in status.partitions):
        return status
    ids = on_loop(node.broker.transactions.ids_by_producer)
    return replace(status, partitions=[_named(each, ids) for each in status.partitions])


def _named(log: LogStatus, ids: Mapping[int, str]) -> LogStatus:
    return replace(
        log,
        open_transactions=[
            replace(each, transactional_id=ids.get(each.producer_id))
            for each in log.open_transactions
        ],
    )
