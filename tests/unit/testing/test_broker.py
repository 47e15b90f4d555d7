"""A broker inside a test: its start and end."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from cordwood.broker.server import PortInUseError
from cordwood.cleanup.cleaner_manager import CleanerManager
from cordwood.cleanup.spark_process import Backoff, SparkProcess
from cordwood.model.errors import NotCompactedError
from cordwood.model.topic_partition import TopicPartition
from cordwood.node import EngineFactory
from cordwood.testing.broker import RunningBroker
from cordwood.testing.in_process_engine import ManagedInProcessEngine
from cordwood.testing.no_engine import NoEngine

_NEVER = Backoff(3600.0, 3600.0)


def test_a_broker_that_cannot_start_leaves_no_directory_behind() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        broker = RunningBroker(port=taken.getsockname()[1], engine=NoEngine)
        with pytest.raises(PortInUseError):
            broker.start()
    assert not broker.log_dir.exists()
    broker.stop()


# ---- advance


def failing_spark() -> SparkProcess:
    return SparkProcess(module="cordwood.testing.stand_in_child", unavailable=_NEVER, died=_NEVER)


def create(broker: RunningBroker, *topics: NewTopic) -> None:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    for created in admin.create_topics(list(topics)).values():
        created.result()


def due_for_compaction(broker: RunningBroker, *topics: str) -> None:
    """Creates compacted topics of which all but the active segment is dirty."""
    config = {
        "cleanup.policy": "compact",
        "segment.ms": "60000",
        "min.cleanable.dirty.ratio": "0.01",
        "message.timestamp.type": "LogAppendTime",
    }
    servers = {"bootstrap.servers": broker.bootstrap_servers}
    create(broker, *[NewTopic(topic, 1, 1, config=config) for topic in topics])
    producer = Producer(servers | {"log_level": "0"})
    for value in (b"1", b"2", b"3"):
        for topic in topics:
            producer.produce(topic, value, key=b"k")
        assert producer.flush(30) == 0
        broker.advance(minutes=2, compact=False)


@pytest.mark.parametrize(
    ("how_spark_fails", "reason"),
    [("unavailable", "there is no Java"), ("dies at start", "a bad start")],
)
def test_advance_raises_where_spark_fails_and_names_the_partitions_that_are_due(
    how_spark_fails: str, reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STAND_IN", how_spark_fails)
    properties = {"log.cleaner.backoff.ms": "3600000000"}
    with RunningBroker(properties, engine=failing_spark) as broker:
        due_for_compaction(broker, "orders", "users")
        files = broker.files("orders-0")
        ahead_ms = broker.clock.ahead_ms
        with pytest.raises(NotCompactedError) as raised:
            broker.advance(hours=1)
        assert set(raised.value.reasons) == {"orders-0", "users-0"}
        assert all(reason in why for why in raised.value.reasons.values())
        assert "2 partitions are due for compaction" in str(raised.value)
        assert "compact=False" in str(raised.value)
        assert broker.files("orders-0") == files
        assert broker.clock.ahead_ms == ahead_ms + 3_600_000
        broker.advance(hours=1, compact=False)


@pytest.mark.parametrize("engine", [NoEngine, failing_spark])
def test_advance_needs_no_engine_where_nothing_is_due_for_compaction(
    engine: EngineFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STAND_IN", "unavailable")
    with RunningBroker({"log.retention.ms": "1000"}, engine=engine) as broker:
        create(broker, NewTopic("orders", 1, 1, config={"cleanup.policy": "compact"}))
        broker.advance(days=7)


def test_what_is_due_beside_compaction_is_done_before_advance_raises() -> None:
    with RunningBroker(engine=NoEngine) as broker:
        due_for_compaction(broker, "orders")
        servers = {"bootstrap.servers": broker.bootstrap_servers}
        config = {"retention.ms": "1000", "message.timestamp.type": "LogAppendTime"}
        create(broker, NewTopic("events", 1, 1, config=config))
        producer = Producer(servers | {"log_level": "0"})
        producer.produce("events", b"v")
        assert producer.flush(30) == 0
        with pytest.raises(NotCompactedError):
            broker.advance(hours=1)
        log = broker.broker.logs.require(TopicPartition("events", 0))
        assert log.log_start_offset == 1


def test_advance_raises_for_a_partition_that_an_earlier_failure_set_aside() -> None:
    properties = {"log.cleaner.backoff.ms": "3600000000"}
    with RunningBroker(properties, engine=ManagedInProcessEngine) as broker:
        due_for_compaction(broker, "orders", "users")
        manager: CleanerManager = broker.broker.cleaner.manager
        log = broker.broker.logs.require(TopicPartition("orders", 0))
        manager.mark_uncleanable(log, "a bad batch at byte 0")
        with pytest.raises(NotCompactedError) as raised:
            broker.advance(milliseconds=1)
        assert raised.value.reasons == {"orders-0": "compaction failed: a bad batch at byte 0"}


def test_advance_returns_when_everything_due_is_compacted(tmp_path: Path) -> None:
    with RunningBroker(log_dir=tmp_path, engine=ManagedInProcessEngine) as broker:
        due_for_compaction(broker, "orders")
        broker.advance(milliseconds=1)
        checkpoint = (tmp_path / "cleaner-offset-checkpoint").read_text()
        assert "orders 0 " in checkpoint
