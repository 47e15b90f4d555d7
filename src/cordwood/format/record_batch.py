"""Record batches of magic 2: a header (`batch_header`) and the records after it, read and built.

Source: org.apache.kafka.common.record.DefaultRecordBatch, MemoryRecordsBuilder,
FileLogInputStream.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from cordwood.format.batch_header import (
    CONTROL_BIT,
    CRC_START,
    CREATE_TIME,
    DELETE_HORIZON_BIT,
    HEADER_BYTES,
    LOG_APPEND_TIME,
    LOG_OVERHEAD_BYTES,
    MAGIC,
    MAGIC_BYTES_MIN,
    NO_TIMESTAMP,
    TIMESTAMP_TYPE_BIT,
    TRANSACTIONAL_BIT,
    BatchHeader,
    build_header,
    parse_header,
)
from cordwood.format.byte_reader import ByteReader
from cordwood.format.compression import (
    DECOMPRESSED_BYTES_MAX,
    EXPANSION_MAX,
    Codec,
    compress,
    decompress,
    decompress_start,
)
from cordwood.format.crc32c import crc32c
from cordwood.format.legacy import LEGACY_OVERHEAD_V0, LegacyBatch
from cordwood.format.record import (
    Header,
    Record,
    RecordFields,
    build_fields,
    build_record,
    increment_sequence,
    parse_fields,
)
from cordwood.format.record_bound import (
    RECORD_BYTES_MAX,
    over_the_bound,
    payload_bytes_max,
    require_records_within,
    sizes_to_look_at,
)
from cordwood.format.varint import Buffer
from cordwood.model.errors import (
    BatchTooLargeError,
    CorruptError,
    OversizedRecordError,
    UnsupportedVersionError,
)

__all__ = [
    "CONTROL_RECORDS_BYTES_MAX",
    "Header",
    "LegacyBatch",
    "Record",
    "RecordBatch",
    "build_batch",
    "build_batch_of",
    "build_empty_batch",
    "iter_batches",
    "may_expand_beyond",
]

#: What the records of a control batch may take, decompressed. Kafka writes one of few bytes.
CONTROL_RECORDS_BYTES_MAX = 1 << 20

_CRC = struct.Struct(">I")
_PREFIX = struct.Struct(">qi")
_INT32_MAX = (1 << 31) - 1
_ATTRIBUTES_AT = 22  # the low byte
_CODEC_MASK = 0x07


@dataclass(frozen=True, slots=True)
class RecordBatch:
    """A batch of magic 2: its header, and all its bytes.

    `raw` may be a view of a larger buffer, and then lives as long as that.
    """

    header: BatchHeader
    raw: Buffer

    @property
    def magic(self) -> int:
        """The version of the batch format."""
        return self.header.magic

    @property
    def base_offset(self) -> int:
        """The batch's first offset."""
        return self.header.base_offset

    @property
    def last_offset(self) -> int:
        """The batch's last offset, inclusive."""
        return self.header.last_offset

    @property
    def next_offset(self) -> int:
        """One past the last offset."""
        return self.header.next_offset

    @property
    def size_bytes(self) -> int:
        """Bytes of the whole batch."""
        return self.header.size_bytes

    @property
    def max_timestamp(self) -> int:
        """The largest timestamp of its records, in ms."""
        return self.header.max_timestamp

    @property
    def codec(self) -> Codec:
        """The codec of the records."""
        return self.header.codec

    @property
    def timestamp_type(self) -> str:
        """`CreateTime` or `LogAppendTime`."""
        return self.header.timestamp_type

    def computed_crc(self) -> int:
        """The CRC-32C that the header should hold."""
        return crc32c(memoryview(self.raw)[CRC_START:])

    def is_valid(self) -> bool:
        """True if the stored CRC is right.

        Source: DefaultRecordBatch.isValid.
        """
        return len(self.raw) >= HEADER_BYTES and self.header.crc == self.computed_crc()

    def require_valid(self) -> None:
        """Refuses a batch whose CRC is wrong.

        Raises:
            CorruptError: the stored and the computed CRC differ.
        """
        if not self.is_valid():
            raise CorruptError(
                f"record batch at offset {self.base_offset} has CRC {self.header.crc:#010x}, "
                f"its bytes give {self.computed_crc():#010x}"
            )

    def payload(
        self, *, size_max: int = DECOMPRESSED_BYTES_MAX, record_bytes_max: int = RECORD_BYTES_MAX
    ) -> bytes:
        """The records' bytes, decompressed.

        Decompression ends where a record of over `record_bytes_max` bytes is certain; a record may
        be larger even so.

        Raises:
            BatchTooLargeError: they are more than `size_max`.
            OversizedRecordError: they were not decompressed to their end.
            CorruptError: the codec is unknown or the stream is malformed.
        """
        packed = bytes(memoryview(self.raw)[HEADER_BYTES:])
        wanted = self._payload_bytes_max(record_bytes_max)
        for size in sizes_to_look_at(min(wanted, size_max), record_bytes_max):
            try:
                return decompress(self.codec, packed, size_max=size)
            except BatchTooLargeError:
                if size == size_max:
                    raise
            start = decompress_start(self.codec, packed, size)
            require_records_within(start, self.header.records_count, record_bytes_max)
        raise OversizedRecordError(over_the_bound(record_bytes_max))

    def payload_start(self, *, record_bytes_max: int) -> bytearray:
        """The start of what `payload` does not decompress to its end, as far as that does.

        Zeros may follow, as behind `decompress_start`.
        """
        packed = memoryview(self.raw)[HEADER_BYTES:]
        start = bytearray()
        for size in sizes_to_look_at(self._payload_bytes_max(record_bytes_max), record_bytes_max):
            start = decompress_start(self.codec, packed, size)
            try:
                require_records_within(start, self.header.records_count, record_bytes_max)
            except OversizedRecordError:
                break
        return start

    def _payload_bytes_max(self, record_bytes_max: int) -> int:
        return payload_bytes_max(max(self.header.records_count, 1), record_bytes_max)

    def records(self) -> list[Record]:
        """The records, in the order stored.

        Raises:
            CorruptError: the payload is malformed, or the number of records differs from the
                header's count.
        """
        return list(self.iter_records())

    def iter_records(
        self, *, size_max: int = DECOMPRESSED_BYTES_MAX, record_bytes_max: int = RECORD_BYTES_MAX
    ) -> Iterator[Record]:
        """The records one by one: those before a malformed one are still given.

        `size_max` is how many bytes they may be, decompressed, and `record_bytes_max` one of them.

        Raises:
            CorruptError: as `records`.
        """
        header = self.header
        base_offset, base_timestamp = header.base_offset, header.base_timestamp
        base_sequence = header.base_sequence
        is_append_time = header.timestamp_type == LOG_APPEND_TIME
        for timestamp_delta, offset_delta, key, value, headers, _ in self.iter_fields(
            size_max=size_max, record_bytes_max=record_bytes_max
        ):
            yield Record(
                base_offset + offset_delta,
                header.max_timestamp if is_append_time else base_timestamp + timestamp_delta,
                key,
                value,
                headers,
                increment_sequence(base_sequence, offset_delta) if base_sequence >= 0 else -1,
            )

    def iter_fields(
        self, *, size_max: int = DECOMPRESSED_BYTES_MAX, record_bytes_max: int = RECORD_BYTES_MAX
    ) -> Iterator[RecordFields]:
        """The fields of the records as they are stored, in half the time of `iter_records`."""
        header = self.header
        if header.records_count < 0:
            raise CorruptError(
                f"record batch at offset {header.base_offset} declares "
                f"{header.records_count} records"
            )
        if header.records_count == 0:
            return
        data = self.payload(size_max=size_max, record_bytes_max=record_bytes_max)
        if self.codec and len(data) > record_bytes_max:
            require_records_within(data, header.records_count, record_bytes_max)
        end = 0
        # A record takes at least 7 bytes: a false count is refused before a long loop.
        for index in range(header.records_count):
            fields = parse_fields(data, end)
            end = fields.end
            if end != len(data) and index == header.records_count - 1:
                what = f"the {header.records_count} records of the batch"
                ByteReader(data, end).require_end(what)
            yield fields


