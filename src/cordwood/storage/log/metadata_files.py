"""The files of a log's topic id and leader epochs, and when they are written.

Both are on disk before the first record that needs them, and otherwise soon. A full disk postpones
them: retention, DeleteRecords and truncation must not need the space that they are to free.

Source: org.apache.kafka.storage.internals.checkpoint.PartitionMetadataFile, UnifiedLog.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from uuid import UUID

from cordwood.format.file_names import PARTITION_METADATA
from cordwood.format.partition_metadata import build_partition_metadata
from cordwood.model.errors import CordwoodError, NoSpaceError
from cordwood.model.kafka_errors import StorageError
from cordwood.storage.log.log_state import LogState

_log = logging.getLogger(__name__)

_RETRY_MS = 1000


class MetadataFiles:
    """The two files of one log; the log is locked in all calls."""

    def __init__(self, log: LogState) -> None:
        """Both files are as the log was opened with them."""
        self._log = log
        self._pending_topic_id: UUID | None = None
        self._has_flush_scheduled = False
        self._is_postponed = False

    def write_topic_id(self, topic_id: UUID) -> None:
        """Has the topic id written, soon."""
        self._pending_topic_id = topic_id
        self.flush_soon()

    def change_epochs(self, change: Callable[[], None]) -> None:
        """Removes leader epochs by `change`; on a full disk their file is written later."""
        try:
            change()
        except NoSpaceError as error:
            self._postpone(error)

    def flush(self) -> None:
        """Writes what is not on disk yet.

        Raises:
            NoSpaceError: the file system is full; it stays pending.
            OSError: the disk refused.
        """
        self._log.leader_epochs.flush()
        self.flush_topic_id()

    def flush_topic_id(self) -> None:
        """Writes the topic id if it is not on disk yet; errors as of `flush`."""
        if self._pending_topic_id is not None:
            data = build_partition_metadata(self._pending_topic_id)
            path = self._log.directory / PARTITION_METADATA
            self._log.context.fs.replace_durably(path, data)
            self._pending_topic_id = None

    def flush_soon(self, *, delay_ms: int = 0) -> None:
        """Schedules a flush, unless one is scheduled."""
        if not self._has_flush_scheduled:
            self._has_flush_scheduled = True
            self._log.context.scheduler.schedule_once(
                "flush-metadata-file", self._flush_if_open, delay_ms=delay_ms
            )

    def _flush_if_open(self) -> None:
        with self._log.lock:
            self._has_flush_scheduled = False
            if self._log.is_closed:
                return
            try:
                with self._log.guard("writing the topic id and the leader epochs of"):
                    self.flush()
            except StorageError as error:
                if not error.is_out_of_space:
                    raise
                self._postpone(error)
            else:
                self._is_postponed = False

    def _postpone(self, error: CordwoodError) -> None:
        if not self._is_postponed:  # a full disk is reported once, however long it lasts
            self._is_postponed = True
            _log.warning("%s. It is written later", error)
        self.flush_soon(delay_ms=_RETRY_MS)
