"""DescribeCluster (60), versions 0 to 2.

Written by tools/message_schemas.py from the definitions of Kafka 4.3.0.
"""

from __future__ import annotations

from cordwood.format.messages.message import Message

SCHEMAS = """
message DescribeClusterRequest key=60 versions=0-2 flexible=0+
  includeClusterAuthorizedOperations bool
  endpointType int8 1+ default=1
  includeFencedBrokers bool 2+

message DescribeClusterResponse key=60 versions=0-2 flexible=0+
  throttleTimeMs int32
  errorCode int16
  errorMessage string? default=null
  endpointType int8 1+ default=1
  clusterId string
  controllerId int32 default=-1
  brokers []DescribeClusterBroker
    brokerId int32
    host string
    port int32
    rack string? default=null
    isFenced bool 2+
  clusterAuthorizedOperations int32 default=-2147483648
"""


class DescribeClusterRequest(Message):
    """The request in every version."""

    include_cluster_authorized_operations: bool
    endpoint_type: int
    include_fenced_brokers: bool


class DescribeClusterResponse(Message):
    """The response in every version."""

    throttle_time_ms: int
    error_code: int
    error_message: str | None
    endpoint_type: int
    cluster_id: str
    controller_id: int
    brokers: list[DescribeClusterBroker]
    cluster_authorized_operations: int


class DescribeClusterBroker(Message):
    """An element of `brokers` of DescribeClusterResponse."""

    broker_id: int
    host: str
    port: int
    rack: str | None
    is_fenced: bool
