"""Merges the entries of a shard: which ones a newer entry, or a higher version, supersedes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from cordwood.cleanup.plan.key_secrets import Secrets
from cordwood.format.native import kernels, key_table

TABLE_SLOTS_MIN = 1 << 12


def merge(
    generations: Iterator[tuple[bool, npt.NDArray[np.uint64]]],
    secrets: Secrets,
    *,
    expected: int,
) -> Iterator[npt.NDArray[np.uint64]]:
    """Yields for each generation of one shard, newest first, the ordinals that newer ones beat.

    Args:
        generations: (of the clean section, uint64 of shape (n, 4): identities, and ordinals within
            their chunk). The clean section comes last; its entries are only looked up.
        secrets: those the entries were made with.
        expected: about how many entries there are in all; a hint.
    """
    slots = TABLE_SLOTS_MIN
    while slots < 2 * expected:
        slots *= 2
    table = key_table.new_table(slots)
    used = np.zeros(1, dtype=np.int64)
    for is_clean, entries in generations:
        while (int(used[0]) + len(entries)) * 2 > table.shape[0]:
            table = kernels.grow_table(table, 2 * table.shape[0], secrets.words)
        dead = np.empty(len(entries), dtype=np.uint64)
        count = kernels.merge_entries(entries, table, used, dead, secrets.words, not is_clean)
        yield dead[:count]


@dataclass(frozen=True, slots=True)
class Versions:
    """Entries of versions: those of one generation of a chunk, by the number of the chunk."""

    chunk: int
    entries: npt.NDArray[np.uint64]


def merge_versions(
    generations: Sequence[Versions], secrets: Secrets, *, expected: int
) -> Iterator[tuple[npt.NDArray[np.uint64], npt.NDArray[np.uint64]]]:
    """Yields for each generation of one shard the ordinals that others beat, and the pinned ones.

    Args:
        generations: the oldest first, which is what breaks ties.
        secrets: those the entries were made with.
        expected: about how many entries there are in all; a hint.
    """
    slots = TABLE_SLOTS_MIN
    while slots < 2 * expected:
        slots *= 2
    table = key_table.new_table(slots, key_table.VERSIONED_SLOT_WORDS)
    used = np.zeros(1, dtype=np.int64)
    for each in generations:
        while (int(used[0]) + len(each.entries)) * 2 > table.shape[0]:
            table = kernels.grow_table(table, 2 * table.shape[0], secrets.words)
        kernels.put_versions(each.entries, table, used, each.chunk, secrets.words)
    for each in generations:
        dead, pinned = np.empty((2, len(each.entries)), dtype=np.uint64)
        lost, held = kernels.judge_versions(
            each.entries, table, each.chunk, dead, pinned, secrets.words
        )
        yield dead[:lost], pinned[:held]
