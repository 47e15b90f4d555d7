"""The order in which ListGroups answers groups, at a real Kafka and at Cordwood.

Kafka's ListGroupsRequestTest expects an order where it lists the stable groups.
"""

from __future__ import annotations

import uuid
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import pytest

from support.applied import wait_until_applied
from support.kafka import poll_until
from support.kafka_tools import KafkaTools
from support.side_by_side import Line, Station, kafkas_tools, run_lines
from support.two_brokers import TwoBrokers, make_topics
from support.wire import API_KEYS, Wire, known_versions

pytestmark = [pytest.mark.kafka, pytest.mark.usefixtures("kafka_jars")]

PARTITIONS: Final = 20
PROPERTIES: Final[Mapping[str, str]] = {
    "offsets.topic.num.partitions": str(PARTITIONS),
    "offsets.topic.replication.factor": "1",
    "group.initial.rebalance.delay.ms": "0",
    "group.consumer.max.session.timeout.ms": "1800000",
    "group.consumer.session.timeout.ms": "1800000",
    "group.max.session.timeout.ms": "1800000",
}
SESSION_MS: Final = 1_800_000
#: Groups of members of either protocol, and of offsets only: several in each partition.
CLASSIC: Final = [f"classic-{number}" for number in range(40)]
CONSUMER: Final = [f"consumer-{number}" for number in range(40)]
OFFSETS: Final = [f"offsets-{number}" for number in range(120)]
FILTERS: Final[Sequence[tuple[list[str], list[str]]]] = (
    ([], []),
    (["Stable"], []),
    (["Empty"], []),
    (["stable", "Empty"], ["classic"]),
    ([], ["Consumer"]),
    (["Stable"], ["consumer", "classic"]),
)
Listings = dict[tuple[Any, ...], list[Any]]


def await_coordinators(port: int) -> None:
    """All partitions are loaded: the groups of each can be described."""
    with Wire(port) as wire:

        def is_there() -> bool:
            wire.ask("find_coordinator", 3, {"key": "one", "key_type": 0})
            asked = {"groups": [*CLASSIC, *CONSUMER, *OFFSETS]}
            described = wire.ask("describe_groups", 5, asked)["groups"]
            codes = {each["error_code"] for each in described}
            return codes <= {"none", "group_id_not_found"}

        poll_until(is_there, timeout_s=120, what="the coordinators are there")
    wait_until_applied(port)


def commit(wire: Wire, group: str) -> None:
    partitions = [{"partition_index": 0, "committed_offset": 0, "committed_leader_epoch": -1}]
    answer = wire.ask(
        "offset_commit",
        8,
        {
            "group_id": group,
            "generation_id_or_member_epoch": -1,
            "topics": [{"name": "t", "partitions": partitions}],
        },
    )
    assert answer["topics"][0]["partitions"][0]["error_code"] == "none", answer


def join_classic(wire: Wire, group: str, *, leaves: bool = False) -> None:
    joined = wire.ask(
        "join_group",
        3,
        {
            "group_id": group,
            "session_timeout_ms": SESSION_MS,
            "rebalance_timeout_ms": SESSION_MS,
            "protocol_type": "consumer",
            "protocols": [{"name": "range", "metadata": b""}],
        },
    )
    assert joined["error_code"] == "none", joined
    member = {
        "group_id": group,
        "generation_id": joined["generation_id"],
        "member_id": joined["member_id"],
    }
    assignments = [{"member_id": joined["member_id"], "assignment": b"a"}]
    synced = wire.ask("sync_group", 3, {**member, "assignments": assignments})
    assert synced["error_code"] == "none", synced
    if leaves:
        assert wire.ask("leave_group", 2, member)["error_code"] == "none"


