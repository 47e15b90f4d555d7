"""The partitions, replicas and settings with which Kafka creates the coordinators' own topics.

Source: kafka.server.DefaultAutoTopicCreationManager, GroupCoordinatorService's
groupMetadataTopicConfigs, TransactionCoordinator's transactionStateTopicConfigs,
ShareCoordinatorService.shareGroupStateTopicConfigs; Kafka 4.3.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from cordwood.model.topic_names import (
    GROUP_METADATA_TOPIC,
    INTERNAL_TOPICS,
    SHARE_GROUP_STATE_TOPIC,
    TRANSACTION_STATE_TOPIC,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class InternalTopic:
    """The broker settings that an internal topic takes its size from, and its topic settings.

    `configs` are in the order in which Kafka writes them to the metadata log. Those of
    `configs_of_broker` have the value of the broker setting named there.
    """

    num_partitions: str
    replication_factor: str
    configs: Mapping[str, str]
    configs_of_broker: Mapping[str, str]

    def configs_with(self, broker_setting: Callable[[str], str]) -> dict[str, str]:
        """The topic settings, where `broker_setting` gives a broker setting as text."""
        return {
            key: broker_setting(self.configs_of_broker[key])
            if key in self.configs_of_broker
            else value
            for key, value in self.configs.items()
        }


INTERNAL_TOPIC_CREATION: Mapping[str, InternalTopic] = {
    GROUP_METADATA_TOPIC: InternalTopic(
        num_partitions="offsets.topic.num.partitions",
        replication_factor="offsets.topic.replication.factor",
        configs={"compression.type": "producer", "cleanup.policy": "compact", "segment.bytes": ""},
        configs_of_broker={"segment.bytes": "offsets.topic.segment.bytes"},
    ),
    TRANSACTION_STATE_TOPIC: InternalTopic(
        num_partitions="transaction.state.log.num.partitions",
        replication_factor="transaction.state.log.replication.factor",
        configs={
            "compression.type": "uncompressed",
            "cleanup.policy": "compact",
            "min.insync.replicas": "",
            "segment.bytes": "",
            "unclean.leader.election.enable": "false",
        },
        configs_of_broker={
            "min.insync.replicas": "transaction.state.log.min.isr",
            "segment.bytes": "transaction.state.log.segment.bytes",
        },
    ),
    SHARE_GROUP_STATE_TOPIC: InternalTopic(
        num_partitions="share.coordinator.state.topic.num.partitions",
        replication_factor="share.coordinator.state.topic.replication.factor",
        configs={
            "compression.type": "producer",
            "cleanup.policy": "delete",
            "min.insync.replicas": "",
            "segment.bytes": "",
            "retention.ms": "-1",
        },
        configs_of_broker={
            "min.insync.replicas": "share.coordinator.state.topic.min.isr",
            "segment.bytes": "share.coordinator.state.topic.segment.bytes",
        },
    ),
}
assert set(INTERNAL_TOPIC_CREATION) == INTERNAL_TOPICS, "an internal topic has no settings"
