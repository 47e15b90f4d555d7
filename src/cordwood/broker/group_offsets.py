"""The offsets that groups have committed, for the retention of the logs on this broker.

Those of groups whose coordinator is here are taken from its memory, the others are asked for with
OffsetFetch. What no coordinator says in time is not known: it may be loading its groups, or moving.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from typing import Final
from uuid import UUID

from cordwood.broker.broker_answers import BrokerAnswers
from cordwood.broker.broker_channels import BrokerChannels
from cordwood.cleanup.rules.group_guard import Consumed
from cordwood.coordinator.group.offset_requests import FetchTopic
from cordwood.coordinator.group.service import GroupCoordinator
from cordwood.metadata.cache import MetadataCache
from cordwood.metadata.image import NO_LEADER
from cordwood.model.error_codes import ErrorCode
from cordwood.model.kafka_errors import KafkaError
from cordwood.model.topic_names import GROUP_METADATA_TOPIC
from cordwood.model.topic_partition import TopicPartition
from cordwood.model.uuids import ZERO_UUID
from cordwood.protocol.data import (
    OffsetFetchRequest,
    OffsetFetchResponse,
)
from cordwood.serving.node_thread import NodeThread

_NO_ANSWER: Final = "its coordinator has not answered"


class GroupOffsets:
    """Looks committed offsets up at the coordinators of groups."""

    def __init__(
        self,
        groups: GroupCoordinator,
        metadata: MetadataCache,
        channels: BrokerChannels,
        thread: NodeThread,
        *,
        node_id: int,
    ) -> None:
        """Asks nobody yet.

        Args:
            groups: the coordinator of this broker.
            metadata: says who leads the partitions of `__consumer_offsets`.
            channels: the other brokers.
            thread: the event loop's.
            node_id: of this broker.
        """
        self._groups = groups
        self._metadata = metadata
        self._channels = channels
        self._thread = thread
        self._node_id = node_id

    def look_up(
        self, wanted: Mapping[TopicPartition, Sequence[str]]
    ) -> Mapping[TopicPartition, Consumed]:
        """The committed offsets of these groups for each partition.

        It waits for the event loop and for other brokers, ten seconds at most; to be called by any
        thread but the event loop's.
        """
        found = _Found(wanted)
        answers = BrokerAnswers()
        answers.gather(self._thread, lambda: self._ask(found, answers))
        return found.consumed()

    def _ask(self, found: _Found, answers: BrokerAnswers) -> Collection[int]:
        """Asks every coordinator, on the event loop's thread; returns the other brokers asked."""
        remote = self._ask_here(found)
        for leader, groups in remote.items():
            self._ask_there(found, answers, leader, groups)
        return remote

    def _ask_here(self, found: _Found) -> dict[int, list[str]]:
        """Answers what is known here; returns the other groups, by the broker that knows them."""
        remote: defaultdict[int, list[str]] = defaultdict(list)
        topic = self._metadata.image.topics.get(GROUP_METADATA_TOPIC)
        for group in found.by_group:
            if topic is None:  # so no group has ever committed anything
                found.committed(group, {})
                continue
            place = self._groups.partition_for(group)
            partition = topic.partitions.get(place.partition)
            leader = NO_LEADER if partition is None else partition.leader
            if leader == self._node_id:
                self._ask_coordinator(found, group)
            elif leader == NO_LEADER:
                found.refused(group, f"{place} has no leader")
            else:
                remote[leader].append(group)
        return remote

    def _ask_coordinator(self, found: _Found, group: str) -> None:
        topics = [
            FetchTopic(topic, tuple(numbers), self._id_of(topic))
            for topic, numbers in found.topics_of(group).items()
        ]
        try:
            fetched = self._groups.fetch(group, topics)
        except KafkaError as error:
            found.refused(group, _refusal(error.code))
            return
        found.committed(
            group,
            {
                TopicPartition(topic.name, each.partition): each.offset
                for topic in fetched
                for each in topic.partitions
                if each.offset >= 0
            },
        )

    def _ask_there(
        self, found: _Found, answers: BrokerAnswers, leader: int, groups: Sequence[str]
    ) -> None:
        asked = [
            OffsetFetchRequest.OffsetFetchRequestGroup(
                group_id=group,
                topics=[
                    OffsetFetchRequest.OffsetFetchRequestTopics(
                        name=topic, topic_id=self._id_of(topic), partition_indexes=numbers
                    )
                    for topic, numbers in found.topics_of(group).items()
                ],
            )
            for group in groups
        ]

        def answered(answer: OffsetFetchResponse | None) -> None:
            try:
                if answer is not None:
                    for each in answer.groups:
                        self._take(found, each)
            finally:
                answers.answered(leader)

        self._channels.ask_soon(
            leader, OffsetFetchRequest(groups=asked, require_stable=False), answered
        )

    def _take(self, found: _Found, answer: OffsetFetchResponse.OffsetFetchResponseGroup) -> None:
        """Takes the answer about one group. Source: OffsetFetchResponse."""
        if answer.error_code:
            found.refused(answer.group_id, _refusal(answer.error_code))
            return
        names = self._metadata.image.topic_names
        offsets: dict[TopicPartition, int] = {}
        failed: dict[TopicPartition, str] = {}
        for topic in answer.topics:
            name = topic.name or names.get(topic.topic_id)
            if name is None:
                continue
            for each in topic.partitions:
                partition = TopicPartition(name, each.partition_index)
                if each.error_code:
                    failed[partition] = _refusal(each.error_code)
                elif each.committed_offset >= 0:
                    offsets[partition] = each.committed_offset
        found.committed(answer.group_id, offsets, failed)

    def _id_of(self, name: str) -> UUID:
        """A topic's id: what was committed for a deleted topic of its name does not count."""
        topic = self._metadata.image.topics.get(name)
        return ZERO_UUID if topic is None else topic.topic_id


