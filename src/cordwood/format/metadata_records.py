"""Records of the cluster metadata log: their frame, and the fields of every record type.

A record's value is `frame version (1) | api key | record version`, each an unsigned varint, and
then the record.

Source: org.apache.kafka.server.common.serialization.AbstractApiMessageSerde, MetadataRecordType,
and the schemas of org.apache.kafka.common.metadata.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from cordwood.format.byte_reader import ByteReader
from cordwood.format.message_schema import (
    FRAME_VERSION,
    MessageValue,
    encode_message,
    message_json,
    read_framed_message,
    require_readable,
    schemas,
)
from cordwood.format.varint import Buffer
from cordwood.model.errors import CorruptError, EncodingError

SCHEMAS = schemas(
    """
message RegisterBrokerRecord key=0 versions=0-4 flexible=0+
  brokerId int32
  isMigratingZkBroker bool 2+ default=false
  incarnationId uuid
  brokerEpoch int64
  endPoints []{}
    name string
    host string
    port uint16
    securityProtocol int16
  features []{}
    name string
    minSupportedVersion int16
    maxSupportedVersion int16
  rack string?
  fenced bool default=true
  inControlledShutdown bool 1+ default=false
  logDirs []uuid 3+ tag=0
  cordonedLogDirs []uuid? 4+ tag=1 default=null

message UnregisterBrokerRecord key=1 versions=0 flexible=0+
  brokerId int32
  brokerEpoch int64

message TopicRecord key=2 versions=0 flexible=0+
  name string
  topicId uuid

message PartitionRecord key=3 versions=0-2 flexible=0+
  partitionId int32 default=-1
  topicId uuid
  replicas []int32
  isr []int32
  removingReplicas []int32
  addingReplicas []int32
  leader int32 default=-1
  leaderRecoveryState int8 tag=0 default=0
  leaderEpoch int32 default=-1
  partitionEpoch int32 default=-1
  directories []uuid 1+
  eligibleLeaderReplicas []int32? 2+ tag=1 default=null
  lastKnownElr []int32? 2+ tag=2 default=null

message ConfigRecord key=4 versions=0 flexible=0+
  resourceType int8
  resourceName string
  name string
  value string?

message PartitionChangeRecord key=5 versions=0-2 flexible=0+
  partitionId int32 default=-1
  topicId uuid
  isr []int32? tag=0 default=null
  leader int32 tag=1 default=-2
  replicas []int32? tag=2 default=null
  removingReplicas []int32? tag=3 default=null
  addingReplicas []int32? tag=4 default=null
  leaderRecoveryState int8 tag=5 default=-1
  directories []uuid? 1+ tag=8 default=null
  eligibleLeaderReplicas []int32? 2+ tag=6 default=null
  lastKnownElr []int32? 2+ tag=7 default=null

message FenceBrokerRecord key=7 versions=0 flexible=0+
  id int32
  epoch int64

message UnfenceBrokerRecord key=8 versions=0 flexible=0+
  id int32
  epoch int64

message RemoveTopicRecord key=9 versions=0 flexible=0+
  topicId uuid

message DelegationTokenRecord key=10 versions=0 flexible=0+
  owner string
  requester string
  renewers []string
  issueTimestamp int64
  maxTimestamp int64
  expirationTimestamp int64
  tokenId string

message UserScramCredentialRecord key=11 versions=0 flexible=0+
  name string
  mechanism int8
  salt bytes
  storedKey bytes
  serverKey bytes
  iterations int32

message FeatureLevelRecord key=12 versions=0 flexible=0+
  name string
  featureLevel int16

message ClientQuotaRecord key=14 versions=0 flexible=0+
  entity []{}
    entityType string
    entityName string?
  key string
  value float64
  remove bool

message ProducerIdsRecord key=15 versions=0 flexible=0+
  brokerId int32
  brokerEpoch int64 default=-1
  nextProducerId int64

message BrokerRegistrationChangeRecord key=17 versions=0-3 flexible=0+
  brokerId int32
  brokerEpoch int64
  fenced int8 tag=0
  inControlledShutdown int8 1+ tag=1
  logDirs []uuid 2+ tag=2
  cordonedLogDirs []uuid? 3+ tag=3 default=null

message AccessControlEntryRecord key=18 versions=0 flexible=0+
  id uuid
  resourceType int8
  resourceName string
  patternType int8
  principal string
  host string
  operation int8
  permissionType int8

message RemoveAccessControlEntryRecord key=19 versions=0 flexible=0+
  id uuid

