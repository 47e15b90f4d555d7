"""AddOffsetsToTxn (25), versions 0 to 4: adds the offsets of a group to a transaction.

Versions: 2 the error PRODUCER_FENCED, 3 flexible, 4 the error TRANSACTION_ABORTABLE.

Source: kafka.server.KafkaApis.handleAddOffsetsToTxnRequest.
"""

from __future__ import annotations

from cordwood.broker.coordinator_answer import CoordinatorAnswer
from cordwood.broker.request_context import BrokerContext
from cordwood.model.error_codes import ErrorCode
from cordwood.model.topic_names import GROUP_METADATA_TOPIC
from cordwood.model.topic_partition import TopicPartition
from cordwood.protocol.apis.add_offsets_to_txn import AddOffsetsToTxnRequest
from cordwood.serving.api import Api, Fields, Response
from cordwood.serving.authorizer import Operation, ResourceType

_FENCED_SINCE = 2
#: Clients of transaction version 2 do not send this request.
_TV_0 = 0


def handle(context: BrokerContext, request: AddOffsetsToTxnRequest) -> Response:
    """Answers when the change is committed."""
    transactional_id, group_id = request.transactional_id, request.group_id
    if not context.authorize(Operation.WRITE, ResourceType.TRANSACTIONAL_ID, transactional_id):
        return {"error_code": ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED}
    if not context.authorize(Operation.READ, ResourceType.GROUP, group_id):
        return {"error_code": ErrorCode.GROUP_AUTHORIZATION_FAILED}
    broker = context.broker
    answer = CoordinatorAnswer[int](broker.thread)
    broker.transactions.add_partitions(
        transactional_id,
        request.producer_id,
        request.producer_epoch,
        [TopicPartition(GROUP_METADATA_TOPIC, broker.groups.partition_for(group_id))],
        _TV_0,
        answer,
    )
    return answer.response(lambda code: _fields(code, context.api_version))


def _fields(code: int, version: int) -> Fields:
    if code == ErrorCode.PRODUCER_FENCED and version < _FENCED_SINCE:
        code = ErrorCode.INVALID_PRODUCER_EPOCH
    return {"error_code": code}


API = Api(25, "AddOffsetsToTxn", 0, 4, handle)
