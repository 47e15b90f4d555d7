"""AssignReplicasToDirs (73), version 0: the log directories of a broker's replicas (KIP-858).

Source: kafka.server.ControllerApis.handleAssignReplicasToDirs,
ReplicationControlManager.handleAssignReplicasToDirs.
"""

from __future__ import annotations

from cordwood.controller.controller_context import ControllerContext
from cordwood.metadata.controller_requests import DirectoryAssignment
from cordwood.model.pauses import in_steps
from cordwood.protocol.data import AssignReplicasToDirsRequest, AssignReplicasToDirsResponse
from cordwood.serving.api import Api, Response, always
from cordwood.serving.authorizer import AclOperation, on_cluster


def handle(context: ControllerContext, request: AssignReplicasToDirsRequest) -> Response:
    """Answers for each replica when all are recorded."""
    return _assigned(context, request)


async def _assigned(
    context: ControllerContext, request: AssignReplicasToDirsRequest
) -> AssignReplicasToDirsResponse:
    controller = context.controller

    def work() -> AssignReplicasToDirsResponse:
        assigned = [
            DirectoryAssignment(topic.topic_id, partition.partition_index, directory.id)
            for directory in request.directories
            for topic in in_steps(directory.topics)
            for partition in topic.partitions
        ]
        errors = iter(
            controller.cluster.change_for(
                request.broker_id,
                request.broker_epoch,
                lambda it: it.assign_directories(request.broker_id, assigned),
            )
        )
        return AssignReplicasToDirsResponse(
            directories=[
                AssignReplicasToDirsResponse.AssignReplicasToDirsResponseDirectoryData(
                    id=directory.id,
                    topics=[
                        AssignReplicasToDirsResponse.AssignReplicasToDirsResponseTopicData(
                            topic_id=topic.topic_id,
                            partitions=[
                                AssignReplicasToDirsResponse.AssignReplicasToDirsResponsePartitionData(
                                    partition_index=partition.partition_index,
                                    error_code=next(errors),
                                )
                                for partition in topic.partitions
                            ],
                        )
                        for topic in in_steps(directory.topics)
                    ],
                )
                for directory in request.directories
            ]
        )

    answer: AssignReplicasToDirsResponse = await controller.change(work)
    return answer


API = Api(
    73,
    "AssignReplicasToDirs",
    0,
    0,
    handle,
    needs=(on_cluster(AclOperation.CLUSTER_ACTION),),
    is_long=always,
)
