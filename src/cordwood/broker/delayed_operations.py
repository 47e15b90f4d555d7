"""Requests that wait for partitions: for more records, the high watermark, the low watermark.

Source: kafka.cluster.DelayedOperations; kafka.server.ReplicaManager's purgatories.
"""

from __future__ import annotations

from cordwood.model.timers import CallLater
from cordwood.purgatory.purgatory import Purgatory

PartitionName = tuple[str, int]
"""The topic and the number of a partition."""

WaitKey = PartitionName | int
"""A partition, or the id of a follower's fetch session, which knows its partitions."""


class DelayedOperations:
    """The purgatories whose keys are partitions, and the sessions of followers."""

    def __init__(self, call_later_ms: CallLater) -> None:
        """Nothing waits yet."""
        self.fetch: Purgatory[WaitKey] = Purgatory(call_later_ms)
        self.replica_fetch: Purgatory[WaitKey] = Purgatory(call_later_ms)
        self.produce: Purgatory[PartitionName] = Purgatory(call_later_ms)
        self.delete_records: Purgatory[PartitionName] = Purgatory(call_later_ms)

    def check_invariants(self) -> None:
        """Checks all purgatories."""
        for each in (self.fetch, self.replica_fetch):
            each.check_invariants()
        for of_partitions in (self.produce, self.delete_records):
            of_partitions.check_invariants()

    def check(self, topic: str, index: int, grown_bytes: int) -> None:
        """Checks what waits for a partition that has grown by so many bytes, or changed if 0.

        Followers' fetches do not: their partitions grow before the records are committed.
        """
        key = topic, index
        self.fetch.check(key, grown_bytes)
        self.produce.check(key, grown_bytes)
        self.delete_records.check(key, grown_bytes)
