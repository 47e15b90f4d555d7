"""Offsets of partitions: who leads them, where they begin and end, and deleting what is before.

Source: org.apache.kafka.clients.admin.KafkaAdminClient.listOffsets, deleteRecords;
ListOffsetsRequest (KIP-79, KIP-405, KIP-734, KIP-1005, KIP-1023).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TypeVar

from cordwood.client.admin import Admin, TopicFacts, by_topic
from cordwood.client.cluster_client import ClusterClient
from cordwood.client.errors import (
    ClientError,
    DisconnectedError,
    NotSupportedError,
    RefusedError,
    TimedOutError,
)
from cordwood.client.retry import action
from cordwood.model.error_codes import ErrorCode
from cordwood.model.topic_partition import TopicPartition
from cordwood.protocol.data import DeleteRecordsRequest, ListOffsetsRequest

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

    def __init__(self, cluster: ClusterClient) -> None:
        self._cluster = cluster
        self._admin = Admin(cluster)

    def leaders(self, partitions: Iterable[TopicPartition]) -> dict[int, list[TopicPartition]]:
        """The partitions by the broker that leads them, waiting for leaders that are not elected.

        Raises:
            RefusedError: a partition is not there, or has no leader in time.
        """
        led = self.at_leaders("metadata", partitions, lambda node, led, _: dict.fromkeys(led, node))
        by_leader: dict[int, list[TopicPartition]] = {}
        for tp, leader in led.items():
            if isinstance(leader, RefusedError):
                raise leader
            by_leader.setdefault(leader, []).append(tp)
        return by_leader

    def _look_up(
        self, partitions: Sequence[TopicPartition], deadline: float
    ) -> tuple[dict[int, list[TopicPartition]], dict[TopicPartition, RefusedError]]:
        """The partitions by the broker that leads them, and why others have none."""
        topics = self._admin.find_topics((tp.topic for tp in partitions), deadline=deadline)
        by_leader: dict[int, list[TopicPartition]] = {}
        refused: dict[TopicPartition, RefusedError] = {}
        for tp in partitions:
            leader = _leader(topics[tp.topic], tp.partition)
            if isinstance(leader, RefusedError):
                refused[tp] = leader
            else:
                by_leader.setdefault(leader, []).append(tp)
        return by_leader, refused

    def at_leaders(
        self,
        api: str,
        partitions: Iterable[TopicPartition],
        ask: Callable[
            [int, Sequence[TopicPartition], float], Mapping[TopicPartition, T | RefusedError]
        ],
    ) -> dict[TopicPartition, T | RefusedError]:
        """Asks the leaders of partitions, again where `client.retry` says so.

        A partition that is not there, or has no leader in time, is refused, too. `ask` sends a
        request to a broker, with `is_single` and a deadline, and gives the answer by partition.

        Raises:
            ClientError: a leader did not answer in time.
        """
        found: dict[TopicPartition, T | RefusedError] = {}
        waiting = wanted = list(partitions)
        retries = self._cluster.retries()
        while waiting:
            lost: ClientError | None = None
            try:
                by_leader, refused = self._look_up(waiting, retries.deadline)
            except (DisconnectedError, TimedOutError):
                # The time is over: what is known of all is not lost by one more attempt.
                if any(tp not in found for tp in waiting):
                    raise
                break
            answers: dict[TopicPartition, T | RefusedError] = {}
            for node, led in by_leader.items():
                try:
                    answers |= ask(node, led, retries.deadline)
                except (DisconnectedError, TimedOutError) as error:
                    lost = error
            found |= refused | answers
            waiting = [tp for tp, error in refused.items() if _is_awaited(error)]
            for led in by_leader.values():
                waiting += [tp for tp in led if _is_repeated(api, answers.get(tp))]
            if waiting and not retries.wait():
                if lost is not None and any(tp not in found for tp in waiting):
                    raise lost
                break
        return {tp: found[tp] for tp in wanted if tp in found}

    def list_offsets(
        self, times: Mapping[TopicPartition, int], *, isolation: int = 0
    ) -> dict[TopicPartition, int | RefusedError]:
        """The first offset at or after each moment (ms, or one of `EARLIEST` …), -1 for none."""
        return self.at_leaders(
            "list_offsets",
            times,
            lambda node, led, deadline: self._ask_offsets(
                node, {tp: times[tp] for tp in led}, isolation, deadline
            ),
        )

    def _ask_offsets(
        self, node: int, times: Mapping[TopicPartition, int], isolation: int, deadline: float
    ) -> dict[TopicPartition, int | RefusedError]:
        need = max((_LIST_OFFSETS_VERSIONS.get(time, 1) for time in times.values()), default=1)
        versions = self._cluster.versions(node, is_single=True, deadline=deadline)
        _, high = versions.get(2, (0, -1))
        if high < need:
            raise NotSupportedError(f"Broker {node} does not support such a time")
        request = ListOffsetsRequest(
            replica_id=-1,
            isolation_level=isolation,
            topics=[
                ListOffsetsRequest.ListOffsetsTopic(
                    name=topic,
                    partitions=[
                        ListOffsetsRequest.ListOffsetsPartition(
                            partition_index=partition,
                            timestamp=times[TopicPartition(topic, partition)],
                        )
                        for partition in partitions
                    ],
                )
                for topic, partitions in by_topic(times).items()
            ],
            timeout_ms=30_000,
        )
        answer = self._cluster.call(request, node_id=node, is_single=True, deadline=deadline)
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
        return self.at_leaders(
            "delete_records",
            offsets,
            lambda node, led, deadline: self._ask_deletion(
                node, {tp: offsets[tp] for tp in led}, deadline
            ),
        )

    def _ask_deletion(
        self, node: int, offsets: Mapping[TopicPartition, int], deadline: float
    ) -> dict[TopicPartition, int | RefusedError]:
        request = DeleteRecordsRequest(
            topics=[
                DeleteRecordsRequest.DeleteRecordsTopic(
                    name=topic,
                    partitions=[
                        DeleteRecordsRequest.DeleteRecordsPartition(
                            partition_index=partition,
                            offset=offsets[TopicPartition(topic, partition)],
                        )
                        for partition in numbers
                    ],
                )
                for topic, numbers in by_topic(offsets).items()
            ],
            timeout_ms=30_000,
        )
        answer = self._cluster.call(request, node_id=node, is_single=True, deadline=deadline)
        return {
            TopicPartition(topic.name, p.partition_index): (
                RefusedError(int(p.error_code)) if p.error_code else int(p.low_watermark)
            )
            for topic in answer.topics
            for p in topic.partitions
        }


def _leader(topic: TopicFacts | RefusedError, partition: int) -> int | RefusedError:
    if isinstance(topic, RefusedError):
        return topic
    if all(each.partition != partition for each in topic.partitions):
        return RefusedError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    leader = topic.leader_of(partition)
    return RefusedError(ErrorCode.LEADER_NOT_AVAILABLE) if leader is None else leader


def _is_awaited(refused: RefusedError) -> bool:
    """Whether a partition that was refused so may have a leader later."""
    # Differs: Kafka's client asks for a topic that is not there until its time is over.
    is_gone = refused.code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    return not is_gone and action("metadata", refused.code) is not None


def _is_repeated(api: str, found: object) -> bool:
    if isinstance(found, RefusedError):
        return action(api, found.code) is not None
    return found is None
