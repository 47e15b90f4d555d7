"""Offsets of partitions: who leads them, where they begin and end, and deleting what is before.

Source: org.apache.kafka.clients.admin.KafkaAdminClient.listOffsets, deleteRecords;
ListOffsetsRequest (KIP-79, KIP-405, KIP-734, KIP-1005, KIP-1023).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from cordwood.client.admin import Admin, by_topic
from cordwood.client.cluster import Cluster
from cordwood.client.errors import NotSupportedError, RefusedError
from cordwood.model.clock import pause
from cordwood.model.error_codes import ErrorCode
from cordwood.model.topic_partition import TopicPartition

EARLIEST, LATEST, MAX_TIMESTAMP, EARLIEST_LOCAL, LATEST_TIERED = -2, -1, -3, -4, -5
EARLIEST_PENDING_UPLOAD = -6
"""Moments that stand for an offset (ListOffsetsRequest)."""

_LIST_OFFSETS_VERSIONS: Mapping[int, int] = {
    MAX_TIMESTAMP: 7,
    EARLIEST_LOCAL: 8,
    LATEST_TIERED: 9,
    EARLIEST_PENDING_UPLOAD: 11,
}
_LEADER_CODES = frozenset(
    {
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.OFFSET_NOT_AVAILABLE,
    }
)
_RETRY_S = 0.1


class Offsets:
    """Calls about the offsets of partitions, on a cluster that the caller closes."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._admin = Admin(cluster)

    def leaders(self, partitions: Iterable[TopicPartition]) -> dict[int, list[TopicPartition]]:
        """The partitions by the broker that leads them, waiting for leaders that are not elected.

        Raises:
            RefusedError: a partition is not there, or has no leader in time.
        """
        wanted = list(partitions)
        deadline = self._cluster.deadline()
        while True:
            names = sorted({tp.topic for tp in wanted})
            topics = {topic.name: topic for topic in self._admin.topics(names)}
            by_leader: dict[int, list[TopicPartition]] = {}
            for tp in wanted:
                leaders = {p.partition: p.leader for p in topics[tp.topic].partitions}
                if tp.partition not in leaders:
                    raise RefusedError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
                by_leader.setdefault(leaders[tp.partition], []).append(tp)
            if -1 not in by_leader:
                return by_leader
            if self._cluster.is_past(deadline):
                raise RefusedError(ErrorCode.LEADER_NOT_AVAILABLE)
            pause(_RETRY_S)

    def list_offsets(
        self, times: Mapping[TopicPartition, int], *, isolation: int = 0
    ) -> dict[TopicPartition, int | RefusedError]:
        """The first offset at or after each moment (ms, or one of `EARLIEST` …), -1 for none."""
        found: dict[TopicPartition, int | RefusedError] = {}
        waiting = dict(times)
        deadline = self._cluster.deadline()
        while waiting:
            for node, partitions in self.leaders(waiting).items():
                asked = {tp: waiting[tp] for tp in partitions}
                for tp, offset in self._ask_offsets(node, asked, isolation).items():
                    is_waiting = isinstance(offset, RefusedError) and offset.code in _LEADER_CODES
                    if not is_waiting or self._cluster.is_past(deadline):
                        found[tp] = offset
                        del waiting[tp]
            if waiting:
                pause(_RETRY_S)
        return found

    def _ask_offsets(
        self, node: int, times: Mapping[TopicPartition, int], isolation: int
    ) -> dict[TopicPartition, int | RefusedError]:
        need = max((_LIST_OFFSETS_VERSIONS.get(time, 1) for time in times.values()), default=1)
        _, high = self._cluster.versions(node).get(2, (0, -1))
        if high < need:
            raise NotSupportedError(f"Broker {node} does not support such a time")
        fields = {
            "replica_id": -1,
            "isolation_level": isolation,
            "topics": [
                {
                    "name": topic,
                    "partitions": [
                        {
                            "partition_index": partition,
                            "current_leader_epoch": -1,
                            "timestamp": times[TopicPartition(topic, partition)],
                        }
                        for partition in partitions
                    ],
                }
                for topic, partitions in by_topic(times).items()
            ],
            "timeout_ms": 30_000,
        }
        answer = self._cluster.call("list_offsets", fields, node_id=node)
        return {
            TopicPartition(topic.name, p.partition_index): (
                RefusedError(int(p.error_code)) if p.error_code else int(p.offset)
            )
            for topic in answer.topics
            for p in topic.partitions
        }

    def delete_records(
        self, offsets: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, int | RefusedError]:
        """Deletes what is before each offset (-1: all); gives the new low watermarks."""
        found: dict[TopicPartition, int | RefusedError] = {}
        by_leader: dict[int, list[TopicPartition]] = {}
        for tp in offsets:
            try:
                ((leader, _),) = self.leaders([tp]).items()
            except RefusedError as error:
                found[tp] = error
            else:
                by_leader.setdefault(leader, []).append(tp)
        for node, partitions in by_leader.items():
            fields = {
                "topics": [
                    {
                        "name": topic,
                        "partitions": [
                            {
                                "partition_index": partition,
                                "offset": offsets[TopicPartition(topic, partition)],
                            }
                            for partition in numbers
                        ],
                    }
                    for topic, numbers in by_topic(partitions).items()
                ],
                "timeout_ms": 30_000,
            }
            answer = self._cluster.call("delete_records", fields, node_id=node)
            for topic in answer.topics:
                for p in topic.partitions:
                    found[TopicPartition(topic.name, p.partition_index)] = (
                        RefusedError(int(p.error_code)) if p.error_code else int(p.low_watermark)
                    )
        return found
