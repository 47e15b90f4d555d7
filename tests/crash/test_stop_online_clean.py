"""A running log whose process ends at any change to files while a compaction is put in place.

What is opened then has every key's newest value, and the next compaction ends as if undisturbed.
"""

from __future__ import annotations

import shutil
import threading
from dataclasses import dataclass
from pathlib import Path

import pytest

from cordwood.cleanup.schedule.cleaner import OnlineCleaner
from cordwood.configs.log_config import LogConfig
from cordwood.storage.filesystem import FileFacts, OsFile, OsFileSystem
from support.in_process_engine import CompiledEngine
from support.running_logs import RunningLogs, newest, read_records

CONFIG = LogConfig(
    cleanup_policy=frozenset({"compact"}),
    segment_bytes=1_500,
    index_interval_bytes=100,
    min_cleanable_dirty_ratio=0.0,
)
LEFT_OVER = (".staged", ".cleaned", ".swap", ".deleted")


class Died(BaseException):
    """The process is gone: nothing behind it runs."""


class MortalFileSystem(OsFileSystem):
    """Counts changes once `dies_at` is set, and makes none from that one on."""

    def __init__(self) -> None:
        self.changes = 0
        self.dies_at: int | None = None

    def _step(self) -> None:
        if self.dies_at is None:
            return
        self.changes += 1
        if self.changes >= self.dies_at:
            raise Died

    def create(self, path: Path) -> OsFile:
        self._step()
        return super().create(path)

    def rename(self, path: Path, target: Path) -> None:
        self._step()
        super().rename(path, target)

    def remove(self, path: Path) -> None:
        self._step()
        super().remove(path)

    def sync_directory(self, path: Path) -> None:
        self._step()
        super().sync_directory(path)

    def set_modified(self, path: Path, modified_ns: int) -> None:
        self._step()
        super().set_modified(path, modified_ns)

    def take_after(self, path: Path, model: FileFacts) -> None:
        self._step()
        super().take_after(path, model)


@dataclass(frozen=True)
class Case:
    """A directory not yet compacted, how its log reads, and how many changes a compaction makes."""

    before: Path
    state: dict[bytes, tuple[bytes, int]]
    cleaned: bytes
    changes: int


def copied(case_dir: Path, root: Path) -> Path:
    shutil.copytree(case_dir, root / "logs-0")
    (root / "logs-0" / ".lock").unlink(missing_ok=True)
    return root


def batches_of(logs: RunningLogs) -> bytes:
    """Every batch in order; a second compaction may find other segments to merge."""
    logs_of = (logs.directories[0] / "t-0").glob("*.log")
    return b"".join(path.read_bytes() for path in sorted(logs_of))


@pytest.fixture(scope="module")
def case(tmp_path_factory: pytest.TempPathFactory) -> Case:
    root = tmp_path_factory.mktemp("before")
    logs = RunningLogs(root, {"t": CONFIG})
    log = logs.log()
    for number in range(150):
        key = b"%d" % (number % 13)
        logs.put(log, (key, None if number % 31 == 0 else b"%d" % number))
    state = newest(read_records(log))
    logs.manager.shutdown()
    fs = MortalFileSystem()
    undisturbed = RunningLogs(
        copied(root / "logs-0", tmp_path_factory.mktemp("undisturbed")), {"t": CONFIG}, fs=fs
    )
    fs.dies_at = 1 << 30
    assert undisturbed.cleaner.clean_once()
    fs.dies_at = None
    undisturbed.manager.shutdown()
    return Case(root / "logs-0", state, batches_of(undisturbed), fs.changes)


def stop_at(case: Case, root: Path, step: int) -> None:
    """A compaction that ends at a change, and all that is found and done behind it."""
    fs = MortalFileSystem()
    dying = RunningLogs(copied(case.before, root), {"t": CONFIG}, fs=fs)
    fs.dies_at = step
    with pytest.raises(Died):
        OnlineCleaner(dying.cleaning, CompiledEngine()).clean_once()
    fs.dies_at = 0
    end_tasks(dying.directories[0] / "t-0")
    for directory in dying.manager.directories:
        directory.release()  # as the end of a process does
    logs = RunningLogs(root, {"t": CONFIG}, clock=dying.clock)
    log = logs.log()
    assert newest(read_records(log)) == case.state
    found = [record.offset for record in read_records(log)]
    assert found == sorted(set(found))
    assert log.log_end_offset == 150
    left = [path.name for path in log.directory.iterdir() if path.name.endswith(LEFT_OVER)]
    assert not left
    if (logs.checkpoint() or 0) < log.active.base_offset:
        assert logs.cleaner.clean_once()
    assert newest(read_records(log)) == case.state
    logs.manager.shutdown()
    assert batches_of(logs) == case.cleaned


def end_tasks(directory: Path) -> None:
    """Ends the threads that would have gone with the process."""
    for mark in directory.glob("cordwood.wanted.*"):
        mark.unlink()
    for thread in threading.enumerate():
        if thread.name.startswith("task of"):
            thread.join(60)
            assert not thread.is_alive()


def test_stopped_at_a_step_the_next_round_ends_as_an_undisturbed_one(
    case: Case, tmp_path: Path
) -> None:
    assert case.changes > 60, "a compaction that is not worth stopping"
    for step in range(1, case.changes + 1, 6):
        stop_at(case, tmp_path / str(step), step)


@pytest.mark.nightly
def test_stopped_at_any_step_the_next_round_ends_as_an_undisturbed_one(
    case: Case, tmp_path: Path
) -> None:
    for step in range(1, case.changes + 1):
        stop_at(case, tmp_path / str(step), step)
