"""The metadata log of an observer: a copy of the leader's, and how far that is committed.

Records that are not committed are kept, and may be truncated; a loader sees only those below the
high watermark, which is not known before a leader has named it.

Source: org.apache.kafka.raft.KafkaRaftClient, RaftLog.truncateToEndOffset, internals.KafkaRaftLog,
QuorumState.initialize; KIP-595, KIP-630.
"""

from __future__ import annotations

import logging
from pathlib import Path

from cordwood.metadata.metadata_log import MetadataLog
from cordwood.metadata.quorum.observer import (
    NO_LEADER,
    UNKNOWN_OFFSET,
    AppendRecords,
    AppendSnapshot,
    BeginSnapshot,
    DropSnapshot,
    Effect,
    FinishSnapshot,
    KeepLeader,
    LeaderAndEpoch,
    LogEnd,
    MoveHighWatermark,
    OffsetAndEpoch,
    TruncateTo,
)
from cordwood.metadata.replay import Replay, replay_newest_snapshot
from cordwood.metadata.settings import MetadataLogSettings
from cordwood.metadata.snapshot_file import SnapshotPart
from cordwood.model.errors import CorruptError
from cordwood.storage.disk_reserve import DiskReserve
from cordwood.storage.log.log_context import LogContext
from cordwood.storage.log.truncation import truncate_fully_and_start_at, truncate_to

_log = logging.getLogger(__name__)


