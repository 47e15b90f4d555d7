"""The settings in force by Cordwood against those that a running Kafka 4.4 describes."""

from __future__ import annotations

import html
import re
from collections.abc import Iterator, Mapping

import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
    ResourceType,
)

from cordwood.configs.sources import ResolvedTopic, Sources, resolve_topic
from cordwood.configs.table import LOG_BROKER_SETTINGS, TOPIC_SETTINGS, Setting, is_own
from cordwood.configs.value import ConfigType, format_value
from cordwood.format.properties import parse_properties
from cordwood.metadata.replay import read_metadata_image
from cordwood.model.errors import ConfigError
from support.applied import wait_until_applied
from support.kafka import KafkaRunError, RealKafka, poll_until
from support.kafka_programs import KAFKA_4_4, kafka_tool

pytestmark = [pytest.mark.kafka, pytest.mark.usefixtures("kafka_4_4_jars")]

NODE = 1
TOPICS: Mapping[str, Mapping[str, str]] = {
    "plain": {},
    "unlimited": {"retention.ms": "-1"},
    "nothing": {"retention.ms": "0"},
    "short": {"retention.ms": "11"},
    "compacted": {
        "cleanup.policy": "compact",
        "min.cleanable.dirty.ratio": "0.25",
        "delete.retention.ms": "3",
        "max.compaction.lag.ms": "77",
        "segment.ms": "5",
    },
    "keeper": {"cleanup.policy": "", "compression.type": "zstd", "flush.ms": "8"},
}
OTHER_STATIC = {
    "log.roll.hours": "3",
    "log.roll.jitter.hours": "1",
    "log.flush.scheduler.interval.ms": "123456789",
    "log.segment.delete.delay.ms": "4321",
    "log.cleaner.min.cleanable.ratio": "0.125",
    "log.cleaner.min.compaction.lag.ms": "2",
    "log.cleanup.policy": "compact,delete",
    "message.max.bytes": "200000",
}


class Broker:
    """A running Kafka, and what Cordwood reads of the same files."""

    def __init__(self, kafka: RealKafka, admin: AdminClient) -> None:
        self.kafka = kafka
        self.admin = admin

    def describe(self, resource: ConfigResource) -> dict[str, str]:
        """The settings that Kafka says are in force, internal ones left out."""
        (future,) = self.admin.describe_configs([resource]).values()
        entries: dict[str, ConfigEntry] = future.result(timeout=120)
        return {name: entry.value for name, entry in entries.items()}

    def topic(self, name: str) -> dict[str, str]:
        """The settings in force for a topic, by Kafka."""
        return self.describe(ConfigResource(ResourceType.TOPIC, name))

    def alter(self, resource: ConfigResource, name: str, value: str | None) -> None:
        """Sets a setting, or takes it away."""
        operation = AlterConfigOpType.DELETE if value is None else AlterConfigOpType.SET
        resource.add_incremental_config(
            ConfigEntry(name, value or "", incremental_operation=operation)
        )
        for future in self.admin.incremental_alter_configs([resource]).values():
            future.result(timeout=120)

    def alter_cluster(self, *change: str) -> str:
        """Changes the settings of all brokers with Kafka's tool; what it printed."""
        server = ("--bootstrap-server", self.kafka.bootstrap_servers)
        entity = ("--entity-type", "brokers", "--entity-default")
        done = kafka_tool("configs", *server, *entity, "--alter", *change, version=KAFKA_4_4)
        return done.stdout + done.stderr

    def set_cluster(self, value: str | None) -> None:
        """Sets log.retention.ms of all brokers, or takes it away."""
        if value is None:
            # Refused if it is not there.
            self.alter_cluster("--delete-config", "log.retention.ms")
        else:
            said = self.alter_cluster("--add-config", f"log.retention.ms={value}")
            assert "Completed updating" in said

    def set_broker(self, value: str | None, *, cluster: str | None) -> None:
        """Sets log.retention.ms of this broker, and waits until both levels are in force."""
        self.alter(ConfigResource(ResourceType.BROKER, str(NODE)), "log.retention.ms", value)
        wanted = next((each for each in (value, cluster) if each is not None), None)

        def is_set() -> bool:
            found = self.describe(ConfigResource(ResourceType.BROKER, str(NODE)))
            return found["log.retention.ms"] == (wanted or self.static.get("log.retention.ms"))

        poll_until(is_set, timeout_s=120, what="the dynamic settings are in force")

    @property
    def static(self) -> dict[str, str]:
        """The settings of server.properties."""
        return parse_properties(self.kafka.config_file.read_text(encoding="latin-1"))

    def resolve(self, topic: str) -> ResolvedTopic:
        """The settings in force for a topic, by Cordwood, from server.properties and the log."""
        image = read_metadata_image(self.kafka.log_dirs[0] / "__cluster_metadata-0")
        sources = Sources(metadata=image, server_properties=self.static)
        found = resolve_topic(sources, topic, node_id=NODE)
        assert found is not None, topic
        return found


