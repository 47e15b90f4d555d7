"""Events that may need a new producer id, which is drawn when the state asks for it.

Source: kafka.coordinator.transaction.TransactionCoordinator.initProducerIdWithEpoch,
ProducerIdManager.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol, TypeVar

from cordwood.coordinator.effects import Reply, ReplyTo
from cordwood.coordinator.transaction import events
from cordwood.coordinator.transaction.markers import TransactionRuntime
from cordwood.model.kafka_errors import KafkaError

A = TypeVar("A")


class ProducerIdSource(Protocol):
    """Has producer ids that nobody has used, from blocks of the controller."""

    def draw(self, then: Callable[[int | KafkaError], object], /) -> None:
        """Calls `then` with an id or an error, immediately or later, on the broker's thread."""


class WritesWithId:
    """Writes events, and writes them again with a producer id if they need one."""

    def __init__(self, runtime: TransactionRuntime, producer_ids: ProducerIdSource) -> None:
        self._runtime = runtime
        self._producer_ids = producer_ids

    def write(
        self,
        partition: int,
        event: Callable[[int | None, ReplyTo[Any]], events.TransactionEvent],
        reply: Reply[A],
        refused: Callable[[KafkaError], A],
        spare: int | None = None,
    ) -> None:
        """Writes an event that may need a producer id, which then is drawn.

        Args:
            partition: where it is written.
            event: makes it of a producer id, or None, and the place for the answer.
            reply: receives its answer.
            refused: makes the answer of an error.
            spare: the producer id.
        """

        def drawn(found: int | KafkaError) -> None:
            if isinstance(found, KafkaError):
                reply(refused(found))
            else:
                self.write(partition, event, reply, refused, found)

        def answered(answer: A | events.NeedsProducerId) -> None:
            if isinstance(answer, events.NeedsProducerId):
                assert spare is None, "an event that has a producer id needs none"
                self._producer_ids.draw(drawn)
            else:
                reply(answer)

        self._runtime.write(partition, event(spare, ReplyTo(answered, refused)))
