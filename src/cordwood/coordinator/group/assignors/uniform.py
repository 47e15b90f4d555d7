"""The assignor "uniform", Kafka's default: as many partitions for each member, and few that move.

Source: org.apache.kafka.coordinator.group.assignor.UniformAssignor.
"""

from __future__ import annotations

from cordwood.coordinator.group.assignors.spec import GroupAssignment, GroupSpec, PartitionCount
from cordwood.coordinator.group.assignors.uniform_heterogeneous import assign_heterogeneous
from cordwood.coordinator.group.assignors.uniform_homogeneous import assign_homogeneous


def assign_uniform(spec: GroupSpec, partition_count: PartitionCount) -> GroupAssignment:
    """The assignment of a group, balanced over all topics together.

    Raises:
        PartitionAssignorError: a member subscribes to a topic id that no topic has, or the present
            assignment has partitions that their topics do not have.
    """
    if not spec.members:
        return {}
    if spec.is_homogeneous:
        return assign_homogeneous(spec, partition_count)
    return assign_heterogeneous(spec, partition_count)
