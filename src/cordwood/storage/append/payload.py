"""The records of a batch that somebody sent, decompressed: bounded, and as Kafka's clients read it.

Source: org.apache.kafka.common.compress.Lz4BlockInputStream.
"""

from __future__ import annotations

import mmap
import struct

from cordwood.configs.log_config import LogConfig
from cordwood.format.compression import (
    DECOMPRESSED_BYTES_MAX,
    EXPANSION_MAX,
    Codec,
    decompress,
    decompress_into,
)
from cordwood.format.record_bound import (
    RECORD_BYTES_MAX,
    payload_bytes_max,
    require_records_within,
)
from cordwood.format.varint import Buffer
from cordwood.model.errors import CorruptError, OversizedRecordError
from cordwood.model.kafka_errors import InvalidRecordError
from cordwood.storage.reading.source import ReadBounds

#: What a compressed batch may always expand to, and how many times max.message.bytes if more.
DECOMPRESSED_BYTES_MIN = 128 << 20
DECOMPRESSED_RATIO_MAX = 128

_WORD = struct.Struct("<I")
_LZ4_HEADER_BYTES = 7
_MAPPED_BYTES_MIN = 4 << 20
_LZ4_SIZE_MASK = 0x7FFFFFFF
_LZ4_RESERVED = 0x03
_LZ4_CONTENT_CHECKSUM = 0x04
_LZ4_CONTENT_SIZE = 0x08
_LZ4_BLOCK_CHECKSUM = 0x10
_LZ4_INDEPENDENT_BLOCKS = 0x20


def decompressed_bytes_max(max_message_bytes: int) -> int:
    """The maximum expansion of a compressed batch in bytes; memory is allocated for all of it.

    128 MiB, or 128 times max.message.bytes if that is more. A batch of 1 MiB would have to shrink
    to less than a hundredth to come near it; zstd could make some gigabytes of one.
    """
    size = max(DECOMPRESSED_BYTES_MIN, DECOMPRESSED_RATIO_MAX * max_message_bytes)
    return min(size, DECOMPRESSED_BYTES_MAX)


def read_bounds(config: LogConfig) -> ReadBounds:
    """The bounds of a reader of a topic's log."""
    return ReadBounds(
        batch_bytes_max=decompressed_bytes_max(config.max_message_bytes),
        record_bytes_max=config.max_decompressed_message_bytes,
    )


def decompressed(
    codec: Codec,
    packed: Buffer,
    *,
    count: int = 1,
    size_max: int = DECOMPRESSED_BYTES_MIN,
    record_bytes_max: int = RECORD_BYTES_MAX,
) -> Buffer:
    """The bytes of `count` records; `packed` itself, not copied, if it has no codec.

    Decompression ends where a record of over `record_bytes_max` bytes is certain; a record may
    be larger even so.

    Raises:
        InvalidRecordError: the stream is malformed, expands to over `size_max` bytes, is one
            that Kafka's clients cannot read, or was not decompressed to its end.
    """
    if codec is Codec.NONE:
        return packed
    try:
        if codec is Codec.LZ4:
            _require_readable_lz4(packed)
        if len(packed) * EXPANSION_MAX[codec] > _MAPPED_BYTES_MIN:
            return _decompressed_to_mapped_memory(codec, packed, count, size_max, record_bytes_max)
        return decompress(codec, packed, size_max=size_max)
    except OversizedRecordError as error:
        raise InvalidRecordError(error.reason) from error
    except CorruptError as error:
        raise InvalidRecordError(f"Failed to decompress record stream: {error}") from error


def _decompressed_to_mapped_memory(
    codec: Codec, packed: Buffer, count: int, size_max: int, record_bytes_max: int
) -> memoryview:
    """Decompresses into memory that is taken up as the codec writes to it.

    A buffer filled with zeros first, and a copy at the end, would hold up all other threads.
    """
    target = memoryview(mmap.mmap(-1, size_max))
    wanted = min(payload_bytes_max(count, record_bytes_max), size_max)
    size_bytes = decompress_into(codec, packed, target[:wanted])
    if size_bytes is None:
        require_records_within(target[:wanted], count, record_bytes_max)
        if wanted < size_max:
            # Bytes are left over behind the records, or a block of snappy is longer than them all.
            size_bytes = decompress_into(codec, packed, target)
    if size_bytes is None:
        raise CorruptError(f"{codec.config_name} stream expands to more than {size_max} bytes")
    return target[:size_bytes]


def _require_readable_lz4(packed: Buffer) -> None:
    """Refuses what the lz4 library reads but Kafka's own reader does not.

    That is blocks that refer to the one before, and a second frame.
    """
    if len(packed) < _LZ4_HEADER_BYTES:
        raise CorruptError("lz4 frame is cut off")
    flags = packed[4]
    if not flags & _LZ4_INDEPENDENT_BLOCKS:
        raise CorruptError("Dependent block stream is unsupported (BLOCK_INDEPENDENCE must be set)")
    if flags & _LZ4_RESERVED:
        raise CorruptError("Reserved bits must be 0")
    position = _LZ4_HEADER_BYTES + (8 if flags & _LZ4_CONTENT_SIZE else 0)
    checksum_bytes = 4 if flags & _LZ4_BLOCK_CHECKSUM else 0
    while position + _WORD.size <= len(packed):
        size = _WORD.unpack_from(packed, position)[0] & _LZ4_SIZE_MASK
        position += _WORD.size
        if not size:
            break
        position += size + checksum_bytes
    if flags & _LZ4_CONTENT_CHECKSUM:
        position += 4
    if position != len(packed):
        raise CorruptError("an lz4 frame does not end with its batch", position=position)
