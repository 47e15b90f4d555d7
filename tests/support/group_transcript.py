"""Answers of a broker to the group APIs in every version, to be compared with another's.

What differs from run to run (ids of members and topics, the port) has names instead. Each step is
asked on a connection of its own where it may have to wait.
"""

from __future__ import annotations

import json
import lzma
import re
import uuid
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

from support.applied import wait_until_applied
from support.kafka import poll_until
from support.wire import API_KEYS, Plain, Wire, known_versions

PROPERTIES: Mapping[str, str] = {
    "offsets.topic.num.partitions": "1",
    "offsets.topic.replication.factor": "1",
    "group.initial.rebalance.delay.ms": "0",
}
"""Those of server.properties that a broker has for a transcript."""

_UUID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_TOPIC = "transcript"
_PARTITIONS = 2
_WAIT_S = 120
#: Longer than a transcript takes: members stay in their groups without a heartbeat.
_MEMBER_MS = 1_200_000
_TRANSACTION, _SHARE, _UNKNOWN_TYPE = 1, 2, 9

Step = tuple[str, Any]


class Transcript:
    """Asks a broker, and notes what it answers."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.steps: list[Step] = []
        self._names: dict[str, str] = {}
        self._wire = Wire(port)
        self._wire.client_id = "transcript"

    def ask(self, api: str, version: int, values: Mapping[str, Any], *, note: str = "") -> Plain:
        """Asks, notes and returns the answer."""
        answer = self._wire.ask(api, version, values)
        self.note(f"{api} v{version} {note}", answer)
        return answer

    def note(self, label: str, answer: Any) -> None:
        """Notes an answer."""
        self.steps.append((label, self._named(answer)))

    def alone(self, api: str, version: int, values: Mapping[str, Any]) -> Plain:
        """Asks on a connection of its own; the answer is not noted."""
        with Wire(self.port, timeout_s=_WAIT_S) as wire:
            wire.client_id = "transcript"
            return wire.ask(api, version, values)

    def _named(self, value: Any) -> Any:
        if isinstance(value, dict):
            named = {key: self._named(inner) for key, inner in value.items()}
            named.pop("throttle_time_ms", None)
            if "members" in named:
                # Kafka has them in the order of their ids' hashes.
                named["members"].sort(key=lambda member: str(member["member_id"]))
            return named
        if isinstance(value, list):
            return [self._named(inner) for inner in value]
        if isinstance(value, str):
            return _UUID.sub(lambda match: self._name(match[0]), value)
        if isinstance(value, bytes):
            return value.hex()
        if isinstance(value, uuid.UUID):
            return self._name(str(value)) if value.int else "(no id)"
        return "(port)" if value == self.port else value

    def _name(self, text: str) -> str:
        return self._names.setdefault(text, f"#{len(self._names) + 1}")


def read_transcript(path: Path) -> list[Step]:
    """A transcript that was kept."""
    return [(label, answer) for label, answer in json.loads(lzma.decompress(path.read_bytes()))]


def keep_transcript(path: Path, steps: Sequence[Step]) -> None:
    """Keeps a transcript in a file."""
    path.write_bytes(lzma.compress(json.dumps(steps, indent=0).encode()))


def transcribe(port: int) -> list[Step]:
    """All of it, against a broker that has no groups yet."""
    script = Transcript(port)
    topic_id = _prepare(script)
    _coordinators(script)
    for version in known_versions(API_KEYS["join_group"]):
        _life(script, version)
        _two_members(script, version)
    _static_members(script)
    _refusals(script)
    _offsets(script, topic_id)
    _listings(script)
    return script.steps


def _prepare(script: Transcript) -> uuid.UUID:
    """Makes a topic and waits for the coordinator; the topic's id."""
    topic = {"name": _TOPIC, "num_partitions": _PARTITIONS, "replication_factor": 1}
    script.alone("create_topics", 5, {"topics": [topic], "timeout_ms": 10_000})

    def is_found() -> bool:
        answer = script.alone("find_coordinator", 3, {"key": "g", "key_type": 0})
        return bool(answer["error_code"] == "none")

    poll_until(is_found, timeout_s=_WAIT_S, what="the coordinator is there")
    # It is found before it begins to load, and has no groups to list until then.
    wait_until_applied(script.port)
    described = script.alone("metadata", 12, {"topics": [{"topic_id": None, "name": _TOPIC}]})
    topic_id = described["topics"][0]["topic_id"]
    assert isinstance(topic_id, uuid.UUID)

    def is_loaded() -> bool:
        answer = script.alone("list_groups", 4, {"states_filter": []})
        return bool(answer["error_code"] == "none")

    poll_until(is_loaded, timeout_s=_WAIT_S, what="groups are loaded")
    return topic_id


