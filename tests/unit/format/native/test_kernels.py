"""Native kernels, each against its plain twin in `cordwood.format`."""

from __future__ import annotations

import random
import struct

import cramjam
import crc32c as crc32c_package
import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cordwood.cleanup.plan.key_secrets import Secrets
from cordwood.format.batch_header import HEADER_BYTES
from cordwood.format.compression import Codec, compress, decompress
from cordwood.format.crc32c import crc32c as crc32c_of
from cordwood.format.legacy import build_legacy_message
from cordwood.format.native import batches as rows_of
from cordwood.format.native import codecs as natively
from cordwood.format.native import kernels, key_table
from cordwood.format.native import records as walks
from cordwood.format.record_batch import Record, RecordBatch, build_batch, iter_batches, parse_batch
from cordwood.model.errors import CorruptError
from support.random_log import Contents, random_log

Bytes = npt.NDArray[np.uint8]
Ints = npt.NDArray[np.int64]


def padded(data: bytes, *, junk: int = 0) -> Bytes:
    """`data` with the readable bytes behind it that kernels ask for."""
    buffer = np.full(len(data) + 64, junk, dtype=np.uint8)
    buffer[: len(data)] = np.frombuffer(data, dtype=np.uint8)
    return buffer


def scan(data: bytes, *, rows: int = 64, end: int | None = None) -> tuple[Ints, int, int]:
    table = np.empty((rows, rows_of.COLUMNS), dtype=np.int64)
    stop = len(data) if end is None else end
    found, after, status = kernels.scan_batches(padded(data), 0, stop, table, True)
    return table[:found], after, status


def one_batch(**options: object) -> bytes:
    records = [Record(10 + i, 5 + i, b"k%d" % i, b"v") for i in range(3)]
    return build_batch(records, base_offset=10, **options)  # type: ignore[arg-type]


def with_field(data: bytes, layout: str, position: int, value: int) -> bytes:
    """A batch with one header field changed, and the CRC that belongs to it."""
    changed = bytearray(data)
    struct.pack_into(layout, changed, position, value)
    struct.pack_into(">I", changed, 17, crc32c_of(bytes(changed[21:])))
    return bytes(changed)


# ---- CRC-32C


@given(data=st.binary(max_size=300), start=st.integers(0, 40))
def test_crc_by_instruction_by_table_and_by_library_agree(data: bytes, start: int) -> None:
    first = min(start, len(data))
    expected = crc32c_package.crc32c(data[first:])
    assert kernels.crc32c(padded(data, junk=0xAB), first, len(data)) == expected
    assert kernels.crc32c_by_table(padded(data, junk=0xAB), first, len(data)) == expected


@given(seed=st.integers(0, 1 << 32), size=st.integers(1_400, 7_000), start=st.integers(0, 9))
def test_crc_of_data_that_is_taken_in_lanes(seed: int, size: int, start: int) -> None:
    data = random.Random(seed).randbytes(size)
    expected = crc32c_package.crc32c(data[start:])
    assert kernels.crc32c(padded(data, junk=0xAB), start, size) == expected
    assert kernels.crc32c_by_table(padded(data, junk=0xAB), start, size) == expected


def test_crc_of_the_check_string() -> None:
    assert kernels.crc32c(padded(b"123456789"), 0, 9) == 0xE3069283
    assert kernels.crc32c_by_table(padded(b"123456789"), 0, 9) == 0xE3069283


# ---- batch headers


@given(st.integers(0, 2**40))
def test_scan_reads_the_fields_that_the_parser_reads(seed: int) -> None:
    contents = Contents(batches=20, roll=0.0, legacy=False)
    data = b"".join(random_log(seed, contents).segments[0].batches)
    table, after, status = scan(data, rows=100)
    assert (after, status) == (len(data), rows_of.ENDED)
    parsed = list(iter_batches(data))
    assert len(table) == len(parsed)
    for row, (position, batch) in zip(table.tolist(), parsed, strict=True):
        assert isinstance(batch, RecordBatch)
        header = batch.header
        assert row == [
            position,
            header.size_bytes,
            header.base_offset,
            header.last_offset,
            header.magic,
            header.attributes,
            header.base_timestamp,
            header.max_timestamp,
            header.producer_id,
            header.producer_epoch,
            header.base_sequence,
            header.records_count,
            header.partition_leader_epoch,
        ]


