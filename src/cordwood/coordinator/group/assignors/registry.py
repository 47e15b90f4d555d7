"""The assignors that a broker has, by the names with which members ask for them.

Source: org.apache.kafka.coordinator.group.GroupCoordinatorConfig (group.consumer.assignors);
assignor.UniformAssignor.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from cordwood.coordinator.group.assignors.range_assignor import assign_range
from cordwood.coordinator.group.assignors.spec import (
    Assignor,
    GroupAssignment,
    GroupSpec,
    PartitionCount,
)
from cordwood.coordinator.group.assignors.uniform_heterogeneous import assign_heterogeneous
from cordwood.coordinator.group.assignors.uniform_homogeneous import assign_homogeneous


def assign_uniform(spec: GroupSpec, partition_count: PartitionCount) -> GroupAssignment:
    """The assignment of a group, balanced over all topics together, in which few partitions move.

    Raises:
        PartitionAssignorError: a member subscribes to a topic id that no topic has, or the present
            assignment has partitions that their topics do not have.
    """
    if not spec.members:
        return {}
    assign = assign_homogeneous if spec.is_homogeneous else assign_heterogeneous
    return assign(spec, partition_count)


ASSIGNORS: Final[Mapping[str, Assignor]] = {"uniform": assign_uniform, "range": assign_range}
"""In Kafka's order: the first is that of a group whose members name none."""
