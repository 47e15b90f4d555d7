"""The metadata quorum of a cluster: the answers of `cordwood metadata-quorum`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from cordwood.client.quorum import QuorumFacts, QuorumReplica
from cordwood.model.documents import ABSENT, CamelCase
from cordwood.model.uuids import ZERO_UUID, uuid_text


@dataclass(frozen=True, slots=True, kw_only=True)
class QuorumNode(CamelCase):
    """A node of the quorum, with its directory and its endpoints as far as they are known."""

    id: int
    directory_id: str | None = field(default=None, metadata=ABSENT)
    endpoints: Sequence[str] | None = field(default=None, metadata=ABSENT)


@dataclass(frozen=True, slots=True, kw_only=True)
class QuorumStatus(CamelCase):
    """The quorum, its leader, and how far the last of the voters is behind it.

    `max_follower_lag` counts offsets; `max_follower_lag_time_ms` is -1 if the time is not known.
    """

    cluster_id: str
    leader_id: int
    leader_epoch: int
    high_watermark: int
    max_follower_lag: int
    max_follower_lag_time_ms: int
    current_voters: Sequence[QuorumNode]
    current_observers: Sequence[QuorumNode]


@dataclass(frozen=True, slots=True, kw_only=True)
class QuorumReplication(CamelCase):
    """The replication of the metadata log to a node.

    Times are in ms since the epoch, -1 if not known, or texts that say how long ago they were.
    """

    node_id: int
    directory_id: str
    log_end_offset: int
    lag: int
    last_fetch_timestamp: int | str
    last_caught_up_timestamp: int | str
    status: str


def quorum_status(cluster_id: str, quorum: QuorumFacts) -> QuorumStatus:
    """The status of the quorum of a cluster.

    Raises:
        ClientError: the leader is none of the voters.
    """
    leader = quorum.leader
    last = min(quorum.voters, key=lambda voter: voter.log_end_offset)
    return QuorumStatus(
        cluster_id=cluster_id,
        leader_id=quorum.leader_id,
        leader_epoch=quorum.leader_epoch,
        high_watermark=quorum.high_watermark,
        max_follower_lag=leader.log_end_offset - last.log_end_offset,
        max_follower_lag_time_ms=_lag_ms(leader, last),
        current_voters=[_node(each, quorum) for each in quorum.voters],
        current_observers=[_node(each, quorum) for each in quorum.observers],
    )


def _lag_ms(leader: QuorumReplica, last: QuorumReplica) -> int:
    if leader == last:
        return 0
    if leader.last_caught_up_ms < 0 or last.last_caught_up_ms < 0:
        return -1
    return leader.last_caught_up_ms - last.last_caught_up_ms


def _node(replica: QuorumReplica, quorum: QuorumFacts) -> QuorumNode:
    directory = replica.directory_id
    return QuorumNode(
        id=replica.replica_id,
        directory_id=None if directory == ZERO_UUID else uuid_text(directory),
        endpoints=quorum.endpoints.get(replica.replica_id) or None,
    )