def _coordinators(script: Transcript) -> None:
    for version in known_versions(API_KEYS["find_coordinator"]):
        values: dict[str, Any] = {"key": "g", "key_type": 0, "coordinator_keys": ["g", "", "größe"]}
        script.ask("find_coordinator", version, values)
        if version >= 1:
            values |= {"key_type": _UNKNOWN_TYPE}
            script.ask("find_coordinator", version, values, note="unknown type")
        if 1 <= version <= 5:
            values |= {"key_type": _SHARE}
            script.ask("find_coordinator", version, values, note="share")


def _join(group: str, member_id: str = "", **fields: Any) -> dict[str, Any]:
    return {
        "group_id": group,
        "session_timeout_ms": _MEMBER_MS,
        "rebalance_timeout_ms": _MEMBER_MS,
        "member_id": member_id,
        "protocol_type": "consumer",
        "protocols": [{"name": "range", "metadata": b"\0\0\0\0\0\1\0\1t\xff\xff\xff\xff"}],
        **fields,
    }


def _begin(script: Transcript, group: str, version: int, **fields: Any) -> Plain:
    """Joins, a second time if the broker wants that."""
    answer = script.ask("join_group", version, _join(group, **fields))
    if answer["error_code"] == "member_id_required":
        answer = script.ask("join_group", version, _join(group, answer["member_id"], **fields))
    return answer


def _life(script: Transcript, version: int) -> None:
    """One member from its first JoinGroup to its last LeaveGroup."""
    group = f"alone-{version}"
    joined = _begin(script, group, version)
    member = {
        "group_id": group,
        "member_id": joined["member_id"],
        "generation_id": joined["generation_id"],
    }
    others = _others(version)
    describe = {"groups": [group, "none"], "include_authorized_operations": True}
    script.ask("describe_groups", others["describe_groups"], describe, note="before")
    sync = member | {
        "protocol_type": "consumer",
        "protocol_name": "range",
        "assignments": [{"member_id": joined["member_id"], "assignment": b"mine"}],
    }
    script.ask("sync_group", others["sync_group"], sync)
    script.ask("sync_group", others["sync_group"], sync | {"assignments": []}, note="again")
    script.ask("heartbeat", others["heartbeat"], member)
    script.ask("heartbeat", others["heartbeat"], member | {"generation_id": 9}, note="later")
    script.ask("heartbeat", others["heartbeat"], member | {"member_id": "x"}, note="stranger")
    script.ask("describe_groups", others["describe_groups"], describe)
    script.ask("delete_groups", others["delete_groups"], {"groups_names": [group, "none"]})
    leave = member | {"members": [{"member_id": joined["member_id"]}, {"member_id": "x"}]}
    script.ask("leave_group", others["leave_group"], leave)
    script.ask("leave_group", others["leave_group"], leave, note="again")
    script.ask("describe_groups", others["describe_groups"], describe, note="after")
    script.ask("delete_groups", others["delete_groups"], {"groups_names": [group, group]})


def _others(version: int) -> dict[str, int]:
    """Versions of the other APIs that go with one of JoinGroup's: each is used at least once."""
    return {
        api: min(version, known_versions(API_KEYS[api])[-1])
        for api in ("sync_group", "heartbeat", "leave_group", "describe_groups", "delete_groups")
    }


