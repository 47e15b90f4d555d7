"""Restoration of what a cleaning has moved to a trash: a real Kafka and a broker here serve it."""

from __future__ import annotations

from pathlib import Path

import pytest

from cordwood.cleanup.access.offline.log_directory import OfflineLogDirectory
from cordwood.cleanup.access.offline.trash_restore import restore
from cordwood.configs.log_config import LogConfig
from cordwood.format.file_names import CLEANER_OFFSET_CHECKPOINT
from cordwood.model.clock import SystemClock
from cordwood.model.hold import Hold
from cordwood.model.topic_partition import TopicPartition as LogPartition
from cordwood.storage.filesystem import OS
from cordwood.storage.holds import HoldRegistry
from cordwood.storage.trash import trashed_partitions
from cordwood.testing.broker import RunningBroker
from support.in_process_engine import clean_in_process
from support.kafka import RealKafka, read_checkpoint
from support.reading import read_committed
from support.workload import DAY_MS, Workload

pytestmark = [pytest.mark.kafka, pytest.mark.usefixtures("kafka_jars")]

SMALL = {"internal.segment.bytes": "16384", "retention.ms": "-1"}
TOPICS = {
    "restore-deleted": {**SMALL, "cleanup.policy": "delete"},
    "restore-compacted": {**SMALL, "cleanup.policy": "compact"},
    "restore-transactions": {**SMALL, "cleanup.policy": "compact"},
}
_SEGMENT = 16384
COMPACT = LogConfig(
    cleanup_policy=frozenset({"compact"}), min_cleanable_dirty_ratio=0.0, segment_bytes=_SEGMENT
)
CONFIGS = {
    "restore-deleted": LogConfig(retention_ms=DAY_MS, segment_bytes=_SEGMENT),
    "restore-compacted": COMPACT,
    "restore-transactions": COMPACT,
}

HOLD = Hold(id="case-7", topic="restore-deleted", partition=None, reason="", by="me", created_ms=1)


def read_all(servers: str) -> dict[str, object]:
    return {topic: read_committed(servers, topic) for topic in TOPICS}


def files_of(data: Path) -> dict[str, object]:
    """The files of the topics, and the lines of the cleaner's checkpoint."""
    paths = [path for topic in TOPICS for path in (data / f"{topic}-0").iterdir()]
    found: dict[str, object] = {str(path.relative_to(data)): path.read_bytes() for path in paths}
    checkpoint = data / CLEANER_OFFSET_CHECKPOINT
    return found | {"cleaner": read_checkpoint(checkpoint) if checkpoint.exists() else {}}


def test_restored_logs_are_read_as_before_by_kafka_and_here(tmp_path: Path) -> None:
    with RealKafka(tmp_path / "kafka") as kafka:
        kafka.start_without_cleaning()
        work = Workload(kafka, seed=5)
        work.create(TOPICS)
        now_ms = SystemClock().now_ms()
        work.fill("restore-deleted", 900, timestamp=lambda n: now_ms - 3 * DAY_MS + n)
        work.fill("restore-deleted", 300, timestamp=lambda n: now_ms - 1000 + n)
        work.fill("restore-compacted", 900, tombstones=0.2)
        work.transactions("restore-transactions", 60)
        read_before = read_all(kafka.bootstrap_servers)
        kafka.stop()
        (data,) = kafka.log_dirs
        before = files_of(data)
        trash = tmp_path / "trash"
        report = clean_in_process(data, CONFIGS, now_ms=now_ms, trash=trash)
        assert report.failed == []
        trashed = trashed_partitions(trash)
        assert {each.topic_partition.topic for each in trashed} == TOPICS.keys()
        assert files_of(data) != before
        for each in trashed:
            assert restore(each, OfflineLogDirectory(data)).refused is None
        assert files_of(data) == before

        holds = HoldRegistry(OS)  # of which Kafka knows nothing
        holds.read([data])
        holds.add(HOLD)
        kafka.start_without_cleaning()
        assert read_all(kafka.bootstrap_servers) == read_before
        assert kafka.errors_since_start == []
        kafka.stop()
        settings = {"node.id": "1", "log.cleaner.enable": "false"}
        with RunningBroker(settings, log_dir=data) as broker:
            assert read_all(broker.bootstrap_servers) == read_before
            log = broker.broker.replicas.logs.require(LogPartition("restore-deleted", 0))
            assert log.holds == ("case-7",)
