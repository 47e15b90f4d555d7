"""Committed offsets of all groups of the cluster for some partitions.

First the groups are listed: those whose coordinator is here are taken from its memory, the other
coordinators are asked with ListGroups. Then `GroupOffsets` looks their offsets up, some groups at a
time, so that the event loop is never held for long. What no coordinator says in time is a warning.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Final

from cordwood.broker.broker_answers import BrokerAnswers
from cordwood.broker.broker_channels import BrokerChannels
from cordwood.broker.group_offsets import GroupOffsets
from cordwood.coordinator.group.service import GroupCoordinator
from cordwood.metadata.cache import MetadataCache
from cordwood.metadata.image import NO_LEADER
from cordwood.model.kafka_errors import KafkaError
from cordwood.model.topic_names import GROUP_METADATA_TOPIC
from cordwood.model.topic_partition import TopicPartition
from cordwood.protocol.data import (
    ListGroupsRequest,
    ListGroupsResponse,
)
from cordwood.serving.node_thread import NodeThread

_GROUPS_AT_ONCE: Final = 100
_NO_ANSWER: Final = "it has not answered"


@dataclass(slots=True, kw_only=True)
class AllCommitted:
    """Committed offsets by (group, partition as topic-number), and what is not known."""

    offsets: dict[tuple[str, str], int] = field(default_factory=dict)
    warnings: list[str] = field(default_factory=list)


class CommittedOffsets:
    """Looks up what all groups have committed."""

    def __init__(
        self,
        groups: GroupCoordinator,
        offsets: GroupOffsets,
        metadata: MetadataCache,
        channels: BrokerChannels,
        thread: NodeThread,
        *,
        node_id: int,
    ) -> None:
        """Asks nobody yet.

        Args:
            groups: the coordinator of this broker.
            offsets: looks up the offsets of groups that are known.
            metadata: says who leads the partitions of `__consumer_offsets`.
            channels: the other brokers.
            thread: the event loop's.
            node_id: of this broker.
        """
        self._groups = groups
        self._offsets = offsets
        self._metadata = metadata
        self._channels = channels
        self._thread = thread
        self._node_id = node_id

    def look_up(self, partitions: Collection[TopicPartition]) -> AllCommitted:
        """The committed offsets of all groups for these partitions.

        It waits for the event loop and for other brokers, ten seconds at most for the list, and as
        long for each hundred groups; to be called by any thread but the event loop's.
        """
        listed = _Listed()
        answers = BrokerAnswers()
        failure = answers.gather(self._thread, lambda: self._ask(listed, answers))
        listed.missing |= {f"broker {each}": _NO_ANSWER for each in answers.late}
        if failure is not None:
            listed.missing["the cluster"] = failure
        found = AllCommitted(
            warnings=[
                f"the consumer groups of {where} are not known: {why}"
                for where, why in sorted(listed.missing.items())
            ]
        )
        waiting = iter(sorted(listed.groups))
        while some := list(islice(waiting, _GROUPS_AT_ONCE)):
            self._add(found, partitions, some)
        return found

    def _add(
        self, found: AllCommitted, partitions: Collection[TopicPartition], groups: Sequence[str]
    ) -> None:
        unknown: dict[str, str] = {}
        for partition, known in self._offsets.look_up(dict.fromkeys(partitions, groups)).items():
            for each in map(known.position, groups):
                if each.unknown:
                    unknown[each.group] = each.unknown
                elif each.committed is not None:
                    found.offsets[each.group, str(partition)] = each.committed
        found.warnings += [
            f"the offsets of group {group} are not known: {why}" for group, why in unknown.items()
        ]

    def _ask(self, listed: _Listed, answers: BrokerAnswers) -> Collection[int]:
        """Asks every coordinator for its groups, on the event loop's thread."""
        topic = self._metadata.image.topics.get(GROUP_METADATA_TOPIC)
        leaders = set() if topic is None else {p.leader for p in topic.partitions.values()}
        if NO_LEADER in leaders:
            where = f"partitions of {GROUP_METADATA_TOPIC} without a leader"
            listed.missing[where] = "no broker coordinates them"
        brokers = sorted(leaders - {NO_LEADER})
        for broker_id in brokers:
            if broker_id == self._node_id:
                self._groups.runtime.partitions.load_all(lambda: self._ask_here(listed, answers))
            else:
                self._ask_there(listed, answers, broker_id)
        return brokers

    def _ask_here(self, listed: _Listed, answers: BrokerAnswers) -> None:
        try:
            listed.groups.update(each.group_id for each in self._groups.list_groups())
        except KafkaError as error:
            listed.missing[f"broker {self._node_id}"] = str(error) or type(error).__name__
        answers.answered(self._node_id)

    def _ask_there(self, listed: _Listed, answers: BrokerAnswers, broker_id: int) -> None:
        def answered(answer: ListGroupsResponse | None) -> None:
            where = f"broker {broker_id}"
            if answer is None:
                listed.missing[where] = _NO_ANSWER
            elif answer.error_code:
                listed.missing[where] = f"it answers with error {answer.error_code}"
            else:
                listed.groups.update(each.group_id for each in answer.groups)
            answers.answered(broker_id)

        self._channels.ask_soon(broker_id, ListGroupsRequest(), answered)


@dataclass(slots=True)
class _Listed:
    """Groups found so far, and the coordinators whose groups are unknown, with the reason."""

    groups: set[str] = field(default_factory=set)
    missing: dict[str, str] = field(default_factory=dict)
