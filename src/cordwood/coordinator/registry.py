"""The coordinators of a broker, by the topics that their records are in.

What a coordinator is asked because of its topic is asked here: elections, high watermarks, markers
of transactions, deleted topics, and who coordinates a key. A new coordinator is registered once.

Source: kafka.server.BrokerServer, metadata.BrokerMetadataPublisher, KafkaApis.getCoordinator.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Any, Protocol

from cordwood.coordinator.runtime import CoordinatorRuntime


class Coordinator(Protocol):
    """A coordinator, whatever it coordinates."""

    @property
    def key_type(self) -> int:
        """The type of its keys in FindCoordinator."""

    @property
    def has_transactional_records(self) -> bool:
        """Whether its records may be part of transactions, so that markers concern its state."""

    @property
    def runtime(self) -> CoordinatorRuntime[Any, Any, Any]:
        """Handles its events."""

    def start(self) -> None:
        """Begins its periodic work, and loads what is led here already."""

    def close(self) -> None:
        """Ends its periodic work, and unloads all partitions."""


class Coordinators:
    """The coordinators of this broker; belongs to the thread that owns the broker's state."""

    def __init__(self) -> None:
        self._by_topic: dict[str, Coordinator] = {}

    def __iter__(self) -> Iterator[Coordinator]:
        return iter(self._by_topic.values())

    def register(self, coordinator: Coordinator) -> None:
        """Adds the coordinator of a topic, and of a type of keys."""
        topic, key_type = coordinator.runtime.partitions.topic, coordinator.key_type
        assert topic not in self._by_topic, f"{topic} has a coordinator"
        assert self.of_key_type(key_type) is None, f"keys of type {key_type} have a coordinator"
        self._by_topic[topic] = coordinator

    def of_key_type(self, key_type: int) -> Coordinator | None:
        """The coordinator of a type of keys of FindCoordinator; None if none is served."""
        return next((each for each in self if each.key_type == key_type), None)

    def transactional(self, topic: str) -> Coordinator | None:
        """The coordinator whose records in a topic may be part of transactions; None elsewhere."""
        found = self._by_topic.get(topic)
        return found if found is not None and found.has_transactional_records else None

    def on_elected(self, topic: str, partition: int) -> None:
        """Loads the coordinator of a partition that this broker leads in a new leader epoch.

        Source: GroupCoordinatorService.onElection, TransactionCoordinator.onElection.
        """
        found = self._by_topic.get(topic)
        if found is not None:
            found.runtime.partitions.elect(partition)

    def on_resigned(self, topic: str, partition: int) -> None:
        """Unloads the coordinator of a partition that this broker does not lead any more.

        Source: GroupCoordinatorService.onResignation, TransactionCoordinator.onResignation.
        """
        found = self._by_topic.get(topic)
        if found is not None:
            found.runtime.partitions.resign(partition)

    def on_topics_deleted(self, names: Collection[str]) -> None:
        """Unloads what was in deleted topics; there may be new topics with the same names."""
        for topic, coordinator in self._by_topic.items():
            if topic in names:
                coordinator.runtime.partitions.unload()

    def check_invariants(self) -> None:
        """Checks the state of all coordinators."""
        for each in self:
            each.runtime.partitions.check_invariants()
