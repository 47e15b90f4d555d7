"""server.properties: what is taken, what is refused, and what is said of the rest."""

from __future__ import annotations

import pytest

from cordwood.configs.listeners import Listener
from cordwood.configs.server_properties import BrokerSettings
from cordwood.coordinator.group.settings import ConsumerGroupSettings
from cordwood.format.properties import parse_properties
from cordwood.model.errors import ConfigError, UnsupportedSettingError

COMBINED = """\
process.roles=broker,controller
node.id=7
controller.quorum.bootstrap.servers=localhost:9093
listeners=PLAINTEXT://:9092,CONTROLLER://:9093
inter.broker.listener.name=PLAINTEXT
advertised.listeners=PLAINTEXT://example.org:9092,CONTROLLER://example.org:9093
controller.listener.names=CONTROLLER
listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_SSL:SASL_SSL
num.network.threads=3
socket.request.max.bytes=1048576
log.dirs=/data/a,/data/b
num.partitions=4
log.retention.hours=24
"""
ASSIGNORS = "org.apache.kafka.coordinator.group.assignor"
MAP = "listener.security.protocol.map"
OF_QUORUM = {
    "process.roles": "broker",
    "node.id": "1",
    "controller.quorum.bootstrap.servers": "localhost:9093",
    "controller.listener.names": "CONTROLLER",
}


def test_the_properties_that_ship_with_kafka_are_understood() -> None:
    settings = BrokerSettings(parse_properties(COMBINED, name="server.properties"))
    assert settings.node_id == 7
    assert settings.listeners == (Listener("PLAINTEXT", "", 9092),)
    assert settings.controller_listeners == (Listener("CONTROLLER", "", 9093),)
    assert settings.advertised_listeners == (Listener("PLAINTEXT", "example.org", 9092),)
    assert settings.inter_broker_listener == "PLAINTEXT"
    assert settings.log_dirs == ("/data/a", "/data/b")
    assert settings.metadata_log_dir == "/data/a"
    assert settings.num_partitions == 4
    assert settings.socket_request_max_bytes == 1 << 20
    assert settings.log_dirs == ("/data/a", "/data/b")
    assert settings.warnings == ()


def test_without_properties_the_broker_listens_on_loopback_only() -> None:
    settings = BrokerSettings()
    assert settings.listeners == (Listener("PLAINTEXT", "127.0.0.1", 9092),)
    assert settings.node_id == 1
    assert settings.auto_create_topics_enable is True
    assert settings.fetch_max_bytes == 57671680


def test_addresses_may_be_of_ip_version_six() -> None:
    settings = BrokerSettings({"listeners": "PLAINTEXT://[::1]:9092"})
    assert settings.listeners == (Listener("PLAINTEXT", "::1", 9092),)


def test_broker_id_is_the_older_name_of_node_id() -> None:
    settings = BrokerSettings({"broker.id": "5"})
    assert settings.node_id == 5
    assert settings.given["node.id"] == settings.given["broker.id"] == "5"


def test_unknown_settings_that_are_called_cordwoods_are_not_described() -> None:
    settings = BrokerSettings({"cordwood.metrics.port": "9404", "cordwood.cleaner.verify": "true"})
    assert settings.cordwood_cleaner_verify
    assert "cordwood.metrics.port" not in settings.given


def test_an_own_setting_that_is_no_number_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"Invalid value x for .*cordwood\.cleaner\.spark"):
        BrokerSettings({"cordwood.cleaner.spark.idle.ms": "x"})


