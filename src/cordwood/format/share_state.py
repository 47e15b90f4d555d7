"""Keys and values of `__share_group_state`.

Source: org.apache.kafka.coordinator.share.generated.
"""

from __future__ import annotations

from cordwood.format.coordinator_record import CoordinatorSchemas

SHARE_STATE_RECORDS = CoordinatorSchemas.parse(
    keys="""
message ShareSnapshotKey key=0 versions=0 flexible=none
  groupId string
  topicId uuid
  partition int32

message ShareUpdateKey key=1 versions=0 flexible=none
  groupId string
  topicId uuid
  partition int32
""",
    values="""
message ShareSnapshotValue key=0 versions=0 flexible=0+
  snapshotEpoch int32
  stateEpoch int32
  leaderEpoch int32
  startOffset int64
  deliveryCompleteCount int32 tag=0 default=-1
  createTimestamp int64
  writeTimestamp int64
  stateBatches []{}
    firstOffset int64
    lastOffset int64
    deliveryState int8
    deliveryCount int16

message ShareUpdateValue key=1 versions=0 flexible=0+
  snapshotEpoch int32
  leaderEpoch int32
  startOffset int64
  deliveryCompleteCount int32 tag=0 default=-1
  stateBatches []{}
    firstOffset int64
    lastOffset int64
    deliveryState int8
    deliveryCount int16
""",
)
