"""A stream of the directory of a Kafka that is written to, beside a consumer of that Kafka."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import pytest
from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition
from pyspark.sql import DataFrame, SparkSession

from cordwood.frames.data_source import register
from cordwood.frames.options import parse_options
from cordwood.frames.streaming.stream import RecordStream
from cordwood.frames.streaming.stream_options import parse_stream_options
from cordwood.model.errors import DataLossError
from support.kafka import RealKafka, poll_until
from support.workload import Workload

pytestmark = [pytest.mark.kafka, pytest.mark.usefixtures("kafka_jars")]

_PROPERTIES: Final = {"replica.high.watermark.checkpoint.interval.ms": "100"}
_PARTITIONS: Final = 2
_TOPICS: Final = ("plain", "transactions", "later")
_WAIT_S: Final = 180

#: (topic, partition, offset, value)
Row = tuple[str, int, int, bytes]


@pytest.fixture(scope="module")
def spark() -> Iterator[SparkSession]:
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("PYSPARK_PYTHON", sys.executable)
        session = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
        started = session.getOrCreate()
        register(started)
        yield started
        started.stop()


class Stream:
    """A query over the directory, which is stopped and started again from its checkpoint."""

    def __init__(
        self, spark: SparkSession, log_dir: Path, checkpoint: Path, topics: Sequence[str]
    ) -> None:
        self._spark = spark
        self._topics = topics
        self._log_dir = log_dir
        self._checkpoint = checkpoint
        self._batches: dict[int, list[Row]] = {}
        self.query = self._start()

    def _start(self) -> Any:
        frame = (
            self._spark.readStream.format("cordwood")
            .option("topics", ",".join(self._topics))
            .option("columns", "topic,partition,offset,value")
            .option("isolation", "read_committed")
            .option("startingOffsets", "earliest")
            .option("maxOffsetsPerTrigger", "150")
            .load(str(self._log_dir))
        )
        writer = frame.writeStream.foreachBatch(self._take)
        return writer.option("checkpointLocation", str(self._checkpoint)).start()

    def _take(self, frame: DataFrame, batch: int) -> None:
        rows = [
            (row.topic, row.partition, row.offset, bytes(row.value or b""))
            for row in frame.collect()
        ]
        self._batches[batch] = rows

    def restart(self) -> None:
        """Stops the query wherever it is, and starts another."""
        self.query.stop()
        self.query = self._start()

    @property
    def batches(self) -> int:
        """The number of batches that were read."""
        return len(self._batches)

    def rows(self) -> list[Row]:
        """The rows of all batches, each as it was read last, after all that is there was read."""
        self.query.processAllAvailable()
        return sorted(row for batch in self._batches.values() for row in batch)


def consumed(kafka: RealKafka, topics: Sequence[str]) -> tuple[list[Row], dict[str, int]]:
    """The committed records of topics, as a consumer gets them, and the ends of the logs."""
    consumer = Consumer(
        kafka.client(
            {
                "group.id": "none",
                "isolation.level": "read_committed",
                "enable.auto.commit": False,
                "enable.partition.eof": True,
                "auto.offset.reset": "earliest",
            }
        )
    )
    partitions = [
        TopicPartition(topic, number, 0) for topic in topics for number in range(_PARTITIONS)
    ]
    consumer.assign(partitions)
    rows: list[Row] = []
    ended = 0
    try:
        ends = {
            f"{each.topic}-{each.partition}": consumer.get_watermark_offsets(each, _WAIT_S)[1]
            for each in partitions
        }
        while ended < len(partitions):
            message = consumer.poll(_WAIT_S)
            assert message is not None, "a consumer waits in vain"
            error = message.error()
            if error is not None:
                assert error.code() == KafkaError._PARTITION_EOF, error
                ended += 1
            else:
                place = message.topic(), message.partition(), message.offset()
                rows.append((*place, message.value() or b""))
    finally:
        consumer.close()
    return sorted(rows), ends


def has_checkpointed(kafka: RealKafka, ends: dict[str, int]) -> bool:
    """Whether the checkpoint has these high watermarks."""
    found = kafka.checkpoint("replication-offset-checkpoint")
    return found | ends == found


def test_records_and_topics_that_are_deleted_at_kafka_are_losses(tmp_path: Path) -> None:
    properties = {
        **_PROPERTIES,
        "log.flush.start.offset.checkpoint.interval.ms": "100",
        "log.initial.task.delay.ms": "100",
    }
    with RealKafka(tmp_path / "kafka", properties=properties) as kafka:
        admin = kafka.start()
        work = Workload(kafka, seed=1)
        work.create({"plain": {}})
        work.fill("plain", 20)
        (log_dir,) = kafka.log_dirs
        given = {"path": str(log_dir), "topics": "plain", "startingOffsets": "earliest"}
        stream = RecordStream(parse_options(given), parse_stream_options(given))
        first = stream.first()
        poll_until(
            lambda: has_checkpointed(kafka, {"plain-0": 20}), timeout_s=_WAIT_S, what="20 records"
        )
        read = stream.latest(first, is_limited=True)
        assert read["plain"].offsets == {0: 20}
        deleted = admin.delete_records([TopicPartition("plain", 0, 7)])
        assert [each.result().low_watermark for each in deleted.values()] == [7]
        poll_until(
            lambda: kafka.checkpoint("log-start-offset-checkpoint").get("plain-0") == 7,
            timeout_s=_WAIT_S,
            what="a log start offset",
        )
        with pytest.raises(DataLossError, match="plain-0: the stream is at offset 0, and the log"):
            stream.latest(first, is_limited=True)
        assert stream.latest(read, is_limited=True) == read
        admin.delete_topics(["plain"])["plain"].result()
        poll_until(
            lambda: not (log_dir / "plain-0").exists(), timeout_s=_WAIT_S, what="a deleted topic"
        )
        with pytest.raises(DataLossError, match=r"plain-0: .* it is not there any more"):
            stream.latest(read, is_limited=True)
        work.create({"plain": {}})
        work.fill("plain", 30)
        with pytest.raises(DataLossError, match=f"its id was {read['plain'].topic_id} and is "):
            stream.latest(read, is_limited=True)


@pytest.mark.spark
def test_a_stream_has_each_committed_record_once_while_kafka_writes_and_queries_restart(
    spark: SparkSession, tmp_path: Path
) -> None:
    with RealKafka(tmp_path / "kafka", properties=_PROPERTIES) as kafka:
        kafka.start_without_cleaning()
        work = Workload(kafka, seed=1)
        segments = {"internal.segment.bytes": "16384"}
        work.create({"plain": segments, "transactions": segments}, partitions=_PARTITIONS)
        plain = work.producer()
        transactional = Producer(kafka.client({"transactional.id": "one"}))
        transactional.init_transactions(_WAIT_S)
        stream = Stream(spark, kafka.log_dirs[0], tmp_path / "checkpoint", _TOPICS)
        try:
            for step in range(12):
                transactional.begin_transaction()
                for number in range(60):
                    value = work.value(100, length_min=50)
                    transactional.produce("transactions", value, partition=number % _PARTITIONS)
                    work.send(plain, "plain", value, partition=number % _PARTITIONS)
                work.flush(plain)
                assert transactional.flush(_WAIT_S) == 0
                if step == 4:
                    work.create({"later": segments}, partitions=_PARTITIONS)
                if step > 4:
                    work.fill("later", 30)
                if step % 4 == 3:
                    stream.restart()
                if step % 3 == 1:
                    transactional.abort_transaction(_WAIT_S)
                else:
                    transactional.commit_transaction(_WAIT_S)
            expected, ends = consumed(kafka, _TOPICS)
            poll_until(
                lambda: has_checkpointed(kafka, ends),
                timeout_s=_WAIT_S,
                what="a checkpoint of high watermarks",
            )
            assert stream.rows() == expected
        finally:
            stream.query.stop()
        by_topic = Counter(row[0] for row in expected)
        assert by_topic == {"plain": 720, "transactions": 480, "later": 210}
        assert stream.batches > len(expected) // 150


@pytest.mark.spark
def test_a_stream_of_a_topic_that_kafka_compacts_has_what_is_left_and_no_record_twice(
    spark: SparkSession, tmp_path: Path
) -> None:
    topic = "compacted"
    with RealKafka(tmp_path / "kafka", properties=_PROPERTIES) as kafka:
        kafka.start_cleaning()
        work = Workload(kafka, seed=2)
        config = {
            "cleanup.policy": "compact",
            "min.cleanable.dirty.ratio": "0.01",
            "internal.segment.bytes": "16384",
        }
        work.create({topic: config}, partitions=_PARTITIONS)
        stream = Stream(spark, kafka.log_dirs[0], tmp_path / "checkpoint", [topic])
        try:
            for _ in range(20):
                work.fill(topic, 500, keys=50)
            _, ends = consumed(kafka, [topic])
            poll_until(
                lambda: has_checkpointed(kafka, ends), timeout_s=_WAIT_S, what="high watermarks"
            )
            rows = stream.rows()
            left, _ = consumed(kafka, [topic])
        finally:
            stream.query.stop()
    places = Counter(row[:3] for row in rows)
    assert set(places.values()) == {1}
    assert set(left) <= set(rows)
    assert len(left) < 10_000
