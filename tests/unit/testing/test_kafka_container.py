"""`KafkaContainer` answers as testcontainers' class does, without a container."""

from __future__ import annotations

import socket
import traceback
from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient

from cordwood.model.errors import ConfigError, UnknownSettingError
from cordwood.testing.kafka_container import KafkaContainer, properties_of
from support.ports import free_port


def test_it_serves_a_client_between_start_and_stop() -> None:
    with KafkaContainer("confluentinc/cp-kafka:7.6.0").with_kraft() as kafka:
        server = kafka.get_bootstrap_server()
        port = kafka.get_exposed_port(kafka.port)
        assert server == f"{kafka.get_container_host_ip()}:{port}"
        producer = Producer({"bootstrap.servers": server, "log_level": 0})
        producer.produce("orders", b"one book", timestamp=kafka.broker.now_ms())
        assert producer.flush(30) == 0
        kafka.broker.advance(days=8)
        assert "00000000000000000001.log" in kafka.broker.files("orders-0")
    with pytest.raises(RuntimeError, match="does not run: use it in a `with` statement"):
        kafka.get_bootstrap_server()


def test_it_can_be_started_again_and_is_then_empty() -> None:
    kafka = KafkaContainer()
    for _ in range(2):
        assert kafka.start(timeout=5) is kafka
        admin = AdminClient({"bootstrap.servers": kafka.get_bootstrap_server(), "log_level": 0})
        assert admin.list_topics(timeout=30).topics == {}
        producer = Producer({"bootstrap.servers": kafka.get_bootstrap_server(), "log_level": 0})
        producer.produce("t", b"v")
        assert producer.flush(30) == 0
        assert set(admin.list_topics(timeout=30).topics) == {"t"}
        kafka.stop()
    kafka.stop()


def test_a_container_that_was_started_before_the_with_statement_has_one_broker() -> None:
    with KafkaContainer().start() as kafka:
        broker = kafka.broker
        assert kafka.start() is kafka
        assert kafka.broker is broker
    with pytest.raises(RuntimeError, match="does not run"):
        kafka.get_bootstrap_server()
    with pytest.raises(OSError, match="refused"):
        socket.create_connection(("127.0.0.1", broker.port)).close()


def test_variables_are_given_at_once_or_read_from_a_file(tmp_path: Path) -> None:
    file = tmp_path / "kafka.env"
    file.write_text(
        "# the broker\n\nKAFKA_NUM_PARTITIONS=3\nexport KAFKA_LOG_RETENTION_MS='5000'\n"
    )
    kafka = KafkaContainer(env={"KAFKA_NUM_PARTITIONS": "2", "A": "b"}).with_env_file(file)
    assert kafka.env == {"KAFKA_NUM_PARTITIONS": "3", "A": "b", "KAFKA_LOG_RETENTION_MS": "5000"}
    file.write_text("KAFKA_NUM_PARTITIONS 3\n")
    with pytest.raises(ConfigError, match=r"kafka\.env:1: KEY=VALUE is expected"):
        kafka.with_env_file(file)
    with pytest.raises(ConfigError, match="cannot be read"):
        kafka.with_env_file(tmp_path / "none")


def test_variables_of_the_images_are_settings_and_those_of_the_container_have_no_effect() -> None:
    kafka = (
        KafkaContainer()
        .with_env("KAFKA_NUM_PARTITIONS", "3")
        .with_envs(
            KAFKA_LISTENERS="PLAINTEXT://0.0.0.0:9093",
            KAFKA_HEAP_OPTS="-Xmx256m",
            KAFKA_GC_LOG_OPTS="",
            KAFKA_JMX_HOSTNAME="localhost",
            KAFKA_LOG4J_OPTS="-Dx=y",
            KAFKA_LOG4J_TOOLS_ROOT_LOGLEVEL="WARN",
            KAFKA_CLUSTER_ID="x",
            KAFKA_PROCESS_ROLES="broker,controller",
            CLUSTER_ID="x",
        )
    )
    with kafka:
        assert kafka.broker.node.settings.integer("num.partitions") == 3


@pytest.mark.parametrize(
    ("variable", "setting"),
    [
        ("KAFKA_LOG_RETENTION_MS", "log.retention.ms"),
        ("KAFKA_A__B", "a_b"),
        ("KAFKA_A___B_C", "a-b.c"),
    ],
)
def test_a_variable_is_read_as_the_images_read_it(variable: str, setting: str) -> None:
    assert properties_of({variable: "1"}) == {setting: "1"}


def test_a_variable_that_names_no_setting_is_refused_at_the_line_of_the_test() -> None:
    kafka = KafkaContainer().with_env("KAFKA_LOG_RETENTON_MS", "1")
    with pytest.raises(UnknownSettingError, match=r"did you mean log\.retention\.ms") as refused:
        kafka.start()
    shown = refused.traceback.filter(refused)
    assert [Path(entry.path).name for entry in shown] == ["test_kafka_container.py"]
    assert "setting_text.py" not in "".join(traceback.format_tb(refused.tb))


def test_a_port_can_be_bound() -> None:
    port = free_port()
    with KafkaContainer().with_bind_ports(9093, port) as kafka:
        assert kafka.get_exposed_port(9093) == port
    with pytest.raises(ConfigError, match="has the port 9093 alone, not 8080"):
        KafkaContainer().with_bind_ports(8080, port)
