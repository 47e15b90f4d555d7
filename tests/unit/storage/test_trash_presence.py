"""The note of a trash in each log directory, and notes of topics that wait, on sick disks."""

from __future__ import annotations

import errno
import logging
import random
from pathlib import Path
from uuid import uuid4

import pytest

from cordwood.format.file_names import TRASH_ID, TRASH_MARK
from cordwood.format.trash_notes import RemovedTopic
from cordwood.format.varint import Buffer
from cordwood.model.errors import TrashError
from cordwood.storage.broker_trash import BrokerTrash
from cordwood.storage.filesystem import FileFacts, OsFileSystem
from cordwood.storage.trash_presence import noted_trashes
from cordwood.storage.trashed_topics import TrashedTopics
from cordwood.storage.waiting_topics import WaitingTopics
from cordwood.testing.simulated_filesystem import SimulatedFileSystem


class SickDisk(OsFileSystem):
    """Refuses to write below a directory, or to read files of a name, while it is sick."""

    def __init__(self) -> None:
        self.read_only: Path | None = None
        self.unreadable: dict[str, int] = {}

    def replace_durably(self, path: Path, data: Buffer, *, model: FileFacts | None = None) -> None:
        if self.read_only in path.parents:
            raise OSError(errno.EROFS, "Read-only file system", str(path))
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


def test_a_log_directory_that_refuses_the_note_gets_it_at_a_later_check(
    tmp_path: Path, log_dirs: list[Path], caplog: pytest.LogCaptureFixture
) -> None:
    disk = SickDisk()
    disk.read_only = log_dirs[0]
    trash = BrokerTrash(tmp_path / "trash", log_dirs, fs=disk)
    assert [(each / TRASH_MARK).exists() for each in log_dirs] == [False, True]
    assert f"{log_dirs[0] / TRASH_MARK} cannot be written" in caplog.text
    trash.remove_expired(0)
    disk.read_only = None
    trash.remove_expired(0)
    trash.close()
    first, second = (noted_trashes(each) for each in log_dirs)
    assert first == second != {}


def test_a_note_that_cannot_be_read_stops_nothing(
    tmp_path: Path, log_dirs: list[Path], caplog: pytest.LogCaptureFixture
) -> None:
    BrokerTrash(tmp_path / "trash", log_dirs).close()
    disk = SickDisk()
    disk.unreadable[TRASH_MARK] = errno.EIO
    BrokerTrash(tmp_path / "trash", log_dirs, fs=disk).close()
    assert [r.levelno for r in caplog.records] == [logging.WARNING] * 2


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
    assert "Errno 24" in str(refused.value)
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
    topic = RemovedTopic(
        at_ms=1,
        expires_ms=2,
        name="t",
        topic_id=uuid4(),
        settings={},
        replicas=1,
        partitions=(),
    )
    waiting, topics = WaitingTopics([logs], fs=fs), TrashedTopics(at, fs=fs)
    waiting.add(topic)
    waiting.hand_over(topics)
    topics.forget(topic.topic_id)
    for image in fs.crash_images(20, random.Random(1)):
        assert WaitingTopics([logs], fs=image).get(topic.topic_id) is None
