"""The metadata of a cluster, read from the directory of its metadata log.

The newest snapshot is read first, then the log from the end of the snapshot. Records between a
Begin and an End record are applied together: records of a transaction that is aborted, or still
open at the end of the log, are dropped. A partial batch at the very end of the log is ignored;
anything else that is malformed is an error with its file and position.

How far the log is committed is not stored. With a single voter all of it is committed; with several
voters, or if the voters are unknown, the last records may still be truncated; the image records
this.

Source: org.apache.kafka.image.MetadataDelta and loader.MetadataLoader,
org.apache.kafka.raft.internals.KafkaRaftLog, Kafka 4.3; KIP-630, KIP-868.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from cordwood.format.control_record import (
    ControlType,
    parse_control_key,
    parse_kraft_control_value,
)
from cordwood.format.file_names import QUORUM_STATE, FileKind, classify
from cordwood.format.metadata_records import (
    MetadataRecord,
    decode_metadata_record,
    describe_metadata_record,
)
from cordwood.format.record import Record
from cordwood.format.record_batch import LegacyBatch, RecordBatch, iter_batches
from cordwood.metadata.delta import ImageDelta
from cordwood.metadata.image import MetadataImage
from cordwood.model.errors import CorruptError, UnsupportedVersionError
from cordwood.model.pauses import in_steps

_log = logging.getLogger(__name__)

__all__ = [
    "MetadataImage",
    "Replay",
    "read_metadata_image",
    "read_snapshot_records",
    "replay_metadata_log",
    "replay_newest_snapshot",
    "valid_batches",
]

ReadBytes = Callable[[Path], bytes]
NamesIn = Callable[[Path], Iterable[str]]


def read_metadata_image(
    directory: Path, *, read_bytes: ReadBytes = Path.read_bytes, names_in: NamesIn | None = None
) -> MetadataImage:
    """The image from the metadata log in `directory` (`__cluster_metadata-0`).

    `read_bytes` and `names_in` are those of a file system other than the machine's.

    Raises:
        CorruptError: a file is malformed, records contradict each other, or a part of the log is
            missing.
        UnsupportedVersionError: a record is of a kind or version that Kafka 4.4 does not know.
        OSError: a file cannot be read.
    """
    replay = replay_metadata_log(directory, read_bytes=read_bytes, names_in=names_in)
    recorded = replay.voters
    voters = _voters_of_quorum_state(directory, read_bytes) if recorded is None else len(recorded)
    return replace(replay.image(), may_have_uncommitted_suffix=voters != 1)


def replay_metadata_log(
    directory: Path, *, read_bytes: ReadBytes = Path.read_bytes, names_in: NamesIn | None = None
) -> Replay:
    """The records in `directory` applied; a transaction may still be open.

    `read_bytes` and `names_in` are those of a file system other than the machine's.

    Raises:
        CorruptError, UnsupportedVersionError, OSError: as for `read_metadata_image`.
    """
    replay = Replay()
    names = names_in(directory) if names_in else [path.name for path in directory.iterdir()]
    snapshots, logs = _files(directory, names)
    if snapshots:
        newest = snapshots[-1]
        _replay_snapshot(newest, read_bytes(newest.path), replay)
        if _is_behind(logs, newest, read_bytes):
            logs = []
            replay.log_is_behind = True
        replay.snapshot_offset = newest.end_offset
    _replay_log(logs, read_bytes, replay)
    return replay


def replay_newest_snapshot(directory: Path, *, read_bytes: ReadBytes, names_in: NamesIn) -> Replay:
    """The records of the newest snapshot in `directory`, if there is one; none of the log.

    For a node that follows a controller on another one: `Replay.skips_faults`.

    Raises:
        CorruptError, UnsupportedVersionError, OSError: as for `read_metadata_image`.
    """
    replay = Replay(skips_faults=True)
    snapshots, _ = _files(directory, names_in(directory))
    if snapshots:
        newest = snapshots[-1]
        _replay_snapshot(newest, read_bytes(newest.path), replay)
        replay.snapshot_offset = newest.end_offset
    return replay


def read_snapshot_records(path: Path, data: bytes) -> list[MetadataRecord]:
    """The records of a snapshot, or of `bootstrap.checkpoint`, that are not KRaft's own.

    Raises:
        CorruptError: the file is malformed.
        UnsupportedVersionError: a record is of a kind or version that Kafka 4.4 does not know.
    """
    found = []
    for position, batch in _batches(path, data):
        if batch.header.is_control:
            continue
        try:
            found += [decode_metadata_record(each.value or b"") for each in batch.iter_records()]
        except CorruptError as error:
            raise type(error)(error.reason, path=str(path), position=position) from error
    return found


class Replay:
    """Applies records in order, both those that change an image and KRaft's control records.

    `next_offset` is one past the last record, `epoch` that of its batch. `voters` are the fields of
    the last KRAFT_VOTERS record, None before one. `log_is_behind` is true if the log ends before
    the newest snapshot, which ends at `snapshot_offset`: Kafka would empty such a log.
    """

    def __init__(self, *, skips_faults: bool = False) -> None:
        """Starts with no record.

        Args:
            skips_faults: a record that contradicts those before it, or has an impossible name, is
                logged and left out. So a broker continues with what a controller on another node
                has written beside it.

        Source: org.apache.kafka.image.loader.MetadataBatchLoader.replay, whose faults end a
        controller and not a broker.
        """
        self._skips_faults = skips_faults
        self.next_offset = 0
        self.epoch = -1
        self.timestamp_ms = -1
        self.voters: Sequence[Mapping[str, Any]] | None = None
        self.kraft_version = 0
        self.log_is_behind = False
        self.snapshot_offset = 0
        self.bytes_since_snapshot = 0
        self.data_records = 0
        self._delta = ImageDelta()

    @property
    def in_transaction(self) -> bool:
        """Whether a transaction is open."""
        return self._delta.in_transaction

    def image(self) -> MetadataImage:
        """The image after the records so far, without those of a transaction that is open."""
        return self._delta.image(
            next_offset=self.next_offset, epoch=self.epoch, timestamp_ms=self.timestamp_ms
        )

    def begin_next_image(self, image: MetadataImage) -> None:
        """Applies further records to `image`, which `image()` has returned.

        Without this, each further image costs as much as all records so far.
        """
        assert not self.in_transaction, "records of the open transaction would be lost"
        self._delta = ImageDelta(image)

    def take_log_batch(self, batch: RecordBatch) -> None:
        """Applies the records of a batch of the log from `next_offset` on.

        Raises:
            CorruptError: a record cannot be read, or contradicts those before it.
            UnsupportedVersionError: a record is of a kind or version that Kafka 4.4 does not know.
        """
        header = batch.header
        self.take_batch(batch, from_offset=self.next_offset)
        self.next_offset = header.next_offset
        self.epoch = header.partition_leader_epoch
        self.timestamp_ms = header.max_timestamp
        self.bytes_since_snapshot += header.size_bytes

    def take_batch(self, batch: RecordBatch, *, from_offset: int = 0) -> bool:
        """Applies a batch's records from an offset on; returns whether the last ends a snapshot.

        Raises:
            CorruptError, UnsupportedVersionError: as for `take_log_batch`.
        """
        is_footer = False
        what = "record"
        try:
            for record in in_steps(batch.iter_records(), every=16):
                if record.offset < from_offset:
                    continue
                what = f"record at offset {record.offset}"
                if batch.header.is_control:
                    is_footer = self._take_control(record)
                else:
                    is_footer = False
                    what = f"{describe_metadata_record(record.value)} at offset {record.offset}"
                    self._take(decode_metadata_record(record.value or b""), record.offset)
        except CorruptError as error:
            raise type(error)(f"{what} cannot be read: {error.reason}, in the batch") from error
        return is_footer

    def _take(self, record: MetadataRecord, offset: int) -> None:
        self.data_records += 1
        try:
            self._delta.take(record)
        except CorruptError as error:
            if not self._skips_faults:
                raise
            _log.error(
                "Error loading metadata log record from offset %d: %s: %s; it is left out",
                offset,
                record.name,
                error.reason,
            )

    def _take_control(self, record: Record) -> bool:
        """Applies a control record; whether it is the footer of a snapshot."""
        control_type = parse_control_key(record.key)
        if control_type is ControlType.KRAFT_VOTERS:
            fields = parse_kraft_control_value(control_type, record.value).fields
            self.voters = fields["voters"]
        elif control_type is ControlType.KRAFT_VERSION:
            fields = parse_kraft_control_value(control_type, record.value).fields
            self.kraft_version = fields["kRaftVersion"]
        elif control_type is ControlType.SNAPSHOT_HEADER:
            fields = parse_kraft_control_value(control_type, record.value).fields
            self.timestamp_ms = fields["lastContainedLogTimestamp"]
        return control_type is ControlType.SNAPSHOT_FOOTER


@dataclass(frozen=True, slots=True, kw_only=True)
class _Snapshot:
    path: Path
    end_offset: int
    epoch: int


@dataclass(frozen=True, slots=True, kw_only=True)
class _LogFile:
    path: Path
    base_offset: int


def _files(directory: Path, names: Iterable[str]) -> tuple[list[_Snapshot], list[_LogFile]]:
    """Snapshots and log files, each from the oldest to the newest."""
    snapshots: list[_Snapshot] = []
    logs: list[_LogFile] = []
    for path in [directory / name for name in names]:
        name = classify(path.name)
        if name.base_offset is None or name.state:
            continue
        if name.kind is FileKind.LOG:
            logs.append(_LogFile(path=path, base_offset=name.base_offset))
        elif name.kind is FileKind.METADATA_SNAPSHOT:
            epoch = int(path.stem.rpartition("-")[2])
            snapshots.append(_Snapshot(path=path, end_offset=name.base_offset, epoch=epoch))
    snapshots.sort(key=lambda snapshot: (snapshot.end_offset, snapshot.epoch))
    logs.sort(key=lambda log: log.base_offset)
    return snapshots, logs


def _voters_of_quorum_state(directory: Path, read_bytes: ReadBytes) -> int | None:
    """The number of voters in the quorum state file; None if the file does not have it."""
    path = directory / QUORUM_STATE
    try:
        state = json.loads(read_bytes(path))
    except FileNotFoundError:
        return None
    except ValueError as error:
        raise CorruptError(f"not the state of a quorum: {error}", path=str(path)) from error
    if not isinstance(state, dict):
        raise CorruptError("not the state of a quorum", path=str(path))
    voters = state.get("currentVoters")
    # A broker that is no voter may not know the voters, and writes an empty list.
    return len(voters) if isinstance(voters, list) and voters else None


def _is_behind(logs: Sequence[_LogFile], snapshot: _Snapshot, read_bytes: ReadBytes) -> bool:
    """Whether the log ends before the snapshot; Kafka empties such a log and continues there."""
    for log in reversed(logs):
        headers = [batch.header for _, batch in _batches(log.path, read_bytes(log.path))]
        if headers:
            last = headers[-1]
            return (
                last.next_offset < snapshot.end_offset
                or last.partition_leader_epoch < snapshot.epoch
            )
    return True


def _replay_snapshot(snapshot: _Snapshot, data: bytes, replay: Replay) -> None:
    """Applies a snapshot; its offsets count from 0 in the file, and are not the log's.

    Records of the snapshot at offset 0 are those that a controller begins an empty log with: the
    log has them, too.

    Source: org.apache.kafka.raft.RaftClient.Listener.handleLoadBootstrap.
    """
    is_complete = False
    for position, batch in _batches(snapshot.path, data):
        if not snapshot.end_offset and not batch.header.is_control:
            continue
        with _placed_at(snapshot.path, position):
            is_complete = replay.take_batch(batch)
    if not is_complete:
        raise CorruptError("snapshot without its footer", path=str(snapshot.path))
    replay.next_offset = snapshot.end_offset
    replay.epoch = snapshot.epoch if snapshot.end_offset else -1


def _replay_log(logs: Sequence[_LogFile], read_bytes: ReadBytes, replay: Replay) -> None:
    start = replay.next_offset
    expected: int | None = None
    for number, log in enumerate(logs, start=1):
        if number < len(logs) and logs[number].base_offset <= start:
            continue
        for position, batch in _batches(log.path, read_bytes(log.path)):
            header = batch.header
            if header.next_offset <= start:
                continue
            goes_on = (
                header.base_offset <= start
                if expected is None
                else (header.base_offset == expected)
            )
            if not goes_on:
                raise CorruptError(
                    f"the batch at offset {header.base_offset} does not follow the one before, "
                    f"which ended at {start if expected is None else expected}",
                    path=str(log.path),
                    position=position,
                )
            with _placed_at(log.path, position):
                replay.take_log_batch(batch)
            expected = header.next_offset


def _batches(path: Path, data: bytes) -> Iterator[tuple[int, RecordBatch]]:
    """The batches of a file, checked."""
    position = 0
    try:
        for position, batch in iter_batches(data):
            yield position, _valid(batch)
    except CorruptError as error:
        where = position if error.position is None else error.position
        raise type(error)(error.reason, path=str(path), position=where) from error


@contextmanager
def _placed_at(path: Path, position: int) -> Iterator[None]:
    """Adds the file and the position to a `CorruptError`."""
    try:
        yield
    except CorruptError as error:
        raise type(error)(error.reason, path=str(path), position=position) from error


def valid_batches(data: bytes) -> Iterator[RecordBatch]:
    """The whole batches in bytes of a metadata log, checked.

    Raises:
        CorruptError: one is malformed.
        UnsupportedVersionError: one is of an old format.
    """
    for _, batch in iter_batches(data):
        yield _valid(batch)


def _valid(batch: RecordBatch | LegacyBatch) -> RecordBatch:
    if isinstance(batch, LegacyBatch):
        raise UnsupportedVersionError(f"record batch of magic {batch.magic} in a metadata log")
    batch.require_valid()
    return batch
