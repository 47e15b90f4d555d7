"""`cordwood verify` at a real Kafka: what it writes, cleans, truncates and recovers is sound."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from support.damage import damage_in
from support.kafka import RealKafka
from support.kafka_programs import KAFKA_4_3, KAFKA_4_4
from support.workload import Workload

pytestmark = [pytest.mark.kafka, pytest.mark.usefixtures("kafka_jars", "kafka_4_4_jars")]

SMALL = {"internal.segment.bytes": "16384", "file.delete.delay.ms": "100"}
COMPACT = {
    **SMALL,
    "cleanup.policy": "compact",
    "min.cleanable.dirty.ratio": "0.01",
    "delete.retention.ms": "100",
}
TOPICS = {
    "verify-plain": {**SMALL, "cleanup.policy": "delete"},
    "verify-retention": {**SMALL, "retention.bytes": "60000"},
    "verify-compact": COMPACT,
    "verify-transactions": COMPACT,
    "verify-both": {**COMPACT, "cleanup.policy": "compact,delete", "retention.bytes": "90000"},
}


@pytest.mark.parametrize("version", [KAFKA_4_4, pytest.param(KAFKA_4_3, marks=pytest.mark.nightly)])
def test_logs_are_sound_while_a_kafka_writes_and_cleans_and_after_a_kill_and_a_stop(
    tmp_path: Path, version: str
) -> None:
    with RealKafka(tmp_path / "kafka", version=version) as kafka:
        kafka.start_cleaning()
        work = Workload(kafka, seed=11)
        work.create(TOPICS)
        found: list[str] = []
        done = threading.Event()

        def watch() -> None:
            while not done.is_set():
                found.extend(damage_in(kafka.log_dirs))

        watcher = threading.Thread(target=watch)
        watcher.start()
        try:
            for topic in TOPICS:
                work.fill(topic, 1500, settings={"enable.idempotence": True})
            work.transactions("verify-transactions", 60)
            work.delete_records("verify-plain", 700)
            work.delete_records("verify-both", 1300)
            work.transactions("verify-both", 30)
        finally:
            done.set()
            watcher.join()
        assert found == []
        kafka.kill()
        assert damage_in(kafka.log_dirs) == []
        kafka.start_cleaning()
        work.fill("verify-plain", 300)
        kafka.wait_until_clean()
        kafka.stop()
        assert damage_in(kafka.log_dirs) == []
