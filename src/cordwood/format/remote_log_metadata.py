"""Records of `__remote_log_metadata`, in the frame that the metadata log uses too.

Source: org.apache.kafka.server.log.remote.metadata.storage.serialization.RemoteLogMetadataSerde.
"""

from __future__ import annotations

from cordwood.format.message_schema import MessageValue, read_framed_message, schemas
from cordwood.format.varint import Buffer

SCHEMAS = schemas(
    """
message RemoteLogSegmentMetadataRecord key=0 versions=0 flexible=0+
  remoteLogSegmentId {}
    topicIdPartition {}
      name string
      id uuid
      partition int32
    id uuid
  startOffset int64
  endOffset int64
  brokerId int32
  maxTimestampMs int64
  eventTimestampMs int64
  segmentLeaderEpochs []{}
    leaderEpoch int32
    offset int64
  segmentSizeInBytes int32
  customMetadata bytes? default=null
  remoteLogSegmentState int8
  txnIndexEmpty bool tag=0

message RemoteLogSegmentMetadataUpdateRecord key=1 versions=0 flexible=0+
  remoteLogSegmentId {}
    topicIdPartition {}
      name string
      id uuid
      partition int32
    id uuid
  brokerId int32
  eventTimestampMs int64
  customMetadata bytes? default=null
  remoteLogSegmentState int8

message RemotePartitionDeleteMetadataRecord key=2 versions=0 flexible=0+
  topicIdPartition {}
    name string
    id uuid
    partition int32
  brokerId int32
  eventTimestampMs int64
  remotePartitionDeleteState int8

message RemoteLogSegmentMetadataSnapshotRecord key=3 versions=0 flexible=0+
  segmentId uuid
  startOffset int64
  endOffset int64
  brokerId int32
  maxTimestampMs int64
  eventTimestampMs int64
  segmentLeaderEpochs []{}
    leaderEpoch int32
    offset int64
  segmentSizeInBytes int32
  customMetadata bytes? default=null
  remoteLogSegmentState int8
  txnIndexEmpty bool tag=0
"""
)

SCHEMA_OF_API_KEY = {schema.key: schema for schema in SCHEMAS.values()}


def decode_remote_log_metadata(value: Buffer) -> MessageValue:
    """The message that a record's value holds.

    Raises:
        CorruptError: the value is malformed or has bytes left over.
        UnsupportedVersionError: the frame's version, the api key or the message's version is
            unknown.
    """
    return read_framed_message(value, SCHEMA_OF_API_KEY, kind="remote log metadata")
