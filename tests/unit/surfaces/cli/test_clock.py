"""`cordwood clock` against a running broker."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from typer.testing import CliRunner, Result

from cordwood.model.clock import SystemClock
from cordwood.surfaces.cli.main import app
from cordwood.surfaces.cli.values import format_duration, parse_duration
from cordwood.testing.broker import RunningBroker
from support.no_engine import NoEngine
from support.ports import free_port
from support.scrape import Probe, probed

DAY_MS = 86_400_000


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[RunningBroker]:
    with RunningBroker(log_dir=tmp_path, engine=NoEngine) as running:
        yield running


@pytest.fixture
def probe(broker: RunningBroker) -> Iterator[Probe]:
    with probed(broker) as found:
        yield found


def run(*arguments: str) -> Result:
    return CliRunner().invoke(app, ["clock", *arguments])


def test_the_time_is_shown_and_whether_it_can_be_moved(probe: Probe) -> None:
    result = run("--url", probe.url)
    assert result.exit_code == 0, result.output
    assert result.stdout.endswith("Z; the clock can be moved\n")
    assert run("--now", "--url", probe.url).exit_code == 0


def test_it_says_which_broker_it_addresses(probe: Probe, broker: RunningBroker) -> None:
    first = run("--url", probe.url).stdout.splitlines()[0]
    assert first == (
        f"Broker: 1 of cluster {broker.broker.cluster_id}, process {os.getpid()}, "
        f"{broker.log_dir}, {probe.url}"
    )
    found = json.loads(run("--json", "--url", probe.url).stdout)["broker"]
    assert found["cluster_id"] == broker.broker.cluster_id
    assert found["log_dirs"] == [str(broker.log_dir)]


def test_it_is_moved_on_by_a_duration(probe: Probe, broker: RunningBroker) -> None:
    result = run("--advance", "7d", "--url", probe.url)
    assert result.exit_code == 0, result.output
    assert result.stdout.endswith("Z, 7d ahead of the machine's clock\n")
    assert broker.clock.ahead_ms == 7 * DAY_MS
    result = run("--advance", "500ms", "--no-wait", "--json", "--url", probe.url)
    assert json.loads(result.stdout)["ahead_ms"] == 7 * DAY_MS + 500 == broker.clock.ahead_ms


def test_a_broker_without_a_test_clock_says_how_to_get_one(
    probe: Probe, broker: RunningBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(broker.node, "clock", SystemClock())
    assert "without --test-clock" in run("--url", probe.url).output
    result = run("--advance", "7d", "--url", probe.url)
    assert result.exit_code == 1
    assert "403" in result.output
    assert "start it with --test-clock" in result.output


def test_it_fails_where_a_partition_is_due_for_compaction_and_cannot_be_compacted(
    probe: Probe, broker: RunningBroker
) -> None:
    config = {"cleanup.policy": "compact", "segment.ms": "1000", "min.cleanable.dirty.ratio": "0"}
    config["message.timestamp.type"] = "LogAppendTime"
    servers = {"bootstrap.servers": broker.bootstrap_servers}
    admin = AdminClient(servers)
    admin.create_topics([NewTopic("orders", 1, 1, config=config)])["orders"].result()
    producer = Producer(servers | {"log_level": "0"})
    for _ in range(2):
        producer.produce("orders", b"v", key=b"k")
        assert producer.flush(30) == 0
        broker.advance(minutes=1, compact=False)
    result = run("--advance", "1h", "--url", probe.url)
    assert result.exit_code == 1
    assert "orders-0: no engine to run 1 compactions" in result.output
    assert "--no-wait" in result.output
    assert run("--advance", "1h", "--no-wait", "--url", probe.url).exit_code == 0


def test_where_nothing_answers_it_says_what_to_start() -> None:
    result = run("--url", f"http://127.0.0.1:{free_port()}")
    assert result.exit_code == 1
    assert "nothing answers at http://127.0.0.1:" in result.output
    assert "cordwood serve" in result.output


@pytest.mark.parametrize("url", ["127.0.0.1:9464", "ftp://x", "http://", "http://x:port"])
def test_what_is_no_address_is_refused(url: str) -> None:
    result = run("--url", url)
    assert result.exit_code == 2
    assert f"--url {url}: " in result.output


@pytest.mark.parametrize("options", [("--advance", "7"), ("--advance", "1s", "--now"), ()])
def test_what_makes_no_sense_is_a_usage_error(options: tuple[str, ...]) -> None:
    assert run(*options).exit_code == 2


@pytest.mark.parametrize(
    ("text", "ms"),
    [("7d", 7 * DAY_MS), ("12h", DAY_MS // 2), ("5m", 300_000), ("90s", 90_000), ("500ms", 500)],
)
def test_a_duration_is_read_and_written(text: str, ms: int) -> None:
    assert parse_duration(text, option="--x") == ms
    assert parse_duration(format_duration(ms), option="--x") == ms


def test_a_duration_may_have_several_parts() -> None:
    assert parse_duration("1d12h", option="--x") == 3 * DAY_MS // 2
    assert parse_duration("1.5d", option="--x") == 3 * DAY_MS // 2
    assert format_duration(3 * DAY_MS // 2) == "1d12h"
    assert format_duration(0) == "0s"
    assert format_duration(61_001) == "1m1s"
