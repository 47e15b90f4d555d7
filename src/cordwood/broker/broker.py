"""The services of a broker that its handlers use.

Source: kafka.server.BrokerServer, the parameters of kafka.server.KafkaApis.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

from cordwood.broker.auto_topic_creation import AutoTopicCreation
from cordwood.broker.committed_offsets import CommittedOffsets
from cordwood.broker.coordinators.transaction_markers import MarkerSender
from cordwood.broker.coordinators.transaction_partitions import TransactionPartitions
from cordwood.broker.coordinators.transaction_verification import TransactionVerification
from cordwood.broker.metrics import BrokerMetrics
from cordwood.broker.replica_manager import ReplicaManager
from cordwood.coordinator.group.service import GroupCoordinator
from cordwood.coordinator.registry import Coordinators
from cordwood.coordinator.transaction.service import TransactionCoordinator
from cordwood.serving.node_services import NodeServices, Role


@dataclass(frozen=True, slots=True, kw_only=True)
class Broker(NodeServices):
    """Services of a broker, for the event loop's thread.

    Attributes:
        controller_id: the node id of the active controller; -1 if it is not known.
        voter_count: the number of voters of the metadata quorum.
        replicas: the partitions and logs of this broker.
        coordinators: the coordinators by the topics of their records.
        groups: the coordinator of groups.
        committed_offsets: what all groups of the cluster have committed, for other threads.
        transactions: the coordinator of transactions.
        transaction_partitions: adds partitions to transactions.
        verification: verifies partitions before a transaction writes to them.
        markers: writes the markers of transactions.
        topic_creation: creates topics that clients and coordinators need.
        metrics: counts requests and data.
    """

    role: ClassVar[Role] = Role.BROKER
    controller_id: Callable[[], int]
    voter_count: Callable[[], int]
    replicas: ReplicaManager
    coordinators: Coordinators
    groups: GroupCoordinator
    committed_offsets: CommittedOffsets
    transactions: TransactionCoordinator
    transaction_partitions: TransactionPartitions
    verification: TransactionVerification
    markers: MarkerSender
    topic_creation: AutoTopicCreation
    metrics: BrokerMetrics

    @property
    def serves_consumer_groups(self) -> bool:
        """Whether groups of the consumer protocol are served (KIP-848).

        Source: KafkaApis.isConsumerGroupProtocolEnabled.
        """
        enabled = self.settings.all["group.coordinator.rebalance.protocols"]
        assert isinstance(enabled, tuple), enabled
        return "consumer" in enabled and self.metadata.has_consumer_groups
