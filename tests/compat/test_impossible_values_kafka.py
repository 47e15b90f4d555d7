"""Enums and ranges that a controller refuses: Kafka's answers and Cordwood's, request by request.

Where Kafka's controller answers UNKNOWN_SERVER_ERROR and resigns, Cordwood answers INVALID_REQUEST;
neither writes a record.
"""

from __future__ import annotations

import math
import shutil
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from cordwood.controller.controller import Controller
from cordwood.format.file_names import META_PROPERTIES
from cordwood.format.meta_properties import parse_meta_properties
from cordwood.metadata.feature_levels import DEFAULT_FEATURES
from cordwood.metadata.records import ApiRecord, feature_record
from cordwood.model.clock import SystemClock
from support.cluster_controller import ClusterController
from support.controller_script import FEATURES, Station, directory_of
from support.kafka import poll_until
from support.kafka_cluster import KafkaController
from support.kafka_programs import KAFKA_4_4
from support.served import ServeError

pytestmark = [pytest.mark.kafka, pytest.mark.usefixtures("kafka_jars", "kafka_4_4_jars")]

Request = tuple[str, int, Callable[[Station], Mapping[str, Any]]]
_START_S = 120.0
_QUIET = {
    "broker.session.timeout.ms": "600000",
    "metadata.max.idle.interval.ms": "0",
    "auto.leader.rebalance.enable": "false",
}


@contextmanager
def controllers(root: Path) -> Iterator[tuple[Station, Station, Callable[[], int]]]:
    """A new controller of each kind, and how often Kafka's has been elected."""
    features = {**DEFAULT_FEATURES, "share.version": 1, "streams.version": 1}
    own = ClusterController(root / "cordwood", properties=_QUIET, features=features)
    with (
        KafkaController(
            root / "kafka", properties=_QUIET, version=KAFKA_4_4, release="4.3"
        ) as kafka,
        own,
    ):
        kafka.launch()
        own.start()
        poll_until(kafka.serving, timeout_s=_START_S, what="the start of a controller")
        theirs, ours = Station(kafka.port, kafka.log_dirs[0]), Station(own.port, own.log_dir)
        try:
            poll_until(theirs.has_begun, timeout_s=_START_S, what="the bootstrap records")
            ours.new_records()
            yield theirs, ours, lambda: kafka.log_since_start.count("Becoming the active")
        finally:
            theirs.close()
            ours.close()


def registration(broker_id: int, **changes: Any) -> Request:
    listener = {"name": "PLAINTEXT", "host": "localhost", "port": 9001, "security_protocol": 0}
    features = {**FEATURES, **changes.pop("features", {})}
    listeners = [{**listener, **each} for each in changes.pop("listeners", [{}])]
    return (
        "broker_registration",
        4,
        lambda station: {
            "broker_id": broker_id,
            "cluster_id": station.cluster_id,
            "incarnation_id": uuid.UUID(int=(9 << 100) + broker_id),
            "listeners": listeners,
            "features": [
                {"name": name, "min_supported_version": low, "max_supported_version": high}
                for name, (low, high) in features.items()
            ],
            "rack": None,
            "log_dirs": [directory_of(broker_id)],
            "previous_broker_epoch": -1,
            **changes,
        },
    )


def heartbeat(broker_id: int) -> Request:
    return (
        "broker_heartbeat",
        2,
        lambda station: {
            "broker_id": broker_id,
            "broker_epoch": station.epoch(broker_id),
            "current_metadata_offset": 1 << 40,
            "cordoned_log_dirs": None,
        },
    )


def topic(name: str, **changes: Any) -> Request:
    wanted = {"name": name, "num_partitions": 1, "replication_factor": 1, **changes}
    fields = {"topics": [wanted], "timeout_ms": 30_000, "validate_only": True}
    return "create_topics", 7, lambda _: fields


def assigned_topic(name: str, *assignments: tuple[int, Sequence[int]]) -> Request:
    _, version, make = topic(name, num_partitions=-1, replication_factor=-1)
    given = [{"partition_index": index, "broker_ids": list(ids)} for index, ids in assignments]

    def made(station: Station) -> Mapping[str, Any]:
        fields = make(station)
        return {
            **fields,
            "topics": [{**fields["topics"][0], "assignments": given}],
            "validate_only": name != "a",
        }

    return "create_topics", version, made


def setting(kind: int, name: str, key: str = "retention.ms") -> Request:
    configs = [{"name": key, "config_operation": 0, "value": "5"}]
    resource = {"resource_type": kind, "resource_name": name, "configs": configs}
    fields = {"resources": [resource], "validate_only": False}
    return "incremental_alter_configs", 1, lambda _: fields


