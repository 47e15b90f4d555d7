"""Whole batches of a log file, read one after another: a file of any size takes little memory.

Source: org.apache.kafka.common.record.FileLogInputStream.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

from cordwood.format.batch_header import (
    HEADER_BYTES,
    LOG_OVERHEAD_BYTES,
    MAGIC_BYTES_MIN,
    parse_header,
    parse_header_of_any_magic,
)
from cordwood.format.legacy import LEGACY_OVERHEAD_V0, LegacyBatch
from cordwood.format.record_batch import RecordBatch
from cordwood.model.errors import CorruptError
from cordwood.storage.filesystem import OS, FileSystem

SIZE_MAX = (1 << 31) - 1

_CHUNK_BYTES = 1 << 20
_PREFIX = struct.Struct(">qiib")


@dataclass(frozen=True, slots=True)
class PlacedBatch:
    """A batch and its position in the file, in bytes."""

    position: int
    batch: RecordBatch | LegacyBatch


class LogFile:
    """A log file open for reading. Closing it ends the iterators that it has returned."""

    def __init__(self, path: Path, *, fs: FileSystem = OS) -> None:
        self.path = path
        self._file = fs.open(path)
        self.size_bytes = self._file.size()
        self._chunk = b""
        self._chunk_position = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._file.close()

    def batches(
        self, *, start: int = 0, size_max: int = SIZE_MAX, is_strict: bool = True
    ) -> Iterator[PlacedBatch]:
        """Every whole batch that lies within `size_max` bytes from position `start` on.

        If not `is_strict`, a batch is read as one of magic 2 whatever larger magic it names, even
        if its header reaches beyond it.

        Raises:
            CorruptError: a length is smaller than any batch, a magic is unknown, or the file was
                truncated.
        """
        if start > self.size_bytes:
            raise CorruptError(
                f"position {start} lies beyond its end at {self.size_bytes}", path=str(self.path)
            )
        end = min(self.size_bytes, start + size_max)
        position = start
        while position < end - MAGIC_BYTES_MIN:
            _, length, _, magic = _PREFIX.unpack(self._read(position, MAGIC_BYTES_MIN))
            if length < LEGACY_OVERHEAD_V0:
                raise CorruptError(
                    f"Found record size {length} smaller than minimum record overhead "
                    f"({LEGACY_OVERHEAD_V0})",
                    path=str(self.path),
                    position=position,
                )
            size_bytes = length + LOG_OVERHEAD_BYTES
            if position > end - size_bytes:
                return
            yield PlacedBatch(position, self._batch(position, size_bytes, magic, is_strict))
            position += size_bytes

    def _batch(
        self, position: int, size_bytes: int, magic: int, is_strict: bool
    ) -> RecordBatch | LegacyBatch:
        raw = self._read(position, size_bytes)
        try:
            if magic < 2:
                return LegacyBatch.parse(raw)
            if is_strict:
                return RecordBatch(parse_header(raw), raw)
            # Source: DumpLogSegments, which reads such a batch, too.
            header = self._read(position, HEADER_BYTES) if size_bytes < HEADER_BYTES else raw
            return RecordBatch(parse_header_of_any_magic(header), raw)
        except CorruptError as error:
            raise error.located(path=str(self.path), base_position=position) from None

    def _read(self, position: int, size_bytes: int) -> bytes:
        start = position - self._chunk_position
        if start < 0 or start + size_bytes > len(self._chunk):
            self._chunk = self._file.read_at(max(size_bytes, _CHUNK_BYTES), position)
            self._chunk_position = position
            start = 0
        data = self._chunk[start : start + size_bytes]
        if len(data) < size_bytes:
            raise CorruptError("file ends within a batch", path=str(self.path), position=position)
        return data
