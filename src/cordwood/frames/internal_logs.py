"""The logs of Kafka's own topics, of which tables have the current state.

A task reads one partition after the other, and has the state of one in memory.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cordwood.broker.coordinators.coordinator_log import Replay
from cordwood.cleanup.plan.captured import Captured
from cordwood.format.record_batch import LegacyBatch, RecordBatch
from cordwood.frames.options import FrameOptions
from cordwood.frames.survey import captured_logs
from cordwood.frames.wanted import Isolation, Wanted
from cordwood.model.errors import CorruptError
from cordwood.storage.reading.batches import LogFile
from cordwood.storage.reading.source import SegmentSource


@dataclass(frozen=True, slots=True, kw_only=True)
class InternalLog:
    """A partition of an internal topic, from `start_offset` to before `end_offset`."""

    partition: int
    sources: tuple[SegmentSource, ...]
    start_offset: int
    end_offset: int

    @property
    def size_bytes(self) -> int:
        """The bytes that are read, at most."""
        return sum(source.size_bytes for source in self.sources)

    def batches(self) -> Iterator[RecordBatch | LegacyBatch]:
        """The batches, checked; one is in memory.

        Raises:
            CorruptError: one is malformed; names the file and the position.
            OSError: a file cannot be read.
        """
        for source in self.sources:
            with LogFile(Path(source.path)) as log:
                for placed in log.batches(size_max=source.size_bytes):
                    batch = placed.batch
                    if batch.next_offset > self.end_offset:
                        return
                    if batch.last_offset < self.start_offset:
                        continue
                    try:
                        batch.require_valid()
                    except CorruptError as error:
                        raise error.located(
                            path=source.path, base_position=placed.position
                        ) from error
                    yield batch

    def replay(self, replay: Replay[Any]) -> None:
        """Replays all records.

        Raises:
            CorruptError: a record is malformed, or contradicts those before it; names the file.
            OSError: as `batches`.
        """
        try:
            for batch in self.batches():
                replay.offset = batch.base_offset
                replay.batch(batch)
            replay.flush()
        except CorruptError as error:
            if error.path is not None:
                raise
            path = self._path_of(replay.offset)
            raise type(error)(error.reason, path=path, remedy=error.remedy) from error

    def _path_of(self, offset: int) -> str:
        """The file of an offset."""
        before = [source.path for source in self.sources if source.base_offset <= offset]
        return before[-1] if before else self.sources[0].path


def internal_logs(topic: str, options: FrameOptions) -> list[InternalLog]:
    """The partitions of an internal topic in the directories; none if there is no such topic.

    They end at the high watermark, or with isolation `all` at the end of the log.

    Raises:
        CordwoodError, OSError: as `captured_logs`.
    """
    found = captured_logs(options, Wanted(), topic=topic)
    return [_internal_log(captured, options.isolation) for captured in found]


def _internal_log(captured: Captured, isolation: Isolation) -> InternalLog:
    view = captured.view
    is_all = isolation is Isolation.ALL
    return InternalLog(
        partition=view.topic_partition.partition,
        sources=captured.sources,
        start_offset=view.log_start_offset,
        end_offset=view.log_end_offset if is_all else view.high_watermark,
    )
