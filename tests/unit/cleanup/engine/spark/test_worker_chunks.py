"""Logs that are read in chunks: the newest chunk decides, in whatever order their keys arrive."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from cordwood.cleanup.access.announcements import begin_attempt
from cordwood.cleanup.engine.spark import worker
from cordwood.cleanup.engine.spark.job import _survivors_from
from cordwood.cleanup.engine.spark.runner import Block, Row
from cordwood.cleanup.engine.tasks import Survivors
from cordwood.cleanup.engine.whole import Lane
from cordwood.cleanup.plan.attempt import Attempt
from cordwood.cleanup.plan.compaction import plan_compaction
from cordwood.cleanup.plan.log_compaction import LogCompaction, prepare_compaction, split_by_bytes
from cordwood.cleanup.rules.cleanable import plan_cleanable
from cordwood.configs.log_config import LogConfig
from cordwood.storage.filesystem import OS
from cordwood.storage.reading.source import SegmentSource
from support.log_builder import NOW_MS, LogBuilder
from support.whole_compaction import survivors_of

SEGMENTS = 5
FIRST_DIRTY = 4
"""The first two segments are clean."""
NEWEST = [1, 3, 5, 6, 7, 8, 9]
HIGHEST = [1, 2, 3, 5, 7, 8, 9]


def compaction_of(root: Path, *, clean_to: int = 0, versions: bool = False) -> LogCompaction:
    """Of five segments of two records: a key that all but the last have, and one of its own.

    With `versions` the first two have the highest timestamp.
    """
    log = LogBuilder()
    for number in range(SEGMENTS):
        log.batch(
            [(b"last" if number == SEGMENTS - 1 else b"all", b"v"), (b"%d" % number, b"v")],
            timestamp=NOW_MS - 1_000 * (number // 2 if versions else SEGMENTS - number),
        )
        log.roll()
    directory = log.write(root / "log-0")
    config = LogConfig(
        cleanup_policy=frozenset({"compact"}),
        cordwood_compaction_strategy="timestamp" if versions else "offset",
    )
    log.cleaner_checkpoint = clean_to or None
    captured = log.capture(directory, config)
    plan = plan_compaction(captured.view, plan_cleanable(captured.view, now_ms=NOW_MS, force=True))
    found = prepare_compaction(captured, plan, now_ms=NOW_MS, seed=5)
    begin_attempt(directory, "one", fs=OS)
    return replace(found, attempt=Attempt(token="one"))


def kept(survivors: Survivors) -> list[int]:
    """The offsets of the records that survive."""
    return [
        base + bit
        for base, facts in sorted(survivors.facts.items())
        for bit in range(2)
        if facts.keep[0] >> bit & 1
    ]


def blocks_of(
    compaction: LogCompaction, chunks: Sequence[tuple[Sequence[SegmentSource], bool]]
) -> list[Block]:
    """The keys of all chunks."""
    plan = json.dumps(compaction.to_json())
    return [
        block
        for number, (segments, is_clean) in enumerate(chunks)
        for block in worker.index(plan, number, segments, is_clean, 1, 100, OS)
    ]


def merged(compaction: LogCompaction, blocks: Sequence[Block], clean: Sequence[bool]) -> list[int]:
    is_versioned = compaction.rules.versions is not None
    rows: list[Row] = list(
        worker.merge_shard(blocks, compaction.seed, clean, versions=is_versioned)
    )
    return kept(_survivors_from(rows))


def in_all_orders(blocks: Sequence[Block], chunks: int) -> Iterator[list[Block]]:
    """The blocks as they may arrive: chunk by chunk in any order."""
    by_chunk = [[each for each in blocks if each.chunk == number] for number in range(chunks)]
    for order in itertools.permutations(by_chunk):
        yield [block for each in order for block in each]


@pytest.mark.parametrize("parts", range(1, 4))
@pytest.mark.parametrize("clean_to", [0, FIRST_DIRTY])
def test_the_newest_record_of_a_key_survives_in_whatever_order_chunks_are_merged(
    tmp_path: Path, clean_to: int, parts: int
) -> None:
    compaction = compaction_of(tmp_path, clean_to=clean_to)
    chunks = [(chunk, False) for chunk in split_by_bytes(compaction.dirty, parts)]
    chunks += [(chunk, True) for chunk in split_by_bytes(compaction.clean, 2)]
    blocks = blocks_of(compaction, chunks)
    for mixed in in_all_orders(blocks, len(chunks)):
        assert merged(compaction, mixed, [is_clean for _, is_clean in chunks]) == NEWEST


@pytest.mark.parametrize("parts", range(1, 5))
def test_the_highest_version_of_a_key_survives_in_whatever_order_chunks_are_merged(
    tmp_path: Path, parts: int
) -> None:
    compaction = compaction_of(tmp_path, versions=True)
    chunks = [(chunk, False) for chunk in split_by_bytes(compaction.segments, parts)]
    blocks = blocks_of(compaction, chunks)
    for mixed in in_all_orders(blocks, len(chunks)):
        assert merged(compaction, mixed, [False] * len(chunks)) == HIGHEST


def test_of_one_chunk_the_keys_that_were_spilled_last_are_the_newest() -> None:
    blocks = [
        Block(0, 0, generation, worker.ENTRIES, np.array([7, 7, 7, generation], "u8").tobytes())
        for generation in range(3)
    ]
    for order in itertools.permutations(blocks):
        rows = list(worker.merge_shard(order, 5, [False], versions=False))
        dead = [int(each) for row in rows for each in np.frombuffer(row.payload, np.uint32)]
        assert sorted(dead) == [0, 1]


@pytest.mark.parametrize("cores", range(1, SEGMENTS + 2))
def test_the_newest_record_of_a_key_survives_on_any_number_of_cores(
    tmp_path: Path, cores: int
) -> None:
    assert kept(survivors_of(compaction_of(tmp_path), [Lane()] * cores)) == NEWEST
    compaction = compaction_of(tmp_path / "clean", clean_to=FIRST_DIRTY)
    assert kept(survivors_of(compaction, [Lane()] * cores)) == NEWEST
    versions = compaction_of(tmp_path / "versions", versions=True)
    assert kept(survivors_of(versions, [Lane()] * cores)) == HIGHEST


@pytest.mark.parametrize("parts", range(1, SEGMENTS + 2))
def test_chunks_are_consecutive_segments_in_the_order_of_the_log(
    tmp_path: Path, parts: int
) -> None:
    segments = compaction_of(tmp_path).segments
    chunks = split_by_bytes(segments, parts)
    assert [each for chunk in chunks for each in chunk] == list(segments)
    assert len(chunks) == min(parts, SEGMENTS)
