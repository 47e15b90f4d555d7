"""Offsets of partitions: who leads them, where they begin and end, and deleting what is before.

Source: org.apache.kafka.clients.admin.KafkaAdminClient.listOffsets, deleteRecords;
ListOffsetsRequest (KIP-79, KIP-405, KIP-734, KIP-1005, KIP-1023).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TypeVar

from cordwood.client.admin import Admin, by_topic
from cordwood.client.cluster import Cluster
from cordwood.client.errors import (
    ClientError,
    DisconnectedError,
    NotSupportedError,
    RefusedError,
    TimedOutError,
)
from cordwood.client.retry import Action, action
from cordwood.model.error_codes import ErrorCode
from cordwood.model.topic_partition import TopicPartition

T = TypeVar("T")

EARLIEST, LATEST, MAX_TIMESTAMP, EARLIEST_LOCAL, LATEST_TIERED = -2, -1, -3, -4, -5
EARLIEST_PENDING_UPLOAD = -6
"""Moments that stand for an offset (ListOffsetsRequest)."""

_LIST_OFFSETS_VERSIONS: Mapping[int, int] = {
    MAX_TIMESTAMP: 7,
    EARLIEST_LOCAL: 8,
    LATEST_TIERED: 9,
    EARLIEST_PENDING_UPLOAD: 11,
}


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
        retries = self._cluster.retries()
        while True:
            by_leader, error = self._known_leaders(wanted)
            if error is None:
                return by_leader
            if not retries.wait():
                raise error

    def _known_leaders(
        self, wanted: Sequence[TopicPartition]
    ) -> tuple[dict[int, list[TopicPartition]], RefusedError | None]:
        """The partitions by leader, -1 for none, and why another attempt may find more.

        Raises:
            RefusedError: a partition is not there.
        """
        try:
            found = self._admin.topics(sorted({tp.topic for tp in wanted}))
        except RefusedError as error:
            # Differs: Kafka's client asks for a topic that is not there until its time is over.
            is_gone = error.code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            if is_gone or action("metadata", error.code) is None:
                raise
            return {}, error
        topics = {topic.name: topic for topic in found}
        by_leader: dict[int, list[TopicPartition]] = {}
        for tp in wanted:
            leaders = {p.partition: p.leader for p in topics[tp.topic].partitions}
            if tp.partition not in leaders:
                raise RefusedError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
            by_leader.setdefault(leaders[tp.partition], []).append(tp)
        return by_leader, RefusedError(ErrorCode.LEADER_NOT_AVAILABLE) if -1 in by_leader else None

    def at_leaders(
        self,
        api: str,
        partitions: Iterable[TopicPartition],
        ask: Callable[[int, Sequence[TopicPartition]], Mapping[TopicPartition, T | RefusedError]],
    ) -> dict[TopicPartition, T | RefusedError]:
        """What the leaders of partitions answer, after new attempts where `client.retry` has some.

        `ask` sends a request to a broker, with `is_single`, and gives the answer by partition.

        Raises:
            RefusedError: a partition is not there, or has no leader in time.
            ClientError: a leader did not answer in time.
        """
        found: dict[TopicPartition, T | RefusedError] = {}
        waiting = list(partitions)
        retries = self._cluster.retries()
        while waiting:
            lost: ClientError | None = None
            for node, led in self.leaders(waiting).items():
                try:
                    found |= ask(node, led)
                except (DisconnectedError, TimedOutError) as error:
                    lost = error
            waiting = [tp for tp in waiting if _is_repeated(api, found.get(tp))]
            if waiting and not retries.wait():
                if lost is not None and any(tp not in found for tp in waiting):
                    raise lost
                break
        return found

    def list_offsets(
        self, times: Mapping[TopicPartition, int], *, isolation: int = 0
    ) -> dict[TopicPartition, int | RefusedError]:
        """The first offset at or after each moment (ms, or one of `EARLIEST` …), -1 for none."""
        return self.at_leaders(
            "list_offsets",
            times,
            lambda node, led: self._ask_offsets(node, {tp: times[tp] for tp in led}, isolation),
        )

    def _ask_offsets(
        self, node: int, times: Mapping[TopicPartition, int], isolation: int
    ) -> dict[TopicPartition, int | RefusedError]:
        need = max((_LIST_OFFSETS_VERSIONS.get(time, 1) for time in times.values()), default=1)
        _, high = self._cluster.versions(node, is_single=True).get(2, (0, -1))
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
        answer = self._cluster.call("list_offsets", fields, node_id=node, is_single=True)
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
        known = []
        for tp in offsets:
            try:
                self.leaders([tp])
            except RefusedError as error:
                found[tp] = error
            else:
                known.append(tp)
        return found | self.at_leaders(
            "delete_records", known, lambda node, led: self._ask_deletion(node, led, offsets)
        )

    def _ask_deletion(
        self, node: int, partitions: Sequence[TopicPartition], offsets: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, int | RefusedError]:
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
        answer = self._cluster.call("delete_records", fields, node_id=node, is_single=True)
        return {
            TopicPartition(topic.name, p.partition_index): (
                RefusedError(int(p.error_code)) if p.error_code else int(p.low_watermark)
            )
            for topic in answer.topics
            for p in topic.partitions
        }


def _is_repeated(api: str, found: object) -> bool:
    if isinstance(found, RefusedError):
        return action(api, found.code) in {Action.AGAIN, Action.METADATA}
    return found is None
