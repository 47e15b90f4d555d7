"""Makes the parts of a broker from its settings, and connects them to each other.

Nothing here has a socket, a thread or a process of its own: `node.Node` adds those, and a test may
add its own.

Source: kafka.server.BrokerServer (4.3.0).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from cordwood.broker.auto_topic_creation import AutoTopicCreation
from cordwood.broker.broker import Broker
from cordwood.broker.broker_channels import BrokerChannels
from cordwood.broker.broker_context import BrokerContext
from cordwood.broker.committed_offsets import CommittedOffsets
from cordwood.broker.coordinators.coordinator_metadata import CoordinatorMetadataImage
from cordwood.broker.coordinators.group_log import group_log_format
from cordwood.broker.coordinators.producer_ids import ProducerIds
from cordwood.broker.coordinators.topic_log import TopicLog
from cordwood.broker.coordinators.transaction_log import TRANSACTION_LOG
from cordwood.broker.coordinators.transaction_markers import MarkerSender, MarkerWriter
from cordwood.broker.coordinators.transaction_partitions import TransactionPartitions
from cordwood.broker.coordinators.transaction_verification import TransactionVerification
from cordwood.broker.group_offsets import GroupOffsets
from cordwood.broker.metrics import BrokerMetrics
from cordwood.broker.replica_manager import ReplicaManager
from cordwood.broker.replication.replication import ImageBrokers
from cordwood.cleanup.schedule.cleaner_manager import CleanerManager
from cordwood.cleanup.schedule.paused_changes import (
    PausedMove,
    truncate_fully_paused,
    truncate_paused,
)
from cordwood.configs.effective import EffectiveConfigs
from cordwood.configs.log_config import LogConfig
from cordwood.configs.server_properties import BrokerSettings
from cordwood.coordinator.group.service import GroupCoordinator
from cordwood.coordinator.group.settings import GroupSettings
from cordwood.coordinator.registry import Coordinators
from cordwood.coordinator.transaction.service import TransactionCoordinator
from cordwood.coordinator.transaction.settings import TransactionSettings
from cordwood.metadata.cache import MetadataCache
from cordwood.metadata.image import MetadataImage
from cordwood.model.clock import Clock
from cordwood.model.errors import ConfigError
from cordwood.model.rng import Rng
from cordwood.node.cluster_member import ClusterMember
from cordwood.serving.api import Api
from cordwood.serving.node_thread import NodeThread
from cordwood.storage.broker_trash import TRASH_DIR, TRASH_MS, BrokerTrash
from cordwood.storage.failures import FailureChannel
from cordwood.storage.filesystem import FileSystem
from cordwood.storage.log.log_context import LogContext
from cordwood.storage.log.partition_log import PartitionLog
from cordwood.storage.log_manager import LogManager
from cordwood.storage.scheduler import Scheduler
from cordwood.storage.segment.resources import ResourceCache


def open_logs(
    settings: BrokerSettings,
    log_dirs: Sequence[Path],
    *,
    topic_config: Callable[[str], LogConfig],
    failures: FailureChannel,
    clock: Clock,
    fs: FileSystem,
    rng: Rng | None = None,
) -> LogManager:
    """Locks the directories; no log is loaded yet.

    Args:
        settings: of server.properties.
        log_dirs: those that have not failed.
        topic_config: the settings of a topic's logs.
        failures: of directories, from now on.
        clock: the time of all logs.
        fs: where the files are.
        rng: the system's if None.

    Raises:
        DirectoryInUseError: another process has one.
        ConfigError: the trash cannot be used.
    """
    context = LogContext(
        clock=clock,
        rng=rng,
        resources=ResourceCache(fs=fs),
        scheduler=Scheduler(clock, catch_up=False),
        failures=failures,
        producer_id_expiration_ms=settings.producer_id_expiration_ms,
        max_transaction_timeout_ms=settings.transaction_max_timeout_ms,
        verify_transactions=settings.transaction_partition_verification_enable,
    )
    trash_dir, keep_ms = settings.trash_dir, settings.integer(TRASH_MS)
    if keep_ms and TRASH_MS in settings.given and not trash_dir:
        raise ConfigError(
            f"{TRASH_MS}={keep_ms}: there is no place for what is removed; set {TRASH_DIR} to a "
            "directory that is in no log directory"
        )
    logs = LogManager(log_dirs, broker=settings, topic_config=topic_config, context=context)
    if trash_dir:  # after the locks: the trash is noted in the log directories
        online = [each.path for each in logs.directories]
        try:
            context.trash = BrokerTrash(
                Path(trash_dir).absolute(), online, fs=fs, rng=rng, failures=failures
            )
        except BaseException:
            # No shutdown, which would write marks of a clean stop again, without a broker epoch.
            for each in logs.directories:
                each.release()
            raise
    return logs


def is_stray(log: PartitionLog, image: MetadataImage, node_id: int) -> bool:
    """Whether the cluster knows of no such replica on this broker.

    Source: org.apache.kafka.storage.internals.log.LogManager.isStrayReplica; KIP-858.
    """
    topic = image.topics.get(log.topic_partition.topic)
    if topic is None:
        return True
    if log.topic_id is not None and log.topic_id != topic.topic_id:
        return True
    partition = topic.partitions.get(log.topic_partition.partition)
    return partition is None or node_id not in partition.replicas


def make_broker(
    settings: BrokerSettings,
    *,
    cluster_id: str,
    logs: LogManager,
    cleaner: CleanerManager,
    metadata: MetadataCache,
    configs: EffectiveConfigs,
    member: ClusterMember,
    thread: NodeThread,
    apis: Mapping[int, Api[BrokerContext]],
    at_end: Callable[[Callable[[], None]], object],
    replica_manager: Callable[..., ReplicaManager] = ReplicaManager,
) -> Broker:
    """Makes the services of a broker; none of them serves or writes anything yet.

    Args:
        settings: of server.properties.
        cluster_id: the cluster's.
        logs: the logs of this broker.
        cleaner: is paused for a log that is moved or truncated; its retention looks groups up.
        metadata: the image that the loader has published.
        configs: the settings in force.
        member: the channels to the controller; connected.
        thread: the event loop's.
        apis: those that are served.
        at_end: gets what a stop has to call.
        replica_manager: makes the replica manager, as its constructor does.
    """
    metrics = BrokerMetrics()
    replicas = replica_manager(
        node_id=settings.node_id,
        logs=logs,
        metadata=metadata,
        controller=member.channel,
        thread=thread,
        settings=settings,
        metrics=metrics,
        begin_move=lambda partition, to: PausedMove(cleaner, partition, to),
        truncate=lambda partition, offset, is_wanted: truncate_paused(
            cleaner, {partition: offset}, is_wanted=is_wanted
        ),
        start_at=lambda partition, offset, is_wanted: truncate_fully_paused(
            cleaner, partition, offset, is_wanted=is_wanted
        ),
    )
    groups = _make_groups(settings, replicas, metadata, configs, thread)
    coordinators = Coordinators()
    coordinators.register(groups)
    channels = _make_channels(settings, metadata, member, thread)
    at_end(channels.close)
    offsets = GroupOffsets(groups, metadata, channels, thread, node_id=settings.node_id)
    cleaner.groups.source = offsets.look_up
    producer_ids = ProducerIds(member.channel, thread)
    transactions, markers = _make_transactions(
        settings, replicas, coordinators, metadata, producer_ids, channels, thread
    )
    coordinators.register(transactions)
    for each in coordinators:
        replicas.listen(each.runtime.partitions.topic, each.runtime.on_high_watermark)
    partitions = TransactionPartitions(transactions, metadata)
    return Broker(
        node_id=settings.node_id,
        cluster_id=cluster_id,
        thread=thread,
        settings=settings,
        configs=configs,
        metadata=metadata,
        admin=member.admin,
        forwarding=member.forwarding,
        controller_id=lambda: member.controller_id,
        voter_count=lambda: member.voter_count,
        replicas=replicas,
        coordinators=coordinators,
        groups=groups,
        committed_offsets=CommittedOffsets(
            groups, offsets, metadata, channels, thread, node_id=settings.node_id
        ),
        transactions=transactions,
        transaction_partitions=partitions,
        verification=_make_verification(settings, replicas, partitions, thread, channels),
        markers=markers,
        topic_creation=AutoTopicCreation(member.channel, settings),
        metrics=metrics,
        api_versions={key: (api.min_version, api.max_version) for key, api in apis.items()},
    )


def _make_channels(
    settings: BrokerSettings, metadata: MetadataCache, member: ClusterMember, thread: NodeThread
) -> BrokerChannels:
    return BrokerChannels(
        ImageBrokers(metadata),
        thread,
        node_id=settings.node_id,
        listener=settings.inter_broker_listener,
        timeout_ms=settings.integer("request.timeout.ms"),
        transports=member.transports,
    )


def _make_groups(
    settings: BrokerSettings,
    replicas: ReplicaManager,
    metadata: MetadataCache,
    configs: EffectiveConfigs,
    thread: NodeThread,
) -> GroupCoordinator:
    of_groups = GroupSettings.of(settings.all)
    return GroupCoordinator(
        TopicLog(group_log_format(of_groups.topic_codec), replicas, metadata),
        thread,
        of_groups,
        CoordinatorMetadataImage(metadata, configs.own_group_integer),
        replicas.logs.context.rng,
    )


def _make_transactions(
    settings: BrokerSettings,
    replicas: ReplicaManager,
    coordinators: Coordinators,
    metadata: MetadataCache,
    producer_ids: ProducerIds,
    channels: BrokerChannels,
    thread: NodeThread,
) -> tuple[TransactionCoordinator, MarkerSender]:
    markers = MarkerSender(
        MarkerWriter(replicas, coordinators, thread),
        replicas,
        metadata,
        thread,
        channels,
        node_id=settings.node_id,
    )
    transactions = TransactionCoordinator(
        TopicLog(TRANSACTION_LOG, replicas, metadata),
        thread,
        TransactionSettings.of(settings.all),
        version=lambda: metadata.transaction_version,
        producer_ids=producer_ids,
        markers=markers,
    )
    return transactions, markers


def _make_verification(
    settings: BrokerSettings,
    replicas: ReplicaManager,
    partitions: TransactionPartitions,
    thread: NodeThread,
    channels: BrokerChannels,
) -> TransactionVerification:
    return TransactionVerification(
        replicas,
        partitions,
        thread,
        channels,
        node_id=settings.node_id,
        is_enabled=settings.transaction_partition_verification_enable,
        retry_ms=settings.integer("add.partitions.to.txn.retry.backoff.ms"),
        retry_max_ms=settings.integer("add.partitions.to.txn.retry.backoff.max.ms"),
    )
