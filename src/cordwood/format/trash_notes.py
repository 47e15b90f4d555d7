"""The notes of a trash, `cordwood-trash.json`: what was removed from a partition, and how it was.

Cordwood's own; a JSON document a line, in the order of the removals.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any

from cordwood.format.file_names import LOG_SUFFIX
from cordwood.model.errors import CorruptError

RETENTION, COMPACTION, RESTART = "retention", "compaction", "restart"
_WHY = (RETENTION, COMPACTION, RESTART)


@dataclass(frozen=True, slots=True, kw_only=True)
class TrashedFile:
    """A file that was removed: its `name` in the partition's directory, and in the trash."""

    name: str
    stored: str
    size_bytes: int
    modified_ns: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Rewritten:
    """The segment that took the place of the removed ones; `crc` is the CRC-32C of its log."""

    base_offset: int
    size_bytes: int
    modified_ns: int
    crc: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Removal:
    """Segments that left a log together, and what their return needs.

    `segments` are base offsets, ascending; `end_offset` is the base of the segment that followed.
    `at_ms` is when, in ms since the epoch. The log start offset, the leader epochs (epoch, start
    offset) and the cleaner checkpoint are those before it. `rolled` is the base of the empty
    segment that was made, where all were removed.
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
    rewritten: Rewritten | None = None
    rolled: int | None = None

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
    found = Removal(
        **value
        | {
            "segments": tuple(map(int, value["segments"])),
            "files": tuple(TrashedFile(**each) for each in value["files"]),
            "leader_epochs": tuple((int(e), int(o)) for e, o in value["leader_epochs"]),
            "rewritten": None if rewritten is None else Rewritten(**rewritten),
        }
    )
    numbers = (found.at_ms, found.end_offset, found.log_start_offset)
    if found.why not in _WHY or not found.segments or any(type(n) is not int for n in numbers):
        raise TypeError(f"{found.why!r} of {found.segments} is no removal")
    if any("/" in each.name + each.stored or each.stored.startswith(".") for each in found.files):
        raise TypeError("a file of another directory")
    if (found.why == COMPACTION) != (found.rewritten is not None):
        raise TypeError("a compaction without its segment")
    return found
