"""Logs from which expired records and idle tombstones were removed: a real Kafka continues them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from cordwood.configs.log_config import LogConfig
from cordwood.model.clock import SystemClock
from support.in_process_engine import clean_in_process
from support.kafka import RealKafka
from support.workload import Workload

pytestmark = [pytest.mark.kafka, pytest.mark.usefixtures("kafka_jars")]

HOUR_MS = 3_600_000
TOPIC = "idle"
SETTINGS = {"cleanup.policy": "compact", "internal.segment.bytes": "16384"}
CONFIG = LogConfig(
    cleanup_policy=frozenset({"compact"}),
    segment_bytes=16384,
    delete_retention_ms=HOUR_MS,
    min_cleanable_dirty_ratio=0.0,
    cordwood_tombstone_cleanup=True,
    cordwood_record_ttl_header="ttl",
)
COUNT = 1_200
FORMS = [b"%d" % HOUR_MS, HOUR_MS.to_bytes(8, "big")]


def write(servers: str, first: int, last: int) -> None:
    """Each key once: every third is a tombstone, every third has a time to live."""
    # A batch must fit a segment.
    producer = Producer({"bootstrap.servers": servers, "batch.num.messages": 20})
    refused: list[object] = []
    for number in range(first, last):
        value = None if number % 3 == 0 else b"v" * 60
        headers: Any = [("ttl", FORMS[number % 2])] if number % 3 == 1 else []
        producer.produce(
            TOPIC,
            value,
            b"%d" % number,
            headers=headers,
            on_delivery=lambda error, _: refused.append(error) if error else None,
        )
    assert (producer.flush(60), refused) == (0, [])


def read(servers: str, last: int) -> list[tuple[int | None, Any, Any]]:
    settings: dict[str, Any] = {"bootstrap.servers": servers, "group.id": "reader"}
    consumer = Consumer(settings)
    consumer.assign([TopicPartition(TOPIC, 0, 0)])
    found: list[tuple[int | None, Any, Any]] = []
    while not found or (found[-1][0] or 0) < last:
        message = consumer.poll(60)
        assert message is not None, "nothing came for 60 s"
        assert message.error() is None, str(message.error())
        found.append((message.offset(), message.key(), message.value()))
    consumer.close()
    return found


def test_kafka_serves_and_continues_what_was_removed_from(tmp_path: Path) -> None:
    with RealKafka(tmp_path / "kafka") as kafka:
        kafka.start_without_cleaning()
        Workload(kafka, seed=5).create({TOPIC: SETTINGS})
        write(kafka.bootstrap_servers, 0, COUNT)
        before = read(kafka.bootstrap_servers, COUNT - 1)
        assert len(before) == COUNT
        kafka.stop()
        (data,) = kafka.log_dirs
        now_ms = SystemClock().now_ms()
        for at_ms in (now_ms, now_ms + 3 * HOUR_MS, now_ms + 6 * HOUR_MS):
            assert clean_in_process(data, {TOPIC: CONFIG}, now_ms=at_ms, verify=True).failed == []
        report = clean_in_process(data, {TOPIC: CONFIG}, now_ms=at_ms)
        assert [each.status for each in report.partitions if each.topic == TOPIC] == ["unchanged"]
        kafka.start_without_cleaning()
        write(kafka.bootstrap_servers, COUNT, COUNT + 3)
        after = read(kafka.bootstrap_servers, COUNT + 2)
        kept = [each for each in before if int(each[1]) % 3 == 2]
        assert after[:-3] == kept
        assert [each[0] for each in after[-3:]] == [COUNT, COUNT + 1, COUNT + 2]
        assert kafka.errors_since_start == []
