"""Members of both group protocols, at a real Kafka and at Cordwood: same answers, same records.

Kafka makes the directory with the topics, and Cordwood gets a copy: topics have the same ids, so
that assignors, which go by the ids, give the same assignments.
"""

from __future__ import annotations

import re
import shutil
import uuid
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final, Self

import pytest

from cordwood.format.group_metadata import decode_group_key, decode_group_value
from cordwood.format.record_batch import iter_batches
from cordwood.testing.broker import RunningBroker
from support.applied import wait_until_applied
from support.consumer_group_script import TOPICS, Comparison, Side
from support.kafka import RealKafka, poll_until
from support.kafka_tools import KafkaTools
from support.side_by_side import Line, Station, kafkas_tools, own_tools, run_lines, same_properties
from support.wire import Wire

pytestmark = [pytest.mark.kafka, pytest.mark.usefixtures("kafka_jars")]

SHORT, LONG = 500, 1500
PROPERTIES: Mapping[str, str] = {
    "offsets.topic.num.partitions": "1",
    "offsets.topic.replication.factor": "1",
    "group.initial.rebalance.delay.ms": "0",
    # Both have to assign at the same requests.
    "group.consumer.assignment.interval.ms": "0",
    "group.consumer.max.session.timeout.ms": "600000",
    "group.consumer.session.timeout.ms": "600000",
}
LISTENERS = "PLAINTEXT://127.0.0.1:0,CONTROLLER://127.0.0.1:0"
TIMES = frozenset(
    {"assignmentTimestamp", "commitTimestamp", "currentStateTimestamp", "expireTimestamp"}
    | {"timestamp"}
)


def make_topics(port: int) -> dict[str, uuid.UUID]:
    """Their ids."""
    with Wire(port) as wire:
        topics = [
            {"name": name, "num_partitions": count, "replication_factor": 1}
            for name, count in TOPICS.items()
        ]
        answer = wire.ask("create_topics", 7, {"topics": topics, "timeout": 10_000})
    return {each["name"]: each["topic_id"] for each in answer["topics"]}


def await_coordinator(port: int) -> None:
    with Wire(port) as wire:

        def is_there() -> bool:
            found = wire.ask("find_coordinator", 3, {"key": "one", "key_type": 0})
            listed = wire.ask("list_groups", 4, {"states_filter": []})
            return bool(found["error_code"] == listed["error_code"] == "none")

        poll_until(is_there, timeout_s=120, what="the coordinator is there")
    wait_until_applied(port)


class Both:
    """A Kafka and a Cordwood with the same topics, and where their logs are."""

    def __init__(self, root: Path) -> None:
        self.kafka = RealKafka(root / "kafka", properties=PROPERTIES)
        self.log_dirs = self.kafka.log_dirs[0], root / "cordwood"
        self.topic_ids: dict[str, uuid.UUID] = {}
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        self._stack.enter_context(self.kafka)
        self.kafka.start_without_cleaning()
        await_coordinator(self.kafka.port)
        self.topic_ids = make_topics(self.kafka.port)
        wait_until_applied(self.kafka.port)
        self.kafka.stop()
        shutil.copytree(*self.log_dirs)
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def start(self) -> None:
        """Starts both."""
        self.kafka.start_without_cleaning()
        properties = {**same_properties(self.kafka), **PROPERTIES, "listeners": LISTENERS}
        self._running = self._stack.enter_context(
            RunningBroker(properties, log_dir=self.log_dirs[1])
        )
        self.ports = self.kafka.port, self._running.port
        for port in self.ports:
            await_coordinator(port)
        self.sides = Side(self.ports[0], self.topic_ids), Side(self.ports[1], self.topic_ids)

    def swap(self) -> None:
        """Starts each on the directory of the other."""
        self.kafka.stop()
        self._running.stop()
        one, other = self.log_dirs
        aside = one.with_name("aside")
        one.rename(aside)
        other.rename(one)
        aside.rename(other)
        self.start()


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Both]:
    with Both(tmp_path_factory.mktemp("both")) as both:
        yield both


def records(log_dir: Path) -> Iterator[tuple[int, Any, Any]]:
    """Type, key and value of each record of groups, without the time."""
    for path in sorted(log_dir.glob("__consumer_offsets-0/*.log")):
        for _, batch in iter_batches(path.read_bytes()):
            for record in batch.iter_records():  # type: ignore[union-attr]
                key = decode_group_key(record.key)
                value = decode_group_value(key.record_type, record.value)
                fields = None if value is None else {**value.fields}
                for name in (fields or {}).keys() & TIMES:
                    fields[name] = 0  # type: ignore[index]
                yield key.record_type, key.fields, fields