def test_scan_stops_when_the_table_is_full_and_goes_on_from_there() -> None:
    data = b"".join(one_batch() for _ in range(5))
    table, after, status = scan(data, rows=2)
    assert (len(table), after, status) == (2, 2 * len(one_batch()), rows_of.FULL)
    table, rest, status = scan(data[after:], rows=3)
    assert (len(table), after + rest, status) == (3, len(data), rows_of.ENDED)


@pytest.mark.parametrize("cut", [1, 16, 17, 60, 61, -1])
def test_scan_ends_at_a_batch_that_is_cut_off(cut: int) -> None:
    whole = one_batch()
    data = whole + whole[: cut if cut > 0 else len(whole) + cut]
    table, after, status = scan(data)
    assert (len(table), after, status) == (1, len(whole), rows_of.ENDED)


@pytest.mark.parametrize(
    ("bad", "status"),
    [
        (with_field(one_batch(), ">i", 8, 13), rows_of.BAD_LENGTH),
        (with_field(one_batch(), ">i", 8, -1), rows_of.BAD_LENGTH),
        (with_field(one_batch(), ">i", 8, 48), rows_of.BAD_LENGTH),
        (with_field(one_batch(), ">b", 16, 3), rows_of.BAD_MAGIC),
        (with_field(one_batch(), ">b", 16, -1), rows_of.BAD_MAGIC),
        (one_batch()[:-1] + b"\x77", rows_of.BAD_CRC),
        (with_field(one_batch(), ">i", 57, -1), rows_of.BAD_COUNT),
        (with_field(one_batch(), ">i", 57, 4), rows_of.BAD_COUNT),
        (with_field(one_batch(), ">i", 23, -1), rows_of.BAD_COUNT),
        (with_field(one_batch(), ">i", 23, 1), rows_of.BAD_COUNT),
        (with_field(one_batch(codec=Codec.GZIP), ">i", 57, 1 << 30), rows_of.BAD_COUNT),
        (
            build_legacy_message(offset=1, magic=1, key=b"k", value=b"v", timestamp=1),
            rows_of.LEGACY,
        ),
        (build_legacy_message(offset=1, magic=0, key=b"k", value=b"v"), rows_of.LEGACY),
    ],
)
def test_scan_says_what_is_wrong_and_where(bad: bytes, status: int) -> None:
    good = one_batch()
    table, after, found = scan(good + bad + good)
    assert (len(table), after, found) == (1, len(good), status)


@pytest.mark.parametrize("position", [12, 15])
def test_leader_epoch_is_outside_the_crc(position: int) -> None:
    data = bytearray(one_batch())
    data[position] ^= 0x55
    assert scan(bytes(data))[2] == rows_of.ENDED


@given(position=st.integers(16, 10_000), bit=st.integers(0, 7))
def test_a_flipped_bit_behind_the_leader_epoch_is_always_found(position: int, bit: int) -> None:
    data = bytearray(one_batch())
    data[16 + (position - 16) % (len(data) - 16)] ^= 1 << bit
    assert scan(bytes(data))[2] not in {rows_of.ENDED, rows_of.FULL}


# ---- records


def bits_of(array: Bytes, count: int) -> list[bool]:
    return [bool(array[i >> 3] >> (i & 7) & 1) for i in range(count)]


