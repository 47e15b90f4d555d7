"""Tables of groups, offsets, transactions and metadata against kafka-dump-log.

The rows are what Kafka's own tool prints last of each key, in directories of a real Kafka. Of the
states of groups the broker is the measure, which has listed them before it was stopped.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import pytest
from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from cordwood.format.group_metadata import GROUP_RECORDS
from support.golden import Golden
from support.group_kinds import make_groups
from support.kafka import RealKafka, poll_until
from support.kafka_programs import KAFKA_4_4
from support.kafka_tools import KafkaTools
from support.table_rows import Row, rows_of
from support.wire_client import WireClient

pytestmark = [pytest.mark.kafka, pytest.mark.usefixtures("kafka_4_4_jars")]

_WAIT_S: Final = 180
#: Of members that are there until the broker is stopped, however slow the machine is.
_SESSION_MS: Final = 1_800_000
_PROPERTIES: Final = {
    "offsets.topic.num.partitions": "2",
    "transaction.state.log.num.partitions": "2",
    "share.coordinator.state.topic.num.partitions": "1",
    "group.initial.rebalance.delay.ms": "0",
    **{
        f"group.{kind}.{name}session.timeout.ms": str(_SESSION_MS)
        for kind in ("consumer", "share", "streams")
        for name in ("", "max.")
    },
}
_BATCH: Final = re.compile(r"baseOffset: .* producerId: (-?\d+) .* isControl: (\w+) ")
_OFFSET: Final = re.compile(r"\| offset: (\d+) ")
#: The names of keys by their types, as the tool prints those.
_NAMES: Final = {
    str(number): schema.name.removesuffix("Key") for number, schema in GROUP_RECORDS.keys.items()
}
_COMMITS: Final = frozenset({"OffsetCommit", "LegacyOffsetCommit"})

Fields = Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Directory:
    """A log directory, and the states of its groups if the broker was asked for them."""

    path: Path
    states: dict[str, tuple[str, str]] = field(default_factory=dict)


@pytest.fixture(scope="module")
def made(kafka_4_4_jars: Path, tmp_path_factory: pytest.TempPathFactory) -> Directory:
    """Groups of all kinds with members, and offsets in transactions that ended, or did not."""
    assert kafka_4_4_jars.is_dir()
    root = tmp_path_factory.mktemp("tables")
    with RealKafka(root, properties=_PROPERTIES, version=KAFKA_4_4) as kafka:
        admin = kafka.start_without_cleaning()
        admin.create_topics([NewTopic("t", 2, 1)])["t"].result()
        # The member of the share group acquires some batches, and comes for others.
        producer = Producer(kafka.client({"batch.num.messages": 20}))
        for _ in range(1000):
            producer.produce("t", b"v", partition=0)
        producer.flush(_WAIT_S)
        _commit_alone(admin)
        _commit_in_transactions(kafka)
        _join(kafka)
        make_groups(kafka.port, "t", stay=True)
        states = _states(kafka.port)
        kafka.stop()
        return Directory(path=kafka.log_dirs[0], states=states)


def _commit_alone(admin: AdminClient) -> None:
    for group in ("simple", "gone"):
        for offset in (3, 4):
            positions = [TopicPartition("t", 0, offset), TopicPartition("t", 1, 0)]
            wanted = ConsumerGroupTopicPartitions(group, positions)
            admin.alter_consumer_group_offsets([wanted])[group].result()
    admin.delete_consumer_groups(["gone"])["gone"].result()


def _commit_in_transactions(kafka: RealKafka) -> None:
    for name, offset in (("committed", 1), ("aborted", 2), ("open", 3)):
        settings = {"transactional.id": name, "transaction.timeout.ms": 600_000}
        producer = Producer(kafka.client(settings))
        producer.init_transactions(_WAIT_S)
        consumer = Consumer(kafka.client({"group.id": "of-transactions"}))
        producer.begin_transaction()
        position = TopicPartition("t", 0, offset, metadata="größe")
        metadata = consumer.consumer_group_metadata()
        producer.send_offsets_to_transaction([position], metadata, _WAIT_S)
        if name == "committed":
            producer.commit_transaction(_WAIT_S)
        elif name == "aborted":
            producer.abort_transaction(_WAIT_S)
        consumer.close()


def _join(kafka: RealKafka) -> None:
    """A static member of a classic group, which stays a member when it goes."""
    settings = {
        "group.id": "running",
        "group.instance.id": "i",
        "session.timeout.ms": _SESSION_MS,
        "max.poll.interval.ms": _SESSION_MS,
    }
    consumer = Consumer(kafka.client(settings))
    consumer.subscribe(["t"])

    def is_assigned() -> bool:
        consumer.poll(0.1)
        return bool(consumer.assignment())

    poll_until(is_assigned, timeout_s=_WAIT_S, what="a member has its partitions")
    consumer.close()


def _states(port: int) -> dict[str, tuple[str, str]]:
    """The type and the state of each group."""
    with WireClient(port) as wire:
        answer = wire.ask("list_groups", 5, {"states_filter": [], "types_filter": []})
    assert answer["error_code"] == "none", answer
    return {
        each["group_id"]: (each["group_type"].lower(), each["group_state"])
        for each in answer["groups"]
    }


@pytest.fixture(params=["golden before", "golden after", "made"])
def directory(request: pytest.FixtureRequest, golden_a: Golden) -> Directory:
    """Directories of Kafka 4.3, before and after it has cleaned them, and one of 4.4."""
    if request.param == "made":
        found: Directory = request.getfixturevalue("made")
        return found
    stage = request.param.removeprefix("golden ")
    return Directory(path=golden_a.root / f"{stage}-2")


# ---- what the tool prints


@dataclass(frozen=True, slots=True, kw_only=True)
class Printed:
    """A record as the tool prints it; the key and the payload are null where it has none."""

    file: Path
    offset: int
    producer_id: int
    text: str
    key: Fields | None = None
    payload: Fields | None = None


def printed(tools: KafkaTools, files: Iterable[Path], flag: str) -> Iterator[Printed]:
    """The records of files."""
    for file in files:
        result = tools.run("dump-log", "--files", str(file), flag)
        assert result.code == 0, result.err
        producer_id = -1
        for line in result.out.splitlines():
            batch, record = _BATCH.match(line), _OFFSET.match(line)
            if batch is not None:
                producer_id = int(batch[1])
            elif record is not None:
                yield Printed(
                    file=file,
                    offset=int(record[1]),
                    producer_id=producer_id,
                    text=line,
                    key=_document(line, " key: "),
                    payload=_document(line, " payload: "),
                )


def _document(line: str, label: str) -> Fields | None:
    _, found, text = line.partition(label)
    if not found or not text.startswith("{"):
        return None
    document: Fields = json.JSONDecoder().raw_decode(text)[0]
    return document


def logs(directory: Path, topic: str) -> list[Path]:
    return sorted(directory.glob(f"{topic}-*/*.log"))


Key = tuple[str, tuple[Any, ...]]


class Latest:
    """The newest payload of each key, by the key's type and fields, with its offset."""

    def __init__(self, records: Iterable[Printed], names: Mapping[str, str]) -> None:
        self.values: dict[Key, tuple[int, Fields]] = {}
        self.pending: dict[int, dict[Key, tuple[int, Fields]]] = {}
        for record in records:
            if "endTxnMarker: " in record.text:
                ended = self.pending.pop(record.producer_id, {})
                self.values |= ended if "endTxnMarker: COMMIT" in record.text else {}
                continue
            assert record.key is not None, record
            key = names[record.key["type"]], tuple(record.key["data"].values())
            values = self.values
            if record.producer_id != -1:
                values = self.pending.setdefault(record.producer_id, {})
            if record.payload is None:
                values.pop(key, None)
            else:
                values[key] = record.offset, record.payload["data"]

    def of(self, name: str) -> dict[tuple[Any, ...], Fields]:
        """The payloads of a type, by the fields of their keys."""
        return {key: value for (kind, key), (_, value) in self.values.items() if kind == name}


