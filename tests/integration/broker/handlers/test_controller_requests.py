"""Requests that the controller answers: topics, partitions, quotas, features, the quorum."""

from __future__ import annotations

import uuid
from typing import Any

import pytest

from cordwood.model.kafka_errors import StorageError
from cordwood.testing.broker import RunningBroker
from support.wire import Wire

WAIT = {"timeout_ms": 1000}
METADATA = "__cluster_metadata"


def new_topic(name: str, **changes: Any) -> dict[str, Any]:
    return {
        "name": name,
        "num_partitions": 1,
        "replication_factor": 1,
        "assignments": [],
        "configs": [],
        **changes,
    }


def create(wire: Wire, *topics: dict[str, Any], version: int = 7, **fields: Any) -> list[Any]:
    values = {"topics": topics, "validate_only": False, **WAIT, **fields}
    answer: list[Any] = wire.ask("create_topics", version, values)["topics"]
    return answer


def codes(answers: list[Any]) -> list[str]:
    return [each["error_code"] for each in answers]


@pytest.fixture
def name() -> str:
    """A topic's name that no other test has."""
    return f"t-{uuid.uuid4().hex}"


def test_a_topic_is_made_and_described(wire: Wire, running: RunningBroker, name: str) -> None:
    configs = [{"name": "retention.ms", "value": "1000"}]
    (made,) = create(wire, new_topic(name, num_partitions=-1, configs=configs))
    assert (made["error_code"], made["error_message"]) == ("none", None)
    assert (made["num_partitions"], made["replication_factor"]) == (2, 1)
    topic_id = running.call(lambda broker: broker.metadata.image.topics[name].topic_id)
    assert str(made["topic_id"]) == str(topic_id)
    entries = {each["name"]: each for each in made["configs"]}
    assert entries["retention.ms"] == {
        "name": "retention.ms",
        "value": "1000",
        "read_only": False,
        "config_source": 1,
        "is_sensitive": False,
    }
    assert list(entries) == sorted(entries)
    assert len(entries) > 25


@pytest.mark.parametrize("version", [2, 3, 4, 5, 6, 7])
def test_all_versions_make_topics(wire: Wire, name: str, version: int) -> None:
    good, bad = create(wire, new_topic(name), new_topic("b d"), version=version)
    assert codes([good, bad]) == ["none", "invalid_topic_exception"]


def test_a_name_twice_and_the_metadata_topic_are_refused(wire: Wire, name: str) -> None:
    answers = create(wire, new_topic(name), new_topic(name), new_topic(METADATA))
    assert [(each["name"], each["error_message"]) for each in answers] == [
        (name, "Duplicate topic name."),
        (METADATA, f"Creation of internal topic {METADATA} is prohibited."),
    ]


def test_settings_are_checked(wire: Wire, name: str) -> None:
    unknown, refused = create(
        wire,
        new_topic(name, configs=[{"name": "nope", "value": "1"}]),
        new_topic(f"{name}-2", configs=[{"name": "retention.ms", "value": "x"}]),
    )
    assert codes([unknown, refused]) == ["invalid_config", "invalid_config"]
    assert unknown["error_message"] == "Unknown topic config name: nope"
    assert "retention.ms" in refused["error_message"]


def test_one_error_for_all_is_that_of_each(wire: Wire, name: str) -> None:
    many = new_topic(f"{name}-2", num_partitions=10_001)
    answers = create(wire, new_topic(name), many)
    assert codes(answers) == ["policy_violation"] * 2
    assert {each["error_message"] for each in answers} == {
        "Excessively large number of partitions per request."
    }