def ours(found: ResolvedTopic) -> dict[str, str]:
    """The settings as Kafka prints them."""
    printed: dict[str, str] = {}
    for name, setting in TOPIC_SETTINGS.items():
        if name == "internal.segment.bytes" or is_own(name):  # Kafka does not know the latter
            continue
        # The order of a list, and what plays no part in cleanup, are not in the config.
        field = name.replace(".", "_")
        if setting.rule.kind is ConfigType.LIST or not hasattr(found.config, field):
            printed[name] = found.origin[name].value
        else:
            printed[name] = format_value(getattr(found.config, field))
    return printed


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealKafka]:
    with RealKafka(
        tmp_path_factory.mktemp("settings"), properties=OTHER_STATIC, version=KAFKA_4_4
    ) as kafka:
        # Formatting reads the settings too: the directory is made before any are wrong.
        kafka.start()
        kafka.stop()
        yield kafka


STATICS: list[dict[str, str]] = [
    {},
    {"log.retention.hours": "16", "log.retention.minutes": "15", "log.retention.ms": "14"},
    {"log.retention.hours": "0", "log.retention.minutes": "-2"},
]


@pytest.mark.parametrize("static", STATICS, ids=["default", "all", "negative"])
def test_topics_are_described_alike(kafka: RealKafka, static: dict[str, str]) -> None:
    admin = kafka.start(static)
    try:
        broker = Broker(kafka, admin)
        if "plain" not in admin.list_topics(timeout=120).topics:
            new = [
                NewTopic(name, num_partitions=1, replication_factor=1, config=dict(config))
                for name, config in TOPICS.items()
            ]
            for future in admin.create_topics(new).values():
                future.result(timeout=120)
            wait_until_applied(kafka.port)
        for cluster in (None, "-1", "13"):
            broker.set_cluster(cluster)
            for own in (None, "-1", "12"):
                broker.set_broker(own, cluster=cluster)
                for topic in TOPICS:
                    by_kafka = broker.topic(topic)
                    by_us = ours(broker.resolve(topic))
                    assert by_us == {name: by_kafka[name] for name in by_us}, (cluster, own, topic)
    finally:
        kafka.stop()


def test_refusals_are_alike(kafka: RealKafka) -> None:
    admin = kafka.start()
    try:
        broker = Broker(kafka, admin)
        for future in admin.create_topics([NewTopic("refused", 1, 1)]).values():
            future.result(timeout=120)
        for name, value in {
            "retention.ms": "abc",
            "segment.ms": "0",
            "segment.bytes": "1048575",
            "cleanup.policy": "compact,x",
            "compression.gzip.level": "0",
            "min.cleanable.dirty.ratio": "1.5",
            "preallocate": "yes",
            "max.compaction.lag.ms": "1",
            "log.retention.ms": "1",
            "message.format.version": "2.8",
        }.items():
            with pytest.raises(KafkaException) as by_kafka:
                broker.alter(ConfigResource(ResourceType.TOPIC, "refused"), name, value)
            with pytest.raises(ConfigError) as by_us:
                resolve_topic(
                    Sources(topic_set={"refused": {name: value}}, server_properties=broker.static),
                    "refused",
                    node_id=NODE,
                )
            said = str(by_us.value).partition(": ")[2].partition(";")[0]
            assert said in by_kafka.value.args[0].str(), name
        broker.set_cluster(None)
        broker.set_broker(None, cluster=None)
        own = ConfigResource(ResourceType.BROKER, str(NODE))
        for change in ("log.retention.ms=0", "log.retention.hours=5", "log.retention.minutes=5"):
            with pytest.raises(KafkaException, match=r"must be unlimited|Cannot update"):
                broker.alter(own, *change.split("="))
            assert "Completed updating" not in broker.alter_cluster("--add-config", change)
        # Behind a value of the broker's own, one that would be refused is not looked at.
        broker.set_broker("12", cluster=None)
        broker.set_cluster("0")
        assert broker.resolve("refused").config.retention_ms == 12
        assert broker.topic("refused")["retention.ms"] == "12"
        broker.set_cluster(None)
    finally:
        kafka.stop()


