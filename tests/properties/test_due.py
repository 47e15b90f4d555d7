"""Cleanings for what becomes removable without a newer record, on random logs.

What is due is judged by the reference cleaner: it cleans the whole clean section, and what it gives
decides which segments had to be rewritten, and how.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

from hypothesis import given, settings
from hypothesis import strategies as st

from cordwood.cleanup.engine import tasks
from cordwood.cleanup.engine.rewrite import GroupRewriter
from cordwood.cleanup.plan.captured import Captured
from cordwood.cleanup.plan.compaction import plan_compaction
from cordwood.cleanup.plan.log_compaction import LogCompaction, prepare_compaction
from cordwood.cleanup.rules.cleanable import plan_cleanable
from cordwood.cleanup.rules.record_rules import RecordRules
from cordwood.configs.log_config import LogConfig
from cordwood.format.legacy import LegacyBatch
from cordwood.format.record_batch import iter_batches
from cordwood.testing.reference_cleaner import CleanedSegment, clean_by_reference
from cordwood.testing.reference_rules import is_removed
from support.clean import digest_tree
from support.in_process_engine import clean_in_process
from support.log_builder import NOW_MS, LogBuilder, write_log_dir
from support.random_log import Contents, random_log
from support.whole_compaction import survivors_of, verify_rewritten

SEEDS = st.integers(0, 2**40)
CONTENTS = st.builds(
    Contents,
    batches=st.integers(10, 60),
    records_max=st.sampled_from([1, 3, 8]),
    roll=st.sampled_from([0.1, 0.3]),
    legacy=st.booleans(),
    transactions=st.booleans(),
    unkeyed=st.just(False),
    ttl=st.booleans(),
)
CONFIG = LogConfig(
    cleanup_policy=frozenset({"compact"}),
    min_cleanable_dirty_ratio=1.0,
    delete_retention_ms=1_000,
    index_interval_bytes=200,
    cordwood_tombstone_cleanup=True,
    cordwood_record_ttl_header="ttl",
)
fewer = settings(max_examples=settings().max_examples // 12)


def clean_log(seed: int, contents: Contents) -> LogBuilder:
    """A random log of which all but the active segment is clean."""
    log = random_log(seed, contents)
    log.log_start_offset = None
    log.cleaner_checkpoint = log.active.base_offset
    return log


def whole_section(captured: Captured, compaction: LogCompaction) -> list[CleanedSegment]:
    """The reference's result for each segment of the clean section."""
    end = compaction.first_uncleanable
    sources = tuple(each for each in captured.sources if each.base_offset < end)
    return clean_by_reference(
        replace(
            compaction,
            segments=sources,
            groups=tuple((each.base_offset,) for each in sources),
        )
    )


def removable(data: bytes, now_ms: int) -> set[int]:
    """The offsets of tombstones and markers past their horizons, and of expired records."""
    found = set()
    rules = RecordRules.of(CONFIG, now_ms=now_ms, legacy_horizon_ms=0)
    for _, batch in iter_batches(data):
        if isinstance(batch, LegacyBatch):
            continue
        if not batch.header.is_control:
            found |= {r.offset for r in batch.records() if is_removed(r, rules)}
        horizon = batch.header.delete_horizon_ms
        if horizon is not None and horizon <= now_ms:
            records = batch.records()
            found |= {r.offset for r in records if batch.header.is_control or r.value is None}
    return found


def require_as_expected(compaction: LogCompaction, expected: dict[int, CleanedSegment]) -> None:
    """Rewrites each due segment, verified, and compares it with the reference's."""
    specs = tasks.rewrite_specs(compaction, survivors_of(compaction))
    for number, (base,) in enumerate(compaction.groups):
        spec = specs[number]
        manifest = GroupRewriter().rewrite(spec)
        verify_rewritten(compaction, spec, manifest)
        (source,) = compaction.group(number)
        divided = expected[base].divided(
            max(compaction.segment_bytes, source.size_bytes),
            interval_bytes=compaction.index_interval_bytes,
        )
        for segment, each in zip(manifest.segments, divided, strict=True):
            paths = spec.staged.at(segment.base_offset).paths()
            files = {s: path.read_bytes() for s, path in paths.items() if path.exists()}
            assert (segment.base_offset, files) == (each.base_offset, each.files)


@fewer
@given(seed=SEEDS, contents=CONTENTS)
def test_due_segments_become_what_the_reference_makes_of_them_and_no_other_has_to_change(
    seed: int, contents: Contents
) -> None:
    log = clean_log(seed, contents)
    with TemporaryDirectory() as root:
        captured = log.capture(log.write(Path(root) / "log-0"), CONFIG)
        cleanable = plan_cleanable(captured.view, now_ms=NOW_MS)
        if cleanable.reason is not None:
            due: set[int] = set()
            cleanable = replace(cleanable, due=tuple(s.base_offset for s in captured.sources[:-1]))
        else:
            due = set(cleanable.due)
            assert due
        if not cleanable.due:
            return
        plan = plan_compaction(captured.view, cleanable)
        compaction = prepare_compaction(captured, plan, now_ms=NOW_MS, seed=seed)
        expected = {each.base_offset: each for each in whole_section(captured, compaction)}
        for source in captured.sources[:-1]:
            if source.base_offset in due:
                continue
            if source.next_base_offset > captured.view.last_stable_offset:
                continue  # nothing of it is touched
            before = Path(source.path).read_bytes()
            there = {r.offset for _, batch in iter_batches(before) for r in batch.records()}
            gone = there - set(expected[source.base_offset].offsets)
            assert not gone & removable(before, NOW_MS)
        if due:
            require_as_expected(compaction, expected)


@fewer
@given(seed=SEEDS, contents=CONTENTS)
def test_cleanings_at_the_same_moment_come_to_an_end(seed: int, contents: Contents) -> None:
    """One may give tombstones a horizon that has passed already, for which the next one is due."""
    log = clean_log(seed, contents)
    with TemporaryDirectory() as root:
        log_dir = write_log_dir(Path(root) / "logs", [log])
        partition = log_dir / "log-0"
        for _ in range(2):
            clean_in_process(log_dir, {"log": CONFIG}, now_ms=NOW_MS)
        before = digest_tree(partition)
        report = clean_in_process(log_dir, {"log": CONFIG}, now_ms=NOW_MS)
        assert digest_tree(partition) == before
        assert report.partitions[0].status == "unchanged"
