"""Failed log directories: offline once and for all; a full disk is no such failure."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from cordwood.model.errors import NoSpaceError
from cordwood.model.kafka_errors import OffsetOutOfRangeError, StorageError
from cordwood.storage.failures import FailureChannel
from cordwood.testing.manual_clock import ManualClock

_DIR = Path("/logs-a")


def test_an_error_of_a_file_takes_the_directory_offline_and_every_later_access_is_refused() -> None:
    channel = FailureChannel()
    heard: list[tuple[Path, str]] = []
    channel.subscribe(lambda path, reason: heard.append((path, reason)))
    with (
        pytest.raises(StorageError, match=r"Error while flushing t-0: .*Input/output error"),
        channel.guard(_DIR, "flushing t-0"),
    ):
        raise OSError(errno.EIO, "Input/output error")
    with pytest.raises(StorageError, match="already offline"), channel.guard(_DIR, "reading"):
        pytest.fail("the work was begun")
    assert [path for path, _ in heard] == [_DIR]
    assert list(channel.offline) == [_DIR]


def test_a_second_failure_is_not_announced_again() -> None:
    channel = FailureChannel()
    heard: list[str] = []
    channel.subscribe(lambda _, reason: heard.append(reason))
    channel.fail(_DIR, "first")
    channel.fail(_DIR, "second")
    assert heard == ["first"]


def test_other_directories_live_on() -> None:
    channel = FailureChannel()
    channel.fail(_DIR, "gone")
    with channel.guard(Path("/logs-b"), "reading"):
        pass


def test_a_full_disk_is_told_to_the_caller_and_the_directory_stays_online() -> None:
    channel = FailureChannel()
    with (
        pytest.raises(StorageError, match="the file system is full") as caught,
        channel.guard(_DIR, "appending"),
    ):
        raise NoSpaceError("/logs-a/t-0: the file system is full")
    assert caught.value.code == 56
    assert not channel.offline


def test_a_full_disk_is_logged_with_what_helps_once_a_minute_for_each_directory(
    caplog: pytest.LogCaptureFixture,
) -> None:
    clock = ManualClock()
    channel = FailureChannel(clock)

    def refuse(log_dir: Path) -> None:
        with pytest.raises(StorageError), channel.guard(log_dir, "appending records to", "t-0"):
            raise NoSpaceError(f"{log_dir}/t-0: the file system is full")

    for _ in range(3):
        refuse(_DIR)
    refuse(Path("/logs-b"))
    assert [each.levelname for each in caplog.records] == ["WARNING", "WARNING"]
    text = caplog.messages[0]
    assert "log directory /logs-a is full" in text
    assert "Delete topics or records, lower retention.ms or retention.bytes" in text
    assert text.endswith("appending records to t-0: /logs-a/t-0: the file system is full")
    caplog.clear()
    clock.advance(60_000)
    refuse(_DIR)
    assert len(caplog.messages) == 1
    assert caplog.messages[0].endswith("; 2 more since the last such message")


def test_what_a_log_refuses_passes_through_and_takes_nothing_offline() -> None:
    channel = FailureChannel()
    with pytest.raises(OffsetOutOfRangeError), channel.guard(_DIR, "reading"):
        raise OffsetOutOfRangeError("5")
    assert not channel.offline
