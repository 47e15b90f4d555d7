"""Segments read as blocks: the same batches whatever the buffer, and errors that say where."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cordwood.cleanup.engine.survivors import Walk
from cordwood.cleanup.plan.key_secrets import Secrets
from cordwood.cleanup.rules.record_rules import RecordRules
from cordwood.format.compression import Codec
from cordwood.format.crc32c import crc32c
from cordwood.format.legacy import LegacyBatch, build_legacy_message
from cordwood.format.record_batch import Record, build_batch, iter_batches
from cordwood.model.errors import CorruptError
from cordwood.storage.reading.aborted import AbortedTransactions
from cordwood.storage.reading.segment_reader import CrcCheck, SegmentReader
from cordwood.storage.reading.source import SegmentSource
from support.random_log import Contents, random_log


def source_of(path: Path, *, base: int = 0, end: int = 1 << 40) -> SegmentSource:
    return SegmentSource(
        path=str(path),
        base_offset=base,
        next_base_offset=end,
        size_bytes=path.stat().st_size,
        modified_ns=0,
    )


def batch(base: int, *, codec: Codec = Codec.NONE, records: int = 2) -> bytes:
    made = [Record(base + i, 1, b"key-%d" % i, b"value") for i in range(records)]
    return build_batch(made, base_offset=base, codec=codec)


def remade(data: bytes, position: int, replacement: bytes) -> bytes:
    """A batch with some bytes changed, and the CRC that belongs to it."""
    changed = bytearray(data)
    changed[position : position + len(replacement)] = replacement
    struct.pack_into(">I", changed, 17, crc32c(bytes(changed[21:])))
    return bytes(changed)


def index(path: Path, *, base: int = 0, end: int = 1 << 40) -> None:
    walk = Walk(
        first_dirty=0,
        aborted=AbortedTransactions(()),
        secrets=Secrets.from_seed(1),
        rules=RecordRules(now_ms=0),
    )
    source = source_of(path, base=base, end=end)
    assert list(walk.index([source], entries_max=1_000, spills=False)) == []


@given(seed=st.integers(0, 2**40), read_bytes=st.sampled_from([1, 61, 200, 1_000, 100_000]))
def test_batches_are_the_same_whatever_the_size_of_the_buffer(
    tmp_path_factory: pytest.TempPathFactory, seed: int, read_bytes: int
) -> None:
    log = random_log(seed, Contents(batches=20, roll=0.0))
    path = tmp_path_factory.mktemp("log") / "0.log"
    path.write_bytes(b"".join(log.segments[0].batches))
    expected = [
        (position, b.last_offset, None if isinstance(b, LegacyBatch) else bytes(b.raw))
        for position, b in iter_batches(path.read_bytes())
    ]
    found = []
    for block in SegmentReader(read_bytes).blocks(source_of(path)):
        for row in range(block.rows):
            start, size = (int(v) for v in block.table[row, :2])
            raw = None if block.legacy else block.buffer[start : start + size].tobytes()
            found.append((block.position_of(row), int(block.table[row, 3]), raw))
    assert found == expected


def test_only_the_bytes_that_counted_at_the_start_are_read(tmp_path: Path) -> None:
    path = tmp_path / "0.log"
    path.write_bytes(batch(0))
    source = source_of(path)
    with path.open("ab") as file:
        file.write(batch(2))
    assert [block.rows for block in SegmentReader().blocks(source)] == [1]


def test_empty_segment_has_no_blocks(tmp_path: Path) -> None:
    path = tmp_path / "0.log"
    path.touch()
    assert list(SegmentReader().blocks(source_of(path))) == []


def test_file_that_became_shorter_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "0.log"
    path.write_bytes(batch(0) + batch(2))
    source = source_of(path)
    path.write_bytes(batch(0))
    with pytest.raises(CorruptError, match="the file ends before") as caught:
        list(SegmentReader().blocks(source))
    assert caught.value.position == len(batch(0))


@pytest.mark.parametrize(
    ("bad", "reason"),
    [
        (batch(2)[:-1] + b"\x77", "CRC does not match"),
        (batch(2)[:16] + b"\x07" + batch(2)[17:], "unknown magic"),
        (batch(2)[:8] + b"\0\0\0\x05" + batch(2)[12:], "length field is too small"),
        (batch(2)[:8] + b"\x7f\xff\xff\xff" + batch(2)[12:], "extends past the end"),
        (batch(2)[:40], "extends past the end"),
        (remade(batch(2), 57, b"\0\0\0\x09"), "record count or offsets are impossible"),
        (batch(1), "offsets 1 to 2 where offsets from 2"),
        (batch(99), "offsets 99 to 100 where offsets from 2 to 49 belong"),
        (remade(batch(2), 61, b"\x7e"), "a record that cannot be read"),
        (remade(batch(2, codec=Codec.GZIP), 61, b"\0"), "do not decompress (gzip)"),
        (remade(batch(2, codec=Codec.SNAPPY), 77, b"\x7f"), "do not decompress (snappy)"),
        (remade(batch(2, codec=Codec.LZ4), 61, b"\0"), "do not decompress (lz4)"),
        (remade(batch(2, codec=Codec.ZSTD), 61, b"\0"), "do not decompress (zstd)"),
        (remade(batch(2), 21, b"\0\x07"), "do not decompress (7)"),
        (
            build_legacy_message(offset=2, magic=1, key=b"k", value=b"v", timestamp=1)[:-1] + b"w",
            "has CRC",
        ),
    ],
)
def test_bad_batch_is_named_by_file_position_and_reason(
    tmp_path: Path, bad: bytes, reason: str
) -> None:
    path = tmp_path / "0.log"
    path.write_bytes(batch(0) + bad)
    with pytest.raises(CorruptError) as caught:
        index(path, end=50)
    assert reason in str(caught.value)
    assert caught.value.path == str(path)
    assert caught.value.position == len(batch(0))


def test_batch_below_the_base_of_its_segment_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "10.log"
    path.write_bytes(batch(5))
    with pytest.raises(CorruptError, match="offsets 5 to 6 where offsets from 10"):
        index(path, base=10)


def test_large_compressed_batches_outgrow_the_arena_and_are_read(tmp_path: Path) -> None:
    path = tmp_path / "0.log"
    value = b"0123456789abcdef" * (1 << 16)
    made = [
        build_batch(
            [Record(base + i, 1, b"key-%d" % i, value) for i in range(25)],
            base_offset=base,
            codec=codec,
        )
        for base, codec in ((0, Codec.ZSTD), (25, Codec.GZIP), (50, Codec.LZ4))
    ]
    path.write_bytes(b"".join(made))
    index(path)


def test_batches_whose_crc_does_not_match_are_blocks_on_request(tmp_path: Path) -> None:
    spoiled = batch(2)[:-1] + b"\x77"
    old = build_legacy_message(offset=8, magic=1, key=b"k", value=b"v", timestamp=1)
    path = tmp_path / "0.log"
    path.write_bytes(spoiled + batch(4) + spoiled + spoiled + batch(6) + old + old[:-1] + b"w")

    def found(crc: CrcCheck) -> list[tuple[int, bool]]:
        return [
            (block.position_of(row), block.has_valid_crc)
            for block in SegmentReader().blocks(source_of(path), crc=crc)
            for row in range(block.rows)
        ]

    sizes = [len(spoiled)] * 5 + [len(old)] * 2
    positions = [sum(sizes[:number]) for number in range(7)]
    valid = [False, True, False, False, True, True, False]
    assert found(CrcCheck.MARK) == [*zip(positions, valid, strict=True)]
    assert found(CrcCheck.SKIP) == [(position, True) for position in positions]
    impossible = spoiled[:57] + b"\xff\xff\xff\xff" + spoiled[61:]
    path.write_bytes(batch(0) + impossible)
    for crc, reason in (
        (CrcCheck.REFUSE, "CRC does not match"),
        (CrcCheck.MARK, "record count or offsets are impossible"),
        (CrcCheck.SKIP, "record count or offsets are impossible"),
    ):
        with pytest.raises(CorruptError, match=reason) as caught:
            found(crc)
        assert caught.value.position == len(batch(0))
