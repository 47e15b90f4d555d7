"""Transactions and producers of a cluster: the answers of `cordwood transactions`.

Kafka's tool shows them as tables, whose columns are the fields here.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import StrEnum

from cordwood.client.admin import Admin
from cordwood.client.blocking_transactions import BlockingTransaction, find_blocking
from cordwood.client.cluster_client import ClusterClient
from cordwood.client.errors import require
from cordwood.client.transactions import Producer, describe_transaction
from cordwood.model.clock import Clock
from cordwood.model.documents import KEY, CamelCase
from cordwood.model.topic_partition import TopicPartition
from cordwood.protocol.data import ListTransactionsRequest

_MS_PER_MINUTE = 60_000


class Missing(StrEnum):
    """The text that a table has in place of a number."""

    NONE = "None"


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedTransaction(CamelCase):
    """The transaction of a transactional id, and the broker that coordinates it."""

    transactional_id: str
    coordinator: int
    producer_id: int
    transaction_state: str


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribedTransaction(CamelCase):
    """The transaction of a transactional id; no start and no duration while none is under way.

    The names of the partitions are separated by commas.
    """

    coordinator_id: int
    transactional_id: str
    producer_id: int
    producer_epoch: int
    transaction_state: str
    transaction_timeout_ms: int
    current_transaction_start_time_ms: int | Missing
    transaction_duration_ms: int | Missing
    topic_partitions: str


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribedProducer(CamelCase):
    """An active producer of a partition; no start offset while it has no open transaction there."""

    producer_id: int
    producer_epoch: int
    latest_coordinator_epoch: int
    last_sequence: int
    last_timestamp: int
    current_transaction_start_offset: int | Missing


@dataclass(frozen=True, slots=True, kw_only=True)
class HangingTransaction(CamelCase):
    """An old transaction in a partition that no coordinator has under way."""

    topic: str
    partition: int
    producer_id: int
    producer_epoch: int
    coordinator_epoch: int
    start_offset: int
    last_timestamp: int
    duration_min: int = field(metadata={KEY: "duration(min)"})


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldBack(CamelCase):
    """An open transaction, and the offsets of a partition that it holds back.

    If no coordinator knows it, it has no timeout, its id and its state are `None` as texts, and
    `start_time_ms` is the time of its last record.
    """

    topic: str
    partition: int
    start_offset: int
    last_stable_offset: int
    high_watermark: int
    held_back: int
    producer_id: int
    producer_epoch: int
    transactional_id: str
    transaction_state: str
    start_time_ms: int
    duration_ms: int
    timeout_ms: int | Missing


def listed_transactions(
    cluster: ClusterClient, request: ListTransactionsRequest
) -> list[ListedTransaction]:
    """The transactions that a request selects, of all coordinators.

    Raises:
        ClientError: a broker cannot answer.
    """
    found = []
    for node in Admin(cluster).describe_cluster().nodes:
        answer = cluster.call(request, node_id=node.id)
        require(answer.error_code)
        found += [
            ListedTransaction(
                transactional_id=state.transactional_id,
                coordinator=node.id,
                producer_id=state.producer_id,
                transaction_state=state.transaction_state,
            )
            for state in answer.transaction_states
        ]
    return found


def described_transaction(
    cluster: ClusterClient, transactional_id: str, clock: Clock
) -> DescribedTransaction:
    """The transaction of a transactional id, and how long it has been under way.

    Raises:
        ClientError: the id is not known, or its coordinator cannot answer.
    """
    found = describe_transaction(cluster, transactional_id)
    is_under_way = found.started_ms >= 0
    duration_ms = clock.now_ms() - found.started_ms
    return DescribedTransaction(
        coordinator_id=found.coordinator,
        transactional_id=transactional_id,
        producer_id=found.producer_id,
        producer_epoch=found.producer_epoch,
        transaction_state=found.state,
        transaction_timeout_ms=found.timeout_ms,
        current_transaction_start_time_ms=found.started_ms if is_under_way else Missing.NONE,
        transaction_duration_ms=duration_ms if is_under_way else Missing.NONE,
        topic_partitions=",".join(found.partitions),
    )


def described_producer(producer: Producer) -> DescribedProducer:
    """A producer as a table shows it."""
    start = producer.current_txn_start_offset
    return DescribedProducer(
        producer_id=producer.producer_id,
        producer_epoch=producer.producer_epoch,
        latest_coordinator_epoch=producer.coordinator_epoch,
        last_sequence=producer.last_sequence,
        last_timestamp=producer.last_timestamp,
        current_transaction_start_offset=Missing.NONE if start < 0 else start,
    )


def hanging_transaction(tp: TopicPartition, producer: Producer, now_ms: int) -> HangingTransaction:
    """The open transaction of a producer in a partition."""
    return HangingTransaction(
        topic=tp.topic,
        partition=tp.partition,
        producer_id=producer.producer_id,
        producer_epoch=producer.producer_epoch,
        coordinator_epoch=producer.coordinator_epoch,
        start_offset=producer.current_txn_start_offset,
        last_timestamp=producer.last_timestamp,
        duration_min=(now_ms - producer.last_timestamp) // _MS_PER_MINUTE,
    )


def blocking_transactions(
    cluster: ClusterClient, partitions: Iterable[TopicPartition], clock: Clock
) -> list[HeldBack]:
    """The open transactions of those of the partitions that they hold back, by first offset.

    Raises:
        ClientError: a broker cannot answer.
    """
    found = find_blocking(cluster, partitions)
    now_ms = clock.now_ms()
    return [_held_back(each, now_ms) for each in found]


def _held_back(each: BlockingTransaction, now_ms: int) -> HeldBack:
    known = each.known
    began_ms = each.last_timestamp_ms
    if known is not None and known.started_ms >= 0:
        began_ms = known.started_ms
    return HeldBack(
        topic=each.partition.topic,
        partition=each.partition.partition,
        start_offset=each.start_offset,
        last_stable_offset=each.last_stable_offset,
        high_watermark=each.high_watermark,
        held_back=each.held_back,
        producer_id=each.producer_id,
        producer_epoch=each.producer_epoch,
        transactional_id=each.transactional_id or Missing.NONE,
        transaction_state=Missing.NONE if known is None else known.state,
        start_time_ms=began_ms,
        duration_ms=now_ms - began_ms,
        timeout_ms=Missing.NONE if known is None else known.timeout_ms,
    )
