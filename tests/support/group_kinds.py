"""Groups of the kinds that a real Kafka coordinates: members join, make progress and leave.

Each member is a few requests on one connection: no client library waits for its heartbeat here.
What is left are records of these kinds in `__consumer_offsets` and `__share_group_state`, and no
member whose session could end later, unless the members are to stay.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final
from uuid import UUID

from cordwood.model.uuids import uuid_text
from support.kafka import poll_until
from support.wire import API_KEYS, Plain
from support.wire_client import WireClient

_WAIT_S: Final = 60.0
_REBALANCE_MS: Final = 60_000
_JOIN, _LEAVE = 0, -1
_GROUP: Final = 32
_EVENTUALLY: Final = frozenset(
    {"coordinator_not_available", "not_coordinator", "coordinator_load_in_progress"}
)
#: Of a record that a member of a share group has acquired: it is done, comes again, or never again.
_ACCEPT, _RELEASE, _REJECT = 1, 2, 3
_MEMBER_ID: Final = uuid_text(UUID(int=7))


def make_groups(port: int, topic: str, *, stay: bool = False) -> None:
    """Makes `consumers`, `sharers` and `streams`, of which each has read partition 0 of a topic.

    Groups that are there already get a member once more. Members leave, unless they are to stay.
    """
    with WireClient(port) as wire:
        # It has the topic of groups made.
        wire.ask("find_coordinator", 4, {"key_type": 0, "coordinator_keys": ["consumers"]})
        for read in (_read_as_consumer, _read_as_sharer, _read_as_streams):
            member = read(wire, topic)
            if not stay:
                member.leave()


class _Member:
    """A member of a group whose state is in its coordinator, by heartbeats of one API."""

    def __init__(self, wire: WireClient, api: str, group: str) -> None:
        self._wire = wire
        self._api = api
        self._version = wire.versions()[API_KEYS[api]][-1]
        self._group = group
        self._epoch = _JOIN

    def join(self, fields: Mapping[str, Any]) -> Plain:
        """Joins, as soon as the coordinator has loaded the group."""

        def joined() -> Plain | None:
            answer = self.beat(fields)
            return None if answer["error_code"] in _EVENTUALLY else answer

        answer = poll_until(joined, timeout_s=_WAIT_S, what=f"{self._group} has a coordinator")
        assert answer["error_code"] == "none", answer
        return answer

    def beat(self, fields: Mapping[str, Any] | None = None) -> Plain:
        """Sends a heartbeat, and takes the epoch of the answer."""
        answer = self._wire.ask(
            self._api,
            self._version,
            {
                "group_id": self._group,
                "member_id": _MEMBER_ID,
                "member_epoch": self._epoch,
                **(fields or {}),
            },
        )
        if answer["error_code"] == "none":
            self._epoch = answer["member_epoch"]
        return answer

    def until(self, answer: Plain, found: Callable[[Plain], Any]) -> Any:
        """The value `found` in the answer, or in that of a later heartbeat."""
        seen = found(answer)

        def looked() -> Any:
            later = self.beat()
            assert later["error_code"] == "none", later
            return found(later)

        return seen or poll_until(looked, timeout_s=_WAIT_S, what=f"{self._group} is assigned")

    def commit(self, topic: str, offset: int) -> None:
        """Commits an offset of partition 0."""
        position = {"partition_index": 0, "committed_offset": offset, "committed_metadata": "m"}
        answer = self._wire.ask(
            "offset_commit",
            9,
            {
                "group_id": self._group,
                "member_id": _MEMBER_ID,
                "generation_id_or_member_epoch": self._epoch,
                "topics": [{"name": topic, "partitions": [position]}],
            },
        )
        assert answer["topics"][0]["partitions"][0]["error_code"] == "none", answer

    def leave(self) -> None:
        """Leaves the group."""
        self._epoch = _LEAVE
        answer = self.beat()
        assert answer["error_code"] == "none", answer


def _set(wire: WireClient, group: str, **settings: str) -> None:
    """Sets settings of a group; names with underscores for dots."""
    configs = [
        {"name": name.replace("_", "."), "config_operation": 0, "value": value}
        for name, value in settings.items()
    ]
    resource = {"resource_type": _GROUP, "resource_name": group, "configs": configs}
    (answer,) = wire.ask("incremental_alter_configs", 1, {"resources": [resource]})["responses"]
    assert answer["error_code"] == "none", answer


def _assigned(answer: Plain) -> Any:
    return answer["assignment"] and answer["assignment"]["topic_partitions"]


def _read_as_consumer(wire: WireClient, topic: str) -> _Member:
    member = _Member(wire, "consumer_group_heartbeat", "consumers")
    first = member.join(
        {
            "rebalance_timeout_ms": _REBALANCE_MS,
            "subscribed_topic_names": [topic],
            "topic_partitions": [],
        }
    )
    member.beat({"topic_partitions": member.until(first, _assigned)})
    for offset in range(20):
        member.commit(topic, offset)
    return member


def _read_as_sharer(wire: WireClient, topic: str) -> _Member:
    _set(wire, "sharers", share_auto_offset_reset="earliest")
    member = _Member(wire, "share_group_heartbeat", "sharers")
    member.until(member.join({"subscribed_topic_names": [topic]}), _assigned)
    session = _ShareSession(wire, wire.topic_id(topic))
    for kinds in ((_ACCEPT,), (_RELEASE, _ACCEPT, _REJECT), (_REJECT, _RELEASE)):
        session.acknowledge(session.acquire(), kinds)
    session.close()
    return member


class _ShareSession:
    """A session of a member of `sharers`, over partition 0 of one topic."""

    def __init__(self, wire: WireClient, topic_id: UUID) -> None:
        self._wire = wire
        self._topic_id = topic_id
        self._epoch = 0

    def acquire(self) -> list[tuple[int, int]]:
        """The first and last offsets of batches that are the member's for some time."""
        return poll_until(self._acquire, timeout_s=_WAIT_S, what="records of a share partition")

    def _acquire(self) -> list[tuple[int, int]]:
        partition = self._ask(
            "share_fetch",
            {
                "max_wait_ms": 100,
                "min_bytes": 1,
                "max_bytes": 1 << 20,
                "max_records": 50,
                "batch_size": 10,
            },
            [],
        )
        acquired = partition["acquired_records"] if partition else []
        return [(each["first_offset"], each["last_offset"]) for each in acquired]

    def acknowledge(self, batches: list[tuple[int, int]], kinds: tuple[int, ...]) -> None:
        """Acknowledges records in these ways by turns."""
        told = [
            {
                "first_offset": first,
                "last_offset": last,
                "acknowledge_types": [
                    kinds[offset % len(kinds)] for offset in range(first, last + 1)
                ],
            }
            for first, last in batches
        ]
        partition = self._ask("share_acknowledge", {}, told)
        assert partition is not None
        assert partition["error_code"] == "none", partition

    def close(self) -> None:
        """Ends it."""
        self._epoch = -1
        self._ask("share_acknowledge", {}, None)

    def _ask(
        self, api: str, fields: Mapping[str, Any], batches: list[Plain] | None
    ) -> Plain | None:
        """The answer for the partition; None if there is nothing to be said of it."""
        topics = []
        if batches is not None:
            partition = {"partition_index": 0, "acknowledgement_batches": batches}
            topics = [{"topic_id": self._topic_id, "partitions": [partition]}]
        asked = {"group_id": "sharers", "member_id": _MEMBER_ID, "topics": topics, **fields}
        answer = self._wire.ask(api, 1, {**asked, "share_session_epoch": self._epoch})
        assert answer["error_code"] == "none", answer
        self._epoch += 1
        found = [one for each in answer["responses"] for one in each["partitions"]]
        return found[0] if found else None


def _read_as_streams(wire: WireClient, topic: str) -> _Member:
    _set(wire, "streams", streams_initial_rebalance_delay_ms="0")
    member = _Member(wire, "streams_group_heartbeat", "streams")
    changelog = {
        "name": "streams-counts-changelog",
        "replication_factor": 1,
        "topic_configs": [{"key": "cleanup.policy", "value": "compact"}],
    }
    subtopology = {
        "subtopology_id": "0",
        "source_topics": [topic],
        "state_changelog_topics": [changelog],
    }
    tasks: Plain = {"active_tasks": [], "standby_tasks": [], "warmup_tasks": []}
    first = member.join(
        {
            "rebalance_timeout_ms": _REBALANCE_MS,
            "topology": {"epoch": 1, "subtopologies": [subtopology]},
            "process_id": "process",
            "user_endpoint": {"host": "localhost", "port": 4000},
            "client_tags": [{"key": "zone", "value": "a"}],
            **tasks,
        }
    )
    owned = member.until(first, lambda answer: answer["active_tasks"])
    offset = {"subtopology_id": "0", "partition": 0, "offset": 5}
    member.beat({**tasks, "active_tasks": owned, "task_offsets": [offset]})
    member.commit(topic, 5)
    return member
