"""UpdateRaftVoter (82), version 0.

Written by tools/message_schemas.py from the definitions of Kafka 4.3.0.
"""

from __future__ import annotations

from uuid import UUID

from cordwood.format.messages.message import Message

SCHEMAS = """
message UpdateRaftVoterRequest key=82 versions=0 flexible=0+
  clusterId string?
  currentLeaderEpoch int32
  voterId int32
  voterDirectoryId uuid
  listeners []Listener
    name string
    host string
    port uint16
  kRaftVersionFeature KRaftVersionFeature
    minSupportedVersion int16
    maxSupportedVersion int16

message UpdateRaftVoterResponse key=82 versions=0 flexible=0+
  throttleTimeMs int32
  errorCode int16
  currentLeader CurrentLeader tag=0
    leaderId int32 default=-1
    leaderEpoch int32 default=-1
    host string
    port int32
"""


class UpdateRaftVoterRequest(Message):
    """The request in every version."""

    cluster_id: str | None
    current_leader_epoch: int
    voter_id: int
    voter_directory_id: UUID
    listeners: list[Listener]
    k_raft_version_feature: KRaftVersionFeature


class Listener(Message):
    """An element of `listeners` of UpdateRaftVoterRequest."""

    name: str
    host: str
    port: int


class KRaftVersionFeature(Message):
    """The struct `k_raft_version_feature` of UpdateRaftVoterRequest."""

    min_supported_version: int
    max_supported_version: int


class UpdateRaftVoterResponse(Message):
    """The response in every version."""

    throttle_time_ms: int
    error_code: int
    current_leader: CurrentLeader


class CurrentLeader(Message):
    """The struct `current_leader` of UpdateRaftVoterResponse."""

    leader_id: int
    leader_epoch: int
    host: str
    port: int
