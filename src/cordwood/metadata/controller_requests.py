"""The values of requests to the controller, and of its answers."""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from cordwood.format.java_map import spread_hash
from cordwood.metadata.feature_levels import KNOWN_FEATURES
from cordwood.metadata.image import Endpoint, QuotaEntity
from cordwood.model.error_codes import ErrorCode
from cordwood.model.kafka_errors import KafkaError

#: Types of updates of features, as UpdateFeatures numbers them.
UPGRADE, SAFE_DOWNGRADE, UNSAFE_DOWNGRADE = 1, 2, 3


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerRegistration:
    """A broker that has started.

    `log_dirs` are the ids of its directories that can be used; `endpoints` are where clients reach
    it (advertised.listeners). `previous_broker_epoch` is the epoch of the last registration, which
    a clean shutdown has written to `.kafka_cleanshutdown`; -1 after a crash. `features` are the
    lowest and the highest level of each that it supports, both inclusive. `cordoned_log_dirs` get
    no new partitions (KIP-1066): a controller in the same process takes them from here, others from
    heartbeats.

    Source: BrokerRegistrationRequest.
    """

    broker_id: int
    incarnation_id: uuid.UUID
    endpoints: tuple[Endpoint, ...]
    log_dirs: tuple[uuid.UUID, ...]
    cordoned_log_dirs: tuple[uuid.UUID, ...] = ()
    rack: str | None = None
    previous_broker_epoch: int = -1
    features: Mapping[str, tuple[int, int]] = field(default_factory=lambda: KNOWN_FEATURES)


@dataclass(frozen=True, slots=True, kw_only=True)
class NewTopic:
    """A topic to create; -1 means the broker's default.

    `assignments` are the brokers of each partition, by partition number, for a manual assignment.
    `configs` are valid already; a value of None is refused.
    """

    name: str
    num_partitions: int = -1
    replication_factor: int = -1
    assignments: Sequence[tuple[int, Sequence[int]]] = ()
    configs: Mapping[str, str | None] = field(default_factory=dict)


class CreatedTopic(NamedTuple):
    """A topic that was made, or with validate_only would have been."""

    name: str
    topic_id: uuid.UUID
    num_partitions: int
    replication_factor: int


class RestoredPartition(NamedTuple):
    """A partition of a topic that is restored: its epochs before, and its directory's id."""

    leader_epoch: int
    partition_epoch: int
    directory: uuid.UUID


@dataclass(frozen=True, slots=True, kw_only=True)
class RestoredTopic:
    """A topic that was deleted, to be as it was, on one broker; partitions are by number."""

    name: str
    topic_id: uuid.UUID
    configs: Mapping[str, str]
    partitions: Mapping[int, RestoredPartition]
    broker_id: int


@dataclass(frozen=True, slots=True, kw_only=True)
class NewPartitions:
    """The new total number of partitions of a topic; `assignments` are those of the new ones."""

    topic: str
    count: int
    assignments: Sequence[Sequence[int]] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class QuotaChange:
    """Quotas of an entity, a name for each kind; None takes one away."""

    entity: Mapping[str, str | None]
    ops: Sequence[tuple[str, float | None]]

    @property
    def key(self) -> QuotaEntity:
        """The entity as images have it."""
        return frozenset(self.entity.items())

    @property
    def in_kafkas_order(self) -> list[tuple[str, str | None]]:
        """The kinds and names in the order of a java.util.HashMap of four buckets."""
        return sorted(self.entity.items(), key=lambda item: spread_hash(item[0]) & 3)


class FeatureUpdate(NamedTuple):
    """A level that a feature is to have; `upgrade_type` as in UpdateFeatures."""

    name: str
    level: int
    upgrade_type: int = UPGRADE


class Reassignment(NamedTuple):
    """The target replicas of a partition; None cancels a reassignment in progress."""

    topic: str
    partition: int
    replicas: Sequence[int] | None


class IsrChange(NamedTuple):
    """An ISR that the leader of a partition proposes: ids of brokers and their epochs.

    An epoch of -1 is not checked. `recovery_state` is 1 while the leader recovers from an unclean
    election.

    Source: AlterPartitionRequest; KIP-497, KIP-903.
    """

    topic_id: uuid.UUID
    partition: int
    leader_epoch: int
    partition_epoch: int
    isr: Sequence[tuple[int, int]]
    recovery_state: int = 0


class AlteredIsr(NamedTuple):
    """The recorded state of a partition whose ISR was proposed; with an error, the error alone."""

    error: ErrorCode
    leader_epoch: int = -1
    partition_epoch: int = -1
    isr: Sequence[int] = ()


class DirectoryAssignment(NamedTuple):
    """The log directory in which a broker has put a replica."""

    topic_id: uuid.UUID
    partition: int
    directory: uuid.UUID


class ElectionResult(NamedTuple):
    """The result of an election; None if there is a new leader."""

    topic: str
    partition: int
    error: KafkaError | None


class QuorumReplica(NamedTuple):
    """A node with the metadata log, as DescribeQuorum shows it; times in ms, -1 for never."""

    replica_id: int
    directory_id: uuid.UUID
    log_end_offset: int
    last_fetch_ms: int
    last_caught_up_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class QuorumInfo:
    """The state of the quorum: one voter, which leads, and the nodes that follow."""

    leader_id: int
    leader_epoch: int
    high_watermark: int
    voters: tuple[QuorumReplica, ...]
    observers: tuple[QuorumReplica, ...] = ()
    endpoints: tuple[Endpoint, ...]
