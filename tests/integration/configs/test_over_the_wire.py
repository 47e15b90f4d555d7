"""The same answers from a running broker, over its socket and with its controller."""

from __future__ import annotations

from pathlib import Path

import pytest

from cordwood.testing.broker import RunningBroker
from support.config_broker import ConfigBroker
from support.config_client import Change, ConfigClient, entries
from support.config_recording import differences
from support.config_scenario import STATIC_PROPERTIES, TOPICS, play
from support.no_engine import NoEngine

TOPIC, BROKER = 2, 4


def client_of(broker: RunningBroker) -> ConfigClient:
    return ConfigClient("127.0.0.1", int(broker.bootstrap_servers.rpartition(":")[2]))


def test_a_running_broker_answers_as_its_parts_do(tmp_path: Path) -> None:
    known = {name: text for name, text in STATIC_PROPERTIES.items() if name != "my.own.key"}
    with (
        RunningBroker(known, log_dir=tmp_path, engine=NoEngine) as broker,
        client_of(broker) as client,
    ):
        for name in TOPICS:
            assert client.create(name, {})["error"] == 0
        alone = ConfigBroker(broker.settings.given, TOPICS)
        expected = list(play(alone))
        assert differences(expected, client) == []


def test_settings_outlive_the_broker(tmp_path: Path) -> None:
    with RunningBroker(log_dir=tmp_path, engine=NoEngine) as broker, client_of(broker) as client:
        assert client.create("t", {"retention.ms": "1000"})["error"] == 0
        change = [Change("log.segment.bytes", "2097152")]
        assert client.alter((BROKER, "", change))[0]["error"] == 0
    with RunningBroker(log_dir=tmp_path, engine=NoEngine) as broker, client_of(broker) as client:
        topic = entries(client.describe((TOPIC, "t"))[0])
        assert (topic["retention.ms"]["value"], topic["retention.ms"]["source"]) == ("1000", 1)
        assert (topic["segment.bytes"]["value"], topic["segment.bytes"]["source"]) == (
            "2097152",
            3,
        )


@pytest.mark.parametrize("settings", [{"retention.ms": "x"}, {"foo": "bar"}])
def test_a_topic_with_wrong_settings_is_not_made(
    tmp_path: Path, settings: dict[str, str | None]
) -> None:
    with RunningBroker(log_dir=tmp_path, engine=NoEngine) as broker, client_of(broker) as client:
        assert client.create("t", settings)["error"] == 40
        assert client.describe((TOPIC, "t"))[0]["error"] == 3


def test_a_controller_that_listens_goes_on_to_do_so(tmp_path: Path) -> None:
    both = {"listeners": "PLAINTEXT://127.0.0.1:0,CONTROLLER://127.0.0.1:0"}
    change = [Change("listeners", "PLAINTEXT://127.0.0.1:0")]
    with (
        RunningBroker(both, log_dir=tmp_path, engine=NoEngine) as broker,
        client_of(broker) as client,
    ):
        (answer,) = client.alter((BROKER, "1", change))
        assert answer["error"] == 42
        assert answer["message"] == (
            "requirement failed: controller.listener.names must contain at least one value "
            "appearing in the 'listeners' configuration when running the KRaft controller role"
        )
        same = [Change("listeners", both["listeners"])]
        assert client.alter((BROKER, "1", same))[0]["error"] == 0
