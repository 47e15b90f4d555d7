"""Segments recovered by a real Kafka after a kill, and by us: the same bytes in every file."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from cordwood.configs.log_config import LogConfig
from cordwood.format.file_names import LOG_SUFFIX, base_offset_of
from cordwood.model.topic_partition import TopicPartition
from cordwood.storage.producers.producer_state import ProducerStateManager
from cordwood.storage.segment.log_segment import LogSegment
from cordwood.storage.segment.resources import ResourceCache
from support.kafka import RealKafka
from support.workload import Workload

pytestmark = [pytest.mark.kafka, pytest.mark.usefixtures("kafka_jars")]

SMALL = {"internal.segment.bytes": "65536", "index.interval.bytes": "700"}
PLAIN, ZIPPED, TRANSACTIONS = "recovery-plain", "recovery-gzip", "recovery-transactions"
TOPICS = {
    PLAIN: SMALL,
    ZIPPED: {**SMALL, "compression.type": "gzip"},
    TRANSACTIONS: {**SMALL, "index.interval.bytes": "0"},
}
CONFIGS = {
    topic: LogConfig(index_interval_bytes=int(settings["index.interval.bytes"]))
    for topic, settings in TOPICS.items()
}
SUFFIXES = (".log", ".index", ".timeindex", ".txnindex")
TORN = b"\0" * 7 + b"torn"


def recovered_by_us(partition: Path, config: LogConfig, *, native: bool) -> None:
    """Every segment, from the first on, as after an unclean stop without checkpoints."""
    resources = ResourceCache()
    state = ProducerStateManager(TopicPartition.parse(partition.name), partition)
    for log in sorted(partition.glob(f"*{LOG_SUFFIX}")):
        segment = LogSegment.open(
            partition, base_offset_of(log.name), config=config, resources=resources, now_ms=0
        )
        segment.recover(producer_state=state, native=native)


def contents(partition: Path) -> dict[str, dict[str, bytes]]:
    """Each segment's files, by suffix; a transaction index without entries is as good as none."""
    found: dict[str, dict[str, bytes]] = {}
    for path in sorted(partition.iterdir()):
        if path.suffix in SUFFIXES and (path.suffix != ".txnindex" or path.stat().st_size):
            found.setdefault(path.stem, {})[path.suffix] = path.read_bytes()
    return found


def test_a_real_kafka_recovers_to_the_same_bytes(tmp_path: Path) -> None:
    with RealKafka(tmp_path / "kafka") as kafka:
        kafka.start_without_cleaning()
        work = Workload(kafka, seed=3)
        work.create(TOPICS)
        work.fill(PLAIN, 3000)
        work.fill(ZIPPED, 3000)
        work.transactions(TRANSACTIONS, 60)
        kafka.kill()
        (data,) = kafka.log_dirs
        for checkpoint in ("recovery-point-offset-checkpoint", "log-start-offset-checkpoint"):
            (data / checkpoint).unlink(missing_ok=True)
        ours = {}
        for topic in TOPICS:
            partition = data / f"{topic}-0"
            for snapshot in partition.glob("*.snapshot"):
                snapshot.unlink()
            with max(partition.glob("*.log")).open("ab") as active:
                active.write(TORN)
            copies = [tmp_path / way / partition.name for way in ("plain", "native")]
            for copy, native in zip(copies, (False, True), strict=True):
                shutil.copytree(partition, copy)
                recovered_by_us(copy, CONFIGS[topic], native=native)
            ours[topic] = contents(copies[0])
            assert contents(copies[1]) == ours[topic]
        kafka.start_without_cleaning()
        kafka.stop()
    for topic, expected in ours.items():
        found = contents(data / f"{topic}-0")
        assert found.keys() == expected.keys()
        # Markers that were on their way when Kafka was killed are written when it is back.
        last = max(expected)
        if found[last][".log"] != expected[last][".log"]:
            assert topic == TRANSACTIONS
            assert found.pop(last)[".log"].startswith(expected.pop(last)[".log"])
        assert found == expected, topic
        assert len(expected) >= 2
    assert any(".txnindex" in files for files in ours[TRANSACTIONS].values())
