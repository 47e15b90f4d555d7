"""Parts of an image as records of the metadata log, in the versions that the cluster writes.

Source: MetadataImage.write, PartitionRegistration.toRecord, BrokerRegistration.toRecord;
MetadataVersion for the versions.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from cordwood.format.metadata_records import encode_metadata_record, require_readable_record
from cordwood.metadata.image import (
    BrokerImage,
    ControllerImage,
    Endpoint,
    MetadataImage,
    PartitionImage,
    QuotaEntity,
)

#: Levels of metadata.version from which on something is written.
_TRANSACTIONS = 13
_CONTROLLER_REGISTRATION = 15
_DIRECTORY_ASSIGNMENT = 17
_ELR = 23
_CORDONED = 30
_CONTROLLER_UNREGISTRATION = 33

FENCE, UNFENCE = 1, -1


class ApiRecord(NamedTuple):
    """A record to be written; fields that are not given have their defaults."""

    name: str
    version: int
    fields: Mapping[str, Any]

    def encode(self) -> bytes:
        """The record's value in the log; it is decoded again, as it must be readable at a start.

        Raises:
            EncodingError: a value does not fit its field, or reads back differently.
        """
        value = encode_metadata_record(self.name, self.version, self.fields)
        require_readable_record(self.name, self.version, self.fields, value)
        return value


Records = list[ApiRecord]


def has_transactions(metadata_version: int) -> bool:
    """Whether one change can span several batches (KIP-868)."""
    return metadata_version >= _TRANSACTIONS


def has_controller_registration(metadata_version: int) -> bool:
    """Whether controllers register (KIP-919)."""
    return metadata_version >= _CONTROLLER_REGISTRATION


def has_directories(metadata_version: int) -> bool:
    """Whether partitions record the directories of their replicas (KIP-858)."""
    return metadata_version >= _DIRECTORY_ASSIGNMENT


def has_cordoned_directories(metadata_version: int) -> bool:
    """Whether brokers register cordoned directories (KIP-1066)."""
    return metadata_version >= _CORDONED


def has_controller_unregistration(metadata_version: int) -> bool:
    """Whether the registration of a controller can be removed."""
    return metadata_version >= _CONTROLLER_UNREGISTRATION


def has_elr(features: Mapping[str, int]) -> bool:
    """Whether eligible leader replicas are recorded (KIP-966)."""
    return (
        features.get("metadata.version", 0) >= _ELR
        and features.get("eligible.leader.replicas.version", 0) >= 1
    )


def partition_version(metadata_version: int) -> int:
    """The version of PartitionRecord and PartitionChangeRecord."""
    if metadata_version >= _ELR:
        return 2
    return 1 if has_directories(metadata_version) else 0


def topic_record(name: str, topic_id: uuid.UUID) -> ApiRecord:
    """A new topic."""
    return ApiRecord("TopicRecord", 0, {"name": name, "topicId": topic_id})


def partition_record(
    topic_id: uuid.UUID, number: int, partition: PartitionImage, metadata_version: int
) -> ApiRecord:
    """A partition as it is."""
    version = partition_version(metadata_version)
    fields: dict[str, Any] = {
        "partitionId": number,
        "topicId": topic_id,
        "replicas": list(partition.replicas),
        "isr": list(partition.isr),
        "removingReplicas": list(partition.removing_replicas),
        "addingReplicas": list(partition.adding_replicas),
        "leader": partition.leader,
        "leaderEpoch": partition.leader_epoch,
        "partitionEpoch": partition.partition_epoch,
        "leaderRecoveryState": partition.recovery_state,
    }
    if version >= 1:
        fields["directories"] = list(partition.directories)
    if version >= 2:
        fields["eligibleLeaderReplicas"] = list(partition.elr) or None
        fields["lastKnownElr"] = list(partition.last_known_elr) or None
    return ApiRecord("PartitionRecord", version, fields)


def config_record(resource_type: int, name: str, key: str, value: str | None) -> ApiRecord:
    """A setting; None takes it away."""
    return ApiRecord(
        "ConfigRecord",
        0,
        {"resourceType": resource_type, "resourceName": name, "name": key, "value": value},
    )


def feature_record(name: str, level: int) -> ApiRecord:
    """The level of a feature; 0 takes it away."""
    return ApiRecord("FeatureLevelRecord", 0, {"name": name, "featureLevel": level})


def quota_record(entity: QuotaEntity, key: str, value: float | None) -> ApiRecord:
    """A quota; None takes it away."""
    return ApiRecord(
        "ClientQuotaRecord",
        0,
        {
            # Kafka's order is that of a java.util.HashMap: user before client-id.
            "entity": [
                {"entityType": kind, "entityName": name}
                for kind, name in sorted(entity, key=lambda each: each[0], reverse=True)
            ],
            "key": key,
            "value": 0.0 if value is None else value,
            "remove": value is None,
        },
    )


def register_broker_record(broker: BrokerImage, metadata_version: int) -> ApiRecord:
    """A broker's registration."""
    version = 1
    if metadata_version >= 8:
        version = 2
    if has_directories(metadata_version):
        version = 3
    if has_cordoned_directories(metadata_version):
        version = 4
    fields: dict[str, Any] = {
        "brokerId": broker.broker_id,
        "incarnationId": broker.incarnation_id,
        "brokerEpoch": broker.epoch,
        "endPoints": _endpoints(broker.endpoints),
        "features": _features(broker.features),
        "rack": broker.rack,
        "fenced": broker.fenced,
        "inControlledShutdown": broker.in_controlled_shutdown,
    }
    if version >= 2:
        fields["isMigratingZkBroker"] = broker.is_migrating_zk_broker
    if version >= 3:
        fields["logDirs"] = list(broker.log_dirs)
    if version >= 4 and broker.cordoned_log_dirs is not None:
        fields["cordonedLogDirs"] = list(broker.cordoned_log_dirs)
    return ApiRecord("RegisterBrokerRecord", version, fields)