UNLIMITED = "log.retention.ms must be unlimited (-1) or, greater than or equal to 1"


@pytest.mark.parametrize(
    ("static", "text"),
    [
        ({"log.retention.ms": "0"}, UNLIMITED),
        ({"log.retention.minutes": "0", "log.retention.hours": "5"}, UNLIMITED),
        ({"log.roll.ms": "0"}, "log.roll.ms must be greater than or equal to 1"),
        ({"log.roll.jitter.ms": "-1"}, "log.roll.jitter.ms must be greater than or equal to 0"),
        (
            {"log.roll.hours": "0"},
            "Invalid value 0 for configuration log.roll.hours: Value must be at least 1",
        ),
        (
            {
                "log.cleaner.min.compaction.lag.ms": "9",
                "log.cleaner.max.compaction.lag.ms": "8",
            },
            "conflict topic config setting min.compaction.lag.ms (9) > max.compaction.lag.ms (8)",
        ),
    ],
    ids=lambda value: ",".join(value) if isinstance(value, dict) else "",
)
def test_kafka_does_not_start_with_what_we_refuse(
    kafka: RealKafka, static: dict[str, str], text: str
) -> None:
    with pytest.raises(ConfigError) as by_us:
        Sources(server_properties=static)
    assert str(by_us.value).endswith(text)
    with pytest.raises(KafkaRunError):
        kafka.start(static)
    assert text in kafka.log_since_start


_ROW = re.compile(r"<tr><th>(.*?):</th><td>(.*?)</td></tr>")


def documented(java_class: str) -> dict[str, dict[str, str]]:
    """The settings that Kafka's own documentation lists, and what it says of each."""
    text = kafka_tool(java_class, version=KAFKA_4_4).stdout
    found: dict[str, dict[str, str]] = {}
    for part in text.split('<h4><a id="')[1:]:
        name = part.partition('"')[0]
        found[name] = {key: html.unescape(value) for key, value in _ROW.findall(part)}
    return found


def in_kafkas_notation(setting: Setting) -> dict[str, str]:
    """A setting as Kafka's documentation prints it, if the table is right."""
    rule = setting.rule
    valid = ""
    if rule.or_equal is not None:
        valid = f"[{rule.at_least},...,{rule.at_most}] or {rule.or_equal}"
    elif rule.at_most is not None:
        valid = f"[{rule.at_least},...,{rule.at_most}]"
    elif rule.at_least is not None:
        valid = f"[{rule.at_least},...]"
    elif rule.choices:
        valid = f"[{', '.join(rule.choices)}]"
    elif rule.element_pattern is not None:
        valid = "[partitionId]:[brokerId],[partitionId]:[brokerId],..."
    elif setting.name == "controller.quorum.voters":
        valid = "non-empty list"
    without_default = "" if setting.name in {"node.id", "process.roles"} else "null"
    default = without_default if setting.default is None else format_value(setting.default)
    return {"Type": rule.kind.lower(), "Default": default, "Valid Values": valid}


def test_the_table_is_kafkas() -> None:
    topics = documented("org.apache.kafka.storage.internals.log.LogConfig")
    brokers = documented("kafka.server.KafkaConfig")
    own = {name for name in (*TOPIC_SETTINGS, *LOG_BROKER_SETTINGS) if is_own(name)}
    assert TOPIC_SETTINGS.keys() - own - {"internal.segment.bytes"} == topics.keys()
    internal = {"log.initial.task.delay.ms", "producer.id.expiration.check.interval.ms"}
    assert LOG_BROKER_SETTINGS.keys() - own - internal <= brokers.keys()
    for table, pages in ((TOPIC_SETTINGS, topics), (LOG_BROKER_SETTINGS, brokers)):
        for name, setting in table.items():
            if name not in pages:
                continue
            page = pages[name]
            expected = in_kafkas_notation(setting)
            # Long defaults are followed by the same in words: 604800000 (7 days).
            page["Default"] = page.get("Default", "null").partition(" (")[0].replace('""', "")
            assert expected == {key: page[key] for key in expected}, name
            if pages is brokers:
                assert setting.is_dynamic == (page["Update Mode"] != "read-only"), name
            else:
                first = setting.broker_names[0].name if setting.broker_names else "null"
                assert page["Server Default Property"] == first, name