def quota(
    value: float, key: str = "producer_byte_rate", entity: Mapping[str, str] | None = None
) -> Request:
    named = {"user": "u"} if entity is None else entity
    entry = {
        "entity": [{"entity_type": kind, "entity_name": name} for kind, name in named.items()],
        "ops": [{"key": key, "value": value, "remove": False}],
    }
    fields = {"entries": [entry], "validate_only": False}
    return "alter_client_quotas", 1, lambda _: fields


def feature(name: str, level: int, upgrade_type: int = 1) -> Request:
    update = {"feature": name, "max_version_level": level, "upgrade_type": upgrade_type}
    fields = {"timeout_ms": 60_000, "feature_updates": [update], "validate_only": False}
    return "update_features", 1, lambda _: fields


def proposal(**changes: Any) -> Request:
    """Of the leader of partition 0 of topic a, whose replicas are 1 and 2."""

    def make(station: Station) -> Mapping[str, Any]:
        found = station.partition("a", 0)
        isr = changes.get("isr", found.isr)
        partition = {
            "partition_index": 0,
            "leader_epoch": found.leader_epoch,
            "new_isr_with_epochs": [
                {"broker_id": each, "broker_epoch": station.epoch(each)} for each in isr
            ],
            "leader_recovery_state": 0,
            "partition_epoch": found.partition_epoch,
        }
        partition |= {name: value for name, value in changes.items() if name != "isr"}
        return {
            "broker_id": found.leader,
            "broker_epoch": station.epoch(found.leader),
            "topics": [{"topic_id": station.topic_id("a"), "partitions": [partition]}],
        }

    return "alter_partition", 3, make


def assignment(directory: uuid.UUID, partition: int = 0) -> Request:
    def make(station: Station) -> Mapping[str, Any]:
        placed = {
            "topic_id": station.topic_id("a"),
            "partitions": [{"partition_index": partition}],
        }
        return {
            "broker_id": 1,
            "broker_epoch": station.epoch(1),
            "directories": [{"id": directory, "topics": [placed]}],
        }

    return "assign_replicas_to_dirs", 0, make


#: At these Kafka's controller resigns, and is elected again.
RESIGNS: tuple[Request, ...] = (
    registration(11, listeners=[{"security_protocol": 77}]),
    registration(12, listeners=[{"security_protocol": -1}]),
    registration(13, listeners=[{}, {"security_protocol": 4}]),
    registration(14, listeners=[{"host": ""}]),
    registration(15, listeners=[{"port": 0}]),
    proposal(leader_recovery_state=7),
    proposal(leader_recovery_state=-1),
)


def alike() -> Iterator[Request]:
    """Requests that both answer alike, and of which both write the same."""
    yield from of_brokers()
    yield from of_topics()
    yield from of_settings()
    yield from of_partitions()


def of_brokers() -> Iterator[Request]:
    yield from (registration(1), registration(2), heartbeat(1), heartbeat(2))
    yield registration(21, listeners=[{}, {"host": "other", "port": 9}])
    yield registration(22, listeners=[])
    yield registration(23, listeners=[{"port": 65_535, "name": "some name"}])
    yield registration(24, features={"of.tomorrow": (0, 9)})
    yield registration(25, features={"of.tomorrow": (9, 0)})
    yield registration(26, features={"of.tomorrow": (-5, -1)})
    yield registration(27, rack="")
    yield registration(28, log_dirs=[uuid.UUID(int=99)])


def of_topics() -> Iterator[Request]:
    yield assigned_topic("a", (0, [1, 2]), (1, [2, 1]))
    for name in ("", ".", "..", "a/b", "../../evil", "a\0b", "x" * 250, "\u00e9", "a b"):
        yield topic(name)
    for count in (0, -2, 10_001, 2**31 - 1):
        yield topic("b", num_partitions=count)
    for count in (0, -2, 32_767):
        yield topic("b", replication_factor=count)
    for replicas in ([-1], [1, 1], [55], []):
        yield assigned_topic("b", (0, replicas))
    for index in (-1, 1, 2**31 - 1):
        yield assigned_topic("b", (index, [1]))


