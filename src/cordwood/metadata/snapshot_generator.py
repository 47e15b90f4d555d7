"""Decides when a snapshot of the metadata log is written, and which old ones are deleted.

Source: org.apache.kafka.image.publisher.SnapshotGenerator, KafkaRaftLog.maybeClean; KIP-630.
"""

from __future__ import annotations

import logging
from pathlib import Path

from cordwood.format.control_record import (
    ControlType,
    parse_control_key,
    parse_kraft_control_value,
)
from cordwood.format.record_batch import RecordBatch, parse_batch
from cordwood.metadata.image import MetadataImage
from cordwood.metadata.metadata_log import MetadataLog
from cordwood.metadata.publisher import MetadataUpdate
from cordwood.metadata.records import image_records
from cordwood.metadata.settings import MetadataLogSettings
from cordwood.metadata.snapshot_file import (
    SnapshotFile,
    kraft_controls,
    snapshot_batches,
    write_snapshot,
)
from cordwood.model.errors import CorruptError
from cordwood.model.kafka_errors import StorageError
from cordwood.storage.log.log_context import LogContext

_log = logging.getLogger(__name__)

_HEADER_BYTES_MAX = 1 << 20
_PART_THAT_IS_MUCH = 20


class SnapshotGenerator:
    """Writes snapshots of the last image that was published; a `MetadataPublisher`.

    Appends to the log must not run at the same time as `run_if_due` and `write`.
    """

    def __init__(
        self, log: MetadataLog, *, settings: MetadataLogSettings, context: LogContext
    ) -> None:
        """Creates a generator that has written nothing.

        Args:
            log: whose snapshots these are, as it was opened.
            settings: when a snapshot is due, and how long it is kept.
            context: of the log: its clock, file system and failed directories.
        """
        self._log = log
        self._settings = settings
        self._context = context
        self._fs = context.fs
        self._failures = context.failures
        self._image = MetadataImage()
        self._bytes_since = log.replay.bytes_since_snapshot
        self._last_ms = context.clock.now_ms()
        self._last_offset = log.replay.snapshot_offset

    def on_metadata_update(self, update: MetadataUpdate) -> None:
        """Keeps the image of an update, and counts its bytes."""
        self._image = update.after
        self._bytes_since += update.size_bytes

    def run_if_due(self) -> bool:
        """Writes a snapshot if one is due, and removes old ones; whether one was written.

        Raises:
            StorageError: the disk refused.
        """
        now_ms = self._context.clock.now_ms()
        is_due = self._image.next_offset > self._last_offset and (
            self._bytes_since >= self._settings.snapshot_bytes
            or now_ms - self._last_ms >= self._settings.snapshot_interval_ms
        )
        if is_due:
            self.write()
        self.clean()
        return is_due

    def leave_for_next_start(self) -> None:
        """Writes a snapshot at a clean stop if the next start would have much to read without it.

        Differs: Kafka's next start reads what there is. A disk that refuses is no error: nothing
        depends on the snapshot.
        """
        if self._bytes_since < self._settings.snapshot_bytes // _PART_THAT_IS_MUCH:
            return
        try:
            self.write()
        except StorageError as error:
            _log.warning("Cannot write a metadata snapshot at shutdown: %s", error)

    def write(self) -> Path:
        """Writes a snapshot of the image.

        Raises:
            StorageError: the disk refused.
        """
        image, now_ms = self._image, self._context.clock.now_ms()
        batches = snapshot_batches(
            image_records(image),
            epoch=image.epoch,
            now_ms=now_ms,
            last_contained_ms=image.timestamp_ms,
            controls=kraft_controls(self._log.kraft_version, self._log.voters),
        )
        directory = self._log.directory
        with self._failures.guard(directory.parent, "writing a snapshot of", directory.name):
            path = write_snapshot(directory, image.next_offset, image.epoch, batches, self._fs)
        self._bytes_since, self._last_ms, self._last_offset = 0, now_ms, image.next_offset
        return path

    def clean(self) -> int:
        """Removes the oldest snapshots, and the log below the next, as retention has it; how many.

        The last one always stays.

        Raises:
            StorageError: the disk refused.
        """
        directory, now_ms = self._log.directory, self._context.clock.now_ms()
        removed = 0
        with self._failures.guard(directory.parent, "cleaning snapshots of", directory.name):
            found = self._log.snapshots()
            while len(found) > 1 and self._is_spare(found, now_ms):
                self._log.remove_before(found[1].end_offset)
                self._fs.remove(found[0].path)
                del found[0]
                removed += 1
            if removed:
                self._fs.sync_directory(directory)
        return removed

    def _is_spare(self, found: list[SnapshotFile], now_ms: int) -> bool:
        limit = self._settings.retention_bytes
        total = self._log.size_bytes + sum(each.size_bytes for each in found)
        if limit >= 0 and total > limit:
            return True
        age_max = self._settings.retention_ms
        return age_max >= 0 and now_ms - self._timestamp_of(found[0].path) > age_max

    def _timestamp_of(self, path: Path) -> int:
        """The timestamp of the last batch that a snapshot covers."""
        file = self._fs.open(path)
        try:
            batch = parse_batch(file.read_at(_HEADER_BYTES_MAX, 0))
        finally:
            file.close()
        if not isinstance(batch, RecordBatch):
            raise CorruptError("snapshot without its header", path=str(path))
        header = next(batch.iter_records())
        kind = parse_control_key(header.key)
        if kind is not ControlType.SNAPSHOT_HEADER:
            raise CorruptError("snapshot without its header", path=str(path))
        return int(
            parse_kraft_control_value(kind, header.value).fields["lastContainedLogTimestamp"]
        )
