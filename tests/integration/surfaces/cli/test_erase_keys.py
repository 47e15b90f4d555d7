"""Report of `cordwood erase` on each key, topics by glob, trashes and other brokers."""

from __future__ import annotations

import json
import os
import pwd
from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from typer.testing import CliRunner, Result

from cordwood.cleanup.erasure.ledger import LEDGER_NAME, read_ledger
from cordwood.surfaces.cli.main import app
from cordwood.surfaces.cli.user import user_name
from cordwood.testing.broker import RunningBroker
from cordwood.testing.cluster import Cluster
from support.clean import digest_tree
from support.erasing import KEY, VALUE, erasable_log, sweep
from support.in_process_engine import CompiledEngine
from support.log_builder import write_log_dir
from support.scrape import probed


def run(*arguments: object, code: int = 0, stdin: bytes = b"") -> Result:
    runner = CliRunner(env={"COLUMNS": "200", "USER": "ada"})
    result = runner.invoke(app, ["erase", *map(str, arguments)], input=stdin)
    assert result.exit_code == code, result.output
    return result


@pytest.fixture
def log_dir(tmp_path: Path) -> Path:
    return write_log_dir(tmp_path / "data", [erasable_log("t-0"), erasable_log("u-0")])


def test_a_report_that_is_there_is_not_overwritten(log_dir: Path, tmp_path: Path) -> None:
    report = tmp_path / "r.json"
    arguments = (log_dir, "--topic", "t", "--key", KEY.decode(), "--report", report)
    run(*arguments)
    proof, before = report.read_bytes(), digest_tree(log_dir)
    said = run(*arguments, code=2).output
    assert f"--report {report}: there is a file, which may prove an earlier erasure" in said
    assert report.read_bytes() == proof
    assert digest_tree(log_dir) == before
    assert json.loads(proof)["partitions"][0]["erased"] == 43
    (entry,) = read_ledger(log_dir / LEDGER_NAME).entries
    assert entry.erased == {"t-0": 43}


def test_each_key_has_a_count_and_one_that_no_record_has_is_said(
    log_dir: Path, tmp_path: Path
) -> None:
    keys = tmp_path / "keys"
    keys.write_bytes(b"other-1\n\nnobody-4712\n")
    arguments = (log_dir, "--topic", "t", "--key", KEY.decode(), "--key-file", keys)
    planned = run(*arguments, "--dry-run", code=1).output
    assert "Would be erased" in planned
    done = run(*arguments, "--report", tmp_path / "r.json", code=1)
    rows = [line.split() for line in done.stdout.splitlines()]
    assert ["--key", "43"] in rows
    assert [f"{keys},", "line", "1", "1"] in rows
    assert [f"{keys},", "line", "3", "0"] in rows
    assert f"warning: {keys}, line 3: no record has this key" in done.output
    report = json.loads((tmp_path / "r.json").read_bytes())
    assert sorted(report["keys"].values()) == [0, 1, 43]
    assert set(report["keys"]) == set(report["criteria"][0]["keys"]["hashes"])
    for secret in (KEY, b"other-1", b"nobody"):
        assert secret not in (tmp_path / "r.json").read_bytes()
        assert secret.decode() not in done.output
    again = run(log_dir, "--topic", "t", "--key", KEY.decode(), code=1).output
    assert "warning: --key: no record has this key" in again
    assert "0 records erased" in again


def test_keys_come_from_standard_input(log_dir: Path) -> None:
    run(log_dir, "--topic", "t", "--key-file", "-", stdin=KEY + b"\n")
    assert {name.partition("/")[0] for name in sweep(log_dir, KEY, VALUE)} == {"u-0"}
    assert "has no key" in run(log_dir, "--topic", "t", "--key-file", "-", code=2).output


