"""Of each key the record of the highest version survives, whenever the log is cleaned (KIP-280)."""

from __future__ import annotations

import itertools
import random
from dataclasses import replace
from pathlib import Path

import pytest

from cordwood.cleanup.engine import tasks
from cordwood.cleanup.engine.rewrite import GroupRewriter
from cordwood.cleanup.plan.cleaner_settings import CleanerSettings
from cordwood.cleanup.plan.compaction import plan_compaction
from cordwood.cleanup.plan.compaction_values import Manifest
from cordwood.cleanup.plan.log_compaction import LogCompaction, prepare_compaction
from cordwood.cleanup.plan.rewrite_spec import RewriteSpec
from cordwood.cleanup.rules.cleanable import plan_cleanable
from cordwood.configs.log_config import LogConfig
from cordwood.format.record_batch import Header, Record, build_batch
from cordwood.storage.log.partition_log import PartitionLog
from cordwood.testing.reference_cleaner import clean_by_reference
from support.explained_log import HOUR_MS, ExplainedLog
from support.log_builder import NOW_MS
from support.random_log import Contents, random_log
from support.running_logs import read_records
from support.whole_compaction import survivors_of

CONFIG = LogConfig(
    cleanup_policy=frozenset({"compact"}),
    segment_bytes=1 << 20,
    min_cleanable_dirty_ratio=0.01,
    delete_retention_ms=24 * HOUR_MS,
    cordwood_compaction_strategy_header="v",
)
KEYS, CHANGES = 9, 60


def changes(rng: random.Random) -> list[tuple[bytes, int | None, int, bytes | None]]:
    """(key, version, timestamp, value) of changes of rows, as a faulty pipeline delivers them."""
    made = []
    for number in range(CHANGES):
        version = None if rng.random() < 0.1 else rng.randint(-2, 9)
        value = None if rng.random() < 0.2 else b"%d" % number
        made.append((b"key-%d" % rng.randrange(KEYS), version, rng.randint(1, 20), value))
    return made


def append(log: PartitionLog, change: tuple[bytes, int | None, int, bytes | None]) -> None:
    key, version, timestamp, value = change
    headers = () if version is None else (Header("v", version.to_bytes(8, "big", signed=True)),)
    record = Record(0, NOW_MS + timestamp, key, value, headers)
    log.append_as_leader(build_batch([record], base_offset=0))
    log.update_high_watermark(log.log_end_offset)


def highest(made: list[tuple[bytes, int | None, int, bytes | None]], strategy: str) -> set[int]:
    """The offsets of the highest versions: a dict, and nothing else."""
    best: dict[bytes, tuple[float, int]] = {}
    for offset, (key, version, timestamp, _) in enumerate(made):
        by = {"offset": 0.0, "timestamp": float(timestamp)}
        rank = by.get(strategy, float("-inf") if version is None else float(version)), offset
        best[key] = max(rank, best.get(key, rank))
    return {offset for _, offset in best.values()}


SEEDS = (
    pytest.param(range(6), id="few"),
    pytest.param(range(100, 300), id="many", marks=pytest.mark.nightly),
)


@pytest.mark.parametrize("strategy", ["offset", "timestamp", "header"])
@pytest.mark.parametrize("seeds", SEEDS)
def test_the_highest_version_wins_whenever_the_log_is_cleaned(
    tmp_path: Path, seeds: range, strategy: str
) -> None:
    for seed in seeds:
        rng = random.Random(seed)
        made = changes(rng)
        config = replace(CONFIG, cordwood_compaction_strategy=strategy)
        log = ExplainedLog(tmp_path / str(seed), config, CleanerSettings())
        for change in made:
            append(log.log, change)
            if rng.random() < 0.1:
                log.log.roll()
            if rng.random() < 0.1:
                log.check()
        append(log.log, (b"last", 0, 0, b""))
        log.log.roll()
        log.log.update_high_watermark(log.log.log_end_offset)
        log.check()
        left = {record.offset for record in read_records(log.log)}
        assert left == highest(made, strategy) | {len(made)}, seed


def staged_logs(spec: RewriteSpec, manifest: Manifest) -> bytes:
    """The batches of a rewritten group, of all its segments."""
    bases = [each.base_offset for each in manifest.segments]
    return b"".join(spec.staged.at(base).paths()[".log"].read_bytes() for base in bases)


