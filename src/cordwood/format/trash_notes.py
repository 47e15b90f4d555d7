"""The notes of a trash, `cordwood-trash.json`: what was removed, and how it was before.

Cordwood's own; a JSON document a line. In a partition's directory each line is a removal of
segments. In that of a deleted topic the first line is the topic; each later one adds committed
offsets, or partitions that were closed.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass, replace
from typing import Any
from uuid import UUID

from cordwood.format.file_names import LOG_SUFFIX
from cordwood.model.errors import CorruptError
from cordwood.model.uuids import parse_uuid, uuid_text

RETENTION, COMPACTION, RESTART = "retention", "compaction", "restart"
DELETED_RECORDS = "deleted-records"
_WHY = (RETENTION, COMPACTION, RESTART, DELETED_RECORDS)


@dataclass(frozen=True, slots=True, kw_only=True)
class TrashedFile:
    """A file that was removed: its `name` in the partition's directory, and in the trash."""

    name: str
    stored: str
    size_bytes: int
    modified_ns: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Rewritten:
    """A segment that took the place of removed ones; `crc` is the CRC-32C of its log."""

    base_offset: int
    size_bytes: int
    modified_ns: int
    crc: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Removal:
    """Segments that left a log together, and what their return needs.

    `segments` are base offsets, ascending; `end_offset` is the base of the segment that followed.
    `at_ms` is when, in ms since the epoch, and from `expires_ms` on it may be deleted for good;
    None for never. The log start offset, the leader epochs (epoch, start offset) and the cleaner
    checkpoint are those before it. `rewritten` are the segments, ascending, that took the place of
    those removed, if a compaction has made them. `rolled` is the base of the empty segment that
    was made, where all were removed.
    """

    at_ms: int
    why: str
    topic_id: str | None
    segments: tuple[int, ...]
    end_offset: int
    files: tuple[TrashedFile, ...]
    log_start_offset: int
    leader_epochs: tuple[tuple[int, int], ...]
    cleaner_checkpoint: int | None
    rewritten: tuple[Rewritten, ...] = ()
    rolled: int | None = None
    expires_ms: int | None = None

    @property
    def size_bytes(self) -> int:
        """Bytes of the segments' logs."""
        return sum(each.size_bytes for each in self.files if each.name.endswith(LOG_SUFFIX))


def build_trash_notes(removals: Iterable[Removal]) -> bytes:
    """The bytes of the file."""
    return b"".join(json.dumps(asdict(each)).encode() + b"\n" for each in removals)


def parse_trash_notes(data: bytes) -> list[Removal]:
    """The removals, the oldest first.

    Raises:
        CorruptError: it is no such file.
    """
    try:
        return [_removal(json.loads(line)) for line in data.splitlines()]
    except (ValueError, KeyError, TypeError) as error:
        raise CorruptError(f"not the notes of a trash ({error})") from error


def _removal(value: dict[str, Any]) -> Removal:
    rewritten = value["rewritten"]
    if not isinstance(rewritten, list):  # as written before there could be several
        rewritten = [] if rewritten is None else [rewritten]
    found = Removal(
        **value
        | {
            "segments": tuple(map(int, value["segments"])),
            "files": tuple(TrashedFile(**each) for each in value["files"]),
            "leader_epochs": tuple((int(e), int(o)) for e, o in value["leader_epochs"]),
            "rewritten": tuple(Rewritten(**each) for each in rewritten),
        }
    )
    numbers = (found.at_ms, found.end_offset, found.log_start_offset, found.expires_ms or 0)
    if found.why not in _WHY or not found.segments or any(type(n) is not int for n in numbers):
        raise TypeError(f"{found.why!r} of {found.segments} is no removal")
    if any("/" in each.name + each.stored or each.stored.startswith(".") for each in found.files):
        raise TypeError("a file of another directory")
    if (found.why == COMPACTION) != bool(found.rewritten):
        raise TypeError("a compaction without its segment")
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class RemovedPartition:
    """A partition of a deleted topic, as it was; `log_dir` is where its directory was.

    `is_closed` says that its files are as a clean stop leaves them: what is below the recovery
    point was flushed in any case.
    """

    partition: int
    log_dir: str
    leader_epoch: int
    partition_epoch: int
    log_start_offset: int
    log_end_offset: int
    high_watermark: int
    recovery_point: int
    is_closed: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class RemovedOffset:
    """An offset that a group had committed for a partition of a deleted topic."""

    group: str
    partition: int
    offset: int
    leader_epoch: int
    metadata: str
    expire_ms: int = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class RemovedTopic:
    """A deleted topic: when, until when it is kept (ms since the epoch), and what it was.

    `settings` are its own, without defaults. `replicas` is the number of each partition's replicas.
    """

    at_ms: int
    expires_ms: int
    name: str
    topic_id: UUID
    settings: dict[str, str]
    replicas: int
    partitions: tuple[RemovedPartition, ...]
    offsets: tuple[RemovedOffset, ...] = ()


def build_removed_topic(topic: RemovedTopic) -> bytes:
    """The first line; `offsets` are left to lines of their own."""
    value = asdict(topic) | {"topic_id": uuid_text(topic.topic_id)}
    del value["offsets"]
    return json.dumps({"topic": value}).encode() + b"\n"


def build_removed_offsets(offsets: Iterable[RemovedOffset]) -> bytes:
    """A later line, with committed offsets."""
    return json.dumps({"offsets": [asdict(each) for each in offsets]}).encode() + b"\n"


def build_closed_partitions(partitions: Iterable[int]) -> bytes:
    """A later line: the logs of these partitions were closed."""
    return json.dumps({"closed": sorted(partitions)}).encode() + b"\n"


def parse_removed_topic(data: bytes) -> RemovedTopic:
    """The deleted topic; a last line that a crash has cut off does not count.

    Raises:
        CorruptError: it is no such file.
    """
    try:
        first, *later = [json.loads(line) for line in data.split(b"\n")[:-1]]
        offsets = [RemovedOffset(**each) for line in later for each in line.get("offsets", ())]
        closed = {number for line in later for number in line.get("closed", ())}
        return _removed_topic(first["topic"], tuple(offsets), closed)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise CorruptError(f"not the notes of a deleted topic ({error})") from error


def merge_removed_topics(here: bytes, waiting: bytes) -> bytes:
    """The notes of one topic from two places: all lines of both, those that are `here` first.

    If the first lines differ, `here` is of an earlier deletion, and is left out. A last line that a
    crash has cut off is, too.
    """
    old, new = here.split(b"\n")[:-1], waiting.split(b"\n")[:-1]
    if old[:1] != new[:1]:
        return waiting
    known = set(old)
    return b"".join(line + b"\n" for line in [*old, *(each for each in new if each not in known)])


def _removed_topic(
    value: dict[str, Any], offsets: tuple[RemovedOffset, ...], closed: set[int]
) -> RemovedTopic:
    partitions = [RemovedPartition(**each) for each in value["partitions"]]
    found = RemovedTopic(
        **value
        | {
            "topic_id": parse_uuid(value["topic_id"]),
            "settings": {str(key): str(text) for key, text in value["settings"].items()},
            "partitions": tuple(
                replace(each, is_closed=each.is_closed or each.partition in closed)
                for each in partitions
            ),
            "offsets": offsets,
        }
    )
    numbers = [found.at_ms, found.expires_ms, found.replicas]
    numbers += [number for each in partitions for number in (each.partition, each.log_end_offset)]
    if any(type(number) is not int for number in numbers) or not isinstance(found.name, str):
        raise TypeError("a number or a name is missing")
    return found
