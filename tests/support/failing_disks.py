"""Log directories that fail under a running broker, and disks that are small enough to fill.

A directory that is broken is out of reach of every path, as where a disk is gone; files that are
open stay readable. `DeadDisk` fails on demand, open files too.
"""

from __future__ import annotations

import errno
import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from cordwood.storage.filesystem import OsFile, OsFileSystem


def _aside(directory: Path) -> Path:
    return directory.with_name(f"{directory.name}.broken")


def break_directory(directory: Path) -> None:
    """Puts a file where the directory was: no path below it can be reached any more."""
    directory.rename(_aside(directory))
    directory.touch()


def mend_directory(directory: Path) -> None:
    """Puts the directory back as it was."""
    directory.unlink()
    _aside(directory).rename(directory)


class DeadDisk(OsFileSystem):
    """The machine's files, but for those below `dead`, which can be read and not synced."""

    def __init__(self) -> None:
        self.dead: Path | None = None

    def is_dead(self, path: Path) -> bool:
        """Whether a file's disk takes nothing any more."""
        return self.dead is not None and path.is_relative_to(self.dead)

    def open(self, path: Path, *, write: bool = False) -> OsFile:
        """Opens a file whose reads are counted."""
        return _File(path, os.O_RDWR if write else os.O_RDONLY, self)

    def create(self, path: Path) -> OsFile:
        """Creates a file, unless that is to fail."""
        return _File(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC, self)


class _File(OsFile):
    def __init__(self, path: Path, flags: int, disk: DeadDisk) -> None:
        super().__init__(path, flags)
        self._at = path
        self._disk = disk

    def sync(self) -> None:
        if self._disk.is_dead(self._at):
            raise OSError(errno.EIO, os.strerror(errno.EIO), str(self._at))
        super().sync()


def may_mount() -> str:
    """Why no file system can be mounted here; empty if one can."""
    if os.geteuid() != 0:
        return "mounting a small file system takes root"
    probe = subprocess.run(
        ["unshare", "--mount", "mount", "-t", "tmpfs", "tmpfs", "/mnt"],
        capture_output=True,
        text=True,
        check=False,
    )
    return "" if probe.returncode == 0 else f"no file system can be mounted: {probe.stderr}"


@contextmanager
def small_disk(at: Path, *, megabytes: int, files_max: int | None = None) -> Iterator[Path]:
    """A file system in memory of that size, removed at the end; needs root.

    Args:
        at: where it is mounted.
        megabytes: its size.
        files_max: how many files and directories it can hold; None for the system's default.
    """
    at.mkdir(parents=True, exist_ok=True)
    options = f"size={megabytes}m" + (f",nr_inodes={files_max}" if files_max else "")
    subprocess.run(["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(at)], check=True)
    try:
        yield at
    finally:
        subprocess.run(["umount", "-l", str(at)], check=True)


def fill(disk: Path, *, leave_bytes: int = 0) -> Path:
    """Fills a disk up to so many free bytes; returns the file that fills it."""
    path = disk / "ballast"
    with path.open("wb") as file:
        for _ in range(100):
            free = os.statvfs(disk)
            size = free.f_bavail * free.f_frsize - leave_bytes
            if size <= 0:
                break
            try:
                os.posix_fallocate(file.fileno(), 0, size)
            except OSError as error:
                # A broker that writes meanwhile may have taken some of it.
                if error.errno != errno.ENOSPC:
                    raise
            else:
                break
        else:
            raise AssertionError(f"{disk} does not fill up")
    return path
