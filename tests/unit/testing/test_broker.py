"""A broker inside a test: its start and end."""

from __future__ import annotations

import asyncio
import errno
import gc
import os
import re
import shutil
import socket
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from cordwood.cleanup.engine.spark_process import Backoff, SparkProcess
from cordwood.cleanup.schedule.cleaner_manager import CleanerManager
from cordwood.cleanup.schedule.log_cleaner import ManagedEngine
from cordwood.cleanup.schedule.retention_pass import retention_pass
from cordwood.configs.server_properties import SINGLE_BROKER_DEFAULTS, BrokerSettings
from cordwood.model.clock import SystemClock
from cordwood.model.errors import (
    ConfigError,
    CordwoodError,
    DirectoryInUseError,
    EngineError,
    NotCompactedError,
    UnknownSettingError,
)
from cordwood.model.topic_partition import TopicPartition
from cordwood.node.node import EngineFactory, Node
from cordwood.serving import event_loop
from cordwood.serving.transport import PortInUseError
from cordwood.testing.broker import RunningBroker, UnknownPartitionError
from cordwood.testing.setting_text import SettingValue, setting_text
from cordwood.testing.simulated_filesystem import FileOperation, SimulatedFileSystem
from support.in_process_engine import CompiledEngine
from support.no_engine import NoEngine

_NEVER = Backoff(3600.0, 3600.0)


# ---- what a start that fails leaves behind


class _Traces:
    """Traces of a broker in this process: threads, descriptors, files, global settings.

    Threads and descriptors of an earlier test may still end: fewer are no fault.
    """

    def __init__(self, temporary: Path) -> None:
        self._temporary = temporary
        self._things, self._settings = self._things_now(), self._settings_now()

    def left(self) -> list[str]:
        """Things that were not there at the beginning."""
        found = sorted(self._things_now() - self._things)
        settings = self._settings_now()
        return found if settings == self._settings else [*found, settings]

    def _things_now(self) -> set[str]:
        return {
            *(f"thread {thread.name}" for thread in threading.enumerate()),
            *(f"descriptor {each}" for each in self._descriptors()),
            *(f"file {path}" for path in self._temporary.iterdir()),
        }

    @staticmethod
    def _settings_now() -> str:
        collection = gc.get_threshold(), gc.isenabled()
        return f"switch interval {sys.getswitchinterval()}, garbage collection {collection}"

    @staticmethod
    def _descriptors() -> Iterator[str]:
        for entry in Path("/proc/self/fd").iterdir():
            with suppress(FileNotFoundError):  # the one that lists the directory
                yield f"{entry.name} {entry.readlink()}"


