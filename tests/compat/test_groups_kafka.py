"""Groups and offsets that a real Kafka wrote are ours, and ours are Kafka's."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from cordwood.coordinator.group.classic.group import ClassicGroup, GroupState
from cordwood.coordinator.group.classic.member import LeavingMember
from cordwood.coordinator.group.classic.records import GroupMetadataRecord, group_metadata
from cordwood.coordinator.group.records import decode, encode
from cordwood.coordinator.log import EncodedRecord
from cordwood.format.group_metadata import decode_group_key, decode_group_value
from cordwood.format.record import Record
from cordwood.model.error_codes import ErrorCode
from cordwood.testing.broker import RunningBroker
from support.groups_under_test import GroupBroker, GroupRun
from support.kafka import RealKafka, copy_log_dir, poll_until
from support.kafka_programs import kafka_tool
from support.no_engine import NoEngine
from support.wire import Plain, Wire

pytestmark = pytest.mark.kafka

PARTITIONS = 4
SPREAD = [
    *("orders", "billing", "payments", "reports", "search-index", "emails", "audit-log"),
    *("analytics", "my-group", "fraud-detection", "größe", "polygenelubricants"),
]
"""Names of groups in many partitions, some of which hash below zero."""
_PROPERTIES = {
    "offsets.topic.num.partitions": "1",
    "offsets.topic.replication.factor": "1",
    "group.initial.rebalance.delay.ms": "0",
    "group.coordinator.rebalance.protocols": "classic,consumer",
}
_WAIT_S = 180
#: Of members that stay in their group while they are away: however slow the machine is.
_SESSION_MS = 1_800_000


@dataclass(slots=True)
class KafkaGroups:
    """A stopped Kafka, what it said of its groups before, and a copy of how it left them."""

    kafka: RealKafka
    as_left: Path
    states: dict[str, str] = field(default_factory=dict)
    offsets: dict[str, dict[tuple[str, int], tuple[int, str]]] = field(default_factory=dict)

    @property
    def log_dir(self) -> Path:
        return self.kafka.log_dirs[0]


@pytest.fixture(scope="module")
def written(kafka_jars: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaGroups]:
    """Records that three members, an administrator and a deletion leave behind."""
    with RealKafka(tmp_path_factory.mktemp("groups"), properties=_PROPERTIES) as kafka:
        admin = kafka.start_without_cleaning()
        admin.create_topics([NewTopic("t", PARTITIONS, 1)])["t"].result()
        producer = Producer(kafka.client())
        for partition in range(PARTITIONS):
            producer.produce("t", b"v", partition=partition)
        producer.flush(_WAIT_S)
        _run_group(kafka)
        _run_alone(kafka)
        _run_transactions(kafka)
        for group in ("simple", "gone", "cut"):
            _set_offsets(admin, group)
        admin.delete_consumer_groups(["gone"])["gone"].result()
        deleted = kafka_tool(
            *("consumer-groups", "--bootstrap-server", kafka.bootstrap_servers),
            *("--delete-offsets", "--group", "cut", "--topic", "t:1"),
            heap="256m",
        )
        assert "Successful" in deleted.stdout, deleted.stdout + deleted.stderr
        found = KafkaGroups(kafka, tmp_path_factory.mktemp("as-left") / "copy")
        found.states = _states(admin)
        found.offsets = {group: _offsets(kafka.port, group) for group in found.states}
        kafka.stop()
        copy_log_dir(found.log_dir, found.as_left)
        yield found


def _consumer(kafka: RealKafka, name: str, **settings: Any) -> Consumer:
    consumer = Consumer(
        kafka.client(
            {
                "group.id": "running",
                "client.id": name,
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "session.timeout.ms": _SESSION_MS,
                "max.poll.interval.ms": _SESSION_MS,
                **settings,
            }
        )
    )
    consumer.subscribe(["t"])
    return consumer


def _run_group(kafka: RealKafka) -> None:
    """Static members, who stay members when they go, and one that leaves."""
    members = [
        _consumer(kafka, name, **{"group.instance.id": f"i-{name}"}) for name in ("one", "two")
    ]
    members.append(_consumer(kafka, "three"))

    _wait_for_assignments(members, [1, 1, 2])
    first = members[0].assignment()[0]
    position = TopicPartition(first.topic, first.partition, 1, metadata="größe")
    members[0].commit(offsets=[position], asynchronous=False)
    members.pop().close()
    _wait_for_assignments(members, [2, 2])
    for member in members:
        member.close()


def _run_alone(kafka: RealKafka) -> None:
    """One consumer joins, commits, and leaves."""
    consumer = _consumer(kafka, "alone", **{"group.id": "alone"})
    _wait_for_assignments([consumer], [PARTITIONS])
    consumer.commit(offsets=[TopicPartition("t", 0, 1)], asynchronous=False)
    consumer.close()


def _run_transactions(kafka: RealKafka) -> None:
    """Offsets of a transaction that is committed, of one that is aborted, and of an open one."""
    for name, ends in (("committed", True), ("committed", False), ("open", None)):
        settings = {"transactional.id": name, "transaction.timeout.ms": 600_000}
        producer = Producer(kafka.client(settings))
        producer.init_transactions(_WAIT_S)
        consumer = Consumer(kafka.client({"group.id": name}))
        producer.begin_transaction()
        producer.send_offsets_to_transaction(
            [TopicPartition("t", 0, 3 if ends else 9)], consumer.consumer_group_metadata(), _WAIT_S
        )
        if ends is None:
            continue
        end = producer.commit_transaction if ends else producer.abort_transaction
        end(_WAIT_S)
        consumer.close()


def _wait_for_assignments(members: Sequence[Consumer], counts: list[int]) -> None:
    def settled() -> bool:
        for member in members:
            member.poll(0.1)
        return sorted(len(member.assignment()) for member in members) == counts

    poll_until(settled, timeout_s=_WAIT_S, what=f"members share the partitions as {counts}")


def _set_offsets(admin: AdminClient, group: str) -> None:
    positions = [TopicPartition("t", number, number + 5) for number in range(PARTITIONS)]
    wanted = ConsumerGroupTopicPartitions(group, positions)
    admin.alter_consumer_group_offsets([wanted])[group].result()


def _offsets(port: int, group: str) -> dict[tuple[str, int], tuple[int, str]]:
    """All that a group has committed, once its coordinator is there."""

    def asked() -> Plain | None:
        answer = wire.ask("offset_fetch", 7, {"group_id": group, "topics": None})
        return answer if answer["error_code"] == "none" else None

    with Wire(port) as wire:
        answer = poll_until(asked, timeout_s=_WAIT_S, what=f"the offsets of {group} are told")
    return {
        (topic["name"], each["partition_index"]): (
            each["committed_offset"],
            (each["metadata"] or "").rstrip("\0"),
        )
        for topic in answer["topics"]
        for each in topic["partitions"]
    }


def _states(admin: AdminClient) -> dict[str, str]:
    """The states of all groups; empty while they are being loaded."""
    return {
        group.group_id: "".join(word.capitalize() for word in group.state.name.split("_"))
        for group in admin.list_consumer_groups().result().valid
    }


@pytest.fixture
def ours(written: KafkaGroups, tmp_path: Path) -> GroupBroker:
    """A coordinator's broker over a copy of what Kafka wrote."""
    return GroupBroker(copy_log_dir(written.as_left, tmp_path / "copy"))


