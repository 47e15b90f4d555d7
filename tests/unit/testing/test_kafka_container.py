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
        Producer({"bootstrap.servers": kafka.get_bootstrap_server(), "log_level": 0}).produce("t")
        kafka.stop()
    kafka.stop()


def test_variables_of_the_images_are_settings_and_those_of_the_container_have_no_effect() -> None:
    kafka = (
        KafkaContainer()
        .with_env("KAFKA_NUM_PARTITIONS", "3")
        .with_envs(
            KAFKA_LISTENERS="PLAINTEXT://0.0.0.0:9093",
            KAFKA_HEAP_OPTS="-Xmx256m",
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
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    with KafkaContainer().with_bind_ports(9093, port) as kafka:
        assert kafka.get_exposed_port(9093) == port
    with pytest.raises(ConfigError, match="has the port 9093 alone, not 8080"):
        KafkaContainer().with_bind_ports(8080, port)
