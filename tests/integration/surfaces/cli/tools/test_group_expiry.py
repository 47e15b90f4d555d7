"""Forecast of the expiry of offsets, compared with what expires then."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator
from typing import Any

import pytest

from cordwood.surfaces.cli import tables
from cordwood.testing.broker import RunningBroker
from support.kafka import poll_until
from support.no_engine import NoEngine
from support.wire import Wire

CHECK_MINUTES = 10
Key = tuple[str, str, int]


@pytest.fixture
def running() -> Iterator[RunningBroker]:
    properties = {
        "offsets.retention.minutes": 3 * 24 * 60,
        "offsets.retention.check.interval.ms": CHECK_MINUTES * 60_000,
        "group.initial.rebalance.delay.ms": 0,
    }
    with RunningBroker(properties, engine=NoEngine) as running:
        yield running


@pytest.fixture
def wire(running: RunningBroker) -> Iterator[Wire]:
    with Wire(running.port) as wire:
        yield wire


def commit(wire: Wire, group: str, topic: str, partition: int = 0, **fields: Any) -> None:
    partitions = [{"partition_index": partition, "committed_offset": 1}]
    topics = [{"name": topic, "partitions": partitions}]
    values = {
        "group_id": group,
        "generation_id_or_member_epoch": -1,
        "member_id": "",
        "topics": topics,
        **fields,
    }
    found = {"key": group, "key_type": 0}
    poll_until(
        lambda: wire.ask("find_coordinator", 3, found)["error_code"] == "none",
        timeout_s=60,
        what="the coordinator is there",
    )
    answer = wire.ask("offset_commit", 9, values)
    assert answer["topics"][0]["partitions"][0]["error_code"] == "none"


def committed(wire: Wire, groups: list[str]) -> set[Key]:
    asked = [{"group_id": group, "topics": None} for group in groups]
    answer = wire.ask("offset_fetch", 8, {"groups": asked, "require_stable": False})
    return {
        (group["group_id"], topic["name"], partition["partition_index"])
        for group in answer["groups"]
        for topic in group["topics"]
        for partition in topic["partitions"]
    }


def make_groups(run: Any, wire: Wire, running: RunningBroker) -> list[str]:
    run("topics -B --create --topic t --partitions 2")
    run("topics -B --create --topic u")
    run("console-producer -B --topic u", b"1\n")
    run("console-consumer -B --topic u --from-beginning --group left --max-messages 1")
    running.advance(hours=2)
    commit(wire, "simple", "t", 0)
    running.advance(hours=2)
    joined = wire.ask(
        "consumer_group_heartbeat",
        1,
        {
            "group_id": "active",
            "member_id": str(uuid.uuid4()),
            "member_epoch": 0,
            "rebalance_timeout_ms": 60_000,
            "subscribed_topic_names": ["t"],
            "topic_partitions": [],
        },
    )
    for topic in ("t", "u"):
        epoch, member_id = joined["member_epoch"], joined["member_id"]
        commit(wire, "active", topic, generation_id_or_member_epoch=epoch, member_id=member_id)
    running.advance(hours=30)
    commit(wire, "simple", "t", 1)
    for group, minutes in (("short", 60), ("forever", -1)):
        commit(wire, group, "t")
        run(
            f"configs -B --alter --entity-type groups --entity-name {group} "
            f"--add-config cordwood.offsets.retention.minutes={minutes}"
        )
    return ["simple", "left", "active", "short", "forever"]


def test_what_the_forecast_lists_is_what_expires(
    running: RunningBroker, wire: Wire, run_alone: Any
) -> None:
    def run(line: str, stdin: bytes = b"") -> Any:
        flag = f"--bootstrap-server {running.bootstrap_servers}"
        return run_alone(line.replace("-B", flag), stdin)

    groups = make_groups(run, wire, running)
    said = run("consumer-groups -B --describe --all-groups --expiry --json")
    assert said.code == 0
    forecast = {
        (each["group"], offset["topic"], offset["partition"]): offset
        for each in json.loads(said.out)
        for offset in each["offsets"]
    }
    assert forecast.keys() == committed(wire, groups)
    reasons = {key: offset["reason"] for key, offset in forecast.items()}
    assert reasons == {
        ("simple", "t", 0): "the age of the commit",
        ("simple", "t", 1): "the age of the commit",
        ("left", "u", 0): "the time since the group became empty",
        ("active", "t", 0): "a member subscribes to the topic",
        ("active", "u", 0): "the age of the commit",
        ("short", "t", 0): "the age of the commit",
        ("forever", "t", 0): "the retention time of the group is unlimited",
    }
    left = set(forecast)
    for moment in sorted({each["expires"] for each in forecast.values() if each["expires"]}):
        running.advance(seconds=(moment - running.now_ms()) / 1000 - CHECK_MINUTES * 60)
        assert committed(wire, groups) == left, "nothing before its time"
        running.advance(minutes=2 * CHECK_MINUTES)
        left -= {key for key, each in forecast.items() if each["expires"] == moment}
        assert committed(wire, groups) == left
    assert left == {("active", "t", 0), ("forever", "t", 0)}


def test_forecast_is_shown_as_a_table(
    running: RunningBroker, wire: Wire, run_alone: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    flag = f"--bootstrap-server {running.bootstrap_servers}"
    run_alone(f"topics {flag} --create --topic t")
    commit(wire, "g", "t")
    said = run_alone(f"consumer-groups {flag} --describe --group g --expiry")
    lines = [" ".join(line.split()) for line in said.out.splitlines()]
    assert lines[:2] == ["", "GROUP TOPIC PARTITION CURRENT-OFFSET EXPIRES REASON"]
    assert lines[2].startswith("g t 0 1 20")
    assert lines[2].endswith("Z the age of the commit")
    monkeypatch.setattr(tables, "output_width", lambda: 60)
    said = run_alone(f"consumer-groups {flag} --describe --group g --expiry")
    assert max(map(len, said.out.splitlines())) == 60
    said = run_alone(f"consumer-groups {flag} --describe --group absent --expiry")
    assert "GroupIdNotFoundException: Group absent not found." in said.out
