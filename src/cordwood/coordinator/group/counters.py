"""What has happened to groups and offsets since the start of the broker.

Source: org.apache.kafka.coordinator.group.metrics.GroupCoordinatorMetrics.
"""

from __future__ import annotations

import enum
from collections import Counter


class Count(enum.StrEnum):
    """What is counted, by the name that Kafka's metric has."""

    OFFSET_COMMITS = "offset-commit-count"
    OFFSET_EXPIRATIONS = "offset-expiration-count"
    OFFSET_DELETIONS = "offset-deletion-count"
    COMPLETED_REBALANCES = "group-completed-rebalance-count"
    CONSUMER_REBALANCES = "consumer-group-rebalance-count"


Counts = Counter[Count]
