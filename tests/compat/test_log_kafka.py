"""Logs handed from Cordwood to a real Kafka and back, also where neither was stopped in order."""

from __future__ import annotations

import random
import re
import shutil
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

from cordwood.configs.log_config import LogConfig
from cordwood.format.compression import Codec
from cordwood.format.control_record import ControlType, build_control_key
from cordwood.format.file_names import CLUSTER_METADATA_DIR
from cordwood.format.record_batch import Header, Record, RecordBatch, build_batch, iter_batches
from cordwood.metadata.replay import read_metadata_image
from cordwood.model.append_origin import AppendOrigin
from cordwood.model.topic_partition import TopicPartition
from cordwood.queries.settings import SettingOptions, read_settings
from cordwood.storage.log.log_context import LogContext
from cordwood.storage.log.log_reader import Isolation
from cordwood.storage.log.partition_log import PartitionLog
from cordwood.storage.log_manager import LogManager
from cordwood.testing.manual_clock import ManualClock
from support.kafka import RealKafka
from support.reading import offset_of, read_partition
from support.workload import Workload

pytestmark = [pytest.mark.kafka, pytest.mark.usefixtures("kafka_jars")]

SMALL = {"internal.segment.bytes": "16384"}
CODEC_TOPICS = {f"log-{codec.config_name}": codec for codec in Codec}
TRANSACTIONS, EPOCHS, TORN = "log-transactions", "log-epochs", "log-torn"
TOPICS = dict.fromkeys((*CODEC_TOPICS, TRANSACTIONS, EPOCHS, TORN), SMALL)
SEED = 20

Seen = tuple[int, int, bytes | None, bytes | None, tuple[tuple[str, bytes | None], ...]]

ABOUT_LOGS = re.compile(
    r"\] (?:WARN|ERROR|FATAL) .*\((?:kafka\.log\.|org\.apache\.kafka\.storage\.|kafka\.cluster\."
    r"|org\.apache\.kafka\.server\.log|kafka\.server\.(?:ReplicaManager|LogDir))"
)
EXPECTED_WARNINGS = (
    "The config `log.cleaner.enable` is deprecated",
    # The torn batch at the end of one log, which is there on purpose.
    "Found invalid messages in log segment",
    "Corruption found in segment",
)


def seen_of(record: Record, offset: int) -> Seen:
    """A record as a consumer hands it out."""
    headers = tuple((header.key, header.value) for header in record.headers)
    return offset, record.timestamp, record.key, record.value, headers


class Writer:
    """Appends random records to one log, and knows what a reader must see."""

    def __init__(self, log: PartitionLog, rng: random.Random, now_ms: int) -> None:
        self.log = log
        self.seen: dict[Isolation, list[Seen]] = {
            Isolation.HIGH_WATERMARK: [],
            Isolation.TXN_COMMITTED: [],
        }
        self._rng = rng
        self._now_ms = now_ms
        self._open: dict[int, list[Seen]] = {}
        self._sequences: dict[int, int] = {}

    def batch(self, codec: Codec, *, producer_id: int = -1, transactional: bool = False) -> None:
        """One batch of one to twenty records."""
        rng = self._rng
        records = [
            Record(
                offset=number,
                timestamp=self._now_ms + rng.randrange(1000),
                key=rng.choice([None, b"", b"key-%d" % rng.randrange(50)]),
                value=rng.choice([None, rng.randbytes(rng.randrange(300)).hex().encode()]),
                headers=tuple(
                    Header(f"h{n}", rng.choice([None, b"v"])) for n in range(rng.randrange(3))
                ),
            )
            for number in range(rng.randint(1, 20))
        ]
        sequence = self._sequences.get(producer_id, 0) if producer_id >= 0 else -1
        data = build_batch(
            records,
            base_offset=0,
            codec=codec,
            producer_id=producer_id,
            producer_epoch=0 if producer_id >= 0 else -1,
            base_sequence=sequence,
            is_transactional=transactional,
        )
        guard = (
            self.log.maybe_start_verification(producer_id, sequence, 0) if transactional else None
        )
        epoch = self.log.leader_epochs.latest_epoch or 0
        first = self.log.append_as_leader(
            data, leader_epoch=epoch, verification_guard=guard
        ).first_offset
        if producer_id >= 0:
            self._sequences[producer_id] = sequence + len(records)
        seen = [seen_of(record, first + record.offset) for record in records]
        self.seen[Isolation.HIGH_WATERMARK] += seen
        if transactional:
            self._open.setdefault(producer_id, []).extend(seen)
        else:
            self.seen[Isolation.TXN_COMMITTED] += seen

    def end(self, producer_id: int, *, commit: bool) -> None:
        """The marker of a producer's open transaction."""
        control = ControlType.COMMIT if commit else ControlType.ABORT
        record = Record(
            offset=0,
            timestamp=self._now_ms,
            key=build_control_key(control),
            value=b"\0\0\0\0\0\1",
        )
        data = build_batch(
            [record],
            base_offset=0,
            producer_id=producer_id,
            producer_epoch=0,
            is_transactional=True,
            is_control=True,
        )
        self.log.append_as_leader(
            data,
            leader_epoch=self.log.leader_epochs.latest_epoch or 0,
            origin=AppendOrigin.COORDINATOR,
        )
        records = self._open.pop(producer_id)
        if commit:
            self.seen[Isolation.TXN_COMMITTED] += records

    def close_transactions(self) -> None:
        """Ends what is open, so that a reader of committed records sees everything."""
        for producer_id in list(self._open):
            self.end(producer_id, commit=self._rng.random() < 0.5)