def parse_batch(buffer: Buffer, position: int = 0) -> RecordBatch | LegacyBatch | None:
    """The batch at `position`, or None if the buffer ends before the batch does.

    Raises:
        CorruptError: the length is smaller than any batch, or the magic is unknown.
    """
    view = memoryview(buffer)
    if len(view) - position < MAGIC_BYTES_MIN:
        return None
    offset, batch_length = _PREFIX.unpack_from(view, position)
    if batch_length < LEGACY_OVERHEAD_V0:
        raise CorruptError(
            f"record batch at offset {offset} has length {batch_length}, "
            f"less than the minimum of {LEGACY_OVERHEAD_V0}",
            position=position,
        )
    size_bytes = batch_length + LOG_OVERHEAD_BYTES
    if size_bytes > len(view) - position:
        return None
    magic = view[position + 16]
    raw = view[position : position + size_bytes]
    if magic in {0, 1}:
        return LegacyBatch.parse(raw, position=position)
    if magic != MAGIC:
        raise UnsupportedVersionError(
            f"record batch at offset {offset} has magic {magic}", position=position
        )
    if size_bytes < HEADER_BYTES:
        raise CorruptError(
            f"record batch at offset {offset} takes {size_bytes} bytes, less than its header",
            position=position,
        )
    return RecordBatch(parse_header(raw), raw)