def put_in_place(compaction: LogCompaction, survivors: tasks.Survivors, count: int) -> None:
    """Does what a run did that was killed after so many groups."""
    specs = tasks.rewrite_specs(compaction, survivors)
    for number in range(count):
        if number not in specs:
            continue
        manifest = GroupRewriter().rewrite(specs[number])
        group = compaction.group(number)
        for source in group[1:]:
            Path(source.path).unlink()
        Path(group[0].path).write_bytes(staged_logs(specs[number], manifest))


@pytest.mark.parametrize("strategy", ["timestamp", "header"])
@pytest.mark.parametrize("seeds", SEEDS)
def test_a_compaction_that_was_killed_continues_with_the_same_result(
    tmp_path: Path, seeds: range, strategy: str
) -> None:
    compared = 0
    for seed in seeds:
        log = random_log(seed, Contents(batches=60, roll=0.3, keys=6, versions=True))
        directory = log.write(tmp_path / str(seed) / "log-0")
        config = replace(
            CONFIG,
            cordwood_compaction_strategy=strategy,
            segment_bytes=2_000,
            index_interval_bytes=log.index_interval_bytes,
        )
        captured = log.capture(directory, config)
        cleanable = plan_cleanable(captured.view, now_ms=NOW_MS, force=True)
        if cleanable.reason is not None:
            continue
        plan = plan_compaction(captured.view, cleanable)
        compaction = prepare_compaction(captured, plan, now_ms=NOW_MS, seed=seed)
        if len(compaction.groups) < 2:
            continue
        expected = clean_by_reference(compaction)
        done = random.Random(seed).randrange(1, len(compaction.groups))
        specs = tasks.rewrite_specs(compaction, survivors_of(compaction))
        before = [spec.before for number, spec in sorted(specs.items()) if number >= done]
        if not before:
            continue
        put_in_place(compaction, survivors_of(compaction), done)
        there = [source for source in compaction.segments if Path(source.path).exists()]
        ends = [each.base_offset for each in there[1:]] + [there[-1].next_base_offset]
        sources = [
            replace(each, size_bytes=Path(each.path).stat().st_size, next_base_offset=end)
            for each, end in zip(there, ends, strict=True)
        ]
        resumed = replace(compaction, groups_done=done, before=before[0].to_json()).over(sources)
        rest = tasks.rewrite_specs(resumed, survivors_of(resumed))
        for number, spec in rest.items():
            written = staged_logs(spec, GroupRewriter().rewrite(spec))
            assert written == expected[number].files[".log"], (seed, number)
            compared += 1
    assert compared > len(seeds)


#: Changes of a row, by the version that the source database gave them; one has lost its header.
DELIVERED = ((1, b"first"), (2, b"second"), (2, b"second, again"), (None, b"anomalous"))


@pytest.mark.parametrize("cleaned_after", list(itertools.product([False, True], repeat=3)))
def test_rows_end_the_same_in_whatever_order_changes_come_and_logs_are_cleaned(
    tmp_path: Path, cleaned_after: tuple[bool, ...]
) -> None:
    """Each order of delivery is a row of one log; which of the deliveries are cleaned varies."""
    config = replace(CONFIG, cordwood_compaction_strategy="header")
    log = ExplainedLog(tmp_path, config, CleanerSettings())
    orders = list(itertools.permutations(DELIVERED))
    for turn, is_cleaned in enumerate((*cleaned_after, True)):
        for number, order in enumerate(orders):
            version, value = order[turn]
            # Neither the time of delivery nor that of the change decides.
            append(log.log, (b"row-%d" % number, version, 10 - turn, value))
        log.log.roll()
        log.log.update_high_watermark(log.log.log_end_offset)
        if is_cleaned:
            before = log.log.size_bytes
            log.check()
            assert turn == 0 or log.log.size_bytes < before
    left = {record.key: record.value for record in read_records(log.log)}
    assert left == {
        # Of equal versions that counts which came later, and none without a version does.
        b"row-%d" % number: [value for version, value in order if version == 2][-1]
        for number, order in enumerate(orders)
    }
    assert len(read_records(log.log)) == len(orders)
