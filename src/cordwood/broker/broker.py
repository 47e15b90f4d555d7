"""The parts of a broker that serve requests, by name.

Source: kafka.server.BrokerServer, the parameters of kafka.server.KafkaApis.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from cordwood.broker.authorizer import AllowAll, Authorizer
from cordwood.broker.auto_topic_creation import AutoTopicCreation
from cordwood.broker.broker_thread import BrokerThread
from cordwood.broker.configs.service import ConfigService
from cordwood.broker.configs.settings import BrokerSettings
from cordwood.broker.fetch_sessions import FetchSessionCache
from cordwood.broker.forwarding import Forwarding
from cordwood.broker.metrics import BrokerMetrics
from cordwood.broker.replica_manager import ReplicaManager
from cordwood.broker.transaction_markers import MarkerSender
from cordwood.broker.transaction_partitions import TransactionPartitions
from cordwood.broker.transaction_verification import TransactionVerification
from cordwood.coordinator.group.service import GroupCoordinator
from cordwood.coordinator.transaction.service import TransactionCoordinator
from cordwood.metadata.cache import MetadataCache
from cordwood.metadata.controller_channel import AdminChannel


@dataclass(frozen=True, slots=True, kw_only=True)
class Broker:
    """The parts of a broker, all of which belong to the event loop's thread.

    Attributes:
        node_id: the id of this broker.
        cluster_id: the id of the cluster, as clients see it.
        thread: runs functions on the event loop's thread; has the clock and the slices.
        settings: of server.properties.
        configs: settings of topics, brokers and other resources, with dynamic ones.
        metadata: the metadata of the cluster, as far as this broker has loaded it.
        admin: carries out clients' requests to the controller; None if it is on another node.
        forwarding: sends such requests to a controller on another node; None without one.
        controller_id: the node id of the active controller; -1 if it is not known.
        voter_count: the number of voters of the metadata quorum.
        replicas: the partitions and logs of this broker.
        groups: the coordinator of groups.
        transactions: the coordinator of transactions.
        transaction_partitions: adds partitions to transactions.
        verification: verifies partitions before a transaction writes to them.
        markers: writes the markers of transactions.
        topic_creation: creates topics that clients and coordinators need.
        fetch_sessions: the sessions of fetching clients.
        metrics: counts requests and data.
        authorizer: decides what clients may do.
        api_versions: the lowest and highest version of each served API by key, both inclusive.
    """

    node_id: int
    cluster_id: str
    thread: BrokerThread
    settings: BrokerSettings
    configs: ConfigService
    metadata: MetadataCache
    admin: AdminChannel | None
    forwarding: Forwarding | None
    controller_id: Callable[[], int]
    voter_count: Callable[[], int]
    replicas: ReplicaManager
    groups: GroupCoordinator
    transactions: TransactionCoordinator
    transaction_partitions: TransactionPartitions
    verification: TransactionVerification
    markers: MarkerSender
    topic_creation: AutoTopicCreation
    fetch_sessions: FetchSessionCache
    metrics: BrokerMetrics
    authorizer: Authorizer = field(default_factory=AllowAll)
    api_versions: Mapping[int, tuple[int, int]] = field(default_factory=dict)
