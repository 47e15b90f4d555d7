"""Log directories of running brokers: the answer of `cordwood log-dirs`, which is Kafka's."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from cordwood.model.documents import CamelCase


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaSize(CamelCase):
    """A replica of a partition, its size in bytes, and how many offsets it is behind."""

    partition: str
    size: int
    offset_lag: int
    is_future: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerLogDir(CamelCase):
    """A log directory; `error` is the Java class of what is wrong with it."""

    partitions: Sequence[ReplicaSize]
    error: str | None
    log_dir: str


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerLogDirs(CamelCase):
    """A broker and its log directories."""

    broker: int
    log_dirs: Sequence[BrokerLogDir]


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterLogDirs:
    """The log directories of brokers, and the version of this document."""

    brokers: Sequence[BrokerLogDirs]
    version: int = 1