message NoOpRecord key=20 versions=0 flexible=0+

message ZkMigrationStateRecord key=21 versions=0 flexible=0+
  zkMigrationState int8

message RemoveUserScramCredentialRecord key=22 versions=0 flexible=0+
  name string
  mechanism int8

message BeginTransactionRecord key=23 versions=0 flexible=0+
  name string? tag=0 default=null

message EndTransactionRecord key=24 versions=0 flexible=0+

message AbortTransactionRecord key=25 versions=0 flexible=0+
  reason string? tag=0 default=null

message RemoveDelegationTokenRecord key=26 versions=0 flexible=0+
  tokenId string

message RegisterControllerRecord key=27 versions=0 flexible=0+
  controllerId int32
  incarnationId uuid
  zkMigrationReady bool
  endPoints []{}
    name string
    host string
    port uint16
    securityProtocol int16
  features []{}
    name string
    minSupportedVersion int16
    maxSupportedVersion int16

message ClearElrRecord key=28 versions=0 flexible=0+
  topicName string

message UnregisterControllerRecord key=29 versions=0 flexible=0+
  controllerId int32
"""
)

_DEFAULTS = {
    name: {field.name: field.default for field in schema.fields} for name, schema in SCHEMAS.items()
}

SCHEMA_OF_API_KEY = {schema.key: schema for schema in SCHEMAS.values()}


@dataclass(frozen=True, slots=True, kw_only=True)
class MetadataRecord:
    """A record of the metadata log.

    `name` is the name of its schema (`TopicRecord`). `fields` have the names of Kafka's JSON;
    fields that the version lacks, or that are omitted, have their defaults.
    """

    api_key: int
    name: str
    version: int
    fields: dict[str, Any]

    @property
    def type_name(self) -> str:
        """The record's type as Kafka's tools print it: `TOPIC_RECORD`."""
        return re.sub(r"(?<=[a-z])(?=[A-Z])", "_", self.name).upper()

    def json(self) -> dict[str, Any]:
        """The fields as Kafka's tools print them."""
        schema = SCHEMA_OF_API_KEY[self.api_key]
        return message_json(MessageValue(schema=schema, version=self.version, fields=self.fields))


def decode_metadata_record(value: Buffer) -> MetadataRecord:
    """The record that a metadata log record's value holds.

    Raises:
        CorruptError: the value is malformed or has bytes left over.
        UnsupportedVersionError: the frame's version, the api key or the record's version is
        unknown.
    """
    message = read_framed_message(value, SCHEMA_OF_API_KEY, kind="metadata record")
    schema = message.schema
    return MetadataRecord(
        api_key=schema.key, name=schema.name, version=message.version, fields=message.fields
    )


def describe_metadata_record(value: Buffer | None) -> str:
    """The type of a record that may be malformed, for errors: `PartitionRecord`."""
    try:
        reader = ByteReader(value or b"")
        frame_version = reader.unsigned_varint()
        api_key = reader.unsigned_varint()
    except CorruptError:
        return "record without a type"
    if frame_version != FRAME_VERSION:
        return f"record in a frame of version {frame_version}"
    schema = SCHEMA_OF_API_KEY.get(api_key)
    return f"record of unknown type {api_key}" if schema is None else schema.name


def with_defaults(name: str, fields: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of a record; omitted fields have their defaults."""
    return {**_DEFAULTS[name], **fields}


def encode_metadata_record(name: str, version: int, fields: Mapping[str, Any]) -> bytes:
    """The value of a metadata log record; omitted fields have their defaults.

    Raises:
        CorruptError: no record has that name.
        UnsupportedVersionError: the record has no such version.
        EncodingError: a value does not fit its field.
    """
    schema = SCHEMAS.get(name)
    if schema is None:
        raise CorruptError(f"no metadata record is called {name}")
    return _frame(schema.key, version) + encode_message(schema, version, fields)


def require_readable_record(
    name: str, version: int, fields: Mapping[str, Any], value: bytes
) -> None:
    """Decodes a value that was just encoded, to check that it can be read.

    Raises:
        EncodingError: it cannot be read, or reads differently from `fields`.
    """
    schema = SCHEMAS[name]
    frame = _frame(schema.key, version)
    if not value.startswith(frame):
        raise EncodingError(f"{name} of version {version} is not framed as one")
    require_readable(schema, version, fields, memoryview(value)[len(frame) :])


def _frame(api_key: int, version: int) -> bytes:
    return bytes((FRAME_VERSION, api_key, version))  # each a varint of one byte
