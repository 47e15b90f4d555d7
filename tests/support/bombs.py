"""Batches of a few KiB that expand to much more, made in little memory."""

from __future__ import annotations

from collections.abc import Iterator

import cramjam

from cordwood.format.batch_header import (
    HEADER_BYTES,
    LOG_OVERHEAD_BYTES,
    build_header,
    parse_header,
)
from cordwood.format.compression import Codec, compress
from cordwood.format.record_batch import Record, build_batch
from cordwood.format.varint import encode_varint
from support.appends import with_header

KEY = b"bomb"

_CHUNK_BYTES = 1 << 20
# Sizes of the blocks that `compress` makes, and of what is around them.
_SNAPPY_BLOCK, _SNAPPY_HEADER = 32 << 10, 16
_LZ4_BLOCK, _LZ4_HEADER, _LZ4_END = 64 << 10, 7, 4


def bomb(codec: Codec, zeros: int, *, offset: int = 0, timestamp: int = 1, count: int = 1) -> bytes:
    """A batch of one record, of the key `KEY`, whose value is so many zeros.

    Its header says that there are `count` records.
    """
    size = encode_varint(zeros)
    fields = b"\0\0\0" + encode_varint(len(KEY)) + KEY + size
    # The value, and a number of headers that is 0, too.
    head = encode_varint(len(fields) + zeros + 1) + fields
    packed = _packed(codec, head, zeros + 1)
    plain = build_batch([Record(offset, timestamp, KEY, b"")], base_offset=offset)
    header = parse_header(plain)._replace(
        batch_length=HEADER_BYTES - LOG_OVERHEAD_BYTES + len(packed),
        attributes=int(codec),
        last_offset_delta=count - 1,
        records_count=count,
    )
    return with_header(build_header(header) + packed)


def body_bytes(zeros: int) -> int:
    """The size that the record of `bomb` declares."""
    return 3 + len(encode_varint(len(KEY)) + KEY + encode_varint(zeros)) + zeros + 1


def _packed(codec: Codec, head: bytes, zeros: int) -> bytes:
    if codec in {Codec.GZIP, Codec.ZSTD}:
        library = cramjam.gzip if codec is Codec.GZIP else cramjam.zstd
        stream = library.Compressor(6)
        stream.compress(head)
        for chunk in _zeros(zeros):
            stream.compress(chunk)
        return bytes(stream.finish())
    block_bytes = _SNAPPY_BLOCK if codec is Codec.SNAPPY else _LZ4_BLOCK
    first = head + bytes(min(zeros, block_bytes - len(head)))
    whole, left = divmod(len(head) + zeros - len(first), block_bytes)
    middle = bytes(block_bytes)
    if codec is Codec.SNAPPY:
        start = compress(codec, first)
        blocks = compress(codec, middle)[_SNAPPY_HEADER:] * whole
        return start + blocks + (compress(codec, bytes(left))[_SNAPPY_HEADER:] if left else b"")
    start = compress(codec, first)[:-_LZ4_END]
    blocks = compress(codec, middle)[_LZ4_HEADER:-_LZ4_END] * whole
    last = compress(codec, bytes(left))[_LZ4_HEADER:-_LZ4_END] if left else b""
    return start + blocks + last + bytes(_LZ4_END)


def _zeros(count: int) -> Iterator[bytes]:
    chunk = bytes(_CHUNK_BYTES)
    for _ in range(count // _CHUNK_BYTES):
        yield chunk
    if count % _CHUNK_BYTES:
        yield bytes(count % _CHUNK_BYTES)
