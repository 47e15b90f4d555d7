"""The kernels that encode rows and find the partitions of keys, against their twins."""

from __future__ import annotations

import random
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
from hypothesis import given
from hypothesis import strategies as st

from cordwood.client.partitioner import partition_of
from cordwood.format.batch_header import HEADER_BYTES, BatchHeader, build_header
from cordwood.format.native import kernels
from cordwood.format.native import record_fields as fields
from cordwood.format.native import record_rows as rows_of
from cordwood.format.record import Header, Record
from cordwood.format.record_batch import build_batch

Ints = npt.NDArray[np.int64]
#: What a batch's header has before its records are known.
EMPTY = BatchHeader(0, 0, 0, 2, 0, 0, 0, 0, 0, -1, -1, -1, 0)

values = st.none() | st.binary(max_size=200)
headers = st.lists(st.builds(Header, st.text(max_size=8), values), max_size=3).map(tuple)
Content = tuple[bytes | None, bytes | None, int, tuple[Header, ...]]

contents = st.tuples(values, values, st.integers(0, 1 << 40), headers)


def joined(parts: Sequence[bytes | None]) -> tuple[npt.NDArray[np.uint8], list[int], list[int]]:
    """(bytes, starts, sizes) of fields one behind the other; a null has the size -1."""
    starts, data = [], b""
    for part in parts:
        starts.append(len(data))
        data += part or b""
    sizes = [-1 if part is None else len(part) for part in parts]
    return np.frombuffer(data or b"\0", dtype=np.uint8), starts, sizes


class Rows:
    """Rows as the kernels take them."""

    def __init__(self, records: Sequence[Content]) -> None:
        self.keys, key_starts, key_sizes = joined([each[0] for each in records])
        self.values, value_starts, value_sizes = joined([each[1] for each in records])
        found = [header for each in records for header in each[3]]
        self.names, name_starts, name_sizes = joined([each.key.encode() for each in found])
        self.contents, content_starts, content_sizes = joined([each.value for each in found])
        columns = (name_starts, name_sizes, content_starts, content_sizes)
        self.headers = np.array(columns, dtype=np.int64).T.reshape(-1, fields.HEADER_COLUMNS).copy()
        self.rows = np.zeros((len(records), rows_of.COLUMNS), dtype=np.int64)
        self.rows[:, rows_of.TIMESTAMP] = [each[2] for each in records]
        self.rows[:, rows_of.KEY_START], self.rows[:, rows_of.KEY_SIZE] = key_starts, key_sizes
        self.rows[:, rows_of.VALUE_START] = value_starts
        self.rows[:, rows_of.VALUE_SIZE] = value_sizes
        counts = np.array([len(each[3]) for each in records], dtype=np.int64)
        self.rows[:, rows_of.HEADERS_COUNT] = counts
        self.rows[:, rows_of.HEADERS_FIRST] = np.cumsum(counts) - counts

    def put(
        self, order: Ints, first: int, out: npt.NDArray[np.uint8], state: Ints, bytes_max: int
    ) -> int:
        return kernels.put_records(
            self.keys, self.values, self.names, self.contents, self.rows, self.headers,
            order, first, len(order), bytes_max, out, state,
        )  # fmt: skip


@given(st.lists(contents, min_size=1, max_size=20), st.randoms(use_true_random=False))
def test_rows_become_the_records_that_the_plain_builder_writes(
    records: list[Content], shuffled: random.Random
) -> None:
    rows = Rows(records)
    order = list(range(len(records)))
    shuffled.shuffle(order)
    out = np.zeros(1 << 16, dtype=np.uint8)
    state = np.zeros(rows_of.STATES, dtype=np.int64)
    numbers = np.array(order, dtype=np.int64)
    assert rows.put(numbers, 0, out[HEADER_BYTES:], state, 1 << 16) == len(order)
    size = HEADER_BYTES + int(state[rows_of.USED])
    template = build_header(EMPTY._replace(last_offset_delta=len(order) - 1))
    source = np.frombuffer(template, dtype=np.uint8).copy()
    kernels.put_header(
        out, 0, source, 0, size, 0,
        int(state[rows_of.BASE_TIMESTAMP]), int(state[rows_of.MAX_TIMESTAMP]), len(order),
    )  # fmt: skip
    expected = build_batch(
        [
            Record(number, timestamp, key, value, found)
            for number, (key, value, timestamp, found) in enumerate(records[i] for i in order)
        ],
        base_offset=0,
        partition_leader_epoch=0,
    )
    assert out[:size].tobytes() == expected


def test_a_row_that_does_not_fit_is_left_and_its_size_said() -> None:
    rows = Rows([(b"k", b"v" * 100, 5, ())] * 3)
    order = np.arange(3, dtype=np.int64)
    state = np.zeros(rows_of.STATES, dtype=np.int64)
    out = np.zeros(250, dtype=np.uint8)
    assert rows.put(order, 0, out, state, 250) == 2
    assert state[rows_of.COUNT] == 2
    assert state[rows_of.SIZE_OF_NEXT] == state[rows_of.USED] / 2
    # A first one is taken beyond the bound, as long as there is space.
    state[:] = 0
    assert rows.put(order, 0, out, state, 10) == 1
    state[:] = 0
    assert rows.put(order, 2, out[:10], state, 10) == 2
    assert state[rows_of.COUNT] == 0
    assert state[rows_of.SIZE_OF_NEXT] > 100


@given(st.lists(st.none() | st.binary(max_size=40), min_size=1, max_size=20), st.integers(1, 50))
def test_keys_are_partitioned_as_by_the_client(keys: list[bytes | None], partitions: int) -> None:
    rows = Rows([(key, None, 0, ()) for key in keys])
    chosen = np.full(len(keys), -1, dtype=np.int64)
    chosen[0] = 7
    kernels.partition_rows(rows.keys, rows.rows, len(keys), partitions, chosen)
    assert chosen.tolist() == [
        7,
        *(-1 if key is None else partition_of(key, partitions) for key in keys[1:]),
    ]
