"""A trash whose directory vanishes: nothing is removed until it is back, and it is not remade."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from cordwood.format.file_names import TRASH_ID, TRASH_MARK
from cordwood.model.errors import ConfigError
from cordwood.testing.broker import RunningBroker
from support.erasing import batches_of
from support.in_process_engine import CompiledEngine
from support.scrape import probed

SETTINGS = {"segment.ms": "60000", "message.timestamp.type": "LogAppendTime"}
RECORDS = 50


def started(root: Path, properties: Mapping[str, str] | None = None) -> RunningBroker:
    settings = {
        "cordwood.trash.dir": str(root / "mount/trash"),
        "cordwood.trash.ms": "604800000",
        "node.id": "1",
    }
    return RunningBroker(
        {**settings, **(properties or {})}, log_dir=root / "logs", engine=CompiledEngine
    )


def create(broker: RunningBroker, topic: str, config: Mapping[str, str]) -> None:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    new = NewTopic(topic, 1, 1, config={**SETTINGS, **config})
    for made in admin.create_topics([new]).values():
        made.result()


def delete(broker: RunningBroker, topic: str) -> None:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    for gone in admin.delete_topics([topic]).values():
        gone.result()


def produce(broker: RunningBroker, topic: str) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers})
    for number in range(RECORDS):
        producer.produce(topic, b"value %d" % number)
    assert producer.flush(30) == 0


def records_below(top: Path) -> int:
    """The records of all files that are or were a segment's log."""
    paths = [path for path in top.rglob("*.log*") if "orders" in str(path)]
    return sum(1 for path in paths for batch in batches_of(path) for _ in batch.records())


def vanish(root: Path, *, leaves_directory: bool) -> Path:
    """Removes a disk as unmounting does: the mount point is there or not, and is empty."""
    away = (root / "mount").rename(root / "away")
    if leaves_directory:
        (root / "mount/trash").mkdir(parents=True)
    return away


def bring_back(root: Path) -> None:
    shutil.rmtree(root / "mount", ignore_errors=True)
    (root / "away").rename(root / "mount")


@pytest.mark.parametrize("leaves_directory", [False, True])
def test_deleted_files_wait_for_a_trash_that_vanished_and_go_there_when_it_is_back(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, leaves_directory: bool
) -> None:
    with started(tmp_path) as broker, probed(broker) as probe:
        create(broker, "orders", {"retention.ms": "600000", "file.delete.delay.ms": "3600000"})
        produce(broker, "orders")
        broker.advance(minutes=9)
        broker.advance(minutes=20)
        assert list((tmp_path / "logs").glob("orders-0/*.deleted")), "they wait for their delay"
        vanish(tmp_path, leaves_directory=leaves_directory)
        broker.advance(hours=2)
        broker.advance(minutes=10)
        assert records_below(tmp_path / "logs") == RECORDS
        assert probe.scrape().value("cordwood_trash_missing") == 1
        assert "not this trash" in caplog.text or "it is missing" in caplog.text
        assert "mount its disk, or move it back" in caplog.text
        assert not (tmp_path / "mount/trash/orders-0").exists()
        assert (tmp_path / "mount").exists() is leaves_directory
        bring_back(tmp_path)
        broker.advance(minutes=10)
        broker.advance(minutes=10)
        assert records_below(tmp_path / "logs") == 0
        assert records_below(tmp_path / "mount") == RECORDS
        assert probe.scrape().value("cordwood_trash_missing") == 0
        assert broker.node.cleaner.logs.context.failures.offline == {}


@pytest.mark.parametrize("leaves_directory", [False, True])
def test_a_start_without_the_trash_keeps_what_waits_for_it(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, leaves_directory: bool
) -> None:
    with started(tmp_path) as broker:
        create(broker, "orders", {"retention.ms": "600000", "file.delete.delay.ms": "3600000"})
        produce(broker, "orders")
        broker.advance(minutes=9)
        broker.advance(minutes=20)
    vanish(tmp_path, leaves_directory=leaves_directory)
    with started(tmp_path) as broker, probed(broker) as probe:
        assert "mount its disk, or move it back" in caplog.text
        broker.advance(hours=2)
        assert records_below(tmp_path / "logs") == RECORDS
        assert probe.scrape().value("cordwood_trash_missing") == 1
        assert (tmp_path / "mount").exists() is leaves_directory
        bring_back(tmp_path)
        broker.advance(hours=2)
        broker.advance(minutes=10)
        assert records_below(tmp_path / "logs") == 0
        assert records_below(tmp_path / "mount") == RECORDS
    with started(tmp_path):
        assert records_below(tmp_path / "mount") == RECORDS


def test_retention_removes_nothing_while_the_trash_is_missing(tmp_path: Path) -> None:
    with started(tmp_path) as broker:
        create(broker, "orders", {"retention.ms": "600000"})
        produce(broker, "orders")
        vanish(tmp_path, leaves_directory=False)
        broker.advance(hours=1)
        broker.advance(hours=1)
        assert records_below(tmp_path / "logs") == RECORDS
        bring_back(tmp_path)
        broker.advance(minutes=10)
        broker.advance(minutes=10)
        assert records_below(tmp_path / "mount") == RECORDS


@pytest.mark.parametrize("restarts", [False, True])
def test_a_topic_that_is_deleted_without_the_trash_is_restored_from_it_later(
    tmp_path: Path, restarts: bool
) -> None:
    with started(tmp_path) as broker:
        create(broker, "orders", {"retention.ms": "-1"})
        produce(broker, "orders")
        vanish(tmp_path, leaves_directory=True)
        delete(broker, "orders")
        broker.advance(minutes=10)
        assert records_below(tmp_path / "logs") == RECORDS
        if not restarts:
            require_comes_back(broker, tmp_path)
    if restarts:
        with started(tmp_path) as broker:
            broker.advance(minutes=10)
            assert records_below(tmp_path / "logs") == RECORDS
            require_comes_back(broker, tmp_path)


def require_comes_back(broker: RunningBroker, root: Path) -> None:
    bring_back(root)
    broker.advance(minutes=10)
    broker.advance(minutes=10)
    assert records_below(root / "logs") == 0
    assert records_below(root / "mount") == RECORDS
    assert not list((root / "logs").glob("cordwood-trash.*"))
    with probed(broker) as probe:
        probe.ask("/trash/restore?topic=orders", "POST")
    assert records_below(root / "logs") == RECORDS


def test_a_trash_is_made_once_and_another_place_is_another_trash(tmp_path: Path) -> None:
    with started(tmp_path):
        assert (tmp_path / "mount/trash" / TRASH_ID).exists()
        assert (tmp_path / "logs" / TRASH_MARK).exists()
    with started(tmp_path, {"cordwood.trash.dir": str(tmp_path / "other")}):
        assert (tmp_path / "other" / TRASH_ID).exists()
    shutil.rmtree(tmp_path / "other")
    with started(tmp_path, {"cordwood.trash.dir": str(tmp_path / "other")}):
        assert not (tmp_path / "other").exists()
    (tmp_path / "logs" / TRASH_MARK).unlink()
    with started(tmp_path, {"cordwood.trash.dir": str(tmp_path / "other")}):
        assert (tmp_path / "other" / TRASH_ID).exists()


def test_a_missing_trash_is_still_refused_in_a_log_directory(tmp_path: Path) -> None:
    with started(tmp_path):
        pass
    where = {"cordwood.trash.dir": str(tmp_path / "logs/trash")}
    with pytest.raises(ConfigError, match="it lies in the log directory"):
        started(tmp_path, where).start()
