"""Files of snapshots: of a metadata log, of the voters at format time, of the first records.

Source: org.apache.kafka.snapshot.RecordsSnapshotWriter, FileRawSnapshotWriter, Snapshots; KIP-630.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from cordwood.format.control_record import ControlType, build_control_key, build_kraft_control_value
from cordwood.format.file_names import (
    FileKind,
    classify,
    metadata_snapshot_epoch,
    metadata_snapshot_name,
)
from cordwood.format.record import Record
from cordwood.format.record_batch import build_batch
from cordwood.metadata.records import ApiRecord
from cordwood.storage.filesystem import File, FileSystem

_BATCH_RECORDS_MAX = 1024
_PART_SUFFIX = ".part"
_SNAPSHOT_MODE = 0o400
ControlRecord = tuple[ControlType, Mapping[str, Any]]


def control_batch(
    controls: Sequence[ControlRecord], *, base_offset: int, timestamp_ms: int, epoch: int
) -> bytes:
    """A batch of KRaft's own records."""
    records = [
        Record(base_offset + number, timestamp_ms, build_control_key(kind), value)
        for number, (kind, value) in enumerate(
            (kind, build_kraft_control_value(kind, 0, fields)) for kind, fields in controls
        )
    ]
    return build_batch(
        records, base_offset=base_offset, is_control=True, partition_leader_epoch=epoch
    )


def data_batch(
    values: Sequence[bytes], *, base_offset: int, timestamp_ms: int, epoch: int
) -> bytes:
    """A batch of metadata records."""
    records = [
        Record(base_offset + number, timestamp_ms, None, value)
        for number, value in enumerate(values)
    ]
    return build_batch(records, base_offset=base_offset, partition_leader_epoch=epoch)


def kraft_controls(
    kraft_version: int, voters: Sequence[Mapping[str, Any]] | None
) -> list[ControlRecord]:
    """The control records at the start of a log with dynamic voters; none for static voters."""
    if kraft_version == 0:
        return []
    return [
        (ControlType.KRAFT_VERSION, {"kRaftVersion": kraft_version}),
        (ControlType.KRAFT_VOTERS, {"voters": list(voters or ())}),
    ]


def snapshot_batches(
    records: Iterable[ApiRecord],
    *,
    epoch: int,
    now_ms: int,
    last_contained_ms: int,
    controls: Sequence[ControlRecord] = (),
) -> Iterator[bytes]:
    """The batches of a snapshot; offsets in the file start at 0.

    `last_contained_ms` is the timestamp of the last batch that the snapshot covers.
    """
    header = [(ControlType.SNAPSHOT_HEADER, {"lastContainedLogTimestamp": last_contained_ms})]
    first = [*header, *controls]
    yield control_batch(first, base_offset=0, timestamp_ms=now_ms, epoch=epoch)
    offset = len(first)
    values: list[bytes] = []
    for record in records:
        values.append(record.encode())
        if len(values) == _BATCH_RECORDS_MAX:
            yield data_batch(values, base_offset=offset, timestamp_ms=now_ms, epoch=epoch)
            offset += len(values)
            values = []
    if values:
        yield data_batch(values, base_offset=offset, timestamp_ms=now_ms, epoch=epoch)
        offset += len(values)
    footer: list[ControlRecord] = [(ControlType.SNAPSHOT_FOOTER, {})]
    yield control_batch(footer, base_offset=offset, timestamp_ms=now_ms, epoch=epoch)


@dataclass(frozen=True, slots=True, kw_only=True)
class SnapshotFile:
    """A snapshot on disk that ends at `end_offset`, exclusive, in `epoch`."""

    path: Path
    end_offset: int
    epoch: int
    size_bytes: int


def snapshots_in(directory: Path, fs: FileSystem) -> list[SnapshotFile]:
    """The snapshots of a metadata log, the oldest first; that of the voters alone is none.

    Raises:
        OSError: the disk returned an error.
    """
    found = []
    for name in fs.names_in(directory):
        kind = classify(name)
        if kind.kind is FileKind.METADATA_SNAPSHOT and not kind.state and kind.base_offset:
            found.append(
                SnapshotFile(
                    path=directory / name,
                    end_offset=kind.base_offset,
                    epoch=metadata_snapshot_epoch(name),
                    size_bytes=fs.facts_of(directory / name).size_bytes,
                )
            )
    return sorted(found, key=lambda each: (each.end_offset, each.epoch))


class SnapshotPart:
    """A snapshot that is being written: it has its name when it is whole and on disk."""

    def __init__(self, directory: Path, end_offset: int, epoch: int, fs: FileSystem) -> None:
        """Creates the file, empty; one that was left is replaced.

        Raises:
            OSError: the disk returned an error.
        """
        self.path = directory / metadata_snapshot_name(end_offset, epoch)
        self.size_bytes = 0
        self._part = self.path.with_name(self.path.name + _PART_SUFFIX)
        self._fs = fs
        fs.remove(self._part)
        self._file: File | None = fs.create(self._part)

    def append(self, data: bytes) -> None:
        """Writes the next bytes.

        Raises:
            NoSpaceError: the disk is full.
            OSError: the disk returned an error.
        """
        assert self._file is not None, "not finished"
        self._file.write_at([data], self.size_bytes)
        self.size_bytes += len(data)

    def finish(self) -> Path:
        """Syncs the file and gives it its name, which lasts when this returns.

        It may be called again after an error.

        Raises:
            OSError: the disk returned an error.
        """
        fs = self._fs
        if self._file is not None:
            self._file.sync()
            self._file.close()
            self._file = None
        fs.take_after(self._part, replace(fs.facts_of(self._part), mode=_SNAPSHOT_MODE))
        fs.rename(self._part, self.path)
        fs.sync_directory(self.path.parent)
        return self.path

    def abandon(self) -> None:
        """Removes what was written."""
        if self._file is not None:
            self._file.close()
        self._fs.remove(self._part)


def write_snapshot(
    directory: Path, end_offset: int, epoch: int, batches: Iterable[bytes], fs: FileSystem
) -> Path:
    """Writes a snapshot that ends at `end_offset`, exclusive; the write is atomic.

    Raises:
        NoSpaceError: the disk is full; no partial file is left.
        OSError: the disk returned an error.
    """
    part = SnapshotPart(directory, end_offset, epoch, fs)
    try:
        for batch in batches:
            part.append(batch)
        return part.finish()
    except BaseException:
        part.abandon()
        raise
