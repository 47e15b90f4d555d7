"""Directories that a cleaning locks, and places for its trash."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from cordwood.cleanup.access.offline.directories import find_places, open_log_dirs
from cordwood.cleanup.plan.report import Status
from cordwood.configs.log_config import LogConfig
from cordwood.model.errors import ConfigError, DirectoryInUseError
from support.clean_case import log_dir, log_of
from support.failing_disks import fill, may_mount, small_disk
from support.in_process_engine import clean_in_process
from support.log_builder import NOW_MS

CONFIGS = {"x": LogConfig(retention_ms=172_800_000), "y": LogConfig(retention_ms=172_800_000)}
takes_mount = pytest.mark.skipif(bool(may_mount()), reason=may_mount())


@contextmanager
def shown_at(source: Path, target: Path) -> Iterator[None]:
    """A directory that is mounted in a second place."""
    target.mkdir()
    subprocess.run(["mount", "--bind", str(source), str(target)], check=True)
    try:
        yield
    finally:
        subprocess.run(["umount", "-l", str(target)], check=True)


def bases(directory: Path) -> list[int]:
    return sorted(int(path.stem) for path in directory.glob("*.log"))


@takes_mount
def test_log_directory_that_is_mounted_twice_is_cleaned_once(tmp_path: Path) -> None:
    root = log_dir(tmp_path / "logs", "x-0")
    with shown_at(root, tmp_path / "again"):
        found = open_log_dirs([root, tmp_path / "again" / "x-0"])
        assert [each.path for each in found] == [root]
        report = clean_in_process(root, CONFIGS, now_ms=NOW_MS, log_dirs=(root, tmp_path / "again"))
    assert [p.status for p in report.partitions] == [Status.CLEANED]
    assert bases(root / "x-0") == [4]


@takes_mount
def test_partition_of_a_running_broker_that_is_mounted_elsewhere_is_refused(tmp_path: Path) -> None:
    live, outer = log_dir(tmp_path / "live", "x-0"), log_dir(tmp_path / "outer", "y-0")
    with (live / "x-0" / f"{4:020d}.log").open("r+b"), shown_at(live / "x-0", outer / "x-0"):
        with pytest.raises(DirectoryInUseError, match="open for writing in another process"):
            clean_in_process(outer, CONFIGS, now_ms=NOW_MS)
        assert bases(live / "x-0") == [0, 2, 4]
    assert bases(outer / "y-0") == [0, 2, 4]


def test_broker_that_opens_a_partition_after_the_capture_makes_it_fail(tmp_path: Path) -> None:
    """It does so by a path of its own, where another `.lock` counts."""
    root = log_dir(tmp_path / "logs", "x-0", "y-0")
    opened = []

    class Opens:
        """Opens the active segment once everything is captured."""

        def begin(self, phase: str, total: int) -> None:
            if phase == "retention":
                opened.append((root / "x-0" / f"{4:020d}.log").open("r+b"))

        def advance(self, name: str) -> None:
            pass

    report = clean_in_process(root, CONFIGS, now_ms=NOW_MS, listener=Opens())
    opened[0].close()
    assert {p.topic: p.status for p in report.partitions} == {
        "x": Status.FAILED,
        "y": Status.CLEANED,
    }
    assert "open for writing" in report.failed[0].reason
    assert bases(root / "x-0") == [0, 2, 4]


def test_partition_named_by_a_link_belongs_to_the_log_directory_of_the_link(tmp_path: Path) -> None:
    root = log_dir(tmp_path / "logs", "y-0")
    log_of("x-0").write(tmp_path / "disk" / "volume")
    (root / "x-0").symlink_to(tmp_path / "disk" / "volume")
    (found,) = open_log_dirs([root / "x-0"])
    assert (found.path, found.only) == (root, frozenset({"x-0"}))
    (place,) = find_places([found])
    assert str(place.partition.topic_partition) == "x-0"


@takes_mount
def test_trash_on_a_full_disk_is_refused_before_anything_is_removed(tmp_path: Path) -> None:
    root = log_dir(tmp_path / "logs", "x-0")
    with small_disk(tmp_path / "disk", megabytes=1) as disk:
        fill(disk)
        with pytest.raises(ConfigError, match=r"--trash .*the file system is full; name a dir"):
            clean_in_process(root, CONFIGS, now_ms=NOW_MS, trash=disk / "trash")
        assert not (disk / "trash").exists()
    assert bases(root / "x-0") == [0, 2, 4]


@takes_mount
def test_trash_that_frees_no_space_is_warned_of(tmp_path: Path) -> None:
    root = log_dir(tmp_path / "logs", "x-0")
    beside = tmp_path / "deep" / "trash"
    with small_disk(tmp_path / "disk", megabytes=1) as disk:
        report = clean_in_process(
            root, CONFIGS, now_ms=NOW_MS, trash=disk / "deep" / "trash", dry_run=True
        )
        assert report.warnings == []
        for dry_run in (True, False):
            report = clean_in_process(root, CONFIGS, now_ms=NOW_MS, trash=beside, dry_run=dry_run)
            assert report.warnings == [
                f"--trash {beside} is on the file system of {root}: what is moved there frees no "
                "space"
            ]


def test_dry_run_makes_no_trash(tmp_path: Path) -> None:
    root = log_dir(tmp_path / "logs", "x-0")
    clean_in_process(root, CONFIGS, now_ms=NOW_MS, trash=tmp_path / "trash", dry_run=True)
    assert not (tmp_path / "trash").exists()
    with pytest.raises(ConfigError, match="lies in the log directory"):
        clean_in_process(root, CONFIGS, now_ms=NOW_MS, trash=root / "trash", dry_run=True)
