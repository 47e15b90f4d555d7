"""Config requests to a real Kafka 4.4: what was recorded of it holds, and Cordwood says it too."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from cordwood.configs.server_properties import BrokerSettings
from cordwood.testing.broker import RunningBroker
from support.config_broker import ConfigBroker
from support.config_client import ConfigClient, entries
from support.config_recording import Recording, differences
from support.config_scenario import TOPICS, play
from support.kafka import RealKafka
from support.kafka_programs import KAFKA_4_4, kafka_tool
from support.no_engine import NoEngine

pytestmark = [pytest.mark.kafka, pytest.mark.usefixtures("kafka_4_4_jars")]

GOLDEN = Path(__file__).parents[1] / "golden" / "configs.json.xz"
TOPIC, BROKER, LOGGER, GROUP = 2, 4, 8, 32
#: Loggers that the real Kafka has at DEBUG here (`tools/realkafka/log4j2-server.xml`).
DEBUGGED = {
    *("kafka.log.LogCleaner", "kafka.log.LogManager"),
    "org.apache.kafka.storage.internals.log.LogManager",
}


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory, kafka_4_4_jars: Path) -> Iterator[RealKafka]:
    assert kafka_4_4_jars
    with RealKafka(tmp_path_factory.mktemp("configs"), version=KAFKA_4_4) as running:
        yield running


@pytest.fixture(scope="module")
def recording(kafka: RealKafka) -> Recording:
    return Recording.of(kafka)


def test_a_running_kafka_still_answers_as_recorded(recording: Recording) -> None:
    kept = Recording.read(GOLDEN)
    assert recording.properties == kept.properties
    assert dict(recording.answers) == dict(kept.answers)


def test_cordwood_answers_as_the_running_kafka(recording: Recording) -> None:
    broker = ConfigBroker(recording.properties, TOPICS)
    assert differences(recording.answers, broker) == []


@pytest.mark.usefixtures("recording")
def test_documentation_comes_where_kafka_gives_any(kafka: RealKafka) -> None:
    broker = ConfigBroker(Recording.read(GOLDEN).properties, TOPICS)
    asked = ((TOPIC, "plain"), (BROKER, "1"), (BROKER, ""), (GROUP, "g"))
    with ConfigClient("127.0.0.1", kafka.port) as client:
        theirs = client.describe(*asked, documentation=True)
    for expected, actual in zip(theirs, broker.describe(*asked, documentation=True), strict=True):
        ours = entries(actual)
        for name, entry in entries(expected).items():
            assert ours[name]["documented"] == entry["documented"], name


@pytest.mark.usefixtures("recording")
def test_levels_of_loggers_are_told_as_kafka_tells_them(kafka: RealKafka) -> None:
    broker = ConfigBroker(Recording.read(GOLDEN).properties, TOPICS)
    with ConfigClient("127.0.0.1", kafka.port) as client:
        theirs = entries(client.describe((LOGGER, "1"))[0])
    ours = entries(broker.describe((LOGGER, "1"))[0])
    common = ours.keys() & theirs.keys()
    assert {"root", "kafka.server.KafkaApis"} <= common
    for name in common - DEBUGGED:
        assert ours[name] == theirs[name], name


def test_a_request_with_an_unknown_kind_fails_as_a_whole(
    kafka: RealKafka, recording: Recording
) -> None:
    broker = ConfigBroker(recording.properties, TOPICS)
    asked = ((TOPIC, "plain"), (99, "x"))
    with ConfigClient("127.0.0.1", kafka.port) as client:
        assert broker.describe(*asked) == client.describe(*asked)


@pytest.mark.parametrize("more", [(), ("--all",)], ids=["set", "all"])
@pytest.mark.parametrize(
    "entity",
    [
        ("--entity-type", "topics"),
        ("--entity-type", "brokers"),
        ("--entity-type", "brokers", "--entity-default"),
    ],
)
@pytest.mark.usefixtures("recording")
def test_kafkas_tool_prints_the_same_lines(
    kafka: RealKafka, beside: RunningBroker, entity: tuple[str, ...], more: tuple[str, ...]
) -> None:
    printed = [
        kafka_tool(
            *("configs", "--bootstrap-server", address, "--describe", *entity, *more),
            version=KAFKA_4_4,
        )
        for address in (kafka.bootstrap_servers, beside.bootstrap_servers)
    ]
    theirs, ours = (_settled(each.stdout) for each in printed)
    assert len(theirs) > 1
    assert ours == theirs


@pytest.fixture(scope="module")
def beside(recording: Recording) -> Iterator[RunningBroker]:
    """A Cordwood with the settings of the real Kafka, static and recorded ones."""
    static = {
        name: text
        for name, text in recording.properties.items()
        if name not in {"log.dirs", "listeners", "advertised.listeners"}
    }
    unknown = BrokerSettings(static, source="here").unknown
    known = {name: text for name, text in static.items() if name not in unknown}
    made = RunningBroker(known, engine=NoEngine)
    # As `cordwood serve` has them, which warns of those that it does not know, and starts.
    made.settings = BrokerSettings({**made.settings.given, **static}, source="here")
    with made as broker:
        port = int(broker.bootstrap_servers.rpartition(":")[2])
        with ConfigClient("127.0.0.1", port) as client:
            for name in TOPICS:
                client.create(name, {})
            for _ in play(client):
                pass
        yield broker


_RUN_BY_RUN = re.compile(
    r"((advertised\.)?listeners|log\.dirs|controller\.quorum\.voters)=.*|log\.initial\.task\.delay\.ms=.*"
)


def _settled(text: str) -> list[str]:
    """The lines but those about ports and directories, and about what the fixture sets."""
    return [line for line in text.splitlines() if not _RUN_BY_RUN.match(line.strip())]