def test_a_disk_that_refuses_is_an_answer(
    wire: Wire, running: RunningBroker, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    create(wire, new_topic(name))

    def refuse(*_: object, **__: object) -> None:
        raise StorageError("the disk is full")

    monkeypatch.setattr(running.node.controller.log, "append", refuse)
    assert codes(create(wire, new_topic("other"))) == ["kafka_storage_error"]
    deleting = {"topic_names": [name], **WAIT}
    (answer,) = wire.ask("delete_topics", 5, deleting)["responses"]
    assert answer["error_code"] == "kafka_storage_error"
    monkeypatch.undo()
    (answer,) = wire.ask("delete_topics", 5, deleting)["responses"]
    assert answer["error_code"] == "none"


def test_deleting_by_name_and_by_id(wire: Wire, running: RunningBroker, name: str) -> None:
    create(wire, new_topic(name), new_topic(f"{name}-2"))
    image = running.call(lambda broker: broker.metadata.image)
    topic_id, other_id = (image.topics[each].topic_id for each in (name, f"{name}-2"))
    asked = [
        {"name": None, "topic_id": topic_id},
        {"name": f"{name}-2", "topic_id": None},
        {"name": None, "topic_id": other_id},
        {"name": None, "topic_id": uuid.UUID(int=77)},
        {"name": "nope", "topic_id": None},
        {"name": None, "topic_id": None},
    ]
    answers = wire.ask("delete_topics", 6, {"topics": asked, **WAIT})["responses"]
    found = {(each["name"], str(each["topic_id"])): each["error_code"] for each in answers}
    assert sorted(found.values()) == [
        "invalid_request",
        "invalid_request",
        "none",
        "unknown_topic_id",
        "unknown_topic_or_partition",
    ]
    assert name not in running.call(lambda broker: broker.metadata.image.topics)
    assert f"{name}-2" in running.call(lambda broker: broker.metadata.image.topics)


def test_a_topic_gets_more_partitions(wire: Wire, running: RunningBroker, name: str) -> None:
    create(wire, new_topic(name))
    asked = [
        {"name": name, "count": 3, "assignments": None},
        {"name": "nope", "count": 3, "assignments": None},
    ]
    answers = wire.ask("create_partitions", 3, {"topics": asked, "validate_only": False, **WAIT})[
        "results"
    ]
    assert codes(answers) == ["none", "unknown_topic_or_partition"]
    assert len(running.call(lambda broker: broker.metadata.image.topics[name].partitions)) == 3


def test_elections_and_moves(wire: Wire, name: str) -> None:
    create(wire, new_topic(name))
    asked = {"election_type": 0, "topic_partitions": [{"topic": name, "partitions": [0]}], **WAIT}
    answer = wire.ask("elect_leaders", 2, asked)
    (partition,) = answer["replica_election_results"][0]["partition_result"]
    assert partition["error_code"] == "election_not_needed"
    unknown = {**asked, "election_type": 9, "topic_partitions": None}
    assert wire.ask("elect_leaders", 2, unknown)["replica_election_results"] == []
    answer = wire.ask("elect_leaders", 2, {**asked, "election_type": 9})
    assert answer["error_code"] == "invalid_request"
    topics = [{"name": name, "partitions": [{"partition_index": 0, "replicas": [5]}]}]
    answer = wire.ask("alter_partition_reassignments", 0, {"topics": topics, **WAIT})
    (partition,) = answer["responses"][0]["partitions"]
    assert partition["error_code"] == "invalid_replica_assignment"
    answer = wire.ask("list_partition_reassignments", 0, {"topics": None, **WAIT})
    assert not answer["topics"]


def test_quotas_are_altered_and_described(wire: Wire) -> None:
    entity = [{"entity_type": "user", "entity_name": "u"}]
    rate = {"key": "producer_byte_rate", "value": 5.0, "remove": False}
    changed = wire.ask(
        "alter_client_quotas",
        1,
        {"entries": [{"entity": entity, "ops": [rate]}], "validate_only": False},
    )
    assert codes(changed["entries"]) == ["none"]
    components = [{"entity_type": "user", "match_type": 0, "match": "u"}]
    asked = {"components": components, "strict": True}
    (entry,) = wire.ask("describe_client_quotas", 1, asked)["entries"]
    assert (list(entry["entity"]), list(entry["values"])) == (
        entity,
        [{"key": "producer_byte_rate", "value": 5.0}],
    )
    components[0]["entity_type"] = "thing"
    answer = wire.ask("describe_client_quotas", 1, asked)
    assert (answer["error_code"], answer["entries"]) == ("unsupported_version", None)


@pytest.mark.parametrize("version", [0, 1])
def test_a_quota_of_an_address_that_is_none_is_refused(wire: Wire, version: int) -> None:
    def alter(*entity: tuple[str, str | None]) -> tuple[str, str | None, list[str]]:
        asked = {
            "entity": [{"entity_type": kind, "entity_name": name} for kind, name in entity],
            "ops": [{"key": "connection_creation_rate", "value": 1.0, "remove": False}],
        }
        answer = wire.ask(
            "alter_client_quotas", version, {"entries": [asked], "validate_only": True}
        )
        (entry,) = answer["entries"]
        kinds = [each["entity_type"] for each in entry["entity"]]
        return entry["error_code"], entry["error_message"], kinds

    for name in ("not an ip", "1.2.3.4.5", "0x7f000001", " 127.0.0.1"):
        refused = f"{name} is not a valid IP or resolvable host."
        assert alter(("ip", name)) == ("invalid_request", refused, ["ip"])
    for known in ("192.168.1.1", "localhost", "::1", None):
        assert alter(("ip", known)) == ("none", None, ["ip"])
    code, text, kinds = alter(("ip", "not an ip"), ("user", "u"), ("client-id", "c"))
    assert (code, kinds) == ("invalid_request", ["client-id", "user", "ip"])
    assert text is not None
    assert text.startswith("Invalid quota entity combination")


def test_features_and_brokers(wire: Wire) -> None:
    feature = "eligible.leader.replicas.version"
    update = {"feature": feature, "max_version_level": 0, "upgrade_type": 1}
    asked = {"feature_updates": [update], "validate_only": False, **WAIT}
    answer = wire.ask("update_features", 2, asked)
    assert answer["error_code"] == "invalid_update_version"
    assert answer["error_message"].startswith("The update failed for all features since")
    update["upgrade_type"] = 2
    answer = wire.ask("update_features", 1, asked)
    assert [each["feature"] for each in answer["results"]] == [feature]
    answer = wire.ask("unregister_broker", 0, {"broker_id": 77})
    assert answer["error_code"] == "broker_id_not_registered"
    answer = wire.ask("unregister_controller", 0, {"controller_id": 77})
    assert answer["error_code"] == "unsupported_version"  # of the cluster's metadata.version
    update = {"feature": "metadata.version", "max_version_level": 33, "upgrade_type": 1}
    wire.ask("update_features", 1, {**asked, "feature_updates": [update]})
    answer = wire.ask("unregister_controller", 0, {"controller_id": 77})
    assert answer["error_code"] == "controller_id_not_registered"


def test_the_quorum_is_this_broker(wire: Wire, running: RunningBroker) -> None:
    asked = {"topics": [{"topic_name": METADATA, "partitions": [{"partition_index": 0}]}]}
    answer = wire.ask("describe_quorum", 2, asked)
    (partition,) = answer["topics"][0]["partitions"]
    node_id = running.call(lambda broker: broker.node_id)
    (voter,) = partition["current_voters"]
    assert partition["leader_id"] == voter["replica_id"] == node_id
    assert partition["high_watermark"] == voter["log_end_offset"] > 0
    assert [each["node_id"] for each in answer["nodes"]] == [node_id]
    asked["topics"][0]["topic_name"] = "other"
    answer = wire.ask("describe_quorum", 0, asked)
    (partition,) = answer["topics"][0]["partitions"]
    assert partition["error_code"] == "unknown_topic_or_partition"
