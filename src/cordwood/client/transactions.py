"""A transaction as its coordinator describes it.

Read by a schema of its own: kio refuses the start time of -1 that a transaction has between two.

Source: DescribeTransactionsResponse (KIP-664).
"""

from __future__ import annotations

from typing import NamedTuple

from cordwood.client.cluster import Cluster
from cordwood.client.coordinator import TRANSACTION, find_coordinator
from cordwood.client.errors import RefusedError, require
from cordwood.format.byte_reader import ByteReader
from cordwood.format.message_schema import read_message, schemas
from cordwood.model.error_codes import ErrorCode

_RESPONSE = schemas(
    """
message DescribeTransactionsResponse versions=0 flexible=0+
  throttleTimeMs int32
  transactionStates []{}
    errorCode int16
    transactionalId string
    transactionState string
    transactionTimeoutMs int32
    transactionStartTimeMs int64
    producerId int64
    producerEpoch int16
    topics []{}
      topic string
      partitions []int32
"""
)["DescribeTransactionsResponse"]


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
        decode=lambda body: read_message(_RESPONSE, 0, ByteReader(body)).fields,
    )
    (state,) = answer["transactionStates"]
    if state["errorCode"] == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND:
        raise RefusedError(
            ErrorCode.TRANSACTIONAL_ID_NOT_FOUND,
            f"DescribeTransactions request for transactionalId `{transactional_id}` failed because "
            "the ID could not be found",
        )
    require(state["errorCode"])
    return Transaction(
        node_id,
        state["transactionState"],
        state["transactionTimeoutMs"],
        state["transactionStartTimeMs"],
        state["producerId"],
        state["producerEpoch"],
        tuple(
            f"{topic['topic']}-{number}"
            for topic in state["topics"]
            for number in topic["partitions"]
        ),
    )
