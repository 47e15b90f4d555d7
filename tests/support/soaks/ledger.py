"""Records that were acknowledged to writers, and whether a log still holds them.

The judges are pure functions of what was acknowledged and what was read, and give complaints in
words: none means that nothing was lost, altered, duplicated, reordered or invented.
"""

from __future__ import annotations

import enum
import threading
from array import array
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from support.soaks.stamps import Stamp, is_tombstone, key_of

COMPLAINTS_MAX: Final = 20
UNKNOWN_OFFSET: Final = -1
"""Of a record acknowledged as a duplicate: the client does not learn its offset."""


class Cleanup(enum.Enum):
    """Records that may be missing from a topic's log."""

    NONE = "nothing is ever removed"
    COMPACT = "records that a newer one of the same key replaces, and old tombstones"
    RETENTION = "records below the log start offset"


class Acknowledged(NamedTuple):
    """A record of one writer that the broker acknowledged."""

    sequence: int
    offset: int


class ReadRecord(NamedTuple):
    """A record as a consumer got it; `stamp` is None if it is not as any writer sent it."""

    offset: int
    stamp: Stamp | None
    is_tombstone: bool


class Place(NamedTuple):
    """A partition of a topic."""

    topic: str
    partition: int


@dataclass
class _Column:
    sequences: array[int] = field(default_factory=lambda: array("q"))
    offsets: array[int] = field(default_factory=lambda: array("q"))


class Ledger:
    """Counts what writers send, and keeps what was acknowledged; may be used by several threads."""

    def __init__(self) -> None:
        self._columns: dict[tuple[Place, int], _Column] = {}
        self._lock = threading.Lock()
        self.failed: set[tuple[str, Stamp]] = set()
        self.fatal_errors: list[str] = []

    def acknowledge(self, place: Place, stamp: Stamp, offset: int) -> None:
        """Notes that the broker has taken a record; UNKNOWN_OFFSET if it does not say where."""
        with self._lock:
            column = self._columns.setdefault((place, stamp.writer), _Column())
            column.sequences.append(stamp.sequence)
            column.offsets.append(offset)

    def fail(self, topic: str, stamp: Stamp) -> None:
        """Notes a record of which it is not known whether the broker has taken it."""
        with self._lock:
            self.failed.add((topic, stamp))

    def failed_of(self, topic: str) -> set[Stamp]:
        """The records of a topic of which it is not known whether the broker has taken them."""
        with self._lock:
            return {stamp for name, stamp in self.failed if name == topic}

    @property
    def count(self) -> int:
        """The number of acknowledged records."""
        with self._lock:
            return sum(len(column.sequences) for column in self._columns.values())

    def count_of(self, topic: str) -> int:
        """The number of acknowledged records of a topic."""
        with self._lock:
            return sum(
                len(column.sequences)
                for (place, _), column in self._columns.items()
                if place.topic == topic
            )

    def of(self, place: Place) -> dict[int, list[Acknowledged]]:
        """Acknowledged records of a partition, by writer, in the order of the sequence numbers."""
        with self._lock:
            return {
                writer: sorted(map(Acknowledged, column.sequences, column.offsets))
                for (at, writer), column in self._columns.items()
                if at == place
            }


def judge(
    place: Place,
    acknowledged: Mapping[int, list[Acknowledged]],
    records: Iterable[ReadRecord],
    *,
    cleanup: Cleanup,
    log_start_offset: int,
    failed: Collection[Stamp] = (),
) -> list[str]:
    """Complaints about a partition's log; at most COMPLAINTS_MAX.

    Args:
        place: the partition, for the texts.
        acknowledged: by writer.
        records: all of the log, in the order in which they were read.
        cleanup: what may be missing.
        log_start_offset: inclusive; only retention may move it.
        failed: records that may be there or not.
    """
    read = list(records)
    found = [
        *_unsound(read),
        *_disordered(read),
        *_missing(
            acknowledged,
            read,
            cleanup=cleanup,
            log_start_offset=log_start_offset,
            failed=failed,
        ),
    ]
    name = f"{place.topic}-{place.partition}"
    if cleanup is not Cleanup.RETENTION and log_start_offset != 0:
        found.insert(0, f"the log starts at offset {log_start_offset}")
    return [f"{name}: {complaint}" for complaint in found[:COMPLAINTS_MAX]]


def _unsound(read: list[ReadRecord]) -> Iterator[str]:
    for record in read:
        if record.stamp is None:
            yield f"the record at offset {record.offset} is not as it was sent"


def _disordered(read: list[ReadRecord]) -> Iterator[str]:
    last_offset = -1
    last_sequence: dict[int, int] = {}
    for record in read:
        if record.offset <= last_offset:
            yield f"offset {record.offset} comes behind offset {last_offset}"
        last_offset = record.offset
        if record.stamp is None:
            continue
        writer, sequence = record.stamp
        before = last_sequence.get(writer, -1)
        if sequence <= before:
            kind = "a second time" if sequence == before else f"behind its record {before}"
            yield f"record {sequence} of writer {writer} is at offset {record.offset} {kind}"
        last_sequence[writer] = max(before, sequence)


def _missing(
    acknowledged: Mapping[int, list[Acknowledged]],
    read: list[ReadRecord],
    *,
    cleanup: Cleanup,
    log_start_offset: int,
    failed: Collection[Stamp],
) -> Iterator[str]:
    at = {record.offset: record.stamp for record in read}
    offsets = {record.stamp: record.offset for record in read if record.stamp is not None}
    newest: dict[bytes, int] = {}
    for record in read:
        if record.stamp is not None:
            newest[key_of(*record.stamp)] = record.offset
    for writer, entries in acknowledged.items():
        sent = [entry.sequence for entry in entries]
        sent += [stamp.sequence for stamp in failed if stamp.writer == writer]
        removed = _last_tombstones(writer, sent)
        for sequence, offset in entries:
            stamp = Stamp(writer, sequence)
            if offset == UNKNOWN_OFFSET:
                offset = offsets.get(stamp, UNKNOWN_OFFSET)  # noqa: PLW2901  # where it is now
            if stamp == at.get(offset):
                continue
            if cleanup is Cleanup.RETENTION and offset < log_start_offset:
                continue
            if cleanup is Cleanup.COMPACT and offset not in at:
                key = key_of(writer, sequence)
                if newest.get(key, -1) > offset or removed.get(key, -1) >= sequence:
                    continue
            yield (
                f"record {sequence} of writer {writer}, acknowledged at offset {offset}, "
                f"is not there"
            )


def _last_tombstones(writer: int, sequences: Iterable[int]) -> dict[bytes, int]:
    """The sequence number of the newest tombstone of each key that a writer has sent."""
    tombstones = sorted(sequence for sequence in sequences if is_tombstone(sequence))
    return {key_of(writer, sequence): sequence for sequence in tombstones}
