"""Topics that were written while a real Kafka was stopped, served by it afterwards."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import pyarrow as pa
import pytest
from confluent_kafka import Message, Producer
from confluent_kafka.admin import AdminClient, ConfigResource, NewTopic, ResourceType

from cordwood.client.partitioner import partition_of
from cordwood.format.file_names import BOOTSTRAP_CHECKPOINT, CLUSTER_METADATA_DIR
from support.kafka import CLUSTER_ID, RealKafka
from support.kafka_programs import KAFKA_4_3, KAFKA_VERSIONS, kafka_tool
from support.kafka_tools import KafkaTools
from support.ports import free_port
from support.reading import read_partition
from support.written_topics import HEADERS, rows, write

pytestmark = pytest.mark.kafka

PARTITIONS: Final = 3
CODECS: Final = ("uncompressed", "gzip", "snappy", "lz4", "zstd")
COUNT: Final = 2000
FIRST_MS: Final = 1_600_000_000_000

Row = tuple[bytes | None, bytes | None, int, tuple[tuple[str, bytes | None], ...]]


def row(number: int) -> Row:
    """A row by its number: some have no value, some no headers."""
    key = b"key-%d" % (number % 97)
    value = None if number % 11 == 0 else b"value-%d" % number
    headers = () if number % 3 else (("n", b"%d" % number), ("none", None))
    return key, value, FIRST_MS + number, headers


ROWS: Final = [row(number) for number in range(COUNT)]


def batch(first: int, last: int) -> pa.RecordBatch:
    chosen = ROWS[first:last]
    headers = [[{"key": k, "value": v} for k, v in each[3]] for each in chosen]
    times = [each[2] * 1000 for each in chosen]
    return rows(
        [each[:2] for each in chosen],
        headers=pa.array(headers, HEADERS),
        timestamp=pa.array(times, pa.timestamp("us", tz="UTC")),
    )


def tasks() -> list[list[pa.RecordBatch]]:
    return [[batch(0, 900), batch(900, 1000)], [], [batch(1000, COUNT)]]


def expected(partition: int) -> list[Row]:
    return [each for each in ROWS if partition_of(each[0] or b"", PARTITIONS) == partition]


def as_row(message: Message) -> Row:
    _, timestamp = message.timestamp()
    return message.key(), message.value(), timestamp, tuple(message.headers() or ())


def require_rows(kafka: RealKafka, topic: str, *, times: int = 1, before: int = 0) -> None:
    """Checks what a stock consumer gets of each partition, behind the first `before` records."""
    for number in range(PARTITIONS):
        messages = read_partition(kafka.client(), topic, number).messages
        assert [each.offset() for each in messages] == list(range(len(messages)))
        skipped = before if number == 0 else 0
        assert [as_row(each) for each in messages[skipped:]] == expected(number) * times


def require_valid(tools: KafkaTools, log_dir: Path, topic: str) -> None:
    """Has kafka-dump-log read all files of a topic."""
    logs = [str(path) for path in sorted(log_dir.glob(f"{topic}-*/*.log"))]
    done = tools.run("dump-log", "--deep-iteration", "--files", ",".join(logs))
    assert done.code == 0, done.err
    found = [line for line in done.out.splitlines() if line.startswith("baseOffset:")]
    assert len(found) >= PARTITIONS
    assert all("isvalid: true" in line for line in found)
    indexes = [str(path) for path in sorted(log_dir.glob(f"{topic}-*/*index"))]
    done = tools.run("dump-log", "--index-sanity-check", "--files", ",".join(indexes))
    assert done.code == 0, done.err
    assert "corrupt" not in (done.out + done.err).lower()


@pytest.mark.usefixtures("kafka_jars", "kafka_4_4_jars")
@pytest.mark.parametrize(
    "version",
    [
        each if each == KAFKA_4_3 else pytest.param(each, marks=pytest.mark.nightly)
        for each in KAFKA_VERSIONS
    ],
)
def test_kafka_serves_topics_that_were_made_and_appended_to_while_it_was_stopped(
    tmp_path: Path, tools: KafkaTools, version: str
) -> None:
    with RealKafka(tmp_path / "kafka", version=version) as kafka:
        admin = kafka.start()
        log_dir = kafka.log_dirs[0]
        forever = {"retention.ms": "-1"}
        new = [NewTopic(topic, PARTITIONS, 1, config=forever) for topic in ("there", "theirs")]
        for done in admin.create_topics(new).values():
            done.result(120)
        producer = Producer(kafka.client({"enable.idempotence": True}))
        for _ in range(5):
            producer.produce("there", key=b"k", value=b"first", partition=0)
        assert producer.flush(120) == 0
        # The partitions that Java's producer chooses.
        lines = b"".join(b"%s:%d\n" % (each[0] or b"", n) for n, each in enumerate(ROWS[:97]))
        at = ("--bootstrap-server", kafka.bootstrap_servers, "--topic", "theirs")
        parsed = ("--reader-property", "parse.key=true", "--reader-property", "key.separator=:")
        produced = tools.run("console-producer", *at, *parsed, stdin=lines)
        assert produced.code == 0, produced.err
        theirs = {
            message.key(): number
            for number in range(PARTITIONS)
            for message in read_partition(kafka.client(), "theirs", number).messages
        }
        assert theirs == {each[0]: partition_of(each[0] or b"", PARTITIONS) for each in ROWS[:97]}
        kafka.stop()

        made = [f"made-{codec}" for codec in CODECS]
        for codec, topic in zip(CODECS, made, strict=True):
            settings = {"compression_type": codec, "retention_ms": "-1", "batchBytes": "5000"}
            write(log_dir, *tasks(), topic=topic, partitions=str(PARTITIONS), **settings)
        write(log_dir, *tasks(), topic="there", batchBytes="5000")
        for topic in (*made, "there"):
            require_valid(tools, log_dir, topic)

        admin = kafka.start()
        for topic in made:
            require_rows(kafka, topic)
        require_rows(kafka, "there", before=5)
        resource = ConfigResource(ResourceType.TOPIC, "made-zstd")
        found = admin.describe_configs([resource])[resource].result(120)
        assert found["compression.type"].value == "zstd"
        assert kafka.errors_since_start == []
        producer = Producer(kafka.client({"enable.idempotence": True}))
        producer.produce("made-zstd", key=b"k", value=b"last", partition=0)
        assert producer.flush(120) == 0
        # All is recovered after a kill, and is the same.
        kafka.kill()
        (log_dir / "recovery-point-offset-checkpoint").unlink()
        kafka.start()
        require_rows(kafka, "made-lz4")
        require_rows(kafka, "there", before=5)
        kafka.stop()
        write(log_dir, *tasks(), topic="made-lz4")
        kafka.start()
        require_rows(kafka, "made-lz4", times=2)
        kafka.stop()
    assert not [path.name for path in log_dir.iterdir() if "stray" in path.name]


@pytest.mark.usefixtures("kafka_jars")
def test_kafka_makes_a_topic_that_was_written_before_its_first_start(tmp_path: Path) -> None:
    log_dir = tmp_path / "data"
    port = free_port()
    config = tmp_path / "format.properties"
    config.write_text(
        "process.roles=broker,controller\nnode.id=1\ncontroller.listener.names=CONTROLLER\n"
        f"controller.quorum.voters=1@127.0.0.1:{port}\nlog.dirs={log_dir}\n"
        f"listeners=PLAINTEXT://127.0.0.1:{free_port()},CONTROLLER://127.0.0.1:{port}\n"
    )
    done = kafka_tool("storage", "format", "-t", CLUSTER_ID, "-c", str(config))
    assert done.returncode == 0, done.stderr
    assert (log_dir / BOOTSTRAP_CHECKPOINT).exists()
    assert not (log_dir / CLUSTER_METADATA_DIR).exists()
    settings = {"compression_type": "lz4", "retention_ms": "-1"}
    write(log_dir, *tasks(), partitions=str(PARTITIONS), **settings)
    with RealKafka(tmp_path / "kafka", log_dirs=[log_dir]) as kafka:
        admin: AdminClient = kafka.start()
        require_rows(kafka, "orders")
        resource = ConfigResource(ResourceType.TOPIC, "orders")
        found = admin.describe_configs([resource])[resource].result(120)
        assert found["compression.type"].value == "lz4"
        kafka.stop()
