"""Groups of all kinds as rows."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any
from uuid import UUID

from cordwood.coordinator.group.offset_records import offset_commit
from cordwood.coordinator.group.offsets import CommittedOffset, OffsetKey
from cordwood.format.group_metadata import (
    CONSUMER_PROTOCOL_SCHEMAS,
    GROUP_RECORDS,
    build_consumer_assignment,
)
from cordwood.format.message_schema import encode_message
from cordwood.model.uuids import uuid_text
from support.log_builder import LogBuilder, write_log_dir
from support.table_rows import Row, rows_of

TOPIC = UUID(int=5)
NAMES = {
    schema.name.removesuffix("Key"): number
    for number, schema in GROUP_RECORDS.keys.items()
    if number
}
NO_TOPIC = {"topic": None, "topicId": None, "subtopologyId": None, "role": None}
NO_MEMBER = dict.fromkeys(
    (
        *("memberId", "instanceId", "clientId", "clientHost", "rackId", "rebalanceTimeoutMs"),
        *("sessionTimeoutMs", "epoch", "subscribedTopics", "subscribedTopicRegex"),
        *("assignor", "assignment"),
    )
)

Record = tuple[str, Mapping[str, Any], int, Mapping[str, Any] | None]


def encoded(records: Iterable[Record]) -> list[tuple[bytes, bytes | None]]:
    """Records given by the name of the type, the key, the value's version and the value."""
    return [
        (
            GROUP_RECORDS.encode_key(NAMES[name], key),
            None if value is None else GROUP_RECORDS.encode_value(NAMES[name], version, value),
        )
        for name, key, version, value in records
    ]


def rows(root: Path, *batches: Sequence[Record]) -> list[Row]:
    log = LogBuilder("__consumer_offsets-9")
    for records in batches:
        log.batch(encoded(records))
    return rows_of("groups", write_log_dir(root, [log]))


def subscription(*topics: str) -> bytes:
    schema = CONSUMER_PROTOCOL_SCHEMAS["ConsumerProtocolSubscription"]
    return b"\0\0" + encode_message(schema, 0, {"topics": list(topics)})


def classic(protocol_type: str, metadata: bytes, assignment: bytes) -> Record:
    member = {
        "memberId": "m-1",
        "groupInstanceId": "i-1",
        "clientId": "c",
        "clientHost": "/127.0.0.1",
        "rebalanceTimeout": 300_000,
        "sessionTimeout": 45_000,
        "subscription": metadata,
        "assignment": assignment,
    }
    value = {
        "protocolType": protocol_type,
        "generation": 4,
        "protocol": "range",
        "leader": "m-1",
        "currentStateTimestamp": 1000,
        "members": [member],
    }
    return "GroupMetadata", {"group": "g"}, 3, value


def test_a_classic_group_of_consumers(tmp_path: Path) -> None:
    assignment = build_consumer_assignment([("a", [0, 2]), ("b", [1])], 1)
    assert rows(tmp_path, [classic("consumer", subscription("a", "b"), assignment)]) == [
        {
            "groupId": "g",
            "type": "classic",
            "state": "Stable",
            "protocolType": "consumer",
            "protocol": "range",
            "generation": 4,
            "leader": "m-1",
            "stateTimestamp": 1000,
            "epoch": None,
            "assignmentEpoch": None,
            "members": [
                {
                    **NO_MEMBER,
                    "memberId": "m-1",
                    "instanceId": "i-1",
                    "clientId": "c",
                    "clientHost": "/127.0.0.1",
                    "rebalanceTimeoutMs": 300_000,
                    "sessionTimeoutMs": 45_000,
                    "subscribedTopics": ["a", "b"],
                    "assignment": [
                        {**NO_TOPIC, "topic": "a", "partitions": [0, 2]},
                        {**NO_TOPIC, "topic": "b", "partitions": [1]},
                    ],
                }
            ],
            "recordPartition": 9,
        }
    ]


