"""The metadata log of a quorum of one: an epoch for each start, batches on disk before they count.

Invariant: what `append` has returned for is on disk; a batch that failed is not in the log, or the
log refuses all that follows.

Source: org.apache.kafka.raft.KafkaRaftClient, internals.KafkaRaftLog; KIP-595, KIP-630.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from cordwood.format.control_record import ControlType
from cordwood.format.file_names import LOG_SUFFIX
from cordwood.metadata.metadata_log import BATCH_BYTES_MAX, MetadataLog
from cordwood.metadata.records import ApiRecord
from cordwood.metadata.replay import Replay, replay_metadata_log
from cordwood.metadata.settings import MetadataLogSettings
from cordwood.metadata.snapshot_file import ControlRecord, control_batch, data_batch, kraft_controls
from cordwood.model.append_origin import AppendOrigin
from cordwood.model.errors import (
    ConfigError,
    CorruptError,
    EncodingError,
    UnsupportedVersionError,
)
from cordwood.model.kafka_errors import PolicyViolationError, StorageError, UnknownServerError
from cordwood.model.pauses import background
from cordwood.model.uuids import uuid_text
from cordwood.storage.log.log_context import LogContext
from cordwood.storage.log.truncation import truncate_fully_and_start_at

_log = logging.getLogger(__name__)

BATCH_RECORDS_MAX = 10_000


class SoleVoterLog(MetadataLog):
    """`__cluster_metadata-0` of the only voter: all that is in it is committed."""

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
        super().__init__(log_dir, context=context, settings=settings)
        self._node_id = node_id
        self._failure: StorageError | None = None
        self.replay = self._read()
        if self.replay.log_is_behind and self.replay.snapshot_offset:
            truncate_fully_and_start_at(self._log, self.replay.snapshot_offset)
        state = self._quorum_state()
        self._require_sole_voter(state, directory_id)
        last_epoch = max(self.replay.epoch, int(state.get("leaderEpoch", 0)), 0)
        self.epoch = last_epoch

    @property
    def high_watermark(self) -> int:
        """The log's end once an epoch has begun: the only voter commits what it appends."""
        return self._log.high_watermark

    @property
    def last_epoch(self) -> int:
        """The leader epoch of the last record, 0 if there is none."""
        latest = self._log.leader_epochs.latest_epoch
        return max(self.replay.epoch, 0) if latest is None else latest

    def begin_epoch(self) -> None:
        """Makes this node the leader of a new epoch: in `quorum-state`, and in the log.

        Raises:
            StorageError: the disk refused.
        """
        self.epoch += 1
        self._write_quorum_state(self._node_id, self.epoch, voters=[self._node_id])
        voters = [{"voterId": self._node_id}]
        leader = {"leaderId": self._node_id, "voters": voters, "grantingVoters": voters}
        controls: list[ControlRecord] = [(ControlType.LEADER_CHANGE, leader)]
        if self.end_offset == 0:
            # No other replicated file has the voters of the first snapshot.
            controls += kraft_controls(self.kraft_version, self.voters)
        self._write_controls(controls)

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
        self._committed()
        return first, len(batch)

    def make_voters_dynamic(self, voter: Mapping[str, Any]) -> None:
        """Raises `kraft.version` to 1: the voter is in the log from now on, as `voter` has it.

        Raises:
            StorageError: the disk refused.

        Source: org.apache.kafka.raft.LeaderState.maybeAppendUpgradedKRaftVersion.
        """
        self._write_controls(kraft_controls(1, [voter]))
        self.replay.kraft_version = 1
        self.replay.voters = [voter]
        self._committed()

    def _write_controls(self, controls: Sequence[ControlRecord]) -> None:
        self._write(
            control_batch(
                controls,
                base_offset=self.end_offset,
                timestamp_ms=self._context.clock.now_ms(),
                epoch=self.epoch,
            )
        )

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


def _remedy(error: CorruptError) -> str:
    """The remedy where a log or a snapshot cannot be read."""
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
