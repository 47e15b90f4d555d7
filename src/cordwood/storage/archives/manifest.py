"""The manifest of a partition in an archive: which objects are the files of its log.

A manifest is JSON, and is never changed: a change of the log puts the next one, with the next
number. Its objects are Kafka's own files, unchanged; their keys have a part that is drawn for each
run, so that no two writers put the same object, and no object is put twice with two contents.

| key, below the archive's URL | object |
| --- | --- |
| `manifests/TOPIC-TOPICID/PARTITION/NUMBER.json` | a manifest; the highest number is in force |
| `data/TOPIC-TOPICID/PARTITION/BASE-RUN.log` | a file of a segment (`.index`, `.timeindex`, ...) |
| `directory/NAME` | a file of the log directory, as `meta.properties` |
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Final, Self
from uuid import UUID

from cordwood.format.file_names import LOG_SUFFIX
from cordwood.model.documents import CamelCase, from_document, to_document
from cordwood.model.errors import CorruptError
from cordwood.model.topic_names import topic_name_fault
from cordwood.model.topic_partition import TopicPartition
from cordwood.model.uuids import ZERO_UUID, parse_uuid, uuid_text

#: The version of the manifests that are written; there is no other.
VERSION: Final = 1

MANIFESTS: Final = "manifests/"
DATA: Final = "data/"
DIRECTORY: Final = "directory/"

_NUMBER_DIGITS: Final = 20
_MANIFEST_KEY: Final = re.compile(
    rf"{MANIFESTS}([^/]+)-([\w-]{{22}})/(\d+)/(\d{{{_NUMBER_DIGITS}}})\.json", re.ASCII
)


@dataclass(frozen=True, slots=True, order=True)
class ArchivedLogId:
    """A log in an archive: its partition, and the id of its topic.

    A topic that is deleted and created again has another id. One without an id has that of zeros.
    """

    topic: str
    partition: int
    topic_id: UUID = ZERO_UUID

    @property
    def place(self) -> str:
        """The part of its keys: `TOPIC-TOPICID/PARTITION/`."""
        return f"{self.topic}-{uuid_text(self.topic_id)}/{self.partition}/"

    @property
    def topic_partition(self) -> TopicPartition:
        """Its topic and partition."""
        return TopicPartition(self.topic, self.partition)

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition} (topic id {uuid_text(self.topic_id)})"


def manifest_key(log: ArchivedLogId, number: int) -> str:
    """The key of a manifest."""
    return f"{MANIFESTS}{log.place}{number:0{_NUMBER_DIGITS}d}.json"


def parse_manifest_key(key: str) -> tuple[ArchivedLogId, int] | None:
    """The log and the number in the key of a manifest; None for another key."""
    found = _MANIFEST_KEY.fullmatch(key)
    if found is None:
        return None
    topic, topic_id, partition, number = found.groups()
    try:
        return ArchivedLogId(topic, int(partition), parse_uuid(topic_id)), int(number)
    except CorruptError:
        return None


@dataclass(frozen=True, slots=True, kw_only=True)
class ArchivedFile(CamelCase):
    """A file of a partition's directory, and the object that has its content.

    `sha256` is that of the content, in hexadecimal. `modified_ns` is the file's modification time,
    nanoseconds since the epoch, by which Kafka's retention knows a segment without timestamps.
    """

    name: str
    key: str
    size_bytes: int
    sha256: str
    modified_ns: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ArchivedSegment(CamelCase):
    """A segment: its offsets from `base_offset` to before `next_base_offset`, and its files.

    `largest_timestamp` is that of its records (ms), -1 if none has one. `first_batch_timestamp` is
    the largest of its first batch (ms), 2^63 - 1 if there is none, None if it is not known.
    """

    base_offset: int
    next_base_offset: int
    largest_timestamp: int
    files: tuple[ArchivedFile, ...]
    first_batch_timestamp: int | None = None

    @property
    def log_file(self) -> ArchivedFile:
        """Its `.log` file."""
        return next(each for each in self.files if each.name.endswith(".log"))

    @property
    def size_bytes(self) -> int:
        """The bytes of its `.log` file."""
        return next(each.size_bytes for each in self.files if each.name.endswith(LOG_SUFFIX))

    @property
    def total_bytes(self) -> int:
        """The bytes of all its files."""
        return sum(each.size_bytes for each in self.files)


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaderEpoch(CamelCase):
    """A line of `leader-epoch-checkpoint`."""

    epoch: int
    start_offset: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ArchiveManifest(CamelCase):
    """The log of a partition as it is in an archive.

    `run` is drawn for the run that put the manifest: so no two manifests are equal. `end_offset`
    is exclusive; records below `log_start_offset` are deleted, though a file may still have them.
    `others` are files of the partition's directory that belong to no segment. With
    `has_active_segment` the last segment was the log's active one.
    """

    version: int = VERSION
    topic: str
    partition: int
    topic_id: str
    number: int
    run: str
    at_ms: int
    log_start_offset: int
    end_offset: int
    cleaner_offset: int | None = None
    has_active_segment: bool = False
    leader_epochs: tuple[LeaderEpoch, ...] = ()
    segments: tuple[ArchivedSegment, ...] = ()
    others: tuple[ArchivedFile, ...] = field(default=())

    @property
    def log(self) -> ArchivedLogId:
        """The log that it is of."""
        return ArchivedLogId(self.topic, self.partition, parse_uuid(self.topic_id))

    @property
    def key(self) -> str:
        """Its own key."""
        return manifest_key(self.log, self.number)

    @property
    def files(self) -> Sequence[ArchivedFile]:
        """All its files."""
        return [*(file for each in self.segments for file in each.files), *self.others]

    @property
    def total_bytes(self) -> int:
        """The bytes of all its files."""
        return sum(each.size_bytes for each in self.files)

    def epochs_from(self, start: int) -> tuple[LeaderEpoch, ...]:
        """The leader epochs of the log, if it begins at `start`; none of an empty one.

        Source: org.apache.kafka.storage.internals.epoch.LeaderEpochFileCache.truncateFromStart.
        """
        if start >= self.end_offset:
            return ()
        before = [each for each in self.leader_epochs if each.start_offset <= start]
        after = tuple(each for each in self.leader_epochs if each.start_offset > start)
        first = [replace(each, start_offset=start) for each in before[-1:]]
        return (*first, *after)

    def to_bytes(self) -> bytes:
        """The content of its object."""
        return json.dumps(to_document(self), indent=1).encode()

    @classmethod
    def parse(cls, data: bytes, *, url: str) -> Self:
        """The manifest in the content of an object.

        Args:
            data: the content.
            url: of the object, for errors.

        Raises:
            CorruptError: it is none, or one of another version; or its files cannot be those of a
                partition's directory.
        """
        try:
            document = json.loads(data)
            if document["version"] != VERSION:
                raise CorruptError(
                    f"a manifest of version {document['version']}; known is {VERSION}", path=url
                )
            manifest = from_document(cls, document)
            manifest._require_sound()
        except (ValueError, KeyError, TypeError) as error:
            raise CorruptError(f"not a manifest of an archive: {error}", path=url) from error
        except CorruptError as error:
            raise error.located(path=url) from error
        return manifest

    def _require_sound(self) -> None:
        parse_uuid(self.topic_id)
        if topic_name_fault(self.topic) is not None or self.partition < 0 or self.number < 1:
            raise CorruptError(f"no manifest is number {self.number} of {self.topic!r}")
        for each in self.files:
            if "/" in each.name or each.name in {"", ".", ".."}:
                raise CorruptError(f"no file of a partition's directory is called {each.name!r}")
        for segment in self.segments:
            logs = [each for each in segment.files if each.name.endswith(LOG_SUFFIX)]
            if len(logs) != 1 or not 0 <= segment.base_offset <= segment.next_base_offset:
                raise CorruptError(f"segment {segment.base_offset} is none")
        for segment, after in pairwise(self.segments):
            if segment.next_base_offset > after.base_offset:
                raise CorruptError(
                    f"segments {segment.base_offset} and {after.base_offset} overlap"
                )