def test_what_members_of_other_protocols_keep_inside_is_not_decoded(tmp_path: Path) -> None:
    (row,) = rows(tmp_path, [classic("connect", subscription("a"), b"x")])
    (member,) = row["members"]
    assert row["protocolType"] == "connect"
    assert member["subscribedTopics"] is None
    assert member["assignment"] is None


def test_what_a_client_has_written_wrongly_is_null(tmp_path: Path) -> None:
    (row,) = rows(tmp_path, [classic("consumer", b"\0", b"\0\0\0\0\0\1")])
    (member,) = row["members"]
    assert member["memberId"] == "m-1"
    assert member["subscribedTopics"] is None
    assert member["assignment"] is None


def test_a_group_that_only_has_offsets_and_one_that_is_deleted(tmp_path: Path) -> None:
    log = LogBuilder("__consumer_offsets-9")
    log.batch([offset_commit(OffsetKey("simple", "a", 0), CommittedOffset(1))])
    log.batch(encoded([classic("consumer", subscription("a"), b"")]))
    log.batch(encoded([("GroupMetadata", {"group": "g"}, 3, None)]))
    (row,) = rows_of("groups", write_log_dir(tmp_path, [log]))
    assert {name: value for name, value in row.items() if value is not None} == {
        "groupId": "simple",
        "type": "classic",
        "state": "Empty",
        "generation": 0,
        "members": [],
        "recordPartition": 9,
    }


def of_consumer(member_id: str, epoch: int) -> list[Record]:
    key = {"groupId": "g", "memberId": member_id}
    member = {
        "instanceId": None,
        "rackId": "r",
        "clientId": "c",
        "clientHost": "h",
        "subscribedTopicNames": ["a"],
        "subscribedTopicRegex": "b.*",
        "rebalanceTimeoutMs": 5000,
        "serverAssignor": "uniform",
        "classicMemberMetadata": None,
    }
    topics = [{"topicId": TOPIC, "partitions": [0, 1]}]
    current = {
        "memberEpoch": epoch,
        "previousMemberEpoch": epoch,
        "state": 0,
        "assignedPartitions": topics,
        "partitionsPendingRevocation": [],
    }
    return [
        ("ConsumerGroupMemberMetadata", key, 0, member),
        ("ConsumerGroupMetadata", {"groupId": "g"}, 0, {"epoch": 3, "metadataHash": 1}),
        ("ConsumerGroupTargetAssignmentMember", key, 0, {"topicPartitions": topics}),
        (
            "ConsumerGroupTargetAssignmentMetadata",
            {"groupId": "g"},
            0,
            {"assignmentEpoch": 3, "assignmentTimestamp": 9},
        ),
        ("ConsumerGroupCurrentMemberAssignment", key, 0, current),
    ]


def test_a_consumer_group(tmp_path: Path) -> None:
    assert rows(tmp_path, of_consumer("m", 3)) == [
        {
            "groupId": "g",
            "type": "consumer",
            "state": "Stable",
            "protocolType": "consumer",
            "protocol": "uniform",
            "generation": None,
            "leader": None,
            "stateTimestamp": None,
            "epoch": 3,
            "assignmentEpoch": 3,
            "members": [
                {
                    **NO_MEMBER,
                    "memberId": "m",
                    "clientId": "c",
                    "clientHost": "h",
                    "rackId": "r",
                    "rebalanceTimeoutMs": 5000,
                    "epoch": 3,
                    "subscribedTopics": ["a"],
                    "subscribedTopicRegex": "b.*",
                    "assignor": "uniform",
                    "assignment": [{**NO_TOPIC, "topicId": uuid_text(TOPIC), "partitions": [0, 1]}],
                }
            ],
            "recordPartition": 9,
        }
    ]


