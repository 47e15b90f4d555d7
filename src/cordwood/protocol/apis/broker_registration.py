"""BrokerRegistration (62), versions 0 to 4.

Written by tools/message_schemas.py from the definitions of Kafka 4.3.0.
"""

from __future__ import annotations

from uuid import UUID

from cordwood.format.messages.message import Message

SCHEMAS = """
message BrokerRegistrationRequest key=62 versions=0-4 flexible=0+
  brokerId int32
  clusterId string
  incarnationId uuid
  listeners []Listener
    name string
    host string
    port uint16
    securityProtocol int16
  features []Feature
    name string
    minSupportedVersion int16
    maxSupportedVersion int16
  rack string?
  isMigratingZkBroker bool 1+
  logDirs []uuid 2+
  previousBrokerEpoch int64 3+ default=-1

message BrokerRegistrationResponse key=62 versions=0-4 flexible=0+
  throttleTimeMs int32
  errorCode int16
  brokerEpoch int64 default=-1
"""


class BrokerRegistrationRequest(Message):
    """The request in every version."""

    broker_id: int
    cluster_id: str
    incarnation_id: UUID
    listeners: list[Listener]
    features: list[Feature]
    rack: str | None
    is_migrating_zk_broker: bool
    log_dirs: list[UUID]
    previous_broker_epoch: int


class Listener(Message):
    """An element of `listeners` of BrokerRegistrationRequest."""

    name: str
    host: str
    port: int
    security_protocol: int


class Feature(Message):
    """An element of `features` of BrokerRegistrationRequest."""

    name: str
    min_supported_version: int
    max_supported_version: int


class BrokerRegistrationResponse(Message):
    """The response in every version."""

    throttle_time_ms: int
    error_code: int
    broker_epoch: int
