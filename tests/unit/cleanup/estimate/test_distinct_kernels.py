"""The kernels that watch keys, against a dictionary."""

from __future__ import annotations

import random
from collections.abc import Sequence

import numpy as np
import pytest

from cordwood.cleanup.estimate.distinct import distinct_keys, new_registers
from cordwood.cleanup.plan.key_secrets import Secrets
from cordwood.format.native import batches as rows_of
from cordwood.format.native import kernels, key_table, records
from cordwood.format.record_batch import Record, build_batch
from cordwood.storage.reading.block import Ints

SECRETS = Secrets.from_seed(7).words
_MASK = (1 << records.WATCHED_LEVEL_SHIFT) - 1


class Batches:
    """Some batches in memory, with all that the kernels take."""

    def __init__(self, keys: Sequence[Sequence[bytes | None]]) -> None:
        self.keys = keys
        data, offset = b"", 100
        for batch in keys:
            some = [Record(offset + i, 5, key, None) for i, key in enumerate(batch)]
            data += build_batch(some, base_offset=offset)
            offset += len(batch)
        self.buffer = np.frombuffer(data + bytes(64), dtype=np.uint8).copy()
        table = np.empty((len(keys), rows_of.COLUMNS), dtype=np.int64)
        rows, _, _ = kernels.scan_batches(self.buffer, 0, len(data), table, True)
        assert rows == len(keys)
        self.table = table
        self.spans = np.empty((rows, 2), dtype=np.int64)
        self.spans[:, 0] = table[:, rows_of.POSITION] + rows_of.HEADER_SIZE
        self.spans[:, 1] = table[:, rows_of.POSITION] + table[:, rows_of.SIZE]
        counts = table[:, rows_of.COUNT]
        self.numbers: Ints = np.cumsum(counts) - counts

    def watch(self, levels: list[int], *, first_dirty: int, slots: int = 1 << 12) -> Watched:
        found = Watched(slots)
        status, row = kernels.watch_batches(
            self.buffer,
            self.table,
            0,
            len(levels),
            self.spans,
            first_dirty,
            self.numbers,
            np.array(levels, dtype=np.int64),
            found.table,
            found.used,
            found.registers,
            SECRETS,
        )
        found.status, found.row = status, row
        return found

    def judge(self, watched: Watched) -> list[list[bool]]:
        """Whether each record survives; only batches that were watched may be looked at."""
        keep, nulls = np.zeros((2, 1 << 10), dtype=np.uint8)
        status, _ = kernels.judge_watched(
            self.buffer,
            self.table,
            0,
            len(self.keys),
            self.spans,
            self.numbers,
            self.numbers,
            watched.table,
            keep,
            nulls,
            SECRETS,
        )
        assert status == records.OK
        bits = np.unpackbits(keep, bitorder="little").astype(bool).tolist()
        total = sum(map(len, self.keys))
        assert np.unpackbits(nulls, bitorder="little").sum() == total
        return [
            bits[first : first + len(batch)]
            for first, batch in zip(self.numbers.tolist(), self.keys, strict=True)
        ]


class Watched:
    """Results of a call of `watch_batches`."""

    def __init__(self, slots: int) -> None:
        self.table = key_table.new_table(slots)
        self.used = np.zeros(1, dtype=np.int64)
        self.registers = new_registers()
        self.status = self.row = 0

    def entries(self) -> dict[tuple[int, ...], tuple[int, int]]:
        """Level and newest record, by identity."""
        return {
            tuple(row[:3]): (row[3] >> records.WATCHED_LEVEL_SHIFT, row[3] & _MASK)
            for row in self.table.tolist()
            if row[3]
        }


def identity_of(key: bytes) -> tuple[int, ...]:
    out = np.zeros(3, dtype=np.uint64)
    buffer = np.frombuffer(key + bytes(64), dtype=np.uint8)
    kernels.identify(buffer.copy(), 0, len(key), SECRETS, out)
    return tuple(out.tolist())


def random_batches(seed: int) -> Batches:
    rng = random.Random(seed)
    keys = [b"key-%d" % n * rng.choice([1, 6]) for n in range(rng.choice([1, 20, 300]))]
    return Batches(
        [
            [rng.choice(keys) if rng.random() < 0.95 else None for _ in range(rng.randint(1, 300))]
            for _ in range(12)
        ]
    )


@pytest.mark.parametrize("seed", range(20))
def test_watched_keys_have_their_newest_record_and_their_highest_level(seed: int) -> None:
    rng = random.Random(seed)
    batches = random_batches(seed)
    levels = [rng.choice([-1, 0, 3, 62]) for _ in batches.keys]
    first_dirty = 100 + int(batches.numbers[4]) + 1
    expected: dict[tuple[int, ...], tuple[int, int]] = {}
    number = 0
    for batch, level in zip(batches.keys, levels, strict=True):
        for key in batch:
            is_dirty = 100 + number >= first_dirty
            newest = number + records.WATCHED_FIRST if is_dirty else records.WATCHED_NONE
            number += 1
            if key is None:
                continue
            known = expected.get(identity_of(key))
            if known is not None:
                expected[identity_of(key)] = max(known[0], level), max(known[1], newest)
            elif level >= 0:
                expected[identity_of(key)] = level, newest
    watched = batches.watch(levels, first_dirty=first_dirty)
    assert watched.status == records.OK
    assert watched.entries() == expected
    assert watched.used[0] == len(expected)


@pytest.mark.parametrize("seed", range(20))
def test_a_record_survives_if_no_later_dirty_one_has_its_key(seed: int) -> None:
    batches = random_batches(seed)
    first_dirty = 100 + int(batches.numbers[seed % 12])
    watched = batches.watch([0] * len(batches.keys), first_dirty=first_dirty)
    assert watched.status == records.OK
    every = [key for batch in batches.keys for key in batch]
    newest = {key: n for n, key in enumerate(every) if 100 + n >= first_dirty}
    verdicts = [verdict for batch in batches.judge(watched) for verdict in batch]
    for number, (key, verdict) in enumerate(zip(every, verdicts, strict=True)):
        assert verdict == (key is not None and newest.get(key, -1) <= number)


def test_all_dirty_keys_are_counted_whether_they_are_watched_or_not() -> None:
    batches = Batches([[b"k%d" % (200 * n + i) for i in range(200)] for n in range(10)])
    watched = batches.watch([-1] * 10, first_dirty=100 + 1_000)
    assert watched.used[0] == 0
    assert 950 < distinct_keys(watched.registers) < 1_050
    again = Batches([[b"k%d" % i for i in range(1_000, 2_000)] * 2])
    assert (again.watch([-1], first_dirty=0).registers == watched.registers).all()


def test_a_table_without_space_for_a_watched_batch_is_full_before_it() -> None:
    batches = Batches([[b"k%d" % i for i in range(n * 8, n * 8 + 8)] for n in range(4)])
    watched = batches.watch([0, -1, 0, 0], first_dirty=0, slots=32)
    assert (watched.status, watched.row) == (records.TABLE_FULL, 3)
    assert watched.used[0] == 16


def test_a_malformed_record_is_found() -> None:
    batches = Batches([[b"k1", b"k2"], [b"k3"]])
    batches.buffer[int(batches.spans[1, 0])] = 0x7F
    watched = batches.watch([0, 0], first_dirty=0)
    assert (watched.status, watched.row) == (records.BAD_RECORD, 1)
