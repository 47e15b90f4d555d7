"""A cleaning that is interrupted by hand (Ctrl-C) at any rename of its owner."""

from __future__ import annotations

import shutil
import threading
from pathlib import Path

import pytest

from cordwood.configs.log_config import LogConfig
from cordwood.format.record_batch import iter_batches
from cordwood.storage.filesystem import OsFileSystem
from support.in_process_engine import clean_in_process
from support.log_builder import NOW_MS, LogBuilder, write_log_dir

# So small an index makes a group of every segment.
CONFIG = LogConfig(cleanup_policy=frozenset({"compact"}), segment_index_bytes=1)


@pytest.fixture(scope="module")
def before(tmp_path_factory: pytest.TempPathFactory) -> Path:
    log = LogBuilder("t-0", index_interval_bytes=100)
    for segment in range(4):
        for number in range(20):
            log.put(b"%d" % (number % 7 + segment), b"v" * 20)
        log.roll()
    log.put(b"end", b"v")
    return write_log_dir(tmp_path_factory.mktemp("interrupted") / "before", [log])


def clean(root: Path) -> None:
    assert not clean_in_process(root, {"t": CONFIG}, now_ms=NOW_MS, force=True).failed


def offsets(root: Path) -> list[int]:
    return [
        record.offset
        for path in sorted((root / "t-0").glob("*.log"))
        for _, batch in iter_batches(path.read_bytes())
        for record in batch.records()
    ]


def interrupted_at(root: Path, rename: int, monkeypatch: pytest.MonkeyPatch) -> bool:
    """Whether a cleaning came so far as to be interrupted."""
    count = 0
    real = OsFileSystem.rename

    def counted(self: OsFileSystem, path: Path, target: Path) -> None:
        nonlocal count
        if threading.current_thread() is threading.main_thread():
            count += 1
            if count == rename:
                raise KeyboardInterrupt
        real(self, path, target)

    with monkeypatch.context() as patch:
        patch.setattr(OsFileSystem, "rename", counted)
        try:
            clean(root)
        except KeyboardInterrupt:
            for mark in (root / "t-0").glob("cordwood.wanted.*"):
                mark.unlink()  # ends what the end of the process would end
            for thread in threading.enumerate():
                if thread.name.startswith("task of"):
                    thread.join(60)
            return True
    return False


def test_interrupted_at_any_rename_the_next_run_ends_as_an_undisturbed_one(
    before: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    undisturbed = shutil.copytree(before, tmp_path / "undisturbed")
    clean(undisturbed)
    expected = offsets(undisturbed)
    assert len(expected) < 30
    rename = 1
    while True:
        root = shutil.copytree(before, tmp_path / str(rename))
        if not interrupted_at(root, rename, monkeypatch):
            break
        clean(root)
        assert offsets(root) == expected, f"interrupted at rename {rename}"
        left = [p.name for p in (root / "t-0").iterdir() if p.suffix in {".staged", ".round"}]
        assert not left, f"interrupted at rename {rename}"
        rename += 1
    assert rename > 30
