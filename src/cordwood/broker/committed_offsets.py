"""What all groups of the cluster have committed for some partitions.

First the groups are listed: those whose coordinator is here are taken from its memory, the other
coordinators are asked with ListGroups. Then `GroupOffsets` looks their offsets up, some groups at a
time, so that the event loop is never held for long. What no coordinator says in time is a warning.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, Final

from cordwood.broker.broker_thread import BrokerThread
from cordwood.broker.group_offsets import GroupOffsets
from cordwood.broker.peers import Peers
from cordwood.coordinator.group.service import GroupCoordinator
from cordwood.metadata.cache import MetadataCache
from cordwood.metadata.image import NO_LEADER
from cordwood.model.kafka_errors import KafkaError
from cordwood.model.topic_names import GROUP_METADATA_TOPIC
from cordwood.model.topic_partition import TopicPartition

_log = logging.getLogger(__name__)

_WAIT_S: Final = 10.0
_GROUPS_AT_ONCE: Final = 100


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
        peers: Peers,
        thread: BrokerThread,
        *,
        node_id: int,
    ) -> None:
        """Asks nobody yet.

        Args:
            groups: the coordinator of this broker.
            offsets: looks up the offsets of groups that are known.
            metadata: says who leads the partitions of `__consumer_offsets`.
            peers: the other brokers.
            thread: the event loop's.
            node_id: of this broker.
        """
        self._groups = groups
        self._offsets = offsets
        self._metadata = metadata
        self._peers = peers
        self._thread = thread
        self._node_id = node_id

    def look_up(self, partitions: Collection[TopicPartition]) -> AllCommitted:
        """The committed offsets of all groups for these partitions.

        It waits for the event loop and for other brokers, ten seconds at most for the list, and as
        long for each hundred groups; to be called by any thread but the event loop's.
        """
        listed = _Listed()
        try:
            self._thread.call_soon(lambda: self._list(listed))
        except RuntimeError as error:  # the event loop has ended
            listed.missing["the cluster"] = str(error)
        else:
            listed.done.wait(_WAIT_S)
        found = AllCommitted(
            warnings=[
                f"the consumer groups of {where} are not known: {why}"
                for where, why in sorted(listed.not_known().items())
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

    def _list(self, listed: _Listed) -> None:
        """On the event loop's thread: asks every coordinator for its groups."""
        try:
            topic = self._metadata.image.topics.get(GROUP_METADATA_TOPIC)
            leaders = set() if topic is None else {p.leader for p in topic.partitions.values()}
            if NO_LEADER in leaders:
                where = f"partitions of {GROUP_METADATA_TOPIC} without a leader"
                listed.missing[where] = "no broker coordinates them"
            brokers = sorted(leaders - {NO_LEADER})
            listed.expect(brokers)
            for broker_id in brokers:
                if broker_id == self._node_id:
                    self._groups.when_loaded(lambda: self._list_here(listed))
                else:
                    self._list_there(listed, broker_id)
        except Exception:  # the thread that waits must not wait for nothing
            _log.exception("Error while listing groups")
            listed.done.set()

    def _list_here(self, listed: _Listed) -> None:
        try:
            listed.answered(self._node_id, [each.group_id for each in self._groups.list_groups()])
        except KafkaError as error:
            listed.refused(self._node_id, str(error) or type(error).__name__)

    def _list_there(self, listed: _Listed, broker_id: int) -> None:
        def answered(answer: Any) -> None:
            if answer is None:
                listed.refused(broker_id, "it has not answered")
            elif answer.error_code:
                listed.refused(broker_id, f"it answers with error {answer.error_code}")
            else:
                listed.answered(broker_id, [each.group_id for each in answer.groups])

        self._peers.ask_soon(broker_id, "list_groups", {}, answered)


class _Listed:
    """The groups found so far; `done` is set when all coordinators have answered."""

    def __init__(self) -> None:
        self.done = threading.Event()
        self.groups: set[str] = set()
        self.missing: dict[str, str] = {}
        self._waiting: set[int] = set()

    def expect(self, brokers: Collection[int]) -> None:
        """These brokers are asked."""
        self._waiting = set(brokers)
        if not self._waiting:
            self.done.set()

    def answered(self, broker_id: int, groups: Collection[str]) -> None:
        """A broker has answered."""
        self.groups |= set(groups)
        self._ended(broker_id)

    def refused(self, broker_id: int, why: str) -> None:
        """A broker does not say."""
        self.missing[f"broker {broker_id}"] = why
        self._ended(broker_id)

    def not_known(self) -> dict[str, str]:
        """Whose groups are not known by now, and why."""
        late = {f"broker {each}": "it has not answered" for each in tuple(self._waiting)}
        return late | dict(self.missing)

    def _ended(self, broker_id: int) -> None:
        self._waiting.discard(broker_id)
        if not self._waiting:
            self.done.set()
