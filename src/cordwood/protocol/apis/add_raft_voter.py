"""AddRaftVoter (80), versions 0 to 1.

Written by tools/message_schemas.py from the definitions of Kafka 4.3.0.
"""

from __future__ import annotations

from uuid import UUID

from cordwood.format.messages.message import Message

SCHEMAS = """
message AddRaftVoterRequest key=80 versions=0-1 flexible=0+
  clusterId string?
  timeoutMs int32
  voterId int32
  voterDirectoryId uuid
  listeners []Listener
    name string
    host string
    port uint16
  ackWhenCommitted bool 1+ default=true

message AddRaftVoterResponse key=80 versions=0-1 flexible=0+
  throttleTimeMs int32
  errorCode int16
  errorMessage string?
"""


class AddRaftVoterRequest(Message):
    """The request in every version."""

    cluster_id: str | None
    timeout_ms: int
    voter_id: int
    voter_directory_id: UUID
    listeners: list[Listener]
    ack_when_committed: bool


class Listener(Message):
    """An element of `listeners` of AddRaftVoterRequest."""

    name: str
    host: str
    port: int


class AddRaftVoterResponse(Message):
    """The response in every version."""

    throttle_time_ms: int
    error_code: int
    error_message: str | None
