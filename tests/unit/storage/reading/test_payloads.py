"""Records over the bounds of a reader of segments."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from cordwood.format.compression import Codec
from cordwood.format.legacy import build_legacy_wrapper
from cordwood.format.record_batch import Record, build_batch
from cordwood.model.errors import BatchTooLargeError, OversizedRecordError
from cordwood.storage.reading.segment_reader import SegmentReader
from cordwood.storage.reading.source import ReadBounds, SegmentSource

COMPRESSED = [codec for codec in Codec if codec]
MIB = 1 << 20


def batch(base: int, codec: Codec, *sizes: int) -> bytes:
    """A batch with a record of so many zeros for each number."""
    records = [Record(base + i, 1, b"k", bytes(size)) for i, size in enumerate(sizes)]
    return build_batch(records, base_offset=base, codec=codec)


def read(path: Path, data: bytes, bounds: ReadBounds) -> list[int]:
    """The sizes of the batches' records, decompressed."""
    path.write_bytes(data)
    source = SegmentSource(
        path=str(path),
        base_offset=0,
        next_base_offset=1 << 40,
        size_bytes=len(data),
        modified_ns=0,
    )
    reader = SegmentReader(bounds=bounds)
    found = []
    for block in reader.blocks(source):
        for payload in reader.payloads(block, np.ones(block.rows, dtype=np.bool_)):
            spans = payload.spans[payload.first : payload.last]
            found += (spans[:, 1] - spans[:, 0]).tolist()
    return found


@pytest.mark.parametrize("codec", COMPRESSED)
@pytest.mark.parametrize("size", [5_000, 20 * MIB], ids=["small", "large"])
def test_a_record_over_the_bound_is_refused_with_its_place(
    tmp_path: Path, codec: Codec, size: int
) -> None:
    path, first = tmp_path / f"{0:020d}.log", batch(0, codec, 10, 10)
    data = first + batch(2, codec, 10, size)
    assert len(read(path, data, ReadBounds(record_bytes_max=size + 100))) == 2
    with pytest.raises(OversizedRecordError) as found:
        read(path, data, ReadBounds(record_bytes_max=4_000))
    assert (found.value.path, found.value.position) == (str(path), len(first))
    assert found.value.remedy == "Raise max.decompressed.message.bytes of the topic"


def test_many_records_within_the_bound_are_read_whatever_they_take(tmp_path: Path) -> None:
    data = batch(0, Codec.ZSTD, *[MIB] * 24)
    (size,) = read(tmp_path / "log", data, ReadBounds(record_bytes_max=MIB + 100))
    assert size > 24 * MIB
    with pytest.raises(BatchTooLargeError):
        read(
            tmp_path / "log",
            data,
            ReadBounds(record_bytes_max=MIB + 100, batch_bytes_max=20 * MIB),
        )


def test_a_batch_without_a_codec_is_not_bounded(tmp_path: Path) -> None:
    data = batch(0, Codec.NONE, 5_000) + batch(1, Codec.GZIP, 10)
    assert len(read(tmp_path / "log", data, ReadBounds(record_bytes_max=1_000))) == 2


def test_a_message_of_a_legacy_set_is_bounded(tmp_path: Path) -> None:
    data = build_legacy_wrapper([Record(0, 1, b"k", bytes(5_000))], magic=1, codec=Codec.GZIP)
    assert len(read(tmp_path / "log", data, ReadBounds(record_bytes_max=6_000))) == 1
    with pytest.raises(OversizedRecordError, match="5023 exceeds"):
        read(tmp_path / "log", data, ReadBounds(record_bytes_max=1_000))


def test_a_large_batch_without_a_codec_beside_compressed_ones_is_not_bounded(
    tmp_path: Path,
) -> None:
    data = batch(0, Codec.ZSTD, 10) + batch(1, Codec.NONE, 20 * MIB) + batch(2, Codec.ZSTD, 10)
    sizes = read(tmp_path / "log", data, ReadBounds(record_bytes_max=1_000))
    assert [size > 20 * MIB for size in sizes] == [False, True, False]


@pytest.mark.parametrize("codec", COMPRESSED)
def test_records_within_the_bound_are_read_in_steps(tmp_path: Path, codec: Codec) -> None:
    bound = MIB + 100
    within = batch(0, codec, *([MIB] * 70))
    (size,) = read(tmp_path / "within", within, ReadBounds(record_bytes_max=bound))
    assert size > 70 * MIB
    over = batch(0, codec, *([MIB] * 70), 2 * MIB)
    with pytest.raises(
        OversizedRecordError, match=f"exceeds .* of {bound}, in the batch of offset 0"
    ):
        read(tmp_path / "over", over, ReadBounds(record_bytes_max=bound))