@pytest.mark.parametrize("where", [["--all-topics"], ["--topic", "[tu]"], ["--topic", "*:0"]])
def test_all_topics_are_searched_and_the_ledger_names_each(log_dir: Path, where: list[str]) -> None:
    said = run(log_dir, *where, "--key", KEY.decode()).output
    assert "86 records erased and searched for again" in said
    assert {name.partition("/")[0] for name in sweep(log_dir, KEY, VALUE)} == set()
    (entry,) = read_ledger(log_dir / LEDGER_NAME).entries
    assert [target.topic for target in entry.targets] == ["t", "u"]
    assert "no partition of it is in" in run(log_dir, "--topic", "x*", "--key", "k", code=2).output


def produce(servers: str, topic: str) -> None:
    producer = Producer({"bootstrap.servers": servers, "acks": "all"})
    for number in range(20):
        producer.produce(topic, VALUE, KEY if number % 2 else b"other", partition=0)
    assert producer.flush(60) == 0


def test_all_topics_of_a_running_broker_are_those_of_its_users(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    with RunningBroker(log_dir=tmp_path / "data", engine=CompiledEngine) as broker:
        for topic in ("one", "two"):
            produce(broker.bootstrap_servers, topic)
        with probed(broker) as probe:
            said = run("--url", probe.url, "--all-topics", "--key", KEY.decode()).output
            missed = run("--url", probe.url, "--all-topics", "--key", "nobody", code=1).output
    assert "20 records erased and searched for again" in said
    assert "warning: --key: no record has this key" in missed


def test_a_trash_that_a_broker_has_used_is_searched_or_named(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    settings = {"cordwood.trash.dir": str(tmp_path / "trash"), "node.id": "1"}
    with RunningBroker(settings, log_dir=tmp_path / "data") as broker:
        for topic in ("gone", "kept"):
            produce(broker.bootstrap_servers, topic)
        admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
        for done in admin.delete_topics(["gone"]).values():
            done.result()
        broker.advance(minutes=2)
    assert sweep(tmp_path / "trash", KEY)
    away = (tmp_path / "trash").rename(tmp_path / "away")
    said = run(tmp_path / "data", "--topic", "kept", "--key", KEY.decode(), code=1).output
    assert f"{tmp_path / 'trash'}: failed: a broker has used this trash, which is missing" in said
    assert "10 records erased and searched for again" in said
    away.rename(tmp_path / "trash")
    run(tmp_path / "data", "--topic", "gone", "--key", KEY.decode())
    assert sweep(tmp_path / "trash", KEY) == []


def test_replicas_on_other_brokers_are_named_by_a_stopped_one(tmp_path: Path) -> None:
    with Cluster(2, directory=tmp_path / "cluster") as cluster:
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers})
        for made in admin.create_topics([NewTopic("shared", 1, 2)]).values():
            made.result()
        produce(cluster.bootstrap_servers, "shared")
        first, second = (broker.log_dir for broker in cluster.brokers.values())
    named = ("--topic", "shared", "--key", KEY.decode())
    report = tmp_path / "r.json"
    said = run(first, *named, "--report", report, code=1).output
    assert "shared-0 on broker 2: failed: this replica was not addressed" in said
    assert "10 records erased and searched for again" in said
    assert json.loads(report.read_bytes())["status"] == "failed"
    assert sweep(second, KEY)
    assert "shared-0 on broker 1" in run(second, *named, code=1).output
    assert sweep(second / "shared-0", KEY) == []


def test_the_user_has_a_name_without_a_variable(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for variable in ("SUDO_USER", "USER", "LOGNAME"):
        monkeypatch.delenv(variable, raising=False)
    assert user_name() == pwd.getpwuid(os.getuid()).pw_name
    monkeypatch.setattr(os, "getuid", lambda: 4_000_000)
    assert user_name() == "4000000"
    log_dir = write_log_dir(tmp_path / "data", [erasable_log("t-0")])
    arguments = ["erase", log_dir, "--topic", "t", "--key", KEY.decode(), "--json"]
    result = CliRunner().invoke(app, list(map(str, arguments)))
    assert json.loads(result.stdout)["operator"] == "4000000"
    held = CliRunner().invoke(app, ["hold", "add", str(log_dir), "--topic", "t", "--json"])
    assert json.loads(held.stdout)["holds"][0]["by"] == "4000000"
