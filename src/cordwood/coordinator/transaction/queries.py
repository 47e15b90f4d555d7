"""Answers to clients that list, describe or verify transactions.

Source: kafka.coordinator.transaction.TransactionCoordinator, TransactionStateManager (4.3.0).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import NamedTuple

from cordwood.coordinator.transaction.requests import (
    DescribedTransaction,
    ListedTransaction,
    ListedTransactions,
)
from cordwood.coordinator.transaction.shard import TransactionShard
from cordwood.coordinator.transaction.transaction import STATES_BY_NAME, Transaction
from cordwood.model.error_codes import ErrorCode
from cordwood.model.regular_expressions import RegularExpression, compile_regular_expression
from cordwood.model.topic_partition import TopicPartition


def verification_error(
    known: Transaction | None, producer_id: int, producer_epoch: int
) -> ErrorCode:
    """The error of all partitions of a producer whose transaction is to be verified."""
    if known is None or known.producer_id != producer_id:
        return ErrorCode.INVALID_PRODUCER_ID_MAPPING
    if known.producer_epoch != producer_epoch:
        return ErrorCode.PRODUCER_FENCED
    if known.state.is_prepared:
        return ErrorCode.CONCURRENT_TRANSACTIONS
    return ErrorCode.NONE


def verified(known: Transaction, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
    """An error code for each partition: whether it is in the transaction."""
    held = set(known.partitions)
    return {
        each: int(ErrorCode.NONE if each in held else ErrorCode.TRANSACTION_ABORTABLE)
        for each in partitions
    }


def described(known: Transaction | None) -> DescribedTransaction:
    """A transaction as DescribeTransactions describes it."""
    if known is None:
        return DescribedTransaction(ErrorCode.TRANSACTIONAL_ID_NOT_FOUND)
    topics: dict[str, list[int]] = {}
    for each in known.partitions:
        topics.setdefault(each.topic, []).append(each.partition)
    return DescribedTransaction(
        ErrorCode.NONE,
        known.state.kafka_name,
        known.timeout_ms,
        known.start_ms,
        known.producer_id,
        known.producer_epoch,
        tuple((topic, tuple(numbers)) for topic, numbers in topics.items()),
    )


class Filter(NamedTuple):
    """Filter of ListTransactions."""

    states: Collection[str]
    producer_ids: Collection[int]
    duration_ms: int
    pattern: RegularExpression | None

    @classmethod
    def of(
        cls,
        states: Iterable[str],
        producer_ids: Iterable[int],
        duration_ms: int,
        pattern: str | None,
    ) -> Filter:
        """The filter that the fields of a request describe.

        Raises:
            InvalidRegularExpressionError: the pattern is not in RE2's syntax.
        """
        compiled = compile_regular_expression(pattern) if pattern else None
        names = tuple(dict.fromkeys(states))
        return cls(names, frozenset(producer_ids), duration_ms, compiled)

    @property
    def unknown_states(self) -> Sequence[str]:
        """The names that are not those of states."""
        return tuple(name for name in self.states if name not in STATES_BY_NAME)

    def admits(self, transaction: Transaction, now_ms: int) -> bool:
        """Whether a transaction is listed."""
        if self.producer_ids and transaction.producer_id not in self.producer_ids:
            return False
        if self.states and transaction.state.kafka_name not in self.states:
            return False
        if self.duration_ms >= 0 and now_ms - transaction.start_ms <= self.duration_ms:
            return False
        transactional_id = transaction.transactional_id
        return self.pattern is None or self.pattern.fullmatch(transactional_id) is not None


def listed(
    shards: Iterable[tuple[TransactionShard, int]], wanted: Filter, now_ms: int
) -> ListedTransactions:
    """The committed transactions of partitions, each of which is read at an offset.

    They are in the order of the partitions, and in each as Kafka's map yields them.
    """
    found = []
    for shard, at in shards:
        for transactional_id in shard.ids(at):
            transaction = shard.transactions.get(transactional_id, at)
            if transaction is not None and wanted.admits(transaction, now_ms):
                state = transaction.state.kafka_name
                listing = ListedTransaction(transactional_id, transaction.producer_id, state)
                found.append(listing)
    return ListedTransactions(ErrorCode.NONE, wanted.unknown_states, tuple(found))
