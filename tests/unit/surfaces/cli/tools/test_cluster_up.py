"""`cordwood cluster up` without a process: its flags, and its summary."""

from __future__ import annotations

import io
from pathlib import Path

import pytest

from cordwood.model.errors import ConfigError
from cordwood.surfaces.cli.tools import cluster
from cordwood.surfaces.cli.tools.cluster_up import USAGE, Request, requested, summary
from cordwood.surfaces.cli.tools.tool import Terminal
from cordwood.surfaces.local_cluster.described import DescribedCluster, DescribedNode


def asked(*arguments: str) -> Request:
    return requested(USAGE.parse(arguments))


def run(*arguments: str) -> tuple[int, str, str]:
    """The exit code of `cordwood cluster`, its output and its errors."""
    out, err = io.BytesIO(), io.BytesIO()
    code = cluster.run(list(arguments), Terminal(io.BytesIO(), out, err))
    return code, out.getvalue().decode(), err.getvalue().decode()


def test_without_flags_there_are_three_brokers_at_kafkas_port_in_a_temporary_directory() -> None:
    options, directory = asked()
    assert directory is None
    assert (options.brokers, options.kafka_brokers, options.base_port) == (3, 0, 9092)
    assert not options.has_test_clock
    assert not options.properties


def test_flags_are_what_the_cluster_consists_of(tmp_path: Path) -> None:
    options, directory = asked(
        *("--brokers", "5", "--dir", str(tmp_path), "--port", "0", "--test-clock"),
        *("--set", "num.partitions=3", "--set=log.dirs.x = a=b"),
    )
    assert directory == tmp_path
    assert (options.brokers, options.base_port, options.has_test_clock) == (5, 0, True)
    assert options.properties == {"num.partitions": "3", "log.dirs.x": "a=b"}


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (["--controllers", "3"], "has 1 controller"),
        (["--brokers", "0"], "0 brokers: expected 1 to 50"),
        (["--set", "num.partitions"], "--set num.partitions: expected KEY=VALUE"),
        (["--with-kafka", "1", "--kafka-home", "/nowhere"], "/nowhere is not an installation"),
    ],
)
def test_what_cannot_be_started_is_refused(arguments: list[str], why: str) -> None:
    with pytest.raises(ConfigError, match=why):
        asked(*arguments)


def test_without_an_installation_kafkas_brokers_are_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("KAFKA_HOME", raising=False)
    code, _, error = run("up", "--with-kafka", "1")
    assert code == 1
    assert error.startswith("cordwood cluster up: brokers of Kafka need an installation of Kafka")


def test_help_has_the_flags_the_exit_codes_and_examples() -> None:
    code, text, _ = run("up", "--help")
    assert code == 0
    assert text.startswith("Usage: cordwood cluster up [OPTION]...")
    for expected in ("--brokers N", "--with-kafka K", "Exit codes: 0 stopped by a signal", "  cor"):
        assert expected in text


def test_kafkas_tool_names_the_command() -> None:
    code, text, _ = run("--help")
    assert code == 0
    assert "cordwood cluster up --brokers 3" in text


CLUSTER = DescribedCluster(
    cluster_id="abc",
    directory="/tmp/c",
    bootstrap_servers="127.0.0.1:9092",
    nodes=[
        DescribedNode(
            node_id=100,
            role="controller",
            kind="Cordwood",
            address="127.0.0.1:9093",
            health="ok",
            pid=7,
            http_url="http://127.0.0.1:9464",
            log_file="/tmp/c/controller-100/server.log",
            log_dir="/tmp/c/controller-100/data",
        ),
        DescribedNode(
            node_id=1,
            role="broker",
            kind="Kafka",
            address="127.0.0.1:9092",
            health="fenced",
            pid=12345,
            http_url=None,
            log_file="/tmp/c/broker-1/server.log",
            log_dir="/tmp/c/broker-1/data",
        ),
    ],
)


def test_the_summary_has_a_line_for_each_node() -> None:
    lines = summary(CLUSTER, width=None, is_temporary=False)
    title, header, controller, broker, clients, end = lines
    assert title == "Cluster abc in /tmp/c"
    assert header.split() == ["node", "role", "kind", "address", "health", "pid", "HTTP", "log"]
    assert controller.split()[:6] == ["100", "controller", "Cordwood", "127.0.0.1:9093", "ok", "7"]
    assert broker.split() == [
        *("1", "broker", "Kafka", "127.0.0.1:9092", "fenced", "12345"),
        "/tmp/c/broker-1/server.log",
    ]
    assert clients == "For clients: --bootstrap-server 127.0.0.1:9092"
    assert end == "Ctrl-C stops it."


def test_the_summary_says_that_a_temporary_directory_is_removed() -> None:
    assert summary(CLUSTER, width=None, is_temporary=True)[0].endswith("/tmp/c, removed at the end")
