"""An offset checkpoint of a log directory, which is replaced as a whole.

Source: org.apache.kafka.storage.internals.checkpoint.OffsetCheckpointFile.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping
from pathlib import Path

from cordwood.format.checkpoint_order import LINE_ORDERS, cleaner_offset_order
from cordwood.format.offset_checkpoint import build_offset_checkpoint, parse_offset_checkpoint
from cordwood.model.errors import CorruptError
from cordwood.model.topic_partition import TopicPartition
from cordwood.storage.filesystem import FileFacts, FileSystem

_log = logging.getLogger(__name__)


class OffsetCheckpointFile:
    """One of the `*-offset-checkpoint` files.

    Lines are written in Kafka's order; `write` writes those of `cleaner-offset-checkpoint`, whose
    order depends on the lines before, in the order in which they are given.
    """

    def __init__(self, path: Path, *, fs: FileSystem) -> None:
        self.path = path
        self._order = LINE_ORDERS.get(path.name, list)
        self._fs = fs
        self._written: dict[TopicPartition, int] | None = None
        self._parsed: tuple[object, dict[TopicPartition, int]] | None = None
        self._writes = 0
        self._lock = threading.Lock()

    def read(self) -> Mapping[TopicPartition, int]:
        """Its lines; none where there is no file.

        They are parsed again only if the file was replaced: `cordwood clean` asks once a partition,
        and the file has a line for each.

        Raises:
            CorruptError: a line is malformed.
        """
        try:
            state, known = self._state(), self._parsed
            if known is None or known[0] != state:
                known = state, parse_offset_checkpoint(self._fs.read_bytes(self.path))
                self._parsed = known
        except FileNotFoundError:
            return {}
        except CorruptError as error:
            raise error.located(path=str(self.path)) from error
        return known[1]

    def _state(self) -> object:
        """A key of the file's content; own writes are counted, as a clock may stand still."""
        writes, facts = self._writes, self._fs.facts_of(self.path)
        return writes, self._fs.identity_of(self.path), facts.modified_ns, facts.size_bytes

    def _replace(
        self, lines: Mapping[TopicPartition, int], *, model: FileFacts | None = None
    ) -> None:
        try:
            self._fs.replace_durably(self.path, build_offset_checkpoint(lines), model=model)
        finally:
            self._writes += 1

    def read_or_nothing(self, meaning: str) -> Mapping[TopicPartition, int]:
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
        """Writes the result of `offsets`, which is called once no other thread is writing.

        So the lines of a slower thread never take the place of newer ones.
        """
        with self._lock:
            lines = offsets()
            if self._written == lines:
                return
            ordered = {partition: lines[partition] for partition in self._order(lines)}
            self._replace(ordered)
            self._written = dict(lines)

    def remove_lines(self, is_gone: Callable[[TopicPartition], bool]) -> list[TopicPartition]:
        """Removes the lines of partitions that `is_gone` says are, durably; returns these.

        A file that cannot be understood has no lines, and is left as it is.
        """
        with self._lock:
            before = self.read_or_nothing(self.path.name)
            kept = {p: offset for p, offset in before.items() if not is_gone(p)}
            if len(kept) < len(before):
                self._replace_lines(kept)
            return [partition for partition in before if partition not in kept]

    def _replace_lines(
        self, ordered: Mapping[TopicPartition, int], *, model: FileFacts | None = None
    ) -> None:
        """Replaces the file by these lines, which `read` and the next `write` then know."""
        self._replace(ordered, model=model)
        self._written = dict(ordered)
        self._parsed = self._state(), self._written

    def set_line(
        self, partition: TopicPartition, offset: int | None, *, model: FileFacts | None = None
    ) -> None:
        """Sets the line of one partition; None removes it.

        Nothing is written where the line is as wanted already. The lines of a file that cannot be
        understood are lost, as in Kafka.

        Args:
            partition: whose line.
            offset: its offset.
            model: owner and mode of a file that is new; one that is replaced passes on its own.
        """
        with self._lock:
            try:
                before = self.read()
            except CorruptError:
                before = {}
            if before.get(partition) == offset:
                return
            lines = dict(before)
            if offset is None:
                del lines[partition]
            else:
                lines[partition] = offset
            if self.path.name in LINE_ORDERS:
                order = self._order(lines)
            elif offset is None:
                order = cleaner_offset_order(list(before), gone={partition})
            else:
                order = cleaner_offset_order(list(before), update=partition)
            self._replace_lines({each: lines[each] for each in order}, model=model)
