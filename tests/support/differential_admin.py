"""Random requests that manage topics, settings, quotas and groups, for scripts of requests."""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from typing import Any, Final

from support.differential import ProducerId, Step, TopicId, UnderRoot
from support.differential_script import Draw, World
from support.differential_values import (
    BAD_BROKER_SETTINGS,
    BAD_TOPIC_SETTINGS,
    BAD_TOPICS,
    BROKER_SETTINGS,
    GROUP_SETTINGS,
    GROUPS,
    INTERNAL,
    METRICS_SETTINGS,
    NOT_CREATED,
    TOPIC_SETTINGS,
    TOPICS,
)

TOPIC, BROKER, METRICS, GROUP = 2, 4, 16, 32
QUOTAS: Final = (
    *("producer_byte_rate", "consumer_byte_rate", "request_percentage"),
    *("controller_mutation_rate", "connection_creation_rate", "bogus"),
)


def new_topic(
    name: str,
    partitions: int,
    replicas: int,
    configs: Sequence[Mapping[str, str | None]] = (),
    assignments: Sequence[Mapping[str, Any]] = (),
) -> dict[str, Any]:
    """A topic of CreateTopics."""
    return {
        "name": name,
        "num_partitions": partitions,
        "replication_factor": replicas,
        "configs": list(configs),
        "assignments": list(assignments),
    }


def _setting(
    world: World,
    good: Mapping[str, tuple[str, ...]],
    bad: Mapping[str, tuple[str, ...]],
    *,
    wrong: float = 0.15,
) -> tuple[str, str]:
    settings = bad if world.maybe(wrong) else good
    name = world.rng.choice(sorted(settings))
    return name, world.rng.choice(settings[name])


def _topic_settings(world: World) -> list[dict[str, Any]]:
    rng = world.rng
    count = rng.choices((0, 1, 2, 3), (4, 3, 1, 1))[0]
    chosen = dict(
        _setting(world, TOPIC_SETTINGS, BAD_TOPIC_SETTINGS, wrong=0.1) for _ in range(count)
    )
    given: list[dict[str, Any]] = [{"name": name, "value": value} for name, value in chosen.items()]
    if given and world.maybe(0.05):
        given[0]["value"] = None
    return given


def _create_topics(world: World) -> Step:
    rng = world.rng

    def topic() -> dict[str, Any]:
        free = [name for name in TOPICS if name not in world.topics]
        kind = rng.random()
        if kind < 0.7 and free:
            name = rng.choice(free)
        elif kind < 0.85:
            name = world.name(good=0.5)
        else:
            name = rng.choice([n for n in BAD_TOPICS if n not in NOT_CREATED])
        if name in NOT_CREATED:
            name = "t0"
        if world.maybe(0.1):
            placed = [
                {"partition_index": index, "broker_ids": rng.choice(([1], [1], [2], [1, 1], []))}
                for index in rng.choice(((0,), (0, 1), (1,), (0, 2), (0, 0)))
            ]
            partitions, replicas = rng.choice(((-1, -1), (1, 1)))
            return new_topic(name, partitions, replicas, _topic_settings(world), placed)
        partitions = rng.choices((1, 2, 3, -1, 0, -2), (5, 8, 3, 3, 0.5, 0.5))[0]
        replicas = rng.choices((1, -1, 0, 2, -2), (12, 4, 0.5, 1, 0.3))[0]
        return new_topic(name, partitions, replicas, _topic_settings(world))

    drawn = world.some(topic)
    if not world.maybe(0.1):
        drawn = list({one["name"]: one for one in drawn}.values())
    values = {"topics": drawn, "timeout_ms": 30_000, "validate_only": world.maybe(0.15)}
    return world.step("create_topics", values, version=world.version("create_topics", first=2))


