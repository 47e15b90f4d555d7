"""The settings of server.properties that the controller uses."""

from __future__ import annotations

from dataclasses import dataclass

from cordwood.configs.table import broker_default
from cordwood.metadata.settings import MetadataLogSettings


@dataclass(frozen=True, slots=True, kw_only=True)
class ControllerSettings(MetadataLogSettings):
    """The controller's settings and those of its metadata log; defaults as there."""

    num_partitions: int = broker_default("num.partitions", int)
    default_replication_factor: int = broker_default("default.replication.factor", int)
    min_insync_replicas: int = broker_default("min.insync.replicas", int)
    unclean_leader_election: bool = broker_default("unclean.leader.election.enable", bool)
    delete_topic_enable: bool = broker_default("delete.topic.enable", bool)