def register_controller_record(controller: ControllerImage) -> ApiRecord:
    """A controller's registration."""
    return ApiRecord(
        "RegisterControllerRecord",
        0,
        {
            "controllerId": controller.controller_id,
            "incarnationId": controller.incarnation_id,
            "zkMigrationReady": controller.zk_migration_ready,
            "endPoints": _endpoints(controller.endpoints),
            "features": _features(controller.features),
        },
    )


def registration_change(broker: BrokerImage, version: int, **changes: object) -> ApiRecord:
    """A change of a broker's registration; the version is the lowest that has what changes."""
    fields = {"brokerId": broker.broker_id, "brokerEpoch": broker.epoch, **changes}
    return ApiRecord("BrokerRegistrationChangeRecord", version, fields)


def image_records(image: MetadataImage) -> Iterator[ApiRecord]:
    """All records of an image, as a snapshot has them: metadata.version first.

    Source: MetadataImage.write.
    """
    level = image.metadata_version
    for name, at in sorted(image.features.items(), key=lambda each: each[0] != "metadata.version"):
        yield feature_record(name, at)
    for broker in image.brokers.values():
        yield register_broker_record(broker, level)
    for controller in image.controllers.values():
        yield register_controller_record(controller)
    for topic in image.topics.values():
        yield topic_record(topic.name, topic.topic_id)
        for number in sorted(topic.partitions):
            yield partition_record(topic.topic_id, number, topic.partitions[number], level)
    yield from _setting_records(image)
    for fields in image.acls.values():
        yield ApiRecord("AccessControlEntryRecord", 0, fields)
    for fields in image.scram_credentials.values():
        yield ApiRecord("UserScramCredentialRecord", 0, fields)
    for fields in image.delegation_tokens.values():
        yield ApiRecord("DelegationTokenRecord", 0, fields)


def _setting_records(image: MetadataImage) -> Iterator[ApiRecord]:
    for (resource_type, resource), settings in image.configs.items():
        for key, value in settings.items():
            yield config_record(resource_type, resource, key, value)
    for entity, quotas in image.client_quotas.items():
        for key, quota in quotas.items():
            yield quota_record(entity, key, quota)
    if image.next_producer_id >= 0:
        fields = {"brokerId": -1, "brokerEpoch": -1, "nextProducerId": image.next_producer_id}
        yield ApiRecord("ProducerIdsRecord", 0, fields)


def _endpoints(endpoints: Iterable[Endpoint]) -> list[dict[str, Any]]:
    return [
        {
            "name": each.name,
            "host": each.host,
            "port": each.port,
            "securityProtocol": each.security_protocol,
        }
        for each in endpoints
    ]


def _features(features: Mapping[str, tuple[int, int]]) -> list[dict[str, Any]]:
    return [
        {"name": name, "minSupportedVersion": lowest, "maxSupportedVersion": highest}
        for name, (lowest, highest) in features.items()
    ]
