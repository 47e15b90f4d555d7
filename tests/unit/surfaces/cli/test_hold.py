"""`cordwood hold`, on stopped directories and at a running broker."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from typer.testing import CliRunner, Result

from cordwood.format.file_names import HOLDS_FILE
from cordwood.model.audit import HoldReleased
from cordwood.storage.filesystem import DirectoryLock
from cordwood.surfaces.cli.main import app
from cordwood.testing.broker import RunningBroker
from support.ask import ask
from support.audit_events import audit_events
from support.clean_case import log_dir
from support.in_process_engine import CompiledEngine
from support.log_builder import NOW_MS
from support.scrape import Probe, probed
from support.served import ServedBroker

SMALL = {
    "segment.ms": "60000",
    "retention.ms": "120000",
    "min.cleanable.dirty.ratio": "0.01",
    "message.timestamp.type": "LogAppendTime",
}


def run(*arguments: object, code: int = 0) -> Result:
    wide = {"COLUMNS": "200", "USER": "ada"}
    result = CliRunner(env=wide).invoke(app, [str(each) for each in arguments])
    assert result.exit_code == code, result.output
    return result


def holds_in(*where: object) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(run("hold", "list", *where, "--json").stdout)["holds"]
    return found


# ---- stopped


def test_a_stopped_directory_is_held_and_released(tmp_path: Path) -> None:
    roots = log_dir(tmp_path / "one", "x-0", "y-0"), log_dir(tmp_path / "two", "x-1")
    added = run("hold", "add", *roots, "--topic", "x", "--id", "case-7", "--reason", "No. 7")
    said, _, rest = added.stdout.partition("Holds\n")
    assert said.splitlines()[0] == "Added: x is held by case-7."
    assert "A Kafka that runs on a log directory, or has another replica, ignores holds." in said
    assert "case-7" in rest
    for words in (["--help"], ["add", "--help"]):
        assert "ignores holds" in " ".join(run("hold", *words).output.split())
    run("hold", "add", roots[0], "--topic", "y:0")
    (first, second) = holds_in(*roots)
    assert first["log_dirs"] == [str(root) for root in roots]
    assert (first["by"], first["reason"], first["partition"]) == ("ada", "No. 7", None)
    assert second["log_dirs"] == [str(roots[0])]
    assert (second["target"], second["id"][:5]) == ("y:0", "hold-")
    text = run(
        *("clean", roots[0], "--defaults", "--set", "log.retention.hours=48"),
        *("--now", NOW_MS, "--retention-only"),
    ).output
    assert "x-0: held: case-7" in text
    assert f"y-0: held: {second['id']}" in text
    assert "2 held; freed 0 in" in text
    assert run("hold", "release", *roots, "--id", "case-7").stdout.startswith("Released: case-7.")
    assert [each["id"] for each in holds_in(*roots)] == [second["id"]]
    run("hold", "release", *roots, "--id", second["id"])
    assert run("hold", "list", *roots).stdout == "No holds.\n"


def test_a_release_is_noted_with_who_released_and_what_was_held(tmp_path: Path) -> None:
    root, file = log_dir(tmp_path / "logs", "x-0"), tmp_path / "audit"
    run("hold", "add", root, "--topic", "x", "--id", "case-7", "--reason", "No. 7")
    noted = ["hold", "--audit-log", file, "release", root, "--id", "case-7"]
    run(*noted)
    assert " INFO Released the hold case-7 on x by ada, which ada added at " in file.read_text()
    run(*noted, code=2)
    assert len(file.read_text().splitlines()) == 1


def test_wrong_use_is_refused_with_what_to_do(tmp_path: Path) -> None:
    root = log_dir(tmp_path / "logs", "x-0")
    for arguments, says in (
        (("add", root, "--topic", "z"), f"--topic z: there is no such log in {root}"),
        (("add", root, "--topic", "x:1"), "--topic x:1: there is no such log"),
        (("add", root, "--topic", "x", "--id", "a b"), "--id 'a b': expected 1 to 100"),
        (("add", root, "--topic", "x", "--reason", "a\nb"), "--reason: expected one line"),
        (("add", root / "x-0", "--topic", "x"), f"holds are in the log directory {root}"),
        (("add", root, "--topic", "x", "--log-dir", root), "LOG_DIR is of a stopped broker"),
        (("release", root, "--id", "b"), "--id b: there is no such hold; there are: none"),
        (("list",), "which broker? Give one of --log-dir"),
    ):
        assert says in run("hold", *arguments, code=2).output
    assert not (root / HOLDS_FILE).exists()
    assert not (root / ".lock").exists()


def test_a_directory_in_use_is_listed_and_not_changed(tmp_path: Path) -> None:
    root = log_dir(tmp_path / "logs", "x-0")
    run("hold", "add", root, "--topic", "x", "--id", "a")
    lock = DirectoryLock(root)
    try:
        assert [each["id"] for each in holds_in(root)] == ["a"]
        refused = run("hold", "release", root, "--id", "a", code=3).output
        assert "a Cordwood broker that runs is named by --log-dir" in refused
    finally:
        lock.release()


def test_damaged_holds_are_named_and_nothing_is_cleaned(tmp_path: Path) -> None:
    root = log_dir(tmp_path / "logs", "x-0")
    run("hold", "add", root, "--topic", "x", "--id", "a")
    damaged = (root / HOLDS_FILE).read_bytes()[:-4]
    (root / HOLDS_FILE).write_bytes(damaged)
    for arguments in (
        ("list", root),
        ("add", root, "--topic", "x"),
        ("release", root, "--id", "a"),
    ):
        said = run("hold", *arguments, code=1).output
        assert f"{root / HOLDS_FILE}: not a file of legal holds" in said
        assert "Put back a copy of it" in said
    said = run("clean", root, "--defaults", "--retention-only", code=1).output
    assert f"x-0: failed: {root / HOLDS_FILE}: not a file of legal holds" in said
    assert (root / HOLDS_FILE).read_bytes() == damaged


# ---- running


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[RunningBroker]:
    with RunningBroker(log_dir=tmp_path / "logs", engine=CompiledEngine) as running:
        yield running


@pytest.fixture
def probe(broker: RunningBroker) -> Iterator[Probe]:
    with probed(broker) as found:
        yield found


def admin_of(broker: RunningBroker) -> AdminClient:
    return AdminClient({"bootstrap.servers": broker.bootstrap_servers})


def create(broker: RunningBroker, topic: str, policy: str) -> None:
    admin = admin_of(broker)
    new = NewTopic(topic, 1, 1, config=SMALL | {"cleanup.policy": policy})
    for made in admin.create_topics([new]).values():
        made.result()


def fill(broker: RunningBroker, topic: str, policy: str) -> None:
    """Three segments of one key each, and an active one."""
    create(broker, topic, policy)
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "log_level": "0"})
    for number in range(4):
        producer.produce(topic, b"%d" % number, key=b"k")
        assert producer.flush(30) == 0
        broker.advance(seconds=61, compact=False)


def logs_in(broker: RunningBroker, partition: str) -> dict[str, bytes]:
    directory = broker.log_dir / partition
    return {path.name: path.read_bytes() for path in directory.glob("*.log")}


def test_nothing_of_a_held_topic_goes_until_it_is_released(
    broker: RunningBroker, probe: Probe
) -> None:
    for topic, policy in (("kept", "delete"), ("table", "compact")):
        create(broker, topic, policy)
    for topic in ("kept", "table:0"):
        run("hold", "add", "--url", probe.url, "--topic", topic, "--id", f"of-{topic[:4]}")
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "log_level": "0"})
    for number in range(4):
        for topic in ("kept", "table"):
            producer.produce(topic, b"%d" % number, key=b"k")
        assert producer.flush(30) == 0
        broker.advance(minutes=2)
    broker.advance(days=1)
    kept, table = logs_in(broker, "kept-0"), logs_in(broker, "table-0")
    assert (len(kept), len(table)) == (4, 4)
    assert [each["id"] for each in holds_in("--url", probe.url)] == ["of-kept", "of-tabl"]
    shown = " ".join(run("cleaner", "--url", probe.url).output.split())
    assert "Held: kept by of-kept:" in shown
    assert "held: of-tabl" in shown
    assert probe.scrape().value("cordwood_log_holds", topic="kept", partition="0") == 1

    with audit_events() as events:
        run("hold", "release", "--url", probe.url, "--id", "of-kept", "--by", "ann")
    (released,) = events.of(HoldReleased)
    assert (released.hold, released.added_by, released.released_by) == ("of-kept", "ada", "ann")
    run("hold", "release", "--url", probe.url, "--id", "of-tabl")
    broker.advance(minutes=10)
    assert len(logs_in(broker, "kept-0")) == 1
    assert sum(map(len, logs_in(broker, "table-0").values())) < sum(map(len, table.values()))
    assert probe.scrape().value("cordwood_log_holds", topic="kept", partition="0") == 0


def test_records_and_topics_that_are_held_cannot_be_deleted(
    broker: RunningBroker, probe: Probe, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    fill(broker, "kept", "delete")
    run("hold", "add", "--url", probe.url, "--topic", "kept", "--id", "case-7")
    admin = admin_of(broker)
    before = logs_in(broker, "kept-0")
    for done in admin.delete_records([TopicPartition("kept", 0, 4)]).values():
        with pytest.raises(KafkaException, match="POLICY_VIOLATION"):
            done.result()
    assert "Records of partition kept-0 can not be deleted: it is held: case-7" in caplog.text
    for gone in admin.delete_topics(["kept"]).values():
        with pytest.raises(KafkaException, match="POLICY_VIOLATION"):
            gone.result()
    fields = {"topics": [{"name": "kept"}], "timeout_ms": 30_000}
    (refused,) = ask(broker, "delete_topics", fields).responses
    assert refused.error_message == "Topic kept is held: case-7"
    assert logs_in(broker, "kept-0") == before
    run("hold", "release", "--url", probe.url, "--id", "case-7")
    for gone in admin.delete_topics(["kept"]).values():
        gone.result()


def test_wrong_requests_to_a_broker_are_refused_with_the_reason(
    broker: RunningBroker, probe: Probe
) -> None:
    for path, says in (
        ("/holds/add?id=a&topic=none", "--topic none: this broker has no such log"),
        ("/holds/add?id=&topic=none", "--id ''"),
        ("/holds/add?id=a&topic=none&partition=x", "--topic 'none:x'"),
        ("/holds/release?id=a", "--id a: there is no such hold"),
    ):
        answer = probe.ask(path, "POST")
        assert (answer.status, says in answer.text) == (400, True), answer
    assert probe.ask("/holds/release?id=a").status == 405
    assert probe.ask("/holds/add?id=a", "POST", {"Origin": "http://other.example"}).status == 403
    text = run("hold", "add", "--url", probe.url, "--topic", "none", code=1).output
    assert "--topic none: this broker has no such log" in text


def test_a_hold_survives_a_kill_and_a_restart(tmp_path: Path) -> None:
    served = ServedBroker(tmp_path / "logs", {"log.retention.ms": "1000"})
    served.start()
    try:
        producer = Producer({"bootstrap.servers": served.bootstrap_servers, "log_level": "0"})
        producer.produce("kept", b"first", key=b"k")
        assert producer.flush(60) == 0
        run("hold", "add", "--log-dir", served.log_dir, "--topic", "kept", "--id", "case-7")
        served.kill()
        served.start()
        run("clock", "--log-dir", served.log_dir, "--advance", "7d", "--no-wait")
        assert [each["id"] for each in holds_in("--log-dir", served.log_dir)] == ["case-7"]
        assert b"first" in (served.log_dir / "kept-0" / f"{0:020d}.log").read_bytes()
        served.stop()
        run("hold", "release", served.log_dir, "--id", "case-7")
        served.start()
        run("clock", "--log-dir", served.log_dir, "--advance", "7d", "--no-wait")
        assert not (served.log_dir / "kept-0" / f"{0:020d}.log").exists()
    finally:
        served.stop()
