"""Flushes beside other work on the same log (UnifiedLogTest)."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from cordwood.model.kafka_errors import StorageError
from cordwood.storage.filesystem import File
from cordwood.storage.log.log_context import LogContext
from cordwood.storage.log.partition_log import PartitionLog
from cordwood.storage.segment.resources import ResourceCache
from cordwood.testing.simulated_filesystem import (
    FileOperation,
    FileOperationKind,
    SimulatedFileSystem,
)
from support.log_under_test import new_log
from support.stored_log import put, records_in

ROOT = Path("/logs")
RENAMED = ROOT / "t-0.0123456789abcdef0123456789abcdef-delete"


def rolled(fs: SimulatedFileSystem, *, files_max: int = 1) -> PartitionLog:
    """A log of three segments, nothing of which is flushed."""
    context = LogContext(resources=ResourceCache(fs, files_max=files_max))
    log = new_log(ROOT, fs=fs, context=context)
    for _ in range(2):
        put(log, b"v")
        log.roll()
    put(log, b"v")
    return log


@pytest.mark.parametrize("kind", [FileOperationKind.SYNC, FileOperationKind.SYNC_DIRECTORY])
def test_a_directory_that_is_renamed_during_a_flush_does_not_fail(kind: FileOperationKind) -> None:
    fs = SimulatedFileSystem()
    log = rolled(fs)
    done: list[FileOperation] = []

    def rename(operation: FileOperation) -> None:
        if operation.kind is kind and not done:
            done.append(operation)
            log.rename_directory(RENAMED)

    fs.on_operation = rename
    log.flusher.flush_up_to(log.active.base_offset)
    fs.on_operation = None
    assert done
    assert log.offsets.recovery_point == 2
    assert not log.context.failures.offline
    assert len(records_in(log)) == 3


class RenamedAmidFlush(SimulatedFileSystem):
    """Once there is `work` to do, which is a rename, it comes before the next look at a file.

    The rename goes on, and tells the log, when that look has failed.
    """

    def __init__(self, looks: int) -> None:
        super().__init__()
        self._looks = looks
        self._work: threading.Thread | None = None
        self._renamed = threading.Event()
        self._missed = threading.Event()

    def begin(self, work: threading.Thread) -> None:
        self._missed.clear()
        self._work = work

    def rename(self, path: Path, target: Path) -> None:
        super().rename(path, target)
        if target == RENAMED:
            self._renamed.set()
            assert self._missed.wait(120)

    def open(self, path: Path, *, write: bool = False) -> File:
        with self._looking():
            return super().open(path, write=write)

    def sync_directory(self, path: Path) -> None:
        if path == ROOT:
            return super().sync_directory(path)
        with self._looking():
            return super().sync_directory(path)

    @contextmanager
    def _looking(self) -> Iterator[None]:
        if self._work is not None and not self._renamed.is_set():
            self._looks -= 1
            if self._looks == 0:
                self._work.start()
                assert self._renamed.wait(120)
        try:
            yield
        except FileNotFoundError:
            self._missed.set()
            raise


def behind_a_roll(log: PartitionLog) -> None:
    log.context.scheduler.run_due()


def by_itself(log: PartitionLog) -> None:
    log.flusher.flush_up_to(log.active.base_offset)


@pytest.mark.parametrize("flush", [behind_a_roll, by_itself])
@pytest.mark.parametrize(("files_max", "looks"), [(1, 1), (1, 2), (1, 3), (512, 1)])
def test_a_flush_in_the_middle_of_a_rename_waits_for_its_end(
    files_max: int, looks: int, flush: Callable[[PartitionLog], None]
) -> None:
    fs = RenamedAmidFlush(looks)
    log = rolled(fs, files_max=files_max)
    rename = threading.Thread(target=lambda: log.rename_directory(RENAMED), daemon=True)
    fs.begin(rename)
    flush(log)
    rename.join(120)
    assert not rename.is_alive()
    assert log.directory == RENAMED
    assert not log.context.failures.offline
    assert log.offsets.recovery_point == 2
    assert len(records_in(log)) == 3


def test_a_flush_of_a_directory_that_somebody_removed_takes_the_log_dir_offline() -> None:
    fs = SimulatedFileSystem()
    log = rolled(fs)
    fs.remove_tree(log.directory)
    with pytest.raises(StorageError):
        log.flush()
    assert ROOT in log.context.failures.offline
