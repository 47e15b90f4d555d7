"""Values that no reader of the metadata log knows are refused before they are written."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from cordwood.controller.record_values import require_values
from cordwood.format.metadata_records import SCHEMAS
from cordwood.metadata.records import ApiRecord
from cordwood.model.kafka_errors import InvalidRequestError
from support.controller_under_test import ControllerUnderTest

A_LISTENER = {"name": "PLAINTEXT", "host": "h", "port": 9092, "securityProtocol": 0}
A_FEATURE = {"name": "metadata.version", "minSupportedVersion": 7, "maxSupportedVersion": 30}
_REPLICAS = {"replicas": [1, 2], "directories": [uuid.UUID(int=200), uuid.UUID(int=201)]}
#: A record of each kind with fields that are checked.
GOOD: Mapping[str, Mapping[str, Any]] = {
    "BrokerRegistrationChangeRecord": {"fenced": 1, "inControlledShutdown": 0},
    "ClientQuotaRecord": {
        "entity": [{"entityType": "user", "entityName": None}],
        "key": "producer_byte_rate",
        "value": 1.0,
        "remove": False,
    },
    "ConfigRecord": {"resourceType": 2, "resourceName": "t", "name": "n", "value": "v"},
    "FeatureLevelRecord": {"name": "metadata.version", "featureLevel": 30},
    "PartitionChangeRecord": {"partitionId": 0, **_REPLICAS},
    "PartitionRecord": {
        "partitionId": 0,
        "leader": 1,
        "leaderEpoch": 0,
        "partitionEpoch": 0,
        **_REPLICAS,
    },
    "ProducerIdsRecord": {"nextProducerId": 1000},
    "RegisterBrokerRecord": {"endPoints": [A_LISTENER], "features": [A_FEATURE]},
    "RegisterControllerRecord": {"endPoints": [A_LISTENER], "features": [A_FEATURE]},
    "TopicRecord": {"name": "t", "topicId": uuid.UUID(int=200)},
    "UserScramCredentialRecord": {"mechanism": 1},
}
BAD = [
    ("BrokerRegistrationChangeRecord", {"fenced": 2}),
    ("BrokerRegistrationChangeRecord", {"inControlledShutdown": -1}),
    ("ClientQuotaRecord", {"entity": []}),
    ("ClientQuotaRecord", {"entity": [{"entityType": "group", "entityName": "g"}]}),
    ("ClientQuotaRecord", {"entity": [{"entityType": "ip", "entityName": None}] * 2}),
    ("ClientQuotaRecord", {"value": -1.0}),
    *(("ConfigRecord", {"resourceType": kind}) for kind in (-1, 0, 1, 3, 6, 7, 8, 9, 64, 127)),
    ("ConfigRecord", {"name": ""}),
    ("FeatureLevelRecord", {"name": "no.such.feature"}),
    *(("FeatureLevelRecord", {"featureLevel": level}) for level in (-1, 0, 6, 34, 32767)),
    *(("PartitionChangeRecord", {"leaderRecoveryState": state}) for state in (-128, -2, 2, 127)),
    ("PartitionChangeRecord", {"leader": -3}),
    ("PartitionChangeRecord", {"partitionId": -1}),
    ("PartitionChangeRecord", {"replicas": [1, 1]}),
    ("PartitionChangeRecord", {"replicas": []}),
    ("PartitionChangeRecord", {"directories": []}),
    *(("PartitionRecord", {"leaderRecoveryState": state}) for state in (-1, 2, 127)),
    ("PartitionRecord", {"leader": -2}),
    ("PartitionRecord", {"leaderEpoch": -1}),
    ("PartitionRecord", {"partitionEpoch": -1}),
    ("PartitionRecord", {"partitionId": -1}),
    ("PartitionRecord", {"replicas": [1, 1]}),
    ("PartitionRecord", {"directories": [uuid.UUID(int=200)]}),
    ("ProducerIdsRecord", {"nextProducerId": -1}),
    *(
        (kind, {"endPoints": [A_LISTENER, {**A_LISTENER, **wrong}]})
        for kind in ("RegisterBrokerRecord", "RegisterControllerRecord")
        for wrong in (
            {"securityProtocol": 77},
            {"securityProtocol": 4},
            {"securityProtocol": -1},
            {"port": 0},
            {"port": 65536},
            {"host": ""},
            {"name": ""},
        )
    ),
    *(
        (kind, {"features": [{**A_FEATURE, **wrong}]})
        for kind in ("RegisterBrokerRecord", "RegisterControllerRecord")
        for wrong in ({"minSupportedVersion": -1}, {"minSupportedVersion": 31})
    ),
    *(
        ("TopicRecord", {"name": name})
        for name in ("", ".", "..", "a/b", "../../evil", "/etc", "a\0b", "x" * 250, "\u00e9")
    ),
    ("TopicRecord", {"topicId": uuid.UUID(int=0)}),
    ("UserScramCredentialRecord", {"mechanism": 0}),
    ("UserScramCredentialRecord", {"mechanism": 3}),
]


@pytest.mark.parametrize("kind", GOOD)
def test_a_record_with_possible_values_is_written(kind: str) -> None:
    require_values(ApiRecord(kind, 0, GOOD[kind]))


@pytest.mark.parametrize(("kind", "wrong"), BAD, ids=[f"{k}-{str(w)[:50]}" for k, w in BAD])
def test_a_record_with_a_value_that_no_reader_knows_is_refused(
    kind: str, wrong: Mapping[str, Any]
) -> None:
    assert set(wrong) <= {field.name for field in SCHEMAS[kind].fields}
    with pytest.raises(InvalidRequestError):
        require_values(ApiRecord(kind, 0, {**GOOD[kind], **wrong}))


@pytest.mark.parametrize("kind", ["AccessControlEntryRecord", "ZkMigrationStateRecord"])
def test_a_record_of_a_kind_that_no_controller_here_writes_is_refused(kind: str) -> None:
    with pytest.raises(InvalidRequestError, match="is not a record that a controller writes"):
        require_values(ApiRecord(kind, 0, {}))


def test_a_refused_record_is_not_in_the_log_and_not_in_the_image(tmp_path: Path) -> None:
    place = ControllerUnderTest(tmp_path / "d")
    controller = place.activated()
    before = controller.log.end_offset, controller.image
    record = ApiRecord("ConfigRecord", 0, {**GOOD["ConfigRecord"], "resourceType": 77})
    with pytest.raises(InvalidRequestError, match="77 is not a value that resourceType can have"):
        controller.commit([record])
    assert (controller.log.end_offset, controller.image) == before
    controller.abandon()
