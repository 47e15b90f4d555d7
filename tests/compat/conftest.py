"""Brokers for tests that hold for any: the address of one, Kafka's or Cordwood's."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest

from support.dumps import DumpTools
from support.kafka import RealKafka
from support.kafka_programs import KAFKA_4_3, KAFKA_4_4
from support.kafka_tools import KafkaTools
from support.served import ServedBroker
from support.stock_clients.neutral import Neutral

pytest.register_assert_rewrite("support.stock_clients.contract")

#: Both brokers read these. Retention is looked at each second, groups do not wait for more members,
#: and those of the consumer protocol send a heartbeat each half second.
STOCK_PROPERTIES: Mapping[str, str] = {
    "log.retention.check.interval.ms": "1000",
    "log.initial.task.delay.ms": "1000",
    "auto.create.topics.enable": "true",
    "group.initial.rebalance.delay.ms": "0",
    "group.consumer.heartbeat.interval.ms": "500",
    "group.consumer.min.heartbeat.interval.ms": "500",
}


@pytest.fixture(scope="module")
def tools(kafka_jars: Path) -> Iterator[KafkaTools]:
    """The tools of Kafka 4.3, in one virtual machine for the tests of a file.

    A tool that fails leaves threads of its client, which log into what later tools print: a machine
    for all files would show the dead brokers of other tests.
    """
    assert kafka_jars.is_dir()
    with KafkaTools() as running:
        yield running


@pytest.fixture(scope="module")
def tools_4_4(kafka_4_4_jars: Path) -> Iterator[KafkaTools]:
    """The tools of Kafka 4.4, as `tools`."""
    assert kafka_4_4_jars.is_dir()
    with KafkaTools(KAFKA_4_4) as running:
        yield running


@pytest.fixture
def compare(
    capsysbinary: pytest.CaptureFixture[bytes], tools: KafkaTools, tools_4_4: KafkaTools
) -> Callable[..., None]:
    """Compares `cordwood dump-log` with kafka-dump-log over files: `DumpTools.compare`."""
    return DumpTools(capsysbinary, {KAFKA_4_3: tools, KAFKA_4_4: tools_4_4}).compare


@pytest.fixture(scope="module")
def stock_properties() -> Mapping[str, str]:
    """Of the broker; a module with others overrides it."""
    return STOCK_PROPERTIES


@pytest.fixture(
    scope="module",
    params=[
        "cordwood",
        pytest.param("kafka", marks=[pytest.mark.kafka, pytest.mark.nightly]),
    ],
)
def stock_server(
    request: pytest.FixtureRequest,
    tmp_path_factory: pytest.TempPathFactory,
    stock_properties: Mapping[str, str],
) -> Iterator[ServedBroker | RealKafka]:
    """A broker in a process of its own, started; a test that restarts it has it for itself."""
    root = tmp_path_factory.mktemp("stock-broker")
    if request.param == "cordwood":
        with ServedBroker(root / "data", stock_properties, flags=()) as broker:
            yield broker
            assert broker.stop() == 0, broker.log
        assert "Traceback" not in broker.log, broker.log
        assert " ERROR " not in broker.log, broker.log
        return
    request.getfixturevalue("kafka_jars")
    with RealKafka(root, properties=stock_properties) as kafka:
        kafka.start()
        yield kafka


@pytest.fixture(scope="module")
def stock_broker(stock_server: ServedBroker | RealKafka) -> str:
    """The bootstrap servers of that broker."""
    return stock_server.bootstrap_servers


@pytest.fixture(scope="module")
def neutral(stock_broker: str) -> Neutral:
    """The client that sets the stage for others."""
    return Neutral(stock_broker)
