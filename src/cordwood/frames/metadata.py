"""Records of the cluster's metadata: its log, the snapshots of it, the records it begins with."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

import pyarrow as pa

from cordwood.format.control_record import (
    ControlType,
    parse_control_key,
    parse_kraft_control_value,
)
from cordwood.format.file_names import (
    BOOTSTRAP_CHECKPOINT,
    CLUSTER_METADATA_DIR,
    FileKind,
    classify,
)
from cordwood.format.message_schema import message_json
from cordwood.format.metadata_records import decode_metadata_record
from cordwood.format.record import Record
from cordwood.format.record_batch import LegacyBatch, RecordBatch
from cordwood.frames.options import OFFSETS_OPTIONS, FrameOptions
from cordwood.frames.rows import TIMESTAMP, Row, batches_of, timestamp
from cordwood.frames.table import Table
from cordwood.frames.wanted import Isolation, Wanted
from cordwood.model.errors import CorruptError, UnsupportedVersionError
from cordwood.storage.filesystem import OS
from cordwood.storage.reading.batches import LogFile

_SCHEMA: Final = pa.schema(
    {
        "source": pa.string(),
        "file": pa.string(),
        "offset": pa.int64(),
        "timestamp": TIMESTAMP,
        "leaderEpoch": pa.int32(),
        "isControl": pa.bool_(),
        "type": pa.string(),
        "version": pa.int16(),
        "data": pa.string(),
    }
)
_SOURCES: Final = {FileKind.LOG: "log", FileKind.METADATA_SNAPSHOT: "snapshot"}
_BOOTSTRAP: Final = "bootstrap"


@dataclass(frozen=True, slots=True, kw_only=True)
class _File:
    """The wanted records in the first `size_bytes` of a file; no control records unless asked."""

    path: Path
    source: str
    size_bytes: int
    wanted: Wanted
    has_control: bool

    def records(self) -> Iterator[tuple[RecordBatch, Record]]:
        """The records with their batches, of which one is in memory.

        Raises:
            CorruptError: a batch is malformed; names the file and the position.
            OSError: the file cannot be read.
        """
        with LogFile(self.path) as file:
            for placed in file.batches(size_max=self.size_bytes):
                batch = placed.batch
                try:
                    if isinstance(batch, LegacyBatch):
                        raise CorruptError("a message of magic 0 or 1, which no metadata log has")
                    if self._may_have(batch):
                        batch.require_valid()
                        for record in batch.iter_records():
                            if self._has(record):
                                yield batch, record
                except CorruptError as error:
                    path = str(self.path)
                    raise error.located(path=path, base_position=placed.position) from error

    def _may_have(self, batch: RecordBatch) -> bool:
        wanted = self.wanted
        if batch.header.is_control and not self.has_control:
            return False
        return batch.last_offset >= wanted.first_offset and batch.base_offset < wanted.end_offset

    def _has(self, record: Record) -> bool:
        wanted = self.wanted
        return (
            wanted.first_offset <= record.offset < wanted.end_offset
            and record.timestamp >= wanted.first_ms
        )


def _parts(options: FrameOptions, wanted: Wanted) -> list[_File]:
    return [
        _File(
            path=path,
            source=source,
            size_bytes=OS.facts_of(path).size_bytes,
            wanted=wanted,
            has_control=options.isolation is Isolation.ALL,
        )
        for log_dir in options.log_dirs
        for path, source in _files(log_dir, wanted)
    ]


def _files(log_dir: Path, wanted: Wanted) -> Iterator[tuple[Path, str]]:
    """The files of a log directory, or of a partition's, that may have wanted records."""
    directory = log_dir
    if log_dir.name != CLUSTER_METADATA_DIR:
        names = OS.names_in(log_dir)
        if BOOTSTRAP_CHECKPOINT in names:
            yield log_dir / BOOTSTRAP_CHECKPOINT, _BOOTSTRAP
        if CLUSTER_METADATA_DIR not in names:
            return
        directory = log_dir / CLUSTER_METADATA_DIR
    found = {name: classify(name) for name in sorted(OS.names_in(directory))}
    logs = [name for name, each in found.items() if each.kind is FileKind.LOG and not each.state]
    following = dict(pairwise(logs))
    for name, each in found.items():
        source = _SOURCES.get(each.kind)
        if source is None or each.state:
            continue
        next_base = found[following[name]].base_offset if name in following else None
        if next_base is None or next_base > wanted.first_offset:
            yield directory / name, source


def _read(part: _File, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
    rows = (_row(part, batch, record) for batch, record in part.records())
    return batches_of(rows, _SCHEMA, columns)


def _row(part: _File, batch: RecordBatch, record: Record) -> Row:
    is_control = batch.header.is_control
    try:
        kind, version, fields = _control(record) if is_control else _data(record)
    except UnsupportedVersionError:
        kind, version, fields = None, None, None
    except CorruptError as error:
        raise type(error)(
            f"the record at offset {record.offset} cannot be read: {error.reason}",
            path=str(part.path),
        ) from error
    return {
        "source": part.source,
        "file": part.path.name,
        "offset": record.offset,
        "timestamp": timestamp(record.timestamp),
        "leaderEpoch": batch.header.partition_leader_epoch,
        "isControl": is_control,
        "type": kind,
        "version": version,
        "data": None
        if fields is None
        else json.dumps(fields, ensure_ascii=False, separators=(",", ":")),
    }


_Decoded = tuple[str | None, int | None, dict[str, Any] | None]


def _data(record: Record) -> _Decoded:
    found = decode_metadata_record(record.value or b"")
    return found.type_name, found.version, found.json()


def _control(record: Record) -> _Decoded:
    kind = parse_control_key(record.key)
    if kind is ControlType.UNKNOWN:
        return None, None, None
    found = parse_kraft_control_value(kind, record.value)
    return kind.name, found.version, message_json(found)


METADATA: Final = Table(
    name="metadata",
    schema=_SCHEMA,
    default_columns=tuple(_SCHEMA.names),
    options=(*OFFSETS_OPTIONS, "startingTimestamp", "isolation"),
    parts=_parts,
    read=_read,
)
