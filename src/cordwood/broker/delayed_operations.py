"""Requests that wait for partitions: for more records, the high watermark, the low watermark.

Source: kafka.cluster.DelayedOperations; kafka.server.ReplicaManager's purgatories.
"""

from __future__ import annotations

from cordwood.model.timers import CallLater
from cordwood.purgatory.purgatory import Purgatory

PartitionName = tuple[str, int]
"""The topic and the number of a partition."""


class DelayedOperations:
    """The purgatories whose keys are partitions."""

    def __init__(self, call_later_ms: CallLater) -> None:
        """Nothing waits yet."""
        self.fetch: Purgatory[PartitionName] = Purgatory(call_later_ms)
        self.replica_fetch: Purgatory[PartitionName] = Purgatory(call_later_ms)
        self.produce: Purgatory[PartitionName] = Purgatory(call_later_ms)
        self.delete_records: Purgatory[PartitionName] = Purgatory(call_later_ms)

    def check_followers(self, topic: str, index: int, grown_bytes: int) -> None:
        """Checks the followers' fetches from a partition that has grown by so many bytes."""
        self.replica_fetch.check((topic, index), grown_bytes)

    def check(self, topic: str, index: int, grown_bytes: int) -> None:
        """Checks the operations of a partition that has grown by so many bytes, or changed if 0."""
        key = topic, index
        self.fetch.check(key, grown_bytes)
        if not grown_bytes:
            self.replica_fetch.check(key, 0)
        self.produce.check(key, grown_bytes)
        self.delete_records.check(key, grown_bytes)
