"""Members of both group protocols, at a real Kafka 4.4 and at Cordwood: same answers and records.

Kafka makes the directory with the topics, and Cordwood gets a copy: topics have the same ids, so
that assignors, which go by the ids, give the same assignments.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import pytest

from cordwood.format.group_metadata import decode_group_key, decode_group_value
from cordwood.format.record_batch import iter_batches
from support.applied import wait_until_applied
from support.consumer_group_script import TOPICS, Comparison, Side
from support.kafka import poll_until
from support.kafka_programs import KAFKA_4_4
from support.kafka_tools import KafkaTools
from support.side_by_side import Line, Station, kafkas_tools, own_tools, run_lines
from support.two_brokers import TwoBrokers, make_topics
from support.wire import Wire

pytestmark = [pytest.mark.kafka, pytest.mark.usefixtures("kafka_4_4_jars")]

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
TIMES = frozenset(
    {"assignmentTimestamp", "commitTimestamp", "currentStateTimestamp", "expireTimestamp"}
    | {"timestamp"}
)


def await_coordinator(port: int) -> None:
    with Wire(port) as wire:

        def is_there() -> bool:
            found = wire.ask("find_coordinator", 3, {"key": "one", "key_type": 0})
            listed = wire.ask("list_groups", 4, {"states_filter": []})
            return bool(found["error_code"] == listed["error_code"] == "none")

        poll_until(is_there, timeout_s=120, what="the coordinator is there")
    wait_until_applied(port)


class Both(TwoBrokers):
    """Both, with topics; a member has its connection at its side."""

    def __init__(self, root: Path) -> None:
        super().__init__(
            root,
            properties=PROPERTIES,
            prepare=self._make_topics,
            is_ready=await_coordinator,
            version=KAFKA_4_4,
        )
        self._topic_ids: dict[str, uuid.UUID] = {}

    def _make_topics(self, port: int) -> None:
        self._topic_ids = make_topics(port, TOPICS)

    @property
    def sides(self) -> tuple[Side, Side]:
        """New connections."""
        first, second = (Side(port, self._topic_ids) for port in self.ports)
        return first, second


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
    """Compares the records of groups that both have; returns their number."""
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
def test_tools_of_groups_say_the_same_of_members_of_both_protocols(
    both: Both, tools_4_4: KafkaTools, seed: int
) -> None:
    comparison = Comparison(*both.sides, seed)
    stations = [
        Station(name, f"127.0.0.1:{port}", log_dir)
        for name, port, log_dir in zip(
            ("Kafka", "Cordwood"), both.ports, both.log_dirs, strict=True
        )
    ]
    upgraded: set[str] = set()
    for _ in range(6):
        differences = comparison.run(80)
        while comparison.is_waiting and not differences:
            differences = comparison.run(1)
        assert not differences, "\n".join(differences)
        for station in stations:
            run_lines(station, TOOL_LINES, kafkas_tools(tools_4_4))
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
