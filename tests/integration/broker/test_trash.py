"""Trash of a running broker: removed data goes there, and deleted topics come back from it."""

from __future__ import annotations

import asyncio
import errno
import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from queue import Queue
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaException, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from typer.testing import CliRunner, Result

from cordwood.coordinator.group.offsets import CommittedOffset, OffsetKey
from cordwood.format.file_names import CLEAN_SHUTDOWN
from cordwood.format.trash_notes import COMPACTION, DELETED_RECORDS, RETENTION
from cordwood.model.errors import ConfigError, CordwoodError, DirectoryInUseError, NoSpaceError
from cordwood.model.topic_partition import TopicPartition as LogPartition
from cordwood.node.topic_restoration import TopicRestoration
from cordwood.storage.filesystem import OS, FileSystem, OsFile, OsFileSystem
from cordwood.storage.trash import trashed_partitions
from cordwood.surfaces.cli.main import app
from cordwood.testing.broker import RunningBroker
from support.commits import commit
from support.erasing import erase_here
from support.in_process_engine import CompiledEngine
from support.scrape import Probe, probed

DAY_MS = 86_400_000
SMALL = {
    "segment.ms": "60000",
    "min.cleanable.dirty.ratio": "0.01",
    "message.timestamp.type": "LogAppendTime",
}


def started(
    tmp_path: Path, properties: Mapping[str, str] | None = None, *, fs: FileSystem = OS
) -> RunningBroker:
    settings = {
        "cordwood.trash.dir": str(tmp_path / "trash"),
        "cordwood.trash.ms": str(7 * DAY_MS),
        "group.initial.rebalance.delay.ms": "0",
        "node.id": "1",
    }
    return RunningBroker(
        {**settings, **(properties or {})},
        log_dir=tmp_path / "logs",
        engine=CompiledEngine,
        fs=fs,
    )


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[RunningBroker]:
    with started(tmp_path) as running:
        yield running


@pytest.fixture
def probe(broker: RunningBroker) -> Iterator[Probe]:
    with probed(broker) as found:
        yield found


def run(*arguments: object, code: int = 0) -> Result:
    result = CliRunner(env={"COLUMNS": "200", "USER": "ada"}).invoke(
        app, ["trash", *(str(each) for each in arguments)]
    )
    assert result.exit_code == code, result.output
    return result


def in_trash(probe: Probe) -> list[dict[str, Any]]:
    answer = json.loads(run("list", "--url", probe.url, "--json").stdout)
    assert answer["unknown"] == []
    found: list[dict[str, Any]] = answer["removals"]
    return found


def admin_of(broker: RunningBroker) -> AdminClient:
    return AdminClient({"bootstrap.servers": broker.bootstrap_servers})


def create(
    broker: RunningBroker,
    topic: str,
    config: Mapping[str, str] | None = None,
    *,
    partitions: int = 1,
) -> None:
    new = NewTopic(topic, partitions, 1, config={**SMALL, **(config or {})})
    admin = admin_of(broker)  # which has to live until it is answered
    for made in admin.create_topics([new]).values():
        made.result()


def delete(broker: RunningBroker, topic: str) -> None:
    admin = admin_of(broker)
    for gone in admin.delete_topics([topic]).values():
        gone.result()


def delete_records(broker: RunningBroker, topic: str, offset: int) -> None:
    admin = admin_of(broker)
    for done in admin.delete_records([TopicPartition(topic, 0, offset)]).values():
        done.result()


def produce(
    broker: RunningBroker, topic: str, *values: str, partition: int = 0, key: bytes = b"k"
) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "log_level": "0"})
    for value in values:
        producer.produce(topic, value, key=key, partition=partition)
    assert producer.flush(30) == 0