def of_share(member_id: str) -> list[Record]:
    key = {"groupId": "s", "memberId": member_id}
    member = {"rackId": None, "clientId": "c", "clientHost": "h", "subscribedTopicNames": ["a"]}
    current = {
        "memberEpoch": 2,
        "previousMemberEpoch": 1,
        "state": 0,
        "assignedPartitions": [{"topicId": TOPIC, "partitions": [4]}],
    }
    return [
        ("ShareGroupMemberMetadata", key, 0, member),
        ("ShareGroupMetadata", {"groupId": "s"}, 0, {"epoch": 2, "metadataHash": 1}),
        (
            "ShareGroupTargetAssignmentMetadata",
            {"groupId": "s"},
            0,
            {"assignmentEpoch": 1, "assignmentTimestamp": 9},
        ),
        ("ShareGroupCurrentMemberAssignment", key, 0, current),
    ]


def gone(records: Iterable[Record]) -> list[Record]:
    return [(name, key, version, None) for name, key, version, _ in reversed(list(records))]


def test_a_share_group(tmp_path: Path) -> None:
    found = rows(tmp_path, of_share("m"), of_share("n"), [of_share("n")[0]])
    (row,) = found
    members = row.pop("members")
    assert [each["memberId"] for each in members] == ["m", "n"]
    assert members[0] == {
        **NO_MEMBER,
        "memberId": "m",
        "clientId": "c",
        "clientHost": "h",
        "epoch": 2,
        "subscribedTopics": ["a"],
        "assignment": [{**NO_TOPIC, "topicId": uuid_text(TOPIC), "partitions": [4]}],
    }
    assert {name: value for name, value in row.items() if value is not None} == {
        "groupId": "s",
        "type": "share",
        "state": "Stable",
        "protocolType": "share",
        "epoch": 2,
        "assignmentEpoch": 1,
        "recordPartition": 9,
    }


def test_members_that_have_left_and_groups_that_are_deleted_are_not_there(tmp_path: Path) -> None:
    of_member, of_group = of_share("m"), of_share("m")[1:3]
    left = [each for each in of_member if each not in of_group]
    (row,) = rows(tmp_path / "left", of_member, gone(left))
    assert (row["state"], row["members"], row["epoch"]) == ("Empty", [], 2)
    assert rows(tmp_path / "deleted", of_member, gone(of_member)) == []


def test_a_streams_group(tmp_path: Path) -> None:
    key = {"groupId": "t", "memberId": "m"}
    member = {
        "instanceId": "i",
        "rackId": "r",
        "clientId": "c",
        "clientHost": "h",
        "rebalanceTimeoutMs": 6000,
        "topologyEpoch": 1,
        "processId": "p",
        "userEndpoint": None,
        "clientTags": [],
    }
    tasks = {"subtopologyId": "0", "partitions": [1, 2]}
    current = {
        "memberEpoch": 2,
        "previousMemberEpoch": 1,
        "state": 0,
        "activeTasks": [tasks],
        "standbyTasks": [{**tasks, "partitions": [3]}],
        "warmupTasks": [],
        "activeTasksPendingRevocation": [],
        "standbyTasksPendingRevocation": [],
        "warmupTasksPendingRevocation": [],
    }
    records: list[Record] = [
        ("StreamsGroupMemberMetadata", key, 0, member),
        ("StreamsGroupMetadata", {"groupId": "t"}, 0, {"epoch": 2, "metadataHash": 1}),
        ("StreamsGroupCurrentMemberAssignment", key, 0, current),
    ]
    (row,) = rows(tmp_path / "one", records)
    members = row.pop("members")
    assert members == [
        {
            **NO_MEMBER,
            "memberId": "m",
            "instanceId": "i",
            "clientId": "c",
            "clientHost": "h",
            "rackId": "r",
            "rebalanceTimeoutMs": 6000,
            "epoch": 2,
            "assignment": [
                {**NO_TOPIC, "subtopologyId": "0", "role": "active", "partitions": [1, 2]},
                {**NO_TOPIC, "subtopologyId": "0", "role": "standby", "partitions": [3]},
            ],
        }
    ]
    assert {name: value for name, value in row.items() if value is not None} == {
        "groupId": "t",
        "type": "streams",
        "protocolType": "streams",
        "epoch": 2,
        "recordPartition": 9,
    }
    (empty,) = rows(tmp_path / "empty", [records[1]])
    assert empty["state"] == "Empty"