def compare(both: Both, seed: int, count: int) -> None:
    comparison = Comparison(*both.sides, seed)
    differences = comparison.run(count)
    comparison.close()
    print(f"seed {seed}: {comparison.answered.total()} answers: {dict(comparison.answered)}")
    assert not differences, "\n".join(differences)
    assert comparison.answered["consumer_group_heartbeat none"] > count // 10
    assert require_same_records(both) > count


def require_same_records(both: Both) -> int:
    """How many records of groups both have, which are the same."""
    first, second = (list(records(log_dir)) for log_dir in both.log_dirs)
    for number, (one, other) in enumerate(zip(first, second, strict=True)):
        assert one == other, f"record {number}"
    return len(first)


def test_members_of_both_protocols_are_answered_as_by_kafka(both: Both) -> None:
    compare(both, 1, SHORT)


@pytest.mark.nightly
@pytest.mark.parametrize("seed", range(2, 8))
def test_many_members_are_answered_as_by_kafka(both: Both, seed: int) -> None:
    compare(both, seed, LONG)


#: Tools by Kafka's own client, at both brokers; both have the same members.
TOOL_LINES: Final = tuple(
    Line(f"{words} --bootstrap-server {{broker}}", ordered=False)
    for words in (
        "consumer-groups --list",
        "consumer-groups --list --state --type",
        "consumer-groups --list --type consumer",
        "consumer-groups --list --state stable,empty",
        "consumer-groups --describe --all-groups",
        "consumer-groups --describe --all-groups --offsets --verbose",
        "consumer-groups --describe --all-groups --members",
        "consumer-groups --describe --all-groups --members --verbose",
        "consumer-groups --describe --all-groups --state",
        "consumer-groups --describe --all-groups --state --verbose",
        "consumer-groups --delete --group one --group two",
        "consumer-groups --delete-offsets --group one --topic alpha",
        "consumer-groups --reset-offsets --group two --all-topics --to-latest --dry-run",
        "groups --list",
        "groups --list --consumer",
        "groups --list --group-type classic",
    )
)


#: The line that shows whether a member uses the consumer protocol.
MEMBERS: Final = 7


@pytest.mark.parametrize(
    "seed", [21, *(pytest.param(seed, marks=pytest.mark.nightly) for seed in range(22, 26))]
)
def test_tools_of_groups_say_the_same_of_members_of_both_protocols(both: Both, seed: int) -> None:
    comparison = Comparison(*both.sides, seed)
    stations = [
        Station(name, f"127.0.0.1:{port}", log_dir)
        for name, port, log_dir in zip(
            ("Kafka", "Cordwood"), both.ports, both.log_dirs, strict=True
        )
    ]
    upgraded: set[str] = set()
    with KafkaTools() as tools:
        for _ in range(6):
            differences = comparison.run(80)
            while comparison.is_waiting and not differences:
                differences = comparison.run(1)
            assert not differences, "\n".join(differences)
            for station in stations:
                run_lines(station, TOOL_LINES, kafkas_tools(tools))
            kafka, cordwood = stations
            own = Station("Cordwood's tools", kafka.bootstrap, kafka.logs)
            run_lines(own, TOOL_LINES, own_tools)
            for line in TOOL_LINES:
                expected = kafka.said[line.text]
                assert cordwood.said[line.text] == expected, line.text
                assert own.said[line.text].out == expected.out, line.text
            members = kafka.said[TOOL_LINES[MEMBERS].text].out
            upgraded |= set(re.findall(r" (true|false) *$", members, re.MULTILINE))
    comparison.close()
    assert upgraded == {"true", "false"}, "members of one protocol"


def test_groups_continue_on_the_directory_of_the_other(tmp_path: Path) -> None:
    with Both(tmp_path) as both:
        comparison = Comparison(*both.sides, seed=11)
        for _ in range(3):
            differences = comparison.run(150)
            while comparison.is_waiting and not differences:
                differences = comparison.run(1)
            assert not differences, "\n".join(differences)
            require_same_records(both)
            both.swap()
            comparison.move_to(*both.sides)
        comparison.close()
    print(comparison.answered)
    assert comparison.answered["join_group none"] > 5
