"""Open transactions that hold back the last stable offset of partitions.

Only Kafka's own requests are used, so that any broker can be asked: ListOffsets of both isolation
levels, DescribeProducers, ListTransactions and DescribeTransactions (KIP-664).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple, TypeVar

from cordwood.client.admin import Admin
from cordwood.client.cluster_client import ClusterClient
from cordwood.client.errors import RefusedError, require
from cordwood.client.offsets import LATEST, Offsets
from cordwood.client.transactions import Transaction, describe_producers, describe_transaction
from cordwood.model.topic_partition import TopicPartition
from cordwood.protocol.data import ListTransactionsRequest

T = TypeVar("T")
_READ_COMMITTED = 1


class BlockingTransaction(NamedTuple):
    """An open transaction in a partition whose committed records end before its high watermark.

    The first of a partition begins at the last stable offset. `transactional_id` and `known` are
    None if no coordinator has it under way: then nothing ends it but a marker written by hand.
    """

    partition: TopicPartition
    last_stable_offset: int
    high_watermark: int
    start_offset: int
    producer_id: int
    producer_epoch: int
    last_timestamp_ms: int
    transactional_id: str | None
    known: Transaction | None

    @property
    def held_back(self) -> int:
        """The number of offsets that readers of committed records do not get because of it."""
        return self.high_watermark - self.start_offset


def find_blocking(
    cluster: ClusterClient, partitions: Iterable[TopicPartition]
) -> list[BlockingTransaction]:
    """The open transactions of those of the partitions that they hold back, by first offset.

    Raises:
        ClientError: a broker cannot answer.
    """
    offsets = Offsets(cluster)
    moments = dict.fromkeys(partitions, LATEST)
    if not moments:
        return []
    stable = _require_all(offsets.list_offsets(moments, isolation=_READ_COMMITTED))
    ends = _require_all(offsets.list_offsets(moments))
    held = [tp for tp in moments if stable[tp] < ends[tp]]
    producers = {
        tp: [one for one in active if one.current_txn_start_offset >= 0]
        for tp, active in _require_all(describe_producers(cluster, held)).items()
    }
    coordinated = _coordinated(cluster) if any(producers.values()) else {}
    found = []
    for tp in held:
        for one in sorted(producers[tp], key=lambda each: each.current_txn_start_offset):
            transactional_id, known = coordinated.get(one.producer_id, (None, None))
            if known is not None and str(tp) not in known.partitions:
                transactional_id, known = None, None
            found.append(
                BlockingTransaction(
                    tp,
                    stable[tp],
                    ends[tp],
                    one.current_txn_start_offset,
                    one.producer_id,
                    one.producer_epoch,
                    one.last_timestamp,
                    transactional_id,
                    known,
                )
            )
    return found


def _require_all(found: Mapping[TopicPartition, T | RefusedError]) -> dict[TopicPartition, T]:
    values = {}
    for tp, value in found.items():
        if isinstance(value, RefusedError):
            raise value
        values[tp] = value
    return values


def _coordinated(cluster: ClusterClient) -> dict[int, tuple[str, Transaction]]:
    """The transactional id and the transaction of each producer id that a coordinator knows."""
    found = {}
    for node in Admin(cluster).describe_cluster().nodes:
        answer = cluster.call(ListTransactionsRequest(), node_id=node.id)
        require(answer.error_code)
        for state in answer.transaction_states:
            described = describe_transaction(cluster, state.transactional_id)
            found[described.producer_id] = (state.transactional_id, described)
    return found
