"""The settings of server.properties that the controller uses."""

from __future__ import annotations

from dataclasses import dataclass

from cordwood.metadata.settings import MetadataLogSettings


@dataclass(frozen=True, slots=True, kw_only=True)
class ControllerSettings(MetadataLogSettings):
    """The controller's settings and those of its metadata log; defaults are Kafka's.

    `reserve_bytes` of the disk are kept for the metadata log.
    """

    num_partitions: int = 1
    default_replication_factor: int = 1
    min_insync_replicas: int = 1
    unclean_leader_election: bool = False
    delete_topic_enable: bool = True
    reserve_bytes: int = 0
