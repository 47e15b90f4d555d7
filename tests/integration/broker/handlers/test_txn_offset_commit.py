"""TxnOffsetCommit over the wire: offsets that are pending until the marker, and who may commit."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from cordwood.testing.broker import RunningBroker
from support.kafka import poll_until
from support.no_engine import NoEngine
from support.transaction_client import Producer, TransactionClient
from support.wire import NO_UUID

NONE = "none"
T0 = ("t", 0)
UNSTABLE = (-1, "unstable_offset_commit")


@pytest.fixture(scope="module")
def running() -> Iterator[RunningBroker]:
    settings = {
        "offsets.retention.minutes": 10,
        "offsets.topic.num.partitions": 1,
        "log.retention.ms": -1,
    }
    with RunningBroker(settings, engine=NoEngine) as broker:
        with TransactionClient(broker.port) as connection:
            connection.create("t", 2)
            connection.find_group("g")
        yield broker


@pytest.fixture
def wire(running: RunningBroker) -> Iterator[TransactionClient]:
    with TransactionClient(running.port) as connection:
        yield connection


@pytest.mark.parametrize("version", range(7))
@pytest.mark.parametrize("commit", [True, False])
def test_offsets_count_when_the_transaction_is_committed(
    wire: TransactionClient, version: int, *, commit: bool
) -> None:
    group = f"g-{version}-{commit}"
    producer = wire.producer(group)
    assert wire.commit(group, "t", 0, 3) == NONE
    if version < 5:
        assert wire.add_offsets(producer, group) == NONE
    assert wire.commit_offsets(producer, group, {T0: 7}, version) == {T0: NONE}
    assert wire.committed(group, "t", 0) == 3
    assert wire.stable_offset(group, "t") == UNSTABLE
    assert wire.stable_offset(group, "t", 1) == (-1, NONE)
    assert wire.end(producer, commit=commit)["error_code"] == NONE
    wire.settle(group)
    expected = 7 if commit else 3
    assert wire.committed(group, "t", 0) == expected
    assert wire.stable_offset(group, "t") == (expected, NONE)


def test_pending_offsets_are_found_after_a_restart(tmp_path: Path) -> None:
    with (
        RunningBroker(log_dir=tmp_path, engine=NoEngine) as running,
        TransactionClient(running.port) as wire,
    ):
        wire.create("t")
        wire.find_group("g")
        producer = wire.producer("x")
        wire.add_offsets(producer, "g")
        assert wire.commit_offsets(producer, "g", {T0: 7}) == {T0: NONE}
    with (
        RunningBroker(log_dir=tmp_path, engine=NoEngine) as running,
        TransactionClient(running.port) as wire,
    ):
        wire.find("x")
        wire.find_group("g")
        assert wire.stable_offset("g", "t") == UNSTABLE
        assert wire.end(producer, commit=True)["error_code"] == NONE
        wire.settle("x")
        assert wire.stable_offset("g", "t") == (7, NONE)


@pytest.mark.parametrize(
    ("version", "error"), [(3, "invalid_txn_state"), (4, "transaction_abortable")]
)
def test_offsets_that_were_not_added_are_refused(
    wire: TransactionClient, version: int, error: str
) -> None:
    producer = wire.producer(f"not-added-{version}")
    assert wire.commit_offsets(producer, "g", {T0: 1, ("t", 1): 2}, version) == {
        T0: error,
        ("t", 1): error,
    }
    assert wire.stable_offset("g", "t") == (-1, NONE)


def test_version_5_adds_the_offsets_to_the_transaction(wire: TransactionClient) -> None:
    producer = wire.producer("adds")
    assert wire.commit_offsets(producer, "adds", {T0: 1}, 5) == {T0: NONE}
    (topic,) = wire.described("adds")["topics"]
    assert topic["topic"] == "__consumer_offsets"
    answer = wire.end(producer, commit=True, version=5)
    assert (answer["error_code"], answer["producer_epoch"]) == (NONE, producer.epoch + 1)
    wire.settle("adds")
    assert wire.committed("adds", "t", 0) == 1
    late = wire.commit_offsets(producer, "adds", {T0: 9}, 5)
    assert late == {T0: "invalid_producer_epoch"}


def test_what_cannot_be_committed_is_answered_beside_what_can(wire: TransactionClient) -> None:
    producer = wire.producer("beside")
    offsets = {("missing", 0): 1, T0: 2, ("t", 9): 3}
    assert wire.commit_offsets(producer, "beside", offsets, 5) == {
        ("missing", 0): "unknown_topic_or_partition",
        T0: NONE,
        ("t", 9): "unknown_topic_or_partition",
    }
    wire.end(producer, commit=True)
    assert wire.settle("beside") == "CompleteCommit"
    long = wire.commit_offsets(producer, "beside", {T0: 9}, 5, metadata="x" * 5000)
    assert long == {T0: "offset_metadata_too_large"}
    assert wire.committed("beside", "t", 0) == 2


def test_a_topic_that_is_named_twice_is_answered_twice_where_nothing_was_refused(
    wire: TransactionClient,
) -> None:
    producer = wire.producer("twice")

    def answered(*named: tuple[str, int]) -> list[tuple[str, list[tuple[int, str]]]]:
        partition = {"committed_offset": 1, "committed_leader_epoch": -1}
        topics = [
            {"name": name, "partitions": [{**partition, "partition_index": index}]}
            for name, index in named
        ]
        asked = {**producer.named(), "group_id": "twice", "topics": topics}
        answer = wire.ask("txn_offset_commit", 5, asked)
        return [
            (topic["name"], [(each["partition_index"], each["error_code"]) for each in found])
            for topic in answer["topics"]
            if (found := topic["partitions"])
        ]

    assert answered(T0, ("t", 1)) == [("t", [(0, NONE)]), ("t", [(1, NONE)])]
    missing = "unknown_topic_or_partition"
    assert answered(T0, ("t", 9), ("t", 1)) == [("t", [(9, missing), (0, NONE), (1, NONE)])]


def test_a_topic_id_that_is_not_there_is_answered_by_it(wire: TransactionClient) -> None:
    producer = wire.producer("by-id")
    missing, known = UUID(int=77), wire.topic_id("t")
    partition = {"committed_offset": 1, "committed_leader_epoch": -1}
    asked = {
        **producer.named(),
        "group_id": "by-id",
        "topics": [
            {"topic_id": each, "partitions": [{**partition, "partition_index": index}]}
            for each, index in ((known, 0), (missing, 0), (NO_UUID, 1), (known, 9))
        ],
    }
    answer = wire.ask("txn_offset_commit", 6, asked)
    errors = {
        topic["topic_id"]: [(each["partition_index"], each["error_code"]) for each in found]
        for topic in answer["topics"]
        if (found := topic["partitions"])
    }
    assert list(errors.items()) == [
        (missing, [(0, "unknown_topic_id")]),
        (NO_UUID, [(1, "unknown_topic_id")]),
        (known, [(9, "unknown_topic_or_partition"), (0, NONE)]),
    ]
    wire.end(producer, commit=False)


@pytest.mark.parametrize("version", [5, 6])
def test_version_6_has_the_errors_of_member_epochs(wire: TransactionClient, version: int) -> None:
    group = f"epochs-{version}"
    wire.find_group(group)
    producer = wire.producer(group)
    named = {"member_id": "m", "generation_id_or_member_epoch": 9}

    def committed() -> str:
        return wire.commit_offsets(producer, group, {T0: 1}, version, **named)[T0]

    assert committed() == ("group_id_not_found" if version >= 6 else "illegal_generation")
    joining = {
        "group_id": group,
        "member_id": "m",
        "member_epoch": 0,
        "rebalance_timeout_ms": 60_000,
        "subscribed_topic_names": ["t"],
        "topic_partitions": [],
    }
    assert wire.ask("consumer_group_heartbeat", 1, joining)["error_code"] == NONE
    assert committed() == ("stale_member_epoch" if version >= 6 else "illegal_generation")
    wire.end(producer, commit=False)


@pytest.mark.parametrize(
    ("fields", "error"),
    [
        ({"group": ""}, "invalid_group_id"),
        ({"generation_id_or_member_epoch": 3, "member_id": "nobody"}, "illegal_generation"),
        ({"producer": Producer("nobody", 5, 0)}, "invalid_producer_id_mapping"),
    ],
)
def test_who_may_not_commit(wire: TransactionClient, fields: dict[str, Any], error: str) -> None:
    known = wire.producer("may-not")
    wire.find_group("no-such-group")
    asked = {"producer": known, "group": "no-such-group", "offsets": {T0: 1}, "version": 5}
    assert wire.commit_offsets(**{**asked, **fields}) == {T0: error}


@pytest.mark.parametrize("version", [2, 3])
def test_members_are_named_from_version_3_on(wire: TransactionClient, version: int) -> None:
    """A group with members: a producer of an older version, which names none, may commit."""
    group = f"members-{version}"
    wire.find_group(group)
    joining = {
        "group_id": group,
        "session_timeout_ms": 60_000,
        "rebalance_timeout_ms": 60_000,
        "member_id": "",
        "protocol_type": "consumer",
        "protocols": [{"name": "range", "metadata": b""}],
    }
    member = wire.ask("join_group", 3, joining)
    assert member["error_code"] == NONE
    generation = {"group_id": group, "generation_id": member["generation_id"]}
    synced = {**generation, "member_id": member["member_id"], "assignments": []}
    assert wire.ask("sync_group", 2, synced)["error_code"] == NONE
    producer = wire.producer(group)
    wire.add_offsets(producer, group)

    def committed(**fields: Any) -> str:
        return wire.commit_offsets(producer, group, {T0: 1}, version, **fields)[T0]

    assert committed() == NONE
    if version >= 3:
        named = {
            "member_id": member["member_id"],
            "generation_id_or_member_epoch": member["generation_id"],
        }
        assert committed(**named) == NONE
        wrong = {**named, "generation_id_or_member_epoch": 9}
        assert committed(**wrong) == "illegal_generation"
        assert committed(**{**named, "member_id": "other"}) == "unknown_member_id"
        assert committed(**named, group_instance_id="i") == "unknown_member_id"
    wire.end(producer, commit=True)


def test_offsets_of_an_open_transaction_do_not_expire(running: RunningBroker) -> None:
    with TransactionClient(running.port) as wire:
        producer = wire.producer("keeps", transaction_timeout_ms=900_000)
        for group in ("keeps", "expires"):
            assert wire.commit(group, "t", 0, 3) == NONE
        assert wire.commit_offsets(producer, "keeps", {T0: 7}, 5) == {T0: NONE}
        for _ in range(2):
            running.advance(minutes=6, compact=False)
        poll_until(
            lambda: wire.committed("expires", "t", 0) == -1,
            timeout_s=60,
            what="the expiry of an offset outside of transactions",
        )
        assert wire.committed("keeps", "t", 0) == 3
        wire.end(producer, commit=True)
        wire.settle("keeps")
        assert wire.committed("keeps", "t", 0) == 7
