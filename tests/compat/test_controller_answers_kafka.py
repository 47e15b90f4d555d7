"""The same requests to a real Kafka's controller and to Cordwood's: the same answers."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from cordwood.metadata.formatting import format_directories
from cordwood.metadata.image import Endpoint, MetadataImage
from cordwood.metadata.replay import read_metadata_image
from cordwood.model.clock import SystemClock
from cordwood.testing.broker import RunningBroker
from support.kafka import KafkaRunError, RealKafka, poll_until
from support.kafka_programs import KAFKA_4_4
from support.no_engine import NoEngine
from support.ports import free_port
from support.wire import Wire

pytestmark = [pytest.mark.kafka, pytest.mark.usefixtures("kafka_jars", "kafka_4_4_jars")]

CLUSTER_ID = "Y29yZHdvb2QtdGVzdHMtMQ"
METADATA = "__cluster_metadata"
WAIT = {"timeout_ms": 60_000}
#: Fields that differ between any two brokers.
OWN = frozenset(
    {
        "topic_id",
        "log_end_offset",
        "high_watermark",
        "last_fetch_timestamp",
        "last_caught_up_timestamp",
        "replica_directory_id",
        "port",
        "leader_epoch",
    }
)
Request = tuple[str, int, Mapping[str, Any]]


def topic(name: str, **changes: Any) -> dict[str, Any]:
    configs = [
        {"name": key.replace("_", "."), "value": value}
        for key, value in changes.pop("configs", {}).items()
    ]
    return {
        "name": name,
        "num_partitions": 1,
        "replication_factor": 1,
        "assignments": [],
        "configs": configs,
        **changes,
    }


def by_hand(name: str, *assignments: tuple[int, list[int]], **changes: Any) -> dict[str, Any]:
    return topic(
        name,
        num_partitions=-1,
        replication_factor=-1,
        assignments=[
            {"partition_index": number, "broker_ids": brokers} for number, brokers in assignments
        ],
        **changes,
    )


def creating(version: int, *topics: dict[str, Any], validate_only: bool = False) -> Request:
    return "create_topics", version, {"topics": topics, "validate_only": validate_only, **WAIT}


def new_topics() -> Iterator[Request]:
    compacted = {"retention_ms": "1000", "cleanup_policy": "compact"}
    yield creating(7, topic("a"), topic("b", num_partitions=3, configs=compacted))
    yield creating(5, topic("v5", num_partitions=-1, replication_factor=-1))
    yield creating(2, topic("v2"))
    yield creating(7, topic("a"), topic("a.b"), topic("a_b"))
    yield creating(7, topic("a_b"), topic("a.b"), topic("x"), topic("x"), topic(METADATA))
    yield creating(7, *(topic(name) for name in ("", ".", "..", "b d", "n" * 250, "é")))
    yield creating(7, topic("p0", num_partitions=0), topic("p2", num_partitions=-2))
    yield creating(7, *(topic(f"r{n}", replication_factor=n) for n in (-2, 0, 3)))
    yield creating(7, by_hand("m1", (0, [1]), (1, [1])))
    placed = [{"partition_index": 0, "broker_ids": [1]}]
    yield creating(7, topic("m2", assignments=placed))
    yield creating(7, topic("m3", num_partitions=-1, assignments=placed))
    yield creating(7, topic("m4", replication_factor=-1, assignments=placed))
    yield creating(7, by_hand("m5", (0, [1]), (0, [1])), by_hand("m6", (0, [2])))
    yield creating(7, by_hand("m7", (0, [1, 1])), by_hand("m8", (0, [])))
    yield creating(7, by_hand("m9", (1, [1])), by_hand("m10", (0, [1]), (1, [1, 2])))
    crossed = {"min_compaction_lag_ms": "5", "max_compaction_lag_ms": "4"}
    yield creating(7, topic("c1", configs={"nope": "1"}), topic("c4", configs=crossed))
    yield creating(7, topic("c2", configs={"retention_ms": "x"}))
    yield creating(7, topic("c3", configs={"retention_ms": None}))
    yield creating(7, topic("c5", configs={"min_insync_replicas": "2"}))
    wrong = {"nope": "1"}
    yield creating(7, topic("a", configs=wrong), topic("b d", configs=wrong))
    yield creating(7, topic("c6", configs=wrong, num_partitions=0))
    yield creating(7, topic("vo", num_partitions=4), topic("a"), validate_only=True)
    yield creating(7, topic("big", num_partitions=10_001), topic("small"))
    yield creating(7, topic("big", num_partitions=10_000))
    yield creating(7)


def enlarging(
    version: int, *topics: tuple[str, int, list[list[int]] | None], validate_only: bool = False
) -> Request:
    wanted = [
        {
            "name": name,
            "count": count,
            "assignments": None if brokers is None else [{"broker_ids": each} for each in brokers],
        }
        for name, count, brokers in topics
    ]
    return "create_partitions", version, {"topics": wanted, "validate_only": validate_only, **WAIT}


def new_partitions() -> Iterator[Request]:
    yield enlarging(3, ("a", 3, None), ("nope", 3, None), ("b", 3, None), ("v5", 0, None))
    yield enlarging(2, ("v2", -1, None), ("b", 2, None))
    yield enlarging(3, ("b", 5, [[1]]), ("v5", 2, [[2]]), ("v2", 2, [[1, 1]]), ("m1", 3, [[]]))
    yield enlarging(0, ("b", 4, [[1]]), ("v5", 2, [[1, 2]]))
    yield enlarging(3, ("b", 9, None), ("b", 9, None))
    yield enlarging(1, ("b", 9, None), validate_only=True)


def electing(
    version: int, kind: int | None, asked: Sequence[tuple[str, list[int]]] | None
) -> Request:
    topics = None
    if asked is not None:
        topics = [{"topic": name, "partitions": numbers} for name, numbers in asked]
    values = {"topic_partitions": topics, **WAIT}
    return "elect_leaders", version, values if kind is None else {**values, "election_type": kind}


def moving(version: int, *asked: tuple[str, int, list[int] | None], **fields: bool) -> Request:
    topics = [
        {"name": name, "partitions": [{"partition_index": number, "replicas": replicas}]}
        for name, number, replicas in asked
    ]
    return "alter_partition_reassignments", version, {"topics": topics, **fields, **WAIT}


def leaders_and_moves() -> Iterator[Request]:
    yield electing(2, 0, [("a", [0, 1, 7]), ("nope", [0])])
    yield electing(2, 1, [("a", [0])])
    yield electing(2, 0, None)
    yield electing(2, 5, [("a", [0])])
    yield electing(0, None, [("a", [0])])
    yield moving(0, ("a", 0, [1]), ("b", 0, [2]), ("nope", 0, [1]), ("v5", 9, [1]))
    yield moving(0, ("v2", 0, None), ("m1", 0, []), ("m1", 1, [1, 1]))
    yield moving(1, ("a", 0, [1]), ("b", 0, [1, 2]), allow_replication_factor_change=False)
    asked = [{"name": "a", "partition_indexes": [0]}]
    yield "list_partition_reassignments", 0, {"topics": None, **WAIT}
    yield "list_partition_reassignments", 0, {"topics": asked, **WAIT}


Entity = Sequence[tuple[str, str | None]]
Quota = tuple[Entity, Sequence[tuple[str, float | None]]]


def limiting(version: int, *entries: Quota, validate_only: bool = False) -> Request:
    asked = [
        {
            "entity": [{"entity_type": kind, "entity_name": name} for kind, name in entity],
            "ops": [
                {"key": key, "value": value or 0.0, "remove": value is None} for key, value in ops
            ],
        }
        for entity, ops in entries
    ]
    return "alter_client_quotas", version, {"entries": asked, "validate_only": validate_only}


def quota(entity: Entity, *ops: tuple[str, float | None]) -> Quota:
    return entity, ops


def looking(version: int, *asked: tuple[str, int, str | None], strict: bool = False) -> Request:
    components = [
        {"entity_type": kind, "match_type": how, "match": name} for kind, how, name in asked
    ]
    return "describe_client_quotas", version, {"components": components, "strict": strict}


def quotas() -> Iterator[Request]:
    user, anyone, address = [("user", "u")], [("user", None)], [("ip", "1.2.3.4")]
    produced, connections = "producer_byte_rate", "connection_creation_rate"
    yield limiting(
        1,
        quota(user, (produced, 1024.0), ("request_percentage", 0.5)),
        quota([*anyone, ("client-id", "c")], ("consumer_byte_rate", 5.0)),
        quota([("ip", "127.0.0.1")], (connections, 5.0)),
        quota([("ip", None)], (connections, 7.0)),
    )
    yield limiting(1, quota(user, (produced, 1.5)))
    yield limiting(1, quota(user, ("nope", 1.0)))
    yield limiting(1, quota([("user", "z")], (produced, 0.0)))
    yield limiting(1, quota([("user", "y")], (produced, -1.0)))
    yield limiting(1, quota(address, (produced, 1.0)))
    yield limiting(1, quota([*address, *user], (connections, 1.0)))
    yield limiting(1, quota([("ip", "not an ip!")], (connections, 1.0)))
    yield limiting(1, quota([("thing", "x")], (produced, 1.0)))
    yield limiting(1, quota([("user", "")], (produced, 1.0)))
    yield limiting(1, quota([], (produced, 1.0)))
    yield limiting(1, quota([("user", "dup")], (produced, 1.0), (produced, 2.0)))
    twice = [("user", "dup2")]
    yield limiting(1, quota(twice, (produced, 1.0)), quota(twice, (produced, 2.0)))
    yield limiting(1, quota([("user", "big")], (produced, 1e30)))
    yield limiting(1, quota(address, (connections, 1e12)))
    yield limiting(1, quota([("user", "f")], ("controller_mutation_rate", 0.1)))
    yield limiting(1, quota([("user", "u"), ("user", "v")], (produced, 1.0)))
    yield limiting(1, quota(user, ("request_percentage", None), ("consumer_byte_rate", None)))
    yield limiting(0, quota(user, (produced, 9.0)), validate_only=True)
    yield looking(1)
    yield looking(0, ("user", 0, "u"))
    yield looking(1, ("user", 2, None), strict=True)
    yield looking(1, ("user", 1, None), ("client-id", 0, "c"), strict=True)
    yield looking(1, ("ip", 2, None))
    yield looking(1, ("", 0, "x"))
    yield looking(1, ("user", 0, "u"), ("user", 1, None))
    yield looking(1, ("thing", 0, "x"))
    yield looking(1, ("user", 0, None))
    yield looking(1, ("user", 1, "x"))
    yield looking(1, ("user", 2, "x"))
    yield looking(1, ("user", 9, "x"))
    yield looking(1, ("ip", 0, "x"), ("user", 0, "y"))


def updating(version: int, *asked: tuple[str, int, int], **fields: bool) -> Request:
    updates = [
        {"feature": name, "max_version_level": level, "upgrade_type": kind}
        for name, level, kind in asked
    ]
    return "update_features", version, {"feature_updates": updates, **fields, **WAIT}


def features() -> Iterator[Request]:
    """Of features that both serve."""
    elr, level = "eligible.leader.replicas.version", "metadata.version"
    for update in (
        *((elr, 0, 2), (elr, 1, 1), (elr, 0, 1), (elr, 1, 2), (elr, 2, 1)),
        *(("nope", 1, 1), ("nope", 0, 1)),
        *((level, 29, 1), (level, 29, 2), (level, 25, 2), (level, 25, 3), (level, 99, 1)),
        *((level, 30, 1), (level, 3, 2), (level, 34, 1), (level, 31, 1), (level, 30, 2)),
        *((elr, -1, 1), (elr, 0, 0), (elr, 0, 7)),
        *(("kraft.version", 0, 2), ("kraft.version", 1, 1), ("kraft.version", 2, 1)),
    ):
        yield updating(2, update)
    yield updating(2, (elr, 0, 2), validate_only=True)
    yield updating(2, (elr, 0, 2), ("nope", 1, 1))
    yield updating(1, (elr, 0, 2))
    yield updating(1, (elr, 0, 1), ("nope", 1, 1))
    yield updating(2)
    for group_level, allowed in ((0, True), (1, False)):
        old = {
            "feature": elr,
            "max_version_level": group_level,
            "allow_downgrade": allowed,
        }
        yield "update_features", 0, {"feature_updates": [old], **WAIT}


def asking_quorum(version: int, name: str, *partitions: int) -> Request:
    numbers = [{"partition_index": each} for each in partitions]
    return "describe_quorum", version, {"topics": [{"topic_name": name, "partitions": numbers}]}


def quorum() -> Iterator[Request]:
    for version in (0, 1, 2):
        yield asking_quorum(version, METADATA, 0)
    yield asking_quorum(2, "a", 0)
    yield asking_quorum(2, METADATA, 0, 1)
    yield asking_quorum(1, METADATA, 1)
    yield "describe_quorum", 2, {"topics": []}
    yield "unregister_broker", 0, {"broker_id": 7}
    for controller_id in (1, 7):
        yield "unregister_controller", 0, {"controller_id": controller_id}
    yield updating(2, ("metadata.version", 33, 1))
    for controller_id in (1, 7):
        yield "unregister_controller", 0, {"controller_id": controller_id}
    for level in (32, 30):
        yield updating(2, ("metadata.version", level, 2))


def deleting(*asked: tuple[str | None, uuid.UUID | None]) -> Request:
    topics = [{"name": name, "topic_id": topic_id} for name, topic_id in asked]
    return "delete_topics", 6, {"topics": topics, **WAIT}


def deletions() -> Iterator[Request]:
    one, other = uuid.UUID(int=55), uuid.UUID(int=66)
    yield "delete_topics", 1, {"topic_names": ["v2", "nope", "nope", "v5", "v5"], **WAIT}
    yield deleting(("nope", None), (None, one), (None, None), ("a", one))
    yield deleting(("a", None), ("a", None), (None, other), (None, other))
    yield "delete_topics", 5, {"topic_names": ["a", "nope"], **WAIT}


def comparable(answer: Any) -> Any:
    """An answer without what is each broker's own, lists in one order: Kafka's are those of Java's
    hash tables.
    """
    if isinstance(answer, dict):
        return {key: "own" if key in OWN else comparable(each) for key, each in answer.items()}
    if isinstance(answer, list | tuple):
        return sorted((comparable(each) for each in answer), key=json.dumps)
    return answer if isinstance(answer, str | int | float | bool | None) else str(answer)


def known_in(image: MetadataImage) -> dict[str, Any]:
    """Everything that the requests have changed."""
    return {
        "topics": {name: len(topic.partitions) for name, topic in image.topics.items()},
        "configs": {key: dict(values) for key, values in image.configs.items()},
        "quotas": {key: dict(values) for key, values in image.client_quotas.items()},
        "features": dict(image.features),
    }


def test_the_answers_are_those_of_a_real_kafka(tmp_path: Path) -> None:
    theirs, ours = tmp_path / "kafka-data", tmp_path / "cordwood"
    controller_port = free_port()
    format_directories(
        [theirs],
        node_id=1,
        cluster_id=CLUSTER_ID,
        clock=SystemClock(),
        controller_endpoints=[Endpoint(name="CONTROLLER", host="127.0.0.1", port=controller_port)],
    )
    with RealKafka(tmp_path / "kafka", log_dirs=[theirs], version=KAFKA_4_4) as kafka:
        controller = f"127.0.0.1:{controller_port}"
        kafka.start(
            {
                "controller.quorum.voters": "",
                "controller.quorum.bootstrap.servers": controller,
                "listeners": f"PLAINTEXT://127.0.0.1:{kafka.port},CONTROLLER://{controller}",
            }
        )
        properties = {
            "node.id": "1",
            "log.message.timestamp.before.max.ms": str(2**63 - 1),
            "log.segment.delete.delay.ms": "500",
            "listeners": "PLAINTEXT://127.0.0.1:0,CONTROLLER://127.0.0.1:0",
        }
        with (
            RunningBroker(properties, log_dir=ours, engine=NoEngine) as broker,
            Wire(kafka.port) as to_kafka,
            Wire(broker.port) as to_cordwood,
        ):
            differ = list(differences(to_kafka, to_cordwood))
        kafka.stop()
    assert not differ, "\n".join(differ)
    left = [known_in(read_metadata_image(each / f"{METADATA}-0")) for each in (ours, theirs)]
    assert left[0] == left[1]
    assert left[0]["topics"] == {"a.b": 1, "a_b": 1, "b": 4, "c5": 1, "m1": 2, "v5": 1}


def differences(to_kafka: Wire, to_cordwood: Wire) -> Iterator[str]:
    """The requests that are not answered alike, and how."""
    for requests in (new_topics, new_partitions, leaders_and_moves, quotas, features, quorum):
        yield from _differences(requests(), to_kafka, to_cordwood)
    yield from _differences(deletions(), to_kafka, to_cordwood)


def _differences(requests: Iterator[Request], to_kafka: Wire, to_cordwood: Wire) -> Iterator[str]:
    for name, version, values in requests:
        found = comparable(to_cordwood.ask(name, version, values))
        expected = comparable(to_kafka.ask(name, version, values))
        if name.startswith("describe") and found != expected:
            # Kafka's broker may not have heard yet of what its controller has just done.
            with suppress(KafkaRunError):
                poll_until(
                    lambda: comparable(to_kafka.ask(name, version, values)) == found,  # noqa: B023
                    timeout_s=60,
                    what="Kafka's broker knows",
                )
                continue
        if found != expected:
            yield f"{name} {version} {values}\n  Kafka:    {expected}\n  Cordwood: {found}"
