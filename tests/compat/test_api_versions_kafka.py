"""ApiVersions at a Kafka 4.4 and at Cordwood, and requests whose versions are new in it.

A broker and a controller of each are asked; the metadata version is 4.3-IV0.
"""

from __future__ import annotations

import runpy
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple
from uuid import UUID

import pytest

from cordwood.metadata.formatting import format_directories
from cordwood.metadata.image import Endpoint
from cordwood.model.clock import SystemClock
from cordwood.protocol.apis import APIS
from cordwood.protocol.headers import API_VERSIONS
from cordwood.testing.broker import RunningBroker
from support.kafka import CLUSTER_ID, RealKafka, poll_until
from support.kafka_programs import KAFKA_4_4
from support.no_engine import NoEngine
from support.ports import free_port
from support.transaction_client import TransactionClient
from support.wire import NO_UUID, Plain, Wire, request_body

pytestmark = [pytest.mark.kafka, pytest.mark.usefixtures("kafka_4_4_jars")]

NODE_ID: Final = 1
SOFTWARE: Final = {"client_software_name": "tests", "client_software_version": "1"}
UNKNOWN_VERSION: Final = 9
IDENTITIES: Final = (
    (CLUSTER_ID, NODE_ID),
    (CLUSTER_ID, 2),
    (CLUSTER_ID, -1),
    (CLUSTER_ID, -5),
    ("another", NODE_ID),
    ("another", -1),
    ("", NODE_ID),
    ("", -1),
    (None, NODE_ID),
    (None, -1),
)
UNSERVED_FEATURES: Final = frozenset({"share.version", "streams.version"})
_APIS_DOC: Final = Path(__file__).resolve().parents[2] / "tools" / "apis_doc.py"
UNSERVED: Final[frozenset[int]] = frozenset(runpy.run_path(str(_APIS_DOC))["UNSERVED"])


class Node(NamedTuple):
    """The ports of a node's listeners."""

    broker: int
    controller: int


@pytest.fixture(scope="module")
def nodes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Node, Node]]:
    """A Kafka and a Cordwood, each of them a broker and the controller of its cluster."""
    root = tmp_path_factory.mktemp("nodes")
    theirs, ours = free_port(), free_port()
    format_directories(
        [root / "cordwood"],
        node_id=NODE_ID,
        cluster_id=CLUSTER_ID,
        clock=SystemClock(),
        controller_endpoints=[Endpoint(name="CONTROLLER", host="127.0.0.1", port=ours)],
    )
    properties = {
        "node.id": str(NODE_ID),
        "listeners": f"PLAINTEXT://127.0.0.1:0,CONTROLLER://127.0.0.1:{ours}",
        "controller.quorum.bootstrap.servers": f"127.0.0.1:{ours}",
    }
    with RealKafka(root / "kafka", version=KAFKA_4_4, release="4.3") as kafka:
        kafka.start(
            {
                "controller.quorum.voters": f"{NODE_ID}@127.0.0.1:{theirs}",
                "listeners": f"PLAINTEXT://127.0.0.1:{kafka.port},CONTROLLER://127.0.0.1:{theirs}",
            }
        )
        with RunningBroker(properties, log_dir=root / "cordwood", engine=NoEngine) as running:
            yield Node(kafka.port, theirs), Node(running.port, ours)


def answers(nodes: tuple[Node, Node], role: str, version: int, **fields: Any) -> list[Plain]:
    """Kafka's answer and Cordwood's."""
    found = []
    for node in nodes:
        with Wire(getattr(node, role)) as wire:
            found.append(wire.ask("api_versions", version, {**SOFTWARE, **fields}))
    return found


def versions_in(answer: Plain) -> dict[int, tuple[int, int]]:
    return {
        each["api_key"]: (each["min_version"], each["max_version"]) for each in answer["api_keys"]
    }


def features_in(answer: Plain) -> set[tuple[str, int, int]]:
    """The features that are supported, and those that are finalized, at their levels."""
    supported = {
        (each["name"], each["min_version"], each["max_version"])
        for each in answer["supported_features"]
    }
    finalized = {
        (each["name"], each["min_version_level"], each["max_version_level"])
        for each in answer["finalized_features"]
        # Kafka's quorum is one of the old kind: its voters are in its settings.
        if each["name"] != "kraft.version"
    }
    return {each for each in supported | finalized if each[0] not in UNSERVED_FEATURES}


