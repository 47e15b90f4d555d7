"""An offset checkpoint of a log directory, read and replaced as a whole.

Source: org.apache.kafka.storage.internals.checkpoint.OffsetCheckpointFile.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping
from pathlib import Path

from cordwood.format.checkpoint_order import LINE_ORDERS
from cordwood.format.offset_checkpoint import build_offset_checkpoint, parse_offset_checkpoint
from cordwood.model.errors import CorruptError
from cordwood.model.topic_partition import TopicPartition
from cordwood.storage.filesystem import FileSystem

_log = logging.getLogger(__name__)


class OffsetCheckpointFile:
    """One of the `*-offset-checkpoint` files.

    Lines are written in Kafka's order; those of `cleaner-offset-checkpoint`, whose order depends on
    the lines before, in the order in which they are given.
    """

    def __init__(self, path: Path, *, fs: FileSystem) -> None:
        self.path = path
        self._order = LINE_ORDERS.get(path.name, list)
        self._fs = fs
        self._written: dict[TopicPartition, int] | None = None
        self._lock = threading.Lock()

    def read(self) -> dict[TopicPartition, int]:
        """Its lines; none where there is no file.

        Raises:
            CorruptError: a line is malformed.
        """
        try:
            return parse_offset_checkpoint(self._fs.read_bytes(self.path))
        except FileNotFoundError:
            return {}
        except CorruptError as error:
            raise error.located(path=str(self.path)) from error

    def read_or_nothing(self, meaning: str) -> dict[TopicPartition, int]:
        """Its lines; none, and a warning, where it cannot be understood."""
        try:
            return self.read()
        except CorruptError as error:
            _log.warning(
                "Error occurred while reading %s file of directory %s, resetting to 0: %s",
                meaning,
                self.path.parent,
                error,
            )
            return {}

    def write(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Replaces the file, durably; nothing is written where it holds these lines already."""
        self.write_current(lambda: offsets)

    def write_current(self, offsets: Callable[[], Mapping[TopicPartition, int]]) -> None:
        """As `write`, of what `offsets` gives once no other thread is writing.

        So the lines of a slower thread never take the place of newer ones.
        """
        with self._lock:
            lines = offsets()
            if self._written == lines:
                return
            ordered = {partition: lines[partition] for partition in self._order(lines)}
            self._fs.replace_durably(self.path, build_offset_checkpoint(ordered))
            self._written = dict(lines)
