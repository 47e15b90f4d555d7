"""BrokerHeartbeat (63), versions 0 to 2.

Written by tools/message_schemas.py from the definitions of Kafka 4.3.0.
"""

from __future__ import annotations

from uuid import UUID

from cordwood.format.messages.message import Message

SCHEMAS = """
message BrokerHeartbeatRequest key=63 versions=0-2 flexible=0+
  brokerId int32
  brokerEpoch int64 default=-1
  currentMetadataOffset int64
  wantFence bool
  wantShutDown bool
  offlineLogDirs []uuid 1+ tag=0
  cordonedLogDirs []uuid? 2+ tag=1 default=null

message BrokerHeartbeatResponse key=63 versions=0-2 flexible=0+
  throttleTimeMs int32
  errorCode int16
  isCaughtUp bool
  isFenced bool default=true
  shouldShutDown bool
"""


class BrokerHeartbeatRequest(Message):
    """The request in every version."""

    broker_id: int
    broker_epoch: int
    current_metadata_offset: int
    want_fence: bool
    want_shut_down: bool
    offline_log_dirs: list[UUID]
    cordoned_log_dirs: list[UUID] | None


class BrokerHeartbeatResponse(Message):
    """The response in every version."""

    throttle_time_ms: int
    error_code: int
    is_caught_up: bool
    is_fenced: bool
    should_shut_down: bool
