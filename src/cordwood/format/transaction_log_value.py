"""Fast coding of the records of `__transaction_state`.

Values in another form than Kafka writes now are left to `cordwood.format.transaction_state`, which
reads all versions and reports errors.

Source: TransactionLogKey, TransactionLogValue of
org.apache.kafka.coordinator.transaction.generated (4.3.0).
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import NamedTuple

from cordwood.format.messages.primitives import ARRAY_ELEMENTS_MAX, STRING_BYTES_MAX
from cordwood.format.varint import decode_unsigned_varint, encode_unsigned_varint
from cordwood.model.errors import CorruptError, EncodingError

KEY_TYPE = 0
PLAIN_VERSION, TAGGED_VERSION = 0, 1
DEFAULT_PRODUCER_ID = -1

_INT16 = struct.Struct(">h")
_INT32 = struct.Struct(">i")
_START = struct.Struct(">hqhib")
_END = struct.Struct(">qq")
_NO_TAGS = b"\0"
_PREVIOUS_PRODUCER_ID, _NEXT_PRODUCER_ID, _CLIENT_VERSION = 0, 1, 2
_ID_TAG = struct.Struct(">BBq")
_VERSION_TAG = struct.Struct(">BBh")
_ID_BYTES, _VERSION_BYTES = 8, 2


class TransactionLogValue(NamedTuple):
    """A transaction; times in ms. `partitions` are topics with numbers, None if there may be none.

    The two producer ids beside the current one, and the client's transaction version, are at their
    defaults in values of version 0.
    """

    producer_id: int
    previous_producer_id: int
    next_producer_id: int
    producer_epoch: int
    timeout_ms: int
    status: int
    partitions: Sequence[tuple[str, Sequence[int]]] | None
    update_ms: int
    start_ms: int
    client_version: int


def encode_transaction_key(transactional_id: str) -> bytes:
    """The key's bytes.

    Raises:
        EncodingError: the id does not fit its field.
    """
    name = _text(transactional_id, "transactionalId")
    return _INT16.pack(KEY_TYPE) + _INT16.pack(len(name)) + name


def encode_transaction_value(value: TransactionLogValue, version: int) -> bytes:
    """The value's bytes, of version 0 or 1.

    Raises:
        EncodingError: a value does not fit its field.
    """
    try:
        parts = [
            _START.pack(
                version, value.producer_id, value.producer_epoch, value.timeout_ms, value.status
            )
        ]
        is_tagged = version == TAGGED_VERSION
        _add_partitions(parts, value.partitions, is_tagged=is_tagged)
        parts.append(_END.pack(value.update_ms, value.start_ms))
        if is_tagged:
            parts.append(_tags(value))
    except struct.error as error:
        raise EncodingError(f"{value} does not fit: {error}") from None
    return b"".join(parts)


def _add_partitions(
    parts: list[bytes], topics: Sequence[tuple[str, Sequence[int]]] | None, *, is_tagged: bool
) -> None:
    if topics is None:
        parts.append(_NO_TAGS if is_tagged else _INT32.pack(-1))
        return
    parts.append(_size(len(topics), is_tagged=is_tagged))
    for topic, numbers in topics:
        name = _text(topic, "topic")
        parts.append(encode_unsigned_varint(len(name) + 1) if is_tagged else _INT16.pack(len(name)))
        parts.append(name)
        parts.append(_size(len(numbers), is_tagged=is_tagged))
        parts.append(struct.pack(f">{len(numbers)}i", *numbers))
        if is_tagged:
            parts.append(_NO_TAGS)


def _size(count: int, *, is_tagged: bool) -> bytes:
    return encode_unsigned_varint(count + 1) if is_tagged else _INT32.pack(count)


def _tags(value: TransactionLogValue) -> bytes:
    parts = []
    if value.previous_producer_id != DEFAULT_PRODUCER_ID:
        parts.append(_ID_TAG.pack(_PREVIOUS_PRODUCER_ID, _ID_BYTES, value.previous_producer_id))
    if value.next_producer_id != DEFAULT_PRODUCER_ID:
        parts.append(_ID_TAG.pack(_NEXT_PRODUCER_ID, _ID_BYTES, value.next_producer_id))
    if value.client_version:
        parts.append(_VERSION_TAG.pack(_CLIENT_VERSION, _VERSION_BYTES, value.client_version))
    return bytes((len(parts),)) + b"".join(parts)


def _text(value: str, name: str) -> bytes:
    try:
        data = value.encode()
    except UnicodeEncodeError:
        raise EncodingError(f"the string field {name} is no text: {value!r}") from None
    if len(data) > STRING_BYTES_MAX:
        raise EncodingError(
            f"the string field {name} is too long to be serialized: {len(data)} bytes"
        )
    return data


def decode_transaction_key(data: bytes | None) -> str | None:
    """The transactional id; None for any other key, and for one that is malformed."""
    try:
        if data is None or data[0] or data[1]:
            return None
        (size,) = _INT16.unpack_from(data, 2)
        name = data[4 : 4 + size]
        return name.decode() if 0 <= size == len(name) else None
    except (struct.error, IndexError, UnicodeDecodeError):
        return None


def decode_transaction_value(data: bytes) -> tuple[TransactionLogValue, int] | None:
    """The value and its version, if it is as Kafka writes it now; None otherwise."""
    try:
        version, producer_id, epoch, timeout_ms, status = _START.unpack_from(data)
        if version not in {PLAIN_VERSION, TAGGED_VERSION}:
            return None
        is_tagged = version == TAGGED_VERSION
        partitions, at = _partitions(data, _START.size, is_tagged=is_tagged)
        update_ms, start_ms = _END.unpack_from(data, at)
        at += _END.size
        previous = following = DEFAULT_PRODUCER_ID
        client_version = 0
        if is_tagged:
            count = data[at]
            at += 1
            for _ in range(count):
                tag = data[at]
                if tag in {_PREVIOUS_PRODUCER_ID, _NEXT_PRODUCER_ID}:
                    _, size, producer = _ID_TAG.unpack_from(data, at)
                    if size != _ID_BYTES:
                        return None
                    if tag == _PREVIOUS_PRODUCER_ID:
                        previous = producer
                    else:
                        following = producer
                    at += _ID_TAG.size
                elif tag == _CLIENT_VERSION:
                    _, size, client_version = _VERSION_TAG.unpack_from(data, at)
                    if size != _VERSION_BYTES:
                        return None
                    at += _VERSION_TAG.size
                else:
                    return None
    except (struct.error, CorruptError, IndexError, UnicodeDecodeError):
        return None
    value = TransactionLogValue(
        producer_id,
        previous,
        following,
        epoch,
        timeout_ms,
        status,
        partitions,
        update_ms,
        start_ms,
        client_version,
    )
    return value, version


def _partitions(
    data: bytes, at: int, *, is_tagged: bool
) -> tuple[list[tuple[str, Sequence[int]]] | None, int]:
    """The partitions by topic, and where they end.

    Raises:
        CorruptError, struct.error, IndexError, UnicodeDecodeError: they are malformed.
    """
    count, at = _count(data, at, is_tagged=is_tagged)
    if count < 0:
        return None, at
    topics: list[tuple[str, Sequence[int]]] = []
    for _ in range(count):
        if is_tagged:
            size, at = decode_unsigned_varint(data, at)
            size -= 1
        else:
            (size,) = _INT16.unpack_from(data, at)
            at += _INT16.size
        end = at + size
        if not 0 <= size <= STRING_BYTES_MAX or end > len(data):
            raise CorruptError("a topic's name is cut off")
        name = data[at:end].decode()
        numbers_count, at = _count(data, end, is_tagged=is_tagged)
        if numbers_count < 0:
            raise CorruptError("partitions are cut off")
        numbers = struct.unpack_from(f">{numbers_count}i", data, at)
        at += numbers_count * _INT32.size
        if is_tagged:
            if data[at]:
                raise CorruptError("a topic has tags")
            at += 1
        topics.append((name, numbers))
    return topics, at


def _count(data: bytes, at: int, *, is_tagged: bool) -> tuple[int, int]:
    if is_tagged:
        count, at = decode_unsigned_varint(data, at)
        count -= 1
    else:
        (count,) = _INT32.unpack_from(data, at)
        at += _INT32.size
    if count > min(len(data), ARRAY_ELEMENTS_MAX):
        raise CorruptError(f"{count} elements in {len(data)} bytes")
    return count, at
