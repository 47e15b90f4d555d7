"""Questions of each API to the authorizer, and the answers to a client without permissions.

The operations, resources and error codes are those of kafka.server.KafkaApis, ControllerApis,
AclApis and ConfigHelper.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple
from uuid import UUID

import pytest

from cordwood.broker.broker import Broker
from cordwood.broker.broker_context import BrokerContext
from cordwood.broker.handlers import served_apis
from cordwood.format.record_batch import Record, build_batch
from cordwood.model.clock import SystemClock
from cordwood.model.kafka_errors import TopicAuthorizationError
from cordwood.serving.api import Parked
from cordwood.serving.authorizer import CLUSTER_NAME, AclOperation, ResourceType
from cordwood.serving.dispatch import Dispatcher
from cordwood.serving.principal import ANONYMOUS, Principal
from cordwood.serving.request_metrics import RequestMetrics
from cordwood.serving.session import Session
from cordwood.testing.broker import RunningBroker
from support.no_engine import NoEngine
from support.wire import Plain, Wire, read_response, request_body, request_frame

T, G, C, X = (
    ResourceType.TOPIC,
    ResourceType.GROUP,
    ResourceType.CLUSTER,
    ResourceType.TRANSACTIONAL_ID,
)
Action = tuple[AclOperation, ResourceType, str]

TOPIC, OTHER, MISSING = "t", "u", "missing"
CLIENT = "127.0.0.9"
DENIED_TOPIC, DENIED_GROUP = "topic_authorization_failed", "group_authorization_failed"
DENIED_CLUSTER = "cluster_authorization_failed"
DENIED_TRANSACTIONAL_ID = "transactional_id_authorization_failed"


class Rules:
    """Allows some actions; remembers what it was asked."""

    def __init__(self, allowed: Collection[Action] = ()) -> None:
        self.allowed = allowed
        self.asked: list[Action] = []

    def authorize(
        self,
        principal: Principal,
        host: str,
        operation: AclOperation,
        resource_type: ResourceType,
        name: str,
    ) -> bool:
        assert (principal, host) == (ANONYMOUS, CLIENT)
        self.asked.append((operation, resource_type, name))
        return (operation, resource_type, name) in self.allowed

    def authorize_by_resource_type(
        self, principal: Principal, host: str, operation: AclOperation, resource_type: ResourceType
    ) -> bool:
        assert (principal, host) == (ANONYMOUS, CLIENT)
        self.asked.append((operation, resource_type, ""))
        return (operation, resource_type, "") in self.allowed


class Case(NamedTuple):
    """A request, what it asks the authorizer, and the errors of the answer, each with its count."""

    key: int
    version: int
    fields: Mapping[str, Any]
    asks: Collection[Action]
    errors: Mapping[str, int]


def cluster(operation: AclOperation) -> Action:
    return operation, C, CLUSTER_NAME


def transactional_batch() -> bytes:
    return build_batch(
        [Record(0, 0, b"k", b"v")],
        base_offset=0,
        producer_id=7,
        producer_epoch=0,
        base_sequence=0,
        is_transactional=True,
    )


TWO = [{"name": TOPIC, "partitions": [0, 1]}]
QUOTA = {"entity": [{"entity_type": "user", "entity_name": "a"}], "ops": []}
CONFIG_RESOURCES = [
    {"resource_type": 2, "resource_name": TOPIC},
    {"resource_type": 4, "resource_name": "1"},
    {"resource_type": 16, "resource_name": "metrics"},
    {"resource_type": 32, "resource_name": "g"},
]
CONFIG_ERRORS = {DENIED_TOPIC: 1, DENIED_CLUSTER: 2, DENIED_GROUP: 1}


def config_actions(operation: AclOperation) -> list[Action]:
    return [(operation, T, TOPIC), cluster(operation), (operation, G, "g")]


CASES = [
    Case(
        0,
        9,
        {
            "acks": -1,
            "topic_data": [
                {"name": TOPIC, "partition_data": [{"index": 0, "records": None}]},
                {"name": MISSING, "partition_data": [{"index": 0, "records": None}]},
            ],
        },
        [(AclOperation.WRITE, T, TOPIC), (AclOperation.WRITE, T, MISSING)],
        {DENIED_TOPIC: 2},
    ),
    Case(
        1,
        4,
        {
            "replica_id": -1,
            "max_bytes": 1000,
            "topics": [{"topic": TOPIC, "partitions": [{"partition": 0}, {"partition": 1}]}],
        },
        [(AclOperation.READ, T, TOPIC)],
        {DENIED_TOPIC: 2},
    ),
    Case(
        2,
        5,
        {
            "replica_id": -1,
            "topics": [
                {
                    "name": TOPIC,
                    "partitions": [{"partition_index": 0, "timestamp": -1}] * 2,
                }
            ],
        },
        [(AclOperation.DESCRIBE, T, TOPIC)],
        {DENIED_TOPIC: 1},
    ),
    Case(
        3,
        9,
        {"topics": [{"name": TOPIC}, {"name": MISSING}]},
        [(AclOperation.DESCRIBE, T, TOPIC), (AclOperation.DESCRIBE, T, MISSING)],
        {DENIED_TOPIC: 2},
    ),
    Case(
        8,
        7,
        {
            "group_id": "g",
            "topics": [{"name": TOPIC, "partitions": [{"partition_index": 0}]}],
        },
        [(AclOperation.READ, G, "g")],
        {DENIED_GROUP: 1},
    ),
    Case(
        9,
        8,
        {
            "groups": [
                {"group_id": "g", "topics": [{"name": TOPIC, "partition_indexes": [0]}]},
                {"group_id": "h", "topics": None},
            ]
        },
        [(AclOperation.DESCRIBE, G, "g"), (AclOperation.DESCRIBE, G, "h")],
        {DENIED_GROUP: 2},
    ),
    Case(
        9,
        1,
        {"group_id": "g", "topics": [{"name": TOPIC, "partition_indexes": [0, 1]}]},
        [(AclOperation.DESCRIBE, G, "g")],
        {DENIED_GROUP: 2},
    ),
    Case(
        10,
        4,
        {"key_type": 0, "coordinator_keys": ["g", "h"]},
        [(AclOperation.DESCRIBE, G, "g"), (AclOperation.DESCRIBE, G, "h")],
        {DENIED_GROUP: 2},
    ),
    Case(
        10,
        4,
        {"key_type": 1, "coordinator_keys": ["x"]},
        [(AclOperation.DESCRIBE, X, "x")],
        {DENIED_TRANSACTIONAL_ID: 1},
    ),
    Case(
        10,
        6,
        {"key_type": 2, "coordinator_keys": ["g:AAAAAAAAAAAAAAAAAAAAAQ:0"]},
        [cluster(AclOperation.CLUSTER_ACTION)],
        {DENIED_CLUSTER: 1},
    ),
    Case(11, 7, {"group_id": "g"}, [(AclOperation.READ, G, "g")], {DENIED_GROUP: 1}),
    Case(12, 4, {"group_id": "g"}, [(AclOperation.READ, G, "g")], {DENIED_GROUP: 1}),
    Case(13, 4, {"group_id": "g"}, [(AclOperation.READ, G, "g")], {DENIED_GROUP: 1}),
    Case(14, 4, {"group_id": "g"}, [(AclOperation.READ, G, "g")], {DENIED_GROUP: 1}),
    Case(
        15,
        5,
        {"groups": ["g", "h"]},
        [(AclOperation.DESCRIBE, G, "g"), (AclOperation.DESCRIBE, G, "h")],
        {DENIED_GROUP: 2},
    ),
    Case(
        68,
        1,
        {"group_id": "g", "member_id": "m", "member_epoch": 0},
        [(AclOperation.READ, G, "g")],
        {DENIED_GROUP: 1},
    ),
    Case(
        69,
        1,
        {"group_ids": ["g", "h"]},
        [(AclOperation.DESCRIBE, G, "g"), (AclOperation.DESCRIBE, G, "h")],
        {DENIED_GROUP: 2},
    ),
    Case(16, 4, {}, [cluster(AclOperation.DESCRIBE)], {}),
    Case(
        19,
        7,
        {"topics": [{"name": MISSING, "num_partitions": 1, "replication_factor": 1}]},
        [cluster(AclOperation.CREATE), (AclOperation.CREATE, T, MISSING)],
        {DENIED_TOPIC: 1},
    ),
    Case(
        20,
        5,
        {"topic_names": [TOPIC, MISSING]},
        [
            cluster(AclOperation.DELETE),
            (AclOperation.DESCRIBE, T, TOPIC),
            (AclOperation.DESCRIBE, T, MISSING),
        ],
        {DENIED_TOPIC: 2},
    ),
    Case(
        21,
        2,
        {"topics": [{"name": TOPIC, "partitions": [{"partition_index": 0, "offset": 0}]}]},
        [(AclOperation.DELETE, T, TOPIC)],
        {DENIED_TOPIC: 1},
    ),
    Case(
        22,
        4,
        {"transactional_id": None, "producer_id": -1, "producer_epoch": -1},
        [cluster(AclOperation.IDEMPOTENT_WRITE), (AclOperation.WRITE, T, "")],
        {DENIED_CLUSTER: 1},
    ),
    Case(
        22,
        4,
        {"transactional_id": "x", "producer_id": -1, "producer_epoch": -1},
        [(AclOperation.WRITE, X, "x")],
        {DENIED_TRANSACTIONAL_ID: 1},
    ),
    Case(
        23,
        4,
        {
            "replica_id": -1,
            "topics": [
                {"topic": TOPIC, "partitions": [{"partition": 0, "current_leader_epoch": -1}]}
            ],
        },
        [cluster(AclOperation.CLUSTER_ACTION), (AclOperation.DESCRIBE, T, TOPIC)],
        {DENIED_TOPIC: 1},
    ),
    Case(
        24,
        3,
        {
            "v3_and_below_transactional_id": "x",
            "v3_and_below_topics": [{"name": TOPIC, "partitions": [0, 1]}],
        },
        [(AclOperation.WRITE, X, "x")],
        {DENIED_TRANSACTIONAL_ID: 2},
    ),
    Case(
        24,
        5,
        {"transactions": [{"transactional_id": "x", "topics": []}]},
        [cluster(AclOperation.CLUSTER_ACTION)],
        {DENIED_CLUSTER: 1},
    ),
    Case(
        25,
        4,
        {"transactional_id": "x", "group_id": "g"},
        [(AclOperation.WRITE, X, "x")],
        {DENIED_TRANSACTIONAL_ID: 1},
    ),
    Case(
        26,
        5,
        {"transactional_id": "x"},
        [(AclOperation.WRITE, X, "x")],
        {DENIED_TRANSACTIONAL_ID: 1},
    ),
    Case(
        27,
        1,
        {"markers": [{"producer_id": 1, "topics": [{"name": TOPIC, "partition_indexes": [0, 1]}]}]},
        [cluster(AclOperation.ALTER), cluster(AclOperation.CLUSTER_ACTION)],
        {DENIED_CLUSTER: 2},
    ),
    Case(
        28,
        5,
        {
            "transactional_id": "x",
            "group_id": "g",
            "topics": [
                {"name": TOPIC, "partitions": [{"partition_index": 0}, {"partition_index": 1}]}
            ],
        },
        [(AclOperation.WRITE, X, "x")],
        {DENIED_TRANSACTIONAL_ID: 2},
    ),
    Case(
        29,
        3,
        {
            "resource_type_filter": 1,
            "pattern_type_filter": 1,
            "operation": 1,
            "permission_type": 1,
        },
        [cluster(AclOperation.DESCRIBE)],
        {DENIED_CLUSTER: 1},
    ),
    Case(30, 3, {"creations": [{}, {}]}, [cluster(AclOperation.ALTER)], {DENIED_CLUSTER: 2}),
    Case(31, 3, {"filters": [{}, {}]}, [cluster(AclOperation.ALTER)], {DENIED_CLUSTER: 2}),
    Case(
        32,
        4,
        {"resources": CONFIG_RESOURCES},
        config_actions(AclOperation.DESCRIBE_CONFIGS),
        CONFIG_ERRORS,
    ),
    Case(
        33,
        2,
        {"resources": CONFIG_RESOURCES},
        config_actions(AclOperation.ALTER_CONFIGS),
        CONFIG_ERRORS,
    ),
    Case(
        34,
        2,
        {"dirs": [{"path": "/none", "topics": TWO}]},
        [cluster(AclOperation.ALTER)],
        {DENIED_CLUSTER: 2},
    ),
    Case(35, 3, {"topics": None}, [cluster(AclOperation.DESCRIBE)], {DENIED_CLUSTER: 1}),
    Case(
        37,
        3,
        {"topics": [{"name": TOPIC, "count": 5, "assignments": None}]},
        [(AclOperation.ALTER, T, TOPIC)],
        {DENIED_TOPIC: 1},
    ),
    Case(42, 2, {"groups_names": ["g"]}, [(AclOperation.DELETE, G, "g")], {DENIED_GROUP: 1}),
    Case(
        43,
        2,
        {"topic_partitions": [{"topic": TOPIC, "partitions": [0, 1]}]},
        [cluster(AclOperation.ALTER)],
        {DENIED_CLUSTER: 3},
    ),
    Case(
        44,
        1,
        {"resources": CONFIG_RESOURCES},
        config_actions(AclOperation.ALTER_CONFIGS),
        CONFIG_ERRORS,
    ),
    Case(
        45,
        0,
        {"topics": [{"name": TOPIC, "partitions": [{"partition_index": 0, "replicas": None}]}]},
        [cluster(AclOperation.ALTER)],
        {DENIED_CLUSTER: 2},
    ),
    Case(46, 0, {"topics": None}, [cluster(AclOperation.DESCRIBE)], {DENIED_CLUSTER: 1}),
    Case(
        47,
        0,
        {
            "group_id": "g",
            "topics": [{"name": TOPIC, "partitions": [{"partition_index": 0}]}],
        },
        [(AclOperation.DELETE, G, "g")],
        {DENIED_GROUP: 1},
    ),
    Case(48, 1, {"components": []}, [cluster(AclOperation.DESCRIBE_CONFIGS)], {DENIED_CLUSTER: 1}),
    Case(
        49,
        1,
        {"entries": [QUOTA], "validate_only": False},
        [cluster(AclOperation.ALTER_CONFIGS)],
        {DENIED_CLUSTER: 1},
    ),
    Case(
        50,
        0,
        {"users": [{"name": "a"}]},
        [cluster(AclOperation.DESCRIBE)],
        {DENIED_CLUSTER: 2},
    ),
    Case(
        55,
        1,
        {"topics": [{"topic_name": "__cluster_metadata", "partitions": [{"partition_index": 0}]}]},
        [cluster(AclOperation.DESCRIBE)],
        {DENIED_CLUSTER: 1},
    ),
    Case(57, 1, {"feature_updates": []}, [cluster(AclOperation.ALTER)], {DENIED_CLUSTER: 1}),
    Case(
        60,
        1,
        {"include_cluster_authorized_operations": True, "endpoint_type": 1},
        [cluster(AclOperation.DESCRIBE)],
        {},
    ),
    Case(
        61,
        0,
        {"topics": [{"name": TOPIC, "partition_indexes": [0]}]},
        [(AclOperation.READ, T, TOPIC)],
        {DENIED_TOPIC: 1},
    ),
    Case(64, 0, {"broker_id": 7}, [cluster(AclOperation.ALTER)], {DENIED_CLUSTER: 1}),
    Case(94, 0, {"controller_id": 7}, [cluster(AclOperation.ALTER)], {DENIED_CLUSTER: 1}),
    Case(
        65,
        0,
        {"transactional_ids": ["x"]},
        [(AclOperation.DESCRIBE, X, "x")],
        {DENIED_TRANSACTIONAL_ID: 1},
    ),
    Case(74, 0, {}, [cluster(AclOperation.DESCRIBE_CONFIGS)], {DENIED_CLUSTER: 1}),
    Case(
        75,
        0,
        {"topics": [{"name": TOPIC}], "response_partition_limit": 10, "cursor": None},
        [(AclOperation.DESCRIBE, T, TOPIC)],
        {DENIED_TOPIC: 1},
    ),
]

WRITE_X = (AclOperation.WRITE, X, "x")
#: Requests of a client that may use its transactional id, and nothing else.
OWN_ID_ONLY = [
    Case(
        0,
        11,
        {
            "acks": -1,
            "transactional_id": "x",
            "topic_data": [
                {"name": TOPIC, "partition_data": [{"index": 0, "records": transactional_batch()}]}
            ],
        },
        [WRITE_X, (AclOperation.WRITE, T, TOPIC)],
        {DENIED_TOPIC: 1},
    ),
    Case(
        22,
        6,
        {
            "transactional_id": "x",
            "producer_id": -1,
            "producer_epoch": -1,
            "enable2_pc": True,
        },
        [WRITE_X, (AclOperation.TWO_PHASE_COMMIT, X, "x")],
        {DENIED_TRANSACTIONAL_ID: 1},
    ),
    Case(
        24,
        3,
        {
            "v3_and_below_transactional_id": "x",
            "v3_and_below_topics": [
                {"name": TOPIC, "partitions": [0]},
                {"name": "__consumer_offsets", "partitions": [1]},
            ],
        },
        [WRITE_X, (AclOperation.WRITE, T, TOPIC)],
        {DENIED_TOPIC: 2},
    ),
    Case(
        25,
        4,
        {"transactional_id": "x", "group_id": "g"},
        [WRITE_X, (AclOperation.READ, G, "g")],
        {DENIED_GROUP: 1},
    ),
    Case(
        28,
        5,
        {
            "transactional_id": "x",
            "group_id": "g",
            "topics": [{"name": TOPIC, "partitions": [{"partition_index": 0}]}],
        },
        [WRITE_X, (AclOperation.READ, G, "g")],
        {DENIED_GROUP: 1},
    ),
]

#: Served without a question: the versions, SASL, the delegation tokens that nobody may ask for
#: without authentication, and the list of transactions, of which there are none here.
ASK_NOTHING = {17, 18, 36, 38, 39, 40, 41, 66}


@pytest.fixture(scope="module")
def running() -> Iterator[RunningBroker]:
    with RunningBroker({"auto.create.topics.enable": "true"}, engine=NoEngine) as broker:
        with Wire(broker.port) as wire:
            asked = [
                {"name": name, "num_partitions": 2, "replication_factor": 1}
                for name in (TOPIC, OTHER)
            ]
            wire.ask("create_topics", 5, {"timeout_ms": 5000, "topics": asked})
        yield broker


def ask(
    running: RunningBroker, rules: Rules, key: int, version: int, fields: Mapping[str, Any]
) -> Plain:
    """The answer of the running broker, as if `rules` were its authorizer."""
    frame = request_frame(key, version, 1, "tests", request_body(key, version, fields))

    async def answer(broker: Broker) -> bytes:
        dispatcher = Dispatcher(
            served_apis(unstable_versions=True),
            context_of=partial(BrokerContext, replace(broker, authorizer=rules)),
            thread=broker.thread,
            metrics=RequestMetrics(),
            monotonic_s=SystemClock().monotonic_s,
        )
        session = Session(CLIENT, "client", "PLAINTEXT")
        session.authenticate(ANONYMOUS)
        found: Any = dispatcher.answer(memoryview(frame)[4:], session)
        while not isinstance(found, list):
            found = await (found.answer if isinstance(found, Parked) else found)
        return b"".join(each if isinstance(each, bytes) else bytes(each) for each in found)

    broker = running.broker
    future = asyncio.run_coroutine_threadsafe(answer(broker), broker.thread.loop)
    return read_response(key, version, future.result(120)[4:])


def errors_of(answer: Any) -> Counter[str]:
    """The errors of an answer, on any level."""
    found: Counter[str] = Counter()
    if isinstance(answer, list):
        for each in answer:
            found += errors_of(each)
    elif isinstance(answer, dict):
        for name, each in answer.items():
            if name in {"error_code", "partition_error_code"} and each != "none":
                found[each] += 1
            found += errors_of(each)
    return found


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.key}-v{case.version}")
def test_a_client_that_may_do_nothing(running: RunningBroker, case: Case) -> None:
    rules = Rules()
    answer = ask(running, rules, case.key, case.version, case.fields)
    assert errors_of(answer) == case.errors, answer
    assert set(rules.asked) == set(case.asks)


@pytest.mark.parametrize("case", OWN_ID_ONLY, ids=lambda case: f"{case.key}-v{case.version}")
def test_a_client_that_may_use_its_transactional_id_only(
    running: RunningBroker, case: Case
) -> None:
    rules = Rules([WRITE_X])
    answer = ask(running, rules, case.key, case.version, case.fields)
    assert errors_of(answer) == case.errors, answer
    assert set(rules.asked) == set(case.asks)


def test_offsets_of_a_topic_that_a_client_may_not_read_are_not_committed(
    running: RunningBroker,
) -> None:
    rules = Rules([WRITE_X, (AclOperation.READ, G, "g"), (AclOperation.READ, T, MISSING)])
    names = (TOPIC, MISSING)
    topics = [{"name": name, "partitions": [{"partition_index": 0}]} for name in names]
    fields = {"transactional_id": "x", "group_id": "g", "topics": topics}
    answer = ask(running, rules, 28, 5, fields)
    assert {each["name"]: each["partitions"][0]["error_code"] for each in answer["topics"]} == {
        TOPIC: DENIED_TOPIC,
        MISSING: "unknown_topic_or_partition",
    }


def test_every_served_api_asks_or_is_known_not_to() -> None:
    with_case = {case.key for case in CASES}
    served = set(served_apis())
    without = {key: served_apis()[key].name for key in served - with_case - ASK_NOTHING}
    assert not without, "add a case to CASES, or the key to ASK_NOTHING"
    assert with_case | ASK_NOTHING == served, "a case of an API that is not served"
    assert not with_case & ASK_NOTHING


def test_operations_are_those_that_the_authorizer_allows(running: RunningBroker) -> None:
    rules = Rules([cluster(AclOperation.DESCRIBE), cluster(AclOperation.ALTER)])
    asked = {"include_cluster_authorized_operations": True}
    answer = ask(running, rules, 60, 0, asked)
    assert answer["cluster_authorized_operations"] == 1 << 7 | 1 << 8
    assert ask(running, Rules(), 60, 0, asked)["cluster_authorized_operations"] == 0
    rules = Rules([(AclOperation.DESCRIBE, T, TOPIC), (AclOperation.READ, T, TOPIC)])
    fields = {"topics": None, "include_topic_authorized_operations": True}
    (topic,) = ask(running, rules, 3, 9, fields)["topics"]
    assert (topic["name"], topic["topic_authorized_operations"]) == (TOPIC, 1 << 3 | 1 << 8)


def test_one_topic_of_two_is_served(running: RunningBroker) -> None:
    rules = Rules([(AclOperation.READ, T, TOPIC), (AclOperation.DESCRIBE, T, TOPIC)])
    partition = {"partition": 0, "fetch_offset": 0, "partition_max_bytes": 1000}
    fields = {
        "replica_id": -1,
        "max_bytes": 1000,
        "topics": [{"topic": name, "partitions": [partition]} for name in (TOPIC, OTHER)],
    }
    topics = ask(running, rules, 1, 4, fields)["responses"]
    codes = {each["topic"]: each["partitions"][0]["error_code"] for each in topics}
    assert codes == {TOPIC: "none", OTHER: DENIED_TOPIC}
    topics = ask(running, rules, 3, 9, {"topics": [{"name": TOPIC}, {"name": OTHER}]})["topics"]
    assert {each["name"]: each["error_code"] for each in topics} == {
        TOPIC: "none",
        OTHER: DENIED_TOPIC,
    }


def test_a_topic_is_created_by_who_may_create_it_and_shown_to_who_may_see_it(
    running: RunningBroker,
) -> None:
    describe = (AclOperation.DESCRIBE, T, "made")
    fields = {"topics": [{"name": "made"}], "allow_auto_topic_creation": True}
    answer = ask(running, Rules([describe]), 3, 9, fields)
    assert [each["error_code"] for each in answer["topics"]] == [DENIED_TOPIC]
    assert "made" not in running.call(lambda broker: broker.metadata.image.topics)
    rules = Rules([describe, (AclOperation.CREATE, T, "made")])
    answer = ask(running, rules, 3, 9, fields)
    assert [each["error_code"] for each in answer["topics"]] == ["unknown_topic_or_partition"]
    assert "made" in running.call(lambda broker: broker.metadata.image.topics)
    asked = {"name": "hidden", "num_partitions": 1, "replication_factor": 1}
    rules = Rules([(AclOperation.CREATE, T, "hidden")])
    (created,) = ask(running, rules, 19, 7, {"topics": [asked], "timeout_ms": 5000})["topics"]
    assert created["error_code"] == "none"
    assert created["topic_config_error_code"] == TopicAuthorizationError.code
    assert created["num_partitions"] == -1


def test_an_id_tells_the_name_of_a_topic_only_to_who_may_describe_it(
    running: RunningBroker,
) -> None:
    topic_id: UUID = running.call(lambda broker: broker.metadata.image.topics[TOPIC].topic_id)
    fields = {"topics": [{"topic_id": topic_id, "name": None}]}
    for allowed, name in (([], None), ([(AclOperation.DESCRIBE, T, TOPIC)], TOPIC)):
        (answer,) = ask(running, Rules(allowed), 20, 6, fields)["responses"]
        assert (answer["name"], answer["error_code"]) == (name, DENIED_TOPIC)
    fields = {"topics": [{"topic_id": topic_id, "name": None}]}
    (answer,) = ask(running, Rules(), 3, 12, fields)["topics"]
    assert (answer["name"], answer["topic_id"]) == (None, topic_id)
    assert answer["error_code"] == DENIED_TOPIC