def walk(batch: RecordBatch) -> tuple[int, list[bool], list[bool]]:
    """(status, which records have a key, which have a null value) by the native walk."""
    payload = batch.payload()
    table = np.zeros((1, rows_of.COLUMNS), dtype=np.int64)
    table[0, rows_of.COUNT] = batch.header.records_count
    table[0, rows_of.BASE_OFFSET] = batch.base_offset
    keyed, nulls = (np.zeros(batch.header.records_count // 8 + 8, dtype=np.uint8) for _ in "ab")
    status, _ = kernels.index_batches(
        padded(payload, junk=0xFF),
        table,
        0,
        1,
        np.array([[0, len(payload)]], dtype=np.int64),
        0,
        np.zeros(1, dtype=np.int64),
        key_table.new_table(256),
        np.zeros(1, dtype=np.int64),
        keyed,
        nulls,
        Secrets.from_seed(1).words,
    )
    count = batch.header.records_count
    return status, bits_of(keyed, count), bits_of(nulls, count)


@given(st.integers(0, 2**40))
def test_walk_finds_the_keys_and_nulls_that_the_parser_finds(seed: int) -> None:
    log = random_log(seed, Contents(batches=6, roll=0.0, legacy=False, records_max=40))
    for data in log.segments[0].batches:
        batch = parse_batch(data)
        assert isinstance(batch, RecordBatch)
        records = batch.records()
        assert walk(batch) == (
            walks.OK,
            [r.key is not None for r in records],
            [r.value is None for r in records],
        )


@given(seed=st.integers(0, 2**40), flips=st.integers(1, 3))
def test_walk_over_malformed_records_refuses_only_what_the_parser_refuses(
    seed: int, flips: int
) -> None:
    rng = random.Random(seed)
    log = random_log(seed, Contents(batches=1, roll=0.0, legacy=False, transactions=False))
    data = bytearray(log.segments[0].batches[0])
    for _ in range(flips):
        if len(data) > HEADER_BYTES:
            data[rng.randrange(HEADER_BYTES, len(data))] = rng.randrange(256)
    batch = parse_batch(bytes(data))
    assert isinstance(batch, RecordBatch)
    try:
        batch.payload()
    except CorruptError:
        return
    status, keyed, nulls = walk(batch)
    try:
        records = batch.records()
    except CorruptError:
        return
    offsets = [record.offset for record in records]
    if offsets != sorted(set(offsets)) or (offsets and offsets[0] < batch.base_offset):
        assert status == walks.BAD_RECORD
        return
    assert status == walks.OK
    assert keyed == [record.key is not None for record in records]
    assert nulls == [record.value is None for record in records]


def identities(names: list[bytes], secrets: Secrets) -> list[tuple[int, ...]]:
    out = []
    for name in names:
        row = np.empty(4, dtype=np.uint64)
        kernels.identify(padded(name, junk=0xC3), 0, len(name), secrets.words, row)
        out.append(tuple(row[:3].tolist()))
    return out


@given(
    st.lists(st.binary(max_size=60) | st.binary(min_size=20, max_size=27), max_size=40),
    st.sampled_from([0, 1, (1 << 64) - 1]),
)
def test_two_keys_have_one_identity_only_if_they_are_equal(names: list[bytes], mask: int) -> None:
    found = identities(names, Secrets.from_seed(3, mask=mask))
    assert len(set(found)) == len(set(names))


def test_short_keys_are_held_whole_so_that_secrets_do_not_matter() -> None:
    names = [b"", b"\0", b"\0\0", b"k" * 22, b"k" * 23, b"\0" * 23]
    first, second = (identities(names, Secrets.from_seed(seed)) for seed in (1, 2))
    assert first == second
    assert len(set(first)) == len(names)


def test_long_keys_have_another_identity_in_every_run() -> None:
    names = [b"k" * 24, b"\0" * 200]
    first, second = (identities(names, Secrets.from_seed(seed)) for seed in (1, 2))
    assert not set(first) & set(second)


# ---- payloads

CODECS = natively.Codecs()
NATIVE = [codec for codec in Codec if codec in CODECS.native]


def payloads(rng: random.Random) -> list[bytes]:
    sizes = [0, 1, 100, 65_535, 65_536, 65_537, 300_000]
    return [
        rng.randbytes(size) if rng.random() < 0.4 else (b"%d," % rng.randrange(9)) * size
        for size in sizes
    ]


def expanded(codec: int, packed: bytes, *, room: int = 1 << 20) -> tuple[int, bytes]:
    """(status, content) of what `decompress_records` makes of a batch's records."""
    before = b"before"
    out = np.full(room, 0xEE, dtype=np.uint8)
    out[: len(before)] = np.frombuffer(before, dtype=np.uint8)
    data = padded(b"xx" + packed, junk=0xAB)
    after = int(
        kernels.decompress_records(data, 2, 2 + len(packed), codec, out, len(before), CODECS.table)
    )
    assert out[: len(before)].tobytes() == before
    if after < 0:
        return after, b""
    assert len(before) <= after <= room - 64
    assert not np.any(out[room - 63 :] != 0xEE), "the slack was written to"
    return 0, out[len(before) : after].tobytes()


def test_lz4_and_zstd_run_natively_here() -> None:
    assert {Codec.LZ4, Codec.ZSTD} == CODECS.native


@pytest.mark.parametrize("codec", [Codec.NONE, *NATIVE])
@pytest.mark.parametrize("seed", range(3))
def test_native_decompression_gives_what_decompress_gives(codec: Codec, seed: int) -> None:
    for data in payloads(random.Random(seed)):
        packed = compress(codec, data)
        assert decompress(codec, packed) == data
        assert expanded(codec, packed) == (0, data)


@pytest.mark.parametrize("codec", NATIVE)
@pytest.mark.parametrize("seed", range(3))
def test_native_compression_gives_the_bytes_that_compress_gives(codec: Codec, seed: int) -> None:
    for data in payloads(random.Random(seed)):
        out = np.zeros(len(data) + len(data) // 128 + 140, dtype=np.uint8)
        after = kernels.compress_records(
            padded(data), 0, len(data), int(codec), out, 9, CODECS.table
        )
        assert out[9:after].tobytes() == compress(codec, data)


@pytest.mark.parametrize("codec", NATIVE)
def test_native_decompression_asks_for_room_instead_of_writing_past_it(codec: Codec) -> None:
    packed = compress(codec, b"some text, " * 20_000)
    assert expanded(codec, packed, room=100_000)[0] == natively.NO_ROOM
    assert expanded(codec, packed, room=1 << 20)[0] == 0


@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.SNAPPY, 5, 6, 7])
def test_other_codecs_are_left_to_the_plain_way(codec: int) -> None:
    assert expanded(codec, b"whatever it is")[0] == natively.NOT_HERE


def lz4_frame(data: bytes, *, flags: int, block: int = 4) -> bytes:
    """An LZ4 frame with other flags than Kafka's own writer sets; checksums are zero."""
    out = b"\x04\x22\x4d\x18" + bytes([0x40 | flags, block << 4])
    if flags & 0x08:
        out += struct.pack("<Q", len(data))
    out += b"\0"
    size = {4: 1 << 16, 5: 1 << 18, 6: 1 << 20, 7: 1 << 22}[block]
    for start in range(0, len(data), size):
        packed = bytes(cramjam.lz4.compress_block(data[start : start + size], store_size=False))
        out += struct.pack("<I", len(packed)) + packed + (b"\0" * 4 if flags & 0x10 else b"")
    return out + bytes(4) + (b"\0" * 4 if flags & 0x04 else b"")


@pytest.mark.parametrize("flags", [0x20, 0x28, 0x30, 0x24, 0x3C])
@pytest.mark.parametrize("block", [4, 5, 6, 7])
def test_lz4_frames_of_other_clients_are_read(flags: int, block: int) -> None:
    data = b"some text, " * 20_000
    packed = lz4_frame(data, flags=flags, block=block)
    assert expanded(Codec.LZ4, packed, room=8 << 20) == (0, data)


def test_lz4_frame_of_linked_blocks_is_left_to_the_plain_way() -> None:
    data = b"".join(b"%d-some text " % n for n in range(40_000))
    frame = bytes(cramjam.lz4.compress(data))
    assert not frame[4] & 0x20, "the library links blocks"
    assert expanded(Codec.LZ4, frame, room=8 << 20)[0] == natively.NOT_HERE
    assert decompress(Codec.LZ4, frame) == data


@pytest.mark.parametrize("codec", NATIVE)
@given(seed=st.integers(0, 2**40))
def test_damaged_payload_gives_a_status_or_bytes_within_the_room(codec: Codec, seed: int) -> None:
    rng = random.Random(seed)
    packed = bytearray(compress(codec, b"some text, " * rng.randint(1, 3_000)))
    for _ in range(rng.randint(1, 4)):
        packed[rng.randrange(len(packed))] = rng.randrange(256)
    cut = bytes(packed[: rng.randint(0, len(packed))] if rng.random() < 0.3 else packed)
    status, _ = expanded(codec, cut, room=200_000)
    assert status in {0, natively.BAD, natively.NO_ROOM, natively.NOT_HERE}