def _two_members(script: Transcript, version: int) -> None:
    """A second member has the first rejoin; both wait at once, for each other and the leader."""
    group = f"two-{version}"
    with ThreadPoolExecutor(2) as threads:

        def later(api: str, at: int, values: Mapping[str, Any]) -> Future[Plain]:
            return threads.submit(script.alone, api, at, values)

        first = _begin(script, group, version)["member_id"]
        answer = script.alone("join_group", version, _join(group)) if version >= 4 else None
        second = "" if answer is None else answer["member_id"]
        waiting = later("join_group", version, _join(group, second))
        _wait_for_state(script, group, "PreparingRebalance")
        leader = script.ask("join_group", version, _join(group, first), note="rejoins")
        follower = waiting.result(_WAIT_S)
        script.note(f"join_group v{version} second", follower)
        member = {"group_id": group, "generation_id": leader["generation_id"]}
        member |= {"protocol_type": "consumer", "protocol_name": "range"}
        at = _others(version)["sync_group"]
        waits = later("sync_group", at, member | {"member_id": follower["member_id"]})
        assignments = [{"member_id": follower["member_id"], "assignment": b"yours"}]
        script.ask("sync_group", at, member | {"member_id": first, "assignments": assignments})
        script.note(f"sync_group v{at} second", waits.result(_WAIT_S))
        again = _join(group, follower["member_id"])
        script.ask("join_group", version, again, note="unchanged follower")


def _wait_for_state(script: Transcript, group: str, state: str) -> None:
    def is_there() -> bool:
        answer = script.alone("describe_groups", 0, {"groups": [group]})
        return bool(answer["groups"][0]["group_state"] == state)

    poll_until(is_there, timeout_s=_WAIT_S, what=f"{group} is in {state}")


def _static_members(script: Transcript) -> None:
    """A static member that comes back, under old and new versions; the one before is fenced."""
    for version in known_versions(API_KEYS["join_group"]):
        if version < 5:
            continue
        group, instance = f"static-{version}", {"group_instance_id": "i"}
        first = script.ask("join_group", version, _join(group, **instance))
        member = {"group_id": group, "generation_id": first["generation_id"]} | instance
        mine = [{"member_id": first["member_id"], "assignment": b"mine"}]
        sync = member | {"protocol_type": "consumer", "protocol_name": "range"}
        old = {"member_id": first["member_id"]}
        script.ask("sync_group", 5, sync | old | {"assignments": mine})
        back = script.ask("join_group", version, _join(group, **instance), note="back")
        new = {"member_id": back["member_id"]}
        for who, which in ((old, "old"), (new, "new")):
            script.ask("heartbeat", 4, member | who, note=which)
            script.ask("sync_group", 5, sync | who, note=which)
            script.ask("leave_group", 5, {"group_id": group, "members": [who | instance]})
        gone = {"group_id": group, "members": [{"member_id": ""} | instance]}
        script.ask("leave_group", 5, gone, note="gone")


def _refusals(script: Transcript) -> None:
    for version in (0, 5, 9):
        cases: dict[str, dict[str, Any]] = {
            "no group": {"group": ""},
            "short session": {"group": "g", "session_timeout_ms": 5_999},
            "long session": {"group": "g", "session_timeout_ms": 1_800_001},
            "no protocols": {"group": "refused", "protocols": []},
            "no protocol type": {"group": "refused", "protocol_type": ""},
            "stranger": {"group": "refused", "member_id": "nobody"},
            "stranger to no group": {"group": "never", "member_id": "nobody"},
        }
        for label, fields in cases.items():
            given = dict(fields)
            script.ask("join_group", version, _join(given.pop("group"), **given), note=label)
    stranger: dict[str, Any] = {"group_id": "never", "member_id": "x", "generation_id": 1}
    for group in ("", "never", "refused"):
        stranger["group_id"] = group
        script.ask("sync_group", 5, stranger, note="without protocol")
        names = {"protocol_type": "consumer", "protocol_name": "range"}
        script.ask("sync_group", 5, stranger | names, note=group)
        script.ask("heartbeat", 4, stranger, note=group)
        members = [{"member_id": "x"}, {"member_id": "", "group_instance_id": "y"}]
        script.ask("leave_group", 5, stranger | {"members": members}, note=group)