def _delete_topics(world: World) -> Step:
    by_id = world.maybe(0.3)
    names = [world.name(good=0.7) for _ in range(1)]
    if len(world.topics) < 4:
        names = [name for name in names if name not in world.topics] or ["missing"]
    if any(name in INTERNAL for name in names):
        names = ["missing"]
    topics = [
        {"name": None, "topic_id": TopicId(name)}
        if by_id and world.maybe(0.9)
        else {"name": name, "topic_id": TopicId(name) if world.maybe(0.05) else uuid.UUID(int=0)}
        for name in names
    ]
    return world.step(
        "delete_topics", {"topics": topics, "topic_names": names, "timeout_ms": 30_000}
    )


def _create_partitions(world: World) -> Step:
    rng = world.rng

    def topic() -> dict[str, Any]:
        name = world.name(good=0.85)
        if name in INTERNAL:
            name = "missing"
        now = world.topics[name].partitions if name in world.topics else 2
        assignments = None
        if world.maybe(0.3):
            assignments = rng.choice(
                ([{"broker_ids": [1]}], [], [{"broker_ids": [2]}], [{"broker_ids": [1, 1]}])
            )
        count = rng.choice((now + 1, now, now - 1, 0, -1, 3, 4))
        return {"name": name, "count": min(count, 6), "assignments": assignments}

    drawn = world.some(topic)
    if not world.maybe(0.1):
        drawn = list({one["name"]: one for one in drawn}.values())
    values = {"topics": drawn, "timeout_ms": 30_000, "validate_only": world.maybe(0.3)}
    return world.step("create_partitions", values)


# --- Settings ------------------------------------------------------------------------------------


def _resource(world: World) -> tuple[int, str]:
    kind = world.rng.choices((TOPIC, BROKER, GROUP, METRICS, 77), (10, 4, 1, 1, 0.3))[0]
    if kind == TOPIC:
        return kind, own(world.name(good=0.93))
    if kind == BROKER:
        return kind, world.rng.choices(("1", "", "2", "x"), (6, 4, 0.5, 0.5))[0]
    if kind == GROUP:
        return kind, world.rng.choices(("g0", "g1", ""), (5, 5, 0.5))[0]
    return kind, world.rng.choices(("m0", "m1", ""), (5, 5, 0.5))[0]


def own(name: str) -> str:
    """The name, unless it is that of a topic of the broker's own."""
    return "missing" if name in INTERNAL else name


def _setting_of(world: World, kind: int) -> tuple[str, str]:
    if kind == BROKER:
        return _setting(world, BROKER_SETTINGS, BAD_BROKER_SETTINGS, wrong=0.3)
    if kind == GROUP:
        return _setting(world, GROUP_SETTINGS, GROUP_SETTINGS)
    if kind == METRICS:
        return _setting(world, METRICS_SETTINGS, METRICS_SETTINGS)
    return _setting(world, TOPIC_SETTINGS, BAD_TOPIC_SETTINGS, wrong=0.25)


def _incremental_alter(world: World) -> Step:
    rng = world.rng

    def resource() -> dict[str, Any]:
        kind, name = _resource(world)

        def change() -> dict[str, Any]:
            setting, value = _setting_of(world, kind)
            operation = rng.choices((0, 1, 2, 3), (10, 5, 1, 1))[0]
            given = None if operation == 1 or world.maybe(0.02) else value
            return {"name": setting, "config_operation": operation, "value": given}

        changes = world.some(change)
        if not world.maybe(0.05):
            changes = list({one["name"]: one for one in changes}.values())
        return {"resource_type": kind, "resource_name": name, "configs": changes}

    drawn = world.some(resource, most=2)
    if not world.maybe(0.1):
        drawn = list({(one["resource_type"], one["resource_name"]): one for one in drawn}.values())
    values = {"resources": drawn, "validate_only": world.maybe(0.2)}
    return world.step("incremental_alter_configs", values)


def _legacy_alter(world: World) -> Step:
    def resource() -> dict[str, Any]:
        kind, name = _resource(world)

        def change() -> dict[str, Any]:
            setting, value = _setting_of(world, kind)
            return {"name": setting, "value": None if world.maybe(0.03) else value}

        return {"resource_type": kind, "resource_name": name, "configs": world.some(change)}

    values = {"resources": [resource()], "validate_only": world.maybe(0.2)}
    return world.step("alter_configs", values)


