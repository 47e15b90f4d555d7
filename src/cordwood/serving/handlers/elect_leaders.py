"""ElectLeaders (43), versions 0 to 2: preferred leaders, or any for leaderless partitions.

Versions: 1 the type of election; 2 flexible.

Source: org.apache.kafka.controller.ReplicationControlManager.electLeaders; KIP-183, KIP-460.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from cordwood.metadata.controller_requests import ElectionResult
from cordwood.model.kafka_errors import KafkaError
from cordwood.model.pauses import in_steps
from cordwood.protocol.data import ElectLeadersRequest, ElectLeadersResponse
from cordwood.serving.api import Api, Response, always
from cordwood.serving.authorizer import AclOperation, on_cluster
from cordwood.serving.handlers.controller_answers import after_answer, result_or_error
from cordwood.serving.handlers.error_fields import error_code, error_message
from cordwood.serving.request_context import RequestContext


def handle(context: RequestContext, request: ElectLeadersRequest) -> Response:
    """Answers for each partition; asked about all, for those alone that needed an election."""
    wanted = None
    topics: dict[str, list[ElectLeadersResponse.PartitionResult]]
    if request.topic_partitions is None:
        topics = {name: [] for name in context.node.metadata.image.topics}
    else:
        topics = {each.topic: [] for each in request.topic_partitions}
        wanted = [
            (each.topic, number)
            for each in in_steps(request.topic_partitions)
            for number in in_steps(each.partitions, every=64)
        ]
    election_type = request.election_type

    def respond(answer: Sequence[ElectionResult] | KafkaError) -> ElectLeadersResponse:
        if not isinstance(answer, KafkaError):
            return ElectLeadersResponse(replica_election_results=_results(topics, answer))
        failed = [ElectionResult(topic, number, answer) for topic, number in wanted or ()]
        results = _results({} if wanted is None else topics, failed)
        return ElectLeadersResponse(error_code=answer.code, replica_election_results=results)

    asked = context.admin.elect_leaders(wanted, election_type=election_type)
    return after_answer(context, result_or_error(asked), respond)


def _results(
    topics: dict[str, list[ElectLeadersResponse.PartitionResult]], results: Iterable[ElectionResult]
) -> list[ElectLeadersResponse.ReplicaElectionResult]:
    for result in in_steps(results, every=16):
        topics[result.topic].append(
            ElectLeadersResponse.PartitionResult(
                partition_id=result.partition,
                error_code=error_code(result.error),
                error_message=error_message(result.error),
            )
        )
    return [
        ElectLeadersResponse.ReplicaElectionResult(topic=topic, partition_result=partitions)
        for topic, partitions in topics.items()
    ]


API = Api(43, "ElectLeaders", 0, 2, handle, needs=(on_cluster(AclOperation.ALTER),), is_long=always)
