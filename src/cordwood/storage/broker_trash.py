"""The trash of a running broker, `cordwood.trash.dir`: takes what would be removed from the disk.

A removal of segments is noted before a file of it is renamed, as `cordwood clean --trash` does;
its files keep Kafka's names until file.delete.delay.ms is over, and are then moved here instead of
being removed. A file that no note waits for, such as one of a truncation, is removed. What has
expired is deleted by `remove_expired`.

While the directory is missing, refuses or cannot be read, nothing is removed: files stay as
`.deleted`, logs as `-delete`, and notes of deleted topics wait in a log directory. It is tried
again.

While a broker runs it holds the `.lock` of the directory, so that no command changes it.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TypeVar
from uuid import UUID

from cordwood.format.file_names import DELETED_SUFFIX
from cordwood.format.trash_notes import (
    Removal,
    RemovedOffset,
    RemovedTopic,
    build_closed_partitions,
    build_removed_offsets,
)
from cordwood.model.errors import CordwoodError, TrashError, TrashMissingError
from cordwood.model.rng import Rng, SystemRng
from cordwood.model.topic_partition import TopicPartition
from cordwood.storage.directory_names import parse_directory_name
from cordwood.storage.failures import FailureChannel
from cordwood.storage.filesystem import OS, FileSystem, Lock
from cordwood.storage.trash import Trash, TrashedPartition, move_file, trashed_partitions
from cordwood.storage.trash_contents import (
    TrashContents,
    TrashedSegments,
    TrashedTopic,
    TrashEntry,
    audit_forgotten,
    audit_forgotten_topic,
    read_contents,
)
from cordwood.storage.trash_presence import TrashPresence
from cordwood.storage.trashed_topics import TrashedTopics, belongs
from cordwood.storage.waiting_topics import WaitingTopics

T = TypeVar("T")
U = TypeVar("U")

TRASH_DIR = "cordwood.trash.dir"
TRASH_MS = "cordwood.trash.ms"

_log = logging.getLogger(__name__)


class BrokerTrash:
    """The trash of a broker; any thread may call. `topics` has the deleted topics.

    `removals_at_check` and `bytes_at_check` are what was here after the last `remove_expired`,
    without what could not be read. `is_missing` says whether it was when it was last looked for.
    """

    def __init__(
        self,
        directory: Path,
        log_dirs: Sequence[Path],
        *,
        fs: FileSystem = OS,
        rng: Rng | None = None,
        failures: FailureChannel | None = None,
    ) -> None:
        """Locks the directory, and makes it if there never was one; a missing one is awaited.

        Args:
            directory: the trash.
            log_dirs: those of the broker, locked; the trash is noted in them.
            fs: the file system of all.
            rng: of the trash's id; the system's if None.
            failures: takes log directories offline.

        Raises:
            ConfigError: it lies in a log directory, or cannot be written to.
            CorruptError: a log directory's note of its trashes cannot be understood.
            DirectoryInUseError: another process has it.
        """
        self.directory = directory
        self._fs = fs
        self._rng = rng or SystemRng()
        self._trash = Trash(directory, named=TRASH_DIR, fs=fs)
        self.topics = TrashedTopics(directory, fs=fs)
        self.removals_at_check = self.bytes_at_check = 0
        self.is_missing = False
        self._locked: Lock | None = None
        self._lock = threading.RLock()
        self._presence = TrashPresence(directory, log_dirs, fs=fs, failures=failures)
        self._waiting = WaitingTopics(log_dirs, fs=fs)
        if self._presence.was_made:
            try:
                self._presence.require()
            except TrashError as error:
                self._trash.require_outside(log_dirs)
                self.is_missing = isinstance(error, TrashMissingError)
                _log.warning("%s %s: %s", TRASH_DIR, directory, error)
                return
        self._trash.make(log_dirs)
        self._locked = fs.lock(directory)
        try:
            self._presence.note_made(self._rng)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Releases the lock."""
        locked, self._locked = self._locked, None
        if locked is not None:
            locked.release()

    @contextmanager
    def access(self, doing: str) -> Iterator[None]:
        """Work on files of the trash: their errors say nothing of a log directory.

        Raises:
            TrashError: in place of any error of a file; or the trash is missing.
        """
        try:
            self._require_there()
            yield
        except TrashError as error:
            prefix = f"{TRASH_DIR} {self.directory}: "
            if str(error).startswith(prefix):
                raise
            raise TrashError(f"{prefix}{doing}: {error}") from error
        except (OSError, CordwoodError) as error:
            raise TrashError(f"{TRASH_DIR} {self.directory}: {doing}: {error}") from error

    def _require_there(self) -> None:
        """Requires that the directory is the trash, and locks it if it has come back.

        Raises:
            TrashError: it is missing, or cannot be read.
            DirectoryInUseError: another process has it.
        """
        try:
            self._presence.require()
        except TrashMissingError:
            self.is_missing = True
            raise
        with self._lock:
            if self._locked is None:
                self._locked = self._fs.lock(self.directory)
            if self.is_missing:
                self.is_missing = False
                _log.info("%s %s is there again", TRASH_DIR, self.directory)

    # ---- segments

    def note(self, directory: Path, removal: Removal) -> None:
        """Notes a removal in the trash of its log directory (`Trash.note`).

        Raises:
            TrashError: it cannot be noted.
        """
        with self._lock, self.access(f"noting what is removed from {directory.name}"):
            self._trash.note(directory, removal)

    def dispose(self, path: Path) -> None:
        """Moves a `.deleted` file here if a note waits for it; removes it otherwise.

        Raises:
            TrashError: it cannot be moved, and is where it was.
            OSError: it cannot be removed.
        """
        with self._lock:
            with self.access(f"moving {path.name} of {path.parent.name}"):
                target = self._place_of(path)
                if target is not None:
                    move_file(path, target, fs=self._fs)
                else:
                    self._require_there()  # or nobody can say that no note waits for it
            if target is None:
                self._fs.remove(path)

    def _place_of(self, path: Path) -> Path | None:
        if not self._fs.exists(path):
            return None
        partition, _ = parse_directory_name(path.parent.name)
        directory = self.directory / str(partition)
        if not self._fs.exists(directory):
            return None
        trashed = TrashedPartition(directory, fs=self._fs)
        return trashed.place_of(path.name.removesuffix(DELETED_SUFFIX))

    # ---- deleted topics

    def note_topic(self, topic: RemovedTopic) -> None:
        """Notes a deleted topic; beside its logs, if the trash refuses.

        Raises:
            TrashError: neither takes it.
        """
        with self._lock:
            try:
                with self.access(f"noting the topic {topic.name}"):
                    self.topics.note(topic)
            except TrashError as error:
                _log.warning("%s; the logs of the topic stay, and it is tried again", error)
                with self._beside_logs(f"noting the topic {topic.name}"):
                    self._waiting.add(topic)

    def note_offsets(self, topic_id: UUID, offsets: Sequence[RemovedOffset]) -> None:
        """Notes the offsets that groups had committed for a noted topic.

        Raises:
            TrashError: it cannot be written.
        """
        if offsets:
            self._add_line(topic_id, build_removed_offsets(offsets))

    def note_closed(self, topic_id: UUID, partitions: Iterable[int]) -> None:
        """Notes that logs of a noted topic were closed.

        Raises:
            TrashError: it cannot be written.
        """
        self._add_line(topic_id, build_closed_partitions(partitions))

    def _add_line(self, topic_id: UUID, line: bytes) -> None:
        with self._lock:
            with self._beside_logs("adding to a note"):
                if self._waiting.append(topic_id, line):
                    return
            with self.access("adding to a note"):
                self.topics.add_line(topic_id, line)

    def waits_for(self, topic_id: UUID | None, partition: TopicPartition, log_dir: Path) -> bool:
        """Whether a deleted topic waits, in the trash or to be noted there.

        Raises:
            TrashError: the notes cannot be read.
        """
        with self._lock:
            with self._beside_logs(f"looking for {partition}"):
                waiting = self._waiting.get(topic_id)
            if waiting is not None:
                return belongs(waiting, partition, log_dir)
            with self.access(f"looking for {partition}"):
                return self.topics.waits_for(topic_id, partition, log_dir)

    def bring_notes(self) -> None:
        """Takes the notes that have waited beside the logs.

        Raises:
            TrashError: it takes none now.
        """
        with self._lock, self.access("taking the notes of deleted topics"):
            self._waiting.hand_over(self.topics)

    def take(self, directory: Path, topic_id: UUID, partition: TopicPartition) -> bool:
        """Takes a deleted topic out of the trash (`TrashedTopics.take`).

        Raises:
            TrashError: it cannot be moved, and is where it was.
        """
        self.bring_notes()
        with self._lock, self.access(f"moving {directory}"):
            taken = self.topics.take(directory, topic_id, partition)
            if not taken:
                self._require_there()
            return taken

    @contextmanager
    def _beside_logs(self, doing: str) -> Iterator[None]:
        try:
            yield
        except (OSError, CordwoodError) as error:
            raise TrashError(f"{TRASH_DIR} {self.directory}: {doing}: {error}") from error

    def partitions(self) -> list[TrashedPartition]:
        """The partitions of which segments are here, by name."""
        return trashed_partitions(self.directory, fs=self._fs)

    # ---- expiry

    def remove_expired(self, now_ms: int) -> int:
        """Deletes for good what has been here for long enough; how many removals.

        What cannot be read or deleted is logged, and stays.
        """
        try:
            self.bring_notes()
            # Without the lock: a log directory that fails closes its logs, whose locks are taken
            # before this one.
            with self.access("noting that it is in use"):
                self._presence.note_made(self._rng)
        except TrashError as error:
            _log.warning("%s", error)
            if not self._is_there():
                self.removals_at_check = self.bytes_at_check = 0
                return 0
        sizes = []
        count = 0
        for trashed, removal in self._removals():
            is_due = removal.expires_ms is not None and removal.expires_ms <= now_ms
            if is_due and self._forget(trashed, removal):
                count += 1
            else:
                sizes.append(removal.size_bytes)
        for topic in self._topics():
            if topic.expires_ms <= now_ms and self._forget_topic(topic):
                count += 1
            else:
                sizes.append(self.topics.size_bytes(topic))
        self.removals_at_check, self.bytes_at_check = len(sizes), sum(sizes)
        return count

    def remove_oldest(self) -> bool:
        """Deletes for good what was removed the longest ago; whether there was anything."""
        if not self._is_there():
            return False
        removals = sorted(self._removals(), key=lambda each: each[1].at_ms)
        topics = self._topics()
        if topics and (not removals or topics[0].at_ms < removals[0][1].at_ms):
            return self._forget_topic(topics[0])
        return bool(removals) and self._forget(*removals[0])

    def remove_until(self, until_ms: int) -> list[TrashEntry]:
        """Deletes for good what was removed at or before a moment; returns their entries.

        Raises:
            TrashError: it is missing, or cannot be read.
        """
        with self.access("emptying it"):
            pass  # it is the trash
        gone: list[TrashEntry] = []
        for trashed, removal in self._removals():
            if removal.at_ms <= until_ms and self._forget(trashed, removal):
                gone.append(TrashedSegments.of(trashed.topic_partition, removal))
        for topic in self._topics():
            if topic.at_ms <= until_ms:
                found = TrashedTopic.of(topic, size_bytes=self.topics.size_bytes(topic))
                if self._forget_topic(topic):
                    gone.append(found)
        return gone

    def _is_there(self) -> bool:
        """Whether the directory is known to be the trash: of no other one anything is deleted."""
        try:
            with self.access("looking for it"):
                return True
        except TrashError:
            return False

    def _removals(self) -> list[tuple[TrashedPartition, Removal]]:
        def of(trashed: TrashedPartition) -> list[tuple[TrashedPartition, Removal]]:
            return [(trashed, removal) for removal in trashed.removals()]

        with self._lock:
            return [
                each
                for trashed in _attempt("reading", self.partitions, ())
                for each in _attempt(f"reading {trashed.directory} of", partial(of, trashed), ())
            ]

    def _topics(self) -> list[RemovedTopic]:
        return list(_attempt("reading the deleted topics in", self.topics.all, ()))

    def _forget(self, trashed: TrashedPartition, removal: Removal) -> bool:
        def forget() -> bool:
            trashed.forget(removal)
            audit_forgotten(self.directory, trashed.topic_partition, removal)
            return True

        with self._lock:
            return _attempt(f"removing segments of {trashed.topic_partition} from", forget, False)

    def _forget_topic(self, topic: RemovedTopic) -> bool:
        def forget() -> bool:
            size_bytes = self.topics.size_bytes(topic)
            self.topics.forget(topic.topic_id)
            audit_forgotten_topic(self.directory, topic, size_bytes=size_bytes)
            return True

        return _attempt(f"removing the topic {topic.name} from", forget, False)

    # ---- what is shown

    @property
    def size_bytes(self) -> int:
        """Bytes of all that is here.

        Raises:
            TrashError: it cannot be read.
        """
        return sum(each.bytes for each in self.contents().removals)

    def contents(self) -> TrashContents:
        """The entries of the trash, the oldest first.

        Raises:
            TrashError: it cannot be read.
        """
        with self.access("reading it"), self._lock:
            return read_contents(self.directory, fs=self._fs)


def _attempt(doing: str, work: Callable[[], T], otherwise: U) -> T | U:
    """The result of the work; an error of the trash is logged, and the caller continues."""
    try:
        return work()
    except (OSError, CordwoodError) as error:
        _log.warning("Error while %s the trash: %s", doing, error)
        return otherwise
