"""`cordwood explain` on directories that a real Kafka wrote, and against a running broker."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from typer.testing import CliRunner, Result

from cordwood.cleanup.rules.blockers import Code
from cordwood.surfaces.cli.main import app
from cordwood.testing.broker import RunningBroker
from support.golden import Golden
from support.in_process_engine import CompiledEngine
from support.log_builder import LogBuilder, write_log_dir
from support.scrape import Probe, probed

HOUR_MS = 3_600_000


def run(*arguments: str, code: int = 0) -> Result:
    result = CliRunner(env={"COLUMNS": "200"}).invoke(app, ["explain", *arguments])
    assert result.exit_code == code, result.output
    return result


def document(*arguments: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(run(*arguments, "--json").stdout)
    return found


def partition(answer: dict[str, Any], topic: str) -> dict[str, Any]:
    (found,) = (each for each in answer["partitions"] if each["topic"] == topic)
    return dict(found)


def codes(value: dict[str, Any]) -> list[str]:
    return [each["code"] for each in value["blockers"]]


# ---- directories


@pytest.fixture
def before(golden_a: Golden) -> tuple[str, ...]:
    """The arguments for the directory before Kafka's cleaning, at the moment of it."""
    return str(golden_a.root / "before"), "--now", str(golden_a.cleaned_at_ms)


def test_what_kafka_deleted_is_deletable_and_what_it_kept_says_why(
    golden_a: Golden, before: tuple[str, ...]
) -> None:
    answer = document(*before)
    for each in answer["partitions"]:
        if "compact" in each["policy"]:
            continue
        name = f"{each['topic']}-{each['partition']}"
        left = {int(path.stem) for path in (golden_a.root / "after" / name).glob("*.log")}
        kept = {s["base_offset"] for s in each["segments"] if not s["deletable"]}
        assert kept <= left, name
        assert all(s["reason"] for s in each["segments"]), name


def test_an_open_transaction_is_named(golden_a: Golden, before: tuple[str, ...]) -> None:
    found = partition(document(*before, "--topic", "open-transaction"), "open-transaction")
    assert Code.LAST_STABLE_OFFSET in codes(found["compaction"])
    (transaction,) = found["open_transactions"]
    assert transaction["start_offset"] == found["last_stable_offset"]


def test_the_level_of_each_setting_is_said(before: tuple[str, ...]) -> None:
    options = (*before, "--topic", "retention-time", "--set", "retention-time:retention.ms=5")
    settings = partition(document(*options), "retention-time")["settings"]
    assert settings["retention.ms"] == {
        "value": "5",
        "level": "topic",
        "source": "--set",
        "key": "retention.ms",
    }
    assert settings["cleanup.policy"]["source"] == "metadata log"
    assert settings["segment.ms"]["level"] == "default"


def test_the_settings_by_which_records_are_compared_are_said(before: tuple[str, ...]) -> None:
    strategy = "cordwood.compaction.strategy"
    topic = "retention-time"
    by_header = [f"{topic}:{strategy}=header", f"{topic}:{strategy}.header=v"]
    policy = f"{topic}:cleanup.policy=compact"
    options = [word for each in (policy, *by_header) for word in ("--set", each)]
    settings = partition(document(*before, "--topic", topic, *options), topic)["settings"]
    assert settings[strategy]["value"] == "header"
    assert settings[f"{strategy}.header"]["value"] == "v"
    plain = partition(document(*before, "--topic", topic, *options[:2]), topic)["settings"]
    assert strategy not in plain


