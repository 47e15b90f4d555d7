"""The records of a batch looked over once: whether they are well-formed, and what bounds them.

Two ways with equal results on any bytes: plain Python, and `cordwood.format.native.walk` at the
speed of memory. The native one takes a second and 100 MiB to load, so a batch of more than a few
KiB starts loading it in the background, and batches are walked plainly until it is there.

What is well-formed here is what `RecordBatch.records` accepts, and Kafka's own reader.

Source: org.apache.kafka.common.record.DefaultRecord.readFrom, DefaultRecordBatch.RecordIterator.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from typing import NamedTuple

from cordwood.format.varint import Buffer, CutOffError, decode_varint, decode_varlong
from cordwood.model.errors import CorruptError, MissingExtraError
from cordwood.model.extras import NATIVE, require_extra

_log = logging.getLogger(__name__)

#: Payloads of fewer bytes are quick enough in plain Python not to load the native walk for them.
NATIVE_BYTES_MIN = 4096

_STRUCTURE = "Found invalid record structure"
_CUT_OFF = "Incorrect declared batch size, premature EOF reached"
_LEFT_OVER = "Incorrect declared batch size, records still remaining in file"


class RecordSummary(NamedTuple):
    """The result of parsing a batch's records.

    `first_bad` is the index of the first malformed record, the number of records if bytes are left
    over behind the last one, and -1 if `ok`. The other fields are about the records before it:
    least and greatest timestamp delta (0 without records), how many have no key, and whether their
    offset deltas are 0, 1, 2 and so on.
    """

    ok: bool
    first_bad: int
    min_timestamp_delta: int
    max_timestamp_delta: int
    null_keys: int
    sequential_offsets: bool


class RecordFacts(NamedTuple):
    """One record without its content; sizes in bytes, -1 for null."""

    timestamp_delta: int
    offset_delta: int
    key_size: int
    value_size: int


class MalformedRecordError(CorruptError):
    """A record that cannot be read; the text is Kafka's."""


def walk_records(payload: Buffer, count: int) -> RecordSummary:
    """Reads the `count` records that `payload`, decompressed, should consist of."""
    walk = _native.walk
    if walk is None or not payload:
        if len(payload) >= NATIVE_BYTES_MIN:
            _native.start_loading()
        return walk_plainly(payload, count)
    return walk(payload, count)


def walk_plainly(payload: Buffer, count: int) -> RecordSummary:
    """Walks records in plain Python, with the result of `walk_records`."""
    read = null_keys = 0
    least = greatest = 0
    sequential = True
    ok = True
    try:
        for timestamp_delta, offset_delta, key_size, _ in iter_facts(payload, count):
            if not read:
                least = greatest = timestamp_delta
            elif timestamp_delta < least:
                least = timestamp_delta
            elif timestamp_delta > greatest:
                greatest = timestamp_delta
            if key_size < 0:
                null_keys += 1
            if offset_delta != read:
                sequential = False
            read += 1
    except MalformedRecordError:
        ok = False
    return RecordSummary(ok, -1 if ok else read, least, greatest, null_keys, sequential)


def iter_facts(payload: Buffer, count: int) -> Iterator[RecordFacts]:
    """The records one by one: those before a malformed one are still given.

    Raises:
        MalformedRecordError: a record is malformed, or bytes are left over behind the last one.
    """
    if count < 0:
        raise MalformedRecordError(f"Found invalid record count {count} in magic v2 batch")
    position = 0
    for _ in range(count):
        facts, position = _read_facts(payload, position)
        yield facts
    if position != len(payload):
        raise MalformedRecordError(_LEFT_OVER, position=position)


def why_malformed(payload: Buffer, count: int) -> str:
    """Kafka's error for malformed records."""
    try:
        for _ in iter_facts(payload, count):
            pass
    except MalformedRecordError as error:
        return error.reason
    raise AssertionError("the records are well-formed")


def prepare() -> None:
    """Loads the native walk, and returns when it is there.

    Raises:
        ImportError: it is not available here.
    """
    _native.load()


