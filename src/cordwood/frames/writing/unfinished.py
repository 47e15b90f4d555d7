"""A commit that has not ended: a note of it, by which it is undone.

The note is written before anything of a topic is in place, and removed when all is. So an error, or
a later write where a driver was killed, finds what to take back. A broker that has opened the
directory since then has taken what it found for its log: then the note is only removed.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from uuid import UUID

from cordwood.cleanup.access.offline.changes import NewSegment
from cordwood.format.file_names import (
    CLEAN_SHUTDOWN,
    CLUSTER_METADATA_DIR,
    LOG_SUFFIX,
    META_PROPERTIES,
    PARTITION_METADATA,
    PRODUCER_SNAPSHOT_SUFFIX,
    base_offset_of,
    is_index_file,
    is_log_file,
    segment_file_name,
)
from cordwood.format.partition_metadata import parse_partition_metadata
from cordwood.format.producer_snapshot import parse_producer_snapshot
from cordwood.metadata.replay import read_metadata_image
from cordwood.model.topic_partition import TopicPartition
from cordwood.model.uuids import parse_uuid, uuid_text
from cordwood.storage.directory_names import live_directory_name
from cordwood.storage.filesystem import FileSystem
from cordwood.storage.log_directory import LogDirectory

#: The note, in the log directory.
NAME: Final = "cordwood-write.pending"


@dataclass(frozen=True, slots=True, kw_only=True)
class Unfinished:
    """The topic as it was.

    `topic_id` is that of a new topic, None of one that was there. `ends` are the log end offsets of
    the partitions that are written to, `actives` the base offsets of their active segments.
    """

    topic: str
    topic_id: UUID | None
    ends: Mapping[int, int]
    actives: Mapping[int, int]


def begin(log_dir: Path, commit: Unfinished, *, fs: FileSystem) -> None:
    """Notes a commit, durably.

    Raises:
        NoSpaceError, OSError: the disk refused; there is no note.
    """
    note = {
        "topic": commit.topic,
        "topicId": None if commit.topic_id is None else uuid_text(commit.topic_id),
        "ends": list(commit.ends.items()),
        "actives": list(commit.actives.items()),
        "stopped": _stopped(log_dir, fs),
    }
    fs.replace_durably(log_dir / NAME, json.dumps(note).encode())


def end(log_dir: Path, *, fs: FileSystem) -> None:
    """Removes the note: what is in place stays."""
    fs.remove(log_dir / NAME)
    fs.sync_directory(log_dir)


def undo(log_dir: Path, *, fs: FileSystem) -> None:
    """Takes back what a commit has put in place that has not ended; does nothing without one.

    The log directory is locked. It may be called again where it failed.

    Raises:
        CorruptError: the metadata log cannot be read.
        NoSpaceError, OSError: the disk refused.
    """
    try:
        note = json.loads(fs.read_bytes(log_dir / NAME))
    except FileNotFoundError:
        return
    topic, directory = note["topic"], LogDirectory(log_dir, fs=fs, reads_id=False)
    if note["stopped"] == _stopped(log_dir, fs):
        if note["topicId"] is not None:
            _unmake(directory, topic, parse_uuid(note["topicId"]))
        else:
            actives = dict(note["actives"])
            for number, offset in note["ends"]:
                _cut_off(directory, TopicPartition(topic, number), offset, actives[number])
    end(log_dir, fs=fs)


def _stopped(log_dir: Path, fs: FileSystem) -> list[int | None]:
    """The state of a directory that each start of a broker changes.

    It is whether it is a node's, and when that has stopped.
    """
    of_node = int(fs.exists(log_dir / META_PROPERTIES))
    try:
        return [of_node, fs.facts_of(log_dir / CLEAN_SHUTDOWN).modified_ns]
    except FileNotFoundError:
        return [of_node, None]


def _unmake(directory: LogDirectory, topic: str, topic_id: UUID) -> None:
    """Removes the directories of a new topic, unless the metadata log has the topic."""
    fs, metadata = directory.fs, directory.path / CLUSTER_METADATA_DIR
    if fs.exists(metadata):
        image = read_metadata_image(metadata, read_bytes=fs.read_bytes)
        if image.topic_by_id(topic_id) is not None:
            return
    gone = set()
    for name, (partition, suffix) in directory.parse_names(fs.entries_in(directory.path)).items():
        path = directory.path / name
        if partition.topic == topic and not suffix and _topic_id_of(path, fs) == topic_id:
            fs.remove_tree(path)
            gone.add(partition)
    fs.sync_directory(directory.path)
    directory.remove_checkpoint_lines(gone.__contains__)


def _topic_id_of(path: Path, fs: FileSystem) -> UUID | None:
    try:
        return parse_partition_metadata(fs.read_bytes(path / PARTITION_METADATA)).topic_id
    except FileNotFoundError:
        return None


def _cut_off(
    directory: LogDirectory, partition: TopicPartition, end_offset: int, active_base: int
) -> None:
    """Removes the segments from an offset on, the last one first; the log ends there."""
    fs, path = directory.fs, directory.path / live_directory_name(partition)
    names = fs.names_in(path)
    model = fs.facts_of(path / next(name for name in names if is_log_file(name)))
    own = segment_file_name(end_offset, PRODUCER_SNAPSHOT_SUFFIX)
    producers = parse_producer_snapshot(fs.read_bytes(path / own)) if own in names else []
    doomed = [name for name in names if is_log_file(name) or is_index_file(name)]
    doomed += [name for name in names if name.endswith(PRODUCER_SNAPSHOT_SUFFIX) and name != own]
    # A log goes before its indexes: an index without one is none.
    order = sorted(doomed, key=lambda name: (-base_offset_of(name), not name.endswith(LOG_SUFFIX)))
    for name in order:
        if base_offset_of(name) >= end_offset:
            fs.remove(path / name)
    if active_base == end_offset:
        active = NewSegment(base_offset=active_base, producers=producers, model=model)
        active.write(path, fs=fs)
    fs.sync_directory(path)
    for file in (directory.recovery_points, directory.high_watermarks):
        if fs.exists(file.path):
            file.set_line(partition, end_offset)
