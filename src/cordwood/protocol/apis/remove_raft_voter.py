"""RemoveRaftVoter (81), version 0.

Written by tools/message_schemas.py from the definitions of Kafka 4.3.0.
"""

from __future__ import annotations

from uuid import UUID

from cordwood.format.messages.message import Message

SCHEMAS = """
message RemoveRaftVoterRequest key=81 versions=0 flexible=0+
  clusterId string?
  voterId int32
  voterDirectoryId uuid

message RemoveRaftVoterResponse key=81 versions=0 flexible=0+
  throttleTimeMs int32
  errorCode int16
  errorMessage string?
"""


class RemoveRaftVoterRequest(Message):
    """The request in every version."""

    cluster_id: str | None
    voter_id: int
    voter_directory_id: UUID


class RemoveRaftVoterResponse(Message):
    """The response in every version."""

    throttle_time_ms: int
    error_code: int
    error_message: str | None
