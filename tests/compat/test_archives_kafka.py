"""A running Kafka's logs archived while it writes and cleans, and brought back to it."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

import pytest
from confluent_kafka import Consumer, Message, TopicPartition

from cordwood.archiving.report import ArchiveReport, ArchiveStatus
from cordwood.storage.archives.archive import Archive
from support.archives import archive_in, archived, contents, restored
from support.kafka import RealKafka, poll_until
from support.reading import read_partition
from support.workload import Workload

pytestmark = [pytest.mark.kafka, pytest.mark.usefixtures("kafka_jars")]

COMPACTED, PLAIN = "compacted", "plain"
SMALL: Final = {"internal.segment.bytes": "32768", "index.interval.bytes": "1000"}
TOPICS: Final = {
    COMPACTED: {
        **SMALL,
        "cleanup.policy": "compact",
        "min.cleanable.dirty.ratio": "0.01",
        "delete.retention.ms": "86400000",
    },
    PLAIN: {**SMALL, "retention.ms": "-1"},
}
GROUP: Final = "shop"
#: Reasons for which a run leaves a log to the next one, while a cleaner replaces its segments.
CLEANED: Final = ("a broker has cleaned it", "is cleaning it", "there is no such file any more")


def write(work: Workload) -> None:
    for _ in range(10):
        work.fill(COMPACTED, 400, keys=60, tombstones=0.1)
        work.fill(PLAIN, 300)


def require_archived_or_cleaned(report: ArchiveReport) -> None:
    for row in report.partitions:
        if row.status is ArchiveStatus.FAILED:
            assert row.topic == COMPACTED
            assert any(reason in row.reason for reason in CLEANED), row


def require_whole(archive: Archive) -> None:
    """Requires that manifests name what is there, each offset once."""
    sizes = {each.key: each.size_bytes for each in archive.store.list("data/")}
    for manifest in archive.manifests():
        assert all(sizes[file.key] == file.size_bytes for file in manifest.files)
        end = 0
        for segment in manifest.segments:
            assert segment.base_offset >= end
            end = segment.next_base_offset


def records(messages: Sequence[Message]) -> list[tuple[int, bytes | None, bytes | None]]:
    return [(each.offset(), each.key(), each.value()) for each in messages]


def latest(messages: Sequence[Message]) -> dict[bytes | None, bytes]:
    """The last value of each key that has one."""
    last = {each.key(): each.value() for each in messages}
    return {key: value for key, value in last.items() if value is not None}


def committed(kafka: RealKafka) -> list[int]:
    consumer = Consumer({**kafka.client(), "group.id": GROUP})
    try:
        places = [TopicPartition(topic, 0) for topic in TOPICS]
        return [each.offset for each in consumer.committed(places, timeout=60)]
    finally:
        consumer.close()


def commit(kafka: RealKafka) -> None:
    consumer = Consumer({**kafka.client(), "group.id": GROUP, "enable.auto.commit": False})
    try:
        consumer.commit(
            offsets=[TopicPartition(topic, 0, 100 + number) for number, topic in enumerate(TOPICS)],
            asynchronous=False,
        )
    finally:
        consumer.close()


def test_a_running_kafka_is_archived_as_it_cleans_and_gets_its_logs_back(tmp_path: Path) -> None:
    archive = archive_in(tmp_path / "archive")
    with RealKafka(tmp_path / "kafka") as kafka:
        kafka.start_cleaning()
        work = Workload(kafka, seed=5)
        work.create(TOPICS)
        (data,) = kafka.log_dirs
        runs = 0
        with ThreadPoolExecutor(1) as pool:
            writing = pool.submit(write, work)
            while not writing.done() or runs < 3:
                require_archived_or_cleaned(archived(archive, data))
                require_whole(archive)
                runs += 1
            writing.result()
        commit(kafka)
        kafka.wait_until_clean()
        plain = records(read_partition(kafka.client(), PLAIN).messages)
        current = latest(read_partition(kafka.client(), COMPACTED).messages)
        assert len(plain) == 3000
        kafka.stop()
        assert archived(archive, data, has_active=True).is_complete
        require_whole(archive)
        manifests = {each.topic: each for each in archive.manifests()}
        assert manifests[PLAIN].number > 1
        assert len(manifests[PLAIN].segments) > 5

        original = data.rename(tmp_path / "original")
        assert restored(archive, data).is_complete
        before, after = contents(original), contents(data)
        assert {name for name in before if name.startswith(f"{PLAIN}-0/")} == {
            name for name in after if name.startswith(f"{PLAIN}-0/")
        }
        for name, content in before.items():
            if not name.startswith((f"{COMPACTED}-0/", "cleaner-offset-checkpoint")):
                assert after[name] == content, name
        # As a restore leaves it that was killed.
        left = data / f"{PLAIN}-1.{'0' * 32}-delete"
        shutil.copytree(original / f"{PLAIN}-0", left / f"{PLAIN}-1")

        kafka.start_without_cleaning()
        assert records(read_partition(kafka.client(), PLAIN).messages) == plain
        assert latest(read_partition(kafka.client(), COMPACTED).messages) == current
        assert committed(kafka) == [100, 101]
        work.fill(PLAIN, 50)
        assert len(read_partition(kafka.client(), PLAIN).messages) == 3050
        kafka.stop()

        # It cleans what was restored to what it had cleaned before.
        kafka.start_cleaning()
        kafka.wait_until_clean()
        poll_until(lambda: not left.exists(), timeout_s=120, what="Kafka removes what is left")
        assert latest(read_partition(kafka.client(), COMPACTED).messages) == current
        # It has loaded what it removed.
        errors = [each for each in kafka.errors_since_start if f"partition={PLAIN}-1" not in each]
        assert errors == []
        kafka.stop()


def test_a_range_of_a_kafkas_log_is_served_by_it(tmp_path: Path) -> None:
    archive = archive_in(tmp_path / "archive")
    with RealKafka(tmp_path / "kafka") as kafka:
        kafka.start_without_cleaning()
        work = Workload(kafka, seed=6)
        work.create({PLAIN: TOPICS[PLAIN]})
        work.fill(PLAIN, 2000)
        messages = read_partition(kafka.client(), PLAIN).messages
        kafka.stop()
        (data,) = kafka.log_dirs
        assert archived(archive, data, has_active=True).is_complete
        data.rename(tmp_path / "original")
        (row,) = restored(
            archive, data, topics=(PLAIN,), first_offset=700, end_offset=1300
        ).partitions
        assert (row.log_start_offset, row.failure) == (700, "")
        assert 1300 <= row.end_offset < 1300 + 200

        kafka.start_without_cleaning()
        found = read_partition(kafka.client(), PLAIN)
        assert found.start == 700
        assert records(found.messages) == records(messages)[700 : row.end_offset]
        work.fill(PLAIN, 10)
        again = read_partition(kafka.client(), PLAIN).messages
        assert [each.offset() for each in again[-10:]] == list(
            range(row.end_offset, row.end_offset + 10)
        )
        assert kafka.errors_since_start == []
        kafka.stop()
