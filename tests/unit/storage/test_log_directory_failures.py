"""Directories that fail while a broker starts or makes a log: LogLoaderTest, LogManagerTest."""

from __future__ import annotations

import errno
from collections.abc import Callable
from pathlib import Path

import pytest

from cordwood.model.errors import CordwoodError, CorruptError
from cordwood.model.kafka_errors import StorageError
from cordwood.model.topic_partition import TopicPartition
from cordwood.testing.simulated_filesystem import Kind, Operation, SimulatedFileSystem
from cordwood.testing.stored_log import StoredLogs, put, records_in

BAD, GOOD = Path("/bad"), Path("/good")

Fault = Callable[[Operation], OSError | None]


def two_directories() -> tuple[StoredLogs, SimulatedFileSystem]:
    """bad-0 and bad-1 in the one directory, good-0 in the other, of a record each; stopped."""
    fs = SimulatedFileSystem()
    logs = StoredLogs(BAD, GOOD, fs=fs)
    logs.start()
    for name, directory in (("bad-0", BAD), ("bad-1", BAD), ("good-0", GOOD)):
        put(logs.log(name, directory), b"v")
    return logs, fs


def failing(kind: Kind, part: str) -> Fault:
    def fail(operation: Operation) -> OSError | None:
        if operation.kind is kind and part in str(operation.path):
            return OSError(errno.EIO, "Input/output error", str(operation.path))
        return None

    return fail


def served(logs: StoredLogs) -> list[str]:
    return sorted(str(log.topic_partition) for log in logs.manager.logs())


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize(
    ("kind", "part"),
    [
        (Kind.LIST, "/bad/bad-1"),
        (Kind.READ, "/bad/bad-1/leader-epoch-checkpoint"),
        (Kind.READ, "/bad/recovery-point-offset-checkpoint"),
        (Kind.LIST, "/bad"),
    ],
)
def test_a_file_error_while_a_log_is_loaded_takes_its_directory_offline(
    kind: Kind, part: str, *, clean: bool
) -> None:
    logs, fs = two_directories()
    logs.manager.shutdown()
    if not clean:
        for directory in logs.directories:
            fs.remove(directory / ".kafka_cleanshutdown")
    fs.fail = failing(kind, part)
    logs.start()
    assert set(logs.manager.context.failures.offline) == {BAD}
    assert "good-0" in served(logs)
    assert len(records_in(logs.log("good-0"))) == 1
    assert not any(name.startswith("bad") for name in served(logs))
    put(logs.log("good-0"), b"w")
    fs.fail = None
    logs.manager.shutdown()
    # The mark of the stop before stays where nothing was touched.
    assert fs.exists(BAD / ".kafka_cleanshutdown") == (clean and part == "/bad")
    assert fs.exists(GOOD / ".kafka_cleanshutdown")


def test_what_cannot_be_understood_stops_the_start() -> None:
    logs, fs = two_directories()
    logs.manager.shutdown()
    fs.write_durably(BAD / "bad-1" / "partition.metadata", b"version: 7\n")
    with pytest.raises(CordwoodError) as stopped:
        logs.start()
    assert not isinstance(stopped.value, StorageError)
    assert not logs.manager.context.failures.offline


def test_an_error_that_is_of_no_file_stops_the_start() -> None:
    logs, _ = two_directories()
    logs.manager.shutdown()

    def config(topic: str) -> None:
        raise CorruptError(f"settings of {topic}")

    logs.configs = type("Settings", (dict,), {"get": staticmethod(config)})()
    with pytest.raises(CorruptError, match="settings of"):
        logs.start()
    assert not logs.manager.context.failures.offline


@pytest.mark.parametrize(
    ("kind", "part"), [(Kind.CREATE, "/bad/.lock"), (Kind.READ, "/bad/meta.properties")]
)
def test_a_directory_that_cannot_be_used_is_offline_from_the_start(kind: Kind, part: str) -> None:
    logs, fs = two_directories()
    logs.manager.shutdown()
    fs.write_durably(BAD / "meta.properties", b"version=1\n")
    fs.fail = failing(kind, part)
    logs.start()
    assert set(logs.manager.context.failures.offline) == {BAD}
    assert served(logs) == ["good-0"]
    assert not fs.exists(BAD / ".lock"), "no lock is held there"
    assert logs.log("new-0").log_dir == GOOD


def test_a_broker_without_a_usable_directory_does_not_start() -> None:
    logs, fs = two_directories()
    logs.manager.shutdown()
    fs.fail = failing(Kind.CREATE, ".lock")
    with pytest.raises(CordwoodError, match="none of the specified log dirs"):
        logs.start()


def test_directories_that_fail_are_passed_over_when_a_log_is_made() -> None:
    logs, fs = two_directories()
    third = Path("/third")
    logs.manager.shutdown()
    logs.directories.append(third)
    logs.start()
    # The third has the fewest logs, and is asked first.
    fs.fail = failing(Kind.MAKE_DIRECTORY, "/third/")
    log = logs.log("new-0")
    assert log.log_dir == GOOD
    assert put(log, b"v").first_offset == 0
    assert set(logs.manager.context.failures.offline) == {third}


def test_a_log_that_may_be_in_a_failed_directory_is_not_made_anew() -> None:
    logs, _ = two_directories()
    logs.manager.context.failures.fail(BAD, "a disk that died")
    with pytest.raises(StorageError, match="because log directories /bad are offline"):
        logs.manager.get_or_create(TopicPartition("bad", 0), is_new=False)
    assert logs.log("new-0").log_dir == GOOD
