"""Prediction by a running broker of a changed setting, compared with its next check."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from cordwood.cleanup.schedule.holds import add_hold
from cordwood.coordinator.group.service import GroupCoordinator
from cordwood.model.hold import Hold
from cordwood.model.kafka_errors import CoordinatorLoadInProgressError
from cordwood.queries.http_client import query_of
from cordwood.storage.log.partition_log import PartitionLog
from cordwood.testing.broker import RunningBroker
from support.aged_topic import HOUR_MS, PARTITIONS, RECORDS, AgedTopic
from support.kafka import poll_until
from support.no_engine import NoEngine
from support.scrape import Probe, probed

PROPERTIES = {"offsets.topic.num.partitions": "2"}
GROUPS = ("slow", "fast")
DIRECTORY_LIMIT = "cordwood.log.dir.retention.bytes"


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningBroker]:
    log_dir = tmp_path_factory.mktemp("whatif")
    with RunningBroker(PROPERTIES, log_dir=log_dir, engine=NoEngine) as running:
        yield running


@pytest.fixture(scope="module")
def probe(broker: RunningBroker) -> Iterator[Probe]:
    with probed(broker) as found:
        yield found


def ask(probe: Probe, *changes: str, code: int = 200, **others: str | Sequence[str]) -> Any:
    answer = probe.ask(query_of("/whatif", set=changes, **others))
    assert answer.status == code, answer.text
    return json.loads(answer.text) if code == 200 else answer.text


class Topic(AgedTopic):
    """A topic of the broker in this process."""

    def __init__(self, broker: RunningBroker, name: str) -> None:
        super().__init__(broker.bootstrap_servers, name)
        self._broker = broker

    def put(self, *ages_hours: int) -> None:
        """A segment of each age."""
        now_ms = self._broker.now_ms()
        self.fill([age * HOUR_MS for age in ages_hours], now_ms=now_ms)

    def set(self, changes: Mapping[str, str]) -> None:
        """Returns when the logs have the settings."""
        super().set(changes)
        expected = self._broker.call(lambda running: running.configs.log_config(self.name))
        poll_until(
            lambda: all(log.config == expected for log in self.logs),
            timeout_s=30,
            what="the logs take their new settings",
        )

    @property
    def logs(self) -> list[PartitionLog]:
        logs = self._broker.node.cleaner.manager.logs.logs()
        return sorted(
            (log for log in logs if log.topic_partition.topic == self.name),
            key=lambda log: log.topic_partition,
        )

    def state(self) -> list[dict[str, int]]:
        return [
            {
                "segments": len(log.segments),
                "bytes": log.size_bytes,
                "log_start_offset": log.log_start_offset,
            }
            for log in self.logs
        ]


def check(broker: RunningBroker) -> None:
    """One check of the cleaner, which cannot compact here, and one of retention."""
    broker.node.cleaner.run_once_now()
    broker.node.cleaner.retention_once_now()


def random_settings(rng: random.Random, size_bytes: int) -> dict[str, str]:
    """Half hours, so that no segment expires between question and check."""
    half = HOUR_MS // 2
    choices = {
        "retention.ms": ["-1", *(str(hours * HOUR_MS + half) for hours in (0, 2, 4, 7))],
        "retention.bytes": ["-1", str(size_bytes // 2), str(size_bytes // 5)],
        "cleanup.policy": ["delete", "compact,delete", "compact"],
        "cordwood.retention.groups": ["", "slow", "fast", "fast,slow", "unknown"],
        "cordwood.retention.groups.max.ms": ["-1", str(3 * HOUR_MS + half)],
        "cordwood.retention.groups.max.bytes": ["-1", str(size_bytes // 3)],
        "cordwood.retention.topic.bytes": ["-1", str(size_bytes), str(size_bytes // 2)],
        "cordwood.segment.roll.idle": ["false", "true"],
        "min.cleanable.dirty.ratio": ["0", "0.5", "1"],
    }
    names = rng.sample(sorted(choices), rng.randint(1, 4))
    if rng.random() < 0.3:
        names.append("cleanup.policy")
    return {name: rng.choice(choices[name]) for name in names}


def random_topic(rng: random.Random, broker: RunningBroker, name: str) -> Topic:
    topic = Topic(broker, name)
    now_ms = rng.choice([-1, 6 * HOUR_MS + HOUR_MS // 2])
    config = {"retention.ms": str(now_ms)}
    if rng.random() < 0.5:
        config["cordwood.retention.groups"] = rng.choice(GROUPS)
    topic.create(config)
    ages = sorted(rng.sample(range(10), rng.randint(3, 6)), reverse=True)
    topic.put(*ages)
    end = topic.logs[0].log_end_offset
    topic.commit("slow", {number: rng.randint(0, end // 3) for number in range(PARTITIONS)})
    topic.commit("fast", {0: rng.randint(end // 2, end)})
    if rng.random() < 0.15:
        hold = Hold(id=name, topic=name, partition=0, reason="", by="", created_ms=0)
        add_hold(broker.node.cleaner.manager, hold)
    return topic


@pytest.mark.parametrize(
    "seeds",
    [
        pytest.param(range(10), id="few"),
        pytest.param(range(100, 150), id="many", marks=pytest.mark.nightly),
    ],
)
def test_a_predicted_change_is_what_the_next_check_does(
    broker: RunningBroker, probe: Probe, seeds: range
) -> None:
    went = lost = unmeasured = 0
    for seed in seeds:
        rng = random.Random(seed)
        topic = random_topic(rng, broker, f"topic{seed}")
        before = topic.state()
        changes = random_settings(rng, before[0]["bytes"])
        given = [f"{topic.name}:{name}={value}" for name, value in changes.items()]
        answer = ask(probe, *given, f"{topic.name}:flush.messages={10**6 + seed}", days="0")
        assert topic.state() == before, "asking has changed something"
        # Some are not changed after all: the settings in force are predicted, too.
        side = rng.choice(["now", "then", "then"])
        if side == "then":
            topic.set(changes)
        check(broker)
        after = topic.state()
        assert len(answer["partitions"]) == PARTITIONS
        for found, old, new in zip(answer["partitions"], before, after, strict=True):
            outcome = found[side]
            assert found["reason"] == ""
            assert {name: found[name] for name in old} == old
            assert {name: outcome[name] for name in new} == new, (seed, side, changes, found)
            assert outcome["segments_gone"] == old["segments"] - new["segments"]
            assert outcome["bytes_freed"] == old["bytes"] - new["bytes"]
            gone = new["log_start_offset"] - old["log_start_offset"]
            assert outcome["offsets_gone"] == gone
            went += gone > 0
            unmeasured += outcome["how"] == "retention"
        if side == "then":
            starts, ends = (
                {number: each["log_start_offset"] for number, each in enumerate(state)}
                for state in (before, after)
            )
            unread = {(each["group"], each["partition"]): each["lost"] for each in answer["groups"]}
            assert unread == topic.unread(starts, ends), (seed, changes)
            lost += len(unread)
    assert min(went, lost, unmeasured) > 0, (went, lost, unmeasured)


def test_a_setting_of_the_broker_changes_all_topics_without_their_own(
    broker: RunningBroker, probe: Probe
) -> None:
    own, other = Topic(broker, "with-own"), Topic(broker, "without-own")
    own.create({"retention.ms": "-1"})
    other.create({})
    for topic in (own, other):
        topic.put(5, 2)
    answer = ask(probe, f"log.retention.ms={3 * HOUR_MS}", topic="with*")
    assert [each["topic"] for each in answer["partitions"]] == ["without-own"] * PARTITIONS
    week = str(7 * 24 * HOUR_MS)
    changed = {"retention.ms": {"now": week, "then": str(3 * HOUR_MS)}}
    assert answer["changes"] == {"without-own": changed}
    own_value = {"setting": "retention.ms", "value": "-1", "source": "metadata log"}
    assert answer["overruled"] == [{"topic": "with-own", **own_value}]
    assert ask(probe, "with-own:retention.ms=1", topic="with*")["overruled"] == []
    node_id = broker.broker.node_id
    other.set_of_broker(node_id, {"log.retention.ms": str(3 * HOUR_MS)})
    try:
        poll_until(
            lambda: other.logs[0].config.retention_ms == 3 * HOUR_MS,
            timeout_s=30,
            what="the logs take their new settings",
        )
        check(broker)
        for found, new in zip(answer["partitions"], other.state(), strict=True):
            assert {name: found["then"][name] for name in new} == new
            assert found["then"]["segments_gone"] == 1
    finally:
        other.set_of_broker(node_id, {"log.retention.ms": week})


def test_a_limit_of_the_log_directory_concerns_all_topics_in_it(tmp_path: Path) -> None:
    with RunningBroker(log_dir=tmp_path, engine=NoEngine) as broker, probed(broker) as probe:
        old, new = Topic(broker, "old"), Topic(broker, "new")
        for topic, hours in ((old, (9, 8, 7)), (new, (3, 2, 1))):
            topic.create({"retention.ms": "-1"})
            topic.put(*hours)
        logs = [*new.logs, *old.logs]
        excess = sum(log.active.size_bytes for log in old.logs)
        limit = sum(log.size_bytes for log in logs) - excess
        change = f"{DIRECTORY_LIMIT}={limit}"
        answer = ask(probe, change)
        assert answer["changes"] == {}
        assert answer["broker_changes"] == {DIRECTORY_LIMIT: {"now": "-1", "then": str(limit)}}
        assert [each["topic"] for each in answer["partitions"]] == ["old", "old"]
        assert ask(probe, change, topic="new")["partitions"] == []
        old.set_of_broker(broker.broker.node_id, {DIRECTORY_LIMIT: str(limit)})
        broker_config = broker.node.cleaner.manager.logs
        poll_until(
            lambda: broker_config.broker.cordwood_log_dir_retention_bytes == limit,
            timeout_s=30,
            what="the broker takes its new limit",
        )
        explained = json.loads(probe.ask("/explain").text)["partitions"]
        segments = [segment for each in explained for segment in each["segments"]]
        gone = [segment for segment in segments if segment["deletable"]]
        assert len(gone) == answer["total"]["then"]["segments_gone"] == 2
        assert {segment["rule"] for segment in gone} == {"log directory size"}
        assert all(DIRECTORY_LIMIT in segment["reason"] for segment in gone)
        check(broker)
        assert [log.size_bytes for log in old.logs] == [
            each["then"]["bytes"] for each in answer["partitions"]
        ]
        assert [len(log.segments) for log in new.logs] == [3, 3]


def test_a_compaction_that_is_due_is_said_not_to_be_measured(
    broker: RunningBroker, probe: Probe
) -> None:
    topic = Topic(broker, "due")
    topic.create({"retention.ms": "-1"})
    topic.put(5, 2, 1)
    answer = ask(probe, "due:cleanup.policy=compact", topic="due")
    assert answer["not_measured"] == {"now": [], "then": ["due-0", "due-1"]}
    then = answer["partitions"][0]["then"]
    size = sum(segment.size_bytes for segment in list(topic.logs[0].segments)[:-1])
    assert (then["how"], then["bytes_read"], then["bytes_freed"]) == ("retention", size, 0)
    assert then["cost"]["keys"] == 3 * RECORDS
    assert answer["partitions"][0]["now"]["cost"] is None
    broker.node.cleaner.manager.states.abort_and_pause(topic.logs[0].topic_partition)
    try:
        answer = ask(probe, "due:cleanup.policy=compact", topic="due")
    finally:
        broker.node.cleaner.manager.states.resume_cleaning([topic.logs[0].topic_partition])
    says = "due-0: the cleaner does not work on it: its cleaning is paused"
    assert answer["warnings"] == [says]


def test_what_only_the_cleaning_looks_for_is_said_not_to_be_looked_at(
    broker: RunningBroker, probe: Probe
) -> None:
    topic = Topic(broker, "expiring")
    topic.create({"cleanup.policy": "compact", "cordwood.record.ttl.header": "ttl"})
    topic.put(5, 2)
    says = [
        f"expiring-{number}: what becomes removable in its clean section is not looked at"
        for number in range(len(topic.logs))
    ]
    for change in ("cordwood.record.ttl.header=ttl-s", "cordwood.tombstone.cleanup=true"):
        assert ask(probe, f"expiring:{change}", topic="expiring")["warnings"] == says, change
    for change in ("cordwood.record.ttl.header=", "delete.retention.ms=1"):
        assert ask(probe, f"expiring:{change}", topic="expiring")["warnings"] == [], change


def test_groups_whose_coordinator_does_not_say_are_a_warning(
    broker: RunningBroker, probe: Probe, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = Topic(broker, "asked")
    topic.create({"retention.ms": "-1"})
    topic.put(5, 2)
    topic.commit("reader", {0: 1})
    change = f"asked:retention.ms={HOUR_MS}"

    def is_loading(*_: object, **__: object) -> None:
        raise CoordinatorLoadInProgressError("loading")

    assert [each["lost"] for each in ask(probe, change)["groups"]] == [2 * RECORDS - 1]
    assert ask(probe, change, groups="false")["groups"] is None
    with monkeypatch.context() as patch:
        patch.setattr(GroupCoordinator, "fetch", is_loading)
        answer = ask(probe, change)
    assert answer["groups"] == []
    says = "the offsets of group reader are not known: its coordinator is still loading its offsets"
    assert says in answer["warnings"]
    with monkeypatch.context() as patch:
        patch.setattr(GroupCoordinator, "list_groups", is_loading)
        answer = ask(probe, change)
    assert "the consumer groups of broker 1 are not known: loading" in answer["warnings"]


def test_groups_that_retention_waits_for_only_if_it_is_changed_are_looked_up(
    broker: RunningBroker, probe: Probe
) -> None:
    topic = Topic(broker, "waits")
    topic.create({"retention.ms": str(HOUR_MS)})
    topic.put(5, 4, 3)
    topic.commit("reader", {0: RECORDS, 1: 0})
    answer = ask(probe, "waits:cordwood.retention.groups=reader", groups="false")
    gone = [each["then"]["segments_gone"] for each in answer["partitions"]]
    assert gone == [1, 0]
    assert [each["now"]["bytes"] for each in answer["partitions"]] == [0, 0]


@pytest.mark.parametrize(
    ("changes", "others", "says"),
    [
        ([], {}, "nothing is changed"),
        (["retention"], {}, "expected [TOPIC:]KEY=VALUE"),
        (["nosuch:retention.ms=1"], {}, "The topic 'nosuch' does not exist."),
        (
            ["kept:retention.ms=soon"],
            {},
            "Invalid value soon for configuration retention.ms: Not a number of type LONG",
        ),
        (["kept:retention.msec=1"], {}, "Unknown topic config name: retention.msec"),
        (["log.retention.hours=1"], {}, "Cannot update these configs dynamically"),
        (["log.retention.hour=1"], {}, "its right name is log.retention.hours"),
        (["kept:retention.ms=1"], {"topic": "nosuch*"}, "matches --topic nosuch*"),
        (["kept:retention.ms=1"], {"days": "367"}, "days=367: expected 0 to 366"),
        (["kept:retention.ms=1"], {"groups": "maybe"}, "groups=maybe: expected true or false"),
    ],
)
def test_what_kafka_would_refuse_is_refused_with_its_text(
    broker: RunningBroker,
    probe: Probe,
    changes: list[str],
    others: dict[str, str],
    says: str,
) -> None:
    topic = Topic(broker, "kept")
    if not topic.logs:
        topic.create({})
    text = ask(probe, *changes, code=400, **others)
    assert says in text


def test_a_value_that_is_in_force_changes_nothing(probe: Probe, broker: RunningBroker) -> None:
    topic = Topic(broker, "same")
    topic.create({"retention.ms": "5"})
    answer = ask(probe, "same:retention.ms=5")
    assert (answer["partitions"], answer["changes"]) == ([], {})
    assert probe.ask(f"/whatif?set={quote('same:retention.ms=5')}").status == 200