def consumer_of(broker: RunningBroker, topic: str, group: str = "readers") -> Consumer:
    consumer = Consumer(
        {
            "bootstrap.servers": broker.bootstrap_servers,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
    )
    consumer.subscribe([topic])
    return consumer


def consume(consumer: Consumer, count: int) -> list[Message]:
    found: list[Message] = []
    while len(found) < count:
        message = consumer.poll(30)
        assert message is not None, f"only {len(found)} of {count} records came"
        assert message.error() is None, str(message.error())
        found.append(message)
    return found


def segments_of(directory: Path) -> dict[str, bytes]:
    """The .log files alone: a running broker renames others, as its checkpoints."""
    return {path.name: path.read_bytes() for path in directory.glob("*.log")}


def marks_of(broker: RunningBroker, partition: str) -> tuple[int, int, int]:
    log = broker.node.cleaner.logs.require(LogPartition.parse(partition))
    return log.log_start_offset, log.high_watermark, log.log_end_offset


def topic_id(broker: RunningBroker, topic: str) -> object:
    return broker.call(lambda b: b.metadata.image.topics[topic].topic_id)


def fill(broker: RunningBroker, config: Mapping[str, str] | None = None) -> None:
    """A topic of two partitions, of which a group has read three of five records."""
    if config is None:
        config = {"cordwood.trash.ms": str(DAY_MS)}
    create(broker, "orders", {"retention.ms": "-1", **config}, partitions=2)
    for number in range(5):
        produce(broker, "orders", f"value {number}")
        broker.advance(seconds=61, compact=False)
    produce(broker, "orders", "other", partition=1)
    delete_records(broker, "orders", 1)
    commit(broker.bootstrap_servers, "readers", [TopicPartition("orders", 0, 3)])


class TwoDisks(OsFileSystem):
    """The trash is on another file system than the logs."""

    def rename(self, path: Path, target: Path) -> None:
        if ("trash" in path.parts) != ("trash" in target.parts):
            raise OSError(errno.EXDEV, os.strerror(errno.EXDEV), str(path))
        super().rename(path, target)


def test_a_deleted_topic_is_restored_from_another_disk(tmp_path: Path) -> None:
    with started(tmp_path, fs=TwoDisks()) as broker, probed(broker) as probe:
        require_restored(broker, probe, tmp_path, is_moved=True)


def test_a_deleted_topic_comes_back_as_it_was_and_its_groups_resume(
    broker: RunningBroker, probe: Probe, tmp_path: Path
) -> None:
    require_restored(broker, probe, tmp_path, is_moved=False)


def require_restored(
    broker: RunningBroker, probe: Probe, tmp_path: Path, *, is_moved: bool
) -> None:
    fill(broker)
    before, known = marks_of(broker, "orders-0"), topic_id(broker, "orders")
    for log in broker.node.cleaner.logs.logs():
        log.flush()
    logs = segments_of(tmp_path / "logs/orders-0")
    delete(broker, "orders")
    if is_moved:
        broker.advance(minutes=2)
        assert not list((tmp_path / "logs").glob("orders-*"))
    (trashed,) = in_trash(probe)
    assert (trashed["topic"], trashed["why"], trashed["groups"]) == ("orders", "topic", ["readers"])
    said = run("restore", "--url", probe.url, "--topic", "orders").output
    assert "1 committed offset, 1 group" in said
    assert "what expired meanwhile goes at the next check" in said
    assert marks_of(broker, "orders-0") == before
    assert marks_of(broker, "orders-1") == (0, 1, 1)
    assert topic_id(broker, "orders") == known
    after = segments_of(tmp_path / "logs/orders-0")
    assert {name: after[name] for name in logs} == logs
    (config,) = broker.call(lambda b: [b.configs.log_config("orders")])
    assert (config.retention_ms, config.cordwood_trash_ms) == (-1, DAY_MS)
    consumer = consumer_of(broker, "orders")
    values = {message.value() for message in consume(consumer, 3)}
    assert values == {b"value 3", b"value 4", b"other"}
    consumer.close()
    produce(broker, "orders", "new")
    assert in_trash(probe) == []
    assert list((tmp_path / "trash").glob("*.topic")) == []


def test_a_topic_is_gone_when_its_time_is_over(broker: RunningBroker, probe: Probe) -> None:
    fill(broker)
    delete(broker, "orders")
    broker.advance(minutes=10)
    broker.advance(hours=22)
    (removed,) = in_trash(probe)
    scrape = probe.scrape()
    assert scrape.value("cordwood_trash_removals") == 1
    assert scrape.value("cordwood_trash_bytes") == removed["bytes"] > 0
    broker.advance(hours=3)
    assert in_trash(probe) == []
    assert probe.scrape().value("cordwood_trash_bytes") == 0
    said = run("restore", "--url", probe.url, "--topic", "orders", code=1).output
    assert "--topic orders: there is nothing of it in the trash" in said


def test_a_topic_is_not_restored_over_another(broker: RunningBroker, probe: Probe) -> None:
    fill(broker)
    delete(broker, "orders")
    create(broker, "orders")
    said = run("restore", "--url", probe.url, "--topic", "orders", "--hold", "a", code=1).output
    assert "orders: there is a topic with this name" in said
    assert broker.node.cleaner.logs.context.holds.all() == []
    delete(broker, "orders")
    # The newer one is restored, with the records that it has: none.
    run("restore", "--url", probe.url, "--topic", "orders", "--hold", "a")
    assert marks_of(broker, "orders-0") == (0, 0, 0)
    with pytest.raises(KafkaException, match="POLICY_VIOLATION"):
        delete(broker, "orders")


def test_an_offset_that_was_committed_since_stays(broker: RunningBroker) -> None:
    fill(broker)
    answers: Queue[int | None] = Queue()
    at = CommittedOffset(1, commit_timestamp_ms=broker.now_ms())
    kept = {OffsetKey("readers", "orders", partition): at for partition in (0, 1)}
    broker.call(lambda b: b.groups.maintenance.put_back_offsets(kept, answers.put))
    assert answers.get(timeout=30) == 1
    consumer = Consumer({"bootstrap.servers": broker.bootstrap_servers, "group.id": "readers"})
    both = consumer.committed([TopicPartition("orders", number) for number in (0, 1)], 30)
    assert [each.offset for each in both] == [3, 1]
    consumer.close()


def test_one_of_several_deleted_topics_is_chosen_by_its_id(
    broker: RunningBroker, probe: Probe
) -> None:
    for value in ("first", "second"):
        create(broker, "orders")
        produce(broker, "orders", *[value] * (1 if value == "first" else 2))
        delete(broker, "orders")
        broker.advance(minutes=2)
    first, second = (each["topic_id"] for each in in_trash(probe))
    assert first != second
    wrong = run("restore", "--url", probe.url, "--topic", "orders", "--id", "x", code=1).output
    assert "--id x: " in wrong
    run("restore", "--url", probe.url, "--topic", "orders", "--id", first)
    assert marks_of(broker, "orders-0") == (0, 1, 1)
    run("empty", "--url", probe.url, "--older-than", "0s", "--dry-run")
    assert [each["topic_id"] for each in in_trash(probe)] == [second]
    assert "1 removal" in run("empty", "--url", probe.url, "--older-than", "0s").output
    assert in_trash(probe) == []


def test_removed_segments_go_to_the_trash_and_expire(
    broker: RunningBroker, probe: Probe, tmp_path: Path
) -> None:
    create(broker, "kept", {"retention.ms": "120000"})
    create(broker, "cut", {"retention.ms": "-1"})
    create(broker, "table", {"cleanup.policy": "compact"})
    create(broker, "short", {"retention.ms": "120000", "cordwood.trash.ms": "0"})
    for number in range(4):
        for topic in ("kept", "cut", "table", "short"):
            produce(broker, topic, f"value {number}")
        broker.advance(seconds=61)
    delete_records(broker, "cut", 2)
    broker.advance(minutes=10)
    broker.advance(minutes=2)
    why = {(each["partition"], each["why"]) for each in in_trash(probe)}
    assert why == {
        ("kept-0", RETENTION),
        ("cut-0", DELETED_RECORDS),
        ("table-0", COMPACTION),
    }
    for trashed in trashed_partitions(tmp_path / "trash"):
        for removal in trashed.removals():
            for file in removal.files:
                assert (trashed.directory / file.stored).stat().st_size == file.size_bytes
    assert list((tmp_path / "logs").glob("*/*.deleted")) == []
    said = run("restore", "--url", probe.url, "--topic", "kept", code=1).output
    assert "segments are put back while the broker is stopped: cordwood trash restore" in said
    broker.advance(days=8)
    assert in_trash(probe) == []
    assert list((tmp_path / "trash").glob("*-0")) == []


def test_no_file_has_a_record_from_the_moment_on_that_is_predicted(
    broker: RunningBroker, probe: Probe, tmp_path: Path
) -> None:
    create(broker, "kept", {"retention.ms": "3600000", "cordwood.trash.ms": "7200000"})
    produce(broker, "kept", "a value to be found")
    broker.advance(minutes=20)
    produce(broker, "kept", "another")

    def found() -> list[Path]:
        files = [path for path in tmp_path.rglob("*") if path.suffix in {".log", ".deleted"}]
        return [path for path in files if b"a value to be found" in path.read_bytes()]

    (log,) = json.loads(probe.ask("/explain?topic=kept").text)["partitions"]
    gone_by_ms = log["segments"][0]["gone_by_ms"]
    minute_ms = 60_000

    def advance_to(moment_ms: int) -> None:
        while (left_ms := moment_ms - broker.node.clock.now_ms()) > 0:
            broker.advance(milliseconds=min(left_ms, minute_ms))

    # It comes two checks later at the latest, of five minutes each: of retention, of the trash.
    advance_to(gone_by_ms - 11 * minute_ms)
    assert found()
    advance_to(gone_by_ms)
    assert not found()


def test_segments_of_a_stopped_broker_are_put_back(tmp_path: Path) -> None:
    with started(tmp_path) as broker:
        create(broker, "kept", {"retention.ms": "600000"})
        create(broker, "table", {"cleanup.policy": "compact", "min.compaction.lag.ms": "600000"})
        for number in range(4):
            for topic in ("kept", "table"):
                produce(broker, topic, f"value {number}")
            broker.advance(seconds=61, compact=False)
        logs = {
            path: path.read_bytes()
            for topic in ("kept", "table")
            for path in (tmp_path / f"logs/{topic}-0").glob("*.log")
            if path.stat().st_size
        }
        assert len(logs) == 8
        broker.advance(minutes=20)
        assert not all(path.exists() and path.read_bytes() == logs[path] for path in logs)
        run("list", tmp_path / "trash")
        said = run("empty", tmp_path / "trash", "--older-than", "0s", code=3).output
        assert f"Failed to acquire lock on file .lock in {tmp_path / 'trash'}" in said
    said = run("restore", tmp_path / "trash", tmp_path / "logs").output
    assert "removals" in said
    assert {path: path.read_bytes() for path in logs} == logs
    with started(tmp_path, {"log.cleaner.enable": "false"}) as broker:
        assert marks_of(broker, "table-0") == (0, 4, 4)


def test_an_erased_key_does_not_come_back_with_its_topic(tmp_path: Path) -> None:
    with started(tmp_path) as broker:
        create(broker, "orders")
        create(broker, "other")
        produce(broker, "orders", "value", "value")
        produce(broker, "orders", "kept", key=b"other")
        delete(broker, "orders")
        broker.advance(minutes=2)
    erased = erase_here(tmp_path / "logs", "orders", keys=(b"k",), trash=tmp_path / "trash")
    assert erased.report.failed == {}
    with started(tmp_path) as broker, probed(broker) as probe:
        run("restore", "--url", probe.url, "--topic", "orders")
        assert marks_of(broker, "orders-0") == (0, 3, 3)
        consumer = consumer_of(broker, "orders")
        assert [message.value() for message in consume(consumer, 1)] == [b"kept"]
        consumer.close()


@pytest.mark.parametrize(
    ("properties", "says"),
    [
        ({"cordwood.trash.dir": ""}, "cordwood.trash.ms=604800000: there is no place for what"),
        ({"cordwood.trash.dir": "logs/trash"}, "it lies in the log directory"),
        ({"cordwood.trash.dir": "file"}, "cannot be written to"),
    ],
)
def test_a_trash_that_cannot_be_used_is_refused(
    tmp_path: Path, properties: dict[str, str], says: str
) -> None:
    (tmp_path / "file").touch()
    where = properties["cordwood.trash.dir"]
    given = {"cordwood.trash.dir": str(tmp_path / where) if where else ""}
    with pytest.raises(ConfigError, match=says):
        started(tmp_path, given).start()
    assert not (tmp_path / "trash").exists()


def test_a_start_that_a_trash_refuses_leaves_the_mark_of_the_last_clean_stop(
    tmp_path: Path,
) -> None:
    with started(tmp_path):
        pass
    mark = tmp_path / "logs" / CLEAN_SHUTDOWN
    before = mark.read_bytes()
    with pytest.raises(ConfigError, match="it lies in the log directory"):
        started(tmp_path, {"cordwood.trash.dir": str(tmp_path / "logs/trash")}).start()
    assert mark.read_bytes() == before
    with started(tmp_path):
        pass  # the locks are free


def test_a_trash_in_use_is_refused(broker: RunningBroker, tmp_path: Path) -> None:
    del broker
    with pytest.raises(DirectoryInUseError, match="trash"):
        RunningBroker({"cordwood.trash.dir": str(tmp_path / "trash")}).start()


class FullTrash(OsFileSystem):
    """Nothing can be written to the trash, or moved there, while `is_full`."""

    is_full = False

    def _check(self, path: Path) -> None:
        if self.is_full and "trash" in path.parts:
            raise NoSpaceError(f"{path}: no space left on the device")

    def create(self, path: Path) -> OsFile:
        self._check(path)
        return super().create(path)

    def rename(self, path: Path, target: Path) -> None:
        self._check(target)
        super().rename(path, target)


def test_nothing_goes_while_the_trash_is_full(tmp_path: Path) -> None:
    disk = FullTrash()
    with started(tmp_path, fs=disk) as broker, probed(broker) as probe:
        create(broker, "kept", {"retention.ms": "600000"})
        for number in range(3):
            produce(broker, "kept", f"value {number}")
            broker.advance(seconds=61)
        disk.is_full = True
        broker.advance(minutes=20)
        assert marks_of(broker, "kept-0") == (0, 3, 3)
        disk.is_full = False
        broker.advance(minutes=10)
        assert marks_of(broker, "kept-0") == (3, 3, 3)
        disk.is_full = True
        broker.advance(minutes=2)
        assert len(list((tmp_path / "logs/kept-0").glob("*.log.deleted"))) == 3
        disk.is_full = False
        broker.advance(minutes=2)
        assert len(list((tmp_path / "trash/kept-0").glob("*.log"))) == 3
        assert [each["why"] for each in in_trash(probe)] == [RETENTION]
        # A topic is gone for its clients at once; its files wait for space.
        produce(broker, "kept", "more")
        delete(broker, "kept")
        disk.is_full = True
        broker.advance(minutes=2)
        assert list((tmp_path / "logs").glob("kept-0.*-delete"))
        said = run("restore", "--url", probe.url, "--topic", "kept", code=1).output
        assert "no space left on the device" in said or "is not in the trash" in said
        disk.is_full = False
        run("restore", "--url", probe.url, "--topic", "kept")
        assert marks_of(broker, "kept-0") == (3, 4, 4)
        assert broker.node.cleaner.logs.context.failures.offline == {}


class SmallDisk(OsFileSystem):
    """Has less free space, the more is in the trash."""

    capacity = 1 << 40

    def __init__(self, trash: Path) -> None:
        self._trash = trash

    def free_bytes(self, path: Path) -> int:
        del path
        used = sum(each.stat().st_size for each in self._trash.rglob("*") if each.is_file())
        return self.capacity - used


def test_a_trash_is_emptied_before_segments_go_for_space(tmp_path: Path) -> None:
    disk = SmallDisk(tmp_path / "trash")
    free = {"cordwood.log.dir.free.bytes.min": "0"}
    with started(tmp_path, free, fs=disk) as broker, probed(broker) as probe:
        create(broker, "gone")
        create(broker, "also")
        create(broker, "kept", {"retention.ms": "-1"})
        for topic in ("gone", "also"):
            produce(broker, topic, "x" * 100)
            delete(broker, topic)
            broker.advance(minutes=2)
        for number in range(3):
            produce(broker, "kept", f"value {number}")
            broker.advance(seconds=61)
        assert [each["topic"] for each in in_trash(probe)] == ["gone", "also"]
        disk.capacity -= disk.free_bytes(tmp_path) + 1
        broker.advance(minutes=6)
        assert [each["topic"] for each in in_trash(probe)] == ["also"]
        assert marks_of(broker, "kept-0") == (0, 3, 3)


def test_both_of_two_compactions_within_the_delay_are_kept(tmp_path: Path) -> None:
    with started(tmp_path) as broker:
        create(broker, "table", {"cleanup.policy": "compact", "file.delete.delay.ms": "3600000"})
        first: dict[str, bytes] = {}
        for number in range(6):
            produce(broker, "table", f"value {number}")
            broker.advance(seconds=61)
            if number == 1:
                first = segments_of(tmp_path / "logs/table-0")
        assert first
    before = [each.removals() for each in trashed_partitions(tmp_path / "trash")]
    assert len(before[0]) > 1
    run("restore", tmp_path / "trash", tmp_path / "logs")
    (log, *_) = sorted((tmp_path / "logs/table-0").glob("*.log"))
    assert log.read_bytes() == first[log.name]
    logs = (tmp_path / "logs/table-0").glob("*.log")
    assert [path.read_bytes().count(b"value") for path in logs] == [1] * 6


def test_a_topic_of_a_cluster_is_not_restored(broker: RunningBroker, probe: Probe) -> None:
    create(broker, "orders")
    delete(broker, "orders")
    elsewhere = TopicRestoration(broker.broker, None)  # the controller is another node
    work = asyncio.run_coroutine_threadsafe(elsewhere.restore("orders"), broker.broker.thread.loop)
    with pytest.raises(CordwoodError, match="each has its own trash"):
        work.result(30)
    assert [each["topic"] for each in in_trash(probe)] == ["orders"]


def test_a_restoration_that_fails_leaves_the_topic_in_the_trash(tmp_path: Path) -> None:
    disk = FullTrash()
    with started(tmp_path, fs=disk) as broker, probed(broker) as probe:
        create(broker, "orders", partitions=2)
        produce(broker, "orders", "value")
        delete(broker, "orders")
        broker.advance(minutes=2)
        (log_dir,) = broker.node.cleaner.logs.directories
        moved = tmp_path / "trash/moved"
        (directory,) = (tmp_path / "trash").glob("*.topic")
        (directory / "orders-1").rename(moved)
        said = run("restore", "--url", probe.url, "--topic", "orders", code=1).output
        assert "orders: partition 1 is not in the trash" in said
        moved.rename(directory / "orders-1")
        (directory / "orders-1/partition.metadata").write_text("damaged")
        run("restore", "--url", probe.url, "--topic", "orders", code=1)
        broker.advance(minutes=2)
        assert [each["topic"] for each in in_trash(probe)] == ["orders"]
        assert not list(log_dir.path.glob("orders-*"))


def test_a_directory_alone_keeps_for_seven_days_and_both_settings_are_described(
    tmp_path: Path,
) -> None:
    where = {"cordwood.trash.dir": str(tmp_path / "trash"), "node.id": "1"}
    with (
        RunningBroker(where, log_dir=tmp_path / "logs", engine=CompiledEngine) as broker,
        probed(broker) as probe,
    ):
        fill(broker, {})
        delete(broker, "orders")
        broker.advance(minutes=10)
        (trashed,) = in_trash(probe)
        assert trashed["expires_ms"] - trashed["at_ms"] == 7 * DAY_MS
        create(broker, "short", {"cordwood.trash.ms": "0"})
        delete(broker, "short")
        broker.advance(minutes=10)
        assert [each["topic"] for each in in_trash(probe)] == ["orders"]
        tool = ["configs", "--bootstrap-server", broker.bootstrap_servers, "--describe", "--all"]
        said = CliRunner().invoke(app, [*tool, "--entity-type", "brokers", "--entity-name", "1"])
        assert f"cordwood.trash.dir={tmp_path / 'trash'} sensitive=false" in said.output
        assert "cordwood.trash.ms=604800000 sensitive=false" in said.output
        broker.advance(days=8)
        assert in_trash(probe) == []
