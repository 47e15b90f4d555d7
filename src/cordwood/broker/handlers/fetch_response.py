"""The response to a Fetch: records by topic, and the addresses of leaders that have moved."""

from __future__ import annotations

from collections.abc import Sequence

from cordwood.broker.broker_context import BrokerContext
from cordwood.broker.reading import PartitionRead
from cordwood.format.messages.message import maker
from cordwood.model.error_codes import ErrorCode
from cordwood.model.pauses import in_steps
from cordwood.model.uuids import ZERO_UUID
from cordwood.protocol.data import FetchResponse
from cordwood.serving.handlers.cluster_facts import current_leader, endpoints_of

_LEADERS_SINCE = 16
_MOVED = frozenset({ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH})
# Kafka finds these before it reads, and then writes no null for aborted transactions.
_NOT_THERE = frozenset(
    {
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    }
)
_Topic = FetchResponse.FetchableTopicResponse
_Partition = FetchResponse.PartitionData
_new_response = maker(FetchResponse)
_new_topic = maker(_Topic)
_new_partition = maker(_Partition)


def build_response(
    context: BrokerContext, partitions: Sequence[PartitionRead], *, session_id: int
) -> FetchResponse:
    """The response; the records stay in their files.

    Partitions are in the order given, and those of a topic that follow each other are together.
    """
    tells_leaders = context.api_version >= _LEADERS_SINCE
    leaders: list[int] = []
    topics: list[_Topic] = []
    found: list[_Partition] = []
    last: object = None
    for one in in_steps(partitions, every=16):
        key = one.wanted.key
        if (key.topic_id, key.topic) != last:
            found = []
            topic_id = ZERO_UUID if key.topic_id is None else key.topic_id
            topics.append(_new_topic(topic=key.topic, topic_id=topic_id, partitions=found))
            last = key.topic_id, key.topic
        partition = _partition(one)
        found.append(partition)
        if tells_leaders and one.error_code in _MOVED:
            leader, epoch = current_leader(context.broker.metadata.image, key.topic, key.partition)
            partition.current_leader = FetchResponse.LeaderIdAndEpoch(
                leader_id=leader, leader_epoch=epoch
            )
            leaders.append(leader)
    response = _new_response(session_id=session_id, responses=topics)
    if leaders:
        response.node_endpoints = [
            FetchResponse.NodeEndpoint(
                node_id=each.broker_id, host=each.host, port=each.port, rack=each.rack
            )
            for each in endpoints_of(context, leaders)
        ]
    return response


def _partition(one: PartitionRead) -> _Partition:
    found = _new_partition(
        partition_index=one.wanted.key.partition,
        error_code=one.error_code,
        high_watermark=one.high_watermark,
        last_stable_offset=one.last_stable_offset,
        log_start_offset=one.log_start_offset,
        preferred_read_replica=one.preferred_replica,
        records=b"" if one.records is None else one.records,
    )
    if one.error_code in _NOT_THERE:
        found.aborted_transactions = ()
    elif one.aborted is not None:
        found.aborted_transactions = [
            FetchResponse.AbortedTransaction(
                producer_id=each.producer_id, first_offset=each.first_offset
            )
            for each in one.aborted
        ]
    if one.diverging is not None:
        epoch, end_offset = one.diverging
        found.diverging_epoch = FetchResponse.EpochEndOffset(epoch=epoch, end_offset=end_offset)
    return found
