"""The metadata log of a quorum of one: an epoch for each start, batches on disk before they count.

Invariant: what `append` has returned for is on disk; a batch that failed is not in the log, or the
log refuses all that follows.

Source: org.apache.kafka.raft.KafkaRaftClient, FileQuorumStateStore, internals.KafkaRaftLog;
KIP-595, KIP-630.
"""

from __future__ import annotations

import json
import logging
import uuid
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from cordwood.format.control_record import ControlType
from cordwood.format.file_names import (
    CLUSTER_METADATA_DIR,
    LOG_SUFFIX,
    QUORUM_STATE,
    FileKind,
    classify,
)
from cordwood.format.record_batch import RecordBatch
from cordwood.metadata.formatting import build_quorum_state
from cordwood.metadata.records import ApiRecord
from cordwood.metadata.replay import Replay, replay_metadata_log, valid_batches
from cordwood.metadata.settings import MetadataLogSettings
from cordwood.metadata.snapshot_file import ControlRecord, control_batch, data_batch, kraft_controls
from cordwood.model.append_origin import AppendOrigin
from cordwood.model.config import LogConfig
from cordwood.model.errors import (
    ConfigError,
    CorruptError,
    EncodingError,
    UnsupportedVersionError,
)
from cordwood.model.kafka_errors import PolicyViolationError, StorageError, UnknownServerError
from cordwood.model.pauses import background
from cordwood.model.topic_names import CLUSTER_METADATA_TOPIC
from cordwood.model.topic_partition import TopicPartition
from cordwood.model.uuids import uuid_text
from cordwood.storage.filesystem import FileSystem
from cordwood.storage.log.log_context import LogContext
from cordwood.storage.log.log_loader import LoadRequest, load_log

_log = logging.getLogger(__name__)

TOPIC_PARTITION = TopicPartition(CLUSTER_METADATA_TOPIC, 0)
TOPIC_ID = uuid.UUID(int=1)
BATCH_BYTES_MAX = 8 << 20
BATCH_RECORDS_MAX = 10_000
_READ_BYTES_MAX = 8 << 20


