"""The cleaner's checkpoints of a broker: how far each log is clean, a file in each directory.

Source: org.apache.kafka.storage.internals.log.LogCleanerManager (checkpoints).
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from cordwood.format.checkpoint_order import cleaner_offset_order, truncated_cleaner_order
from cordwood.model.kafka_errors import StorageError
from cordwood.model.topic_partition import TopicPartition
from cordwood.storage.log_manager import LogManager
from cordwood.storage.offset_checkpoint_file import OffsetCheckpointFile

_log = logging.getLogger(__name__)


class CleanerCheckpoints:
    """The lines of all directories, which are read from the files each time."""

    def __init__(self, logs: LogManager, lock: AbstractContextManager[Any]) -> None:
        """Takes the logs, and the lock that guards the files."""
        self._logs = logs
        self._lock = lock
        self._files = {d.path: d.cleaner_offsets for d in logs.directories}
        # Added to without the lock: a directory may fail under any other lock.
        self._failed: set[Path] = set()
        # Lines of checkpoints for which the disk had no space, until they are written.
        self._unsaved: dict[Path, dict[TopicPartition, int]] = {}

    def all(self) -> dict[TopicPartition, int]:
        """The cleaner checkpoint of every log, exclusive."""
        return {p: o for lines in self.by_directory().values() for p, o in lines.items()}

    def by_directory(self) -> dict[Path, Mapping[TopicPartition, int]]:
        """The lines of each directory."""
        with self._lock:
            return {path: self.of(path) for path in self._files}

    def of(self, log_dir: Path) -> Mapping[TopicPartition, int]:
        """The lines of a directory; none if it has failed."""
        with self._lock:
            file = self._file(log_dir)
            if file is None or log_dir in self._unsaved:
                return dict(self._unsaved.get(log_dir, {}))
            try:
                with self._logs.context.failures.guard(log_dir, "reading the cleaner's checkpoint"):
                    return file.read_or_nothing(file.path.name)
            except StorageError:
                _note_inaccessible(file)
                return {}

    def _file(self, log_dir: Path) -> OffsetCheckpointFile | None:
        return None if log_dir in self._failed else self._files.get(log_dir)

    def _write(self, log_dir: Path, lines: dict[TopicPartition, int]) -> None:
        file = self._file(log_dir)
        if file is None:
            return
        try:
            with self._logs.context.failures.guard(log_dir, "writing the cleaner's checkpoint"):
                file.write(lines)
        except StorageError as error:
            if error.is_out_of_space:
                # Otherwise it would be cleaned again immediately.
                self._unsaved[log_dir] = dict(lines)
            else:
                _note_inaccessible(file)
        else:
            self._unsaved.pop(log_dir, None)

    def update(
        self,
        log_dir: Path,
        *,
        line: tuple[TopicPartition, int] | None = None,
        remove: TopicPartition | None = None,
    ) -> None:
        """Sets or removes a line of a directory's checkpoint; also lines of missing partitions.

        Nothing happens for a directory that has failed.
        """
        with self._lock:
            before = self.of(log_dir)
            gone = {p for p in before if self._logs.get(p) is None or p == remove}
            partition, lines = (
                (None, before) if line is None else (line[0], {**before, line[0]: line[1]})
            )
            order = cleaner_offset_order(list(before), update=partition, gone=gone)
            self._write(log_dir, {partition: lines[partition] for partition in order})

    def move(self, partition: TopicPartition, source: Path, destination: Path) -> None:
        """Moves a partition's line to another directory."""
        with self._lock:
            offset = self.of(source).get(partition)
            if offset is not None:
                self.update(source, remove=partition)
                self.update(destination, line=(partition, offset))

    def maybe_truncate(self, log_dir: Path, partition: TopicPartition, offset: int) -> None:
        """Lowers a compacted partition's line to `offset` where it is higher."""
        with self._lock:
            log = self._logs.get(partition)
            lines = self.of(log_dir)
            if log is not None and log.config.compact and lines.get(partition, 0) > offset:
                order = truncated_cleaner_order([*lines])
                lowered = {**lines, partition: offset}
                self._write(log_dir, {each: lowered[each] for each in order})

    def save(self) -> None:
        """Writes the lines for which the disk had no space before."""
        with self._lock:
            for log_dir, lines in list(self._unsaved.items()):
                self._write(log_dir, lines)

    def handle_log_dir_failure(self, log_dir: Path) -> None:
        """Forgets the checkpoint of a directory that went offline, which stops its cleaning."""
        if log_dir not in self._failed:
            _log.warning("Stopping cleaning logs in dir %s", log_dir)
            self._failed.add(log_dir)

    def is_failed(self, log_dir: Path) -> bool:
        """Whether a directory went offline."""
        return log_dir in self._failed

    def check_invariants(self) -> None:
        """Asserts that unsaved lines are of the logs' directories, and offsets positions."""
        with self._lock:
            assert self._unsaved.keys() <= self._files.keys(), "lines of an unknown directory"
            for lines in self._unsaved.values():
                assert all(offset >= 0 for offset in lines.values()), f"a negative offset: {lines}"


def _note_inaccessible(file: OffsetCheckpointFile) -> None:
    path = file.path
    _log.exception("Failed to access checkpoint file %s in dir %s", path.name, path.parent)