def _describe_configs(world: World) -> Step:
    rng = world.rng

    def resource() -> dict[str, Any]:
        kind, name = _resource(world)
        keys = None
        if kind == BROKER:
            settings = {**BROKER_SETTINGS, **BAD_BROKER_SETTINGS}
        else:
            settings = {**TOPIC_SETTINGS, **BAD_TOPIC_SETTINGS}
        if world.maybe(0.5):
            keys = [rng.choice(sorted(settings)) for _ in range(rng.randint(0, 4))]
        return {"resource_type": kind, "resource_name": name, "configuration_keys": keys}

    values = {
        "resources": world.some(resource, most=2),
        "include_synonyms": world.maybe(0.5),
        "include_documentation": world.maybe(0.2),
    }
    return world.step("describe_configs", values)


def _list_config_resources(world: World) -> Step:
    types = world.rng.choice(([], [METRICS], [TOPIC, GROUP], [BROKER, 8], [77], [GROUP]))
    return world.step("list_config_resources", {"resource_types": types})


# --- Descriptions --------------------------------------------------------------------------------


def _metadata(world: World) -> Step:
    version = world.version("metadata", first=1)

    def topic() -> dict[str, Any]:
        name = world.name(good=0.85)
        by_id = version >= 12 and world.maybe(0.4)
        topic_id: object = TopicId(name) if by_id else uuid.UUID(int=0)
        return {"name": None if by_id else name, "topic_id": topic_id}

    topics = None if world.maybe(0.25) and version >= 1 else world.some(topic)
    values = {
        "topics": topics,
        "allow_auto_topic_creation": version < 4,
        "include_topic_authorized_operations": world.maybe(0.3),
        "include_cluster_authorized_operations": world.maybe(0.3),
    }
    return world.step("metadata", values, version=version)


def _describe_topic_partitions(world: World) -> Step:
    rng = world.rng
    names = [world.name(good=0.85) or "missing" for _ in range(rng.randrange(4))]
    cursor = None
    if world.maybe(0.3):
        name = world.name()
        cursor = {"topic_name": name, "partition_index": rng.choice((0, 1, 5, -1))}
    values = {
        "topics": [{"name": name} for name in names],
        "response_partition_limit": rng.choice((2000, 1, 3, 0, -1)),
        "cursor": cursor,
    }
    return world.step("describe_topic_partitions", values)


def _describe_log_dirs(world: World) -> Step:
    topics = None
    if world.maybe(0.7):
        names = {world.name(good=0.9) for _ in range(world.rng.randint(0, 3))}
        topics = [{"topic": name, "partitions": [0, 1, 9]} for name in sorted(names)]
    return world.step("describe_log_dirs", {"topics": topics})


def _alter_log_dirs(world: World) -> Step:
    name = world.name(good=1)
    path = world.rng.choice((UnderRoot(""), UnderRoot("/none"), "/nowhere", "relative"))
    topics = [{"name": name, "partitions": [world.partition(name)]}]
    return world.step("alter_replica_log_dirs", {"dirs": [{"path": path, "topics": topics}]})


def _describe_cluster(world: World) -> Step:
    values = {
        "include_cluster_authorized_operations": world.maybe(0.5),
        "endpoint_type": world.rng.choices((1, 2, 0), (5, 1, 1))[0],
        "include_fenced_brokers": world.maybe(0.5),
    }
    return world.step("describe_cluster", values)


def _describe_quorum(world: World) -> Step:
    topic = world.rng.choices(("__cluster_metadata", "t0"), (4, 1))[0]
    values = {"topics": [{"topic_name": topic, "partitions": [{"partition_index": 0}]}]}
    return world.step("describe_quorum", values)


