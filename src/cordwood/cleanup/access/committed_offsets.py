"""The offsets that consumer groups have committed, read from the files of `__consumer_offsets`.

Records of aborted transactions do not count, those of open ones not yet.

Source: org.apache.kafka.coordinator.group.GroupCoordinatorShard.replay.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path

from cordwood.format.control_record import ControlType, parse_control_type_id
from cordwood.format.group_metadata import GROUP_RECORDS
from cordwood.format.offset_commit import (
    KEY_TYPE,
    decode_offset_commit_key,
    decode_offset_commit_value,
)
from cordwood.format.record import Record
from cordwood.format.record_batch import LegacyBatch, RecordBatch
from cordwood.model.errors import CorruptError, UnsupportedVersionError
from cordwood.storage.filesystem import OS, FileSystem
from cordwood.storage.reading.batches import LogFile
from cordwood.storage.reading.source import SegmentSource

#: Committed offsets by (group, partition as topic-number).
Committed = dict[tuple[str, str], int]


def read_committed(
    segments: Iterable[SegmentSource],
    *,
    progress: Callable[[int], None] = lambda _: None,
    fs: FileSystem = OS,
) -> Committed:
    """The committed offsets in the segments of one partition of `__consumer_offsets`, ascending.

    Args:
        segments: all of the partition, in order.
        progress: receives the number of bytes read.
        fs: where they are.

    Raises:
        CorruptError: a batch is malformed.
        OSError: a file cannot be read.
    """
    replayed = _Replayed()
    for source in segments:
        with LogFile(Path(source.path), fs=fs) as log:
            for placed in log.batches(size_max=source.size_bytes):
                try:
                    replayed.add(placed.batch)
                except CorruptError as error:
                    raise error.located(path=source.path, base_position=placed.position) from error
        progress(source.size_bytes)
    return replayed.committed


class _Replayed:
    """The committed offsets after the records so far."""

    def __init__(self) -> None:
        self.committed: Committed = {}
        self._pending: dict[int, list[Record]] = {}

    def add(self, batch: RecordBatch | LegacyBatch) -> None:
        if isinstance(batch, LegacyBatch):
            self._apply(batch.records())
            return
        header = batch.header
        if header.is_control:
            pending = self._pending.pop(header.producer_id, [])
            for record in batch.records():
                if parse_control_type_id(record.key) == ControlType.COMMIT:
                    self._apply(pending)
        elif header.is_transactional:
            self._pending.setdefault(header.producer_id, []).extend(batch.records())
        else:
            self._apply(batch.records())

    def _apply(self, records: Iterable[Record]) -> None:
        for record in records:
            key = decode_offset_commit_key(record.key)
            if key is None:
                continue
            place = (key.group, f"{key.topic}-{key.partition}")
            if record.value is None:
                self.committed.pop(place, None)
                continue
            offset = _offset_of(record.value)
            if offset is not None:
                self.committed[place] = offset


def _offset_of(value: bytes) -> int | None:
    """The committed offset of a value of any version; None if it cannot be read."""
    fast = decode_offset_commit_value(value)
    if fast is not None:
        return fast.offset
    try:
        found = GROUP_RECORDS.decode_value(KEY_TYPE, value)
    except (CorruptError, UnsupportedVersionError):
        return None
    return None if found is None else int(found.fields["offset"])
