"""Settings that change while a broker runs, and the parts that they change.

Source: kafka.server.DynamicBrokerConfig (4.3.0); KIP-226.
"""

from __future__ import annotations

from typing import Final

from cordwood.broker.broker import Broker
from cordwood.cleanup.plan.cleaner_settings import CleanerSettings
from cordwood.cleanup.schedule.log_cleaner import LogCleaner
from cordwood.configs.broker_config import BrokerConfig
from cordwood.coordinator.group.settings import GroupSettings
from cordwood.node.derived_settings import server_limits
from cordwood.serving.server import Server

_CLEANER_KEYS: Final = (
    "log.cleaner.threads",
    "log.cleaner.dedupe.buffer.size",
    "log.cleaner.io.buffer.size",
    "log.cleaner.io.buffer.load.factor",
    "log.cleaner.io.max.bytes.per.second",
    "log.cleaner.backoff.ms",
    "cordwood.cleaner.order",
)
_DIRECTORY_KEYS: Final = ("cordwood.log.dir.retention.bytes", "cordwood.log.dir.free.bytes.min")
_CORDONED_KEYS: Final = ("cordoned.log.dirs",)
_GROUP_KEYS: Final = ("group.consumer.assignment.interval.ms",)
_VERIFICATION_KEYS: Final = ("transaction.partition.verification.enable",)
_CONNECTION_KEYS: Final = (
    "max.connections",
    "max.connections.per.ip",
    "max.connections.per.ip.overrides",
)


def follow_settings(broker: Broker, cleaner: LogCleaner, server: Server) -> None:
    """Has changed settings take effect from now on; topics' settings are the publisher's."""
    logs = broker.replicas.logs

    def directories(_before: BrokerConfig, values: BrokerConfig) -> None:
        logs.broker = values

    def cordoning(before: BrokerConfig, values: BrokerConfig) -> None:
        directories(before, values)
        broker.replicas.directory_reports.cordoned(logs.cordoned_ids)

    def cleaning(before: BrokerConfig, values: BrokerConfig) -> None:
        directories(before, values)
        # It waits for the cleaner's threads.
        settings = CleanerSettings.of(values)
        broker.thread.loop.run_in_executor(None, cleaner.reconfigure, settings)

    def connections(_before: BrokerConfig, values: BrokerConfig) -> None:
        server.limits = server_limits(values, broker.settings)

    def groups(_before: BrokerConfig, values: BrokerConfig) -> None:
        broker.groups.settings = GroupSettings.of(values.all)

    def verification(_before: BrokerConfig, values: BrokerConfig) -> None:
        is_enabled = values.transaction_partition_verification_enable
        broker.verification.is_enabled = is_enabled
        logs.verify_transactions(is_enabled=is_enabled)

    logs.context.setting_origins = broker.configs.topic_origins
    logs.context.metadata_version = lambda: broker.metadata.image.metadata_version
    for keys, change in (
        (_VERIFICATION_KEYS, verification),
        (_CLEANER_KEYS, cleaning),
        (_DIRECTORY_KEYS, directories),
        (_CORDONED_KEYS, cordoning),
        (_GROUP_KEYS, groups),
        (_CONNECTION_KEYS, connections),
    ):
        broker.configs.subscribe(keys, change)