def iter_batches(
    buffer: Buffer, *, start: int = 0
) -> Iterator[tuple[int, RecordBatch | LegacyBatch]]:
    """Every batch from position `start` on, with its position; CRCs are not checked.

    Stops silently if fewer than 17 bytes remain or a batch extends past the end, as in a torn tail
    of a log.

    Raises:
        CorruptError: a length is smaller than any batch, or a magic is unknown.
    """
    position = start
    while (batch := parse_batch(buffer, position)) is not None:
        yield position, batch
        position += batch.size_bytes


def may_expand_beyond(batch: Buffer, size_bytes: int) -> bool:
    """Whether the records of a compressed batch, by its codec and size alone, may be larger.

    False for bytes that are not a whole header of magic 2.
    """
    if len(batch) <= HEADER_BYTES:
        return False
    ratio = EXPANSION_MAX.get(batch[_ATTRIBUTES_AT] & _CODEC_MASK)
    return ratio is not None and (len(batch) - HEADER_BYTES) * ratio > size_bytes


def build_batch(
    records: Sequence[Record],
    *,
    base_offset: int,
    codec: Codec = Codec.NONE,
    timestamp_type: str = CREATE_TIME,
    log_append_time_ms: int = NO_TIMESTAMP,
    producer_id: int = -1,
    producer_epoch: int = -1,
    base_sequence: int = -1,
    is_transactional: bool = False,
    is_control: bool = False,
    partition_leader_epoch: int = -1,
    last_offset: int | None = None,
    delete_horizon_ms: int | None = None,
    level: int | None = None,
) -> bytes:
    """The bytes of a batch with those records, or b"" if there are no records.

    The base timestamp is the delete horizon, or else the first record's timestamp. `last_offset`
    (inclusive) overrides that of the last record: a compacted batch keeps the offset range it had.

    Raises:
        ValueError: an offset is too far from the base offset.

    Source: MemoryRecordsBuilder.
    """
    if not records:
        return b""
    end = records[-1].offset if last_offset is None else last_offset
    base_timestamp = records[0].timestamp if delete_horizon_ms is None else delete_horizon_ms
    body = bytearray()
    for record in records:
        if not 0 <= record.offset - base_offset <= _INT32_MAX:
            raise ValueError(f"offset {record.offset} is out of reach of {base_offset}")
        body += build_record(record, base_offset=base_offset, base_timestamp=base_timestamp)
    if timestamp_type == LOG_APPEND_TIME:
        max_timestamp = log_append_time_ms
    else:
        max_timestamp = max(NO_TIMESTAMP, *(record.timestamp for record in records))
    payload = compress(codec, bytes(body), level=level)
    header = BatchHeader(
        base_offset=base_offset,
        batch_length=HEADER_BYTES - LOG_OVERHEAD_BYTES + len(payload),
        partition_leader_epoch=partition_leader_epoch,
        magic=MAGIC,
        crc=0,
        attributes=_attributes(
            codec=codec,
            timestamp_type=timestamp_type,
            is_transactional=is_transactional,
            is_control=is_control,
            has_delete_horizon=delete_horizon_ms is not None,
        ),
        last_offset_delta=end - base_offset,
        base_timestamp=base_timestamp,
        max_timestamp=max_timestamp,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=base_sequence,
        records_count=len(records),
    )
    return _with_crc(build_header(header) + payload)


