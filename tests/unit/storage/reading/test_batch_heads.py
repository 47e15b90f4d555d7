from __future__ import annotations

import random
from pathlib import Path

import pytest

from cordwood.format.compression import Codec
from cordwood.format.legacy import build_legacy_wrapper
from cordwood.format.record import Record
from cordwood.format.record_batch import iter_batches
from cordwood.model.errors import CorruptError
from cordwood.storage.filesystem import OS
from cordwood.storage.reading import batch_heads
from cordwood.storage.reading.batch_heads import BatchHead, BatchPosition, find_offset, iter_heads
from support.segments import batch, message


def heads_of(path: Path, data: bytes, *, is_strict: bool = True) -> list[BatchHead]:
    path.write_bytes(data)
    return list(iter_heads(OS.open(path), 0, len(data), path=path, is_strict=is_strict))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "00000000000000000000.log"


def mixed(rng: random.Random, count: int) -> bytes:
    pieces = []
    for i in range(count):
        value = "v" * rng.choice([0, 1, 50, 5000])
        kind = rng.randrange(4)
        if kind < 2:
            pieces.append(message(i * 2, value, magic=kind, timestamp=i))
        else:
            pieces.append(batch(i * 2, value, timestamps=i, leader_epoch=i, producer_id=kind - 3))
    return b"".join(pieces)


@pytest.mark.parametrize("block_bytes", [61, 100, 1000, 64 << 10])
def test_a_walk_finds_what_is_found_in_memory(
    path: Path, monkeypatch: pytest.MonkeyPatch, block_bytes: int
) -> None:
    monkeypatch.setattr(batch_heads, "WALK_BYTES", block_bytes)
    data = mixed(random.Random(block_bytes), 60)
    expected = [
        (position, found.size_bytes, found.last_offset, found.max_timestamp, found.magic)
        for position, found in iter_batches(data)
    ]
    found = [
        (h.position, h.size_bytes, h.last_offset, h.max_timestamp, h.magic)
        for h in heads_of(path, data)
    ]
    assert found == expected


def test_a_head_tells_epoch_and_producer_of_a_batch_and_none_of_an_old_message(path: Path) -> None:
    data = batch(5, "a", "b", leader_epoch=4, producer_id=9) + message(7, "c", timestamp=8)
    new, old = heads_of(path, data)
    assert (new.base_offset, new.last_offset, new.leader_epoch, new.producer_id) == (5, 6, 4, 9)
    assert (old.base_offset, old.last_offset, old.leader_epoch, old.producer_id) == (7, 7, -1, -1)
    assert not new.is_control


@pytest.mark.parametrize("cut", [1, 16, 17, 30, 61, 65])
def test_a_batch_beyond_the_end_is_an_error_or_the_end(path: Path, cut: int) -> None:
    first, second = batch(0, "a"), batch(1, "b")
    with pytest.raises(CorruptError, match="beyond the log's end") as raised:
        heads_of(path, first + second[:cut])
    assert (raised.value.path, raised.value.position) == (str(path), len(first))
    assert len(heads_of(path, first + second[:cut], is_strict=False)) == 1


@pytest.mark.parametrize(
    ("at", "value", "text"),
    [
        (8, b"\x00\x00\x00\x0d", "Found record size 13 smaller than minimum record overhead"),
        (8, b"\xff\xff\xff\xff", "Found record size -1"),
        (8, b"\x00\x00\x00\x20", "smaller than the minimum allowed overhead 61"),
        (16, b"\x03", "magic 3"),
        (16, b"\xff", "magic -1"),
    ],
)
def test_what_cannot_be_a_batch_is_an_error_or_the_end(
    path: Path, at: int, value: bytes, text: str
) -> None:
    first, bad = batch(0, "a"), bytearray(batch(1, "b"))
    bad[at : at + len(value)] = value
    with pytest.raises(CorruptError, match=text) as raised:
        heads_of(path, first + bytes(bad))
    assert raised.value.position == len(first)
    assert len(heads_of(path, first + bytes(bad), is_strict=False)) == 1


def test_a_file_shorter_than_told_is_an_error(path: Path) -> None:
    data = batch(0, "a") + batch(1, "b" * 200)
    path.write_bytes(data[:-150])
    with pytest.raises(CorruptError, match="beyond"):
        list(iter_heads(OS.open(path), 0, len(data) + 500, path=path))
    path.write_bytes(data[:70])
    for target in (1, 2):
        with pytest.raises(CorruptError, match="beyond"):
            find_offset(OS.open(path), 0, len(data), target, path=path)


@pytest.mark.parametrize("block_bytes", [27, 64, 300, 8 << 10])
def test_find_offset_gives_the_first_batch_that_ends_at_or_behind_it(
    path: Path, monkeypatch: pytest.MonkeyPatch, block_bytes: int
) -> None:
    monkeypatch.setattr(batch_heads, "READ_BYTES", block_bytes)
    monkeypatch.setattr(batch_heads, "LARGE_BATCH_BYTES", 2000)
    data = mixed(random.Random(block_bytes), 60)
    path.write_bytes(data)
    heads = list(iter_heads(OS.open(path), 0, len(data), path=path))
    for target in range(-1, 120):
        expected = next((h for h in heads if h.last_offset >= target), None)
        found = find_offset(OS.open(path), 0, len(data), target, path=path, read_bytes=block_bytes)
        assert found == (
            None
            if expected is None
            else BatchPosition(
                expected.base_offset, expected.last_offset, expected.position, expected.size_bytes
            )
        )


def test_the_first_offset_of_a_compressed_old_message_is_that_of_its_first_record(
    path: Path,
) -> None:
    records = [Record(10 + i, 5, None, b"v") for i in range(4)]
    data = message(9, "a") + build_legacy_wrapper(records, magic=1, codec=Codec.GZIP)
    path.write_bytes(data)
    found = find_offset(OS.open(path), 0, len(data), 11, path=path)
    assert found == (10, 13, len(message(9, "a")), len(data) - len(message(9, "a")))


def test_the_smallest_message_at_the_end_of_a_log_is_found(path: Path) -> None:
    smallest = message(1, "", magic=0)
    smallest = smallest[:8] + b"\x00\x00\x00\x0e" + smallest[12:26]
    data = batch(0, "a") + smallest
    path.write_bytes(data)
    found = find_offset(OS.open(path), 0, len(data), 1, path=path)
    assert found == (1, 1, len(data) - 26, 26)
    assert find_offset(OS.open(path), 0, len(data), 2, path=path) is None


@pytest.mark.parametrize("entry", [0, 2, 4])
def test_an_entry_is_right_where_a_batch_from_there_on_ends_at_it(path: Path, entry: int) -> None:
    data = batch(0, "a") + batch(1, "b", "c") + batch(3, "d", "e")
    path.write_bytes(data)
    found = find_offset(OS.open(path), 0, len(data), 4, path=path, entry_offset=entry)
    assert found is not None
    assert found.last_offset == 4


@pytest.mark.parametrize("entry", [1, 3, 5])
def test_an_entry_is_wrong_where_no_batch_ends_at_it(path: Path, entry: int) -> None:
    data = batch(0, "a") + batch(1, "b", "c") + batch(3, "d", "e")
    path.write_bytes(data)
    with pytest.raises(CorruptError, match=f"entry {entry} is not where a batch ends"):
        find_offset(OS.open(path), 0, len(data), max(entry, 4), path=path, entry_offset=entry)
