"""`cordwood verify` at a real Kafka: what it writes, cleans, truncates and recovers is sound."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from pathlib import Path

import pytest

from cordwood.cleanup.verification.directories import verify
from cordwood.cleanup.verification.findings import Level
from cordwood.model.clock import SystemClock
from cordwood.surfaces.cluster_facts import ClusterFacts
from support.kafka import RealKafka
from support.live import record_kill
from support.workload import Workload

pytestmark = [pytest.mark.kafka, pytest.mark.usefixtures("kafka_jars")]

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


def damage_in(log_dirs: Sequence[Path]) -> list[str]:
    """Findings but for notes, without the metadata log and with it."""
    warnings: list[str] = []
    facts = ClusterFacts(log_dirs, warnings.append)
    results = [
        verify(log_dirs, clock=SystemClock()),
        verify(log_dirs, clock=SystemClock(), facts_of=facts.of),
    ]
    assert warnings == []
    return [
        str(each)
        for result in results
        for each in (*result.findings, *(f for log in result.logs for f in log.findings))
        if each.rule.level is Level.DAMAGED
    ]


def test_logs_are_sound_while_a_kafka_writes_and_cleans_and_after_a_kill_and_a_stop(
    tmp_path: Path,
) -> None:
    with RealKafka(tmp_path / "kafka") as kafka:
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


def test_what_a_kafka_has_cleaned_after_a_stop_or_a_kill_is_sound(tmp_path: Path) -> None:
    kill = record_kill(tmp_path, seed=7)
    for pair in (kill.stopped, kill.killed):
        assert damage_in(pair.before) == []
        assert damage_in(pair.after) == []
