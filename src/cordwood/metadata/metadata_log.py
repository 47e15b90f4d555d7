"""`__cluster_metadata-0`, open for one writer; a subclass for each role in its quorum.

Source: org.apache.kafka.raft.FileQuorumStateStore, internals.KafkaRaftLog; KIP-595, KIP-630.
"""

from __future__ import annotations

import json
import uuid
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from cordwood.configs.log_config import LogConfig
from cordwood.format.file_names import (
    CLUSTER_METADATA_DIR,
    QUORUM_STATE,
    FileKind,
    classify,
)
from cordwood.format.record_batch import RecordBatch
from cordwood.metadata.formatting import build_quorum_state
from cordwood.metadata.replay import Replay, valid_batches
from cordwood.metadata.settings import MetadataLogSettings
from cordwood.metadata.snapshot_file import SnapshotFile, snapshots_in
from cordwood.model.errors import CorruptError
from cordwood.model.topic_names import CLUSTER_METADATA_TOPIC
from cordwood.model.topic_partition import TopicPartition
from cordwood.storage.filesystem import FileSystem
from cordwood.storage.log.leader_epochs import UNDEFINED_EPOCH, EpochEndOffset
from cordwood.storage.log.log_context import LogContext
from cordwood.storage.log.log_loader import LoadRequest, load_log
from cordwood.storage.log.segment_removal import delete_segments

TOPIC_PARTITION = TopicPartition(CLUSTER_METADATA_TOPIC, 0)
TOPIC_ID = uuid.UUID(int=1)
BATCH_BYTES_MAX = 8 << 20
_READ_BYTES_MAX = 8 << 20


class MetadataLog(ABC):
    """The metadata log of a node: its batches, which of them are committed, and `quorum-state`.

    `replay` has the records that a loader need not read from the log; it is another object after a
    snapshot has taken the place of the log.
    """

    replay: Replay

    def __init__(
        self, log_dir: Path, *, context: LogContext, settings: MetadataLogSettings
    ) -> None:
        """Opens the log, and truncates a partial batch that a crash left at its end.

        Raises:
            CorruptError, UnsupportedVersionError: the log cannot be read.
            StorageError: the disk returned an error.
        """
        self.directory = log_dir / CLUSTER_METADATA_DIR
        self._context = context
        self._fs: FileSystem = context.fs
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

    @property
    def kraft_version(self) -> int:
        """The level of `kraft.version`: 0 with static voters, 1 with those of the log."""
        return self.replay.kraft_version

    @property
    def voters(self) -> Sequence[Mapping[str, Any]]:
        """The fields of the last KRAFT_VOTERS record; none before one."""
        return self.replay.voters or ()

    @property
    def end_offset(self) -> int:
        """One past the offset of the last record."""
        return self._log.log_end_offset

    @property
    @abstractmethod
    def high_watermark(self) -> int:
        """One past the offset of the last record that is known to be committed."""

    @property
    def start_offset(self) -> int:
        """The first offset that the log still has."""
        return self._log.log_start_offset

    @property
    def size_bytes(self) -> int:
        """The size of the segments in bytes."""
        return self._log.size_bytes

    @property
    @abstractmethod
    def last_epoch(self) -> int:
        """The epoch of the last batch, or of the snapshot in its place; 0 without either."""

    def end_of_epoch(self, epoch: int) -> EpochEndOffset:
        """The largest epoch of the log that is not above `epoch`, and its end, exclusive.

        Source: RaftLog.endOffsetForEpoch.
        """
        found = self._log.leader_epochs.end_offset_for(epoch, self.end_offset)
        if found.epoch == UNDEFINED_EPOCH:
            return EpochEndOffset(self.last_epoch, self.end_offset)
        return found

    def subscribe(self, on_commit: Callable[[], None]) -> None:
        """Calls `on_commit` each time the high watermark has advanced."""
        self._on_commit.append(on_commit)

    def read_committed(self, offset: int, *, max_bytes: int = _READ_BYTES_MAX) -> list[RecordBatch]:
        """The committed batches from `offset` on: at least one if there is any.

        Raises:
            CorruptError: a batch on disk is malformed.
            StorageError: the disk refused.
        """
        if offset >= self.high_watermark:
            return []
        found = list(valid_batches(self.read(offset, max_bytes=max_bytes)))
        assert found, f"no batch at offset {offset}, below the high watermark"
        return found

    def read(self, offset: int, *, max_bytes: int) -> bytes:
        """The bytes of the batches from `offset` on, the first one whole.

        Raises:
            StorageError: the disk returned an error.
        """
        return self._log.reader.read(offset, max_bytes).read()

    def snapshots(self) -> list[SnapshotFile]:
        """The snapshots in the directory, the oldest first."""
        return snapshots_in(self.directory, self._fs)

    def read_snapshot(self, snapshot: SnapshotFile, position: int, count: int) -> bytes:
        """Reads at most `count` bytes of a snapshot, from a position on.

        Raises:
            FileNotFoundError: it is there no more.
            OSError: the disk returned an error.
        """
        file = self._fs.open(snapshot.path)
        try:
            return file.read_at(count, position)
        finally:
            file.close()

    def remove_before(self, offset: int) -> None:
        """Deletes whole segments below `offset`, the end offset of a snapshot.

        Source: KafkaRaftLog.deleteBeforeSnapshot.
        """
        if offset <= self.start_offset or offset > self.end_offset:
            return
        self._log.maybe_increment_log_start_offset(offset, "snapshot generated")
        segments = list(self._log.segments)
        count = sum(following.base_offset <= offset for following in segments[1:])
        delete_segments(self._log, count, reason="snapshot generated")
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

    def _committed(self) -> None:
        for on_commit in self._on_commit:
            on_commit()

    def _writing(self, what: str) -> AbstractContextManager[None]:
        """Reports failures to write this log's directory."""
        return self._context.failures.guard(self.directory.parent, "writing", what)

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

    def _write_quorum_state(self, leader_id: int, epoch: int, *, voters: Sequence[int]) -> None:
        state = build_quorum_state(
            leader_id=leader_id,
            leader_epoch=epoch,
            kraft_version=self.kraft_version,
            voters=voters,
        )
        with self._writing(QUORUM_STATE):
            self._fs.replace_durably(self.directory / QUORUM_STATE, state)


def _log_config(settings: MetadataLogSettings) -> LogConfig:
    return LogConfig(
        cleanup_policy=frozenset(),
        retention_ms=-1,
        segment_bytes=settings.segment_bytes,
        segment_ms=settings.segment_ms,
        max_message_bytes=BATCH_BYTES_MAX,
    )


def _remove_leftovers(directory: Path, fs: FileSystem) -> None:
    """Removes snapshots that were never finished, or whose removal was not."""
    for name in fs.names_in(directory):
        found = classify(name)
        if found.kind is FileKind.METADATA_SNAPSHOT and found.state:
            fs.remove(directory / name)
