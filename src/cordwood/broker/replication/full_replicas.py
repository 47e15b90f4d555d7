"""Replicas of a cluster that cannot be written, since their disk is full.

To the controller such a replica is in a lost directory: it has another replica in sync lead the
partition, and takes this one out of the ISR at once, so that acks=all does not wait for it. When
there is space again the replica is reported where it is, and fetches what it lacks. A leader
without another replica in sync keeps its partition, and refuses what does not fit.

Differs: Kafka takes the whole directory offline until a restart.

Source: org.apache.kafka.controller.ReplicationControlManager.handleAssignReplicasToDirs; KIP-858.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

from cordwood.broker.directory_reports import DirectoryReports
from cordwood.metadata.cache import MetadataCache
from cordwood.metadata.image import LOST_DIRECTORY, NO_LEADER, MetadataImage, PartitionImage
from cordwood.model.topic_partition import TopicIdPartition, TopicPartition

_log = logging.getLogger(__name__)

#: How often a full disk is looked at; it doubles each time that the space was used up soon.
_LOOK_MS: Final = 5_000
_LOOK_MAX_MS: Final = 60_000
_SOON_MS: Final = 600_000
_SPACE_BYTES: Final = 16 << 20
"""So many free bytes are space again."""


@dataclass(frozen=True, slots=True)
class _Full:
    """A replica; `log_dir` is None while it has no log here."""

    topic: str
    log_dir: Path | None


class FullReplicas:
    """The replicas of this broker that are given up for now; on the event loop's thread."""

    def __init__(
        self,
        *,
        node_id: int,
        metadata: MetadataCache,
        reports: DirectoryReports,
        others_in_sync: Callable[[str, int], frozenset[int] | None],
        free_bytes: Callable[[Path], int],
        now_ms: Callable[[], float],
        call_later_ms: Callable[[float, Callable[[], None]], object],
        back: Callable[[TopicPartition], None],
    ) -> None:
        """No replica is full yet.

        Args:
            node_id: of this broker.
            metadata: the newest image.
            reports: get the directories of replicas.
            others_in_sync: the other replicas that are in sync whatever the controller answers, of
                a partition that is led here; None if it is not.
            free_bytes: of a directory's disk; raises OSError.
            now_ms: a time that passes.
            call_later_ms: runs something after a delay of real time.
            back: serves a replica again; there is space.
        """
        self._node_id = node_id
        self._metadata = metadata
        self._reports = reports
        self._others_in_sync = others_in_sync
        self._free_bytes = free_bytes
        self._now_ms = now_ms
        self._call_later_ms = call_later_ms
        self._back = back
        self._given_up: dict[TopicIdPartition, _Full] = {}
        #: Replicas that can have no log, since a directory has failed or is full.
        self._without_log: set[TopicIdPartition] = set()
        self._is_looking = False
        self._look_ms = _LOOK_MS
        self._last_back_ms = -float(_SOON_MS)

    def check_invariants(self) -> None:
        """Checks that the disk of each replica that has a log is looked at again."""
        with_log = [key for key, each in self._given_up.items() if each.log_dir is not None]
        assert self._is_looking or not with_log, with_log
        assert self._look_ms <= _LOOK_MAX_MS, self._look_ms

    def __contains__(self, key: object) -> bool:
        return key in self._given_up

    def give_up(self, topic: str, index: int, log_dir: Path | None) -> None:
        """A replica cannot be written; does nothing if no other could take its place.

        Args:
            topic: its topic's name.
            index: its partition's number.
            log_dir: where its log is; None if it cannot have one.
        """
        known = self._metadata.image.topics.get(topic)
        image = None if known is None else known.partitions.get(index)
        if known is None or image is None or image.directory_of(self._node_id) is None:
            return
        key = TopicIdPartition(known.topic_id, index)
        if key not in self._given_up:
            if not self._may_be_lost(topic, index):
                return
            _log.warning("The disk is full: %s-%d is left to the other replicas", topic, index)
            if self._now_ms() - self._last_back_ms > _SOON_MS:
                self._look_ms = _LOOK_MS
            self._given_up[key] = _Full(topic, log_dir)
            self._look_later()
        if image.directory_of(self._node_id) != LOST_DIRECTORY:
            self._reports.assign(
                *(known.topic_id, index, LOST_DIRECTORY),
                is_wanted=partial(self._is_to_be_lost, key, topic),
            )

    def forget(self, key: TopicIdPartition) -> None:
        """Forgets a replica that this broker has no more."""
        self._given_up.pop(key, None)
        self._without_log.discard(key)

    def has_no_log(self, key: TopicIdPartition) -> None:
        """A replica can have no log: its directory has failed or is full.

        Source: ReplicaManager.markPartitionOffline.
        """
        self._without_log.add(key)

    def is_without_log(self, key: TopicIdPartition) -> bool:
        """Whether a replica can have no log: its partition is offline."""
        return key in self._without_log

    def has_log(self, key: TopicIdPartition) -> None:
        """A replica that could have no log has one now, in a directory that is online."""
        self._without_log.discard(key)
        found = self._given_up.get(key)
        if found is not None and found.log_dir is None:
            del self._given_up[key]

    def _is_to_be_lost(self, key: TopicIdPartition, topic: str) -> bool:
        return key in self._given_up and self._may_be_lost(topic, key.partition)

    def _may_be_lost(self, topic: str, index: int) -> bool:
        """Whether the partition has a leader if this replica is lost, as far as is known here."""
        image = self._metadata.image
        known = image.topics.get(topic)
        partition = None if known is None else known.partitions.get(index)
        if partition is None or self._node_id not in partition.replicas:
            return False
        if partition.leader != self._node_id:
            return partition.leader != NO_LEADER
        others = self._others_in_sync(topic, index)
        return any(
            self._may_lead(image, partition, each)
            for each in partition.isr
            if each != self._node_id and (others is None or each in others)
        )

    def _may_lead(self, image: MetadataImage, partition: PartitionImage, broker_id: int) -> bool:
        broker = image.brokers.get(broker_id)
        return (
            broker is not None
            and not broker.fenced
            and not broker.in_controlled_shutdown
            and broker.has_online_directory(partition.directory_of(broker_id))
        )

    # ---- space

    def _look_later(self) -> None:
        if not self._is_looking:
            self._is_looking = True
            self._call_later_ms(self._look_ms, self._look)

    def _look(self) -> None:
        self._is_looking = False
        with_log = {each.log_dir for each in self._given_up.values() if each.log_dir is not None}
        free = {log_dir for log_dir in with_log if self._has_space(log_dir)}
        found = [(key, full) for key, full in self._given_up.items() if full.log_dir in free]
        if found:
            self._last_back_ms = self._now_ms()
            self._look_ms = min(self._look_ms * 2, _LOOK_MAX_MS)
        for key, full in found:
            del self._given_up[key]
            self._back(TopicPartition(full.topic, key.partition))
        if with_log - free:
            self._look_later()

    def _has_space(self, log_dir: Path) -> bool:
        try:
            return self._free_bytes(log_dir) >= _SPACE_BYTES
        except OSError:
            return False
