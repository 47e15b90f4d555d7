"""Requests that few clients send: a Kafka and Cordwood answer alike."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from support.kafka import poll_until
from support.wire import Plain, Wire


@pytest.fixture
def wire(stock_broker: str) -> Iterator[Wire]:
    with Wire(int(stock_broker.rpartition(":")[2])) as connection:
        yield connection


def create(wire: Wire, name: str) -> None:
    asked = {"name": name, "num_partitions": 1, "replication_factor": 1}
    wire.ask("create_topics", 5, {"timeout_ms": 5000, "topics": [asked]})


def joins(wire: Wire, group: str, **fields: object) -> Plain:
    """The answer to a member that joins a group, when its coordinator can be had."""
    join = {
        "group_id": group,
        "member_id": "m",
        "member_epoch": 0,
        "rebalance_timeout_ms": 60_000,
        "topic_partitions": [],
        **fields,
    }

    def answer() -> Plain | None:
        wire.ask("find_coordinator", 4, {"key_type": 0, "coordinator_keys": [group]})
        found = wire.ask("consumer_group_heartbeat", 1, join)
        missing = {"coordinator_not_available", "coordinator_load_in_progress", "not_coordinator"}
        return None if found["error_code"] in missing else found

    return poll_until(answer, timeout_s=60, what="the coordinator")


@pytest.mark.parametrize("require_stable", [False, True])
def test_offsets_are_fetched_by_members_of_a_consumer_group_in_their_epoch(
    wire: Wire, require_stable: bool
) -> None:
    group = f"offsets-{require_stable}"
    create(wire, "fetched")
    epoch = joins(wire, group, subscribed_topic_names=["fetched"])["member_epoch"]

    def fetched(**member: object) -> str:
        groups = [{"group_id": group, "topics": None, **member}]
        asked = {"groups": groups, "require_stable": require_stable}
        code: str = wire.ask("offset_fetch", 9, asked)["groups"][0]["error_code"]
        return code

    assert fetched() == "none"
    assert fetched(member_id="m", member_epoch=epoch) == "none"
    assert fetched(member_id="m", member_epoch=epoch + 1) == "stale_member_epoch"
    assert fetched(member_id="m", member_epoch=epoch - 1) == "stale_member_epoch"
    assert fetched(member_id="other", member_epoch=epoch) == "unknown_member_id"
    assert fetched(member_id="", member_epoch=-1) == "unknown_member_id"


def test_no_directory_is_altered_for_a_topic_whose_future_log_would_have_too_long_a_name(
    wire: Wire,
) -> None:
    codes = {}
    for length in (213, 214, 249):
        name = "x" * length
        create(wire, name)
        topics = [{"name": name, "partitions": [0]}]
        asked = {"dirs": [{"path": "/no/such/directory", "topics": topics}]}
        answer = wire.ask("alter_replica_log_dirs", 2, asked)
        codes[length] = answer["results"][0]["partitions"][0]["error_code"]
    assert codes == {
        213: "log_dir_not_found",
        214: "invalid_topic_exception",
        249: "invalid_topic_exception",
    }


@pytest.mark.parametrize(
    ("pattern", "error"),
    [(r"a\C", "invalid_regular_expression"), (r"\Q\C\E", "none"), (r"\\C", "none")],
)
def test_an_escape_for_one_byte_is_refused(wire: Wire, pattern: str, error: str) -> None:
    joined = joins(wire, f"of {pattern}", subscribed_topic_regex=pattern)
    assert joined["error_code"] == error