@pytest.mark.parametrize(
    ("properties", "name", "remedy"),
    [
        ({"listeners": "SSL://:9093"}, "listeners", "use PLAINTEXT"),
        (
            {
                "listeners": "CLIENTS://:9093",
                MAP: "CLIENTS:SASL_PLAINTEXT",
            },
            "listeners",
            "use PLAINTEXT",
        ),
        (
            {**OF_QUORUM, "controller.listener.names": "SSL"},
            "controller.listener.names",
            "listener SSL is SSL; use PLAINTEXT",
        ),
        (
            {**OF_QUORUM, MAP: "CONTROLLER:SASL_SSL,PLAINTEXT:PLAINTEXT"},
            "controller.listener.names",
            "listener CONTROLLER is SASL_SSL; use PLAINTEXT",
        ),
        ({"ssl.keystore.location": "/k"}, "ssl.keystore.location", "not encrypted"),
        (
            {"listener.name.plaintext.ssl.keystore.location": "/k"},
            "listener.name.plaintext.ssl.keystore.location",
            "not encrypted",
        ),
        ({"sasl.enabled.mechanisms": "PLAIN"}, "sasl.enabled.mechanisms", "not authenticated"),
        ({"authorizer.class.name": "x.Y"}, "authorizer.class.name", "no authorization"),
        (
            {"remote.log.storage.system.enable": "true"},
            "remote.log.storage.system.enable",
            "tiered storage",
        ),
        (
            {"controller.quorum.voters": "1@a:1,2@b:1"},
            "controller.quorum.voters",
            "its only controller",
        ),
        (
            {"controller.quorum.bootstrap.servers": "a:1,b:1"},
            "controller.quorum.bootstrap.servers",
            "its only controller",
        ),
        ({"security.inter.broker.protocol": "SSL"}, "security.inter.broker.protocol", "PLAINTEXT"),
        ({"create.topic.policy.class.name": "x.Y"}, "create.topic.policy.class.name", "classes"),
        ({"zookeeper.connect": "z:2181", "broker.id": "0"}, "zookeeper.connect", "KRaft"),
    ],
)
def test_what_would_lessen_safety_is_fatal_and_says_what_to_do(
    properties: dict[str, str], name: str, remedy: str
) -> None:
    with pytest.raises(UnsupportedSettingError) as caught:
        BrokerSettings(properties, source="/etc/server.properties")
    error = caught.value
    assert error.name == name
    assert remedy in error.remedy
    assert str(error).startswith(f"/etc/server.properties: {name}=")


def test_a_password_is_not_shown_in_a_refusal() -> None:
    with pytest.raises(UnsupportedSettingError) as caught:
        BrokerSettings({"ssl.keystore.password": "secret"})
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize(
    "properties",
    [
        {"ssl.protocol": "TLSv1.3"},
        {"authorizer.class.name": ""},
        {"remote.log.storage.system.enable": "false"},
        {"controller.quorum.voters": "1@localhost:9093"},
        {**OF_QUORUM, "controller.listener.names": "CONTROLLER,SSL"},
        {"replica.selector.class": "x.Y"},
        {"some.plugin.setting": "z"},
    ],
)
def test_what_changes_nothing_is_taken(properties: dict[str, str]) -> None:
    assert BrokerSettings(properties).given.items() >= properties.items()