def _elect_leaders(world: World) -> Step:
    topics = None
    if world.maybe(0.8):
        names = {own(world.name()) for _ in range(2)}
        topics = [{"topic": n, "partitions": [world.partition(n)]} for n in sorted(names)]
    election = world.rng.choices((0, 1, 2), (6, 3, 0.5))[0]
    values = {"election_type": election, "topic_partitions": topics, "timeout_ms": 10_000}
    return world.step("elect_leaders", values)


def _reassign(world: World) -> Step:
    name = own(world.name())
    replicas = world.rng.choice((None, [1], [2], [1, 1], [], [-1]))
    partitions = [{"partition_index": world.partition(name), "replicas": replicas}]
    values = {"topics": [{"name": name, "partitions": partitions}], "timeout_ms": 10_000}
    values["allow_replication_factor_change"] = world.maybe(0.7)
    return world.step("alter_partition_reassignments", values)


def _list_reassignments(world: World) -> Step:
    name = world.name()
    topics = None if world.maybe(0.5) else [{"name": name, "partition_indexes": [0, 7]}]
    return world.step("list_partition_reassignments", {"topics": topics, "timeout_ms": 10_000})


_NODE_IDS_SINCE = 5
_ANOTHER_NODE = (
    {"cluster_id": "another", "node_id": 1},
    {"cluster_id": "", "node_id": -5},
    {"cluster_id": "another"},
    {"node_id": 1},
)


def _api_versions(world: World) -> Step:
    names = world.rng.choice(("wire", "", "a b", "kafka-python"))
    values = {"client_software_name": names, "client_software_version": "1.0"}
    step = world.step("api_versions", values)
    if step.version >= _NODE_IDS_SINCE and world.maybe(0.5):
        return world.step("api_versions", {**values, **world.rng.choice(_ANOTHER_NODE)}, version=5)
    if step.version >= 3 and world.maybe(0.7):
        # Which APIs there are is for another test to compare.
        return world.step("api_versions", {}, version=3)
    return world.step("describe_cluster", {"endpoint_type": 1})


def _update_features(world: World) -> Step:
    rng = world.rng
    updates = [
        {
            "feature": rng.choice(
                ("eligible.leader.replicas.version", "metadata.version", "bogus", "")
            ),
            "max_version_level": rng.choice((0, 1, 30, 31, 99, -1)),
            "upgrade_type": rng.choice((1, 2, 3, 0)),
            "allow_downgrade": world.maybe(0.5),
        }
    ]
    values = {"feature_updates": updates, "validate_only": True, "timeout_ms": 10_000}
    return world.step("update_features", values, version=world.version("update_features", first=1))


def _acls(world: World) -> Step:
    api = world.rng.choice(("describe_acls", "create_acls", "delete_acls"))
    a_filter = {
        "resource_type_filter": 1,
        "pattern_type_filter": 1,
        "operation": 1,
        "permission_type": 1,
    }
    creation = {
        "resource_type": 2,
        "resource_name": "t0",
        "resource_pattern_type": 3,
        "principal": "User:u",
        "host": "*",
        "operation": 3,
        "permission_type": 3,
    }
    values = {
        **a_filter,
        "filters": world.some(lambda: a_filter),
        "creations": world.some(lambda: creation),
    }
    return world.step(api, values)


_OF_TOKENS: Final = tuple(
    f"{verb}_delegation_token" for verb in ("create", "renew", "expire", "describe")
)


def _delegation_tokens(world: World) -> Step:
    owners: list[Any] | None = world.rng.choice((None, []))
    values: dict[str, Any] = {"owners": owners, "renewers": [], "hmac": b"h"}
    return world.step(world.rng.choice(_OF_TOKENS), values)


def _sasl(world: World) -> Step:
    api = world.rng.choice(("sasl_handshake", "sasl_authenticate"))
    values = {"mechanism": world.rng.choice(("PLAIN", "bogus")), "auth_bytes": b"\0u\0p"}
    return world.step(api, values)


def _scram(world: World) -> Step:
    users = world.rng.choice((None, [], [{"name": "u"}], [{"name": "u"}, {"name": "u"}]))
    return world.step("describe_user_scram_credentials", {"users": users})


