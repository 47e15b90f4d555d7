"""The entries of a trash: removals of segments, deleted topics, files that no note describes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from cordwood.format.trash_notes import Removal, RemovedPartition, RemovedTopic
from cordwood.model.audit import TrashEmptied, audit
from cordwood.model.documents import ABSENT
from cordwood.model.topic_partition import TopicPartition
from cordwood.model.uuids import uuid_text
from cordwood.storage.filesystem import OS, DirectoryLock, FileSystem
from cordwood.storage.trash import trashed_partitions
from cordwood.storage.trashed_topics import TrashedTopics

TOPIC = "topic"
"""Why a whole topic is in the trash."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrashedSegments:
    """A removal of segments of a partition, in bytes of their logs; `end_offset` is exclusive.

    `expires_ms` is None if it is kept until somebody empties the trash, and `topic_id` if the
    partition had none. `log_dir` is where the segments were put back; `node_id` is the broker of a
    cluster whose trash it is.
    """

    partition: str
    at_ms: int
    expires_ms: int | None
    why: str
    topic_id: str | None
    base_offset: int
    end_offset: int
    segments: Sequence[int]
    bytes: int
    log_dir: str | None = field(default=None, metadata=ABSENT)
    node_id: int | None = field(default=None, metadata=ABSENT)

    @classmethod
    def of(
        cls, partition: TopicPartition, removal: Removal, *, log_dir: Path | None = None
    ) -> TrashedSegments:
        """A removal that is noted in the trash."""
        return cls(
            partition=str(partition),
            at_ms=removal.at_ms,
            expires_ms=removal.expires_ms,
            why=removal.why,
            topic_id=removal.topic_id,
            base_offset=removal.segments[0],
            end_offset=removal.end_offset,
            segments=removal.segments,
            bytes=removal.size_bytes,
            log_dir=None if log_dir is None else str(log_dir),
        )

    @property
    def topic_name(self) -> str:
        """The topic of the partition."""
        return TopicPartition.parse(self.partition).topic


@dataclass(frozen=True, slots=True, kw_only=True)
class TrashedTopic:
    """A deleted topic, in bytes of the files that are here; `settings` are its own, no defaults.

    `groups` had committed offsets for it; `node_id` is the broker of a cluster whose trash it is.
    """

    topic: str
    at_ms: int
    expires_ms: int
    why: str
    topic_id: str
    settings: Mapping[str, str]
    partitions: Sequence[RemovedPartition]
    groups: Sequence[str]
    bytes: int
    node_id: int | None = field(default=None, metadata=ABSENT)

    @classmethod
    def of(cls, topic: RemovedTopic, *, size_bytes: int) -> TrashedTopic:
        """A topic that is noted in the trash."""
        return cls(
            topic=topic.name,
            at_ms=topic.at_ms,
            expires_ms=topic.expires_ms,
            why=TOPIC,
            topic_id=uuid_text(topic.topic_id),
            settings=topic.settings,
            partitions=topic.partitions,
            groups=sorted({each.group for each in topic.offsets}),
            bytes=size_bytes,
        )

    @property
    def topic_name(self) -> str:
        """Its name."""
        return self.topic


TrashEntry = TrashedSegments | TrashedTopic


@dataclass(frozen=True, slots=True, kw_only=True)
class TrashContents:
    """The entries of a trash, the oldest first; `unknown` are paths that no note describes.

    `directory` is None for the trashes of several brokers.
    """

    directory: str | None = field(default=None, metadata=ABSENT)
    removals: Sequence[TrashEntry]
    unknown: Sequence[str]

    def removed_until(self, until_ms: int) -> list[TrashEntry]:
        """The entries that were removed at or before a moment."""
        return [each for each in self.removals if each.at_ms <= until_ms]


def read_contents(trash: Path, *, fs: FileSystem = OS) -> TrashContents:
    """The entries of a trash; nothing is locked.

    Raises:
        ConfigError: there is no such directory, or it is a log directory.
        CorruptError: notes cannot be understood.
        OSError: something cannot be read.
    """
    partitions, topics = trashed_partitions(trash, fs=fs), TrashedTopics(trash, fs=fs)
    removals: list[TrashEntry] = [
        TrashedSegments.of(each.topic_partition, removal)
        for each in partitions
        for removal in each.removals()
    ]
    removals += [TrashedTopic.of(each, size_bytes=topics.size_bytes(each)) for each in topics.all()]
    return TrashContents(
        directory=str(trash),
        removals=sorted(removals, key=lambda each: each.at_ms),
        unknown=[str(each.directory / name) for each in partitions for name in each.unknown()],
    )


def empty_trash(trash: Path, until_ms: int, *, with_unknown: bool) -> list[TrashEntry]:
    """Deletes for good what was removed at or before a moment, of a stopped broker.

    Returns the deleted entries. With `with_unknown` the directories of partitions go as they are.

    Raises:
        ConfigError: there is no such directory, or it is a log directory.
        CorruptError: notes cannot be understood.
        DirectoryInUseError: another process has the trash.
        OSError: something cannot be read or deleted.
    """
    deleted: list[TrashEntry] = []
    partitions, topics = trashed_partitions(trash), TrashedTopics(trash)
    lock = DirectoryLock(trash)
    try:
        for each in partitions:
            for removal in each.removals():
                if removal.at_ms <= until_ms:
                    each.forget(removal)
                    audit_forgotten(trash, each.topic_partition, removal)
                    deleted.append(TrashedSegments.of(each.topic_partition, removal))
            if with_unknown and OS.exists(each.directory):
                OS.remove_tree(each.directory)
        for topic in topics.all():
            if topic.at_ms <= until_ms:
                found = TrashedTopic.of(topic, size_bytes=topics.size_bytes(topic))
                topics.forget(topic.topic_id)
                audit_forgotten_topic(trash, topic, size_bytes=found.bytes)
                deleted.append(found)
    finally:
        lock.release()
    return deleted


def audit_forgotten(trash: Path, partition: TopicPartition, removal: Removal) -> None:
    """Notes in the audit log that removed segments are in the trash no more."""
    audit(
        TrashEmptied(
            trash=str(trash),
            what=str(partition),
            why=removal.why,
            removed_ms=removal.at_ms,
            size_bytes=removal.size_bytes,
            segments=removal.segments,
        )
    )


def audit_forgotten_topic(trash: Path, topic: RemovedTopic, *, size_bytes: int) -> None:
    """Notes in the audit log that a deleted topic is in the trash no more."""
    audit(
        TrashEmptied(
            trash=str(trash),
            what=f"{topic.name}, {uuid_text(topic.topic_id)}",
            why="its deletion",
            removed_ms=topic.at_ms,
            size_bytes=size_bytes,
        )
    )
