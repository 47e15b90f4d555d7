"""Topics that were written while their broker was stopped, served by it afterwards."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, ConfigResource, NewTopic, ResourceType

from cordwood.client.partitioner import partition_of
from cordwood.format.file_names import BOOTSTRAP_CHECKPOINT, CLEAN_SHUTDOWN
from cordwood.metadata.formatting import format_directories
from cordwood.model.errors import TopicWriteError
from cordwood.testing.broker import RunningBroker
from cordwood.testing.manual_clock import ManualClock
from support.reading import read_partition
from support.written_topics import planned, rows, write

PAIRS = [(b"k%d" % number, b"v%d" % number) for number in range(300)]
Pair = tuple[bytes | None, bytes | None]


def read(broker: RunningBroker, topic: str, partition: int) -> list[tuple[int, *Pair]]:
    client = {"bootstrap.servers": broker.bootstrap_servers}
    messages = read_partition(client, topic, partition).messages
    return [(each.offset(), each.key(), each.value()) for each in messages]


def expected(partition: int, partitions: int) -> list[Pair]:
    return [pair for pair in PAIRS if partition_of(pair[0], partitions) == partition]


def test_rows_follow_what_a_broker_has_and_it_goes_on_behind_them(tmp_path: Path) -> None:
    with RunningBroker(log_dir=tmp_path) as broker:
        client = {"bootstrap.servers": broker.bootstrap_servers}
        admin = AdminClient(client)
        new = NewTopic("orders", 2, 1, config={"compression.type": "lz4", "retention.ms": "-1"})
        admin.create_topics([new])["orders"].result(60)
        producer = Producer(client | {"enable.idempotence": True})
        producer.produce("orders", key=b"k", value=b"first", partition=0)
        assert producer.flush(60) == 0
    write(tmp_path, [rows(PAIRS[:100])], [rows(PAIRS[100:])])
    with RunningBroker(log_dir=tmp_path) as broker:
        zero, one = read(broker, "orders", 0), read(broker, "orders", 1)
        assert [pair[1:] for pair in zero] == [(b"k", b"first"), *expected(0, 2)]
        assert [pair[1:] for pair in one] == expected(1, 2)
        producer = Producer({"bootstrap.servers": broker.bootstrap_servers})
        producer.produce("orders", key=b"k", value=b"last", partition=0)
        assert producer.flush(60) == 0
        assert read(broker, "orders", 0) == [*zero, (len(zero), b"k", b"last")]
    # Recovered, it is the same.
    (tmp_path / CLEAN_SHUTDOWN).unlink()
    with pytest.raises(TopicWriteError, match="has not stopped cleanly"):
        planned(tmp_path)
    (tmp_path / "recovery-point-offset-checkpoint").unlink()
    with RunningBroker(log_dir=tmp_path) as broker:
        assert read(broker, "orders", 1) == one


def test_a_topic_is_made_in_the_metadata_log_of_a_stopped_node(tmp_path: Path) -> None:
    with RunningBroker(log_dir=tmp_path):
        pass
    write(tmp_path, [rows(PAIRS)], partitions="3", compression_type="zstd", retention_ms="-1")
    write(tmp_path, [], topic="empty", partitions="1")
    with RunningBroker(log_dir=tmp_path) as broker:
        admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
        topics = admin.list_topics(timeout=60).topics
        assert {name: len(topic.partitions) for name, topic in topics.items()} == {
            "orders": 3,
            "empty": 1,
        }
        resource = ConfigResource(ResourceType.TOPIC, "orders")
        settings = admin.describe_configs([resource])[resource].result(60)
        assert settings["compression.type"].value == "zstd"
        for number in range(3):
            found = read(broker, "orders", number)
            assert [pair[1:] for pair in found] == expected(number, 3)
            assert [pair[0] for pair in found] == list(range(len(found)))
        assert read(broker, "empty", 0) == []
    write(tmp_path, [rows(PAIRS)])
    with RunningBroker(log_dir=tmp_path) as broker:
        assert [pair[1:] for pair in read(broker, "orders", 2)] == expected(2, 3) * 2
    assert not [path.name for path in tmp_path.iterdir() if "stray" in path.name]


def test_a_topic_is_made_in_a_directory_that_no_broker_has_opened(tmp_path: Path) -> None:
    format_directories(
        [tmp_path],
        node_id=1,
        cluster_id="c2Vjb25kLWNsdXN0ZXItMQ",
        clock=ManualClock(),
        controller_endpoints=[],
    )
    if not (tmp_path / BOOTSTRAP_CHECKPOINT).exists():
        with pytest.raises(TopicWriteError, match="no topic can be made here"):
            planned(tmp_path)
        return
    times = pa.array([1_600_000_000_000_000] * len(PAIRS), pa.timestamp("us", tz="UTC"))
    write(tmp_path, [rows(PAIRS, timestamp=times)], partitions="1", retention_ms="-1")
    with RunningBroker(log_dir=tmp_path) as broker:
        assert [pair[1:] for pair in read(broker, "orders", 0)] == PAIRS
