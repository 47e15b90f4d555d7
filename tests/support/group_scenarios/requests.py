"""The requests of scenarios: the event that each is to the state machine."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

from cordwood.coordinator.effects import ReplyTo
from cordwood.coordinator.group import events
from cordwood.coordinator.group.classic.events import Heartbeat, Join, Leave, Sync
from cordwood.coordinator.group.classic.member import (
    Client,
    JoinRequest,
    LeavingMember,
    Protocol,
    Protocols,
    SyncRequest,
)
from cordwood.coordinator.group.consumer.events import ConsumerHeartbeat
from cordwood.coordinator.group.consumer.member import HeartbeatRequest, Owned
from cordwood.coordinator.group.offset_requests import (
    CommitPartition,
    CommitRequest,
    CommitTopic,
    records_of_commit,
)
from cordwood.format.group_metadata import build_consumer_assignment
from cordwood.metadata.image import MetadataImage
from cordwood.model.audit import Requester
from support.consumer_group_script import subscription_metadata
from support.group_scenarios.notation import NONE, parse_names, parse_partitions

GROUP: Final = "g"
_CLIENT: Final = Client("c", "/h")
_REQUESTER: Final = Requester("User:ANONYMOUS", "c", "/h")
_ASSIGNMENT_VERSION: Final = 3

Fields = Mapping[str, str]


class NamedReply(ReplyTo[Any]):
    """Receiver of the answer to a request of a scenario."""

    def __init__(self, name: str) -> None:
        super().__init__(lambda _: None)
        self.name = name


class Now(NamedTuple):
    """Time of a request, and the cluster at that time."""

    ms: int
    image: MetadataImage


def _beat(name: str, fields: Fields, now: Now) -> ConsumerHeartbeat:
    request = HeartbeatRequest(
        group_id=GROUP,
        member_id=fields["member"],
        member_epoch=int(fields["epoch"]),
        client=_CLIENT,
        instance_id=fields.get("instance"),
        rebalance_timeout_ms=int(fields.get("timeout", "-1")),
        topics=parse_names(fields["topics"]) if "topics" in fields else None,
        regex=fields.get("regex"),
        assignor=fields.get("assignor"),
        owned=_owned(fields["owned"], now) if "owned" in fields else None,
    )
    return ConsumerHeartbeat(request=request, reply_to=NamedReply(name))


def _owned(text: str, now: Now) -> Owned:
    return tuple(
        (now.image.topics[name].topic_id, numbers) for name, numbers in parse_partitions(text)
    )


def _join(name: str, fields: Fields, _now: Now) -> Join:
    request = JoinRequest(
        group_id=GROUP,
        member_id=fields.get("member", ""),
        group_instance_id=fields.get("instance"),
        client=_CLIENT,
        session_timeout_ms=10_000,
        rebalance_timeout_ms=int(fields.get("rebalance", "60000")),
        protocol_type="consumer",
        protocols=_protocols(fields),
        needs_member_id=fields.get("old-client") != "yes",
    )
    return Join(request=request, reply_to=NamedReply(name))


def _protocols(fields: Fields) -> Protocols:
    if "topics" in fields:
        owned = [
            (each, list(numbers)) for each, numbers in parse_partitions(fields.get("owned", NONE))
        ]
        metadata = subscription_metadata(list(parse_names(fields["topics"])), owned)
        return (Protocol("range", metadata),)
    named = (word.partition(":") for word in fields.get("protocols", "range").split(","))
    return tuple(Protocol(name, metadata.encode()) for name, _, metadata in named)


def _sync(name: str, fields: Fields, _now: Now) -> Sync:
    request = SyncRequest(
        group_id=GROUP,
        member_id=fields["member"],
        group_instance_id=fields.get("instance"),
        generation_id=int(fields["generation"]),
        assignments=_assignments(fields),
    )
    return Sync(request=request, reply_to=NamedReply(name))


def _assignments(fields: Fields) -> tuple[tuple[str, bytes], ...]:
    if "gives" in fields:
        given = (word.partition("@") for word in fields["gives"].split("/"))
        return tuple(
            (member, build_consumer_assignment(parse_partitions(text), _ASSIGNMENT_VERSION))
            for member, _, text in given
        )
    assigned = (word.partition(":") for word in fields.get("assign", "").split(",") if word)
    return tuple((member, data.encode()) for member, _, data in assigned)


def _heartbeat(name: str, fields: Fields, _now: Now) -> Heartbeat:
    return Heartbeat(
        group_id=GROUP,
        member_id=fields["member"],
        group_instance_id=fields.get("instance"),
        generation_id=int(fields["generation"]),
        reply_to=NamedReply(name),
    )


def _leave(name: str, fields: Fields, _now: Now) -> Leave:
    leaving = LeavingMember(fields.get("member", ""), fields.get("instance"))
    return Leave(group_id=GROUP, members=(leaving,), reply_to=NamedReply(name))


def _commit(name: str, fields: Fields, now: Now) -> events.Commit:
    topic = CommitTopic("t", (CommitPartition(0, int(fields["offset"])),))
    request = CommitRequest(
        group_id=GROUP,
        topics=(topic,),
        member_id=fields.get("member", ""),
        generation_id=int(fields.get("generation", "-1")),
    )
    records = records_of_commit(request, now_ms=now.ms, metadata_bytes_max=4_096)
    return events.Commit(request=request, records=records, reply_to=NamedReply(name))


def _delete_group(name: str, _fields: Fields, _now: Now) -> events.DeleteGroup:
    return events.DeleteGroup(group_id=GROUP, requester=_REQUESTER, reply_to=NamedReply(name))


REQUESTS: Final[Mapping[str, Callable[[str, Fields, Now], events.GroupEvent]]] = {
    "beat": _beat,
    "join": _join,
    "sync": _sync,
    "heartbeat": _heartbeat,
    "leave": _leave,
    "commit": _commit,
    "delete-group": _delete_group,
}
