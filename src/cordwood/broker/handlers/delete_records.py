"""DeleteRecords (21), versions 0 to 2: moves the log start offset up. Version 2 is flexible.

The answer waits until the replicas in sync have deleted the records too.

Source: kafka.server.ReplicaManager.deleteRecords, kafka.cluster.Partition.deleteRecordsOnLeader,
kafka.server.DelayedDeleteRecords; KIP-107.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from typing import Any, NamedTuple

from cordwood.broker.broker_context import BrokerContext
from cordwood.model.audit import RecordsDeleted, audit
from cordwood.model.hold import held_by
from cordwood.model.kafka_errors import (
    InvalidTopicError,
    KafkaError,
    PolicyViolationError,
    RequestTimedOutError,
    TopicAuthorizationError,
)
from cordwood.model.pauses import in_steps
from cordwood.protocol.data import DeleteRecordsRequest, DeleteRecordsResponse
from cordwood.serving.api import Api, Response, always
from cordwood.serving.authorizer import AclOperation, ResourceType
from cordwood.serving.handlers.cluster_facts import is_internal

_log = logging.getLogger(__name__)

_NO_LOW_WATERMARK = -1
_Result = DeleteRecordsResponse.DeleteRecordsPartitionResult


def handle(context: BrokerContext, request: DeleteRecordsRequest) -> Response:
    """Deletes, and answers with the low watermark of each partition."""
    topics: dict[str, dict[int, Any]] = {}
    for topic in in_steps(request.topics):
        for each in in_steps(topic.partitions, every=64):
            topics.setdefault(topic.name, {})[each.partition_index] = each
    undeleted: list[_Undeleted] = []
    response = DeleteRecordsResponse(
        topics=[
            DeleteRecordsResponse.DeleteRecordsTopicResult(
                name=name,
                partitions=[
                    _delete(context, name, each, undeleted)
                    for each in in_steps(partitions.values())
                ],
            )
            for name, partitions in in_steps(topics.items())
        ]
    )
    if not undeleted:
        return response
    operation = DelayedDeleteRecords(context, response, undeleted)
    keys = [(each.topic, each.partition_index) for each in undeleted]
    context.broker.replicas.delayed.delete_records.try_complete_else_watch(
        operation, keys, request.timeout_ms
    )
    return operation.answer


def _delete(
    context: BrokerContext,
    topic: str,
    asked: DeleteRecordsRequest.DeleteRecordsPartition,
    undeleted: list[_Undeleted],
) -> _Result:
    answer = _Result(partition_index=asked.partition_index, low_watermark=_NO_LOW_WATERMARK)
    try:
        if not context.authorize(AclOperation.DELETE, ResourceType.TOPIC, topic):
            raise TopicAuthorizationError
        partition = context.broker.replicas.partition(topic, asked.partition_index)
        if is_internal(topic):
            raise InvalidTopicError(f"Cannot delete records of internal topic {topic}.")
        log = partition.log
        if log.config.compact and not log.config.delete:
            raise PolicyViolationError(
                f"Records of partition {log.topic_partition} can not be deleted due to the "
                "configured policy"
            )
        if log.holds:
            raise PolicyViolationError(
                f"Records of partition {log.topic_partition} can not be deleted: it is "
                f"{held_by(log.holds)}"
            )
        first = log.log_start_offset
        low = log.delete_records(asked.offset)
    except KafkaError as error:
        if isinstance(error, PolicyViolationError):  # the answer has no field for the reason
            _log.info("%s", error)
        answer.error_code = error.code
        return answer
    if low > first:
        audit(
            RecordsDeleted(
                partition=log.topic_partition,
                log_dir=str(log.log_dir),
                first_offset=first,
                last_offset=low - 1,
                requester=context.requester,
            )
        )
    answer.low_watermark = low
    if partition.low_watermark < low:
        undeleted.append(_Undeleted(topic, asked.partition_index, low, answer))
    return answer


class _Undeleted(NamedTuple):
    """A partition whose low watermark has to reach `required`; then `answer` is right."""

    topic: str
    partition_index: int
    required: int
    answer: _Result


class DelayedDeleteRecords:
    """Records that other replicas have yet to delete; `answer` is done when they have.

    Source: kafka.server.DelayedDeleteRecords.
    """

    def __init__(
        self,
        context: BrokerContext,
        response: DeleteRecordsResponse,
        undeleted: Sequence[_Undeleted],
    ) -> None:
        self._replicas = context.broker.replicas
        self._response = response
        self._undeleted = list(undeleted)
        self.answer: asyncio.Future[DeleteRecordsResponse] = (
            context.broker.thread.loop.create_future()
        )

    def try_complete(self, _grown_bytes: int | None) -> bool:
        """Returns whether all replicas have deleted the records, or this leader cannot know."""
        self._undeleted = [each for each in self._undeleted if not self._is_settled(each)]
        return not self._undeleted

    def _is_settled(self, each: _Undeleted) -> bool:
        """Whether all replicas have deleted the records, or this leader will never know."""
        try:
            low = self._replicas.partition(each.topic, each.partition_index).low_watermark
        except KafkaError as error:
            each.answer.error_code = error.code
            return True
        if low < each.required:
            return False
        each.answer.low_watermark = low
        return True

    def on_expiration(self) -> None:
        """Answers REQUEST_TIMED_OUT for partitions that are not deleted everywhere."""
        for each in self._undeleted:
            each.answer.error_code = RequestTimedOutError.code

    def on_complete(self) -> None:
        """Makes the response available, unless the client has disconnected."""
        if not self.answer.done():
            self.answer.set_result(self._response)


API = Api(21, "DeleteRecords", 0, 2, handle, is_long=always)
