"""A broker's log directory in which a tiered log has its remote segments, too; it is only read."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from cordwood.format.file_names import LOG_START_OFFSET_CHECKPOINT, PARTITION_METADATA
from cordwood.format.partition_metadata import parse_partition_metadata
from cordwood.model.errors import CorruptError
from cordwood.model.topic_partition import TopicPartition
from cordwood.storage.filesystem import OS, Entry, File, FileFacts
from cordwood.storage.offset_checkpoint_file import OffsetCheckpointFile
from cordwood.storage.read_only import ReadOnlyFileSystem, missing, refuse
from cordwood.storage.tiered.local_tiered_storage import LocalTieredStorage
from cordwood.storage.tiered.metadata_topic import RemoteLogs, metadata_segments, read_remote_logs
from cordwood.storage.tiered.tiered_files import TieredFile, TieredLog

Files = Mapping[str, TieredFile]


class TieredFileSystem(ReadOnlyFileSystem):
    """The files of a log directory, below the directory at which it is mounted.

    What is not of a tiered log is as the broker has it. Remote segments are looked up when a
    directory is listed: they and the local ones are as of one moment. Every method raises
    `OSError` where a file cannot be reached, `ConfigError` where there is no
    `__remote_log_metadata`, and `CorruptError` where a record of it cannot be understood.
    """

    def __init__(
        self, root: Path, log_dir: Path, remote_dir: Path, metadata_dirs: Sequence[Path] = ()
    ) -> None:
        """Reads nothing yet.

        Args:
            root: where it is mounted.
            log_dir: a broker's.
            remote_dir: of `LocalTieredStorage`.
            metadata_dirs: log directories with the partitions of `__remote_log_metadata`, if it is
                not `log_dir`.
        """
        self.root = root
        self.log_dir = log_dir
        self.remote_dir = remote_dir
        self.metadata_dirs = tuple(metadata_dirs) or (log_dir,)
        self._guard = threading.RLock()
        self._read_from: list[tuple[Path, int]] = []
        self._remote: RemoteLogs = {}
        self._listed: dict[str, Files | None] = {}

    def __getstate__(self) -> tuple[Path, Path, Path, tuple[Path, ...]]:
        return self.root, self.log_dir, self.remote_dir, self.metadata_dirs

    def __setstate__(self, state: tuple[Path, Path, Path, tuple[Path, ...]]) -> None:
        self.__init__(*state)  # type: ignore[misc]  # as it was made

    def _real(self, path: Path) -> Path:
        return self.log_dir / path.relative_to(self.root)

    # ---- tiered logs

    def _files_of(self, directory: Path, *, again: bool = False) -> Files | None:
        """The files of a tiered log's directory; None for another directory."""
        if directory.parent != self.root or not TopicPartition.is_name(directory.name):
            return None
        name = directory.name
        with self._guard:
            if again or name not in self._listed:
                log = self._tiered_log(name)
                self._listed[name] = None if log is None else log.files()
            return self._listed[name]

    def _tiered_log(self, name: str) -> TieredLog | None:
        directory, log = self.log_dir / name, TopicPartition.parse(name)
        path = directory / PARTITION_METADATA
        try:
            topic_id = parse_partition_metadata(OS.read_bytes(path)).topic_id
        except FileNotFoundError:
            return None
        except CorruptError:  # which a reader of the file finds
            return None
        remote = self._remote_logs().get((topic_id, log))
        if remote is None:
            return None
        starts = OffsetCheckpointFile(self.log_dir / LOG_START_OFFSET_CHECKPOINT, fs=OS)
        return TieredLog(
            log=log,
            topic_id=topic_id,
            directory=directory,
            remote=remote,
            storage=LocalTieredStorage(self.remote_dir),
            log_start=starts.read().get(log),
        )

    def _remote_logs(self) -> RemoteLogs:
        """The remote segments of all logs, read again where something was written."""
        segments = metadata_segments(self.metadata_dirs)
        found = [(path, OS.facts_of(path).size_bytes) for path in segments]
        if found != self._read_from:
            self._remote = read_remote_logs(segments)
            self._read_from = found
        return self._remote

    def _file(self, path: Path) -> TieredFile | None:
        """A file of a tiered log; None for another path.

        Raises:
            FileNotFoundError: its log has no such file.
        """
        files = self._files_of(path.parent)
        if files is None:
            return None
        if path.name not in files:
            raise missing(path)
        return files[path.name]

    # ---- looking

    def entries_in(self, directory: Path) -> list[Entry]:
        """Lists a directory; of a tiered log, as it is now."""
        files = self._files_of(directory, again=True)
        if files is None:
            return OS.entries_in(self._real(directory))
        return [Entry(name, is_directory=False, is_regular=True) for name in sorted(files)]

    def exists(self, path: Path) -> bool:
        """Looks a path up."""
        files = self._files_of(path.parent)
        return OS.exists(self._real(path)) if files is None else path.name in files

    def is_directory(self, path: Path) -> bool:
        """Looks a path up."""
        return self._files_of(path.parent) is None and OS.is_directory(self._real(path))

    def facts_of(self, path: Path) -> FileFacts:
        """Looks a file up; the owner and the times of a part are those of the whole."""
        found = self._file(path)
        if found is None:
            return OS.facts_of(self._real(path))
        return replace(OS.facts_of(found.path), size_bytes=found.size_bytes)

    def identity_of(self, path: Path) -> object:
        """Returns that of the file which is there, or of the one a part is of."""
        found = self._file(path)
        return OS.identity_of(self._real(path) if found is None else found.path)

    def lock_holder(self, directory: Path) -> int | None:
        """Looks for the broker of the log directory."""
        return OS.lock_holder(self._real(directory))

    def free_bytes(self, path: Path) -> int:
        """Asks for the space of the log directory."""
        return OS.free_bytes(self._real(path))

    def space(self, path: Path) -> tuple[int, int]:
        """Asks for the space of the log directory."""
        return OS.space(self._real(path))

    def open(self, path: Path, *, write: bool = False) -> File:
        """Opens a file, for reading only."""
        if write:
            refuse(path)
        found = self._file(path)
        return OS.open(self._real(path)) if found is None else found.opened()