def test_a_record_and_a_key_are_answered(before: tuple[str, ...]) -> None:
    (record,) = document(*before, "--record", "codec-lz4:0:17")["records"]
    assert record["state"] == "superseded"
    assert record["superseded_by"] > 17
    answer = document(*before, "--record", "codec-lz4:0:999999")
    assert answer["records"] == []
    (log,) = answer["partitions"]
    span = f"codec-lz4-0 has offsets {log['log_start_offset']} to {log['log_end_offset'] - 1}"
    assert answer["not_found"] == f"No record has this offset yet: {span}"
    assert run(*before, "--record", "codec-lz4:0:999999").stdout.strip() == answer["not_found"]
    said = run(*before, "--topic", "one-key", "--key", "nobody").stdout
    assert said.startswith("No record has the key nobody: one-key-0 has offsets ")
    assert "no partition codec-lz4-7 here" in run(*before, "--record", "codec-lz4:7:0").stdout
    table = run(*before, "--record", "codec-lz4:0:17").stdout
    assert "the record at" in table
    key = json.loads(run(*before, "--topic", "one-key", "--key", "the-key", "--json").stdout)
    assert all(each["topic"] == "one-key" for each in key["records"])


def test_without_settings_there_is_no_table_of_zeros_and_where_settings_are_is_said(
    tmp_path: Path,
) -> None:
    root = write_log_dir(tmp_path / "logs", [LogBuilder("a-0"), LogBuilder("b-0")])
    for command in ("explain", "advise"):
        result = CliRunner(env={"COLUMNS": "200"}).invoke(app, [command, str(root)])
        assert len(result.stdout.splitlines()) == 1
        assert "--metadata-dir names where the metadata log is" in result.stderr


def test_the_table_joins_segments_that_are_alike(before: tuple[str, ...]) -> None:
    short = run(*before, "--topic", "codec-none").stdout
    long = run(*before, "--topic", "codec-none", "--all-segments").stdout
    assert "ddddddddA" in short
    assert "0 … " in short
    assert len(long.splitlines()) > len(short.splitlines())


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("--record", "t:0:1", "--key", "k", "."), "exclude each other"),
        (("--key", "k", "."), "--key needs --topic"),
        (("--record", "t", "."), "expected TOPIC:PARTITION:OFFSET"),
        ((), "Give LOG_DIR, such as /var/lib/kafka/data, or a running broker: --log-dir DIR"),
        ((".", "--url", "http://127.0.0.1:1"), "not both"),
        (("--url", "http://127.0.0.1:1", "--now", "5"), "--now needs LOG_DIR"),
    ],
)
def test_wrong_usage_is_refused(arguments: tuple[str, ...], says: str) -> None:
    assert says in run(*arguments, code=2).output


# ---- a running broker


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[RunningBroker]:
    with RunningBroker(log_dir=tmp_path, engine=CompiledEngine) as running:
        yield running


@pytest.fixture
def probe(broker: RunningBroker) -> Iterator[Probe]:
    with probed(broker) as found:
        yield found


def test_a_running_broker_says_when_and_does_so(broker: RunningBroker, probe: Probe) -> None:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    config = {"retention.ms": str(HOUR_MS), "message.timestamp.type": "LogAppendTime"}
    for done in admin.create_topics([NewTopic("t", 1, 1, config=config)]).values():
        done.result()
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "log_level": "0"})
    producer.produce("t", b"v")
    assert producer.flush(30) == 0
    answer = document("--url", probe.url, "--topic", "t")
    found = partition(answer, "t")
    assert found["settings"]["retention.ms"]["level"] == "topic"
    assert found["settings"]["segment.bytes"]["level"] == "default"
    (segment,) = found["segments"]
    assert codes(segment) == [Code.TIME]
    wait_ms = segment["goes_ms"] - answer["now_ms"]
    broker.advance(seconds=wait_ms / 1000 - 60)  # its clock goes on by itself, too
    assert partition(document("--url", probe.url), "t")["log_start_offset"] == 0
    broker.advance(seconds=60 + 300)  # log.retention.check.interval.ms
    assert partition(document("--url", probe.url), "t")["log_start_offset"] == 1
    assert "t-0: cleanup.policy=delete" in run("--url", probe.url).stdout
