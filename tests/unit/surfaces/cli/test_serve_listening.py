"""Listeners of `cordwood serve`, and the addresses for its clients."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator

import pytest
import typer
from confluent_kafka import Consumer
from confluent_kafka.admin import AdminClient, NewTopic
from typer.testing import CliRunner

from cordwood.configs.server_properties import BrokerSettings
from cordwood.model.errors import ConfigError
from cordwood.queries.identity import read_runtime_file
from cordwood.surfaces.cli.main import app
from cordwood.surfaces.cli.serve_listening import (
    HttpBindOption,
    HttpPlace,
    listening_settings,
    notices,
    without_reached,
)
from support.served import ServedBroker
from support.wire import Wire

REACHED = "cordwood.advertise.reached.address"
OPEN = {"listeners": "PLAINTEXT://0.0.0.0:9092"}


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServedBroker]:
    """A broker that listens everywhere, and advertises nothing."""
    log_dir = tmp_path_factory.mktemp("open") / "logs"
    flags = ("--bind", "0.0.0.0", "--http-bind", "0.0.0.0")
    with ServedBroker(log_dir, flags=flags) as broker:
        yield broker


@pytest.mark.parametrize(
    ("options", "settings"),
    [
        ((None, None, None), {}),
        ((None, 0, None), {"listeners": "PLAINTEXT://127.0.0.1:0"}),
        (("10.0.0.5", None, None), {"listeners": "PLAINTEXT://10.0.0.5:9092"}),
        (("::1", 7, None), {"listeners": "PLAINTEXT://[::1]:7"}),
        (("0.0.0.0", None, None), {**OPEN, REACHED: "true"}),
        (("::", None, None), {"listeners": "PLAINTEXT://[::]:9092", REACHED: "true"}),
        (("[::1]", 7, None), {"listeners": "PLAINTEXT://[::1]:7"}),
        (
            ("0.0.0.0", None, "kafka.test"),
            {**OPEN, "advertised.listeners": "PLAINTEXT://kafka.test:0"},
        ),
        (
            ("0.0.0.0", None, "kafka.test:19092"),
            {**OPEN, "advertised.listeners": "PLAINTEXT://kafka.test:19092"},
        ),
        ((None, None, "[fd00::1]:7"), {"advertised.listeners": "PLAINTEXT://[fd00::1]:7"}),
        ((None, None, "fd00::1"), {"advertised.listeners": "PLAINTEXT://[fd00::1]:0"}),
    ],
)
def test_the_options_stand_for_kafkas_settings(
    options: tuple[str | None, int | None, str | None], settings: dict[str, str]
) -> None:
    assert listening_settings(*options) == settings


def test_an_ipv6_address_for_http_may_have_brackets() -> None:
    app = typer.Typer()

    @app.command()
    def command(http_bind: HttpBindOption = "127.0.0.1") -> None:
        typer.echo(http_bind)

    for given in ("[::1]", "::1"):
        assert CliRunner().invoke(app, ["--http-bind", given]).stdout == "::1\n"
    assert CliRunner().invoke(app, []).stdout == "127.0.0.1\n"


@pytest.mark.parametrize("advertise", ["", ":9092", "0.0.0.0", "[::]:1", "host:port", "host:70000"])
def test_what_no_client_can_connect_to_is_not_advertised(advertise: str) -> None:
    with pytest.raises(ConfigError, match=r"expected HOST or HOST:PORT"):
        listening_settings("0.0.0.0", None, advertise)


def test_what_a_server_properties_advertises_wins_over_what_is_reached() -> None:
    advertised = {"advertised.listeners": "PLAINTEXT://kafka.test:9092"}
    bound = listening_settings("0.0.0.0", None, None)
    assert without_reached({**advertised, **bound}) == {**OPEN, **advertised}
    assert BrokerSettings(without_reached({**advertised, **bound})).advertises_reached is False


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"process.roles": "broker", "controller.quorum.voters": "9@c:1"}, "alone in its cluster"),
        ({"listeners": "PLAINTEXT://0.0.0.0:9092,CONTROLLER://:9093"}, "alone in its cluster"),
        ({"advertised.listeners": "PLAINTEXT://kafka.test:9092"}, "are both set"),
    ],
)
def test_a_broker_of_a_cluster_advertises_an_address(more: dict[str, str], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        BrokerSettings({**OPEN, REACHED: "true", **more})


def test_without_a_word_on_it_every_address_is_refused_as_by_kafka() -> None:
    with pytest.raises(ConfigError, match="nonroutable meta-address"):
        BrokerSettings(OPEN)


def test_a_broker_on_loopback_has_nothing_to_say_of_its_address() -> None:
    assert notices(BrokerSettings(), HttpPlace()) == []


def test_an_open_broker_warns_that_there_is_no_authentication() -> None:
    settings = BrokerSettings({**OPEN, "advertised.listeners": "PLAINTEXT://kafka.test:9092"})
    (level, warning), (_, told), (_, http) = notices(settings, HttpPlace(host="0.0.0.0"))
    assert level == logging.WARNING
    assert warning.startswith(
        "No authentication, no encryption: every client that reaches PLAINTEXT://0.0.0"
    )
    assert told == "Clients get PLAINTEXT://kafka.test:9092"
    assert "can read, but not change, what is served there" in http
    assert not notices(BrokerSettings(), HttpPlace(host="0.0.0.0", port=-1))


@pytest.mark.parametrize("host", ["127.0.0.1", "127.0.0.2"])
def test_each_client_gets_the_address_that_it_has_reached(served: ServedBroker, host: str) -> None:
    place = f"{host}:{served.port}"
    admin = AdminClient({"bootstrap.servers": place})
    told = {(each.host, each.port) for each in admin.list_topics(timeout=30).brokers.values()}
    nodes = admin.describe_cluster().result().nodes
    told |= {(each.host, each.port) for each in nodes}
    asked = {"key_type": 0, "coordinator_keys": ["g"]}
    with Wire(served.port, host=host) as wire:
        wire.ask("find_coordinator", 4, asked)  # the topic of groups is made
        answer = wire.ask("find_coordinator", 4, asked)
    (found,) = answer["coordinators"]
    assert told | {(found["host"], found["port"])} == {(host, served.port)}


def test_a_group_consumes_at_an_address_that_is_not_advertised(served: ServedBroker) -> None:
    place = f"127.0.0.3:{served.port}"
    config = {"bootstrap.servers": place, "group.id": "g", "auto.offset.reset": "earliest"}
    admin = AdminClient({"bootstrap.servers": place})
    admin.create_topics([NewTopic("t", 1)])["t"].result()
    consumer = Consumer({**config, "log_level": "0"})
    try:
        consumer.subscribe(["t"])
        while not consumer.assignment():
            consumer.poll(0.1)
        assert [each.topic for each in consumer.assignment()] == ["t"]
    finally:
        consumer.close()


def test_the_log_says_the_address_that_clients_get_and_that_nobody_is_authenticated(
    served: ServedBroker,
) -> None:
    assert (
        "No authentication, no encryption: every client that reaches PLAINTEXT://0.0.0.0:"
        in served.log
    )
    assert "Clients get the address that each has reached" in served.log
    assert "--advertise HOST[:PORT]" in served.log


def test_commands_find_the_http_endpoint_of_an_open_broker(served: ServedBroker) -> None:
    identity = read_runtime_file(served.log_dir)
    assert identity is not None
    assert identity.http_url == served.url, "an address that can be connected to"
    for address in (
        ("--log-dir", str(served.log_dir)),
        ("--bootstrap-server", f"127.0.0.2:{served.port}"),
    ):
        said = CliRunner().invoke(app, ["cleaner", *address, "--json"])
        assert said.exit_code == 0, said.output
        assert json.loads(said.stdout)["broker"]["http_url"] == served.url
