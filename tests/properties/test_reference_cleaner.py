"""The fast cleaner gives, file by file, the bytes of the slow and obvious one."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import numpy.typing as npt
from hypothesis import given, settings
from hypothesis import strategies as st

from cordwood.cleanup.engine import tasks
from cordwood.cleanup.engine.merge import Versions, merge, merge_versions
from cordwood.cleanup.engine.rewrite import GroupRewriter
from cordwood.cleanup.engine.segment_facts import (
    SegmentFacts,
    clear_dead,
    facts_from_json,
    facts_to_json,
    set_pinned,
)
from cordwood.cleanup.engine.survivors import Spill, Walk
from cordwood.cleanup.engine.whole import Lane
from cordwood.cleanup.plan.compaction import plan_compaction
from cordwood.cleanup.plan.key_secrets import Secrets
from cordwood.cleanup.plan.log_compaction import LogCompaction, prepare_compaction, split_by_bytes
from cordwood.cleanup.rules.cleanable import plan_cleanable
from cordwood.configs.log_config import LogConfig
from cordwood.format.native import key_table
from cordwood.storage.reading.aborted import AbortedTransactions
from cordwood.testing.reference_cleaner import CleanedSegment, segments_by_reference
from support.log_builder import NOW_MS, LogBuilder
from support.random_log import Contents, random_log
from support.whole_compaction import survivors_of, verify_rewritten

SEEDS = st.integers(0, 2**40)
CONTENTS = st.builds(
    Contents,
    batches=st.integers(1, 60),
    records_max=st.sampled_from([1, 3, 8, 40]),
    keys=st.sampled_from([1, 4, 12, 60]),
    value_bytes_max=st.sampled_from([1, 40, 400]),
    roll=st.sampled_from([0.0, 0.1, 0.3]),
    legacy=st.booleans(),
    transactions=st.booleans(),
    unkeyed=st.booleans(),
    index_interval_bytes=st.sampled_from([0, 200, 4096]),
)


STRATEGIES = st.sampled_from(["timestamp", "header"])
fewer = settings(max_examples=settings().max_examples // 6)
VERSIONED = CONTENTS.map(lambda contents: replace(contents, versions=True))


def planned(
    log: LogBuilder, directory: Path, seed: int, strategy: str = "offset", ttl_header: str = ""
) -> LogCompaction | None:
    """A compaction of a written log, with segments of a random size; None when nothing is dirty."""
    rng = random.Random(seed)
    config = LogConfig(
        cleanup_policy=frozenset({"compact"}),
        segment_bytes=rng.choice([300, 2_000, 100_000]),
        segment_index_bytes=rng.choice([24, 10_000]),
        index_interval_bytes=log.index_interval_bytes,
        delete_retention_ms=rng.choice([0, 1, 86_400_000, 400_000_000]),
        cordwood_compaction_strategy=strategy,
        cordwood_compaction_strategy_header="v",
        cordwood_record_ttl_header=ttl_header,
    )
    captured = log.capture(directory, config)
    cleanable = plan_cleanable(captured.view, now_ms=NOW_MS, force=True)
    if cleanable.reason is not None:
        return None
    plan = plan_compaction(captured.view, cleanable)
    return prepare_compaction(captured, plan, now_ms=NOW_MS, seed=seed)


def rewritten(
    compaction: LogCompaction, survivors: tasks.Survivors
) -> list[list[dict[str, bytes]]]:
    """The files that each group ends as, of each segment by suffix."""
    specs = tasks.rewrite_specs(compaction, survivors)
    rewriter = GroupRewriter()
    groups = []
    for number in range(len(compaction.groups)):
        if number not in specs:
            source = Path(compaction.group(number)[0].path)
            groups.append(
                [
                    {
                        suffix: path.read_bytes()
                        for suffix in (".log", ".index", ".timeindex", ".txnindex")
                        if (path := source.with_suffix(suffix)).exists()
                    }
                ]
            )
            continue
        staged = replace(specs[number].staged, token=f"t{number}")
        manifest = rewriter.rewrite(replace(specs[number], staged=staged))
        verify_rewritten(compaction, replace(specs[number], staged=staged), manifest)
        last = compaction.group(number)[-1].modified_ns
        segments = []
        for each in manifest.segments:
            paths = staged.at(each.base_offset).paths()
            paths = {suffix: path for suffix, path in paths.items() if path.exists()}
            modified = {
                path.stat().st_mtime_ns for suffix, path in paths.items() if suffix != ".txnindex"
            }
            assert modified == {last // 1_000_000 * 1_000_000}
            segments.append({suffix: path.read_bytes() for suffix, path in paths.items()})
        groups.append(segments)
    return groups


def assert_same(groups: list[list[dict[str, bytes]]], expected: list[list[CleanedSegment]]) -> None:
    for group, cleaned in zip(groups, expected, strict=True):
        for segment, of_reference in zip(group, cleaned, strict=True):
            assert segment.keys() == of_reference.files.keys(), of_reference.base_offset
            for suffix, data in of_reference.files.items():
                assert segment[suffix] == data, f"{of_reference.base_offset}{suffix}"


def facts_of(survivors: tasks.Survivors) -> dict[int, tuple[object, ...]]:
    return {
        base: (
            f.records,
            f.batches,
            f.aborted,
            f.keep,
            f.nulls,
            f.pinned,
            f.expired,
            f.transactions.to_json(),
        )
        for base, f in survivors.facts.items()
    }


def walk_to_end(steps: Iterator[Spill], into: list[Spill]) -> list[SegmentFacts]:
    while True:
        try:
            into.append(next(steps))
        except StopIteration as stop:
            found: list[SegmentFacts] = stop.value
            return found


def survivors_by_merge(
    compaction: LogCompaction, rng: random.Random, secrets: Secrets, *, probe: bool
) -> tasks.Survivors:
    """Survivors found in chunks that spill early, merged shard by shard."""
    shards = rng.randint(1, 4)
    chunks = [(c, False) for c in split_by_bytes(compaction.dirty, rng.randint(1, 4))]
    clean = split_by_bytes(compaction.clean, rng.randint(1, 3))
    if not probe:
        chunks += [(c, True) for c in clean]
    facts: list[list[SegmentFacts]] = []
    blocks: list[tuple[bool, int, int, npt.NDArray[np.uint64], int]] = []
    for number, (segments, is_clean) in enumerate(chunks):
        walk = walk_with(compaction, secrets)
        walk.table = key_table.new_table(4)
        spills: list[Spill] = []
        step = walk.spill_clean if is_clean else walk.index
        found = walk_to_end(
            step(segments, entries_max=rng.choice([1, 5, 50]), shards=shards), spills
        )
        facts.append(facts_from_json(facts_to_json(found)))
        for spill in spills:
            for shard in range(shards):
                entries = spill.entries[spill.starts[shard] : spill.starts[shard + 1]]
                blocks.append((is_clean, -number, -spill.generation, entries, shard))
    identities = [b[3] for b in blocks]
    for shard in range(shards):
        mine = sorted((b for b in blocks if b[4] == shard), key=lambda b: b[:3])
        dead = merge(((b[0], b[3]) for b in mine), secrets, expected=1)
        for block, ordinals in zip(mine, dead, strict=True):
            clear_dead(facts[-block[1]], ordinals)
    if probe:
        # What has expired has no entry; there may be no other record.
        known = [np.empty((0, 3), dtype=np.uint64), *(each[:, :3] for each in identities)]
        for segments in clean:
            walk = walk_with(compaction, secrets)
            walk.load_entries(np.concatenate(known))
            facts.append(walk.probe(segments))
    return tasks.combine([f for chunk in facts for f in chunk])


def walk_with(compaction: LogCompaction, secrets: Secrets) -> Walk:
    return Walk(
        first_dirty=compaction.first_dirty,
        aborted=AbortedTransactions(compaction.aborted),
        secrets=secrets,
        rules=compaction.rules,
    )


@given(seed=SEEDS, contents=CONTENTS)
def test_one_task_gives_the_bytes_of_the_reference(seed: int, contents: Contents) -> None:
    log = random_log(seed, contents)
    with TemporaryDirectory() as root:
        compaction = planned(log, log.write(Path(root) / "log-0"), seed)
        if compaction is None:
            return
        expected = segments_by_reference(compaction)
        assert_same(rewritten(compaction, survivors_of(compaction)), expected)


@given(seed=SEEDS, contents=CONTENTS, cores=st.integers(2, 5))
def test_a_task_on_several_cores_finds_what_it_finds_on_one(
    seed: int, contents: Contents, cores: int
) -> None:
    log = random_log(seed, contents)
    with TemporaryDirectory() as root:
        compaction = planned(log, log.write(Path(root) / "log-0"), seed)
        if compaction is None:
            return
        alone = survivors_of(compaction)
        assert survivors_of(compaction, [Lane()] * cores) == alone


@given(seed=SEEDS, contents=CONTENTS, probe=st.booleans())
def test_chunks_that_spill_and_merge_find_the_survivors_of_one_task(
    seed: int, contents: Contents, probe: bool
) -> None:
    log = random_log(seed, contents)
    with TemporaryDirectory() as root:
        compaction = planned(log, log.write(Path(root) / "log-0"), seed)
        if compaction is None:
            return
        secrets = Secrets.from_seed(compaction.seed)
        merged = survivors_by_merge(compaction, random.Random(seed), secrets, probe=probe)
        assert facts_of(merged) == facts_of(survivors_of(compaction))


@given(seed=SEEDS, bits=st.sampled_from([0, 1, 3]), probe=st.booleans(), contents=CONTENTS)
def test_keys_that_share_their_first_hash_are_told_apart(
    seed: int, bits: int, probe: bool, contents: Contents
) -> None:
    log = random_log(seed, contents)
    with TemporaryDirectory() as root:
        compaction = planned(log, log.write(Path(root) / "log-0"), seed)
        if compaction is None:
            return
        weak = Secrets.from_seed(compaction.seed, mask=bits)
        merged = survivors_by_merge(compaction, random.Random(seed), weak, probe=probe)
        assert_same(rewritten(compaction, merged), segments_by_reference(compaction))


@given(seed=SEEDS, contents=CONTENTS)
def test_a_round_goes_on_from_any_group_with_the_same_bytes(seed: int, contents: Contents) -> None:
    log = random_log(seed, contents)
    with TemporaryDirectory() as root:
        compaction = planned(log, log.write(Path(root) / "log-0"), seed)
        if compaction is None:
            return
        whole = tasks.rewrite_specs(compaction, survivors_of(compaction))
        done = random.Random(seed).randrange(len(compaction.groups) + 1)
        before = [whole[n].after.to_json() for n in whole if n < done]
        first = min((n for n in whole if n >= done), default=None)
        if first is None or (not before and done):
            return
        resumed = replace(compaction, groups_done=done, before=whole[first].before.to_json())
        rest = tasks.rewrite_specs(resumed, survivors_of(resumed))
        # What a bitmap says of records of groups in place no longer matters.
        assert {n: spec for n, spec in whole.items() if n >= first} == {
            n: replace(spec, compaction=compaction) for n, spec in rest.items() if n >= first
        }


def versions_by_merge(
    compaction: LogCompaction, rng: random.Random, secrets: Secrets
) -> tasks.Survivors:
    """Survivors by version, found in chunks that spill early, merged shard by shard."""
    shards = rng.randint(1, 4)
    facts: list[list[SegmentFacts]] = []
    blocks: list[tuple[int, Versions]] = []
    for number, segments in enumerate(split_by_bytes(compaction.dirty, rng.randint(1, 4))):
        walk = walk_with(compaction, secrets)
        spills: list[Spill] = []
        entries_max = rng.choice([1, 5, 50])
        found = walk_to_end(walk.index(segments, entries_max=entries_max, shards=shards), spills)
        facts.append(facts_from_json(facts_to_json(found)))
        blocks += [
            (shard, Versions(number, spill.entries[spill.starts[shard] : spill.starts[shard + 1]]))
            for spill in spills
            for shard in range(shards)
        ]
    pinned: dict[int, list[npt.NDArray[np.uint64]]] = {}
    for shard in range(shards):
        mine = [each for of, each in blocks if of == shard]
        for each, (dead, held) in zip(mine, merge_versions(mine, secrets, expected=1), strict=True):
            clear_dead(facts[each.chunk], dead)
            pinned.setdefault(each.chunk, []).append(held)
    for chunk, ordinals in pinned.items():
        set_pinned(facts[chunk], np.concatenate(ordinals))
    return tasks.combine([f for chunk in facts for f in chunk])


@fewer
@given(seed=SEEDS, contents=VERSIONED, strategy=STRATEGIES)
def test_versions_give_the_bytes_of_the_reference(
    seed: int, contents: Contents, strategy: str
) -> None:
    log = random_log(seed, contents)
    with TemporaryDirectory() as root:
        compaction = planned(log, log.write(Path(root) / "log-0"), seed, strategy)
        if compaction is None:
            return
        survivors = survivors_of(compaction)
        assert_same(rewritten(compaction, survivors), segments_by_reference(compaction))


@fewer
@given(seed=SEEDS, contents=VERSIONED, strategy=STRATEGIES, cores=st.integers(2, 5))
def test_versions_are_the_same_in_one_task_and_in_many(
    seed: int, contents: Contents, strategy: str, cores: int
) -> None:
    log = random_log(seed, contents)
    with TemporaryDirectory() as root:
        compaction = planned(log, log.write(Path(root) / "log-0"), seed, strategy)
        if compaction is None:
            return
        alone = survivors_of(compaction)
        assert survivors_of(compaction, [Lane()] * cores) == alone
        secrets = Secrets.from_seed(compaction.seed)
        merged = versions_by_merge(compaction, random.Random(seed), secrets)
        assert facts_of(merged) == facts_of(alone)


@settings(max_examples=settings().max_examples // 12)
@given(
    seed=SEEDS,
    contents=VERSIONED.map(lambda contents: replace(contents, ttl=True)),
    strategy=st.sampled_from(["offset", "timestamp", "header"]),
)
def test_times_to_live_give_the_bytes_of_the_reference_in_one_task_and_in_many(
    seed: int, contents: Contents, strategy: str
) -> None:
    log = random_log(seed, contents)
    with TemporaryDirectory() as root:
        directory = log.write(Path(root) / "log-0")
        compaction = planned(log, directory, seed, strategy, ttl_header="ttl")
        if compaction is None:
            return
        survivors = survivors_of(compaction)
        assert_same(rewritten(compaction, survivors), segments_by_reference(compaction))
        assert survivors_of(compaction, [Lane()] * 3) == survivors
        rng, secrets = random.Random(seed), Secrets.from_seed(compaction.seed)
        if compaction.rules.versions is None:
            merged = survivors_by_merge(compaction, rng, secrets, probe=seed % 2 == 0)
        else:
            merged = versions_by_merge(compaction, rng, secrets)
        assert facts_of(merged) == facts_of(survivors)
