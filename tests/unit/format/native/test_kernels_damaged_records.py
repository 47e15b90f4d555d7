"""Each rule about a record's layout, and the kernels that refuse a record which breaks it."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest

from cordwood.cleanup.plan.key_secrets import Secrets
from cordwood.format.native import batches as rows_of
from cordwood.format.native import contents, kernels, key_table
from cordwood.format.native import record_longs as longs
from cordwood.format.native import records as walks
from cordwood.format.varint import encode_varint

SECRETS = Secrets.from_seed(3).words
HEAD = b"\0\0"  # attributes, timestamp delta
KEY_AND_VALUE = encode_varint(1) + b"k" + encode_varint(1) + b"v"


def record(body: bytes, *, length: int | None = None) -> bytes:
    return encode_varint(len(body) if length is None else length) + body


def with_headers(headers: bytes) -> bytes:
    return record(HEAD + encode_varint(1) + KEY_AND_VALUE + headers)


FIRST = record(HEAD + encode_varint(0) + KEY_AND_VALUE + encode_varint(0))
SECOND = HEAD + encode_varint(1) + KEY_AND_VALUE + encode_varint(0)
ONE = encode_varint(1)

#: Records that no kernel takes.
FIELDS = {
    "longer than the batch": record(SECOND, length=len(SECOND) + 1),
    "empty": record(b""),
    "of a negative length": record(SECOND, length=-1),
    "ends at its attributes": record(b"\0"),
    "timestamp delta of 11 bytes": record(b"\0" + b"\x80" * 10 + SECOND[1:]),
    "ends within its offset delta": record(HEAD + b"\x80"),
    "key longer than the record": record(HEAD + ONE + encode_varint(3) + b"kk"),
    "value longer than the record": record(HEAD + ONE + ONE + b"k" + encode_varint(3) + b"vv"),
}
#: Records that the kernels refuse which read headers.
HEADERS = {
    "no headers": with_headers(b""),
    "negative number of headers": with_headers(encode_varint(-1)),
    "more headers than bytes": with_headers(encode_varint(3) + b"\0\0"),
    "null key of a header": with_headers(ONE + encode_varint(-1) + encode_varint(0)),
    "key of a header too long": with_headers(ONE + encode_varint(3) + b"hh"),
    "value of a header too long": with_headers(ONE + ONE + b"h" + encode_varint(3) + b"xx"),
    "bytes behind the headers": with_headers(encode_varint(0) + b"\0"),
}


class Statuses:
    """The results of each kernel for two records."""

    def __init__(self, data: bytes) -> None:
        buffer = np.zeros(len(data) + 64, dtype=np.uint8)
        buffer[: len(data)] = np.frombuffer(data, dtype=np.uint8)
        table = np.zeros((1, rows_of.COLUMNS), dtype=np.int64)
        table[0, rows_of.COUNT] = 2
        table[0, rows_of.LAST_OFFSET] = 9
        spans = np.array([[0, len(data)]], dtype=np.int64)
        zero = np.zeros(1, dtype=np.int64)
        one = buffer, table, 0, 1, spans

        def bits() -> npt.NDArray[np.uint8]:
            return np.zeros(8, dtype=np.uint8)

        def used() -> npt.NDArray[np.int64]:
            return np.zeros(1, dtype=np.int64)

        def keys(words: int = key_table.SLOT_WORDS) -> npt.NDArray[np.uint64]:
            return key_table.new_table(8, words)

        numbers, known = np.zeros(2, dtype=np.int64), np.zeros(2, dtype=np.bool_)
        versioned = keys(key_table.VERSIONED_SLOT_WORDS)
        registers = np.zeros(walks.REGISTERS, dtype=np.uint8)
        self.of_keys = {
            kernels.index_batches(*one, 0, zero, keys(), used(), bits(), bits(), SECRETS),
            kernels.probe_batches(*one, 9, zero, keys(), bits(), bits(), SECRETS),
            kernels.list_batches(*one, 9, zero, keys(), used(), bits(), bits(), SECRETS),
            kernels.watch_batches(*one, 0, zero, zero, keys(), used(), registers, SECRETS),
            kernels.judge_watched(*one, zero, zero, keys(), bits(), bits(), SECRETS),
            kernels.index_versions(
                *one, 0, zero, numbers, known, versioned, used(), bits(), bits(), SECRETS
            ),
            kernels.watch_versions(*one, 0, zero, numbers, known, versioned, SECRETS),
            kernels.judge_watched_versions(
                *one, zero, zero, versioned, bits(), bits(), bits(), SECRETS
            ),
        }
        name = np.frombuffer(b"h", dtype=np.uint8).copy()
        self.of_timestamps, self.of_headers = (
            kernels.record_longs(*one, zero, kind, name, numbers, known)
            for kind in (longs.TIMESTAMP, longs.HEADER)
        )
        found = np.empty((1, contents.CHECKS), dtype=np.int64)
        kernels.check_batches(*one, found)
        rows = np.empty((2, contents.WORDS), dtype=np.uint64)
        self.of_contents = {
            int(found[0, contents.CHECK_STATUS]),
            kernels.list_contents(*one, SECRETS, rows)[0],
        }
        self.of_shard = kernels.newest_of_shard(
            *one, zero, keys(), used(), bits(), bits(), SECRETS, 0, 1
        )[0]
        payload = np.frombuffer(data, dtype=np.uint8)
        self.walked = kernels.walk(payload, 2)[0]


def test_two_sound_records_are_taken() -> None:
    found = Statuses(FIRST + record(SECOND))
    assert found.of_keys == {(walks.OK, 1)}
    assert found.of_timestamps == found.of_headers == (walks.OK, 1)
    assert (found.of_contents, found.of_shard) == ({contents.SOUND}, contents.SOUND)
    assert found.walked == 2


@pytest.mark.parametrize("damage", FIELDS)
def test_damaged_fields_are_refused_by_every_kernel(damage: str) -> None:
    found = Statuses(FIRST + FIELDS[damage])
    assert found.of_keys == {(walks.BAD_RECORD, 0)}
    assert found.of_timestamps == found.of_headers == (walks.BAD_RECORD, 0)
    assert (found.of_contents, found.of_shard) == ({contents.MALFORMED}, contents.MALFORMED)
    assert found.walked == 1


@pytest.mark.parametrize("damage", HEADERS)
def test_damaged_headers_are_refused_by_the_kernels_that_read_them(damage: str) -> None:
    found = Statuses(FIRST + HEADERS[damage])
    assert found.of_keys == {(walks.OK, 1)}
    assert found.of_timestamps == (walks.OK, 1)
    assert found.of_headers == (walks.BAD_RECORD, 0)
    assert (found.of_contents, found.of_shard) == ({contents.MALFORMED}, contents.MALFORMED)
    assert found.walked == 1


def test_equal_offsets_are_refused_by_the_kernels_that_compare_them() -> None:
    found = Statuses(FIRST + FIRST)
    assert found.of_keys == {(walks.BAD_RECORD, 0)}
    assert found.of_contents == {contents.NOT_ASCENDING}
    assert found.walked == 2


def test_varints_of_more_than_five_bytes_are_refused_in_appends_alone() -> None:
    long_form = HEAD + b"\x82\x80\x80\x80\x80\x00" + SECOND[3:]
    found = Statuses(FIRST + record(long_form))
    assert found.of_keys == {(walks.OK, 1)}
    assert found.of_contents == {contents.SOUND}
    assert found.walked == 1


def test_a_retained_record_is_not_read_beyond_its_batch() -> None:
    data = FIELDS["longer than the batch"]
    buffer = np.zeros(len(data) + 64, dtype=np.uint8)
    buffer[: len(data)] = np.frombuffer(data, dtype=np.uint8)
    table = np.zeros((1, rows_of.COLUMNS), dtype=np.int64)
    table[0, rows_of.COUNT] = 1
    out, meta = np.zeros(128, dtype=np.uint8), np.zeros(3, dtype=np.int64)
    keep = np.full(1, 1, dtype=np.uint8)
    for end, after in ((len(data), -1), (len(data) + 1, len(data) + 1)):
        found = kernels.retained_records(buffer, 0, end, table, 0, 0, keep, 0, False, out, 0, meta)
        assert found == after
