"""Counters of groups and offsets since the start of the broker.

Source: org.apache.kafka.coordinator.group.metrics.GroupCoordinatorMetrics.
"""

from __future__ import annotations

import enum
from collections import Counter


class Count(enum.StrEnum):
    """A counter, by the name of Kafka's metric."""

    OFFSET_COMMITS = "offset-commit-count"
    OFFSET_EXPIRATIONS = "offset-expiration-count"
    OFFSET_DELETIONS = "offset-deletion-count"
    COMPLETED_REBALANCES = "group-completed-rebalance-count"
    CONSUMER_REBALANCES = "consumer-group-rebalance-count"


Counts = Counter[Count]
