"""AlterPartition (56), versions 2 and 3: ISRs that the leaders of partitions propose.

Versions: 3 the epochs of the brokers in them (KIP-903).

Source: kafka.server.ControllerApis.handleAlterPartitionRequest,
ReplicationControlManager.alterPartition; KIP-497.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from cordwood.controller.controller_context import ControllerContext
from cordwood.metadata.controller_requests import AlteredIsr, IsrChange
from cordwood.model.error_codes import ErrorCode
from cordwood.model.pauses import in_steps
from cordwood.protocol.data import AlterPartitionRequest, AlterPartitionResponse
from cordwood.serving.api import Api, Response, always
from cordwood.serving.authorizer import AclOperation, on_cluster

_EPOCHS_SINCE: Final = 3
_NO_EPOCH: Final = -1


def handle(context: ControllerContext, request: AlterPartitionRequest) -> Response:
    """Answers for each partition with what is recorded now, or why it is not changed."""
    changes = [
        IsrChange(
            topic.topic_id,
            each.partition_index,
            each.leader_epoch,
            each.partition_epoch,
            _isr(context, each),
            each.leader_recovery_state,
        )
        for topic in in_steps(request.topics)
        for each in in_steps(topic.partitions, every=16)
    ]
    return _answered(context, request, changes)


def _isr(
    context: ControllerContext, partition: AlterPartitionRequest.PartitionData
) -> list[tuple[int, int]]:
    if context.api_version < _EPOCHS_SINCE:
        return [(each, _NO_EPOCH) for each in partition.new_isr]
    return [(each.broker_id, each.broker_epoch) for each in partition.new_isr_with_epochs]


async def _answered(
    context: ControllerContext, request: AlterPartitionRequest, changes: Sequence[IsrChange]
) -> AlterPartitionResponse:
    controller = context.controller

    def work() -> AlterPartitionResponse:
        altered = controller.cluster.change_for(
            request.broker_id,
            request.broker_epoch,
            lambda it: it.alter_partitions(request.broker_id, changes),
        )
        results = iter(altered)
        return AlterPartitionResponse(
            topics=[
                AlterPartitionResponse.AlterPartitionResponseTopicData(
                    topic_id=topic.topic_id,
                    partitions=[
                        _result(each, request.broker_id, next(results)) for each in topic.partitions
                    ],
                )
                for topic in in_steps(request.topics)
            ]
        )

    answer: AlterPartitionResponse = await controller.change(work)
    return answer


def _result(
    partition: AlterPartitionRequest.PartitionData, leader: int, altered: AlteredIsr
) -> AlterPartitionResponse.AlterPartitionResponsePartitionData:
    index = partition.partition_index
    if altered.error is not ErrorCode.NONE:
        return AlterPartitionResponse.AlterPartitionResponsePartitionData(
            partition_index=index, error_code=altered.error
        )
    return AlterPartitionResponse.AlterPartitionResponsePartitionData(
        partition_index=index,
        error_code=altered.error,
        leader_id=leader,
        leader_epoch=altered.leader_epoch,
        isr=list(altered.isr),
        leader_recovery_state=partition.leader_recovery_state,
        partition_epoch=altered.partition_epoch,
    )


API = Api(
    56,
    "AlterPartition",
    2,
    3,
    handle,
    needs=(on_cluster(AclOperation.CLUSTER_ACTION),),
    is_long=always,
)
