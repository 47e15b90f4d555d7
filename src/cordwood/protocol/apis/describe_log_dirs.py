"""DescribeLogDirs (35), versions 1 to 5.

Written by tools/message_schemas.py from the definitions of Kafka 4.3.0.
"""

from __future__ import annotations

from cordwood.format.messages.message import Message

SCHEMAS = """
message DescribeLogDirsRequest key=35 versions=1-5 flexible=2+
  topics []DescribableLogDirTopic?
    topic string
    partitions []int32

message DescribeLogDirsResponse key=35 versions=1-5 flexible=2+
  throttleTimeMs int32
  errorCode int16 3+
  results []DescribeLogDirsResult
    errorCode int16
    logDir string
    topics []DescribeLogDirsTopic
      name string
      partitions []DescribeLogDirsPartition
        partitionIndex int32
        partitionSize int64
        offsetLag int64
        isFutureKey bool
    totalBytes int64 4+ default=-1
    usableBytes int64 4+ default=-1
    isCordoned bool 5+
"""


class DescribeLogDirsRequest(Message):
    """The request in every version."""

    topics: list[DescribableLogDirTopic] | None


class DescribableLogDirTopic(Message):
    """An element of `topics` of DescribeLogDirsRequest."""

    topic: str
    partitions: list[int]


class DescribeLogDirsResponse(Message):
    """The response in every version."""

    throttle_time_ms: int
    error_code: int
    results: list[DescribeLogDirsResult]


class DescribeLogDirsResult(Message):
    """An element of `results` of DescribeLogDirsResponse."""

    error_code: int
    log_dir: str
    topics: list[DescribeLogDirsTopic]
    total_bytes: int
    usable_bytes: int
    is_cordoned: bool


class DescribeLogDirsTopic(Message):
    """An element of `topics` of DescribeLogDirsResult."""

    name: str
    partitions: list[DescribeLogDirsPartition]


class DescribeLogDirsPartition(Message):
    """An element of `partitions` of DescribeLogDirsTopic."""

    partition_index: int
    partition_size: int
    offset_lag: int
    is_future_key: bool
