"""A transaction as its coordinator describes it.

Source: DescribeTransactionsResponse (KIP-664).
"""

from __future__ import annotations

from typing import NamedTuple

from cordwood.client.cluster import Cluster
from cordwood.client.coordinator import TRANSACTION, find_coordinator
from cordwood.client.errors import RefusedError, require
from cordwood.model.error_codes import ErrorCode


class Transaction(NamedTuple):
    """The state of a transactional id; `started_ms` is -1 while nothing is under way."""

    coordinator: int
    state: str
    timeout_ms: int
    started_ms: int
    producer_id: int
    producer_epoch: int
    partitions: tuple[str, ...]


def describe_transaction(cluster: Cluster, transactional_id: str) -> Transaction:
    """What the coordinator of that id says of it.

    Raises:
        RefusedError: the id is not known.
    """
    node_id = find_coordinator(cluster, transactional_id, kind=TRANSACTION)
    answer = cluster.call(
        "describe_transactions",
        {"transactional_ids": [transactional_id]},
        node_id=node_id,
    )
    (state,) = answer.transaction_states
    if state.error_code == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND:
        raise RefusedError(
            ErrorCode.TRANSACTIONAL_ID_NOT_FOUND,
            f"DescribeTransactions request for transactionalId `{transactional_id}` failed because "
            "the ID could not be found",
        )
    require(state.error_code)
    return Transaction(
        node_id,
        state.transaction_state,
        state.transaction_timeout_ms,
        state.transaction_start_time_ms,
        state.producer_id,
        state.producer_epoch,
        tuple(f"{topic.topic}-{number}" for topic in state.topics for number in topic.partitions),
    )