def test_coordinator_knows_the_groups_and_offsets_that_kafka_has(
    written: KafkaGroups, ours: GroupBroker
) -> None:
    run = GroupRun(ours)
    run.groups.start()
    states = {group.group_id: group.state for group in run.groups.list_groups()}
    assert states == written.states
    empty = dict.fromkeys(("simple", "cut", "alone", "committed", "open"), "Empty")
    assert states == {"running": "Stable", **empty}
    assert written.offsets["committed"] == {("t", 0): (3, "")}
    for group, offsets in written.offsets.items():
        found = {
            (topic.name, each.partition): (each.offset, each.metadata.rstrip("\0"))
            for topic in run.groups.fetch(group, None)
            for each in topic.partitions
        }
        assert found == offsets, group
    assert len(written.offsets["cut"]) == PARTITIONS - 1
    unstable = run.fetched(group="open", require_stable=True)
    assert unstable.error_code == ErrorCode.UNSTABLE_OFFSET_COMMIT
    assert run.fetched(group="open").offset == -1
    running = run.groups.describe("running", ClassicGroup)
    assert {member.group_instance_id for member in running.members()} == {"i-one", "i-two"}
    assert running.subscribed_topics == frozenset({"t"})


def test_records_are_kafkas_byte_for_byte(ours: GroupBroker) -> None:
    kinds = set()
    for record in ours.records():
        assert _written_again(record) == (record.key or b"", record.value)
        kinds.add((decode_group_key(record.key).record_type, record.value is None))
    assert kinds == {(1, False), (1, True), (2, False), (2, True)}


def _written_again(record: Record) -> EncodedRecord:
    """Our encoding of a record's content."""
    found = decode(record.key, record.value)
    assert found is not None
    if isinstance(found, GroupMetadataRecord) and found.group is not None:
        assignments = {each.member_id: each.assignment for each in found.group.members()}
        found = group_metadata(found.group, assignments)
    (written,) = encode([found])
    return written


def test_a_group_s_life_leaves_the_records_that_it_leaves_in_kafka(
    ours: GroupBroker, tmp_path: Path
) -> None:
    broker = GroupBroker(tmp_path / "ours")
    run = GroupRun(broker)
    (member,) = run.stable(group="alone")
    run.commit(1, group="alone", member_id=member, generation_id=1)
    run.leave(LeavingMember(member), group="alone")
    assert _life(broker.records(), "alone") == _life(ours.records(), "alone")
    assert len(broker.records()) == 4


