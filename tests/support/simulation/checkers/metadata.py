"""Decisions of the controller: epochs only rise, and leaders and ISRs are eligible brokers."""

from __future__ import annotations

from uuid import UUID

from cordwood.model.topic_partition import TopicPartition
from support.simulation.events import Decided, Event, Registered, Starts
from support.simulation.history import ViolationError


class Metadata:
    """Judges each state of a partition that the controller publishes, also after its restarts.

    - A change has a higher partition epoch; another leader has a higher leader epoch.
    - The leader is in the ISR, and the ISR has replicas alone, on brokers that are not fenced. As
      in Kafka, a heartbeat that comes late unfences a broker again that has stopped in order.
    - No replica is in sync and eligible as well (KIP-966).
    - A broker that comes back without the mark of a clean stop is neither.
    """

    name = "metadata"

    def __init__(self) -> None:
        self._partitions: dict[TopicPartition, Decided] = {}
        self._epochs: dict[int, int] = {}
        self._previous: dict[UUID, int] = {}

    def take(self, event: Event) -> None:
        """Checks an event."""
        match event:
            case Starts():
                self._previous[event.incarnation] = event.previous_epoch
            case Registered():
                self._register(event)
            case Decided():
                self._decide(event)

    def _violation(self, text: str) -> ViolationError:
        return ViolationError(self.name, text)

    def _register(self, event: Registered) -> None:
        before = self._epochs.get(event.broker, -1)
        if event.epoch == before:
            return
        self._epochs[event.broker] = event.epoch
        if event.epoch < before:
            raise self._violation(f"broker {event.broker} went back to the epoch {event.epoch}")
        is_clean = self._previous.get(event.incarnation) == before
        if event.still_in and not is_clean:
            raise self._violation(
                f"broker {event.broker} comes back after a crash with the epoch {event.epoch}, and "
                f"counts for {event.still_in[0]}"
            )

    def _decide(self, event: Decided) -> None:
        before = self._partitions.get(event.partition)
        self._partitions[event.partition] = event
        if before is not None:
            self._follow(before, event)
        isr, leader = set(event.isr), event.leader
        if len(isr) != len(event.isr) or not isr <= set(event.replicas):
            raise self._violation(f"the ISR has others than replicas: {event}")
        if leader >= 0 and leader not in isr:
            raise self._violation(f"the leader is not in the ISR: {event}")
        if isr & event.fenced:
            raise self._violation(f"a fenced broker is in the ISR: {event}")
        if isr.intersection(event.elr):
            raise self._violation(f"a replica is in sync and eligible: {event}")

    def _follow(self, before: Decided, event: Decided) -> None:
        if event.partition_epoch < before.partition_epoch or (
            event.leader_epoch < before.leader_epoch
        ):
            raise self._violation(f"an epoch went back from {before} to {event}")
        if event.partition_epoch == before.partition_epoch and _facts(event) != _facts(before):
            raise self._violation(f"a change without another partition epoch: {before} to {event}")
        if event.leader_epoch == before.leader_epoch and event.leader != before.leader:
            raise self._violation(f"another leader in the same epoch: {before} to {event}")


def _facts(event: Decided) -> tuple[object, ...]:
    return event.leader, event.replicas, event.isr, event.elr, event.last_known