@pytest.fixture
def groups(directory: Directory, tools_4_4: KafkaTools) -> Latest:
    files = logs(directory.path, "__consumer_offsets")
    return Latest(printed(tools_4_4, files, "--offsets-decoder"), _NAMES)


def commit(key: Sequence[Any], offset: int, value: Fields, producer_id: int) -> Row:
    group, topic, partition = key
    return {
        "groupId": group,
        "topic": topic,
        "partition": partition,
        "expireTimestamp": None,
        "topicId": None,
        **value,
        "isPending": producer_id != -1,
        "producerId": producer_id,
        "recordOffset": offset,
    }


def test_offsets_are_the_last_that_were_committed(directory: Directory, groups: Latest) -> None:
    by_producer = {-1: groups.values, **groups.pending}
    expected = [
        commit(key, offset, value, producer_id)
        for producer_id, values in by_producer.items()
        for (kind, key), (offset, value) in values.items()
        if kind in _COMMITS
    ]
    assert expected
    found = rows_of("offsets", directory.path)
    for row in found:
        assert row.pop("recordPartition") in {0, 1}
    assert sorted(found, key=str) == sorted(({**found[0], **row} for row in expected), key=str)
    if directory.states:
        (pending,) = [row for row in found if row["isPending"]]
        assert (pending["groupId"], pending["offset"]) == ("of-transactions", 3)
        (committed,) = [
            row for row in found if row["groupId"] == "of-transactions" and row is not pending
        ]
        # librdkafka ends the text with a zero.
        assert (committed["offset"], committed["metadata"].rstrip("\0")) == (1, "größe")


