"""ListPartitionReassignments (46), version 0: reassignments in progress.

Source: org.apache.kafka.controller.ReplicationControlManager.listPartitionReassignments; KIP-455.
"""

from __future__ import annotations

from collections.abc import Iterable

from cordwood.model.pauses import in_steps
from cordwood.protocol.data import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
)
from cordwood.serving.api import Api, Response, always
from cordwood.serving.authorizer import AclOperation, on_cluster
from cordwood.serving.request_context import RequestContext


def handle(context: RequestContext, request: ListPartitionReassignmentsRequest) -> Response:
    """Answers from the image; unknown topics and partitions are left out."""
    image = context.node.metadata.image
    asked: Iterable[tuple[str, Iterable[int]]]
    if request.topics is None:
        asked = [(name, topic.partitions) for name, topic in image.topics.items()]
    else:
        asked = [(each.name, each.partition_indexes) for each in request.topics]
    topics = []
    for name, numbers in in_steps(asked):
        ongoing = [
            ListPartitionReassignmentsResponse.OngoingPartitionReassignment(
                partition_index=number,
                replicas=partition.replicas,
                adding_replicas=partition.adding_replicas,
                removing_replicas=partition.removing_replicas,
            )
            for number in in_steps(numbers, every=64)
            if (partition := image.partition(name, number)) is not None and partition.is_reassigning
        ]
        if ongoing:
            topics.append(
                ListPartitionReassignmentsResponse.OngoingTopicReassignment(
                    name=name, partitions=ongoing
                )
            )
    return ListPartitionReassignmentsResponse(topics=topics)


API = Api(
    46,
    "ListPartitionReassignments",
    0,
    0,
    handle,
    needs=(on_cluster(AclOperation.DESCRIBE),),
    is_long=always,
)
