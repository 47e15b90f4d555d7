"""Estimates the number of different keys from the registers of a HyperLogLog.

Source: O. Ertl, New cardinality estimation algorithms for HyperLogLog sketches (2017), algorithm 6:
no bias for small and large counts, and no table of corrections. The standard error is 0.8 % with
the registers that there are.
"""

from __future__ import annotations

import math

import numpy as np

from cordwood.format.native.records import REGISTER_BITS, REGISTERS
from cordwood.storage.reading.block import Bytes

_RANKS = 64 - REGISTER_BITS
_ALPHA = 0.5 / math.log(2)


def new_registers() -> Bytes:
    """Registers of no key; those of a union of sets are the larger of both."""
    return np.zeros(REGISTERS, dtype=np.uint8)


def distinct_keys(registers: Bytes) -> int:
    """About how many keys there were."""
    counts = np.bincount(registers, minlength=_RANKS + 2).tolist()
    found = REGISTERS * _tau(1 - counts[_RANKS + 1] / REGISTERS)
    for rank in range(_RANKS, 0, -1):
        found = 0.5 * (found + counts[rank])
    found += REGISTERS * _sigma(counts[0] / REGISTERS)
    return round(_ALPHA * REGISTERS * REGISTERS / found)


def _sigma(share: float) -> float:
    if share == 1:
        return math.inf
    total, factor, before = share, 1.0, -1.0
    while total != before:
        share *= share
        before, total = total, total + share * factor
        factor += factor
    return total


def _tau(share: float) -> float:
    if share in {0, 1}:
        return 0.0
    total, factor, before = 1 - share, 1.0, -1.0
    while total != before:
        share = math.sqrt(share)
        factor *= 0.5
        before, total = total, total - (1 - share) ** 2 * factor
    return total / 3
