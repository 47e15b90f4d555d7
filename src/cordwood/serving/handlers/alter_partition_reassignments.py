"""AlterPartitionReassignments (45), versions 0 and 1: moves partitions to other brokers.

Versions: 1 a change of the replication factor may be refused. There is one broker: what is asked
for is what there is, or names a broker that is not registered.

Source: org.apache.kafka.controller.ReplicationControlManager.alterPartitionReassignments; KIP-455,
KIP-860.
"""

from __future__ import annotations

from collections.abc import Sequence

from cordwood.metadata.controller_requests import Reassignment
from cordwood.model.kafka_errors import KafkaError
from cordwood.model.pauses import in_steps
from cordwood.protocol.data import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
)
from cordwood.serving.api import Api, Response, always
from cordwood.serving.authorizer import AclOperation, on_cluster
from cordwood.serving.handlers.controller_answers import after_answer, all_or_error
from cordwood.serving.handlers.error_fields import error_code, error_message
from cordwood.serving.request_context import RequestContext


def handle(context: RequestContext, request: AlterPartitionReassignmentsRequest) -> Response:
    """Answers for each partition."""
    wanted = [
        Reassignment(topic.name, partition.partition_index, partition.replicas)
        for topic in in_steps(request.topics)
        for partition in in_steps(topic.partitions, every=16)
    ]
    may_change = request.allow_replication_factor_change

    def respond(results: Sequence[KafkaError | None]) -> AlterPartitionReassignmentsResponse:
        return _response(request, results, may_change=may_change)

    asked = context.admin.alter_partition_reassignments(
        wanted, allow_replication_factor_change=may_change
    )
    return after_answer(context, all_or_error(asked, len(wanted)), respond)


def _response(
    request: AlterPartitionReassignmentsRequest,
    results: Sequence[KafkaError | None],
    *,
    may_change: bool,
) -> AlterPartitionReassignmentsResponse:
    errors = iter(results)
    return AlterPartitionReassignmentsResponse(
        allow_replication_factor_change=may_change,
        responses=[
            AlterPartitionReassignmentsResponse.ReassignableTopicResponse(
                name=topic.name,
                partitions=[
                    _result(partition.partition_index, next(errors))
                    for partition in in_steps(topic.partitions, every=16)
                ],
            )
            for topic in in_steps(request.topics)
        ],
    )


def _result(
    index: int, error: KafkaError | None
) -> AlterPartitionReassignmentsResponse.ReassignablePartitionResponse:
    return AlterPartitionReassignmentsResponse.ReassignablePartitionResponse(
        partition_index=index, error_code=error_code(error), error_message=error_message(error)
    )


API = Api(
    45,
    "AlterPartitionReassignments",
    0,
    1,
    handle,
    needs=(on_cluster(AclOperation.ALTER),),
    is_long=always,
)
