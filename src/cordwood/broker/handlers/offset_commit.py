"""OffsetCommit (8), versions 2 to 10: commits a group's offsets.

Versions: 5 without a retention time, 6 leader epochs, 7 static members, 8 flexible, 10 topic ids.

Source: kafka.server.KafkaApis.handleOffsetCommitRequest, OffsetCommitResponse.Builder.
"""

from __future__ import annotations

from typing import Any
from uuid import UUID

from cordwood.broker.authorizer import Operation, ResourceType
from cordwood.broker.coordinator_answer import CoordinatorAnswer
from cordwood.broker.request_context import RequestContext
from cordwood.coordinator.group.offset_requests import CommitPartition, CommitRequest, CommitTopic
from cordwood.model.error_codes import ErrorCode
from cordwood.model.pauses import in_steps
from cordwood.model.uuids import ZERO_UUID
from cordwood.network.api import Api, Fields, Response
from cordwood.protocol.apis.offset_commit import OffsetCommitRequest, OffsetCommitRequestTopic

_TOPIC_IDS_SINCE = 10


class _Asked:
    """A topic of the request, and what is to be answered of it by partition."""

    def __init__(
        self, context: RequestContext, topic: OffsetCommitRequestTopic, *, by_id: bool
    ) -> None:
        self.topic_id: UUID = topic.topic_id
        image = context.broker.metadata.image
        self.name: str | None = image.topic_names.get(self.topic_id) if by_id else topic.name
        known = None if self.name is None else image.topics.get(self.name)
        is_allowed = self.name is None or context.authorize(
            Operation.READ, ResourceType.TOPIC, self.name
        )
        if not is_allowed:
            known = None
        # Also of clients that name topics, so that a deleted topic's offsets are known as such.
        self.stored_id = ZERO_UUID if known is None else known.topic_id
        self.partitions = topic.partitions
        missing: int = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        if self.name is None:
            missing = ErrorCode.UNKNOWN_TOPIC_ID
        elif not is_allowed:
            missing = ErrorCode.TOPIC_AUTHORIZATION_FAILED
        self.is_there = [
            known is not None and each.partition_index in known.partitions
            for each in in_steps(topic.partitions, every=64)
        ]
        self.errors: list[int] = [
            ErrorCode.NONE if is_there else missing for is_there in self.is_there
        ]

    def to_commit(self) -> CommitTopic | None:
        """What of it can be committed."""
        partitions = tuple(
            CommitPartition(
                each.partition_index,
                each.committed_offset,
                each.committed_leader_epoch,
                each.committed_metadata,
            )
            for each, error in in_steps(zip(self.partitions, self.errors, strict=True), every=16)
            if not error
        )
        if self.name is None or not partitions:
            return None
        return CommitTopic(self.name, partitions, self.stored_id)

    def fail(self, code: int) -> None:
        """Answers with that error wherever there is none yet."""
        self.errors = [error or code for error in self.errors]

    def fields(self) -> dict[str, Any]:
        """The topic of the response: partitions that are not there come first, as in Kafka."""
        answers = zip(self.partitions, self.errors, self.is_there, strict=True)
        return {
            "name": self.name or "",
            "topic_id": self.topic_id,
            "partitions": [
                {"partition_index": each.partition_index, "error_code": error}
                for each, error, _ in in_steps(
                    sorted(answers, key=lambda answer: answer[2]), every=16
                )
            ],
        }


def handle(context: RequestContext, request: OffsetCommitRequest) -> Response:
    """Answers when the offsets are committed."""
    context.require_group(Operation.READ, request.group_id)
    by_id = context.api_version >= _TOPIC_IDS_SINCE
    asked = [_Asked(context, topic, by_id=by_id) for topic in in_steps(request.topics)]
    topics = tuple(topic for each in asked if (topic := each.to_commit()) is not None)
    if not topics:
        return _fields(asked)
    question = CommitRequest(
        group_id=request.group_id,
        topics=topics,
        member_id=request.member_id,
        group_instance_id=request.group_instance_id,
        generation_id=request.generation_id_or_member_epoch,
        retention_ms=request.retention_time_ms,
        api_version=context.api_version,
    )
    answer = CoordinatorAnswer[int](context)
    context.broker.groups.commit(question, answer)
    return answer.response(lambda code: _committed(context, asked, code))


def _committed(context: RequestContext, asked: list[_Asked], code: int) -> Fields:
    if code:
        for each in asked:
            each.fail(code)
    else:
        _refuse_long_metadata(context, asked)
    return _fields(asked)


def _fields(asked: list[_Asked]) -> Fields:
    return {
        "topics": [each.fields() for each in sorted(asked, key=lambda each: all(each.is_there))]
    }


def _refuse_long_metadata(context: RequestContext, asked: list[_Asked]) -> None:
    for topic in asked:
        for number, each in in_steps(enumerate(topic.partitions), every=64):
            if not topic.errors[number] and context.broker.groups.is_metadata_too_long(
                each.committed_metadata
            ):
                topic.errors[number] = ErrorCode.OFFSET_METADATA_TOO_LARGE


API = Api(8, "OffsetCommit", 2, 10, handle)