class ObservedLog(MetadataLog):
    """`__cluster_metadata-0` of an observer; it does what a `QuorumObserver` says."""

    def __init__(
        self, log_dir: Path, *, context: LogContext, settings: MetadataLogSettings
    ) -> None:
        """Opens the log, truncates a partial batch at its end, and reads the newest snapshot.

        Raises:
            CorruptError, UnsupportedVersionError: the log or the snapshot cannot be read.
            StorageError: the disk returned an error.
        """
        self._reserve = DiskReserve(log_dir, size_bytes=settings.reserve_bytes, fs=context.fs)
        self._reserve.release()
        super().__init__(log_dir, context=context, settings=settings)
        self._high_watermark = UNKNOWN_OFFSET
        self._part: SnapshotPart | None = None
        self.replay = self._read_snapshot()
        self._snapshot_epoch = self.replay.epoch
        if self._is_behind_snapshot():
            truncate_fully_and_start_at(self._log, self.replay.snapshot_offset)
        if self.start_offset > self.replay.snapshot_offset:
            raise CorruptError(
                f"the log begins at offset {self.start_offset}, and no snapshot has what is "
                f"below. {self._remedy}",
                path=str(self.directory),
            )
        self._voters = [each["voterId"] for each in self._quorum_state().get("currentVoters") or ()]
        self.leader = self._stored_leader()

    @property
    def high_watermark(self) -> int:
        """One past the last record known to be committed; 0 while no leader has said."""
        return max(self._high_watermark, 0)

    @property
    def end(self) -> LogEnd:
        """The end of the log."""
        return LogEnd(
            offset=self.end_offset, epoch=self.last_epoch, high_watermark=self._high_watermark
        )

    def take_reserve(self) -> None:
        """Takes the disk reserve, or what was released of it, as far as there is space."""
        self._reserve.take()

    def close(self) -> None:
        """Releases the disk reserve and closes the log."""
        self._reserve.release()
        super().close()

    def abandon(self) -> None:
        """Releases the disk reserve and the log's files, without writing anything."""
        self._reserve.release()
        super().abandon()

    def apply(self, effect: Effect) -> None:
        """Does what an observer's step says, on a full disk in the space that is reserved.

        It may be called again with an effect for which there was no space.

        Raises:
            CorruptError: the leader's records or its snapshot are malformed, or the leader would
                have what is committed truncated.
            KafkaError: the records do not follow the log, or the disk refuses.
        """
        self._reserve.at_need(lambda: self._apply(effect))

    def _apply(self, effect: Effect) -> None:
        match effect:
            case AppendRecords(records):
                self._log.append_as_follower(records, leader_epoch=self.leader.epoch)
                self._context.scheduler.run_due()
            case MoveHighWatermark(offset):
                self._move_high_watermark(offset)
            case KeepLeader(leader):
                self._write_quorum_state(leader.leader_id, leader.epoch, voters=self._voters)
                self.leader = leader
            case TruncateTo(diverging):
                self._truncate(diverging)
            case BeginSnapshot(snapshot_id):
                with self._writing("a snapshot"):
                    self._part = SnapshotPart(
                        self.directory, snapshot_id.offset, snapshot_id.epoch, self._fs
                    )
            case AppendSnapshot(data):
                assert self._part is not None, "a snapshot has begun"
                with self._writing("a snapshot"):
                    self._part.append(data)
            case FinishSnapshot(snapshot_id):
                self._finish_snapshot(snapshot_id)
            case DropSnapshot():
                assert self._part is not None, "a snapshot has begun"
                self._part.abandon()
                self._part = None

    # ---- one by one

    def _move_high_watermark(self, offset: int) -> None:
        found = min(offset, self.end_offset)
        if found <= self._high_watermark:
            return
        self._high_watermark = found
        self._log.update_high_watermark(found)
        self._committed()

    def _truncate(self, diverging: OffsetAndEpoch) -> None:
        """Source: RaftLog.truncateToEndOffset."""
        local = self.end_of_epoch(diverging.epoch)
        to = local.end_offset
        if diverging.epoch in {0, local.epoch}:
            to = min(diverging.offset, self.end_offset if diverging.epoch == 0 else to)
        if to < self._high_watermark:
            raise CorruptError(
                f"the leader {self.leader} has another log from offset {to} on, and what is below "
                f"{self._high_watermark} is committed",
                path=str(self.directory),
            )
        truncate_to(self._log, to)
        self._context.scheduler.run_due()
        _log.info("Truncated the metadata log to offset %d, as its leader has it", to)

    def _finish_snapshot(self, snapshot_id: OffsetAndEpoch) -> None:
        if self._part is not None:
            with self._writing("a snapshot"):
                self._part.finish()
            part, self._part = self._part, None
            try:
                self.replay = self._read_snapshot()
            except CorruptError:
                self._fs.remove(part.path)
                raise
            _log.info(
                "Fetched the metadata snapshot that ends at offset %d, epoch %d, and %d bytes",
                snapshot_id.offset,
                snapshot_id.epoch,
                part.size_bytes,
            )
        self._snapshot_epoch = snapshot_id.epoch
        truncate_fully_and_start_at(self._log, snapshot_id.offset)
        self._context.scheduler.run_due()

    # ---- what is on disk

    @property
    def _remedy(self) -> str:
        return (
            f"Remove {self.directory} and start again: the log is fetched from the controllers, "
            "which have all of it"
        )

    def _read_snapshot(self) -> Replay:
        try:
            return replay_newest_snapshot(
                self.directory, read_bytes=self._fs.read_bytes, names_in=self._fs.names_in
            )
        except CorruptError as error:
            raise error.with_remedy(self._remedy) from error

    def _is_behind_snapshot(self) -> bool:
        """Source: KafkaRaftLog.truncateToLatestSnapshot."""
        epoch, offset = self.replay.epoch, self.replay.snapshot_offset
        latest = self._log.leader_epochs.latest_epoch or 0
        return offset > 0 and (epoch, offset) > (latest, self.end_offset)

    @property
    def last_epoch(self) -> int:
        """The leader epoch of the last record, or of the snapshot."""
        latest = self._log.leader_epochs.latest_epoch
        if latest is not None:
            return latest
        return self._snapshot_epoch if self.end_offset else 0

    def _stored_leader(self) -> LeaderAndEpoch:
        state = self._quorum_state()
        epoch = int(state.get("leaderEpoch", 0))
        if epoch < self.last_epoch:
            return LeaderAndEpoch(NO_LEADER, self.last_epoch)
        return LeaderAndEpoch(int(state.get("leaderId", NO_LEADER)), epoch)
