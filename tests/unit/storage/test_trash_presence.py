"""The note of a trash in each log directory, and notes of topics that wait, on sick disks."""

from __future__ import annotations

import errno
import random
import threading
from dataclasses import replace
from pathlib import Path
from uuid import UUID

import pytest

from cordwood.format.file_names import TRASH_ID, TRASH_MARK
from cordwood.format.trash_notes import (
    RemovedOffset,
    RemovedPartition,
    RemovedTopic,
    build_closed_partitions,
    build_removed_offsets,
)
from cordwood.format.varint import Buffer
from cordwood.model.errors import NoSpaceError, TrashError
from cordwood.storage.broker_trash import BrokerTrash
from cordwood.storage.failures import FailureChannel
from cordwood.storage.filesystem import OS, FileFacts, OsFileSystem
from cordwood.storage.trash_presence import noted_trashes
from cordwood.storage.trashed_topics import TrashedTopics
from cordwood.storage.waiting_topics import WaitingTopics
from cordwood.testing.simulated_filesystem import SimulatedFileSystem

TOPIC = RemovedTopic(
    at_ms=1,
    expires_ms=2,
    name="t",
    topic_id=UUID(int=5),
    settings={},
    replicas=1,
    partitions=(
        RemovedPartition(
            partition=0,
            log_dir="/logs",
            leader_epoch=0,
            partition_epoch=0,
            log_start_offset=0,
            log_end_offset=5,
            high_watermark=5,
            recovery_point=0,
        ),
    ),
)


class SickDisk(OsFileSystem):
    """Refuses to write below a directory, or to read files of a name, while it is sick."""

    def __init__(self) -> None:
        self.refusing: Path | None = None
        self.refusal: Exception = OSError(errno.EROFS, "Read-only file system")
        self.unreadable: dict[str, int] = {}

    def replace_durably(self, path: Path, data: Buffer, *, model: FileFacts | None = None) -> None:
        if self.refusing in path.parents:
            raise self.refusal
        super().replace_durably(path, data, model=model)

    def read_bytes(self, path: Path) -> bytes:
        if path.name in self.unreadable:
            raise OSError(self.unreadable[path.name], "refused", str(path))
        return super().read_bytes(path)


@pytest.fixture
def log_dirs(tmp_path: Path) -> list[Path]:
    found = [tmp_path / "a", tmp_path / "b"]
    for each in found:
        each.mkdir()
    return found


def test_a_full_log_directory_gets_the_note_at_a_later_check(
    tmp_path: Path, log_dirs: list[Path], caplog: pytest.LogCaptureFixture
) -> None:
    disk = SickDisk()
    disk.refusing, disk.refusal = log_dirs[0], NoSpaceError("the file system is full")
    failures = FailureChannel()
    trash = BrokerTrash(tmp_path / "trash", log_dirs, fs=disk, failures=failures)
    assert not failures.offline
    assert [(each / TRASH_MARK).exists() for each in log_dirs] == [False, True]
    assert f"{log_dirs[0] / TRASH_MARK} cannot be written" in caplog.text
    trash.remove_expired(0)
    disk.refusing = None
    trash.remove_expired(0)
    trash.close()
    first, second = (noted_trashes(each) for each in log_dirs)
    assert first == second != {}


def test_a_log_directory_that_cannot_be_written_to_goes_offline_and_is_left_alone(
    tmp_path: Path, log_dirs: list[Path]
) -> None:
    disk = SickDisk()
    disk.refusing = log_dirs[0]
    failures = FailureChannel()
    trash = BrokerTrash(tmp_path / "trash", log_dirs, fs=disk, failures=failures)
    assert list(failures.offline) == [log_dirs[0]]
    assert noted_trashes(log_dirs[1])
    disk.refusing = None
    trash.remove_expired(0)
    trash.close()
    assert not noted_trashes(log_dirs[0]), "written to while it is offline"


def test_a_note_that_cannot_be_read_takes_its_log_directory_offline(
    tmp_path: Path, log_dirs: list[Path]
) -> None:
    BrokerTrash(tmp_path / "trash", log_dirs).close()
    disk, failures = SickDisk(), FailureChannel()
    disk.unreadable[TRASH_MARK] = errno.EIO
    BrokerTrash(tmp_path / "trash", log_dirs, fs=disk, failures=failures).close()
    assert list(failures.offline) == log_dirs


