"""Share and streams groups, by the newest record of each of their keys.

A broker here does not coordinate such groups, and replays no more of them than their names.

Source: org.apache.kafka.coordinator.group.modern.share.ShareGroup, streams.StreamsGroup.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final, NamedTuple

from cordwood.coordinator.group.classic.group import GroupState
from cordwood.coordinator.group.unserved import ShareGroup, StreamsGroup, UnservedGroup
from cordwood.format.group_metadata import GROUP_RECORDS, decode_group_key, decode_group_value
from cordwood.format.record_batch import LegacyBatch, RecordBatch
from cordwood.frames.rows import Row
from cordwood.model.uuids import uuid_text

Fields = Mapping[str, Any]

_TYPE: Final = struct.Struct(">h")
_ROLES: Final = {"activeTasks": "active", "standbyTasks": "standby", "warmupTasks": "warmup"}


class _Key(NamedTuple):
    """The name of a key's schema, such as `ShareGroupMetadataKey`; the member if it is of one."""

    name: str
    member_id: str = ""


class UnservedRecords:
    """The newest record of each key of share and streams groups, by group."""

    _prefixes: Final = ("ShareGroup", "StreamsGroup")

    def __init__(self, batches: Iterable[RecordBatch | LegacyBatch]) -> None:
        """Reads the batches of a partition of `__consumer_offsets`.

        Raises:
            CorruptError: a record is malformed, or of an unknown version.
        """
        self._groups: dict[str, dict[_Key, Fields]] = {}
        types = {
            _TYPE.pack(number)
            for number, schema in GROUP_RECORDS.keys.items()
            if schema.name.startswith(self._prefixes)
        }
        for batch in batches:
            if isinstance(batch, LegacyBatch) or batch.header.is_control:
                continue  # such groups are newer than legacy batches
            for _, _, key, value, _, _ in batch.iter_fields():
                if key is not None and key[: _TYPE.size] in types:
                    self._take(key, value)

    def _take(self, key: bytes, value: bytes | None) -> None:
        decoded = decode_group_key(key)
        group = self._groups.setdefault(decoded.fields["groupId"], {})
        place = _Key(decoded.name, decoded.fields.get("memberId", ""))
        message = decode_group_value(decoded.record_type, value)
        if message is None:
            group.pop(place, None)
        else:
            group[place] = message.fields

    def row(self, group: UnservedGroup) -> Row:
        """The columns of a group that are its kind's.

        A streams group with members has no state: that depends on which topics there are.
        """
        prefix, member_of = _KINDS[type(group)]
        records = self._groups.get(group.group_id, {})
        members = [
            member_of(key.member_id, fields, _current(records, prefix, key.member_id))
            for key, fields in records.items()
            if key.name == f"{prefix}MemberMetadataKey"
        ]
        state: str | None = GroupState.EMPTY.value
        if members:
            state = GroupState.STABLE.value if isinstance(group, ShareGroup) else None
        assignment = records.get(_Key(f"{prefix}TargetAssignmentMetadataKey"), {})
        return {
            "state": state,
            "epoch": records.get(_Key(f"{prefix}MetadataKey"), {}).get("epoch"),
            "assignmentEpoch": assignment.get("assignmentEpoch"),
            "members": members,
        }


def _current(records: Mapping[_Key, Fields], prefix: str, member_id: str) -> Fields:
    return records.get(_Key(f"{prefix}CurrentMemberAssignmentKey", member_id), {})


def _share_member(member_id: str, fields: Fields, current: Fields) -> Row:
    return {
        "memberId": member_id,
        "clientId": fields["clientId"],
        "clientHost": fields["clientHost"],
        "rackId": fields["rackId"],
        "epoch": current.get("memberEpoch"),
        "subscribedTopics": fields["subscribedTopicNames"],
        "assignment": [
            {"topicId": uuid_text(each["topicId"]), "partitions": each["partitions"]}
            for each in current.get("assignedPartitions", ())
        ],
    }


def _streams_member(member_id: str, fields: Fields, current: Fields) -> Row:
    return {
        "memberId": member_id,
        "instanceId": fields["instanceId"],
        "clientId": fields["clientId"],
        "clientHost": fields["clientHost"],
        "rackId": fields["rackId"],
        "rebalanceTimeoutMs": fields["rebalanceTimeoutMs"],
        "epoch": current.get("memberEpoch"),
        "assignment": list(_tasks(current)),
    }


def _tasks(current: Fields) -> Iterator[Row]:
    for name, role in _ROLES.items():
        for each in current.get(name, ()):
            yield {
                "subtopologyId": each["subtopologyId"],
                "role": role,
                "partitions": each["partitions"],
            }


_MemberOf = Callable[[str, Fields, Fields], Row]
_KINDS: Final[Mapping[type[UnservedGroup], tuple[str, _MemberOf]]] = {
    ShareGroup: ("ShareGroup", _share_member),
    StreamsGroup: ("StreamsGroup", _streams_member),
}
