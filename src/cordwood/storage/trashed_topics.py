"""Deleted topics in the trash of a broker: their notes, and the directories of their partitions.

A topic is in `<trash>/<topic id>.topic`, its partitions' directories below that with the names that
they had. The steps of a deletion, and what is found after a crash behind each:

1. The topic is noted, durably. *After a crash:* its directories have their names still, and belong
   to no topic of the cluster: the next start marks them `-delete`, for the next step.
2. Its logs are closed and marked `-delete`; it is noted that they were closed.
3. After file.delete.delay.ms each directory is moved here: renamed, or, from another file system,
   copied under a name with `.tmp` and renamed. *After a crash:* the directory is whole at one of
   the two places, perhaps at both; then that in the log directory is removed.

A restoration goes the other way, and is described by `node.topic_restoration`.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable
from pathlib import Path
from uuid import UUID

from cordwood.format.file_names import TEMPORARY_SUFFIX, TRASH_NOTES, TRASHED_TOPIC_SUFFIX
from cordwood.format.trash_notes import (
    RemovedTopic,
    build_removed_topic,
    merge_removed_topics,
    parse_removed_topic,
)
from cordwood.model.errors import CordwoodError, CorruptError
from cordwood.model.topic_partition import TopicPartition
from cordwood.model.uuids import parse_uuid, uuid_text
from cordwood.storage.filesystem import OS, FileSystem
from cordwood.storage.trash import move_directory


class TrashedTopics:
    """The deleted topics in a trash; any thread may call."""

    def __init__(self, trash: Path, *, fs: FileSystem = OS) -> None:
        self._trash = trash
        self._fs = fs
        self._lock = threading.RLock()

    def directory(self, topic_id: UUID) -> Path:
        """The directory of a topic's notes and partitions, whether or not it exists."""
        return self._trash / (uuid_text(topic_id) + TRASHED_TOPIC_SUFFIX)

    # ---- what is there

    def all(self) -> list[RemovedTopic]:
        """Every noted topic, the oldest first.

        Raises:
            CorruptError: notes cannot be understood.
            OSError: they cannot be read.
        """
        found = []
        for entry in self._fs.entries_in(self._trash):
            if entry.is_directory and entry.name.endswith(TRASHED_TOPIC_SUFFIX):
                topic = self.get(parse_uuid(entry.name.removesuffix(TRASHED_TOPIC_SUFFIX)))
                if topic is not None:
                    found.append(topic)
        return sorted(found, key=lambda topic: (topic.at_ms, topic.name))

    def get(self, topic_id: UUID) -> RemovedTopic | None:
        """The note of a topic; None if there is none.

        Raises:
            CorruptError: it cannot be understood.
            OSError: it cannot be read.
        """
        path = self.directory(topic_id) / TRASH_NOTES
        try:
            return parse_removed_topic(self._fs.read_bytes(path))
        except FileNotFoundError:
            return None
        except CorruptError as error:
            raise error.located(path=str(path)) from error

    def partition_directory(self, topic: RemovedTopic, partition: int) -> Path:
        """The directory for a partition, whether or not it exists."""
        return self.directory(topic.topic_id) / str(TopicPartition(topic.name, partition))

    def missing(self, topic: RemovedTopic) -> list[int]:
        """The partitions whose directories are not here."""
        numbers = [each.partition for each in topic.partitions]
        return [n for n in numbers if not self._fs.exists(self.partition_directory(topic, n))]

    def size_bytes(self, topic: RemovedTopic) -> int:
        """The bytes of the files that are here."""
        found = 0
        for each in topic.partitions:
            directory = self.partition_directory(topic, each.partition)
            if self._fs.exists(directory):
                names = self._fs.names_in(directory)
                found += sum(self._fs.facts_of(directory / name).size_bytes for name in names)
        return found

    def waits_for(self, topic_id: UUID | None, partition: TopicPartition, log_dir: Path) -> bool:
        """Whether the directory of a partition, which is to be removed, belongs here.

        Raises:
            CordwoodError, OSError: the notes cannot be read.
        """
        topic = None if topic_id is None else self.get(topic_id)
        return topic is not None and belongs(topic, partition, log_dir)

    # ---- changes

    def note(self, topic: RemovedTopic) -> None:
        """Notes a topic that was deleted; on return the note lasts.

        What a restoration has left of an earlier deletion goes.

        Raises:
            OSError, NoSpaceError: it cannot be written.
        """
        with self._lock:
            self.forget(topic.topic_id)
            self.note_lines(topic.topic_id, build_removed_topic(topic))

    def note_lines(self, topic_id: UUID, lines: bytes) -> None:
        """Notes a topic that was deleted, whose notes have waited elsewhere.

        Notes of the same deletion that are here already get the lines that they lack, and keep
        their own: those that waited may be older.

        Raises:
            OSError, NoSpaceError: it cannot be written.
        """
        with self._lock:
            directory = self.directory(topic_id)
            self._fs.make_directory_durably(directory)
            path = directory / TRASH_NOTES
            before = self._fs.read_bytes(path) if self._fs.exists(path) else b""
            merged = merge_removed_topics(before, lines)
            if merged != before:
                self._fs.replace_durably(path, merged)

    def add_line(self, topic_id: UUID, line: bytes) -> None:
        """Adds to the notes of a topic; nothing where it is not noted.

        Raises:
            OSError, NoSpaceError: it cannot be written.
        """
        path = self.directory(topic_id) / TRASH_NOTES
        with self._lock:
            if self._fs.exists(path):
                self._fs.append_durably(path, line)

    def take(self, directory: Path, topic_id: UUID, partition: TopicPartition) -> bool:
        """Moves a partition's directory here; False if it belongs not, or is here already.

        Raises:
            CordwoodError, OSError: it cannot be moved, and is where it was.
        """
        with self._lock:
            if not self.waits_for(topic_id, partition, directory.parent):
                return False
            topic = self.get(topic_id)
            assert topic is not None, "noted"
            target = self.partition_directory(topic, partition.partition)
            if self._fs.exists(target):
                return False
            move_directory(directory, target, temporary=temporary_of(target), fs=self._fs)
            return True

    def give(self, topic: RemovedTopic, partition: int, target: Path) -> None:
        """Moves a partition's directory out of the trash; over file systems it leaves a copy.

        Raises:
            CordwoodError, OSError: it cannot be moved, and is where it was.
        """
        with self._lock:
            source = self.partition_directory(topic, partition)
            move_directory(source, target, temporary=target, fs=self._fs, keeps_copy=True)

    def forget(self, topic_id: UUID) -> None:
        """Removes all that is here of a topic, the notes last.

        Raises:
            OSError, NoSpaceError: something cannot be removed; again removes the rest.
        """
        with self._lock:
            directory = self.directory(topic_id)
            if not self._fs.exists(directory):
                return
            for entry in self._fs.entries_in(directory):
                if entry.is_directory:
                    self._fs.remove_tree(directory / entry.name)
            self._fs.remove_tree(directory)
            self._fs.sync_directory(self._trash)


def belongs(topic: RemovedTopic, partition: TopicPartition, log_dir: Path) -> bool:
    """Whether a partition in a log directory is one of a deleted topic."""
    return any(
        each.partition == partition.partition and each.log_dir == str(log_dir)
        for each in topic.partitions
    )


def temporary_of(target: Path) -> Path:
    """The name of a directory that is being copied."""
    return target.with_name(target.name + TEMPORARY_SUFFIX)


def require_named(
    topics: Iterable[RemovedTopic], name: str, topic_id: UUID | None = None
) -> RemovedTopic:
    """The topic that was deleted last of those with a name, or the one with that id.

    Raises:
        CordwoodError: there is none.
    """
    found = [topic for topic in topics if topic.name == name and topic_id in {None, topic.topic_id}]
    if not found:
        which = "name" if topic_id is None else f"name and with the id {uuid_text(topic_id)}"
        raise CordwoodError(f"{name}: no deleted topic of this {which} is in the trash")
    return max(found, key=lambda topic: topic.at_ms)
