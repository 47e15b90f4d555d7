"""The view of the cluster that controller operations share: image, settings, common queries.

Source: org.apache.kafka.controller.ClusterControlManager, ReplicationControlManager.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from cordwood.configs.min_isr import MIN_ISR
from cordwood.configs.resource import ConfigResource
from cordwood.controller.partition_change import ChangeContext
from cordwood.controller.placement import ReplicaPlacer, UsableBroker
from cordwood.controller.settings import ControllerSettings
from cordwood.metadata.image import (
    MIGRATING_DIRECTORY,
    UNASSIGNED_DIRECTORY,
    MetadataImage,
    PartitionImage,
)
from cordwood.metadata.records import has_elr
from cordwood.model.kafka_errors import InvalidReplicaAssignmentError
from cordwood.model.pauses import in_steps
from cordwood.model.rng import Rng

#: More records in one operation are refused. Source: QuorumController.MAX_RECORDS_PER_USER_OP.
RECORDS_MAX = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterView:
    """The cluster at one moment."""

    image: MetadataImage
    settings: ControllerSettings
    rng: Rng

    def is_active(self, broker_id: int) -> bool:
        """Whether a broker is registered, unfenced and not shutting down."""
        broker = self.image.brokers.get(broker_id)
        return broker is not None and broker.is_active

    def has_online_directory(self, broker_id: int, directory: uuid.UUID | None) -> bool:
        """Whether a directory of a broker is not known to have failed.

        Source: ClusterControlManager.hasOnlineDir, DirectoryId.isOnline.
        """
        broker = self.image.brokers.get(broker_id)
        return broker is not None and broker.has_online_directory(directory)

    def directory_of(self, broker_id: int) -> uuid.UUID:
        """The directory of a new replica on a broker, or a reserved id while the broker chooses.

        Source: ClusterControlManager.defaultDir.
        """
        broker = self.image.brokers.get(broker_id)
        if broker is None or not broker.log_dirs:
            return MIGRATING_DIRECTORY
        return broker.log_dirs[0] if len(broker.log_dirs) == 1 else UNASSIGNED_DIRECTORY

    def change_context(self, may_lead: Callable[[int], bool] | None = None) -> ChangeContext:
        """The context that changes of partitions share."""
        return ChangeContext(
            may_lead=may_lead or self.is_active,
            directory_of=self.directory_of,
            has_online_directory=self.has_online_directory,
            metadata_version=self.image.metadata_version,
            has_elr=has_elr(self.image.features),
        )

    def min_isr(self, topic: str, replicas: int) -> int:
        """min.insync.replicas of a topic, at most its replication factor.

        Source: ReplicationControlManager.getTopicEffectiveMinIsr.
        """
        value = self._setting(topic, MIN_ISR)
        return min(self.settings.min_insync_replicas if value is None else int(value), replicas)

    def allows_unclean_election(self, topic: str) -> bool:
        """unclean.leader.election.enable of a topic."""
        value = self._setting(topic, "unclean.leader.election.enable")
        return self.settings.unclean_leader_election if value is None else value == "true"

    def _setting(self, topic: str, key: str) -> str | None:
        value = self.image.topic_config(topic).get(key)
        if value is None:
            value = self.image.configs.get((ConfigResource.BROKER, ""), {}).get(key)
        return value

    def place(self, count: int, replication_factor: int) -> list[list[int]]:
        """Brokers for `count` new partitions, the leader of each first.

        Raises:
            InvalidReplicationFactorError: there are too few brokers, or none that is unfenced.
        """
        placer = ReplicaPlacer(
            (
                UsableBroker(each.broker_id, each.rack, each.fenced)
                for each in self.image.brokers.values()
                if not each.is_cordoned and (each.fenced or not each.in_controlled_shutdown)
            ),
            self.rng,
        )
        placer.require_possible(replication_factor)
        return [placer.place(replication_factor) for _ in in_steps(range(count), every=64)]

    def require_assignable(
        self, replicas: Sequence[int], replication_factor: int | None = None
    ) -> None:
        """Validates a manual replica assignment.

        Raises:
            InvalidReplicaAssignmentError: the list is empty, has an unknown or duplicate broker,
                one with all its log directories cordoned (4.4), or a different number of replicas
                than the topic's other partitions.

        Source: ReplicationControlManager.validateManualPartitionAssignment.
        """
        said = "The manual partition assignment includes"
        if not replicas:
            raise InvalidReplicaAssignmentError(f"{said} an empty replica list.")
        previous: int | None = None
        for broker_id in sorted(replicas):
            if broker_id not in self.image.brokers:
                raise InvalidReplicaAssignmentError(
                    f"{said} broker {broker_id}, but no such broker is registered."
                )
            if self.image.brokers[broker_id].is_cordoned:
                raise InvalidReplicaAssignmentError(
                    f"{said} broker {broker_id}, but all its log directories are cordoned."
                )
            if broker_id == previous:
                raise InvalidReplicaAssignmentError(
                    f"{said} the broker {broker_id} more than once."
                )
            previous = broker_id
        if replication_factor is not None and len(replicas) != replication_factor:
            raise InvalidReplicaAssignmentError(
                f"{said} a partition with {len(replicas)} replica(s), but this is not consistent "
                f"with previous partitions, which have {replication_factor} replica(s)."
            )

    def new_partition(self, replicas: Sequence[int]) -> PartitionImage | None:
        """A new partition with these replicas; None if none of them is active."""
        isr = tuple(each for each in replicas if self.is_active(each))
        if not isr:
            return None
        return PartitionImage(
            replicas=tuple(replicas),
            isr=isr,
            leader=isr[0],
            leader_epoch=0,
            partition_epoch=0,
            directories=tuple(self.directory_of(each) for each in replicas),
        )