def settled(members: Iterable[Row]) -> list[Row]:
    """Members without what is null, in one order."""
    found = []
    for member in members:
        shown = {name: value for name, value in member.items() if value is not None}
        if "assignment" in shown:
            shown["assignment"] = sorted(
                (
                    {
                        **{name: value for name, value in each.items() if value is not None},
                        "partitions": sorted(each["partitions"]),
                    }
                    for each in shown["assignment"]
                ),
                key=str,
            )
        found.append(shown)
    return sorted(found, key=lambda member: str(member["memberId"]))


def classic(value: Fields) -> Row:
    members = [
        {
            "memberId": each["memberId"],
            "instanceId": each["groupInstanceId"],
            "clientId": each["clientId"],
            "clientHost": each["clientHost"],
            "rebalanceTimeoutMs": each["rebalanceTimeout"],
            "sessionTimeoutMs": each["sessionTimeout"],
            "subscribedTopics": each["subscription"]["topics"],
            "assignment": each["assignment"]["assignedPartitions"],
        }
        for each in value["members"]
    ]
    return {
        "type": "classic",
        "protocolType": value["protocolType"] or None,
        **{name: value[name] for name in ("protocol", "generation", "leader")},
        "stateTimestamp": value["currentStateTimestamp"],
        "members": settled(members),
    }


def modern(kind: str, groups: Latest, group: str) -> Row:
    """A group of a newer kind, of the records whose names begin with its own."""
    current = groups.of(f"{kind}CurrentMemberAssignment")
    members = []
    for (of_group, member_id), value in groups.of(f"{kind}MemberMetadata").items():
        if of_group == group:
            has = current[group, member_id]
            members.append(
                {
                    "memberId": member_id,
                    "instanceId": value.get("instanceId"),
                    "clientId": value["clientId"],
                    "clientHost": value["clientHost"],
                    "rackId": value["rackId"],
                    "rebalanceTimeoutMs": value.get("rebalanceTimeoutMs"),
                    "epoch": has["memberEpoch"],
                    "subscribedTopics": value.get("subscribedTopicNames"),
                    "subscribedTopicRegex": value.get("subscribedTopicRegex") or None,
                    "assignor": value.get("serverAssignor"),
                    "assignment": list(assigned(has)),
                }
            )
    target = groups.of(f"{kind}TargetAssignmentMetadata")[group,]
    return {
        "type": kind.removesuffix("Group").lower(),
        "epoch": groups.of(f"{kind}Metadata")[group,]["epoch"],
        "assignmentEpoch": target["assignmentEpoch"],
        "members": settled(members),
    }


def assigned(current: Fields) -> Iterator[Row]:
    for each in current.get("assignedPartitions", ()):
        yield {"topicId": each["topicId"], "partitions": each["partitions"]}
    for role in ("active", "standby", "warmup"):
        for each in current.get(f"{role}Tasks", ()):
            yield {
                "subtopologyId": each["subtopologyId"],
                "role": role,
                "partitions": each["partitions"],
            }


