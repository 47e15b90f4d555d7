"""Transactions as coordinators and leaders of partitions describe them, and their forced end.

Source: DescribeTransactionsResponse (KIP-664), FenceProducersHandler (KIP-588),
DescribeProducersHandler, AbortTransactionHandler.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from cordwood.client.admin import by_topic
from cordwood.client.cluster_client import TRANSACTION, ClusterClient, Coordinator
from cordwood.client.errors import RefusedError, require
from cordwood.client.offsets import Offsets
from cordwood.model.error_codes import ErrorCode
from cordwood.model.topic_partition import TopicPartition
from cordwood.protocol.data import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    DescribeTransactionsRequest,
    InitProducerIdRequest,
    WriteTxnMarkersRequest,
)

_REASONS: Mapping[int, str] = {
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED: "cluster authorization failure",
    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: "transactional ID authorization failure",
}


Producer = DescribeProducersResponse.ProducerState


class Transaction(NamedTuple):
    """The state of a transactional id; `started_ms` is -1 while nothing is under way."""

    coordinator: int
    state: str
    timeout_ms: int
    started_ms: int
    producer_id: int
    producer_epoch: int
    partitions: tuple[str, ...]


class AbortedTransaction(NamedTuple):
    """A transaction to abort in a partition, by its producer; with the epoch of its coordinator."""

    producer_id: int
    producer_epoch: int
    coordinator_epoch: int


def describe_transaction(cluster: ClusterClient, transactional_id: str) -> Transaction:
    """Describes a transactional id, as its coordinator knows it.

    Raises:
        RefusedError: the id is not known.
    """
    coordinator = Coordinator(TRANSACTION, transactional_id)
    answer = cluster.call(
        DescribeTransactionsRequest(transactional_ids=[transactional_id]),
        coordinator=coordinator,
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
        cluster.find_coordinator(coordinator).id,
        state.transaction_state,
        state.transaction_timeout_ms,
        state.transaction_start_time_ms,
        state.producer_id,
        state.producer_epoch,
        tuple(f"{topic.topic}-{number}" for topic in state.topics for number in topic.partitions),
    )


def terminate_transaction(cluster: ClusterClient, transactional_id: str) -> None:
    """Aborts the transaction of that id if one is open, and fences its producer.

    An id that is not known becomes known.

    Raises:
        RefusedError: the coordinator refuses, or is not ready in time.
    """
    request = InitProducerIdRequest(
        transactional_id=transactional_id,
        transaction_timeout_ms=cluster.settings.request_timeout_ms,
    )
    answer = cluster.call(request, coordinator=Coordinator(TRANSACTION, transactional_id))
    code = answer.error_code
    require(
        code,
        f"InitProducerId request for transactionalId `{transactional_id}` failed due to "
        f"{_REASONS.get(code, 'unexpected error')}",
    )


def describe_producers(
    cluster: ClusterClient, partitions: Iterable[TopicPartition]
) -> dict[TopicPartition, Sequence[Producer] | RefusedError]:
    """The active producers of each partition, as its leader knows them."""

    def ask(
        node: int, led: Sequence[TopicPartition], deadline: float
    ) -> dict[TopicPartition, Sequence[Producer] | RefusedError]:
        topics = [
            DescribeProducersRequest.TopicRequest(name=name, partition_indexes=indexes)
            for name, indexes in by_topic(led).items()
        ]
        answer = cluster.call(
            DescribeProducersRequest(topics=topics),
            node_id=node,
            is_single=True,
            deadline=deadline,
        )
        return {
            TopicPartition(topic.name, state.partition_index): (
                RefusedError(int(state.error_code), state.error_message)
                if state.error_code
                else state.active_producers
            )
            for topic in answer.topics
            for state in topic.partitions
        }

    return Offsets(cluster).at_leaders("describe_producers", partitions, ask)


def abort_in_partition(
    cluster: ClusterClient, tp: TopicPartition, aborted: AbortedTransaction
) -> None:
    """Writes an abort marker, by the leader of a partition.

    Raises:
        RefusedError: the leader refuses.
    """
    topic = WriteTxnMarkersRequest.WritableTxnMarkerTopic(
        name=tp.topic, partition_indexes=[tp.partition]
    )
    request = WriteTxnMarkersRequest(
        markers=[
            WriteTxnMarkersRequest.WritableTxnMarker(
                producer_id=aborted.producer_id,
                producer_epoch=aborted.producer_epoch,
                coordinator_epoch=aborted.coordinator_epoch,
                topics=[topic],
            )
        ]
    )

    def ask(
        node: int, _: Sequence[TopicPartition], deadline: float
    ) -> dict[TopicPartition, int | RefusedError]:
        answer = cluster.call(request, node_id=node, is_single=True, deadline=deadline)
        (((written,),),) = ((topic.partitions for topic in each.topics) for each in answer.markers)
        return {tp: RefusedError(int(written.error_code)) if written.error_code else 0}

    written = Offsets(cluster).at_leaders("write_txn_markers", [tp], ask)[tp]
    if isinstance(written, RefusedError):
        raise written
