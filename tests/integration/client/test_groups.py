from __future__ import annotations

import pytest

from cordwood.client.admin import Admin
from cordwood.client.cluster_client import ClusterClient
from cordwood.client.consumer_protocol import (
    assignment,
    parse_assignment,
    parse_subscription,
    subscription,
)
from cordwood.client.coordinator import committed_offsets, fetch_committed
from cordwood.client.errors import ClientError, RefusedError
from cordwood.client.group import assign_by_range
from cordwood.client.groups import Groups
from cordwood.client.producer import Producer, ProducerRecord, ProducerSettings
from cordwood.model.topic_partition import TopicPartition
from support.group_member import member_of


def partitions(topic: str, *numbers: int) -> list[TopicPartition]:
    return [TopicPartition(topic, number) for number in numbers]


def test_ranges_give_the_first_members_what_is_left_over() -> None:
    members = {"m2": ["a", "b"], "m1": ["a"], "m3": ["b", "none"]}
    assert assign_by_range(members, {"a": 5, "b": 2}) == {
        "m1": partitions("a", 0, 1, 2),
        "m2": [*partitions("a", 3, 4), *partitions("b", 0)],
        "m3": partitions("b", 1),
    }


def test_what_members_tell_each_other_is_read_again() -> None:
    assert parse_subscription(subscription(["a", "b"])) == ["a", "b"]
    given = [*partitions("a", 2, 0), *partitions("b", 1)]
    assert parse_assignment(assignment(given)) == given
    assert parse_assignment(b"") == []


def test_a_subscription_of_a_later_version_is_read() -> None:
    later = b"\x00\x03" + subscription(["a"])[2:] + b"\x00\x00\x00\x07\x00\x04rack"
    assert parse_subscription(later) == ["a"]


def fill(cluster: ClusterClient, topic: str, values: list[bytes]) -> None:
    Admin(cluster).create_topic(topic)

    def refuse(record: ProducerRecord, error: ClientError) -> None:
        pytest.fail(f"{record}: {error}")

    producer = Producer(cluster, ProducerSettings(), refuse)
    for value in values:
        producer.send(ProducerRecord(topic, None, value))
    producer.flush()


def test_a_member_goes_on_where_the_last_one_ended(cluster: ClusterClient) -> None:
    fill(cluster, "read", [b"1", b"2", b"3"])
    tp = TopicPartition("read", 0)
    first = member_of(cluster, "readers", "read")
    assert [r.record.value for r in first.poll(120_000)] == [b"1", b"2", b"3"]
    assert Groups(cluster).describe("readers").state == "Stable"
    assert Groups(cluster).describe("readers").members[0].partitions == (tp,)
    first.close({tp: 1})
    assert committed_offsets(cluster, "readers", [tp]) == {tp: 1}
    second = member_of(cluster, "readers", "read")
    assert [r.record.value for r in second.poll(120_000)] == [b"2", b"3"]
    second.close()
    assert fetch_committed(cluster, "readers", None)[tp].offset == 3


def test_offsets_of_a_group_without_members_are_changed_and_forgotten(
    cluster: ClusterClient,
) -> None:
    Admin(cluster).create_topic("kept")
    groups, tp = Groups(cluster), TopicPartition("kept", 0)
    groups.alter_offsets("idle", {tp: 4})
    assert groups.describe("idle").state == "Empty"
    assert committed_offsets(cluster, "idle", [tp]) == {tp: 4}
    assert groups.delete_offsets("idle", [tp]) == (None, {tp: None})
    assert committed_offsets(cluster, "idle", [tp]) == {}
    groups.alter_offsets("idle", {tp: 1})
    groups.delete("idle")
    with pytest.raises(RefusedError, match="Group idle not found"):
        groups.describe("idle")


def test_offsets_of_no_group_cannot_be_forgotten(cluster: ClusterClient) -> None:
    error, found = Groups(cluster).delete_offsets("nobody", partitions("kept", 0))
    assert error is not None
    assert error.code == 69
    assert list(found) == partitions("kept", 0)