def test_groups_are_as_their_last_records_say(directory: Directory, groups: Latest) -> None:
    expected = {group: classic(value) for (group,), value in groups.of("GroupMetadata").items()}
    for kind in ("ConsumerGroup", "ShareGroup", "StreamsGroup"):
        for (group,) in groups.of(f"{kind}Metadata"):
            expected[group] = modern(kind, groups, group)
    for key in (*groups.of("OffsetCommit"), *groups.of("LegacyOffsetCommit")):
        expected.setdefault(key[0], {"type": "classic", "members": []})
    rows = {row["groupId"]: row for row in rows_of("groups", directory.path)}
    assert rows.keys() == expected.keys()
    for group, row in rows.items():
        shown = {**row, "members": settled(row["members"])}
        assert {name: shown[name] for name in expected[group]} == expected[group], group
    if directory.states:
        assert {"simple", "running", "consumers", "sharers", "streams"} <= rows.keys()
        assert "gone" not in rows
        for group in ("running", "consumers", "sharers", "streams"):
            assert rows[group]["members"], group
            assert any(each["assignment"] for each in rows[group]["members"]), group


def test_groups_have_the_states_that_the_broker_has_listed(made: Directory) -> None:
    rows = rows_of("groups", made.path)
    found = {row["groupId"]: (row["type"], row["state"]) for row in rows}
    # What its state is depends on more than its records.
    listed = {**made.states, "streams": ("streams", None)}
    assert made.states["streams"][0] == "streams"
    assert found == listed


def test_transactions_are_as_their_last_records_say(
    directory: Directory, tools_4_4: KafkaTools
) -> None:
    files = logs(directory.path, "__transaction_state")
    latest = Latest(printed(tools_4_4, files, "--transaction-log-decoder"), {"0": "transaction"})
    expected = {name: value for (name,), value in latest.of("transaction").items()}
    rows = rows_of("transactions", directory.path)
    assert {row["transactionalId"] for row in rows} == expected.keys()
    for row in rows:
        value = expected[row["transactionalId"]]
        partitions = [
            (topic["topic"], number)
            for topic in value["transactionPartitions"] or ()
            for number in topic["partitionIds"]
        ]
        started = value["transactionStartTimestampMs"]
        assert sorted(
            (each["topic"], each["partition"]) for each in row.pop("partitions")
        ) == sorted(partitions)
        assert row == {
            "transactionalId": row["transactionalId"],
            "producerId": value["producerId"],
            "producerEpoch": value["producerEpoch"],
            "state": value["transactionStatus"],
            "timeoutMs": value["transactionTimeoutMs"],
            "startTimestamp": None if started == -1 else started,
            "updateTimestamp": value["transactionLastUpdateTimestampMs"],
            "previousProducerId": value.get("previousProducerId", -1),
            "nextProducerId": value.get("nextProducerId", -1),
            "clientTransactionVersion": value.get("clientTransactionVersion", 0),
            "recordPartition": row["recordPartition"],
        }
    assert "Ongoing" in {row["state"] for row in rows}


def test_metadata_has_what_the_tool_prints(directory: Directory, tools_4_4: KafkaTools) -> None:
    files = [
        *directory.path.glob("bootstrap.checkpoint"),
        *directory.path.glob("__cluster_metadata-0/*.checkpoint"),
        *logs(directory.path, "__cluster_metadata"),
    ]
    expected = [
        (record.file.name, record.offset, record.payload)
        for record in printed(tools_4_4, files, "--cluster-metadata-decoder")
        if record.payload is not None
    ]
    rows = rows_of("metadata", directory.path)
    found = [
        (
            row["file"],
            row["offset"],
            {"type": row["type"], "version": row["version"], "data": json.loads(row["data"])},
        )
        for row in rows
    ]
    assert len(expected) > 30
    assert sorted(found, key=str) == sorted(expected, key=str)
    with_control = rows_of("metadata", directory.path, isolation="all")
    names = {row["type"] for row in with_control if row["isControl"]}
    assert "LEADER_CHANGE" in names
