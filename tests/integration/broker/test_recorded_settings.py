"""Settings of brokers that are recorded in the metadata log, after a restart."""

from __future__ import annotations

from pathlib import Path

from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ResourceType,
)

from cordwood.testing.broker import RunningBroker
from support.kafka import poll_until
from support.no_engine import NoEngine

RECORDED = {"cordwood.log.dir.retention.bytes": 9, "log.cleaner.backoff.ms": 1234}


def in_force(broker: RunningBroker) -> dict[str, int]:
    config = broker.broker.replicas.logs.broker
    return {name: getattr(config, name.replace(".", "_")) for name in RECORDED}


def test_what_is_recorded_for_a_broker_is_in_force_after_a_restart(tmp_path: Path) -> None:
    with RunningBroker(log_dir=tmp_path / "logs", engine=NoEngine) as broker:
        resource = ConfigResource(ResourceType.BROKER, "1")
        for name, value in RECORDED.items():
            resource.add_incremental_config(
                ConfigEntry(name, str(value), incremental_operation=AlterConfigOpType.SET)
            )
        admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
        (future,) = admin.incremental_alter_configs([resource]).values()
        future.result(timeout=60)
        poll_until(lambda: in_force(broker) == RECORDED, timeout_s=60, what="settings in force")
    with RunningBroker(log_dir=tmp_path / "logs", engine=NoEngine) as broker:
        assert in_force(broker) == RECORDED
