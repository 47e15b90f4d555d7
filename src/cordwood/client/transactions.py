"""A transaction as its coordinator describes it, and its forced end.

Source: DescribeTransactionsResponse (KIP-664), FenceProducersHandler (KIP-588).
"""

from __future__ import annotations

from typing import NamedTuple

from cordwood.client.cluster import Cluster
from cordwood.client.coordinator import NOT_YET, RETRY_S, TRANSACTION, find_coordinator
from cordwood.client.errors import RefusedError, require
from cordwood.model.clock import pause
from cordwood.model.error_codes import ErrorCode

_REASONS = {
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED: "cluster authorization failure",
    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: "transactional ID authorization failure",
}


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


def terminate_transaction(cluster: Cluster, transactional_id: str) -> None:
    """Aborts the transaction of that id if one is open, and fences its producer.

    An id that is not known becomes known.

    Raises:
        RefusedError: the coordinator refuses, or is not ready in time.
    """
    deadline = cluster.deadline()
    fields = {
        "transactional_id": transactional_id,
        "transaction_timeout_ms": cluster.settings.request_timeout_ms,
        "producer_id": -1,
        "producer_epoch": -1,
    }
    while True:
        node_id = find_coordinator(cluster, transactional_id, kind=TRANSACTION)
        code = cluster.call("init_producer_id", fields, node_id=node_id).error_code
        # A coordinator that aborts a transaction answers so until the markers are written.
        is_early = code == ErrorCode.CONCURRENT_TRANSACTIONS or code in NOT_YET
        if not is_early or cluster.is_past(deadline):
            break
        pause(RETRY_S)
    require(
        code,
        f"InitProducerId request for transactionalId `{transactional_id}` failed due to "
        f"{_REASONS.get(code, 'unexpected error')}",
    )
