"""Random requests of members of consumer groups, answered by two brokers in step.

Role: the comparison of consumer groups (KIP-848) with a real Kafka's. Members of both protocols are
kept as clients would keep them: what one was answered decides what it sends next, most of the time.
Both brokers have the same topics with the same ids, and members make their ids themselves, so that
assignments can be compared.

A JoinGroup may wait for other members: it waits at both brokers, and is answered by both at the
same step.
"""

from __future__ import annotations

import random
import struct
import uuid
from collections import Counter
from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from cordwood.format.group_metadata import (
    CONSUMER_PROTOCOL_SCHEMAS,
    build_consumer_assignment,
    parse_consumer_assignment,
)
from cordwood.format.message_schema import encode_message
from support.wire import NO_UUID, Plain, Wire

TOPICS: Final[Mapping[str, int]] = {"alpha": 4, "beta": 2, "gamma": 7, "delta-1": 1, "delta-2": 3}
GROUPS: Final = ("one", "two")
DIFFERENCES_MAX: Final = 5
_MEMBERS: Final = 5
_ASSIGNORS: Final = (None, None, None, "uniform", "range", "sticky")
_NO_TIMEOUT: Final = -1
_TIMEOUT_MS: Final = 600_000
_UNORDERED: Final = frozenset({"topic_partitions", "topics", "members", "groups", "partitions"})
_BLANK: Final = frozenset({"throttle_time_ms", "coordinator"})
#: What a broker that answers at once takes at most, on a busy machine too, and one that answers
#: when another has.
_AT_ONCE_S: Final = 1.0
_LATER_S: Final = 60
_SUBSCRIPTION_VERSION: Final = 3
_STEPS_A_MOVE: Final = 120


class Request(NamedTuple):
    """A request, and the member that sends it, if it is one's."""

    api: str
    version: int
    values: dict[str, Any]
    member: Member | None = None


@dataclass(slots=True, eq=False)
class Member:
    """A client: what it was answered last; `epoch` is its generation if it is a classic one."""

    member_id: str
    instance_id: str | None = None
    is_classic: bool = False
    epoch: int = 0
    owned: list[dict[str, Any]] = field(default_factory=list)
    is_waiting: bool = False
    others: list[str] = field(default_factory=list)
    needs_sync: bool = False
    must_join: bool = False


class Side:
    """A broker; each member has a connection of its own."""

    def __init__(self, port: int, topic_ids: Mapping[str, uuid.UUID]) -> None:
        self._port = port
        self.topic_ids = topic_ids
        self._wires: dict[str, Wire] = {}

    def ask(self, request: Request) -> Plain:
        """The answer, with names in place of topic ids, and without an order."""
        member = request.member
        name = "" if member is None else member.member_id
        wire = self._wires.get(name)
        if wire is None:
            wire = self._wires[name] = Wire(self._port)
        answer = wire.ask(request.api, request.version, self._with_ids(request.values))
        found = self._with_names(answer)
        assert isinstance(found, dict)
        return found

    def _with_ids(self, values: Any) -> Any:
        if isinstance(values, dict):
            return {
                key: self.topic_ids.get(inner, NO_UUID)
                if key == "topic_id"
                else self._with_ids(inner)
                for key, inner in values.items()
            }
        if isinstance(values, (list, tuple)):
            return [self._with_ids(each) for each in values]
        return values

    def _with_names(self, value: Any) -> Any:
        if isinstance(value, dict):
            found = {
                key: self._with_names(inner) for key, inner in value.items() if key not in _BLANK
            }
            for key in found.keys() & _UNORDERED:
                if isinstance(found[key], list):
                    found[key] = sorted(found[key], key=repr)
            return found
        if isinstance(value, list):
            return [self._with_names(each) for each in value]
        if isinstance(value, uuid.UUID):
            names = {topic_id: name for name, topic_id in self.topic_ids.items()}
            return names.get(value, "(no id)" if value == NO_UUID else "(an id)")
        return value