def build_batch_of(
    entries: Sequence[tuple[bytes | None, bytes | None]],
    *,
    timestamp: int,
    codec: Codec = Codec.NONE,
    base_sequence: int = -1,
    producer_id: int = -1,
    producer_epoch: int = -1,
    is_transactional: bool = False,
) -> bytes:
    """A batch at offset 0 with a record of each key and value, of which there is at least one.

    All records have the same time, in ms. The batch is that of `build_batch`, made in less time.
    """
    body = bytearray()
    count = 0
    for key, value in entries:
        body += build_fields(0, count, key, value)
        count += 1
    payload = compress(codec, bytes(body))
    header = BatchHeader(
        base_offset=0,
        batch_length=HEADER_BYTES - LOG_OVERHEAD_BYTES + len(payload),
        partition_leader_epoch=-1,
        magic=MAGIC,
        crc=0,
        attributes=int(codec) | (TRANSACTIONAL_BIT if is_transactional else 0),
        last_offset_delta=count - 1,
        base_timestamp=timestamp,
        max_timestamp=timestamp,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=base_sequence,
        records_count=count,
    )
    return _with_crc(build_header(header) + payload)


def build_empty_batch(header: BatchHeader) -> bytes:
    """The 61 bytes of a batch whose records were all removed.

    It keeps offsets, sequences, producer, leader epoch, timestamp type, max timestamp and the kind
    of batch; it has no codec, no delete horizon and no base timestamp.

    Source: DefaultRecordBatch.writeEmptyHeader.
    """
    return _with_crc(
        build_header(
            BatchHeader(
                base_offset=header.base_offset,
                batch_length=HEADER_BYTES - LOG_OVERHEAD_BYTES,
                partition_leader_epoch=header.partition_leader_epoch,
                magic=MAGIC,
                crc=0,
                attributes=_attributes(
                    codec=Codec.NONE,
                    timestamp_type=header.timestamp_type,
                    is_transactional=header.is_transactional,
                    is_control=header.is_control,
                    has_delete_horizon=False,
                ),
                last_offset_delta=header.last_offset_delta,
                base_timestamp=NO_TIMESTAMP,
                max_timestamp=header.max_timestamp,
                producer_id=header.producer_id,
                producer_epoch=header.producer_epoch,
                base_sequence=header.base_sequence,
                records_count=0,
            )
        )
    )


def _attributes(
    *,
    codec: Codec,
    timestamp_type: str,
    is_transactional: bool,
    is_control: bool,
    has_delete_horizon: bool,
) -> int:
    return (
        int(codec)
        | (TIMESTAMP_TYPE_BIT if timestamp_type == LOG_APPEND_TIME else 0)
        | (TRANSACTIONAL_BIT if is_transactional else 0)
        | (CONTROL_BIT if is_control else 0)
        | (DELETE_HORIZON_BIT if has_delete_horizon else 0)
    )


def _with_crc(batch: bytes) -> bytes:
    crc = crc32c(batch[CRC_START:])
    return batch[:MAGIC_BYTES_MIN] + _CRC.pack(crc) + batch[CRC_START:]