def _offsets(script: Transcript, topic_id: uuid.UUID) -> None:
    for version in known_versions(API_KEYS["offset_commit"]):
        _commit(script, version, topic_id)
    for version in known_versions(API_KEYS["offset_fetch"]):
        _fetch(script, version, topic_id)
    topic = {"name": _TOPIC, "partitions": [{"partition_index": index} for index in (0, 1, 7)]}
    unknown = {"name": "unknown", "partitions": [{"partition_index": 0}]}
    for group in ("offsets-2", "never", "", "two-9"):
        values = {"group_id": group, "topics": [topic, unknown]}
        script.ask("offset_delete", 0, values, note=group)
    script.ask("offset_delete", 0, {"group_id": "two-9", "topics": [unknown]}, note="unknown")
    _fetch(script, 7, topic_id)


def _commit(script: Transcript, version: int, topic_id: uuid.UUID) -> None:
    parts = [
        {"partition_index": 0, "committed_offset": 5, "committed_metadata": "größe"},
        {"partition_index": 1, "committed_offset": 6, "committed_leader_epoch": 0},
        {"partition_index": 7, "committed_offset": 7, "committed_metadata": ""},
    ]
    long = [{"partition_index": 0, "committed_offset": 8, "committed_metadata": "x" * 4_097}]
    known = {"name": _TOPIC, "topic_id": topic_id}
    unknown = {"name": "unknown", "topic_id": uuid.UUID(int=7)}
    simple: dict[str, Any] = {
        "generation_id_or_member_epoch": -1,
        "member_id": "",
        "retention_time_ms": -1,
    }
    cases: tuple[tuple[str, str, list[Any], dict[str, Any]], ...] = (
        ("simple", f"offsets-{version}", [known | {"partitions": parts}], {}),
        ("unknown topic", f"offsets-{version}", [unknown | {"partitions": parts}], {}),
        ("long metadata", f"offsets-{version}", [known | {"partitions": long}], {}),
        ("nothing", f"offsets-{version}", [], {}),
        ("no group", "", [known | {"partitions": parts[:1]}], {}),
        (
            "generation of no group",
            "never",
            [known | {"partitions": parts}],
            {"generation_id_or_member_epoch": 1, "member_id": "x"},
        ),
        ("group with members", "two-9", [known | {"partitions": parts[:1]}], {}),
        (
            "stranger",
            "two-9",
            [known | {"partitions": parts[:1]}],
            {"generation_id_or_member_epoch": 2, "member_id": "x"},
        ),
    )
    for label, group, topics, who in cases:
        values = {"group_id": group, "topics": topics, **simple, **who}
        script.ask("offset_commit", version, values, note=label)


def _fetch(script: Transcript, version: int, topic_id: uuid.UUID) -> None:
    known = {"name": _TOPIC, "topic_id": topic_id, "partition_indexes": [0, 1, 7]}
    unknown = {
        "name": "unknown",
        "topic_id": uuid.UUID(int=7),
        "partition_indexes": [0],
    }
    for group in ("offsets-10", "never", ""):
        for label, topics in (("some", [known, unknown]), ("none", []), ("all", None)):
            if topics is None and version < 2:
                continue
            asked: dict[str, Any] = {
                "group_id": group,
                "topics": topics,
                "member_id": None,
                "member_epoch": -1,
            }
            for is_stable in (False, True):
                values: dict[str, Any] = asked | {"require_stable": is_stable, "groups": [asked]}
                script.ask("offset_fetch", version, values, note=f"{group} {label}")


def _listings(script: Transcript) -> None:
    by_name: Callable[[Plain], str] = lambda group: str(group["group_id"])  # noqa: E731
    for version in known_versions(API_KEYS["list_groups"]):
        for states, kinds in (
            ([], []),
            (["Stable"], []),
            (["empty", " STABLE"], ["Classic"]),
            (["Bogus"], []),
            ([], ["consumer"]),
            ([], ["bogus"]),
            ([], ["CLASSIC", "share"]),
        ):
            values = {"states_filter": states, "types_filter": kinds}
            answer = script.alone("list_groups", version, values)
            answer["groups"].sort(key=by_name)
            script.note(f"list_groups v{version} {states} {kinds}", answer)
    for version in known_versions(API_KEYS["describe_groups"]):
        values = {"groups": ["two-9", "offsets-2", "never", ""]}
        for wants in (False, True):
            asked = values | {"include_authorized_operations": wants}
            script.ask("describe_groups", version, asked)