def topic_configs(data: Path) -> Callable[[str], LogConfig | None]:
    resolve = read_settings(SettingOptions(log_dirs=[data])).resolve

    def config(topic: str) -> LogConfig | None:
        found = resolve(topic)
        return found.config if found else None

    return config


def fill(writers: dict[str, Writer], rng: random.Random, epochs: int, turns: int) -> None:
    for topic, codec in CODEC_TOPICS.items():
        for _ in range(turns):
            writers[topic].batch(codec, producer_id=rng.choice([-1, 1000]))
    transactions = writers[TRANSACTIONS]
    for _ in range(turns * 2):
        producer = rng.choice([2000, 2001, 2002])
        if producer in transactions._open and rng.random() < 0.4:
            transactions.end(producer, commit=rng.random() < 0.6)
        elif rng.random() < 0.2:
            transactions.batch(Codec.NONE)
        else:
            transactions.batch(rng.choice(list(Codec)), producer_id=producer, transactional=True)
    known = writers[EPOCHS].log.leader_epochs.latest_epoch or 0
    for epoch in range(known, epochs + 1):
        writers[EPOCHS].log.assign_epoch(epoch)
        for _ in range(turns // 2):
            writers[EPOCHS].batch(Codec.LZ4)
    for _ in range(turns):
        writers[TORN].batch(Codec.NONE)


def consume(kafka: RealKafka, topic: str, isolation: str) -> list[Seen]:
    """Reads a partition from its start to its end with a stock consumer."""
    return [
        (
            offset_of(message),
            message.timestamp()[1],
            message.key(),
            message.value(),
            tuple((name, value) for name, value in message.headers() or ()),
        )
        for message in read_partition(kafka.client(), topic, isolation=isolation).messages
    ]


def read_all(log: PartitionLog, isolation: Isolation) -> list[Seen]:
    """Reads our log as a consumer: by fetches, without aborted batches, with CRCs checked."""
    seen: list[Seen] = []
    offset = log.log_start_offset
    aborting: dict[int, int] = {}
    while True:
        fetched = log.reader.read(offset, 100_000, isolation=isolation)
        if fetched.range is None:
            return seen
        pending = {(a.producer_id, a.first_offset) for a in fetched.aborted or ()}
        for _, batch in iter_batches(fetched.read()):
            assert isinstance(batch, RecordBatch)
            batch.require_valid()
            header = batch.header
            for producer_id, first in sorted(pending, key=lambda entry: entry[1]):
                if first <= header.last_offset:
                    aborting[producer_id] = first
                    pending.discard((producer_id, first))
            if header.is_control:
                aborting.pop(header.producer_id, None)
            elif not (header.is_transactional and header.producer_id in aborting):
                seen += [
                    (
                        r.offset,
                        r.timestamp,
                        r.key,
                        r.value,
                        tuple((h.key, h.value) for h in r.headers),
                    )
                    for r in batch.records()
                    if r.offset >= offset
                ]
            offset = batch.next_offset


def complaints(kafka: RealKafka) -> list[str]:
    lines = kafka.log_since_start.splitlines()
    return [
        line
        for line in lines
        if ABOUT_LOGS.search(line) and not any(text in line for text in EXPECTED_WARNINGS)
    ]


@pytest.fixture
def kafka(tmp_path: Path, kafka_jars: Path) -> Iterator[RealKafka]:
    with RealKafka(tmp_path / "kafka") as started:
        yield started


def stopped_with_topics(kafka: RealKafka, starts: int) -> Path:
    """A broker's directory with empty logs, stopped after several leaderships."""
    kafka.start_without_cleaning()
    Workload(kafka, SEED).create(TOPICS)
    kafka.stop()
    for _ in range(starts - 1):
        kafka.start_without_cleaning()
        kafka.stop()
    return kafka.log_dirs[0]


def leader_epoch_of(data: Path, topic: str) -> int:
    image = read_metadata_image(data / CLUSTER_METADATA_DIR)
    return image.topics[topic].partitions[0].leader_epoch


@pytest.mark.parametrize("in_order", [True, False], ids=["clean stop", "killed"])
def test_kafka_serves_every_record_that_cordwood_wrote(kafka: RealKafka, *, in_order: bool) -> None:
    data = stopped_with_topics(kafka, starts=3)
    epochs = leader_epoch_of(data, EPOCHS)
    assert epochs >= 2, "several leaderships"
    rng = random.Random(SEED)
    manager = LogManager([data], topic_config=topic_configs(data))
    manager.load()
    logs = {topic: manager.require(TopicPartition(topic, 0)) for topic in TOPICS}
    now_ms = manager.context.clock.now_ms()
    writers = {topic: Writer(log, rng, now_ms) for topic, log in logs.items()}
    fill(writers, rng, epochs - 1, turns=30)
    for log in logs.values():
        log.update_high_watermark(log.log_end_offset)
    manager.context.scheduler.run_due()
    manager.checkpoint_recovery_points()
    manager.checkpoint_high_watermarks()
    fill(writers, rng, epochs, turns=30)
    writers[TRANSACTIONS].close_transactions()
    assert all(len(log.segments) > 3 for log in logs.values())
    if in_order:
        for log in logs.values():
            log.update_high_watermark(log.log_end_offset)
        manager.shutdown()
    else:
        for log in logs.values():
            log.close_handlers()
        for directory in manager.directories:
            directory.release()
        with logs[TORN].active.path.open("ab") as file:
            file.write(build_batch([Record(0, now_ms, b"k", b"v" * 500)], base_offset=0)[:300])
    kafka.start_without_cleaning()
    for topic, writer in writers.items():
        for isolation, level in (
            (Isolation.HIGH_WATERMARK, "read_uncommitted"),
            (Isolation.TXN_COMMITTED, "read_committed"),
        ):
            assert consume(kafka, topic, level) == sorted(writer.seen[isolation]), (topic, level)
    assert complaints(kafka) == []
    kafka.stop()


def user_files(data: Path, topics: Sequence[str]) -> dict[str, bytes]:
    """The files of segments, of these topics' logs."""
    kinds = {".log", ".index", ".timeindex", ".txnindex", ".snapshot"}
    return {
        f"{topic}/{path.name}": path.read_bytes()
        for topic in topics
        for path in (data / f"{topic}-0").iterdir()
        if path.suffix in kinds
    }


def test_cordwood_recovers_what_a_killed_kafka_left_as_kafka_itself_does(
    kafka: RealKafka, tmp_path: Path
) -> None:
    kafka.start_without_cleaning()
    work = Workload(kafka, SEED)
    work.create(TOPICS)
    for topic, codec in CODEC_TOPICS.items():
        work.fill(topic, 600, headers=True, settings={"compression.type": codec.config_name})
    work.fill(EPOCHS, 300, settings={"enable.idempotence": True})
    work.transactions(TRANSACTIONS, 40)
    work.fill(TORN, 400)
    kafka.kill()
    data = kafka.log_dirs[0]
    with sorted((data / f"{TORN}-0").glob("*.log"))[-1].open("ab") as file:
        file.write(bytes(100))
    copy = tmp_path / "copy"
    shutil.copytree(data, copy)
    (copy / ".lock").unlink(missing_ok=True)

    kafka.start_without_cleaning()
    expected = {
        (topic, level): consume(kafka, topic, level)
        for topic in TOPICS
        for level in ("read_uncommitted", "read_committed")
    }
    kafka.stop()

    newest = max(seen[1] for records in expected.values() for seen in records)
    context = LogContext(clock=ManualClock(newest + 1000))
    manager = LogManager([copy], topic_config=topic_configs(copy), context=context)
    manager.load()
    for topic in TOPICS:
        log = manager.require(TopicPartition(topic, 0))
        log.update_high_watermark(log.log_end_offset)
        for isolation, level in (
            (Isolation.HIGH_WATERMARK, "read_uncommitted"),
            (Isolation.TXN_COMMITTED, "read_committed"),
        ):
            assert read_all(log, isolation) == expected[topic, level], (topic, level)
    manager.shutdown()
    ours, kafkas = user_files(copy, list(TOPICS)), user_files(data, list(TOPICS))
    assert len(kafkas) > 100
    assert [
        name for name in sorted(ours.keys() | kafkas.keys()) if ours.get(name) != kafkas.get(name)
    ] == []
