"""Where removed files go that are not to be deleted."""

from __future__ import annotations

import errno
from collections.abc import Sequence
from contextlib import closing, suppress
from pathlib import Path

from cordwood.format.file_names import DELETED_SUFFIX
from cordwood.model.errors import ConfigError, NoSpaceError
from cordwood.model.topic_partition import TopicPartition
from cordwood.storage.filesystem import OS, FileSystem, FileWriter
from cordwood.storage.log_directory import is_log_directory, is_partition_directory

_PROBE_NAME = ".cordwood-probe"
_PROBE_BYTES = 4096
_COPY_BYTES = 1 << 20


class Trash:
    """Disposes of files by moving them to `<directory>/<topic>-<partition>/<name>`.

    A number is added to a name that is taken.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def prepare(
        self, log_dirs: Sequence[Path], *, read_only: bool = False, fs: FileSystem = OS
    ) -> list[str]:
        """Makes the directory, and checks that it can take files; before anything is moved there.

        Kafka does not start on a log directory that holds a directory without a partition's name,
        and takes one with such a name for a partition: so the trash lies in none.

        Args:
            log_dirs: those that are cleaned.
            read_only: only check where it lies.
            fs: where it is.

        Returns:
            A warning for each log directory on the trash's own file system, where moving files
            frees no space.

        Raises:
            ConfigError: it lies in a log directory, or cannot be written to; it is then not made.
        """
        self._require_outside(log_dirs, fs)
        if read_only:
            return self._warnings(log_dirs)
        probe = self._directory / _PROBE_NAME
        is_new = not fs.exists(self._directory)
        try:
            fs.make_directory(self._directory)
            try:
                fs.write_durably(probe, bytes(_PROBE_BYTES))
            finally:
                fs.remove(probe)
        except NoSpaceError as error:
            if is_new:
                with suppress(OSError):
                    fs.remove_directory(self._directory)
            raise ConfigError(
                f"--trash {self._directory}: the file system is full; name a directory on another "
                "file system, or leave --trash out, and what is removed is deleted"
            ) from error
        except OSError as error:
            raise ConfigError(
                f"--trash {self._directory}: cannot be written to: {error}"
            ) from error
        return self._warnings(log_dirs)

    def _warnings(self, log_dirs: Sequence[Path]) -> list[str]:
        real = self._directory.resolve()
        device = next(path for path in (real, *real.parents) if path.exists()).stat().st_dev
        return [
            f"--trash {self._directory} is on the file system of {path}: what is moved there "
            "frees no space"
            for path in log_dirs
            if path.stat().st_dev == device
        ]

    def _require_outside(self, log_dirs: Sequence[Path], fs: FileSystem) -> None:
        real = self._directory.resolve()
        cleaned = {fs.identity_of(path) for path in log_dirs}
        for path in (real, *real.parents):
            if not fs.exists(path):
                continue
            is_in_log_dir = fs.identity_of(path) in cleaned or is_log_directory(path, fs=fs)
            if is_in_log_dir or is_partition_directory(path, fs=fs):
                raise ConfigError(
                    f"--trash {self._directory}: it lies in the log directory {path}, where Kafka "
                    "takes every directory for a partition; name a directory elsewhere"
                )
        for path in log_dirs:
            log_dir = path.resolve()
            if log_dir.parent == real and TopicPartition.is_name(log_dir.name):
                raise ConfigError(
                    f"--trash {self._directory}: files of a partition {log_dir.name} would go to "
                    f"the log directory {path}; name a directory elsewhere"
                )

    def __call__(self, path: Path) -> None:
        """Moves one `.deleted` file."""
        name = path.name.removesuffix(DELETED_SUFFIX)
        target = self._directory / path.parent.name / name
        number = 0
        while OS.exists(target):  # a segment that was rewritten before, or an older trash
            number += 1
            target = target.with_name(f"{name}.{number}")
        move_file(path, target)


def move_file(path: Path, target: Path) -> None:
    """Moves a file to another folder, perhaps on another file system, owner and times kept.

    At any moment, after a crash too, one of the two names is the whole file.

    Raises:
        NoSpaceError: the other file system is full; `path` is as it was, there is no `target`.
    """
    OS.make_directory(target.parent)
    try:
        OS.rename(path, target)
    except OSError as error:
        if error.errno != errno.EXDEV:
            raise
        _copy(path, target)
        OS.sync_directory(target.parent)
        OS.remove(path)


def _copy(path: Path, target: Path) -> None:
    temporary = target.with_name(f"{target.name}.tmp")
    OS.remove(temporary)  # of a move that was cut off
    try:
        if path.is_symlink():
            OS.copy_link(path, temporary)
        else:
            _copy_bytes(path, temporary)
        OS.rename(temporary, target)
    except BaseException:
        OS.remove(temporary)
        raise


def _copy_bytes(path: Path, target: Path) -> None:
    facts = OS.facts_of(path)
    with closing(OS.open(path)) as source, closing(FileWriter(target)) as writer:
        position = 0
        while data := source.read_at(_COPY_BYTES, position):
            writer.write(data)
            position += len(data)
    OS.take_after(target, facts)
    OS.set_modified(target, facts.modified_ns)