def _unregister(world: World) -> Step:
    return world.step("unregister_broker", {"broker_id": world.rng.choice((2, -1, 99))})


def _unregister_controller(world: World) -> Step:
    return world.step("unregister_controller", {"controller_id": world.rng.choice((1, -1, 99))})


# --- Quotas --------------------------------------------------------------------------------------


def _alter_quotas(world: World) -> Step:
    rng = world.rng

    def entity() -> list[dict[str, Any]]:
        kinds: tuple[str, ...] = rng.choice(
            (("user",), ("client-id",), ("user", "client-id"), ("ip",))
        )
        if world.maybe(0.1):
            kinds = rng.choice(((), ("bogus",), ("user", "user"), ("ip", "user")))
        names = {"ip": ("10.0.0.1", None, "not an ip")}
        return [
            {"entity_type": kind, "entity_name": rng.choice(names.get(kind, ("a", "b", None)))}
            for kind in kinds
        ]

    def change() -> dict[str, Any]:
        key = rng.choice(QUOTAS)
        value = rng.choice((1e9, 1e9, 2.5e8, 123.5, 0.0, -1.0))
        return {"key": key, "value": value, "remove": world.maybe(0.3)}

    # One change: of several bad ones, Kafka names the first in the order of a hash map.
    entries = [{"entity": entity(), "ops": [change()]} for _ in range(1)]
    values = {"entries": entries, "validate_only": world.maybe(0.2)}
    return world.step("alter_client_quotas", values)


def _describe_quotas(world: World) -> Step:
    rng = world.rng

    def component() -> dict[str, Any]:
        match = rng.choice((0, 1, 2, 2, 3))
        name = rng.choice(("a", "b", "10.0.0.1")) if match == 0 or world.maybe(0.1) else None
        kind = rng.choice(("user", "client-id", "ip", "bogus"))
        return {"entity_type": kind, "match_type": match, "match": name}

    values = {"components": world.some(component), "strict": world.maybe(0.3)}
    return world.step("describe_client_quotas", values)


# --- Groups --------------------------------------------------------------------------------------


def coordinators(world: World) -> list[tuple[int, str]]:
    """The types of coordinators that both have, with a key for each."""
    return [(0, "g0"), (1, "x0")] if world.serves("end_txn") else [(0, "g0")]


def _find_coordinator(world: World) -> Step:
    rng = world.rng
    keys = [rng.choice((*GROUPS, "x0", "")) for _ in range(rng.randint(0, 2))]
    key_type = rng.choice([*[key_type for key_type, _ in coordinators(world)] * 4, 9])
    return world.step(
        "find_coordinator",
        {"key": keys[0] if keys else "g1", "coordinator_keys": keys, "key_type": key_type},
    )


def _offset_commit(world: World) -> Step:
    rng = world.rng

    def topic() -> dict[str, Any]:
        name = world.name(good=0.9)
        partition = {
            "partition_index": world.partition(name),
            "committed_offset": rng.choice((0, 1, 5, 100, -1)),
            "committed_leader_epoch": rng.choice((-1, 0)),
            "committed_metadata": rng.choice((None, "", "note")),
        }
        return {"name": name, "topic_id": TopicId(name), "partitions": [partition]}

    member = rng.choices(("", "nobody"), (12, 1))[0]
    group = rng.choices((*GROUPS, ""), (5, 5, 5, 1))[0]
    topics = list({one["name"]: one for one in world.some(topic)}.values())
    if world.maybe(0.1):
        # Kafka knows a group of which no offset was taken some time later, or never.
        group = "verbose"
        for one in topics:
            one["partitions"][0]["committed_metadata"] = "x" * 5000
    values = {
        "group_id": group,
        "generation_id_or_member_epoch": rng.choices((-1, 0, 3), (12, 1, 1))[0],
        "member_id": member,
        "retention_time_ms": -1,
        "topics": topics,
    }
    return world.step("offset_commit", values)


