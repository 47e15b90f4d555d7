"""Answers that wait until what was appended is committed.

Source: kafka.server.DelayedProduce, ReplicaManager.appendRecords.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import NamedTuple, Protocol

from cordwood.broker.broker_context import BrokerContext
from cordwood.format.messages.message import Message
from cordwood.model.kafka_errors import KafkaError, RequestTimedOutError


class PartitionAnswer(Protocol):
    """A partition in a response."""

    error_code: int


class Uncommitted(NamedTuple):
    """A partition whose high watermark has to reach `required`.

    The error code of `answer`, the partition in the response, is set if the records are not
    committed.
    """

    topic: str
    partition_index: int
    required: int
    answer: PartitionAnswer


def is_replicated(context: BrokerContext, topic: str, index: int) -> bool:
    """Whether other replicas may have to have what is appended before it is committed."""
    return context.broker.replicas.partition(topic, index).leadership is not None


def when_committed(
    context: BrokerContext, fields: Message, uncommitted: Sequence[Uncommitted], timeout_ms: int
) -> asyncio.Future[Message]:
    """The fields of the response, when all partitions are committed or the time is up.

    Args:
        context: of the request.
        fields: of the response; they contain the answers of `uncommitted`.
        uncommitted: the partitions to wait for.
        timeout_ms: after it, partitions that are not committed are answered REQUEST_TIMED_OUT.
    """
    operation = DelayedProduce(context, fields, uncommitted)
    keys = [(each.topic, each.partition_index) for each in uncommitted]
    context.broker.replicas.delayed.produce.try_complete_else_watch(operation, keys, timeout_ms)
    return operation.answer


class DelayedProduce:
    """Batches that are appended and not yet committed; `answer` is done when they are.

    Source: kafka.server.DelayedProduce; Partition.checkEnoughReplicasReachOffset.
    """

    def __init__(
        self, context: BrokerContext, fields: Message, uncommitted: Sequence[Uncommitted]
    ) -> None:
        self._replicas = context.broker.replicas
        self._fields = fields
        self._uncommitted = list(uncommitted)
        self.answer: asyncio.Future[Message] = context.broker.thread.create_future()

    def try_complete(self, _grown_bytes: int | None) -> bool:
        """Returns whether all partitions are committed, or no longer can be."""
        self._uncommitted = [each for each in self._uncommitted if not self._is_settled(each)]
        return not self._uncommitted

    def _is_settled(self, each: Uncommitted) -> bool:
        """Whether a partition is committed, or this leader cannot commit it any more."""
        try:
            partition = self._replicas.partition(each.topic, each.partition_index)
        except KafkaError as error:
            each.answer.error_code = error.code
            return True
        code = partition.committed(each.required)
        if code is None:
            return False
        each.answer.error_code = code
        return True

    def on_expiration(self) -> None:
        """Answers REQUEST_TIMED_OUT for partitions that are not committed."""
        for each in self._uncommitted:
            each.answer.error_code = RequestTimedOutError.code

    def on_complete(self) -> None:
        """Makes the response available, unless the client has disconnected."""
        if not self.answer.done():
            self.answer.set_result(self._fields)
