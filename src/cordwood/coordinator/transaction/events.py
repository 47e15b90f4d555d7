"""The events of transactions: requests, markers, timeouts, and failed writes.

An event whose `spare_producer_id` is None is answered NEEDS_PRODUCER_ID if it needs a producer id
that nobody has: it changes nothing, and happens again with an id.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from cordwood.coordinator.effects import Answer, ReplyTo
from cordwood.coordinator.events import CoordinatorEvent
from cordwood.coordinator.transaction.requests import EndRequest, InitProducerIdRequest
from cordwood.coordinator.transaction.transaction import Transaction
from cordwood.model.kafka_errors import KafkaError
from cordwood.model.topic_partition import TopicPartition


class NeedsProducerId:
    """The answer to an event that needs a producer id."""


NEEDS_PRODUCER_ID: Final = NeedsProducerId()


class TransactionEvent(CoordinatorEvent):
    """An event of a transaction."""

    __slots__ = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class InitProducerId(TransactionEvent):
    """InitProducerId with a transactional id."""

    transactional_id: str
    request: InitProducerIdRequest
    spare_producer_id: int | None = None
    reply_to: ReplyTo[Any]  # InitProducerIdAnswer or NeedsProducerId


@dataclass(frozen=True, slots=True, kw_only=True)
class AddPartitions(TransactionEvent):
    """AddPartitionsToTxn or AddOffsetsToTxn; the answer is an error code."""

    transactional_id: str
    producer_id: int
    producer_epoch: int
    partitions: tuple[TopicPartition, ...]
    client_version: int
    reply_to: ReplyTo[int]


@dataclass(frozen=True, slots=True, kw_only=True)
class EndTransaction(TransactionEvent):
    """An EndTxn request."""

    request: EndRequest
    spare_producer_id: int | None = None
    reply_to: ReplyTo[Any]  # EndAnswer or NeedsProducerId


@dataclass(frozen=True, slots=True, kw_only=True)
class TimedOut(TransactionEvent):
    """A transaction has been open for too long: it is to be aborted; the answer is for the log."""

    transactional_id: str
    producer_id: int
    spare_producer_id: int | None = None
    reply_to: ReplyTo[Any]  # EndAnswer or NeedsProducerId


@dataclass(frozen=True, slots=True, kw_only=True)
class MarkersWritten(TransactionEvent):
    """Each partition of a prepared transaction has its marker, or is gone.

    `prepared_ms` is when the markers were due: it is the time of the last update in the record.
    """

    transactional_id: str
    producer_id: int
    producer_epoch: int
    prepared_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpireIds(TransactionEvent):
    """Timer event: looks for expired transactional ids."""

    is_long = True
    reply_to: ReplyTo[None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Loaded(TransactionEvent):
    """The transactions were read from the log: those that are prepared need their markers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FenceNotWritten(TransactionEvent):
    """The abort that fences a producer is not in the log.

    `fenced` is the transaction with the epoch that was to be written, which no producer is given
    again; None if the attempt leaves no trace.
    """

    transactional_id: str
    fenced: Transaction | None
    error: KafkaError
    answer: Answer


@dataclass(frozen=True, slots=True, kw_only=True)
class CompletionNotWritten(TransactionEvent):
    """The end of a transaction is not in the log, though its markers are in theirs."""

    event: MarkersWritten
    error: KafkaError