@pytest.fixture
def traces(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> _Traces:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    for thread in threading.enumerate():
        if thread.name == "load-record-walk":  # it opens files
            thread.join()
    with RunningBroker(engine=NoEngine):
        pass  # what is imported and cached once is no trace of a failed start
    return _Traces(tmp_path)


def _refuse() -> ManagedEngine:
    raise EngineError("no engine today")


@pytest.mark.parametrize(
    ("name", "value", "error"),
    [
        ("log.retention.ms", "soon", "Invalid value soon for configuration log.retention.ms"),
        ("sasl.enabled.mechanisms", ["PLAIN"], "clients are not authenticated"),
        ("log.retention.ms", None, "log.retention.ms=None: a setting's value is a str, int"),
        ("log.retention.ms", {"days": 7}, "not dict"),
        ("log.dirs", b"/tmp", "not bytes"),
    ],
)
def test_a_setting_that_is_refused_leaves_nothing(
    traces: _Traces, name: str, value: Any, error: str
) -> None:
    with pytest.raises(ConfigError, match=re.escape(error)):
        RunningBroker({name: value})
    assert traces.left() == []


def test_a_broker_that_was_not_started_leaves_nothing(traces: _Traces) -> None:
    broker = RunningBroker()
    assert not broker.log_dir.exists()
    broker.stop()
    assert traces.left() == []


def test_the_garbage_collector_is_that_of_the_process_it_runs_in() -> None:
    # `cordwood serve` sets it for a broker: a look at all objects, a second in a large process.
    looks = sum(each["collections"] for each in gc.get_stats()[2:])
    gc.disable()
    try:
        frozen, threshold = gc.get_freeze_count(), gc.get_threshold()
        with RunningBroker(engine=NoEngine):
            assert gc.get_freeze_count() <= frozen
            assert gc.get_threshold() == threshold
        assert sum(each["collections"] for each in gc.get_stats()[2:]) == looks
    finally:
        gc.enable()


def test_a_broker_that_was_not_started_says_how_to_start_it() -> None:
    broker = RunningBroker()
    with pytest.raises(RuntimeError, match=r"not started: use it in a `with` statement"):
        _ = broker.bootstrap_servers
    with pytest.raises(RuntimeError, match="not started"):
        broker.advance(days=1)


def test_settings_that_nothing_asks_for_are_refused_with_the_right_names() -> None:
    wrong: dict[str, SettingValue] = {
        "log.retenton.hours": 1,
        "auto.create.topic.enable": False,
        "foo.bar": "x",
    }
    with pytest.raises(UnknownSettingError) as refused:
        RunningBroker(wrong)
    assert refused.value.names == tuple(wrong)
    assert "log.retenton.hours: did you mean log.retention.hours?" in str(refused.value)
    assert "auto.create.topic.enable: did you mean auto.create.topics.enable?" in str(refused.value)
    assert "foo.bar: neither Kafka 4.4 nor Cordwood has a setting" in str(refused.value)


def test_a_port_that_is_taken_leaves_nothing(traces: _Traces) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        broker = RunningBroker(port=taken.getsockname()[1], engine=NoEngine)
        with pytest.raises(PortInUseError):
            broker.start()
    assert not broker.log_dir.exists()
    broker.stop()
    assert traces.left() == []


def test_a_start_that_finds_its_port_taken_leaves_the_marks_of_the_last_stop(
    tmp_path: Path,
) -> None:
    with RunningBroker(log_dir=tmp_path, engine=NoEngine):
        pass
    mark = (tmp_path / ".kafka_cleanshutdown").read_bytes()
    with socket.create_server(("127.0.0.1", 0)) as taken:
        broker = RunningBroker(log_dir=tmp_path, engine=NoEngine, port=taken.getsockname()[1])
        with pytest.raises(PortInUseError):
            broker.start()
    assert (tmp_path / ".kafka_cleanshutdown").read_bytes() == mark


def test_an_engine_that_cannot_be_made_leaves_nothing(traces: _Traces) -> None:
    with pytest.raises(EngineError, match="no engine today"):
        RunningBroker(engine=_refuse).start()
    assert traces.left() == []


def test_a_directory_in_use_leaves_nothing(traces: _Traces, tmp_path: Path) -> None:
    with RunningBroker(log_dir=tmp_path / "logs", engine=NoEngine) as first:
        with pytest.raises(DirectoryInUseError):
            RunningBroker(log_dir=first.log_dir, engine=NoEngine).start()
        assert first.call(lambda broker: broker.node_id) >= 0, "the first serves on"
    shutil.rmtree(first.log_dir)
    assert traces.left() == []


def _operations_of_a_start() -> int:
    fs = SimulatedFileSystem(SystemClock())
    count = 0

    def note(_: FileOperation) -> None:
        nonlocal count
        count += 1

    fs.fail = note
    with RunningBroker(log_dir=Path("/logs"), engine=NoEngine, fs=fs):
        return count


def _failing_from(step: int) -> SimulatedFileSystem:
    fs = SimulatedFileSystem(SystemClock())
    left = step

    def fail(operation: FileOperation) -> OSError | None:
        nonlocal left
        left -= 1
        return None if left >= 0 else OSError(errno.EIO, os.strerror(errno.EIO), operation.path)

    fs.fail = fail
    return fs


def test_a_file_that_fails_at_any_step_of_the_start_leaves_nothing(traces: _Traces) -> None:
    steps = _operations_of_a_start()
    assert steps > 30
    failed = 0
    for step in range(steps):
        fs = _failing_from(step)
        broker = RunningBroker(log_dir=Path("/logs"), engine=NoEngine, fs=fs)
        try:
            broker.start()
        except (CordwoodError, OSError):
            failed += 1
        finally:
            broker.stop()
        assert traces.left() == [], f"after a failure at step {step}"
    assert failed > steps // 2


def test_a_stop_while_it_starts_gives_the_start_up(traces: _Traces) -> None:
    fs = SimulatedFileSystem(SystemClock())
    reached, go_on = threading.Event(), threading.Event()

    def wait(operation: FileOperation) -> None:
        if operation.path.name == "meta.properties" and not reached.is_set():
            reached.set()
            go_on.wait(120)

    fs.fail = wait
    broker = RunningBroker(log_dir=Path("/logs"), engine=NoEngine, fs=fs)
    errors: list[BaseException] = []

    def start() -> None:
        try:
            broker.start()
        except BaseException as error:
            errors.append(error)

    starter = threading.Thread(target=start)
    starter.start()
    assert reached.wait(120)
    stopper = threading.Thread(target=broker.stop)
    stopper.start()
    assert broker._stop_requested.wait(120)
    go_on.set()
    stopper.join(120)
    starter.join(120)
    assert len(errors) == 1
    assert traces.left() == []


def test_a_start_that_is_cancelled_again_while_it_stops_leaves_nothing(tmp_path: Path) -> None:
    async def cancelled_twice() -> None:
        settings = {**SINGLE_BROKER_DEFAULTS, "log.dirs": str(tmp_path)}
        settings["listeners"] = "PLAINTEXT://127.0.0.1:0"
        node = Node(BrokerSettings(settings, source="test"), engine=NoEngine)
        starting = asyncio.get_running_loop().create_task(node.start())
        while not node.ports:
            await asyncio.sleep(0)
        starting.cancel()
        await asyncio.sleep(0)
        starting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await starting

    event_loop.run(cancelled_twice())
    assert not (tmp_path / ".lock").exists()
    with RunningBroker(log_dir=tmp_path, engine=NoEngine):
        pass


def test_the_first_pass_of_retention_is_over_when_a_start_returns(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    returned = threading.Event()
    was_early = []

    def slow(manager: CleanerManager) -> int:
        was_early.append(returned.wait(0.2))
        return retention_pass(manager)

    monkeypatch.setattr("cordwood.cleanup.schedule.log_cleaner.retention_pass", slow)
    with RunningBroker(engine=NoEngine):
        returned.set()
        assert was_early == [False]


def test_a_broker_is_started_once(tmp_path: Path) -> None:
    with (
        RunningBroker(log_dir=tmp_path, engine=NoEngine) as broker,
        pytest.raises(RuntimeError, match="once"),
    ):
        broker.start()


# ---- settings


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (60_000, "60000"),
        (0.5, "0.5"),
        (True, "true"),
        (False, "false"),
        ("compact,delete", "compact,delete"),
        (["compact", "delete"], "compact,delete"),
        ((Path("/a"), "/b"), "/a,/b"),
        ([], ""),
    ],
)
def test_a_value_becomes_the_text_that_server_properties_would_have(value: Any, text: str) -> None:
    assert setting_text("x", value) == text