def _offset_fetch(world: World) -> Step:
    rng = world.rng

    def topics() -> list[dict[str, Any]] | None:
        if world.maybe(0.4):
            return None
        names = {world.name(good=0.9) for _ in range(2)}
        return [
            {"name": name, "topic_id": TopicId(name), "partition_indexes": [0, 1, 9]}
            for name in sorted(names)
        ]

    version = world.version("offset_fetch")
    wanted = topics() if version >= 2 else (topics() or [])
    groups = [
        {"group_id": group, "member_id": None, "member_epoch": -1, "topics": topics()}
        for group in sorted({rng.choice((*GROUPS, "none", "")) for _ in range(2)})
    ]
    values = {
        "group_id": rng.choice((*GROUPS, "none")),
        "topics": wanted,
        "groups": groups,
        "require_stable": world.maybe(0.3),
    }
    return world.step("offset_fetch", values, version=version)


def _offset_delete(world: World) -> Step:
    name = world.name()
    partitions = [{"partition_index": world.partition(name)}]
    group = world.rng.choice((*GROUPS, "none", ""))
    topics = [{"name": name, "partitions": partitions}]
    return world.step("offset_delete", {"group_id": group, "topics": topics})


def _describe_groups(world: World) -> Step:
    api = world.rng.choice(("describe_groups", "consumer_group_describe"))
    if not world.serves(api):
        api = "describe_groups"
    groups = sorted({world.rng.choice((*GROUPS, "none", "")) for _ in range(2)})
    values = {"groups": groups, "group_ids": groups}
    return world.step(api, values)


def _list_groups(world: World) -> Step:
    values = {
        "states_filter": world.rng.choice(([], ["Empty"], ["Stable", "Dead"], ["bogus"])),
        "types_filter": world.rng.choice(([], ["classic"], ["Consumer"], ["bogus"])),
    }
    return world.step("list_groups", values)


def _delete_groups(world: World) -> Step:
    groups = [world.rng.choice((*GROUPS, "none", ""))]
    return world.step("delete_groups", {"groups_names": groups})


def _member(world: World) -> Step:
    """No member joins.

    support.group_transcript and support.consumer_group_script compare groups that have members.
    """
    rng = world.rng
    group = rng.choice((*GROUPS, "none", ""))
    apis = ["heartbeat", "leave_group", "sync_group", "join_group"]
    if world.serves("consumer_group_heartbeat"):
        apis.append("consumer_group_heartbeat")
    api = rng.choice(apis)
    values = {
        "group_id": group,
        "session_timeout_ms": rng.choice((10_000, 0, 1 << 30)),
        "rebalance_timeout_ms": 10_000,
        "protocols": [{"name": "range", "metadata": b""}],
        "generation_id": rng.choice((-1, 0, 1)),
        "member_id": "nobody",
        "members": [{"member_id": "nobody"}],
        "protocol_type": "consumer",
        "protocol_name": "range",
        "member_epoch": rng.choice((1, -1, -2, -3)),
        "instance_id": rng.choice((None, "i", "")),
        "topic_partitions": None,
    }
    return world.step(api, values)


# --- Transactions that cannot be -----------------------------------------------------------------


