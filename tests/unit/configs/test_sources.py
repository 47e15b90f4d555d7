from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import pytest

from cordwood.configs.levels import Level, Origin
from cordwood.configs.log_config import LogConfig
from cordwood.configs.names import (
    REMOVED_BROKER_NAMES,
    REMOVED_TOPIC_NAMES,
    RENAMED_BROKER_NAMES,
)
from cordwood.configs.resource import ConfigResource
from cordwood.configs.sources import (
    ResolvedTopic,
    Sources,
    resolve_broker,
    resolve_topic,
)
from cordwood.model.errors import ConfigError

MINUTE_MS = 60_000
HOUR_MS = 3_600_000
NODE = 7
NAMED = frozenset(
    {
        "cleanup.policy",
        "flush.ms",
        "index.interval.bytes",
        "max.message.bytes",
        "retention.bytes",
        "retention.ms",
        "segment.ms",
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Metadata:
    topics: frozenset[str] = frozenset()
    configs: Mapping[tuple[int, str], Mapping[str, str]] = field(default_factory=dict)


def metadata(
    *,
    topics: Mapping[str, Mapping[str, str]] | None = None,
    cluster: Mapping[str, str] | None = None,
    brokers: Mapping[int, Mapping[str, str]] | None = None,
) -> Metadata:
    configs: dict[tuple[int, str], Mapping[str, str]] = {}
    for topic, settings in (topics or {}).items():
        configs[ConfigResource.TOPIC, topic] = settings
    for broker, settings in (brokers or {}).items():
        configs[ConfigResource.BROKER, str(broker)] = settings
    configs[ConfigResource.BROKER, ""] = cluster or {}
    return Metadata(topics=frozenset(topics or {}), configs=configs)


def resolved(sources: Sources, topic: str = "orders") -> ResolvedTopic:
    found = resolve_topic(sources, topic, node_id=NODE)
    assert found is not None
    return found


def refusal(**given: Any) -> str:
    with pytest.raises(ConfigError) as caught:
        resolve_topic(Sources(**given), "orders", node_id=NODE)
    return str(caught.value)


class TestRetention:
    """All combinations, against a rule that says it another way."""

    @staticmethod
    def expected(
        topic: int | None,
        broker: int | None,
        cluster: int | None,
        static: tuple[int | None, int | None, int | None],
    ) -> int | None:
        """The effective value in ms; None if Kafka refuses the broker's settings."""
        units = (1, MINUTE_MS, HOUR_MS)
        written = [n * unit for n, unit in zip(static, units, strict=True) if n is not None]
        of_file = [*written, 168 * HOUR_MS][0]
        of_broker = next(n for n in (broker, cluster, of_file) if n is not None)
        if of_file == 0 or of_broker == 0:
            return None
        in_force = of_broker if topic is None else topic
        return -1 if in_force < 0 else in_force

    @pytest.mark.parametrize("topic", [None, -1, 0, 11])
    @pytest.mark.parametrize("broker", [None, -1, 0, 12])
    @pytest.mark.parametrize("cluster", [None, -3, 0, 13])
    def test_levels_and_units(
        self, topic: int | None, broker: int | None, cluster: int | None
    ) -> None:
        image = metadata(
            topics={"orders": {} if topic is None else {"retention.ms": str(topic)}},
            # The coarser forms cannot be changed dynamically: they stand here to be ignored.
            cluster={"log.retention.hours": "1"}
            | ({} if cluster is None else {"log.retention.ms": str(cluster)}),
            brokers={
                NODE: {"log.retention.minutes": "1"}
                | ({} if broker is None else {"log.retention.ms": str(broker)}),
                NODE + 1: {"log.retention.ms": "99"},
            },
        )
        names = ("log.retention.ms", "log.retention.minutes", "log.retention.hours")
        for static in itertools.product([None, -1, 0, 14], [None, -2, 0, 15], [None, -1, 0, 16]):
            properties = {
                name: str(n) for name, n in zip(names, static, strict=True) if n is not None
            }
            expected = self.expected(topic, broker, cluster, static)
            if expected is None:
                assert "log.retention.ms must be unlimited (-1) or, greater than" in refusal(
                    server_properties=properties, metadata=image
                )
            else:
                sources = Sources(server_properties=properties, metadata=image)
                assert resolved(sources).config.retention_ms == expected, static


@pytest.mark.parametrize(
    ("settings", "name", "value"),
    [
        ({"log.roll.hours": "2"}, "segment_ms", 2 * HOUR_MS),
        ({"log.roll.hours": "2", "log.roll.ms": "5"}, "segment_ms", 5),
        ({"log.roll.jitter.hours": "2"}, "segment_jitter_ms", 2 * HOUR_MS),
        ({"log.roll.jitter.hours": "2", "log.roll.jitter.ms": "0"}, "segment_jitter_ms", 0),
        ({"log.flush.scheduler.interval.ms": "9"}, "flush_ms", 9),
        (
            {"log.flush.scheduler.interval.ms": "9", "log.flush.interval.ms": "8"},
            "flush_ms",
            8,
        ),
        ({"log.cleaner.min.cleanable.ratio": "0.1"}, "min_cleanable_dirty_ratio", 0.1),
        ({"log.segment.delete.delay.ms": "4"}, "file_delete_delay_ms", 4),
        ({"message.max.bytes": "4"}, "max_message_bytes", 4),
        ({"max.decompressed.message.bytes": "5"}, "max_decompressed_message_bytes", 5),
        ({"log.cleanup.policy": ""}, "cleanup_policy", frozenset()),
    ],
)
def test_static_settings_of_the_broker(settings: dict[str, str], name: str, value: object) -> None:
    sources = Sources(server_properties=settings, defaults=True)
    assert getattr(resolved(sources).config, name) == value


def test_a_dynamic_value_takes_away_all_forms_beneath() -> None:
    sources = Sources(
        server_properties={"log.roll.ms": "5", "log.roll.hours": "3"},
        metadata=metadata(topics={"orders": {}}, cluster={"log.roll.ms": "6"}),
    )
    assert resolved(sources).origin["segment.ms"] == Origin(
        value="6", level=Level.DYNAMIC_DEFAULT, source="metadata log", key="log.roll.ms"
    )


def test_sources_of_one_level_in_their_order() -> None:
    image = metadata(topics={"orders": {"retention.ms": "3", "segment.ms": "3", "flush.ms": "3"}})
    sources = Sources(
        topic_set={"orders": {"retention.ms": "1"}},
        file_topics={"orders": {"retention.ms": "2", "segment.ms": "2"}},
        metadata=image,
        broker_set={"log.retention.bytes": "1"},
        file_broker={"log.retention.bytes": "2", "log.index.interval.bytes": "2"},
        server_properties={
            "log.retention.bytes": "3",
            "log.index.interval.bytes": "3",
            "message.max.bytes": "3",
        },
        config_file_name="settings.yaml",
        server_properties_name="server.properties",
    )
    origin = resolved(sources).origin
    assert {
        name: (origin[name].value, origin[name].source) for name in origin if name in NAMED
    } == {
        "retention.ms": ("1", "--set"),
        "segment.ms": ("2", "settings.yaml"),
        "flush.ms": ("3", "metadata log"),
        "retention.bytes": ("1", "--set"),
        "index.interval.bytes": ("2", "settings.yaml"),
        "max.message.bytes": ("3", "server.properties"),
        "cleanup.policy": ("delete", "Kafka"),
    }


def test_milliseconds_come_first_whatever_the_source_and_the_loser_is_told() -> None:
    sources = Sources(
        broker_set={"log.retention.hours": "1"},
        server_properties={"log.retention.ms": "5"},
        server_properties_name="server.properties",
    )
    assert resolved(sources).config.retention_ms == 5
    assert sources.warnings == (
        (
            "--set: log.retention.hours=1 has no effect, for log.retention.ms=5 "
            "(server.properties) "
            "comes before it"
        ),
    )


def test_topic_names_of_settings_are_understood_for_the_broker() -> None:
    sources = Sources(broker_set={"retention.ms": "5"}, file_broker={"segment.ms": "6"})
    config = resolved(sources).config
    assert (config.retention_ms, config.segment_ms) == (5, 6)


def test_one_setting_under_two_names_with_two_values_is_refused() -> None:
    text = refusal(broker_set={"retention.ms": "5", "log.retention.ms": "6"})
    assert text == "--set: retention.ms and log.retention.ms are one setting with two values"


class TestWhichTopicsAreDescribed:
    @pytest.mark.parametrize(
        ("given", "topics"),
        [
            ({}, set()),
            ({"server_properties": {"log.retention.ms": "5"}}, set()),
            ({"defaults": True}, {"orders", "__consumer_offsets"}),
            ({"topic_set": {"orders": {"retention.ms": "5"}}}, {"orders"}),
            ({"file_topics": {"orders": {}}}, {"orders"}),
            ({"topic_set": {"__consumer_offsets": {}}}, {"__consumer_offsets"}),
            ({"broker_set": {"log.retention.ms": "5"}}, {"orders"}),
            ({"broker_set": {"retention.ms": "5"}}, {"orders"}),
            ({"file_broker": {"log.retention.hours": "5"}}, {"orders"}),
            ({"broker_set": {"log.cleaner.threads": "5"}}, set()),
            ({"metadata": metadata(topics={"orders": {}})}, {"orders"}),
            ({"metadata": metadata(cluster={"log.retention.ms": "5"})}, set()),
            (
                {"metadata": metadata(topics={"__consumer_offsets": {}})},
                {"__consumer_offsets"},
            ),
        ],
    )
    def test_which(self, given: dict[str, Any], topics: set[str]) -> None:
        sources = Sources(**given)
        assert topics == {
            topic
            for topic in ("orders", "__consumer_offsets")
            if resolve_topic(sources, topic, node_id=NODE) is not None
        }


class TestKafkasOwnTopics:
    def test_broker_settings_of_the_command_line_do_not_touch_them(self) -> None:
        image = metadata(topics={"__consumer_offsets": {"cleanup.policy": "compact"}})
        sources = Sources(
            broker_set={"log.retention.bytes": "5", "log.cleaner.delete.retention.ms": "0"},
            file_broker={"log.retention.bytes": "6"},
            metadata=image,
        )
        config = resolved(sources, "__consumer_offsets").config
        assert (config.retention_bytes, config.delete_retention_ms) == (6, 24 * HOUR_MS)

    def test_defaults_are_what_kafka_creates_them_with(self) -> None:
        sources = Sources(
            defaults=True, server_properties={"offsets.topic.segment.bytes": "2000000"}
        )
        offsets = resolved(sources, "__consumer_offsets").config
        assert offsets.cleanup_policy == {"compact"}
        assert offsets.segment_bytes == 2_000_000
        transactions = resolved(sources, "__transaction_state")
        assert transactions.config.cleanup_policy == {"compact"}
        assert transactions.config.min_insync_replicas == 2
        assert transactions.origin["cleanup.policy"].source == "as Kafka creates it"
        for kept in ("__share_group_state", "__remote_log_metadata"):
            assert resolved(sources, kept).config.retention_ms == -1

    def test_what_the_metadata_log_lists_is_as_it_says(self) -> None:
        sources = Sources(metadata=metadata(topics={"__consumer_offsets": {}}))
        assert resolved(sources, "__consumer_offsets").config == LogConfig()


class TestRefusals:
    @pytest.mark.parametrize("name", sorted(RENAMED_BROKER_NAMES))
    def test_wrong_names_are_answered_with_the_right_ones(self, name: str) -> None:
        text = refusal(broker_set={name: "1"})
        assert text.startswith(f"--set {name}=1: unknown broker setting {name}; ")
        assert RENAMED_BROKER_NAMES[name] in text
        sources = Sources(server_properties={name: "1"}, server_properties_name="server.properties")
        assert len(sources.warnings) == 1
        assert sources.warnings[0].startswith(f"server.properties: {name} is ignored; ")
        assert RENAMED_BROKER_NAMES[name] in sources.warnings[0]

    @pytest.mark.parametrize("name", sorted(REMOVED_BROKER_NAMES))
    def test_removed_names_are_told_apart(self, name: str) -> None:
        assert REMOVED_BROKER_NAMES[name] in refusal(file_broker={name: "1"})
        assert REMOVED_BROKER_NAMES[name] in Sources(server_properties={name: "1"}).warnings[0]

    @pytest.mark.parametrize("name", sorted(REMOVED_TOPIC_NAMES))
    def test_removed_names_of_topic_settings(self, name: str) -> None:
        assert REMOVED_TOPIC_NAMES[name] in refusal(topic_set={"orders": {name: "1"}})

    def test_a_topics_name_in_server_properties_is_ignored_as_kafka_does(self) -> None:
        sources = Sources(server_properties={"file.delete.delay.ms": "1"}, defaults=True)
        assert resolved(sources).config.file_delete_delay_ms == MINUTE_MS
        assert sources.warnings == (
            (
                "--server-properties: file.delete.delay.ms is ignored; for a broker it is called "
                "log.segment.delete.delay.ms"
            ),
        )

    def test_what_belongs_to_others_in_server_properties_is_not_spoken_of(self) -> None:
        assert Sources(server_properties={"num.io.threads": "8", "x.y": "z"}).warnings == ()

    @pytest.mark.parametrize(
        ("given", "text"),
        [
            (
                {"topic_set": {"orders": {"retention.mss": "1"}}},
                (
                    "--set orders:retention.mss=1: Unknown topic config name: retention.mss; "
                    "did you mean retention.ms?"
                ),
            ),
            (
                {"file_topics": {"orders": {"log.retention.ms": "1"}}},
                (
                    "--config-file, topic orders, log.retention.ms=1: Unknown topic config name: "
                    "log.retention.ms; for a topic it is called retention.ms"
                ),
            ),
            (
                {"topic_set": {"other": {"log.cleaner.threads": "1"}}},
                (
                    "--set other:log.cleaner.threads=1: Unknown topic config name: "
                    "log.cleaner.threads; log.cleaner.threads is a setting of "
                    "brokers, not of topics"
                ),
            ),
            (
                {"broker_set": {"log.retention.mss": "1"}},
                (
                    "--set log.retention.mss=1: unknown broker setting log.retention.mss; "
                    "did you mean log.retention.ms?"
                ),
            ),
            (
                {"broker_set": {"internal.segment.bytes": "1"}},
                (
                    "--set internal.segment.bytes=1: unknown broker setting "
                    "internal.segment.bytes; "
                    "internal.segment.bytes can be set for a topic only"
                ),
            ),
            (
                {"broker_set": {"qqq": "1"}},
                "--set qqq=1: unknown broker setting qqq",
            ),
            (
                {"server_properties": {"log.retention.minutes": "x"}},
                (
                    "--server-properties, log.retention.minutes=x: Invalid value "
                    "x for configuration "
                    "log.retention.minutes: Not a number of type INT"
                ),
            ),
            (
                {"broker_set": {"retention.ms": "abc"}},
                (
                    "--set retention.ms=abc: Invalid value abc for configuration log.retention.ms: "
                    "Not a number of type LONG"
                ),
            ),
            (
                {"topic_set": {"other": {"cleanup.policy": "x"}}},
                (
                    "--set other:cleanup.policy=x: Invalid value x for "
                    "configuration cleanup.policy: "
                    "String must be one of: compact, delete"
                ),
            ),
            (
                {"metadata": metadata(topics={"orders": {"segment.bytes": "14"}})},
                (
                    "metadata log, topic orders, segment.bytes=14: Invalid value "
                    "14 for configuration "
                    "segment.bytes: Value must be at least 1048576"
                ),
            ),
            (
                {"metadata": metadata(topics={"orders": {}}, cluster={"log.roll.ms": "x"})},
                (
                    "metadata log, all brokers, log.roll.ms=x: Invalid value x for configuration "
                    "log.roll.ms: Not a number of type LONG"
                ),
            ),
            (
                {"server_properties": {"log.roll.ms": "0"}},
                (
                    "--server-properties, log.roll.ms=0 (static broker): "
                    "log.roll.ms must be greater than or equal to 1"
                ),
            ),
            (
                {"server_properties": {"log.roll.jitter.ms": "-1"}},
                (
                    "--server-properties, log.roll.jitter.ms=-1 (static broker): "
                    "log.roll.jitter.ms must be greater than or equal to 0"
                ),
            ),
            (
                {
                    "metadata": metadata(
                        topics={"orders": {}}, brokers={NODE: {"log.retention.ms": "0"}}
                    )
                },
                (
                    "metadata log, log.retention.ms=0 (dynamic broker): "
                    "log.retention.ms must be unlimited (-1) or, greater than or equal to 1"
                ),
            ),
        ],
    )
    def test_text_says_what_and_where(self, given: dict[str, Any], text: str) -> None:
        assert refusal(**given) == text

    def test_a_bad_value_of_the_metadata_log_can_be_overruled(self) -> None:
        sources = Sources(
            topic_set={"orders": {"segment.bytes": "2000000"}},
            metadata=metadata(topics={"orders": {"segment.bytes": "14"}}),
        )
        assert resolved(sources).config.segment_bytes == 2_000_000


class TestCompactionLags:
    CONFLICT = (
        "conflict topic config setting min.compaction.lag.ms (10) > max.compaction.lag.ms (9)"
    )

    @pytest.mark.parametrize(
        "given",
        [
            {
                "topic_set": {
                    "orders": {"min.compaction.lag.ms": "10", "max.compaction.lag.ms": "9"}
                }
            },
            {
                "topic_set": {"orders": {"min.compaction.lag.ms": "10"}},
                "server_properties": {"log.cleaner.max.compaction.lag.ms": "9"},
            },
            {
                "file_topics": {"orders": {"max.compaction.lag.ms": "9"}},
                "metadata": metadata(topics={"orders": {"min.compaction.lag.ms": "10"}}),
            },
            {
                "server_properties": {
                    "log.cleaner.min.compaction.lag.ms": "10",
                    "log.cleaner.max.compaction.lag.ms": "9",
                }
            },
        ],
    )
    def test_the_shortest_is_not_above_the_longest(self, given: dict[str, Any]) -> None:
        assert refusal(**given).endswith(self.CONFLICT)

    def test_kafka_does_not_look_again_when_a_broker_setting_changes(self) -> None:
        sources = Sources(
            metadata=metadata(
                topics={"orders": {"min.compaction.lag.ms": "10"}},
                cluster={"log.cleaner.max.compaction.lag.ms": "9"},
            )
        )
        config = resolved(sources).config
        assert (config.min_compaction_lag_ms, config.max_compaction_lag_ms) == (10, 9)


def test_what_kafka_ignores_in_the_metadata_log_is_told() -> None:
    sources = Sources(
        metadata=metadata(
            topics={"orders": {"message.format.version": "2.8"}},
            cluster={"log.retention.hours": "1", "num.io.threads": "9"},
        )
    )
    assert resolved(sources).warnings == (
        "metadata log, topic orders: message.format.version is unknown, and ignored",
        (
            "metadata log, all brokers: log.retention.hours cannot be changed dynamically, "
            "and is ignored"
        ),
    )


def test_settings_of_another_broker_do_not_count() -> None:
    image = metadata(topics={"orders": {}}, brokers={NODE: {"log.retention.ms": "5"}})
    sources = Sources(metadata=image)
    for node_id, expected in ((NODE, 5), (NODE + 1, 168 * HOUR_MS), (None, 168 * HOUR_MS)):
        found = resolve_topic(sources, "orders", node_id=node_id)
        assert found is not None
        assert found.config.retention_ms == expected


def test_the_broker() -> None:
    sources = Sources(
        server_properties={
            "log.dirs": "/a,/b",
            "log.cleaner.threads": "2",
            "producer.id.expiration.ms": "100",
            "node.id": "7",
        },
        metadata=metadata(
            cluster={"log.cleaner.threads": "3", "producer.id.expiration.ms": "200"},
            brokers={NODE: {"log.cleaner.threads": "4"}},
        ),
    )
    broker = resolve_broker(sources, node_id=NODE)
    assert broker.config.log_dirs == ("/a", "/b")
    assert broker.config.log_cleaner_threads == 4
    assert broker.config.producer_id_expiration_ms == 200
    assert broker.config.node_id == 7
    assert broker.origin["log.cleaner.threads"].level is Level.DYNAMIC_BROKER
    assert resolve_broker(sources, node_id=None).config.log_cleaner_threads == 3
