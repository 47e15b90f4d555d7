"""Effective settings, level over level, and the notification of changes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from uuid import UUID

import pytest

from cordwood.configs.alter import DELETE, SET, Alteration, Outcome, Resource, check_changes
from cordwood.configs.broker_config import (
    BrokerConfig,
)
from cordwood.configs.describe import describe, describe_new_topic
from cordwood.configs.effective import EffectiveConfigs
from cordwood.configs.log_config import LogConfig
from cordwood.configs.resource import ConfigChange
from cordwood.configs.resource_checks import require_group, require_topic
from cordwood.configs.server_properties import BrokerSettings
from cordwood.configs.sources import Sources, resolve_topic
from cordwood.metadata.image import MetadataImage, TopicImage
from cordwood.metadata.persistent_map import PersistentMap
from cordwood.model.kafka_errors import InvalidConfigError, InvalidRequestError, KafkaError

TOPIC, BROKER, CLIENT_METRICS, GROUP = 2, 4, 16, 32
Records = Mapping[tuple[int, str], Mapping[str, str]]


def image_of(records: Records, *topics: str) -> MetadataImage:
    return MetadataImage(
        topics=PersistentMap(
            {name: TopicImage(name=name, topic_id=UUID(int=5)) for name in topics}
        ),
        configs=PersistentMap(dict(records)),
    )


def service_of(properties: Mapping[str, str], records: Records) -> EffectiveConfigs:
    return EffectiveConfigs(BrokerSettings(properties), image_of(records, "t"))


@pytest.mark.parametrize(
    ("properties", "records"),
    [
        ({}, {}),
        ({"log.retention.hours": "3", "log.roll.hours": "2"}, {}),
        ({"log.retention.minutes": "3", "log.retention.ms": "-4"}, {}),
        ({"log.retention.ms": "5000"}, {(BROKER, ""): {"log.retention.ms": "6000"}}),
        (
            {"log.roll.ms": "5000"},
            {(BROKER, ""): {"log.roll.ms": "6000"}, (BROKER, "1"): {"log.roll.ms": "7000"}},
        ),
        ({"log.cleanup.policy": "compact"}, {(TOPIC, "t"): {"cleanup.policy": ""}}),
        ({}, {(TOPIC, "t"): {"retention.ms": "-1", "internal.segment.bytes": "100"}}),
        ({"log.flush.scheduler.interval.ms": "9"}, {(BROKER, "2"): {"log.roll.ms": "1"}}),
        ({"log.flush.scheduler.interval.ms": "9"}, {(BROKER, ""): {"log.flush.interval.ms": "3"}}),
        ({}, {(BROKER, ""): {"log.retention.minutes": "4", "log.dirs": "/x"}}),
    ],
)
def test_a_topics_config_is_the_one_that_the_model_resolves(
    properties: Mapping[str, str], records: Records
) -> None:
    sources = Sources(
        server_properties=properties,
        metadata=image_of(records, "t"),
        server_properties_name="server.properties",
    )
    resolved = resolve_topic(sources, "t", node_id=1)
    assert resolved is not None
    service = service_of(properties, records)
    assert service.log_config("t") == resolved.config
    assert service.topic_origins("t") == resolved.origin


POLICY = "cordwood.timestamp.future.policy"
OF_TOPIC = f"cordwood.topic.t.{POLICY}"


@pytest.mark.parametrize(
    ("properties", "records", "expected"),
    [
        ({}, {}, []),
        ({POLICY: "append-time"}, {}, [("append-time", POLICY, 4), ("kafka", POLICY, 5)]),
        (
            {OF_TOPIC: "append-time"},
            {(BROKER, ""): {POLICY: "kafka"}},
            [("append-time", OF_TOPIC, 4), ("kafka", POLICY, 3), ("kafka", POLICY, 5)],
        ),
        (
            {OF_TOPIC: "append-time"},
            {(TOPIC, "t"): {POLICY: "kafka"}},
            [("kafka", POLICY, 1), ("append-time", OF_TOPIC, 4), ("kafka", POLICY, 5)],
        ),
    ],
)
def test_an_own_setting_is_described_with_its_levels_where_it_is_set(
    properties: Mapping[str, str], records: Records, expected: list[tuple[str, str, int]]
) -> None:
    service = service_of(properties, records)
    entries = {entry.name: entry for entry in describe(service, TOPIC, "t")}
    assert (POLICY in entries) == bool(expected)
    (named,) = describe(service, TOPIC, "t", wanted=[POLICY])
    for entry in (named, entries.get(POLICY, named)):
        found = [(each.value, each.name, each.level.code) for each in entry.synonyms]
        assert found == (expected or [("kafka", POLICY, 5)])
        assert entry.value == found[0][0]
        assert entry.level.code == found[0][2]
    assert service.log_config("t").cordwood_timestamp_future_policy == named.value
    of_another = properties.get(POLICY, "kafka")
    assert service.log_config("u").cordwood_timestamp_future_policy == of_another


def test_own_settings_of_a_topic_can_be_changed_and_are_checked() -> None:
    service = service_of({}, {})
    require_topic(service, {POLICY: "append-time"})
    with pytest.raises(InvalidConfigError, match="must be one of: kafka, append-time"):
        require_topic(service, {POLICY: "x"})
    with pytest.raises(InvalidConfigError, match=r"Unknown topic config name: cordwood\.x"):
        require_topic(service, {"cordwood.x": "1"})


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (
            {"consumer.session.timeout.ms": "1"},
            "consumer.session.timeout.ms must be in the range 45000 to 60000 inclusive.",
        ),
        (
            {"share.record.lock.duration.ms": "60001", "consumer.heartbeat.interval.ms": "15001"},
            "consumer.heartbeat.interval.ms must be in the range 5000 to 15000 inclusive.",
        ),
        (
            {"streams.num.standby.replicas": "3"},
            "streams.num.standby.replicas must be less than or equal to 2",
        ),
        (
            {"streams.num.warmup.replicas": "21"},
            "streams.num.warmup.replicas must be less than or equal to 20",
        ),
        (
            {"streams.task.offset.interval.ms": "14999"},
            "streams.task.offset.interval.ms must be greater than or equal to 15000",
        ),
        (
            {"streams.assignor.name": "x"},
            "streams.assignor.name 'x' is not a registered task assignor. Registered assignors "
            "are: [sticky].",
        ),
        (
            {"streams.rack.aware.assignment.tags": "a, b ,a"},
            "streams.rack.aware.assignment.tags must not contain duplicate tag keys.",
        ),
        (
            {"errors.deadletterqueue.topic.name": "__x"},
            "errors.deadletterqueue.topic.name: DLQ topic name must not start with '__'",
        ),
    ],
)
def test_settings_of_a_group_are_refused_in_the_words_of_4_4(
    given: Mapping[str, str], said: str
) -> None:
    service = service_of({}, {})
    with pytest.raises(InvalidConfigError) as caught:
        require_group(service, given)
    assert str(caught.value) == said


def test_settings_of_a_group_that_4_4_accepts() -> None:
    service = service_of({"group.consumer.session.timeout.ms": "50000"}, {})
    require_group(service, {})
    require_group(service, {"consumer.heartbeat.interval.ms": "15000"})
    require_group(service, {"streams.assignor.name": "sticky"})
    require_group(service, {"errors.deadletterqueue.topic.name": "dlq.x"})
    require_group(service, {"streams.rack.aware.assignment.tags": "a,b"})


#: Of each kind: a setting of another version that is recorded, one that is known, and the refusal.
UNKNOWN = [
    (TOPIC, "t", "topic.of.later", ("retention.ms", "5"), InvalidConfigError),
    (GROUP, "g", "consumer.of.later", ("consumer.session.timeout.ms", "46000"), InvalidConfigError),
    (CLIENT_METRICS, "m", "later", ("interval.ms", "500"), InvalidRequestError),
]


@pytest.mark.parametrize(
    ("kind", "name", "unknown", "change", "refusal"), UNKNOWN, ids=["topic", "group", "client"]
)
def test_a_recorded_setting_of_another_version_is_left_alone_by_other_changes(
    kind: int, name: str, unknown: str, change: tuple[str, str], refusal: type[KafkaError]
) -> None:
    """KAFKA-19851: every change of the resource was refused for it."""
    service = service_of({}, {(kind, name): {unknown: "1"}})

    def outcomes(*alterations: Alteration) -> Iterator[Outcome]:
        """Of both requests: each names all that the resource is to have afterwards."""
        (altered,) = check_changes(
            service,
            [Resource(kind, name, alterations)],
            replaces=False,
            validate_only=False,
            is_broker=False,
        )
        yield altered
        if all(each.operation == SET for each in alterations):
            (replaced,) = check_changes(
                service,
                [Resource(kind, name, alterations)],
                replaces=True,
                validate_only=False,
                is_broker=False,
            )
            yield replaced

    key, value = change
    altered, replaced = outcomes(Alteration(key, value))
    assert isinstance(altered, ConfigChange)
    assert altered.values == {key: value}
    assert isinstance(replaced, ConfigChange)
    assert replaced.values == {key: value, unknown: None}
    for kept in outcomes(Alteration(key, value), Alteration(unknown, "1")):
        assert isinstance(kept, ConfigChange)
        assert kept.values == {key: value}
    (removed,) = outcomes(Alteration(unknown, None, DELETE))
    assert isinstance(removed, ConfigChange)
    assert removed.values == {unknown: None}
    for refused in (*outcomes(Alteration(unknown, "2")), *outcomes(Alteration("other", "1"))):
        assert isinstance(refused, refusal)
        assert "Unknown" in str(refused)


@pytest.mark.parametrize(("kind", "name", "unknown"), [each[:3] for each in UNKNOWN[:2]])
def test_a_recorded_setting_of_another_version_is_described_without_its_value(
    kind: int, name: str, unknown: str
) -> None:
    service = service_of({}, {(kind, name): {unknown: "1"}})
    (entry,) = [each for each in describe(service, kind, name) if each.name == unknown]
    level = {TOPIC: 1, GROUP: 8}[kind]
    assert entry.synonyms == [(unknown, None, entry.level)]
    assert (entry.value, entry.level.code, entry.is_sensitive) == (None, level, True)
    assert entry.type_code == 0


def test_topics_without_settings_share_one_config() -> None:
    service = service_of({}, {(TOPIC, "t"): {"retention.ms": "1"}})
    assert service.log_config("a") is service.log_config("b")
    assert service.log_config("t").retention_ms == 1
    assert service.log_config("a") == LogConfig()


def test_a_new_image_brings_new_settings() -> None:
    old = image_of({}, "t")
    service = EffectiveConfigs(BrokerSettings({}), old)
    new = replace(old, configs=PersistentMap({(TOPIC, "t"): {"retention.ms": "9"}}))
    service.on_image(old, new)
    assert service.log_config("t").retention_ms == 9
    service.on_image(new, old)
    assert service.log_config("t") == LogConfig()


def test_watchers_are_told_of_what_changes_and_of_nothing_else() -> None:
    service = service_of({}, {})
    told: list[tuple[int, int]] = []

    def watch(before: BrokerConfig, after: BrokerConfig) -> None:
        told.append((before.integer("message.max.bytes"), after.integer("message.max.bytes")))

    service.subscribe(["message.max.bytes", "max.connections"], watch)
    empty = service.image
    first = image_of({(BROKER, "1"): {"message.max.bytes": "2000"}})
    service.on_image(empty, first)
    assert told == [(1048588, 2000)]
    assert service.values.integer("message.max.bytes") == 2000
    other = image_of({(BROKER, "1"): {"message.max.bytes": "2000", "log.roll.ms": "77"}})
    service.on_image(first, other)
    assert len(told) == 1
    assert service.values.integer("log.roll.ms") == 77
    service.on_image(other, empty)
    assert told[1:] == [(2000, 1048588)]


def test_a_watcher_of_what_cannot_change_is_a_mistake() -> None:
    with pytest.raises(AssertionError):
        service_of({}, {}).subscribe(["log.dirs"], lambda _before, _after: None)


def test_records_that_this_version_cannot_use_are_passed_over() -> None:
    service = service_of(
        {},
        {
            (BROKER, ""): {
                "log.dirs": "/elsewhere",
                "message.max.bytes": "x",
                "listeners": "PLAINTEXT://:1",
                "log.roll.ms": "77",
                "from.the.future": "1",
            }
        },
    )
    assert service.dynamic_default == {"log.roll.ms": "77", "from.the.future": "1"}
    assert service.values.integer("message.max.bytes") == 1048588


def test_a_group_has_the_brokers_settings_where_it_has_none() -> None:
    service = service_of(
        {"group.consumer.session.timeout.ms": "46000"},
        {(GROUP, "g"): {"consumer.heartbeat.interval.ms": "6000"}},
    )
    values = service.group_values("g")
    assert values["consumer.session.timeout.ms"] == 46000
    assert values["consumer.heartbeat.interval.ms"] == 6000
    assert values["share.auto.offset.reset"] == "latest"
    assert service.group_values("other")["consumer.heartbeat.interval.ms"] == 5000


def test_own_setting_of_a_group_is_brought_into_the_brokers_bounds() -> None:
    names = ("consumer.heartbeat.interval.ms", "consumer.session.timeout.ms", "share.isolation")
    service = service_of(
        {
            "group.consumer.min.heartbeat.interval.ms": "5500",
            "group.consumer.heartbeat.interval.ms": "6000",
        },
        {
            (GROUP, "low"): {names[0]: "5000", names[1]: "44999"},
            (GROUP, "high"): {names[0]: "15001", names[1]: "60001"},
            (GROUP, "inside"): {names[0]: "5500"},
        },
    )

    def own(group: str) -> list[int | None]:
        return [service.own_group_integer(group, name) for name in names]

    assert own("low") == [5500, 45000, None]
    assert own("high") == [15000, 60000, None]
    assert own("inside") == [5500, None, None]
    assert own("other") == [None, None, None]


def test_offsets_retention_of_a_group_is_described_only_where_it_is_set() -> None:
    name = "cordwood.offsets.retention.minutes"
    service = service_of({"offsets.retention.minutes": "5"}, {(GROUP, "g"): {name: "-1"}})
    (entry,) = [each for each in describe(service, GROUP, "g") if each.name == name]
    assert (entry.value, entry.level.code) == ("-1", 8)
    assert [each.value for each in entry.synonyms] == ["-1", "5", "10080"]
    assert name not in {each.name for each in describe(service, GROUP, "other")}


def test_settings_of_a_new_topic_are_checked() -> None:
    service = service_of({"log.cleaner.max.compaction.lag.ms": "10"}, {})
    require_topic(service, {"min.compaction.lag.ms": "9"})
    with pytest.raises(InvalidConfigError, match=r"conflict topic config setting"):
        require_topic(service, {"min.compaction.lag.ms": "11"})
    with pytest.raises(InvalidConfigError, match="Unknown topic config name: x"):
        require_topic(service, {"x": "y"})


def test_a_created_topic_is_described_by_what_was_recorded() -> None:
    service = service_of({"log.retention.hours": "2"}, {(TOPIC, "t"): {"segment.ms": "08"}})
    entries = {entry.name: entry for entry in describe_new_topic(service, {"segment.ms": "08"})}
    assert list(entries) == sorted(entries)
    assert (entries["segment.ms"].value, entries["segment.ms"].level.code) == ("08", 1)
    assert (entries["retention.ms"].value, entries["retention.ms"].level.code) == (
        "7200000",
        4,
    )
    assert "internal.segment.bytes" not in entries