@pytest.mark.parametrize(
    ("properties", "complaint"),
    [
        ({"num.partitions": "0"}, "num.partitions: Value must be at least 1"),
        ({"log.retention.ms": "0"}, "log.retention.ms must be unlimited"),
        ({"log.roll.ms": "0"}, "log.roll.ms must be greater than or equal to 1"),
        ({"log.cleaner.threads": "0"}, "/ by zero"),
        ({"log.cleaner.dedupe.buffer.size": "1000"}, "at least 1MB per cleaner thread"),
        (
            {"node.id": "1", "broker.id": "2"},
            "`node.id` and `broker.id` must be set to the same value. `broker.id` is deprecated, "
            "please use `node.id` instead.",
        ),
        (
            {"group.consumer.assignors": "range,sticky"},
            "Invalid value sticky for configuration group.consumer.assignors: Class cannot be "
            "found",
        ),
        (
            {"group.consumer.assignors": f"range,{ASSIGNORS}.RangeAssignor"},
            f"Invalid value {ASSIGNORS}.RangeAssignor for configuration group.consumer.assignors: "
            "Assignor name 'range' is already registered by another configured assignor. Assignor "
            "names, whether built-in or custom, must be unique",
        ),
        ({"replica.fetch.wait.max.ms": "30001"}, "replica.socket.timeout.ms should always be"),
        ({"queued.max.request.bytes": "5"}, "must be larger or equal to socket.request.max.bytes"),
        ({"max.connections.per.ip": "0"}, "can be set to zero only if"),
        ({"connections.max.idle.ms": "50"}, "should always be less than connections.max.idle.ms"),
        ({"cordoned.log.dirs": "/x"}, "must be present in log.dirs"),
        ({"group.consumer.session.timeout.ms": "1"}, "must be greater than or equal to group"),
        (
            {"log.cleaner.max.compaction.lag.ms": "1", "log.cleaner.min.compaction.lag.ms": "2"},
            "conflict topic config setting min.compaction.lag.ms (2) >",
        ),
        ({"controller.quorum.voters": "x"}, "Invalid configuration value for controller.quorum"),
        ({"controller.quorum.voters": "a@b:1"}, "Failed to parse voter ID as an integer from a"),
        ({"controller.quorum.voters": "1@b"}, "Failed to parse host name from entry 1@b"),
        ({"controller.quorum.voters": "1@b:99999"}, "port out of range:99999"),
        ({"controller.quorum.bootstrap.servers": "b"}, "Failed to parse host name from b for"),
        (
            {**OF_QUORUM, MAP: "PLAINTEXT:PLAINTEXT"},
            "Controller listener with name CONTROLLER defined in controller.listener.names not",
        ),
        ({"listeners": "nonsense"}, "Unable to parse nonsense"),
        ({"listeners": "A://:1"}, "No security protocol defined for listener A"),
        ({"listeners": "PLAINTEXT://:1,PLAINTEXT://:2"}, "must have a different name"),
        ({"listeners": "CONTROLLER://:1"}, "at least one broker advertised listener"),
        ({"advertised.listeners": "PLAINTEXT://0.0.0.0:1"}, "nonroutable meta-address"),
        ({"inter.broker.listener.name": "X"}, "must be a listener name defined in"),
    ],
)
def test_what_kafka_would_not_start_with_is_refused(
    properties: dict[str, str], complaint: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        BrokerSettings(properties, source="here")
    assert complaint in str(caught.value)
    assert str(caught.value).startswith("here: ")


def test_names_that_are_gone_are_told_with_what_took_their_place() -> None:
    settings = BrokerSettings(
        {"log.message.format.version": "3.0", "retention.ms": "5", "unknown.to.all": "x"}
    )
    assert len(settings.warnings) == 3
    assert "was removed in Kafka 4.0" in settings.warnings[0]
    assert "log.retention.ms" in settings.warnings[1]
    assert "unknown.to.all is ignored" in settings.warnings[2]


def test_assignors_may_be_named_by_their_classes() -> None:
    settings = BrokerSettings({"group.consumer.assignors": f"{ASSIGNORS}.RangeAssignor,uniform"})
    assert ConsumerGroupSettings.of(settings.all).assignors == ("range", "uniform")


CONTROLLER = {
    "process.roles": "controller",
    "node.id": "100",
    "listeners": "CONTROLLER://127.0.0.1:9093",
    "controller.listener.names": "CONTROLLER",
}


def test_a_controller_alone_has_no_listener_of_brokers() -> None:
    settings = BrokerSettings(CONTROLLER)
    assert (settings.is_controller, settings.is_broker) == (True, False)
    assert [each.name for each in settings.controller_listeners] == ["CONTROLLER"]
    assert not settings.listeners


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        (
            {"listeners": "CONTROLLER://:9093,PLAINTEXT://:9092"},
            "must only contain KRaft controller listeners",
        ),
        ({"controller.quorum.voters": "7@localhost:9093"}, "the node id 100 must be included"),
    ],
)
def test_a_controller_alone_is_refused_what_kafka_refuses(
    changes: dict[str, str], said: str
) -> None:
    with pytest.raises(ConfigError, match=said):
        BrokerSettings({**CONTROLLER, **changes})
