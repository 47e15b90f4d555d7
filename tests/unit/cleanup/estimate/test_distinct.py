"""The count of different keys from registers."""

from __future__ import annotations

import numpy as np
import pytest

from cordwood.cleanup.estimate.distinct import distinct_keys, new_registers
from cordwood.format.native.records import REGISTER_BITS
from cordwood.storage.reading.block import Bytes


def registers_of(hashes: list[int]) -> Bytes:
    """Registers as `kernels.watch_batches` raises them."""
    registers = new_registers()
    for each in hashes:
        rest = each << REGISTER_BITS & (1 << 64) - 1
        rank = min(64 - rest.bit_length() + 1, 64 - REGISTER_BITS + 1)
        at = each >> 64 - REGISTER_BITS
        registers[at] = max(registers[at], rank)
    return registers


def hashes(count: int, *, seed: int) -> list[int]:
    words = np.random.default_rng(seed).integers(0, 1 << 64, count, dtype=np.uint64)
    return [int(word) for word in words]


@pytest.mark.parametrize("count", [0, 1, 2, 10, 300, 5_000, 40_000, 120_000])
def test_the_count_is_within_four_standard_errors(count: int) -> None:
    found = distinct_keys(registers_of(hashes(count, seed=count)))
    assert abs(found - count) <= 4 * 0.0082 * count + 0.5


def test_a_key_counts_once_and_the_order_does_not_matter() -> None:
    some = hashes(2_000, seed=1)
    once = registers_of(some)
    assert (registers_of([*some, *reversed(some)]) == once).all()


def test_registers_of_parts_together_are_those_of_the_whole() -> None:
    parts = [hashes(1_000, seed=seed) for seed in range(3)]
    one, two, three = map(registers_of, parts)
    whole = registers_of([each for part in parts for each in part])
    assert (np.maximum(np.maximum(one, two), three) == whole).all()
    assert (np.maximum(one, np.maximum(two, three)) == whole).all()
    assert distinct_keys(np.maximum(one, one)) == distinct_keys(one)


def test_registers_that_are_all_full_give_a_large_number() -> None:
    full = np.full_like(new_registers(), 64 - REGISTER_BITS + 1)
    with pytest.raises(ZeroDivisionError):
        distinct_keys(full)