class MetadataLog:
    """`__cluster_metadata-0`, open for its one writer."""

    def __init__(
        self,
        log_dir: Path,
        *,
        node_id: int,
        directory_id: uuid.UUID,
        context: LogContext,
        settings: MetadataLogSettings,
    ) -> None:
        """Opens the log, truncates a partial batch that a crash left at its end, and reads it.

        Raises:
            ConfigError: the quorum has other voters.
            CorruptError, UnsupportedVersionError: the log or a snapshot cannot be read.
            StorageError: the disk returned an error.
        """
        self.directory = log_dir / CLUSTER_METADATA_DIR
        self._node_id = node_id
        self._context = context
        self._fs: FileSystem = context.fs
        self._failure: StorageError | None = None
        self._on_commit: list[Callable[[], None]] = []
        self._fs.make_directory_durably(self.directory)
        _remove_leftovers(self.directory, self._fs)
        self._log = load_log(
            LoadRequest(
                directory=self.directory,
                topic_partition=TOPIC_PARTITION,
                config=_log_config(settings),
                context=context,
                topic_id=TOPIC_ID,
            )
        )
        self.replay = self._read()
        if self.replay.log_is_behind and self.replay.snapshot_offset:
            self._log.truncate_fully_and_start_at(self.replay.snapshot_offset)
        self.kraft_version = self.replay.kraft_version
        self.voters: Sequence[Mapping[str, Any]] = self.replay.voters or ()
        state = self._quorum_state()
        self._require_sole_voter(state, directory_id)
        last_epoch = max(self.replay.epoch, int(state.get("leaderEpoch", 0)), 0)
        self.epoch = last_epoch
        self.epoch_start_offset = self.end_offset

    @property
    def end_offset(self) -> int:
        """One past the offset of the last record."""
        return self._log.log_end_offset

    @property
    def high_watermark(self) -> int:
        """One past the offset of the last committed record."""
        return self._log.high_watermark

    @property
    def start_offset(self) -> int:
        """The first offset that the log still has."""
        return self._log.log_start_offset

    @property
    def size_bytes(self) -> int:
        """The size of the segments in bytes."""
        return self._log.size_bytes

    def begin_epoch(self) -> None:
        """Makes this node the leader of a new epoch: in `quorum-state`, and in the log.

        Raises:
            StorageError: the disk refused.
        """
        self.epoch += 1
        self._write_quorum_state()
        voters = [{"voterId": self._node_id}]
        leader = {"leaderId": self._node_id, "voters": voters, "grantingVoters": voters}
        controls: list[ControlRecord] = [(ControlType.LEADER_CHANGE, leader)]
        if self.end_offset == 0:
            # No other replicated file has the voters of the first snapshot.
            controls += kraft_controls(self.kraft_version, self.voters)
        self.epoch_start_offset = self.end_offset
        now_ms = self._context.clock.now_ms()
        self._write(
            control_batch(
                controls, base_offset=self.end_offset, timestamp_ms=now_ms, epoch=self.epoch
            )
        )

    def append(self, records: Sequence[ApiRecord], *, timestamp_ms: int) -> tuple[int, int]:
        """Writes records as one batch; on return it is on disk. (First offset, bytes) of it.

        Raises:
            PolicyViolationError: they are too many, or too large, for one batch.
            UnknownServerError: a value does not fit its record; nothing was written.
            StorageError: the disk refused; after any error but a full disk, all further batches are
                refused.
        """
        if len(records) > BATCH_RECORDS_MAX:
            raise PolicyViolationError("Unable to perform excessively large batch operation.")
        first = self.end_offset
        with background():
            batch = data_batch(
                _values_of(records),
                base_offset=first,
                timestamp_ms=timestamp_ms,
                epoch=self.epoch,
            )
            if len(batch) > BATCH_BYTES_MAX:
                raise PolicyViolationError("Unable to perform excessively large batch operation.")
            self._write(batch)
        for on_commit in self._on_commit:
            on_commit()
        return first, len(batch)

    def subscribe(self, on_commit: Callable[[], None]) -> None:
        """Has `on_commit` called after each append that moves the high watermark on."""
        self._on_commit.append(on_commit)

    def read_committed(self, offset: int, *, max_bytes: int = _READ_BYTES_MAX) -> list[RecordBatch]:
        """The committed batches from `offset` on: at least one if there is any.

        Raises:
            CorruptError: a batch on disk is malformed.
            StorageError: the disk refused.
        """
        if offset >= self.high_watermark:
            return []
        found = list(valid_batches(self._log.read(offset, max_bytes).read()))
        assert found, f"no batch at offset {offset}, below the high watermark"
        return found

    def remove_before(self, offset: int) -> None:
        """Deletes whole segments below `offset`, the end offset of a snapshot.

        Source: KafkaRaftLog.deleteBeforeSnapshot.
        """
        if offset <= self.start_offset or offset > self.end_offset:
            return
        self._log.maybe_increment_log_start_offset(offset, "snapshot generated")
        segments = list(self._log.segments)
        count = sum(following.base_offset <= offset for following in segments[1:])
        self._log.delete_segments(count, reason="snapshot generated")
        self._context.scheduler.run_due()

    def close(self) -> None:
        """Closes the log and writes the files of a clean shutdown.

        Raises:
            StorageError: the disk returned an error.
        """
        self._context.scheduler.run_due()
        self._log.close()

    def abandon(self) -> None:
        """Lets go of the files and writes nothing."""
        self._log.close_handlers()

    def _write(self, batch: bytes) -> None:
        if self._failure is not None:
            raise self._failure
        self._log.append_as_leader(batch, leader_epoch=self.epoch, origin=AppendOrigin.RAFT_LEADER)
        try:
            self._context.scheduler.run_due()  # a roll has the segment before flushed
            self._log.flush(force_active=False)
        except StorageError as error:
            # When only an index does not fit on the disk, the records are durable all the same.
            if not error.is_out_of_space:
                self._failure = error
                raise
            _log.warning("%s", error)
        self._log.update_high_watermark(self.end_offset)

    def _read(self) -> Replay:
        try:
            return replay_metadata_log(
                self.directory, read_bytes=self._fs.read_bytes, names_in=self._fs.names_in
            )
        except CorruptError as error:
            raise error.with_remedy(_remedy(error)) from error

    def _quorum_state(self) -> dict[str, Any]:
        path = self.directory / QUORUM_STATE
        try:
            state = json.loads(self._fs.read_bytes(path))
        except FileNotFoundError:
            return {}
        except ValueError as error:
            raise CorruptError(f"not the state of a quorum: {error}", path=str(path)) from error
        if not isinstance(state, dict):
            raise CorruptError("not the state of a quorum", path=str(path))
        return state

    def _require_sole_voter(self, state: Mapping[str, Any], directory_id: uuid.UUID) -> None:
        if self.kraft_version:
            found = [(each["voterId"], uuid_text(each["voterDirectoryId"])) for each in self.voters]
            own = [(self._node_id, uuid_text(directory_id))]
        else:
            found = [(each["voterId"], "") for each in state.get("currentVoters") or ()]
            own = [(self._node_id, "")]
            if not found:
                return
        if found != own:
            raise ConfigError(
                f"{self.directory} is the log of a quorum with the voters {found}, and this "
                f"controller can only be the one voter {own[0]}"
            )

    def _write_quorum_state(self) -> None:
        state = build_quorum_state(
            leader_id=self._node_id, leader_epoch=self.epoch, kraft_version=self.kraft_version
        )
        with self._context.failures.guard(self.directory.parent, "writing", QUORUM_STATE):
            self._fs.replace_durably(self.directory / QUORUM_STATE, state)


def _remedy(error: CorruptError) -> str:
    """The remedy for a log or snapshot that cannot be read."""
    found = "Nothing was changed. "
    if isinstance(error, UnsupportedVersionError):
        found += "If a later Kafka wrote it, start that one; otherwise restore"
    else:
        found += "Restore"
    found += " the log directory from a copy"
    if error.path is None or error.position is None or not error.path.endswith(LOG_SUFFIX):
        return found
    return (
        f"{found}, or give up this change and all later ones by cutting the file there: "
        f"truncate -s {error.position} {error.path}"
    )


def _values_of(records: Sequence[ApiRecord]) -> list[bytes]:
    try:
        return [record.encode() for record in records]
    except EncodingError as error:
        _log.error("A change of the cluster's metadata was refused: %s", error)
        raise UnknownServerError(
            f"a value does not fit the metadata log, and nothing was changed: {error}"
        ) from error


def _log_config(settings: MetadataLogSettings) -> LogConfig:
    return LogConfig(
        cleanup_policy=frozenset(),
        retention_ms=-1,
        segment_bytes=settings.segment_bytes,
        segment_ms=settings.segment_ms,
        max_message_bytes=BATCH_BYTES_MAX,
    )


def _remove_leftovers(directory: Path, fs: FileSystem) -> None:
    """Removes snapshots that were never finished, or on their way out."""
    for name in fs.names_in(directory):
        found = classify(name)
        if found.kind is FileKind.METADATA_SNAPSHOT and found.state:
            fs.remove(directory / name)
