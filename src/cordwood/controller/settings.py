"""The settings of server.properties that the controller uses."""

from __future__ import annotations

from dataclasses import dataclass

from cordwood.configs.table import flag_default, whole_default
from cordwood.metadata.settings import MetadataLogSettings


@dataclass(frozen=True, slots=True, kw_only=True)
class ControllerSettings(MetadataLogSettings):
    """The controller's settings and those of its metadata log; defaults as there."""

    num_partitions: int = whole_default("num.partitions")
    default_replication_factor: int = whole_default("default.replication.factor")
    min_insync_replicas: int = whole_default("min.insync.replicas")
    unclean_leader_election: bool = flag_default("unclean.leader.election.enable")
    delete_topic_enable: bool = flag_default("delete.topic.enable")
