"""OffsetFetch (9), versions 1 to 10: the committed offsets of groups.

Versions: 2 null for all partitions and an error for the whole, 5 leader epochs, 6 flexible, 7 those
that a transaction may change can be waited for (KIP-447), 8 several groups (KIP-709), 9 members of
the consumer protocol, 10 topic ids.

Source: kafka.server.KafkaApis.handleOffsetFetchRequest, OffsetFetchResponse.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from cordwood.broker.broker_context import BrokerContext
from cordwood.broker.coordinator_answer import CoordinatorAnswer
from cordwood.coordinator.group.offset_requests import (
    NO_MEMBER,
    FetchedOffset,
    FetchedTopic,
    FetchingMember,
    FetchTopic,
)
from cordwood.model.error_codes import ErrorCode
from cordwood.model.kafka_errors import KafkaError
from cordwood.model.pauses import in_steps, is_pausing
from cordwood.model.uuids import ZERO_UUID
from cordwood.protocol.data import OffsetFetchRequest, OffsetFetchResponse
from cordwood.serving.api import Api, Response
from cordwood.serving.authorizer import AclOperation, ResourceType

_TOP_LEVEL_ERROR_SINCE = 2
_GROUPS_SINCE = 8
_MEMBERS_SINCE = 9
_TOPIC_IDS_SINCE = 10


_Group = OffsetFetchResponse.OffsetFetchResponseGroup
_Topic = OffsetFetchResponse.OffsetFetchResponseTopics
_Partition = OffsetFetchResponse.OffsetFetchResponsePartitions


@dataclass(frozen=True, slots=True, kw_only=True)
class _Asked:
    """A group whose offsets may be read: which of them, and the answers for others.

    `topics` is None for all.
    """

    request: Any
    topics: list[FetchTopic] | None
    others: list[_Topic]
    member: FetchingMember

    @property
    def group_id(self) -> str:
        """The group."""
        return str(self.request.group_id)


_Checked = _Asked | _Group
"""The offsets of a group to read; or its answer, if none are."""


def handle(context: BrokerContext, request: OffsetFetchRequest) -> Response:
    """Answers from memory; with `require_stable` when nothing that is written may be lost."""
    requests = list(request.groups) if context.api_version >= _GROUPS_SINCE else [request]
    groups = [_checked(context, each) for each in in_steps(requests)]
    return _stable(context, groups) if request.require_stable else _fields(context, groups, None)


def _stable(context: BrokerContext, groups: Sequence[_Checked]) -> Response:
    """Waits for all groups at once; then the answer is built in slices if the request runs so."""
    commits: dict[str, CoordinatorAnswer[int]] = {}
    for each in in_steps(groups):
        if isinstance(each, _Asked):
            commit = CoordinatorAnswer[int](context.broker.thread)
            commits[each.group_id] = commit
            context.broker.groups.await_commit(each.group_id, commit)
    if all(each.is_there for each in commits.values()):
        return _fields(context, groups, {group: each.now() for group, each in commits.items()})
    is_long = is_pausing()

    async def committed() -> OffsetFetchResponse:
        errors = {group: await each.value() for group, each in commits.items()}
        if not is_long:
            return _fields(context, groups, errors)
        return await context.broker.thread.slices.run(lambda: _fields(context, groups, errors))

    return committed()


def _fields(
    context: BrokerContext, groups: Sequence[_Checked], commits: Mapping[str, int] | None
) -> OffsetFetchResponse:
    """The response; `commits` has the error code of each group whose commit was waited for."""
    answers = [
        _answer(context, each, commits) if isinstance(each, _Asked) else each
        for each in in_steps(groups)
    ]
    if context.api_version >= _GROUPS_SINCE:
        return OffsetFetchResponse(groups=answers)
    return _of_one_group(answers[0])


def _of_one_group(group: _Group) -> OffsetFetchResponse:
    return OffsetFetchResponse(
        error_code=group.error_code,
        topics=[
            OffsetFetchResponse.OffsetFetchResponseTopic(
                name=topic.name,
                partitions=[
                    OffsetFetchResponse.OffsetFetchResponsePartition(**dict(each.items()))
                    for each in in_steps(topic.partitions, every=16)
                ],
            )
            for topic in in_steps(group.topics)
        ],
    )


def _answer(context: BrokerContext, asked: _Asked, commits: Mapping[str, int] | None) -> _Group:
    if commits is not None and commits[asked.group_id]:
        return _failed(asked.request, commits[asked.group_id], context.api_version)
    try:
        found = context.broker.groups.fetch(
            asked.group_id, asked.topics, asked.member, require_stable=commits is not None
        )
    except KafkaError as error:
        return _failed(asked.request, error.code, context.api_version)
    return _found(context, asked, found)


def _checked(context: BrokerContext, request: Any) -> _Checked:
    """Selects the offsets of a group that the client may read."""
    version = context.api_version
    by_id = version >= _TOPIC_IDS_SINCE
    if not context.authorize(AclOperation.DESCRIBE, ResourceType.GROUP, request.group_id):
        return _failed(request, ErrorCode.GROUP_AUTHORIZATION_FAILED, version)
    member = NO_MEMBER
    if version >= _MEMBERS_SINCE:
        member = FetchingMember(request.member_id, request.member_epoch)
    if request.topics is None:
        return _Asked(request=request, topics=None, others=[], member=member)
    known: list[FetchTopic] = []
    unknown: list[_Topic] = []
    denied: list[_Topic] = []
    for topic in in_steps(request.topics, every=16):
        topic_id: UUID = topic.topic_id if by_id else ZERO_UUID
        name = context.broker.metadata.image.topic_names.get(topic_id) if by_id else topic.name
        if name is None:
            unknown.append(_unknown(topic_id, topic.partition_indexes))
        elif not context.authorize(AclOperation.DESCRIBE, ResourceType.TOPIC, name):
            code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
            failed = _all_failed(topic.partition_indexes, code)
            denied.append(_Topic(name=name, topic_id=topic_id, partitions=failed))
        else:
            known.append(FetchTopic(name, tuple(topic.partition_indexes), topic_id))
    others = [*unknown, *denied]
    return _Asked(request=request, topics=known, others=others, member=member)


def _found(context: BrokerContext, asked: _Asked, found: list[FetchedTopic]) -> _Group:
    by_id = context.api_version >= _TOPIC_IDS_SINCE
    answered = [
        _topic(context, topic, by_id=by_id)
        for topic in in_steps(found)
        if asked.topics is not None
        or context.authorize(AclOperation.DESCRIBE, ResourceType.TOPIC, topic.name)
    ]
    topics = [topic for topic in answered if topic is not None]
    return _Group(group_id=asked.group_id, topics=topics + asked.others)


def _failed(asked: Any, code: int, version: int) -> _Group:
    answer = _Group(group_id=asked.group_id, error_code=code, topics=[])
    if version < _TOP_LEVEL_ERROR_SINCE:
        # There is no other place for the error.
        answer.topics = [
            _Topic(
                name=topic.name,
                partitions=_all_failed(topic.partition_indexes, code),
            )
            for topic in in_steps(asked.topics)
        ]
    return answer


def _all_failed(partitions: Iterable[int], code: int) -> list[_Partition]:
    return [
        _partition(FetchedOffset(index, error_code=code))
        for index in in_steps(partitions, every=16)
    ]


def _topic(context: BrokerContext, topic: FetchedTopic, *, by_id: bool) -> _Topic | None:
    """A topic of the response; None for one that has no id to name it by."""
    topic_id = ZERO_UUID
    if by_id:
        known = context.broker.metadata.image.topics.get(topic.name)
        if known is None:
            return None
        topic_id = known.topic_id
    return _Topic(
        name=topic.name,
        topic_id=topic_id,
        partitions=[_partition(each) for each in in_steps(topic.partitions, every=16)],
    )


def _partition(found: FetchedOffset) -> _Partition:
    return _Partition(
        partition_index=found.partition,
        committed_offset=found.offset,
        committed_leader_epoch=found.leader_epoch,
        metadata=found.metadata,
        error_code=found.error_code,
    )


def _unknown(topic_id: UUID, partitions: Iterable[int]) -> _Topic:
    return _Topic(
        topic_id=topic_id,
        partitions=[
            _Partition(
                partition_index=index,
                committed_offset=-1,
                metadata="",
                error_code=ErrorCode.UNKNOWN_TOPIC_ID,
            )
            for index in in_steps(partitions, every=16)
        ],
    )


def _is_long(_context: BrokerContext, request: OffsetFetchRequest) -> bool:
    """Whether all offsets of a group are asked for."""
    return any(each.topics is None for each in (request.groups or (request,)))


API = Api(9, "OffsetFetch", 1, 10, handle, is_long=_is_long)