class _Found:
    """Committed offsets that were found so far."""

    def __init__(self, wanted: Mapping[TopicPartition, Sequence[str]]) -> None:
        self.by_group: defaultdict[str, list[TopicPartition]] = defaultdict(list)
        for partition, groups in wanted.items():
            for group in dict.fromkeys(groups):
                self.by_group[group].append(partition)
        self._wanted = wanted
        self._committed: defaultdict[TopicPartition, dict[str, int | None]] = defaultdict(dict)
        self._unknown: defaultdict[TopicPartition, dict[str, str]] = defaultdict(dict)

    def topics_of(self, group: str) -> dict[str, list[int]]:
        """The partitions for which a group is asked, by topic."""
        found: dict[str, list[int]] = {}
        for partition in self.by_group[group]:
            found.setdefault(partition.topic, []).append(partition.partition)
        return found

    def committed(
        self,
        group: str,
        offsets: Mapping[TopicPartition, int],
        failed: Mapping[TopicPartition, str] | None = None,
    ) -> None:
        """Adds the offsets of a group; nothing is committed for a partition in neither mapping."""
        for partition in self.by_group.get(group, ()):
            if failed and partition in failed:
                self._unknown[partition][group] = failed[partition]
            else:
                self._committed[partition][group] = offsets.get(partition)

    def refused(self, group: str, why: str) -> None:
        """Notes that the offsets of a group are unknown."""
        for partition in self.by_group.get(group, ()):
            self._unknown[partition][group] = why

    def consumed(self) -> dict[TopicPartition, Consumed]:
        """The committed offsets that are known so far."""
        return {
            partition: Consumed(
                committed=dict(self._committed.get(partition, {})),
                unknown=dict(self._unknown.get(partition, {})),
                others=_NO_ANSWER,
            )
            for partition in self._wanted
        }


def _refusal(code: int) -> str:
    if code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
        return "its coordinator is still loading its offsets"
    if code == ErrorCode.NOT_COORDINATOR:
        return "its coordinator is moving"
    return f"its coordinator does not give its offsets: {ErrorCode(code).name}"
