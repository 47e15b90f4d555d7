"""Groups, records and answers as the lines of scenarios."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final
from uuid import UUID

from cordwood.coordinator.effects import Answer
from cordwood.coordinator.group.classic.group import ClassicGroup
from cordwood.coordinator.group.classic.member import JoinAnswer, LeaveReply, SyncAnswer
from cordwood.coordinator.group.classic.records import GroupMetadataRecord
from cordwood.coordinator.group.consumer.group import ConsumerGroup
from cordwood.coordinator.group.consumer.member import (
    ConsumerMember,
    HeartbeatAnswer,
    MemberState,
)
from cordwood.coordinator.group.consumer.records import ConsumerRecord, RecordType
from cordwood.coordinator.group.group import Group
from cordwood.coordinator.group.offset_records import OffsetRecord
from cordwood.coordinator.group.shard import CoordinatorRecord
from cordwood.format.group_metadata import parse_consumer_assignment
from cordwood.metadata.image import MetadataImage
from cordwood.model.error_codes import ErrorCode
from cordwood.model.errors import CorruptError
from support.group_scenarios.notation import names_text, partitions_text
from support.group_scenarios.requests import NamedReply

_RECORD_NAMES: Final[Mapping[RecordType, str]] = {
    RecordType.EPOCH: "epoch",
    RecordType.PARTITION_METADATA: "partition-metadata",
    RecordType.MEMBER: "member",
    RecordType.TARGET_EPOCH: "target-epoch",
    RecordType.TARGET: "target",
    RecordType.CURRENT: "current",
    RecordType.REGEX: "regex",
}


class Text:
    """Describes effects with the names of topics in place of their ids."""

    def __init__(self, image: Callable[[], MetadataImage]) -> None:
        """`image` returns the metadata of the cluster."""
        self._image = image

    def _partitions(self, topics: Iterable[tuple[UUID, Iterable[int]]]) -> str:
        names = self._image().topic_names
        return partitions_text(
            (names.get(topic_id, "(deleted)"), partitions) for topic_id, partitions in topics
        )

    # ---- groups

    def group(self, group: Group | None) -> Iterator[str]:
        """A group and its members."""
        if group is None:
            yield "no group"
        elif isinstance(group, ConsumerGroup):
            yield from self._consumer_group(group)
        else:
            assert isinstance(group, ClassicGroup), group.kind
            yield from _classic_group(group)

    def _consumer_group(self, group: ConsumerGroup) -> Iterator[str]:
        yield f"{group.state.value} epoch={group.epoch} target-epoch={group.assignment_epoch}"
        for member in sorted(group.members(), key=lambda each: each.member_id):
            target = self._partitions(group.target(member.member_id).items())
            yield f"  {member.member_id} {self._member(member)} target={target}"
        for regex, resolved in sorted(group.resolved.items()):
            yield f"  {regex} matches {names_text(resolved.topics)}"

    def _member(self, member: ConsumerMember) -> str:
        return (
            f"epoch={member.member_epoch} {member.state.name} "
            f"assigned={self._partitions(member.assigned.items())}"
            + (f" revoking={self._partitions(member.revoking.items())}" if member.revoking else "")
            + (f" instance={member.instance_id}" if member.instance_id is not None else "")
            + (" classic" if member.uses_classic_protocol else "")
        )

    # ---- records

    def records(self, records: Iterable[CoordinatorRecord]) -> Iterator[str]:
        """Records, each by what it says."""
        return (f"record {self._record(record)}" for record in records)

    def _record(self, record: CoordinatorRecord) -> str:
        if isinstance(record, OffsetRecord):
            offset = "none" if record.offset is None else record.offset.offset
            return f"offset {record.key.topic}-{record.key.partition}={offset}"
        if isinstance(record, ConsumerRecord):
            words = [_RECORD_NAMES[record.record_type], record.name, self._consumer_value(record)]
            return " ".join(word for word in words if word)
        assert isinstance(record, GroupMetadataRecord), "records of other protocols are not written"
        if record.group is None:
            return "group none"
        members: Any = record.fields["members"]
        assigned = [f"{each['memberId']}:{_assignment(each['assignment'])}" for each in members]
        return f"group generation={record.fields['generation']} members={','.join(assigned)}"

    def _consumer_value(self, record: ConsumerRecord) -> str:
        value = record.value
        if value is None:
            return "none"
        if record.record_type is RecordType.EPOCH:
            return str(value["epoch"])
        if record.record_type is RecordType.TARGET_EPOCH:
            return str(value["assignmentEpoch"])
        if record.record_type is RecordType.MEMBER:
            return _subscription(value)
        if record.record_type is RecordType.REGEX:
            return f"matches {names_text(value['topics'])}"
        if record.record_type is RecordType.TARGET:
            return self._stored(value["topicPartitions"])
        revoking = value["partitionsPendingRevocation"]
        return (
            f"epoch={value['memberEpoch']} previous={value['previousMemberEpoch']} "
            f"{MemberState(value['state']).name} "
            f"assigned={self._stored(value['assignedPartitions'])}"
            + (f" revoking={self._stored(revoking)}" if revoking else "")
        )

    def _stored(self, topics: Iterable[Mapping[str, Any]]) -> str:
        return self._partitions((each["topicId"], each["partitions"]) for each in topics)

    # ---- answers

    def answer(self, answer: Answer) -> str:
        """An answer to a request, by its name."""
        assert isinstance(answer.reply_to, NamedReply)
        return " ".join(["answer", answer.reply_to.name, *self._answer_words(answer.value)])

    def _answer_words(self, value: object) -> list[str]:
        if isinstance(value, LeaveReply):
            return [ErrorCode(each.error_code).name for each in value.members]
        if isinstance(value, int):
            return [ErrorCode(value).name]
        if isinstance(value, HeartbeatAnswer):
            return self._beaten(value)
        if isinstance(value, JoinAnswer):
            return _joined(value)
        assert isinstance(value, SyncAnswer)
        return [ErrorCode(value.error_code).name, f"assigned={_assignment(value.assignment)!r}"]

    def _beaten(self, answer: HeartbeatAnswer) -> list[str]:
        words = [ErrorCode(answer.error_code).name]
        if not answer.error_code:
            words.append(f"epoch={answer.member_epoch}")
        if answer.assignment is not None:
            words.append(f"assigned={self._partitions(answer.assignment)}")
        return words


def _joined(answer: JoinAnswer) -> list[str]:
    words = [ErrorCode(answer.error_code).name, f"member={answer.member_id}"]
    if answer.generation_id != -1:
        words += [f"generation={answer.generation_id}", f"leader={answer.leader}"]
    if answer.members:
        words.append(f"members={','.join(each.member_id for each in answer.members)}")
    return words


def _subscription(value: Mapping[str, Any]) -> str:
    return (
        f"topics={names_text(value['subscribedTopicNames'])}"
        + (f" regex={value['subscribedTopicRegex']}" if value["subscribedTopicRegex"] else "")
        + (f" instance={value['instanceId']}" if value["instanceId"] is not None else "")
        + (f" assignor={value['serverAssignor']}" if value["serverAssignor"] else "")
        + (" classic" if value["classicMemberMetadata"] is not None else "")
    )


def _classic_group(group: ClassicGroup) -> Iterator[str]:
    yield (
        f"{group.state.value} generation={group.generation_id} "
        f"protocol={group.protocol_name} leader={group.leader_id}"
    )
    for member in group.members():
        waits = [kind for kind in ("join", "sync") if getattr(member, f"{kind}_reply") is not None]
        yield (
            f"  {member.member_id} assigned={_assignment(member.assignment)!r}"
            + (f" instance={member.group_instance_id}" if member.is_static else "")
            + (f" waits={waits[0]}" if waits else "")
        )
    if group.pending_joins:
        yield f"  expected: {' '.join(sorted(group.pending_joins))}"


def _assignment(data: bytes) -> str:
    """The partitions of a consumer, or the text that a scenario has in their place."""
    try:
        return partitions_text(parse_consumer_assignment(data).partitions)
    except CorruptError:
        return data.decode()