@pytest.mark.parametrize("role", Node._fields)
@pytest.mark.parametrize("version", range(APIS[API_VERSIONS].max_version + 1))
def test_the_versions_of_what_is_served_are_kafkas(
    nodes: tuple[Node, Node], role: str, version: int
) -> None:
    kafka, cordwood = (versions_in(each) for each in answers(nodes, role, version))
    missing = kafka.keys() - cordwood.keys()
    assert cordwood == {key: each for key, each in kafka.items() if key not in missing}
    assert missing <= UNSERVED


@pytest.mark.parametrize("role", Node._fields)
@pytest.mark.parametrize("version", [3, 4, 5])
def test_the_features_of_what_is_served_are_kafkas(
    nodes: tuple[Node, Node], role: str, version: int
) -> None:
    kafka, cordwood = (features_in(each) for each in answers(nodes, role, version))
    assert cordwood == kafka


@pytest.mark.parametrize("role", Node._fields)
@pytest.mark.parametrize(("cluster_id", "node_id"), IDENTITIES)
def test_who_is_meant_is_checked_as_kafka_checks_it(
    nodes: tuple[Node, Node], role: str, cluster_id: str | None, node_id: int
) -> None:
    kafka, cordwood = answers(nodes, role, 5, cluster_id=cluster_id, node_id=node_id)
    assert cordwood["error_code"] == kafka["error_code"]
    if kafka["error_code"] != "none":
        assert cordwood == kafka


@pytest.mark.parametrize("role", Node._fields)
def test_a_version_that_is_not_known_is_answered_alike(nodes: tuple[Node, Node], role: str) -> None:
    found = []
    for node in nodes:
        with Wire(getattr(node, role)) as wire:
            body = request_body(API_VERSIONS, 5, SOFTWARE)
            found.append(wire.exchange(API_VERSIONS, UNKNOWN_VERSION, body))
    assert found[0] == found[1]


def commit_soon(wire: TransactionClient, group: str, topic: str) -> None:
    """Commits an offset when the broker knows the topic, and has loaded the group's partition."""
    wire.find_group(group)
    poll_until(
        lambda: wire.commit(group, topic, 0, 1) == "none", timeout_s=60, what="an offset is there"
    )


@pytest.mark.parametrize("version", range(APIS[42].max_version + 1))
def test_groups_are_deleted_alike(nodes: tuple[Node, Node], version: int) -> None:
    found = []
    for node in nodes:
        with TransactionClient(node.broker) as wire:
            group = f"deleted-{version}"
            wire.create(f"of-{group}")
            for each in (group, "no-such"):
                commit_soon(wire, each, f"of-{group}")
            wire.ask("delete_groups", version, {"groups_names": ["no-such"]})
            asked = {"groups_names": ["no-such", group, group, ""]}
            answer = wire.ask("delete_groups", version, asked)
            found.append(sorted(answer["results"], key=lambda each: str(each["group_id"])))
    assert found[0] == found[1]
    assert [each["error_code"] for each in found[0]] == [
        "group_id_not_found",
        "none",
        "group_id_not_found",
    ]


def test_offsets_of_unknown_topics_are_refused_alike(nodes: tuple[Node, Node]) -> None:
    found = []
    for node in nodes:
        with TransactionClient(node.broker) as wire:
            wire.create("known", 2)
            commit_soon(wire, "g", "known")
            producer = wire.producer("x")
            partition = {"committed_offset": 3, "committed_leader_epoch": -1}
            known = wire.topic_id("known")
            asked = {
                **producer.named(),
                "group_id": "g",
                "topics": [
                    {"topic_id": each, "partitions": [{**partition, "partition_index": index}]}
                    for each, index in (
                        *((known, 1), (UUID(int=77), 0), (known, 5)),
                        *((NO_UUID, 0), (known, 0), (UUID(int=77), 1)),
                    )
                ],
            }
            answer = wire.ask("txn_offset_commit", 6, asked)
            wire.end(producer, commit=False)
            for each in answer["topics"]:
                each["topic_id"] = {known: "known"}.get(each["topic_id"], each["topic_id"])
            found.append(answer["topics"])
    assert found[0] == found[1]
    assert [each["topic_id"] for each in found[0]] == [UUID(int=77), "known", NO_UUID]
