"""The assignors that a broker has, by the names with which members ask for them.

Source: org.apache.kafka.coordinator.group.GroupCoordinatorConfig (group.consumer.assignors).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from cordwood.coordinator.group.assignors.range_assignor import assign_range
from cordwood.coordinator.group.assignors.spec import Assignor
from cordwood.coordinator.group.assignors.uniform import assign_uniform

ASSIGNORS: Final[Mapping[str, Assignor]] = {"uniform": assign_uniform, "range": assign_range}
"""In Kafka's order."""

DEFAULT_ASSIGNOR: Final = "uniform"
"""The assignor of a group whose members name none: the first of the setting."""