def _no_transaction(world: World) -> Step:
    rng = world.rng
    apis = (
        *("list_transactions", "describe_transactions", "end_txn", "add_offsets_to_txn"),
        *("add_partitions_to_txn", "txn_offset_commit"),
    )
    name = rng.choice(("x0", "none", ""))
    topics = list(dict.fromkeys(world.name() for _ in range(rng.choice((1, 1, 2)))))
    numbers = {each: [world.partition(each)] for each in topics}
    partitions = [{"name": each, "partitions": found} for each, found in numbers.items()]
    producer = {"producer_id": ProducerId("p0"), "producer_epoch": 0}
    values = {
        **producer,
        "transactional_id": name,
        "transactional_ids": [name],
        "v3_and_below_transactional_id": name,
        "v3_and_below_producer_id": ProducerId("p0"),
        "v3_and_below_producer_epoch": 0,
        "v3_and_below_topics": partitions,
        "transactions": [
            {
                **producer,
                "transactional_id": name,
                "verify_only": world.maybe(0.5),
                "topics": partitions,
            }
        ],
        "group_id": rng.choice(("g0", "g0", "")),
        "generation_id_or_member_epoch": rng.choice((-1, 3)),
        "member_id": rng.choice(("", "nobody")),
        "topics": [
            {
                "name": each,
                "topic_id": TopicId(each),
                "partitions": [
                    {"partition_index": index, "committed_offset": 1, "committed_leader_epoch": -1}
                    for index in found
                ],
            }
            for each, found in numbers.items()
        ],
        "committed": world.maybe(0.5),
        "state_filters": rng.choice(([], ["Ongoing"], ["bogus"])),
        "producer_id_filters": rng.choice(([], [5])),
        "transactional_id_pattern": rng.choice((None, "x.*", "", "(")),
    }
    return world.step(rng.choice([api for api in apis if world.serves(api)]), values)


def _markers(world: World) -> Step:
    rng = world.rng

    def topics() -> list[dict[str, Any]]:
        """Of different names: Kafka never answers for a partition that is named twice."""
        names = {own(world.name()): None for _ in range(rng.choice((1, 1, 2)))}
        return [{"name": name, "partition_indexes": [world.partition(name)]} for name in names]

    def marker() -> dict[str, Any]:
        return {
            "producer_id": rng.choice((ProducerId("p2"), 5)),
            "producer_epoch": rng.choices((0, 1, -1), (6, 1, 1))[0],
            "transaction_result": world.maybe(0.5),
            "topics": topics(),
            "coordinator_epoch": rng.choice((0, 0, 1)),
        }

    return world.step("write_txn_markers", {"markers": [marker()]})


DRAWS: Final[dict[Draw, tuple[str, float]]] = {
    _create_topics: ("create_topics", 4),
    _delete_topics: ("delete_topics", 1.2),
    _create_partitions: ("create_partitions", 1.5),
    _incremental_alter: ("incremental_alter_configs", 4),
    _legacy_alter: ("alter_configs", 1),
    _describe_configs: ("describe_configs", 3),
    _list_config_resources: ("list_config_resources", 0.7),
    _metadata: ("metadata", 4),
    _describe_topic_partitions: ("describe_topic_partitions", 2),
    _describe_log_dirs: ("describe_log_dirs", 2),
    _alter_log_dirs: ("alter_replica_log_dirs", 0.5),
    _describe_cluster: ("describe_cluster", 0.7),
    _describe_quorum: ("describe_quorum", 0.3),
    _elect_leaders: ("elect_leaders", 0.7),
    _reassign: ("alter_partition_reassignments", 0.7),
    _list_reassignments: ("list_partition_reassignments", 0.4),
    _api_versions: ("describe_cluster", 0.3),
    _update_features: ("update_features", 0.5),
    _acls: ("describe_acls", 0.2),
    _delegation_tokens: ("describe_delegation_token", 0.2),
    _sasl: ("sasl_handshake", 0.2),
    _scram: ("describe_user_scram_credentials", 0.2),
    _unregister: ("unregister_broker", 0.2),
    _unregister_controller: ("unregister_controller", 0.2),
    _alter_quotas: ("alter_client_quotas", 1.5),
    _describe_quotas: ("describe_client_quotas", 1.5),
    _find_coordinator: ("find_coordinator", 1),
    _offset_commit: ("offset_commit", 3),
    _offset_fetch: ("offset_fetch", 2),
    _offset_delete: ("offset_delete", 0.5),
    _describe_groups: ("describe_groups", 1),
    _list_groups: ("list_groups", 0.5),
    _delete_groups: ("delete_groups", 0.5),
    _member: ("heartbeat", 0.7),
    _no_transaction: ("list_transactions", 1.4),
    _markers: ("write_txn_markers", 0.7),
}
