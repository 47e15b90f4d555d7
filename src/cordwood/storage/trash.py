"""Where removed files go that are not to be deleted."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from cordwood.format.file_names import DELETED_SUFFIX
from cordwood.model.errors import ConfigError, NoSpaceError
from cordwood.model.topic_partition import TopicPartition
from cordwood.storage.filesystem import OS, FileSystem
from cordwood.storage.log_dir import is_log_dir, is_partition_dir

_PROBE_NAME = ".cordwood-probe"
_PROBE_BYTES = 4096


class Trash:
    """Disposes of files by moving them to `<directory>/<topic>-<partition>/<name>`.

    A number is added to a name that is taken.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def prepare(
        self, log_dirs: Sequence[Path], *, read_only: bool = False, fs: FileSystem = OS
    ) -> None:
        """Makes the directory, and checks that it can take files; before anything is moved there.

        Kafka does not start on a log directory that holds a directory without a partition's name,
        and takes one with such a name for a partition: so the trash lies in none.

        Args:
            log_dirs: those that are cleaned.
            read_only: only check where it lies.
            fs: where it is.

        Raises:
            ConfigError: it lies in a log directory, or cannot be written to.
        """
        self._require_outside(log_dirs, fs)
        if read_only:
            return
        probe = self._directory / _PROBE_NAME
        try:
            fs.make_directory(self._directory)
            try:
                fs.write_durably(probe, bytes(_PROBE_BYTES))
            finally:
                fs.remove(probe)
        except (OSError, NoSpaceError) as error:
            raise ConfigError(
                f"--trash {self._directory}: cannot be written to: {error}"
            ) from error

    def _require_outside(self, log_dirs: Sequence[Path], fs: FileSystem) -> None:
        real = self._directory.resolve()
        cleaned = {fs.identity_of(path) for path in log_dirs}
        for path in (real, *real.parents):
            if not fs.exists(path):
                continue
            is_in_log_dir = fs.identity_of(path) in cleaned or is_log_dir(path, fs=fs)
            if is_in_log_dir or is_partition_dir(path, fs=fs):
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
        OS.move_away(path, target)
