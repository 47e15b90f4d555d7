"""The parts of a broker that serve transactions, and how they are connected.

Source: kafka.server.BrokerServer.
"""

from __future__ import annotations

from typing import NamedTuple

from cordwood.broker.coordinators.producer_ids import ProducerIds
from cordwood.broker.coordinators.transaction_log import TransactionLog
from cordwood.broker.coordinators.transaction_markers import MarkerSender, MarkerWriter
from cordwood.broker.coordinators.transaction_partitions import TransactionPartitions
from cordwood.broker.coordinators.transaction_verification import TransactionVerification
from cordwood.broker.peers import Peers
from cordwood.broker.replica_manager import ReplicaManager
from cordwood.configs.settings import BrokerSettings
from cordwood.coordinator.group.service import GroupCoordinator
from cordwood.coordinator.transaction.service import TransactionCoordinator
from cordwood.coordinator.transaction.settings import TransactionSettings
from cordwood.metadata.cache import MetadataCache
from cordwood.model.topic_names import TRANSACTION_STATE_TOPIC
from cordwood.serving.node_thread import NodeThread


class TransactionParts(NamedTuple):
    """The coordinator, and what is between it and the logs of partitions.

    `partitions` adds partitions to transactions, `verification` has a write begin with that, and
    `markers` ends transactions in the logs.
    """

    coordinator: TransactionCoordinator
    partitions: TransactionPartitions
    verification: TransactionVerification
    markers: MarkerSender

    @classmethod
    def of(
        cls,
        settings: BrokerSettings,
        replicas: ReplicaManager,
        groups: GroupCoordinator,
        metadata: MetadataCache,
        producer_ids: ProducerIds,
        thread: NodeThread,
        peers: Peers,
    ) -> TransactionParts:
        """Connects the parts of a broker; they serve and write nothing yet."""
        writer = MarkerWriter(replicas, groups, thread)
        node_id = settings.node_id
        markers = MarkerSender(writer, replicas, metadata, thread, peers, node_id=node_id)
        coordinator = TransactionCoordinator(
            TransactionLog(replicas, metadata),
            thread,
            TransactionSettings.of(settings.all),
            version=lambda: metadata.transaction_version,
            producer_ids=producer_ids,
            markers=markers,
        )
        replicas.listen(TRANSACTION_STATE_TOPIC, coordinator.on_high_watermark)
        partitions = TransactionPartitions(coordinator, metadata)
        verification = TransactionVerification(
            replicas,
            partitions,
            thread,
            peers,
            node_id=node_id,
            is_enabled=settings.transaction_partition_verification_enable,
            retry_ms=settings.integer("add.partitions.to.txn.retry.backoff.ms"),
            retry_max_ms=settings.integer("add.partitions.to.txn.retry.backoff.max.ms"),
        )
        return cls(coordinator, partitions, verification, markers)
