from __future__ import annotations

from pathlib import Path

import pytest

from cordwood.format.record_batch import Record, RecordBatch, build_batch
from cordwood.model.errors import CorruptError
from cordwood.storage.reading.batches import LogFile


def write(path: Path, *batches: bytes) -> Path:
    path.write_bytes(b"".join(batches))
    return path


def batch(offset: int, size: int = 1) -> bytes:
    return build_batch([Record(offset, 5, None, bytes(size))], base_offset=offset)


def test_batches_larger_than_a_chunk_and_a_torn_tail(tmp_path: Path) -> None:
    path = write(tmp_path / "x.log", batch(0), batch(1, 3_000_000), batch(2), batch(3)[:-1])
    with LogFile(path) as log:
        placed = list(log.batches())
    assert [each.batch.base_offset for each in placed] == [0, 1, 2]
    assert all(each.batch.is_valid() for each in placed)


def test_only_what_lies_within_the_limits_is_read(tmp_path: Path) -> None:
    size = len(batch(0))
    with LogFile(write(tmp_path / "x.log", batch(0), batch(1), batch(2))) as log:
        assert [each.position for each in log.batches(size_max=2 * size - 1)] == [0]
        assert [each.position for each in log.batches(start=size, size_max=size)] == [size]
        with pytest.raises(CorruptError, match="beyond its end"):
            next(log.batches(start=1000))


def test_impossible_lengths_are_corrupt(tmp_path: Path) -> None:
    with LogFile(write(tmp_path / "x.log", batch(0), bytes(100))) as log:
        batches = log.batches()
        assert isinstance(next(batches).batch, RecordBatch)
        with pytest.raises(CorruptError, match="smaller than minimum record overhead") as caught:
            next(batches)
    assert caught.value.position == len(batch(0))
