"""A question asks all brokers of a cluster; a change is for the broker that was named."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient
from typer.testing import CliRunner, Result

from cordwood.surfaces.cli.main import app
from support.kafka import poll_until
from support.mixed_cluster import MixedCluster

QUESTIONS = (("explain",), ("whatif", "--set", "orders:retention.ms=1000"))


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MixedCluster]:
    root = tmp_path_factory.mktemp("cluster")
    trash = {node_id: {"cordwood.trash.dir": str(root / f"trash-{node_id}")} for node_id in (1, 2)}
    with MixedCluster(
        root,
        cordwood=(1, 2),
        has_own_controller=True,
        properties={"cordwood.trash.ms": "60000"},
        properties_of=trash,
    ) as found:
        found.create_topic("orders", found.spread(1))
        yield found


def run(*arguments: str) -> Result:
    return CliRunner().invoke(app, list(arguments))


@pytest.mark.parametrize("question", QUESTIONS, ids=lambda words: words[0])
def test_all_brokers_of_a_cluster_are_asked_and_their_answers_are_one(
    cluster: MixedCluster, question: Sequence[str]
) -> None:
    said = run(*question, "--bootstrap-server", cluster.brokers[2].bootstrap_servers, "--json")
    assert said.exit_code == 0, said.stderr
    assert said.stderr == ""
    answer = json.loads(said.stdout)
    assert "broker" not in answer
    assert [each["node_id"] for each in answer["brokers"]] == [1, 2]
    assert [each["not_asked"] for each in answer["brokers"]] == [[], []]
    replicas = [each for each in answer["partitions"] if each["topic"] == "orders"]
    assert [(each["partition"], each["node_id"]) for each in replicas] == [(0, 1), (0, 2)]
    assert len({each["log_dir"] for each in replicas}) == 2
    shown = run(*question, "--bootstrap-server", cluster.brokers[2].bootstrap_servers)
    assert "Broker: 1 of cluster" in shown.stdout
    assert "orders-0 on broker 2" in shown.stdout


def test_a_broker_of_the_cluster_that_does_not_answer_is_named(cluster: MixedCluster) -> None:
    broker = cluster.brokers[1]
    broker.stop()
    try:
        said = run("explain", "--bootstrap-server", cluster.brokers[2].bootstrap_servers, "--json")
    finally:
        cluster.start(1, cordwood=True)
        cluster.wait_until_in_sync("orders")
    assert said.exit_code == 0, said.stderr
    answer = json.loads(said.stdout)
    (asked,) = answer.get("brokers") or [answer["broker"]]
    assert asked["node_id"] == 2
    if asked["not_asked"]:  # it is fenced, and still known
        assert "Not asked, with their replicas: broker 1 (" in said.stderr


@pytest.mark.parametrize("question", QUESTIONS, ids=lambda words: words[0])
def test_a_question_to_one_broker_says_which_are_not_addressed(
    cluster: MixedCluster, question: Sequence[str]
) -> None:
    log_dir = str(cluster.brokers[1].log_dirs[0])
    said = run(*question, "--log-dir", log_dir, "--json")
    assert said.exit_code == 0, said.stderr
    assert said.stderr.startswith("Only broker 1 is addressed.")
    answer = json.loads(said.stdout)
    assert [each["node_id"] for each in answer["broker"]["not_asked"]] == [2]
    assert not any("node_id" in each for each in answer["partitions"])


@pytest.mark.parametrize("node_id", [1, 2])
def test_a_clock_is_that_of_the_broker_at_the_address_and_the_others_are_named(
    cluster: MixedCluster, node_id: int
) -> None:
    broker, other = cluster.brokers[node_id], cluster.brokers[3 - node_id]
    said = run("clock", "--bootstrap-server", broker.bootstrap_servers, "--json")
    assert said.exit_code == 0, said.stderr
    assert said.stderr == (
        f"Only broker {node_id} is addressed. Not addressed, with their replicas: "
        f"broker {3 - node_id} ({other.bootstrap_servers}); address each of them, too\n"
    )
    answer = json.loads(said.stdout)
    assert answer["broker"]["node_id"] == node_id
    assert [each["node_id"] for each in answer["broker"]["not_asked"]] == [3 - node_id]


def test_the_cleaners_of_all_brokers_are_shown(cluster: MixedCluster) -> None:
    settings = {"cleanup.policy": "compact"}
    cluster.create_topic("table", cluster.spread(1), settings)
    command = ("cleaner", "--bootstrap-server", cluster.brokers[2].bootstrap_servers)
    said = run(*command, "--topic", "table", "--json")
    assert (said.exit_code, said.stderr) == (0, "")
    answers = json.loads(said.stdout)["brokers"]
    assert [each["broker"]["node_id"] for each in answers] == [1, 2]
    assert [[log["topic"] for log in each["partitions"]] for each in answers] == [["table"]] * 2
    shown = run(*command).stdout
    assert shown.index("Broker: 1 of cluster") < shown.index("Broker: 2 of cluster")
    assert shown.count("table-0") >= 2


@pytest.mark.parametrize("node_id", [1, 2])
def test_the_other_ways_to_name_a_broker_name_the_others_too(
    cluster: MixedCluster, node_id: int
) -> None:
    log_dir = str(cluster.brokers[node_id].log_dirs[0])
    by_directory = run("clock", "--log-dir", log_dir, "--json")
    assert by_directory.exit_code == 0, by_directory.stderr
    assert f"Only broker {node_id} is addressed." in by_directory.stderr
    identity = json.loads(by_directory.stdout)["broker"]
    by_url = run("clock", "--url", identity["http_url"], "--json")
    assert json.loads(by_url.stdout)["broker"] == identity


def test_holds_are_added_at_the_broker_that_was_named(cluster: MixedCluster) -> None:
    second = ("--bootstrap-server", cluster.brokers[2].bootstrap_servers, "--json")
    added = run("hold", "add", "--topic", "orders", "--id", "case", "--reason", "court", *second)
    assert added.exit_code == 0, added.stderr
    assert [each["id"] for each in json.loads(added.stdout)["holds"]] == ["case"]
    first = ("--log-dir", str(cluster.brokers[1].log_dirs[0]), "--json")
    assert json.loads(run("hold", "list", *first).stdout)["holds"] == []
    everywhere = ("--bootstrap-server", cluster.brokers[1].bootstrap_servers)
    (hold,) = json.loads(run("hold", "list", *everywhere, "--json").stdout)["holds"]
    assert (hold["id"], hold["node_id"]) == ("case", 2)
    assert "orders on broker 2" in run("hold", "list", *everywhere).stdout


def test_an_erasure_is_done_by_the_broker_that_was_named(
    cluster: MixedCluster, tmp_path: Path
) -> None:
    cluster.create_topic("erased", cluster.spread(1))
    cluster.wait_until_in_sync("erased")
    address = cluster.brokers[2].bootstrap_servers
    report = tmp_path / "report.json"
    what = ("--topic", "erased", "--key", "a", "--report", str(report))
    said = run("erase", "--bootstrap-server", address, *what)
    assert said.exit_code == 1
    assert "Only broker 2 is addressed." in said.stderr
    assert "erased-0 on broker 1" in json.loads(report.read_text())["failed"]


def test_the_trashes_of_all_brokers_are_listed(cluster: MixedCluster) -> None:
    cluster.create_topic("gone", cluster.spread(1))
    admin = AdminClient(cluster.client())
    for deleted in admin.delete_topics(["gone"]).values():
        deleted.result()
    command = ("trash", "list", "--bootstrap-server", cluster.brokers[2].bootstrap_servers)

    def removals() -> list[dict[str, Any]]:
        said = run(*command, "--topic", "gone", "--json")
        assert (said.exit_code, said.stderr) == (0, "")
        found: list[dict[str, Any]] = json.loads(said.stdout)["removals"]
        return found

    poll_until(lambda: len(removals()) == 2, timeout_s=30, what="both have noted the topic")
    assert sorted(each["node_id"] for each in removals()) == [1, 2]
    shown = run(*command).stdout
    assert shown.startswith("Trash of all brokers\n")
    assert "gone on broker 1" in shown
