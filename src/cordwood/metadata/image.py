"""The metadata of a cluster as immutable values: topics, partitions, settings, brokers.

Everything here stays as it is: a change makes a new image, which shares with the old one all that
did not change.

Source: org.apache.kafka.image.MetadataImage and its parts, Kafka 4.3.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from cordwood.configs.resource import ConfigResource
from cordwood.metadata.persistent_map import PersistentMap

NO_LEADER = -1
RECOVERED, RECOVERING = 0, 1

#: Reserved directory ids: unassigned, lost, migrating.
UNASSIGNED_DIRECTORY = uuid.UUID(int=1)
LOST_DIRECTORY = uuid.UUID(int=2)
MIGRATING_DIRECTORY = uuid.UUID(int=0)

#: Ids below this one are reserved. Source: org.apache.kafka.common.DirectoryId.
_RESERVED_IDS = 100

QuotaEntity = frozenset[tuple[str, str | None]]
"""Pairs of a kind (`user`, `client-id`, `ip`) and a name, None for the default."""


def is_reserved_directory(directory: uuid.UUID) -> bool:
    """Whether an id is never that of a directory."""
    return directory.int < _RESERVED_IDS


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionImage:
    """The replicas of a partition and its leader; `leader` is -1 for none.

    `directories` are the ids of the log directories of `replicas`, in the same order, or empty if
    the record's version has none. `elr` are the eligible leader replicas (KIP-966),
    `last_known_elr` the last leader if there is none. `recovery_state` is 1 while the leader
    recovers from an unclean election.
    """

    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    leader: int
    leader_epoch: int
    partition_epoch: int
    directories: tuple[uuid.UUID, ...] = ()
    removing_replicas: tuple[int, ...] = ()
    adding_replicas: tuple[int, ...] = ()
    elr: tuple[int, ...] = ()
    last_known_elr: tuple[int, ...] = ()
    recovery_state: int = RECOVERED

    @property
    def is_reassigning(self) -> bool:
        """Whether replicas are being added or removed."""
        return bool(self.removing_replicas or self.adding_replicas)

    def directory_of(self, broker_id: int) -> uuid.UUID | None:
        """The id of the log directory of a broker's replica; None if that is not recorded."""
        for replica, directory in zip(self.replicas, self.directories, strict=False):
            if replica == broker_id:
                return directory
        return None


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicImage:
    """A topic and its partitions by number."""

    name: str
    topic_id: uuid.UUID
    partitions: Mapping[int, PartitionImage] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    """The address of a listener; `security_protocol` is Kafka's number (0 is PLAINTEXT)."""

    name: str
    host: str
    port: int
    security_protocol: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerImage:
    """A broker's registration; `log_dirs` are the ids of its directories that are online.

    `features` are the lowest and the highest level it supports, both inclusive.
    `cordoned_log_dirs` take no new partitions (KIP-1066); None if the broker has not reported them.
    """

    broker_id: int
    epoch: int
    incarnation_id: uuid.UUID
    rack: str | None
    fenced: bool
    in_controlled_shutdown: bool
    log_dirs: tuple[uuid.UUID, ...]
    endpoints: tuple[Endpoint, ...]
    features: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    cordoned_log_dirs: tuple[uuid.UUID, ...] | None = None
    is_migrating_zk_broker: bool = False

    @property
    def is_active(self) -> bool:
        """Whether it may lead partitions and be in their ISR."""
        return not self.fenced and not self.in_controlled_shutdown

    @property
    def is_cordoned(self) -> bool:
        """Whether none of its directories takes new partitions (KIP-1066)."""
        cordoned = self.cordoned_log_dirs or ()
        return bool(self.log_dirs) and all(each in cordoned for each in self.log_dirs)

    def has_online_directory(self, directory: uuid.UUID | None) -> bool:
        """Whether a directory is not known to have failed; true if it is unknown.

        Source: org.apache.kafka.common.DirectoryId.isOnline.
        """
        if directory in {None, UNASSIGNED_DIRECTORY, MIGRATING_DIRECTORY}:
            return True
        return directory != LOST_DIRECTORY and (not self.log_dirs or directory in self.log_dirs)

    def endpoint(self, listener: str) -> Endpoint | None:
        """The address of the listener with that name."""
        return next((each for each in self.endpoints if each.name == listener), None)


@dataclass(frozen=True, slots=True, kw_only=True)
class ControllerImage:
    """A controller's registration (KIP-919)."""

    controller_id: int
    incarnation_id: uuid.UUID
    zk_migration_ready: bool
    endpoints: tuple[Endpoint, ...]
    features: Mapping[str, tuple[int, int]]


@dataclass(frozen=True, slots=True, kw_only=True)
class MetadataImage:
    """The state after all records up to one offset of the metadata log.

    `configs` are by kind and name of the resource; the name '' stands for all brokers.
    `next_offset` is one past the last applied record, `epoch` the epoch of its batch, -1 if there
    is none; `timestamp_ms` is that batch's time. `may_have_uncommitted_suffix` is true if the last
    records may not be committed. `acls` by id, `scram_credentials` by mechanism and user
    and `delegation_tokens` by id are the unchanged fields of the records.
    """

    topics: PersistentMap[str, TopicImage] = field(default_factory=PersistentMap)
    topic_names: PersistentMap[uuid.UUID, str] = field(default_factory=PersistentMap)
    configs: PersistentMap[tuple[int, str], Mapping[str, str]] = field(
        default_factory=PersistentMap
    )
    brokers: PersistentMap[int, BrokerImage] = field(default_factory=PersistentMap)
    controllers: PersistentMap[int, ControllerImage] = field(default_factory=PersistentMap)
    features: PersistentMap[str, int] = field(default_factory=PersistentMap)
    client_quotas: PersistentMap[QuotaEntity, Mapping[str, float]] = field(
        default_factory=PersistentMap
    )
    next_producer_id: int = -1
    acls: PersistentMap[str, Mapping[str, Any]] = field(default_factory=PersistentMap)
    scram_credentials: PersistentMap[tuple[int, str], Mapping[str, Any]] = field(
        default_factory=PersistentMap
    )
    delegation_tokens: PersistentMap[str, Mapping[str, Any]] = field(default_factory=PersistentMap)
    next_offset: int = 0
    epoch: int = -1
    timestamp_ms: int = -1
    may_have_uncommitted_suffix: bool = True

    @property
    def offset(self) -> int:
        """The offset of the last record taken in, -1 if there was none."""
        return self.next_offset - 1

    @property
    def metadata_version(self) -> int:
        """The level of `metadata.version`; 0 before the first record."""
        return self.features.get("metadata.version", 0)

    def topic_by_id(self, topic_id: uuid.UUID) -> TopicImage | None:
        """The topic with an id; None if there is none."""
        name = self.topic_names.get(topic_id)
        return None if name is None else self.topics[name]

    def partition(self, topic: str, number: int) -> PartitionImage | None:
        """The partition of that topic and number."""
        found = self.topics.get(topic)
        return None if found is None else found.partitions.get(number)

    def topic_config(self, topic: str) -> Mapping[str, str]:
        """The settings of a topic that differ from the broker's."""
        return self.configs.get((ConfigResource.TOPIC, topic), {})

    def changed_topics(self, before: MetadataImage) -> set[str]:
        """The names of topics that are new, deleted or changed since `before`."""
        return self.topics.differing(before.topics)