def of_settings() -> Iterator[Request]:
    for kind in (-1, 0, 1, 3, 5, 7, 9, 64, 127):
        yield setting(kind, "a")
    for name in ("x", "-1", "99", "99999999999"):
        yield setting(4, name, "log.cleaner.threads")
    for value in (math.nan, math.inf, -math.inf, -1.0, 0.0, 0.5, 2.0**63, 1e308):
        yield quota(value)
    for value in (0.5, 2.0**31):
        yield quota(value, "connection_creation_rate", {"ip": "127.0.0.1"})
    yield from (quota(1.0, entity={"group": "g"}), quota(1.0, entity={}), quota(1.0, key="no"))
    for level in (-1, 0, 6, 999, 32_767):
        yield feature("metadata.version", level)
    for upgrade_type in (-1, 0, 4, 127):
        yield feature("group.version", 1, upgrade_type)
    yield from (feature("of.tomorrow", 1), feature("kraft.version", 2), feature("", 1))


def of_partitions() -> Iterator[Request]:
    yield from (proposal(isr=isr) for isr in ([], [1, 2, 2], [1, 55], [1, -1], [2]))
    yield proposal(partition_index=-1)
    for number in (0, 1, 2, 50, 99, 100, 123_456):
        yield assignment(uuid.UUID(int=number))
    yield from (assignment(directory_of(2)), assignment(directory_of(1), -1))


def test_impossible_values_are_answered_as_by_kafka(tmp_path: Path) -> None:
    found = []
    with controllers(tmp_path) as (kafka, cordwood, _):
        for number, (api, version, make) in enumerate(alike()):
            answers = [
                each.normal(each.ask(api, version, make(each))) for each in (kafka, cordwood)
            ]
            records = [each.new_records() for each in (kafka, cordwood)]
            if without_settings(answers[0]) != without_settings(answers[1]):
                found.append((number, api, make(cordwood), answers))
            if records[0] != records[1]:
                found.append((number, api, make(cordwood), records))
    assert not found


def without_settings(value: Any) -> Any:
    """An answer without the settings of a new topic, which are compared elsewhere."""
    if isinstance(value, Mapping):
        return {name: without_settings(each) for name, each in value.items() if name != "configs"}
    return [without_settings(each) for each in value] if isinstance(value, list) else value


def test_what_has_kafkas_controller_resign_is_refused_as_an_invalid_request(tmp_path: Path) -> None:
    with controllers(tmp_path) as (kafka, cordwood, elected):
        for api, version, make in (registration(1), registration(2), heartbeat(1), heartbeat(2)):
            for each in (kafka, cordwood):
                each.ask(api, version, make(each))
                each.new_records()
        api, version, make = assigned_topic("a", (0, [1, 2]))
        for each in (kafka, cordwood):
            each.ask(api, version, make(each))
            each.new_records()
        for api, version, make in RESIGNS:
            before = elected()
            assert kafka.ask(api, version, make(kafka))["error_code"] == "unknown_server_error"
            poll_until(lambda: elected() > before, timeout_s=_START_S, what="an election")  # noqa: B023
            assert "invalid_request" in str(cordwood.ask(api, version, make(cordwood)))
            assert [name for name, _ in kafka.new_records()] == ["LEADER_CHANGE"]
            assert cordwood.new_records() == []


UNKNOWN = {
    "feature": ApiRecord("FeatureLevelRecord", 0, {"name": "of.tomorrow", "featureLevel": 1}),
    "level": ApiRecord("FeatureLevelRecord", 0, {"name": "group.version", "featureLevel": 9}),
    "metadata version": feature_record("metadata.version", 99),
}


@pytest.mark.parametrize("kind", UNKNOWN)
def test_no_controller_starts_on_a_log_with_an_unknown_feature_or_level(
    tmp_path: Path, kind: str
) -> None:
    own = ClusterController(tmp_path / "cordwood", properties=_QUIET)
    controller = Controller.open(
        metadata_dir=own.log_dir,
        node_id=own.node_id,
        directory_ids=[directory_id_of(own.log_dir)],
        clock=SystemClock(),
    )
    controller.log.append([UNKNOWN[kind]], timestamp_ms=0)
    controller.close()
    shutil.copytree(own.log_dir, tmp_path / "copy")
    with pytest.raises(ServeError, match=r"the cluster has .* at level"):
        own.start()
    with KafkaController(
        tmp_path / "kafka", properties=_QUIET, log_dirs=[tmp_path / "copy"]
    ) as kafka:
        kafka.port = own.port
        kafka.launch()
        poll_until(lambda: not kafka.is_running, timeout_s=_START_S, what="the end of Kafka")
        assert "Encountered fatal fault" in kafka.log_since_start


def directory_id_of(log_dir: Path) -> uuid.UUID:
    found = parse_meta_properties((log_dir / META_PROPERTIES).read_bytes()).directory_id
    assert found is not None
    return found
