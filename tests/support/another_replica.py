"""A partition whose other replica is in sync, and never fetches."""

from __future__ import annotations

from cordwood.broker.partition import Partition
from cordwood.broker.replication.leadership import LedPartition, PartitionLeadership

OTHER = 99
_OWN = 1


class _Brokers:
    """All are alive."""

    def epoch_of(self, _broker_id: int) -> int:
        return 1

    def is_shutting_down(self, _broker_id: int) -> bool:
        return False


def has_another_replica(partition: Partition, *, value: bool) -> None:
    """Has a partition wait for a replica that never fetches, or wait no longer."""
    leadership = None
    if value:
        leadership = PartitionLeadership(
            _OWN,
            LedPartition(
                leader_epoch=partition.leader_epoch,
                partition_epoch=0,
                replicas=(_OWN, OTHER),
                isr=(_OWN, OTHER),
            ),
            brokers=_Brokers(),
            own_epoch=lambda: 1,
            end_offset=partition.log.log_end_offset,
            high_watermark=partition.log.high_watermark,
            now_ms=0,
        )
    partition.lead(partition.leader_epoch, leadership)