def join_consumer(wire: Wire, group: str, *, leaves: bool = False) -> None:
    asked = {
        "group_id": group,
        "member_id": str(uuid.uuid5(uuid.NAMESPACE_URL, group)),
        "rebalance_timeout_ms": SESSION_MS,
        "subscribed_topic_names": ["t"],
        "topic_partitions": [],
    }
    for epoch in (0, -1) if leaves else (0,):
        answer = wire.ask("consumer_group_heartbeat", 1, {**asked, "member_epoch": epoch})
        assert answer["error_code"] == "none", answer


def delete(wire: Wire, groups: list[str]) -> None:
    answer = wire.ask("delete_groups", 2, {"groups_names": groups})
    assert all(each["error_code"] == "none" for each in answer["results"]), answer


def make_groups(wire: Wire) -> None:
    """Groups one after the other, of all kinds; some are left, deleted, and made again."""
    for number, offsets in enumerate(OFFSETS):
        commit(wire, offsets)
        if number < len(CLASSIC):
            join_classic(wire, CLASSIC[number], leaves=number % 4 == 0)
            join_consumer(wire, CONSUMER[number], leaves=number % 4 == 1)
    delete(wire, OFFSETS[::3])
    delete(wire, CLASSIC[::4])
    delete(wire, CONSUMER[1::4])
    for group in reversed(OFFSETS[::3]):
        commit(wire, group)
    for group in CLASSIC[::8]:
        join_consumer(wire, group)
    for group in CONSUMER[1::8]:
        join_classic(wire, group)
    for group in OFFSETS[::5]:
        join_consumer(wire, group)
    # What is listed is what is committed: a last record in every partition.
    for group in OFFSETS[1::5]:
        commit(wire, group)


def listings(port: int) -> Listings:
    """The groups by version and filters, as they are answered."""
    found: Listings = {}
    with Wire(port) as wire:
        for version in known_versions(API_KEYS["list_groups"]):
            for states, types in FILTERS:
                if (states and version < 4) or (types and version < 5):
                    continue
                values = {"states_filter": states, "types_filter": types}
                answer = wire.ask("list_groups", version, values)
                assert answer["error_code"] == "none"
                found[version, tuple(states), tuple(types)] = answer["groups"]
    return found


def make_topic(port: int) -> None:
    make_topics(port, {"t": 1})


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TwoBrokers]:
    with TwoBrokers(
        tmp_path_factory.mktemp("both"),
        properties=PROPERTIES,
        prepare=make_topic,
        is_ready=await_coordinators,
    ) as both:
        for port in both.ports:
            with Wire(port) as wire:
                make_groups(wire)
        yield both


def require_same(both: TwoBrokers) -> Listings:
    theirs, ours = map(listings, both.ports)
    assert ours == theirs
    return theirs


def test_groups_are_listed_in_the_order_of_kafkas_tables(both: TwoBrokers) -> None:
    found = require_same(both)
    everything = found[5, (), ()]
    assert Counter(each["group_type"] for each in everything).keys() == {"classic", "consumer"}
    assert len(everything) > len(OFFSETS)
    assert everything != sorted(everything, key=lambda each: str(each["group_id"]))
    # One after the other, the same: nothing depends on which partition answers first.
    for port in both.ports:
        assert listings(port) == found


def test_the_tools_print_them_in_this_order(both: TwoBrokers, tools: KafkaTools) -> None:
    words = ("", " --state", " --type consumer", " --state stable")
    lines = [Line(f"consumer-groups --bootstrap-server {{broker}} --list{each}") for each in words]
    stations = [
        Station(name, f"127.0.0.1:{port}", logs)
        for name, port, logs in zip(("Kafka", "Cordwood"), both.ports, both.log_dirs, strict=True)
    ]
    for station in stations:
        run_lines(station, lines, kafkas_tools(tools))
    assert stations[1].said == stations[0].said


def test_the_order_is_the_same_after_a_load_also_of_the_others_log(both: TwoBrokers) -> None:
    both.stop()
    both.start()
    after = require_same(both)
    both.swap()
    assert require_same(both) == after
