"""OffsetCommit (8), versions 2 to 10: commits a group's offsets.

Versions: 5 without a retention time, 6 leader epochs, 7 static members, 8 flexible, 10 topic ids.

Source: kafka.server.KafkaApis.handleOffsetCommitRequest, OffsetCommitResponse.Builder.
"""

from __future__ import annotations

from uuid import UUID

from cordwood.broker.broker_context import BrokerContext
from cordwood.broker.coordinator_answer import CoordinatorAnswer
from cordwood.coordinator.group.offset_requests import CommitPartition, CommitRequest, CommitTopic
from cordwood.format.messages.message import maker
from cordwood.model.error_codes import ErrorCode
from cordwood.model.pauses import in_steps
from cordwood.model.uuids import ZERO_UUID
from cordwood.protocol.data import OffsetCommitRequest, OffsetCommitResponse
from cordwood.serving.api import Api, Response
from cordwood.serving.authorizer import AclOperation, ResourceType, on_group

# Looked up once: members of an enum are slow to look up.
_READ, _TOPIC = AclOperation.READ, ResourceType.TOPIC
_UNKNOWN_NAME: int = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
_UNKNOWN_ID: int = ErrorCode.UNKNOWN_TOPIC_ID
_NOT_ALLOWED: int = ErrorCode.TOPIC_AUTHORIZATION_FAILED
_TOO_LONG: int = ErrorCode.OFFSET_METADATA_TOO_LARGE

_TOPIC_IDS_SINCE = 10

_new_response = maker(OffsetCommitResponse)
_new_topic = maker(OffsetCommitResponse.OffsetCommitResponseTopic)
_new_result = maker(OffsetCommitResponse.OffsetCommitResponsePartition)
#: The results of committed offsets by partition index: an answer of 100 would take as long to make
#: as to write.
_committed_results: dict[int, OffsetCommitResponse.OffsetCommitResponsePartition] = {}
_RESULTS_KEPT_MAX = 10_000


class _Asked:
    """A topic of the request, and what is to be answered of it by partition."""

    def __init__(
        self,
        context: BrokerContext,
        topic: OffsetCommitRequest.OffsetCommitRequestTopic,
        *,
        by_id: bool,
    ) -> None:
        self.topic_id: UUID = topic.topic_id
        image = context.broker.metadata.image
        self.name: str | None = image.topic_names.get(self.topic_id) if by_id else topic.name
        known = None if self.name is None else image.topics.get(self.name)
        is_allowed = self.name is None or context.authorize(_READ, _TOPIC, self.name)
        if not is_allowed:
            known = None
        # Also of clients that name topics, so that a deleted topic's offsets are known as such.
        self.stored_id = ZERO_UUID if known is None else known.topic_id
        self.partitions = topic.partitions
        missing = _UNKNOWN_NAME
        if self.name is None:
            missing = _UNKNOWN_ID
        elif not is_allowed:
            missing = _NOT_ALLOWED
        self.errors: list[int] = [missing] * len(topic.partitions)
        if known is not None:
            existing = known.partitions
            for number, each in enumerate(in_steps(topic.partitions, every=64)):
                if each.partition_index in existing:
                    self.errors[number] = 0
        self.is_there = [not error for error in self.errors]
        self.are_all_there = all(self.is_there)

    def to_commit(self) -> CommitTopic | None:
        """The partitions that can be committed; None if there are none."""
        if self.name is None:
            return None
        partitions = [
            CommitPartition(
                each.partition_index,
                each.committed_offset,
                each.committed_leader_epoch,
                each.committed_metadata,
            )
            for each, error in in_steps(zip(self.partitions, self.errors, strict=True), every=16)
            if not error
        ]
        return CommitTopic(self.name, partitions, self.stored_id) if partitions else None

    def fail(self, code: int) -> None:
        """Sets the error of all partitions that have none yet."""
        self.errors = [error or code for error in self.errors]

    def refuse_long_metadata(self, context: BrokerContext) -> None:
        """Answers with an error where the metadata was too long to be committed."""
        for number, each in in_steps(enumerate(self.partitions), every=64):
            metadata = each.committed_metadata
            if not metadata or self.errors[number]:
                continue
            if context.broker.groups.is_metadata_too_long(metadata):
                self.errors[number] = _TOO_LONG

    def result(self) -> OffsetCommitResponse.OffsetCommitResponseTopic:
        """The topic of the response: partitions that are not there come first, as in Kafka."""
        if any(self.errors):
            answers = zip(self.partitions, self.errors, self.is_there, strict=True)
            partitions = [
                _new_result(partition_index=each.partition_index, error_code=error)
                for each, error, _ in in_steps(
                    sorted(answers, key=lambda answer: answer[2]), every=16
                )
            ]
        else:
            partitions = [
                _committed_result(each.partition_index)
                for each in in_steps(self.partitions, every=64)
            ]
        return _new_topic(name=self.name or "", topic_id=self.topic_id, partitions=partitions)


def _committed_result(index: int) -> OffsetCommitResponse.OffsetCommitResponsePartition:
    known = _committed_results.get(index)
    if known is None:
        known = _new_result(partition_index=index, error_code=0)
        if len(_committed_results) < _RESULTS_KEPT_MAX:
            _committed_results[index] = known
    return known


def handle(context: BrokerContext, request: OffsetCommitRequest) -> Response:
    """Answers when the offsets are committed."""
    version = context.api_version
    by_id = version >= _TOPIC_IDS_SINCE
    asked = [_Asked(context, topic, by_id=by_id) for topic in in_steps(request.topics)]
    topics = [topic for each in asked if (topic := each.to_commit()) is not None]
    if not topics:
        return _response(asked)
    question = CommitRequest(
        group_id=request.group_id,
        topics=topics,
        member_id=request.member_id,
        group_instance_id=request.group_instance_id,
        generation_id=request.generation_id_or_member_epoch,
        retention_ms=request.retention_time_ms,
        api_version=version,
    )
    answer = CoordinatorAnswer[int](context.broker.thread)
    context.broker.groups.commit(question, answer)
    return answer.response(lambda code: _committed(context, asked, code))


def _committed(context: BrokerContext, asked: list[_Asked], code: int) -> OffsetCommitResponse:
    for each in asked:
        if code:
            each.fail(code)
        else:
            each.refuse_long_metadata(context)
    return _response(asked)


def _response(asked: list[_Asked]) -> OffsetCommitResponse:
    return _new_response(
        topics=[each.result() for each in sorted(asked, key=lambda each: each.are_all_there)]
    )


API = Api(8, "OffsetCommit", 2, 10, handle, needs=(on_group(AclOperation.READ),))
