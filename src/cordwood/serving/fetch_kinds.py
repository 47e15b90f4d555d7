"""The kinds of Fetch that metrics tell apart: from consumers, and from replicas that follow.

Source: kafka.network.RequestChannel.updateRequestMetrics, FetchRequest.isFromFollower, Kafka 4.3.
"""

from __future__ import annotations

from typing import Final

from cordwood.protocol.data import FetchRequest

FROM_CONSUMER: Final = "FetchConsumer"
FROM_FOLLOWER: Final = "FetchFollower"


def fetch_kind(request: FetchRequest) -> str:
    """The kind of a request; a version has the follower's id in one of two fields, if any."""
    follower = max(request.replica_id, request.replica_state.replica_id)
    return FROM_CONSUMER if follower < 0 else FROM_FOLLOWER
