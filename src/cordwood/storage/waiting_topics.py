"""Notes of deleted topics that a trash could not take, in a log directory until it can.

They are in a file `cordwood-trash.<topic id>.topic`, with the bytes that the trash gets: after a
restart the directories of the topic wait still. A move to the trash writes there first, and removes
the file then, durably. A crash between leaves both, and the move is made again: the trash keeps the
lines that it has, and gets those that it lacks.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from uuid import UUID

from cordwood.format.file_names import TRASHED_TOPIC_SUFFIX, WAITING_TOPIC_PREFIX
from cordwood.format.trash_notes import RemovedTopic, build_removed_topic, parse_removed_topic
from cordwood.model.errors import CordwoodError, CorruptError
from cordwood.model.uuids import parse_uuid, uuid_text
from cordwood.storage.filesystem import FileSystem
from cordwood.storage.trashed_topics import TrashedTopics


class WaitingTopics:
    """The notes that wait; the caller has a lock."""

    def __init__(self, log_dirs: Sequence[Path], *, fs: FileSystem) -> None:
        """Finds those that are there; a directory that cannot be read has none."""
        self._fs = fs
        self._log_dirs = list(log_dirs)
        self._paths: dict[UUID, Path] = {}
        for log_dir in log_dirs:
            try:
                names = [each.name for each in fs.entries_in(log_dir) if not each.is_directory]
            except (OSError, CordwoodError):
                continue
            for name in names:
                topic_id = _id_in(name)
                if topic_id is not None:
                    self._paths[topic_id] = log_dir / name

    def add(self, topic: RemovedTopic) -> None:
        """Writes a removed topic's file, durably, into the log directory of its first partition.

        Raises:
            OSError, NoSpaceError: it cannot be written there.
        """
        places = [Path(each.log_dir) for each in topic.partitions]
        log_dir = next((each for each in places if each in self._log_dirs), self._log_dirs[0])
        name = f"{WAITING_TOPIC_PREFIX}{uuid_text(topic.topic_id)}{TRASHED_TOPIC_SUFFIX}"
        self._fs.replace_durably(log_dir / name, build_removed_topic(topic))
        self._fs.take_after_directory(log_dir / name, log_dir)
        self._paths[topic.topic_id] = log_dir / name

    def append(self, topic_id: UUID, line: bytes) -> bool:
        """Adds a line to a note; False if none of this topic waits.

        Raises:
            OSError, NoSpaceError: it cannot be written.
        """
        path = self._paths.get(topic_id)
        if path is None:
            return False
        self._fs.append_durably(path, line)
        return True

    def get(self, topic_id: UUID | None) -> RemovedTopic | None:
        """The note of a topic; None if none waits.

        Raises:
            CorruptError, OSError: it cannot be read.
        """
        path = None if topic_id is None else self._paths.get(topic_id)
        return None if path is None else parse_removed_topic(self._fs.read_bytes(path))

    def hand_over(self, topics: TrashedTopics) -> None:
        """Moves every note to a trash that takes it.

        Raises:
            CordwoodError, OSError: it takes none now; the rest waits.
        """
        for topic_id, path in list(self._paths.items()):
            topics.note_lines(topic_id, self._fs.read_bytes(path))
            self._fs.remove(path)
            del self._paths[topic_id]
            self._fs.sync_directory(path.parent)


def _id_in(name: str) -> UUID | None:
    if not (name.startswith(WAITING_TOPIC_PREFIX) and name.endswith(TRASHED_TOPIC_SUFFIX)):
        return None
    try:
        return parse_uuid(name[len(WAITING_TOPIC_PREFIX) : -len(TRASHED_TOPIC_SUFFIX)])
    except (CorruptError, ValueError):
        return None
