"""The values that records of the metadata log may have: every enum and every range, by field.

A record with another value has the right length and can be decoded, but Kafka ends, or does not
start, where it reads one: its classes have no such member. So a record is checked before it is
written, whatever has checked the request that it comes of. A kind without a row is never written.

Source: org.apache.kafka.controller.QuorumController, which applies a record before it writes it;
org.apache.kafka.metadata.BrokerRegistration, ListenerInfo, VersionRange, LeaderRecoveryState,
BrokerRegistrationFencingChange, BrokerRegistrationInControlledShutdownChange;
org.apache.kafka.common.security.auth.SecurityProtocol.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from cordwood.configs.resource import ConfigResource
from cordwood.metadata.feature_levels import KNOWN_FEATURES
from cordwood.metadata.image import Endpoint
from cordwood.metadata.records import ApiRecord
from cordwood.model.kafka_errors import InvalidRequestError
from cordwood.model.security_protocol import SecurityProtocol
from cordwood.model.topic_names import topic_name_fault

#: RECOVERED, RECOVERING.
RECOVERY_STATES: Final = range(2)
#: SCRAM-SHA-256, SCRAM-SHA-512.
SCRAM_MECHANISMS: Final = range(1, 3)
QUOTA_ENTITIES: Final = frozenset({"user", "client-id", "ip"})
CONFIG_RESOURCES: Final = frozenset(
    {
        ConfigResource.TOPIC,
        ConfigResource.BROKER,
        ConfigResource.CLIENT_METRICS,
        ConfigResource.GROUP,
    }
)
_PORT_MAX: Final = (1 << 16) - 1
_UNCHANGED_STATE: Final = -1
_UNCHANGED_LEADER: Final = -2
_LEADERLESS: Final = -1
_FENCING: Final = (-1, 0, 1)

Fields = Mapping[str, Any]


def require_values(record: ApiRecord) -> None:
    """Checks a record that is about to be written.

    Raises:
        InvalidRequestError: a field has a value that no reader knows, or that its field may not
            have; the text names both.
    """
    check = _CHECKS.get(record.name)
    if check is None:
        raise InvalidRequestError(f"{record.name} is not a record that a controller writes")
    check(record.fields)


def require_endpoints(endpoints: Iterable[Endpoint]) -> None:
    """Checks the listeners of a registration.

    Differs: Kafka's controller answers UNKNOWN_SERVER_ERROR and resigns, and it ends at a listener
    without a name.

    Raises:
        InvalidRequestError: one has no name or no host, port 0, or a security protocol that there
            is not.
    """
    for each in endpoints:
        _endpoint(each.name, each.host, each.port, each.security_protocol)


def require_feature_ranges(features: Mapping[str, tuple[int, int]]) -> None:
    """Checks the lowest and the highest levels that a node supports, both inclusive.

    Raises:
        InvalidRequestError: a level is negative, or the lowest is above the highest.
    """
    for name, (lowest, highest) in features.items():
        if not 0 <= lowest <= highest:
            raise InvalidRequestError(
                f"Feature {name!r} is supported from {lowest} to {highest}, which is no range of "
                "levels"
            )


def _require(is_valid: bool, field: str, value: object) -> None:
    if not is_valid:
        raise InvalidRequestError(f"{value!r} is not a value that {field} can have")


def _endpoint(name: str, host: str, port: int, security_protocol: int) -> None:
    _require(bool(name), "the name of a listener", name)
    _require(bool(host), f"the host of listener {name}", host)
    _require(0 < port <= _PORT_MAX, f"the port of listener {name}", port)
    _require(
        security_protocol in tuple(SecurityProtocol),
        f"the security protocol of listener {name}",
        security_protocol,
    )


def _registration(fields: Fields) -> None:
    for each in fields["endPoints"]:
        _endpoint(each["name"], each["host"], each["port"], each["securityProtocol"])
    require_feature_ranges(
        {
            each["name"]: (each["minSupportedVersion"], each["maxSupportedVersion"])
            for each in fields["features"]
        }
    )


def _registration_change(fields: Fields) -> None:
    fenced = fields.get("fenced", 0)
    _require(fenced in _FENCING, "fenced", fenced)
    stopping = fields.get("inControlledShutdown", 0)
    _require(stopping in {0, 1}, "inControlledShutdown", stopping)


def _topic(fields: Fields) -> None:
    _require(topic_name_fault(fields["name"]) is None, "the name of a topic", fields["name"])
    _require(fields["topicId"].int != 0, "the id of a topic", fields["topicId"])


def _partition(fields: Fields) -> None:
    _require(fields["partitionId"] >= 0, "partitionId", fields["partitionId"])
    _require(fields["leader"] >= _LEADERLESS, "leader", fields["leader"])
    for name in ("leaderEpoch", "partitionEpoch"):
        _require(fields[name] >= 0, name, fields[name])
    state = fields.get("leaderRecoveryState", 0)
    _require(state in RECOVERY_STATES, "leaderRecoveryState", state)
    _replicas(fields)


def _partition_change(fields: Fields) -> None:
    _require(fields["partitionId"] >= 0, "partitionId", fields["partitionId"])
    leader = fields.get("leader", _UNCHANGED_LEADER)
    _require(leader >= _UNCHANGED_LEADER, "leader", leader)
    state = fields.get("leaderRecoveryState", _UNCHANGED_STATE)
    _require(state == _UNCHANGED_STATE or state in RECOVERY_STATES, "leaderRecoveryState", state)
    if fields.get("replicas") is not None:
        _replicas(fields)


def _replicas(fields: Fields) -> None:
    replicas, directories = fields["replicas"], fields.get("directories")
    is_unique = len(set(replicas)) == len(replicas)
    _require(bool(replicas) and is_unique, "replicas", replicas)
    if directories is not None:
        _require(len(directories) == len(replicas), "directories", directories)


def _config(fields: Fields) -> None:
    _require(fields["resourceType"] in CONFIG_RESOURCES, "resourceType", fields["resourceType"])
    _require(bool(fields["name"]), "the name of a setting", fields["name"])


def _feature(fields: Fields) -> None:
    name, level = fields["name"], fields["featureLevel"]
    _require(name in KNOWN_FEATURES, "the name of a feature", name)
    lowest, highest = KNOWN_FEATURES[name]
    _require(lowest <= level <= highest, f"the level of {name}", level)


def _quota(fields: Fields) -> None:
    kinds = [each["entityType"] for each in fields["entity"]]
    _require(bool(kinds) and len(set(kinds)) == len(kinds), "the types of a quota's entity", kinds)
    for kind in kinds:
        _require(kind in QUOTA_ENTITIES, "the type of a quota's entity", kind)
    value = fields["value"]
    _require(math.isnan(value) or value >= 0, "the value of a quota", value)


def _producer_ids(fields: Fields) -> None:
    _require(fields["nextProducerId"] >= 0, "nextProducerId", fields["nextProducerId"])


def _scram(fields: Fields) -> None:
    """Accepts credentials of a formatted cluster; no request writes one."""
    _require(fields["mechanism"] in SCRAM_MECHANISMS, "mechanism", fields["mechanism"])


def _anything(_: Fields) -> None:
    """Accepts records whose fields are ids, epochs and names that are recorded already."""


_CHECKS: Final[Mapping[str, Callable[[Fields], None]]] = {
    "AbortTransactionRecord": _anything,
    "BeginTransactionRecord": _anything,
    "BrokerRegistrationChangeRecord": _registration_change,
    "ClearElrRecord": _anything,
    "ClientQuotaRecord": _quota,
    "ConfigRecord": _config,
    "EndTransactionRecord": _anything,
    "FeatureLevelRecord": _feature,
    "NoOpRecord": _anything,
    "PartitionChangeRecord": _partition_change,
    "PartitionRecord": _partition,
    "ProducerIdsRecord": _producer_ids,
    "RegisterBrokerRecord": _registration,
    "RegisterControllerRecord": _registration,
    "RemoveTopicRecord": _anything,
    "TopicRecord": _topic,
    "UnregisterBrokerRecord": _anything,
    "UnregisterControllerRecord": _anything,
    "UserScramCredentialRecord": _scram,
}