def _life(records: Sequence[Record], group: str) -> list[tuple[Any, ...]]:
    """A group's records: types, versions, and what does not differ from run to run."""
    life: list[tuple[Any, ...]] = []
    for record in records:
        key = decode_group_key(record.key)
        value = decode_group_value(key.record_type, record.value)
        if key.fields["group"] != group or value is None:
            continue
        fields = value.fields
        if key.record_type == 1:
            life.append((1, value.version, fields["expireTimestamp"]))
        else:
            steady = (fields["protocolType"], fields["generation"], fields["protocol"])
            is_led = fields["leader"] is not None
            life.append((2, value.version, steady, is_led, len(fields["members"])))
    return life


def test_kafka_goes_on_with_groups_and_offsets_of_ours(written: KafkaGroups) -> None:
    broker = GroupBroker(written.log_dir)
    run = GroupRun(broker)
    ids = run.stable(2, group="ours", session_timeout_ms=1_800_000)
    run.commit(3, group="ours", member_id=ids[0], generation_id=1, metadata="von uns")
    (left,) = run.stable(group="left")
    run.commit(4, group="left", member_id=left, generation_id=1)
    run.leave(LeavingMember(left), group="left")
    run.commit(8, group="simple")
    run.commit(1, group="expiring", retention_ms=3_600_000_000_000)
    run.delete_group("cut")
    run.groups.close()
    broker.close()

    kafka = written.kafka
    admin = kafka.start_without_cleaning()
    listed = poll_until(
        lambda: _states(admin) or None, timeout_s=_WAIT_S, what="Kafka has loaded the groups"
    )
    assert listed["ours"] == GroupState.STABLE.value
    assert listed["left"] == listed["simple"] == listed["expiring"] == GroupState.EMPTY.value
    assert "cut" not in listed
    assert _offsets(kafka.port, "ours") == {("t", 0): (3, "von uns")}
    assert _offsets(kafka.port, "left") == {("t", 0): (4, "")}
    assert _offsets(kafka.port, "simple")["t", 0] == (8, "")
    assert _offsets(kafka.port, "expiring") == {("t", 0): (1, "")}
    described = kafka_tool(
        *("consumer-groups", "--bootstrap-server", kafka.bootstrap_servers),
        *("--describe", "--group", "ours", "--members"),
        heap="256m",
    )
    for member_id in ids:
        assert re.search(rf"^ours\s+{member_id}\s+/127.0.0.1\s+client\s", described.stdout, re.M), (
            described.stdout + described.stderr
        )
    kafka.stop()


def test_kafka_takes_over_a_directory_that_was_served_here(
    kafka_jars: Path, tmp_path: Path
) -> None:
    data = tmp_path / "data"
    data.mkdir()
    properties = {"num.partitions": str(PARTITIONS)}
    with RunningBroker(properties, log_dir=data, engine=NoEngine) as broker:
        producer = Producer({"bootstrap.servers": broker.bootstrap_servers})
        producer.produce("t", b"v")
        producer.flush(_WAIT_S)
        consumer = Consumer(
            {
                "bootstrap.servers": broker.bootstrap_servers,
                "group.id": "static",
                "group.instance.id": "i",
                "enable.auto.commit": False,
                "session.timeout.ms": _SESSION_MS,
                "max.poll.interval.ms": _SESSION_MS,
            }
        )
        consumer.subscribe(["t"])
        _wait_for_assignments([consumer], [PARTITIONS])
        position = TopicPartition("t", 0, 1, metadata="m")
        consumer.commit(offsets=[position], asynchronous=False)
        consumer.close()
        del consumer, producer
        with Wire(broker.port) as wire:
            for name in SPREAD:
                part = {"partition_index": 1, "committed_offset": 5, "committed_metadata": name}
                topics = [{"name": "t", "partitions": [part]}]
                values = {"group_id": name, "generation_id_or_member_epoch": -1, "topics": topics}
                (told,) = wire.ask("offset_commit", 8, values)["topics"]
                assert told["partitions"][0]["error_code"] == "none"
    with RealKafka(tmp_path) as kafka:
        admin = kafka.start_without_cleaning({"offsets.topic.num.partitions": "50"})
        expected = {"static": "Stable", **dict.fromkeys(SPREAD, "Empty")}
        poll_until(  # partition by partition
            lambda: len(_states(admin)) >= len(expected),
            timeout_s=_WAIT_S,
            what="the groups are loaded",
        )
        assert _states(admin) == expected
        for name in SPREAD:
            assert _offsets(kafka.port, name) == {("t", 1): (5, name)}
        assert _offsets(kafka.port, "static") == {("t", 0): (1, "m")}
        again = _consumer(kafka, "one", **{"group.id": "static", "group.instance.id": "i"})
        _wait_for_assignments([again], [PARTITIONS])
        again.close()
        kafka.stop()
    with (
        RunningBroker(properties, log_dir=data, engine=NoEngine) as broker,
        Wire(broker.port) as wire,
    ):
        (group,) = wire.ask("describe_groups", 5, {"groups": ["static"]})["groups"]
        assert group["group_state"] == "Stable"
        assert [member["group_instance_id"] for member in group["members"]] == ["i"]
        asked = {"group_id": "static", "topics": [{"name": "t", "partition_indexes": [0]}]}
        (topic,) = wire.ask("offset_fetch", 7, asked)["topics"]
        assert topic["partitions"][0]["committed_offset"] == 1
