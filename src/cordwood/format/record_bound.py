"""The bound on one record of a compressed batch: max.decompressed.message.bytes.

It is on the size that a record declares, which counts all of it but that number. A stream that
expands further than so many records within the bound is not decompressed to its end, and of a
large one the start is looked at first: a header may count more records than there are.

Source: org.apache.kafka.common.record.internal.DefaultRecord.readFrom, readPartiallyFrom,
AbstractLegacyRecordBatch.DataLogInputStream, Kafka 4.4.
"""

from __future__ import annotations

from typing import Final

from cordwood.format.varint import VARINT_BYTES_MAX, Buffer, decode_varint
from cordwood.model.errors import CorruptError, OversizedRecordError

#: The default: the largest array of a Java virtual machine.
RECORD_BYTES_MAX: Final = 2147483639

_LOOK_BYTES: Final = 16 << 20


def payload_bytes_max(count: int, record_bytes_max: int) -> int:
    """The most that `count` records within the bound take; a negative count is none."""
    return max(count, 0) * (record_bytes_max + VARINT_BYTES_MAX)


def require_records_within(payload: Buffer, count: int, record_bytes_max: int) -> None:
    """Refuses a record that declares a larger size, among the first `count` of `payload`.

    Looks no further than a record that is malformed.

    Raises:
        OversizedRecordError: there is one.
    """
    position = 0
    for _ in range(count):
        try:
            size, position = decode_varint(payload, position)
        except CorruptError:
            return
        require_record_within(size, record_bytes_max)
        if size <= 0:
            return
        position += size


def sizes_to_look_at(size_max: int, record_bytes_max: int) -> list[int]:
    """The sizes to decompress to before a record over the bound is looked for, up to `size_max`."""
    sizes = []
    size = _LOOK_BYTES
    while record_bytes_max < RECORD_BYTES_MAX and size < size_max:
        sizes.append(size)
        size *= 4
    sizes.append(size_max)
    return sizes


def over_the_bound(record_bytes_max: int) -> str:
    """The reason for a batch that was not decompressed far enough to see the record's size."""
    return f"a record larger than the {record_bytes_max} bytes of max.decompressed.message.bytes"


def require_record_within(size: int, record_bytes_max: int) -> None:
    """Refuses a record of `size` bytes if that is more than the bound.

    Raises:
        OversizedRecordError: it is.
    """
    if size > record_bytes_max:
        raise OversizedRecordError(
            f"Invalid record size: {size} exceeds the configured maximum record size of "
            f"{record_bytes_max}."
        )