def test_listeners_of_a_failure_at_a_check_are_called_without_the_lock_of_the_trash(
    tmp_path: Path, log_dirs: list[Path]
) -> None:
    disk, failures = SickDisk(), FailureChannel()
    disk.refusing, disk.refusal = log_dirs[0], NoSpaceError("the file system is full")
    trash = BrokerTrash(tmp_path / "trash", log_dirs, fs=disk, failures=failures)
    disk.refusal = OSError(errno.EIO, "Input/output error")
    answered: list[Path] = []

    def another_thread_uses_the_trash(log_dir: Path, _: str) -> None:
        waiting = log_dirs[1] / "x-0/00000000000000000000.log.deleted"
        user = threading.Thread(target=trash.dispose, args=[waiting], daemon=True)
        waiting.parent.mkdir()
        waiting.write_bytes(b"x")
        user.start()
        user.join(10)
        assert not user.is_alive(), "it waits for the lock"
        answered.append(log_dir)

    failures.subscribe(another_thread_uses_the_trash)
    trash.remove_expired(0)
    trash.close()
    assert answered == [log_dirs[0]]


def test_nothing_expires_in_a_trash_that_cannot_be_read(
    tmp_path: Path, log_dirs: list[Path]
) -> None:
    disk = SickDisk()
    trash = BrokerTrash(tmp_path / "trash", log_dirs, fs=disk)
    trash.note_topic(TOPIC)
    disk.unreadable[TRASH_ID] = errno.EIO
    assert trash.remove_expired(TOPIC.expires_ms) == 0
    assert not trash.remove_oldest()
    with pytest.raises(TrashError, match=f"{TRASH_ID} cannot be read"):
        trash.remove_until(TOPIC.at_ms)
    assert trash.topics.get(TOPIC.topic_id) == TOPIC
    disk.unreadable.clear()
    assert trash.remove_expired(TOPIC.expires_ms) == 1
    trash.close()


def test_a_trash_that_cannot_be_read_is_not_called_another(
    tmp_path: Path, log_dirs: list[Path]
) -> None:
    disk = SickDisk()
    trash = BrokerTrash(tmp_path / "trash", log_dirs, fs=disk)
    waiting = log_dirs[0] / "x-0/00000000000000000000.log.deleted"
    waiting.parent.mkdir()
    waiting.write_bytes(b"x")
    disk.unreadable[TRASH_ID] = errno.EMFILE
    with pytest.raises(TrashError) as refused:
        trash.dispose(waiting)
    assert f"{TRASH_ID} cannot be read: [Errno 24]" in str(refused.value)
    assert "remove" not in str(refused.value).partition("moving")[2]
    assert waiting.exists()
    assert not trash.is_missing
    disk.unreadable.clear()
    trash.dispose(waiting)
    assert not waiting.exists()
    trash.close()


def test_a_topic_handed_to_the_trash_does_not_come_back_after_a_power_loss() -> None:
    fs, logs, at = SimulatedFileSystem(), Path("/logs"), Path("/trash")
    for each in (logs, at):
        fs.make_directory_durably(each)
    waiting, topics = WaitingTopics([logs], fs=fs), TrashedTopics(at, fs=fs)
    waiting.add(TOPIC)
    waiting.hand_over(topics)
    topics.forget(TOPIC.topic_id)
    for image in fs.crash_images(20, random.Random(1)):
        assert WaitingTopics([logs], fs=image).get(TOPIC.topic_id) is None


def test_an_older_note_takes_nothing_from_the_newer_one_in_the_trash(tmp_path: Path) -> None:
    logs = tmp_path / "logs"
    logs.mkdir()
    topics = TrashedTopics(tmp_path, fs=OS)
    WaitingTopics([logs], fs=OS).add(TOPIC)
    topics.note(TOPIC)
    offset = RemovedOffset(group="g", partition=0, offset=5, leader_epoch=0, metadata="")
    topics.add_line(TOPIC.topic_id, build_removed_offsets([offset]))
    waiting = WaitingTopics([logs], fs=OS)  # as after a power loss
    waiting.append(TOPIC.topic_id, build_closed_partitions([0]))
    waiting.hand_over(topics)
    found = topics.get(TOPIC.topic_id)
    assert found is not None
    assert found.offsets == (offset,)
    assert found.partitions[0].is_closed
    assert list(logs.iterdir()) == []


def test_a_note_of_another_deletion_replaces_what_is_in_the_trash(tmp_path: Path) -> None:
    logs = tmp_path / "logs"
    logs.mkdir()
    topics, waiting = TrashedTopics(tmp_path, fs=OS), WaitingTopics([logs], fs=OS)
    topics.note(TOPIC)
    topics.add_line(TOPIC.topic_id, build_closed_partitions([0]))
    later = replace(TOPIC, at_ms=7)
    waiting.add(later)
    waiting.hand_over(topics)
    assert topics.get(TOPIC.topic_id) == later
