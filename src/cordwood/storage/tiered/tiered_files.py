"""The files of a tiered log as those of one partition's directory."""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from uuid import UUID

from cordwood.format.file_names import (
    INDEX_SUFFIX,
    LEADER_EPOCH_CHECKPOINT,
    LOG_SUFFIX,
    PRODUCER_SNAPSHOT_SUFFIX,
    TIME_INDEX_SUFFIX,
    TXN_INDEX_SUFFIX,
    base_offset_of,
    is_log_file,
    segment_file_name,
)
from cordwood.format.leader_epoch_checkpoint import parse_leader_epoch_checkpoint
from cordwood.format.offset_index import build_offset_index
from cordwood.format.time_index import build_time_index
from cordwood.format.transaction_index import build_transaction_index, parse_transaction_index
from cordwood.model.errors import CorruptError
from cordwood.model.topic_partition import TopicPartition
from cordwood.storage.filesystem import OS, File
from cordwood.storage.read_only import BytesFile, PartOfFile
from cordwood.storage.reading.batches import LogFile
from cordwood.storage.segment.index_builder import IndexBuilder
from cordwood.storage.tiered.lineage import Epochs, RemotePart, remote_parts
from cordwood.storage.tiered.local_tiered_storage import LocalTieredStorage
from cordwood.storage.tiered.remote_log import RemoteLog

#: index.interval.bytes, by default: indexes of a part are made again.
_INDEX_INTERVAL_BYTES: Final = 4096


@dataclass(frozen=True, slots=True)
class TieredFile:
    """A file: that at a path; of this the bytes of `part`; or `content`, made from it."""

    path: Path
    part: tuple[int, int] | None = None
    content: bytes | None = None

    @property
    def size_bytes(self) -> int:
        """The file's length.

        Raises:
            OSError: it cannot be reached.
        """
        if self.content is not None:
            return len(self.content)
        if self.part is not None:
            return self.part[1] - self.part[0]
        return OS.facts_of(self.path).size_bytes

    def opened(self) -> File:
        """The file, open.

        Raises:
            OSError: it cannot be opened.
        """
        if self.content is not None:
            return BytesFile(str(self.path), self.content)
        whole = OS.open(self.path)
        return whole if self.part is None else PartOfFile(str(self.path), whole, *self.part)


@dataclass(frozen=True, slots=True, kw_only=True)
class TieredLog:
    """A log with remote segments.

    Args:
        log: its topic and partition.
        topic_id: of its topic.
        directory: that a broker has of it.
        remote: its remote segments.
        storage: where these are.
        log_start: its first offset; None if the broker has not written it down.
    """

    log: TopicPartition
    topic_id: UUID
    directory: Path
    remote: RemoteLog
    storage: LocalTieredStorage
    log_start: int | None

    def files(self) -> dict[str, TieredFile]:
        """The files by name: remote segments, then all that the broker has.

        Offsets that are both remote and local are there once, as the broker has them.

        Raises:
            CorruptError: the leader epochs, or a segment of which a part is needed, cannot be read.
            OSError: as that.
        """
        local = {name: TieredFile(self.directory / name) for name in OS.names_in(self.directory)}
        bases = [base_offset_of(name) for name in local if is_log_file(name)]
        epochs = self._epochs() if LEADER_EPOCH_CHECKPOINT in local else []
        if not bases or not epochs:
            return local
        start = epochs[0][1] if self.log_start is None else self.log_start
        found: dict[str, TieredFile] = {}
        parts = remote_parts(self.remote, epochs, log_start=start, local_start=min(bases))
        for part in parts:
            for suffix, file in self._files_of(part):
                ends = suffix == PRODUCER_SNAPSHOT_SUFFIX
                found[segment_file_name(part.end if ends else part.first, suffix)] = file
        return {**found, **local}

    def _epochs(self) -> Epochs:
        path = self.directory / LEADER_EPOCH_CHECKPOINT
        try:
            return parse_leader_epoch_checkpoint(OS.read_bytes(path))
        except CorruptError as error:
            raise error.located(path=str(path)) from error

    def _files_of(self, part: RemotePart) -> Iterator[tuple[str, TieredFile]]:
        """The files of a part of a segment, by suffix; its producer snapshot is that of its end."""
        segment = part.segment
        paths = self.storage.files_of(self.log, self.topic_id, segment)
        is_to_end = part.end == segment.end_offset + 1
        if part.first == segment.start_offset and is_to_end:
            yield from ((suffix, TieredFile(path)) for suffix, path in paths.items())
            return
        yield from _cut(part, paths).items()
        if is_to_end and PRODUCER_SNAPSHOT_SUFFIX in paths:
            yield PRODUCER_SNAPSHOT_SUFFIX, TieredFile(paths[PRODUCER_SNAPSHOT_SUFFIX])


def _cut(part: RemotePart, paths: dict[str, Path]) -> dict[str, TieredFile]:
    """A part of a segment's log, with indexes of it."""
    path = paths[LOG_SUFFIX]
    start = end = OS.facts_of(path).size_bytes
    builder = IndexBuilder(part.first, _INDEX_INTERVAL_BYTES, path)
    with LogFile(path) as log:
        for placed in log.batches():
            if placed.batch.base_offset >= part.end:
                end = placed.position
                break
            if placed.batch.base_offset >= part.first:
                start = min(start, placed.position)
                batch = placed.batch
                builder.add(placed.position - start, batch.last_offset, batch.max_timestamp)
    builder.finish()
    offsets = zip(_absolute(builder.offsets, part.first), builder.positions, strict=True)
    times = zip(builder.timestamps, _absolute(builder.time_offsets, part.first), strict=True)
    found = {
        LOG_SUFFIX: TieredFile(path, part=(start, end)),
        INDEX_SUFFIX: TieredFile(path, content=build_offset_index(offsets, part.first)),
        TIME_INDEX_SUFFIX: TieredFile(path, content=build_time_index(times, part.first)),
    }
    if TXN_INDEX_SUFFIX in paths:
        aborted = parse_transaction_index(OS.read_bytes(paths[TXN_INDEX_SUFFIX]))
        kept = [each for each in aborted if part.first <= each.last_offset < part.end]
        found[TXN_INDEX_SUFFIX] = TieredFile(path, content=build_transaction_index(kept))
    return found


def _absolute(relative: array[int], base_offset: int) -> list[int]:
    return [base_offset + each for each in relative]
