"""Has a broker lead and follow partitions that have other replicas.

Source: kafka.server.ReplicaManager.startup, ReplicaFetcherManager,
org.apache.kafka.server.partition.DefaultAlterPartitionManager (4.3.0).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from cordwood.broker.replica_manager import ReplicaManager
from cordwood.broker.replication.fetch_session import FetchLimits
from cordwood.broker.replication.isr_changes import IsrChanges
from cordwood.broker.replication.replication import FollowerSettings, ImageBrokers, Replication
from cordwood.configs.settings import BrokerSettings
from cordwood.metadata.cache import MetadataCache
from cordwood.metadata.controller_channel import ControllerChannel
from cordwood.serving.node_thread import NodeThread


def begin_replication(
    settings: BrokerSettings,
    channel: ControllerChannel,
    replicas: ReplicaManager,
    metadata: MetadataCache,
    thread: NodeThread,
    broker_epoch: Callable[[], int],
) -> Replication:
    """What fetches for the partitions of `replicas`, which have it from now on.

    Args:
        settings: of server.properties.
        channel: asks the controller for other ISRs.
        replicas: of this broker.
        metadata: has the other brokers.
        thread: the event loop's.
        broker_epoch: of this broker's registration.
    """
    replication = replicas.replication = Replication(
        IsrChanges(channel.alter_partitions, answered=replicas.isr_answered),
        ImageBrokers(metadata),
        node_id=settings.node_id,
        broker_epoch=broker_epoch,
        settings=FollowerSettings(
            listener=settings.inter_broker_listener,
            limits=FetchLimits(
                wait_max_ms=settings.integer("replica.fetch.wait.max.ms"),
                min_bytes=settings.integer("replica.fetch.min.bytes"),
                response_max_bytes=settings.integer("replica.fetch.response.max.bytes"),
                partition_max_bytes=settings.integer("replica.fetch.max.bytes"),
            ),
            backoff_ms=settings.integer("replica.fetch.backoff.ms"),
            socket_timeout_ms=settings.integer("replica.socket.timeout.ms"),
        ),
        thread=thread,
        run=thread.slices.run,
        changed=replicas.follower_changed,
        throttle=replicas.throttles.follower,
        full=replicas.follower_full,
    )
    return replication


async def remove_lagging(settings: BrokerSettings, replicas: ReplicaManager) -> None:
    """Takes followers that lag out of ISRs, for ever.

    Source: ReplicaManager.startup: isr-expiration.
    """
    period_s = settings.replica_lag_time_max_ms / 2000
    while True:
        await asyncio.sleep(period_s)
        replicas.remove_lagging()