class Script:
    """The requests; each one is drawn when the one before was answered, or waits."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)  # noqa: S311  # a script, to be repeated
        self._members: dict[str, list[Member]] = {group: [] for group in GROUPS}
        self._step = 0

    @property
    def _favours_classic(self) -> bool:
        """Groups go from one protocol to the other and back: members of one leave."""
        return self._step // _STEPS_A_MOVE % 2 == 1

    def draw(self) -> Request:
        """The next request."""
        chance = self._random
        self._step += 1
        group = chance.choice(GROUPS)
        kind = chance.random()
        if kind < 0.78:
            return self._of_member(group)
        if kind < 0.84:
            values = {"group_ids": [group, *(["nobody"] if chance.random() < 0.1 else [])]}
            return Request("consumer_group_describe", chance.randint(0, 1), values)
        if kind < 0.86:
            return Request("describe_groups", 6, {"groups": [group]})
        if kind < 0.93:
            return self._commit(group)
        if kind < 0.95:
            return Request("list_groups", 5, {"states_filter": [], "types_filter": []})
        if kind < 0.97:
            names = chance.sample(sorted(TOPICS), 2)
            topics = [{"name": name, "partitions": [{"partition_index": 0}]} for name in names]
            return Request("offset_delete", 0, {"group_id": group, "topics": topics})
        if kind < 0.98:
            return Request("delete_groups", 2, {"groups_names": [group]})
        groups = [{"group_id": group, "topics": None}]
        return Request("offset_fetch", 8, {"groups": groups, "require_stable": False})

    def _of_member(self, group: str) -> Request:
        chance = self._random
        members = [each for each in self._members[group] if not each.is_waiting]
        if not members or (len(self._members[group]) < _MEMBERS and chance.random() < 0.25):
            is_classic = chance.random() < (0.8 if self._favours_classic else 0.3)
            instance = f"i{chance.randrange(3)}" if chance.random() < 0.3 else None
            member = Member(self._uuid(), None if is_classic else instance, is_classic)
            self._members[group].append(member)
        else:
            member = chance.choice(members)
        return self._classic(group, member) if member.is_classic else self._heartbeat(group, member)

    def _uuid(self) -> str:
        return str(uuid.UUID(int=self._random.getrandbits(128), version=4))

    # ---- members of the consumer protocol

    def _heartbeat(self, group: str, member: Member) -> Request:
        chance = self._random
        epoch = member.epoch
        if chance.random() < 0.06:
            epoch = chance.choice((epoch + 1, epoch - 1, 0, 99, -3))
        values: dict[str, Any] = {
            "group_id": group,
            "member_id": member.member_id,
            "member_epoch": epoch,
            "instance_id": member.instance_id,
            "rebalance_timeout_ms": _NO_TIMEOUT,
            "topic_partitions": None,
        }
        if epoch == 0 or chance.random() < 0.1:
            values["rebalance_timeout_ms"] = _TIMEOUT_MS
            values["topic_partitions"] = [] if epoch == 0 else member.owned
            self._subscribe(values)
            if chance.random() < 0.03:
                values["rebalance_timeout_ms"] = _NO_TIMEOUT
        elif chance.random() < (0.4 if self._favours_classic else 0.1):
            values["member_epoch"] = -1 if member.instance_id is None else chance.choice((-1, -2))
        elif chance.random() < 0.6:
            values["topic_partitions"] = self._owned(member)
            if chance.random() < 0.15:
                self._subscribe(values)
        return Request("consumer_group_heartbeat", 1, values, member)

    def _owned(self, member: Member) -> list[dict[str, Any]]:
        if self._random.random() < 0.85:
            return member.owned
        return [each for each in member.owned if self._random.random() < 0.5]

    def _topics(self) -> list[str]:
        chance = self._random
        if chance.random() < 0.4:
            return chance.sample([*sorted(TOPICS), "missing"], chance.randint(0, 4))
        return sorted(TOPICS) if chance.random() < 0.2 else ["alpha", "gamma"]

    def _subscribe(self, values: dict[str, Any]) -> None:
        chance = self._random
        if chance.random() < 0.8:
            values["subscribed_topic_names"] = self._topics()
        values["server_assignor"] = chance.choice(_ASSIGNORS)
        if chance.random() < 0.1:
            values["rack_id"] = chance.choice(("r1", "r2"))

    # ---- members of the classic protocol

    def _classic(self, group: str, member: Member) -> Request:
        chance = self._random
        kind = chance.random()
        if member.needs_sync and kind < 0.75:
            return self._sync(group, member)
        if not member.epoch or kind < (0.85 if member.must_join else 0.3):
            return self._join(group, member)
        if kind < 0.88:
            values = {
                "group_id": group,
                "member_id": member.member_id,
                "generation_id": member.epoch + (chance.random() < 0.05),
            }
            return Request("heartbeat", 4, values, member)
        if kind < 0.93:
            return self._sync(group, member)
        members = [{"member_id": member.member_id, "group_instance_id": None}]
        if chance.random() < 0.1:
            members.append({"member_id": "nobody", "group_instance_id": None})
        return Request("leave_group", 5, {"group_id": group, "members": members}, member)

    def _join(self, group: str, member: Member) -> Request:
        topics = self._topics() or ["alpha"]
        owned = [
            (each["topic_id"], each["partitions"])
            for each in member.owned
            if self._random.random() < 0.9
        ]
        metadata = subscription_metadata(topics, owned)
        protocols = [{"name": name, "metadata": metadata} for name in ("range", "roundrobin")]
        values = {
            "group_id": group,
            "member_id": member.member_id,
            "session_timeout_ms": _TIMEOUT_MS,
            "rebalance_timeout_ms": _TIMEOUT_MS,
            "protocol_type": "consumer",
            "protocols": protocols[: self._random.choice((1, 2, 2))],
            "reason": "",
        }
        return Request("join_group", 9, values, member)

    def _sync(self, group: str, member: Member) -> Request:
        assignments = [
            {
                "member_id": each,
                "assignment": build_consumer_assignment([("alpha", [number % 4])], 3),
            }
            for number, each in enumerate(member.others)
        ]
        values = {
            "group_id": group,
            "generation_id": member.epoch,
            "member_id": member.member_id,
            "protocol_type": "consumer",
            "protocol_name": "range",
            "assignments": assignments,
        }
        return Request("sync_group", 5, values, member)

    # ---- offsets

    def _commit(self, group: str) -> Request:
        chance, members = self._random, self._members[group]
        member = chance.choice(members) if members else None
        epoch = -1 if member is None else member.epoch
        if chance.random() < 0.2:
            epoch = chance.choice((epoch - 1, epoch + 1, -1))
        topic = chance.choice(sorted(TOPICS))
        partitions = [{"partition_index": 0, "committed_offset": chance.randrange(100)}]
        values = {
            "group_id": group,
            "generation_id_or_member_epoch": epoch,
            "member_id": "" if member is None else member.member_id,
            "group_instance_id": None if member is None else member.instance_id,
            "topics": [{"name": topic, "topic_id": topic, "partitions": partitions}],
        }
        return Request("offset_commit", chance.choice((8, 9, 10)), values)

    # ---- answers

    def answered(self, request: Request, answer: Plain) -> None:
        """Has a member take what it was answered."""
        member = request.member
        if member is None:
            return
        if request.api == "consumer_group_heartbeat":
            self._beaten(member, request.values, answer)
        else:
            self._answered_classic(request.api, member, answer)

    def _beaten(self, member: Member, values: Mapping[str, Any], answer: Plain) -> None:
        error = answer["error_code"]
        if error == "none":
            member.epoch = answer["member_epoch"]
            if values["member_epoch"] < 0:
                member.epoch, member.owned = 0, []
                if self._favours_classic and values["member_epoch"] == -1:
                    self._forget(member)
                elif values["member_epoch"] == -1 or self._random.random() < 0.5:
                    member.member_id = self._uuid()
            elif answer["assignment"] is not None and self._random.random() < 0.9:
                member.owned = answer["assignment"]["topic_partitions"]
        elif error in {"fenced_member_epoch", "unknown_member_id"} and self._random.random() < 0.8:
            member.epoch, member.owned = 0, []
        elif error in {"unreleased_instance_id", "fenced_instance_id", "group_id_not_found"}:
            self._forget(member)

    def _answered_classic(self, api: str, member: Member, answer: Plain) -> None:
        error = answer["error_code"]
        if api == "join_group" and error == "none":
            member.epoch, member.needs_sync = answer["generation_id"], True
            member.must_join = False
            member.others = [each["member_id"] for each in answer["members"]]
        elif api == "sync_group" and error == "none":
            member.needs_sync = False
            if answer["assignment"]:
                partitions = parse_consumer_assignment(answer["assignment"]).partitions
                member.owned = [
                    {"topic_id": topic, "partitions": list(each)} for topic, each in partitions
                ]
        elif error == "rebalance_in_progress":
            member.needs_sync, member.must_join = False, True
        elif api == "leave_group" or error in {"unknown_member_id", "illegal_generation"}:
            self._forget(member)

    def _forget(self, member: Member) -> None:
        for members in self._members.values():
            if member in members:
                members.remove(member)


def subscription_metadata(topics: list[str], owned: list[tuple[str, list[int]]]) -> bytes:
    """The metadata of a consumer of the classic protocol."""
    schema = CONSUMER_PROTOCOL_SCHEMAS["ConsumerProtocolSubscription"]
    fields = {
        "topics": topics,
        "userData": None,
        "ownedPartitions": [{"topic": topic, "partitions": each} for topic, each in owned],
        "generationId": -1,
        "rackId": None,
    }
    version = _SUBSCRIPTION_VERSION
    return struct.pack(">h", version) + encode_message(schema, version, fields)


def _error_of(answer: Any) -> str:
    return str(answer.get("error_code", "")) if isinstance(answer, dict) else str(answer)


class _Waiting(NamedTuple):
    request: Request
    answers: tuple[Future[Plain], Future[Plain]]
    number: int


class Comparison:
    """A script that two brokers answer, and what they answer differently."""

    def __init__(self, first: Side, second: Side, seed: int) -> None:
        self.differences: list[str] = []
        self.answered: Counter[str] = Counter()
        self._sides = (first, second)
        self._script = Script(seed)
        self._waiting: list[_Waiting] = []
        self._pool = ThreadPoolExecutor(4 * _MEMBERS * len(GROUPS))

    @property
    def is_waiting(self) -> bool:
        """Whether a request of a member waits for others."""
        return bool(self._waiting)

    def move_to(self, first: Side, second: Side) -> None:
        """Continues with other brokers, which have the state of those before."""
        assert not self._waiting, "a request waits"
        self._sides = (first, second)

    def close(self) -> None:
        """Asks nothing more."""
        self._pool.shutdown(wait=False, cancel_futures=True)

    def run(self, count: int) -> list[str]:
        """Asks so many times; the first differences, as text."""
        for number in range(count):
            request = self._script.draw()
            first, second = (self._pool.submit(side.ask, request) for side in self._sides)
            self._waiting.append(_Waiting(request, (first, second), number))
            if request.member is not None:
                request.member.is_waiting = True
            for waiting in list(self._waiting):
                self._take(waiting)
            if len(self.differences) >= DIFFERENCES_MAX:
                break
        return self.differences

    def _take(self, waiting: _Waiting) -> None:
        """Takes an answer that both have given; where one has, the other has to."""
        request, answers, number = waiting
        is_new = waiting is self._waiting[-1]
        wait(
            answers, timeout=(_AT_ONCE_S if request.api in _MAY_WAIT else _LATER_S) if is_new else 0
        )
        if any(each.done() for each in answers):
            wait(answers, timeout=_LATER_S)
        elif request.api in _MAY_WAIT:
            return
        self._waiting.remove(waiting)
        found = [each.result() if each.done() else "(no answer)" for each in answers]
        if found[0] != found[1]:
            text = "\n".join(f"  {each}" for each in found)
            self.differences.append(
                f"{number} {request.api} v{request.version} {request.values}\n{text}"
            )
        if request.member is not None:
            request.member.is_waiting = False
        self.answered[f"{request.api} {_error_of(found[0])}"] += 1
        if isinstance(found[0], dict):
            self._script.answered(request, found[0])


_MAY_WAIT: Final = frozenset({"join_group", "sync_group"})