def test_settings_are_taken_as_plain_values(tmp_path: Path) -> None:
    properties: dict[str, SettingValue] = {
        "log.retention.ms": 60_000,
        "auto.create.topics.enable": False,
        "log.cleanup.policy": ["compact", "delete"],
        "log.cleaner.min.cleanable.ratio": 0.25,
        "log.dirs": [tmp_path / "a", tmp_path / "b"],
    }
    with RunningBroker(properties, log_dir=tmp_path / "a", engine=NoEngine) as broker:
        settings = broker.node.settings
        assert settings.log_dirs == (str(tmp_path / "a"), str(tmp_path / "b"))
        assert settings.all["log.retention.ms"] == 60_000
        assert settings.all["auto.create.topics.enable"] is False
        config = broker.broker.configs.log_config("")
        assert config.cleanup_policy == {"compact", "delete"}
        assert config.min_cleanable_dirty_ratio == 0.25


def test_a_new_group_does_not_wait_for_more_members_unless_it_is_told_to() -> None:
    delay = "group.initial.rebalance.delay.ms"
    assert RunningBroker().settings.integer(delay) == 0
    assert RunningBroker({delay: 5}).settings.integer(delay) == 5


# ---- advance


@pytest.mark.parametrize(
    ("config", "is_stamped", "log_start_offset"),
    [
        ({}, False, 1),
        ({}, True, 0),
        ({"message.timestamp.type": "LogAppendTime"}, False, 0),
    ],
)
def test_a_record_written_after_advance_is_as_old_as_its_timestamp_says(
    config: dict[str, str], is_stamped: bool, log_start_offset: int
) -> None:
    with RunningBroker(engine=NoEngine) as broker:
        broker.advance(days=8)
        create(broker, NewTopic("prices", 1, 1, config=config))
        producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "log_level": "0"})
        producer.produce("prices", b"v", timestamp=broker.now_ms() if is_stamped else 0)
        assert producer.flush(30) == 0
        broker.advance(minutes=10)
        log = broker.broker.replicas.logs.require(TopicPartition("prices", 0))
        assert log.log_start_offset == log_start_offset


def failing_spark() -> SparkProcess:
    return SparkProcess(module="support.stand_in_child", unavailable=_NEVER, died=_NEVER)


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
        log = broker.broker.replicas.logs.require(TopicPartition("events", 0))
        assert log.log_start_offset == 1


def test_advance_raises_for_a_partition_that_an_earlier_failure_set_aside() -> None:
    properties = {"log.cleaner.backoff.ms": "3600000000"}
    with RunningBroker(properties, engine=CompiledEngine) as broker:
        due_for_compaction(broker, "orders", "users")
        manager: CleanerManager = broker.node.cleaner.manager
        log = broker.broker.replicas.logs.require(TopicPartition("orders", 0))
        manager.mark_uncleanable(log, "a bad batch at byte 0")
        with pytest.raises(NotCompactedError) as raised:
            broker.advance(milliseconds=1)
        assert raised.value.reasons == {"orders-0": "compaction failed: a bad batch at byte 0"}


def test_advance_returns_when_everything_due_is_compacted(tmp_path: Path) -> None:
    with RunningBroker(log_dir=tmp_path, engine=CompiledEngine) as broker:
        due_for_compaction(broker, "orders")
        broker.advance(milliseconds=1)
        checkpoint = (tmp_path / "cleaner-offset-checkpoint").read_text()
        assert "orders 0 " in checkpoint


def test_the_default_engine_compacts_in_the_brokers_file_system() -> None:
    fs = SimulatedFileSystem(SystemClock())
    with RunningBroker(log_dir=Path("/logs"), fs=fs) as broker:
        due_for_compaction(broker, "orders")
        broker.advance(milliseconds=1)
        assert "00000000000000000000.log" in broker.files("orders-0")
        with pytest.raises(UnknownPartitionError, match=r"there are .*orders-0"):
            broker.files("users-0")
    assert b"orders 0 " in fs.read_bytes(Path("/logs/cleaner-offset-checkpoint"))