def _read_facts(data: Buffer, position: int) -> tuple[RecordFacts, int]:
    """The record at `position`, and the position after it."""
    try:
        size, position = _number(data, position)
    except (IndexError, CutOffError):
        raise MalformedRecordError(_CUT_OFF, position=position) from None
    except CorruptError:
        raise MalformedRecordError(_STRUCTURE, position=position) from None
    start, end = position, len(data)
    if size > end - start:
        raise MalformedRecordError(
            f"Invalid record size: expected {size} bytes in record payload, but instead the buffer "
            f"has only {end - start} remaining bytes.",
            position=start,
        )
    try:
        # One byte of attributes, which have no meaning yet.
        byte = data[start + 1]
        if byte < 0x80:
            timestamp_delta, position = (byte >> 1) ^ -(byte & 1), start + 2
        else:
            timestamp_delta, position = decode_varlong(data, start + 1)
        offset_delta, position = _number(data, position)
        key_size, position = _skip(data, position)
        value_size, position = _skip(data, position)
        headers, position = _number(data, position)
        if headers:
            position = _skip_headers(data, position, headers)
    except MalformedRecordError:
        raise
    except (IndexError, CorruptError):
        raise MalformedRecordError(_STRUCTURE, position=start) from None
    if position - start != size:
        raise MalformedRecordError(
            f"Invalid record size: expected to read {size} bytes in record payload, but instead "
            f"read {position - start}",
            position=start,
        )
    return RecordFacts(timestamp_delta, offset_delta, key_size, value_size), position


def _number(data: Buffer, position: int) -> tuple[int, int]:
    byte = data[position]
    if byte < 0x80:
        return (byte >> 1) ^ -(byte & 1), position + 1
    return decode_varint(data, position)


def _skip(data: Buffer, position: int) -> tuple[int, int]:
    """(size, or -1 for null, of the bytes at `position`; the position after them)."""
    size, position = _number(data, position)
    if size < 0:
        return -1, position
    position += size
    if position > len(data):
        raise MalformedRecordError(_STRUCTURE, position=position)
    return size, position


def _skip_headers(data: Buffer, position: int, count: int) -> int:
    """The position after `count` headers."""
    if count < 0:
        raise MalformedRecordError(f"Found invalid number of record headers {count}")
    if count > len(data) - position:
        raise MalformedRecordError(
            f"Found invalid number of record headers. {count} is larger than the remaining size of "
            "the buffer"
        )
    for _ in range(count):
        key_size, position = _number(data, position)
        if key_size < 0:
            raise MalformedRecordError(f"Invalid negative header key size {key_size}")
        _, position = _skip(data, position + key_size)
    return position


class _Native:
    """The native walk, once it is loaded."""

    def __init__(self) -> None:
        self.walk: Callable[[Buffer, int], RecordSummary] | None = None
        self._lock = threading.Lock()
        self._has_started = False

    def load(self) -> None:
        """Loads the walk; others who want it wait."""
        with self._lock:
            if self.walk is None:
                self.walk = _load_native_walk()

    def start_loading(self) -> None:
        """Loads the walk in the background, unless that was tried before."""
        if self._has_started:
            return
        self._has_started = True
        threading.Thread(target=self._try_to_load, name="load-record-walk", daemon=True).start()

    def _try_to_load(self) -> None:
        try:
            require_extra(NATIVE, what="Validating large batches at full speed")
            self.load()
        except MissingExtraError as error:
            _log.info("%s", error)
        except Exception:
            _log.warning("The native walk over records cannot be loaded.", exc_info=True)


def _load_native_walk() -> Callable[[Buffer, int], RecordSummary]:
    import numpy as np  # noqa: PLC0415  # neither of them is for a broker that is idle

    from cordwood.format.native.kernels import walk  # noqa: PLC0415

    frombuffer, uint8 = np.frombuffer, np.uint8

    def walk_natively(payload: Buffer, count: int) -> RecordSummary:
        # Compiled for read-only arrays alone.
        view = frombuffer(memoryview(payload).toreadonly(), uint8)
        read, position, least, greatest, null_keys, sequential = walk(view, count)
        if read == count and position == len(payload):
            return RecordSummary(True, -1, least, greatest, null_keys, sequential)
        return RecordSummary(False, max(read, 0), least, greatest, null_keys, sequential)

    return walk_natively


_native = _Native()
