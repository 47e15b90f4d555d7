"""The batches of a log file, read one after another: a file of any size takes little memory.

Source: org.apache.kafka.common.record.FileLogInputStream.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

from cordwood.format.legacy import LEGACY_OVERHEAD_V0, LegacyBatch
from cordwood.format.record_batch import (
    HEADER_BYTES,
    LOG_OVERHEAD_BYTES,
    MAGIC_BYTES_MIN,
    RecordBatch,
    parse_header_of_any_magic,
)
from cordwood.model.errors import CorruptError

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

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file = path.open("rb")
        self.size_bytes = os.fstat(self._file.fileno()).st_size
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

    def batches(self, *, start: int = 0, size_max: int = SIZE_MAX) -> Iterator[PlacedBatch]:
        """Every whole batch that lies within `size_max` bytes from position `start` on.

        Raises:
            CorruptError: a length is smaller than any batch, a magic is negative, or the file
                was truncated.
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
            yield PlacedBatch(position, self._batch(position, size_bytes, magic))
            position += size_bytes

    def _batch(self, position: int, size_bytes: int, magic: int) -> RecordBatch | LegacyBatch:
        raw = self._read(position, size_bytes)
        try:
            if magic < 2:
                return LegacyBatch.parse(raw, position=position)
            # As Kafka does, also for a batch so short that its header reaches beyond it.
            header = self._read(position, HEADER_BYTES) if size_bytes < HEADER_BYTES else raw
            return RecordBatch(parse_header_of_any_magic(header), raw)
        except CorruptError as error:
            raise error.located(path=str(self.path)) from None

    def _read(self, position: int, size_bytes: int) -> bytes:
        start = position - self._chunk_position
        if start < 0 or start + size_bytes > len(self._chunk):
            self._file.seek(position)
            self._chunk = self._file.read(max(size_bytes, _CHUNK_BYTES))
            self._chunk_position = position
            start = 0
        data = self._chunk[start : start + size_bytes]
        if len(data) < size_bytes:
            raise CorruptError("file ends within a batch", path=str(self.path), position=position)
        return data
