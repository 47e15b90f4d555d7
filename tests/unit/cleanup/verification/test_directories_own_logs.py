"""Logs that this project's own broker and cleaner have written are sound, also while they run."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path

import pytest

from cordwood.cleanup.verification.directories import Verification, verify
from cordwood.cleanup.verification.findings import Findings, Rule
from cordwood.cleanup.verification.log import Bounds, check_log
from cordwood.cleanup.verification.offsets import PartitionFacts
from cordwood.configs.log_config import LogConfig
from cordwood.model.clock import FixedClock
from support.in_process_engine import clean_in_process
from support.log_builder import NOW_MS, LogBuilder, write_log_dir
from support.random_log import random_log
from support.stored_log import StoredLog, Transactions

DAY_MS = 86_400_000
CONFIG = LogConfig(cleanup_policy=frozenset({"compact"}), min_cleanable_dirty_ratio=0.0)


def damage_in(result: Verification) -> list[str]:
    """All findings, but that it cannot be told whether something was compacted away."""
    return [
        str(each)
        for log in result.logs
        for each in log.findings
        if each.rule is not Rule.OFFSETS_UNKNOWN
    ]


@pytest.mark.parametrize("seed", range(25))
def test_random_logs_are_sound_before_and_after_a_cleaning(tmp_path: Path, seed: int) -> None:
    root = write_log_dir(tmp_path / "logs", [random_log(seed)])
    # It has what a leader has sent that had compacted its log: gaps above its own line as well.
    facts = PartitionFacts(is_alone=False)
    for _ in range(2):
        result = verify([root], clock=FixedClock(NOW_MS), facts_of=lambda _, __: facts)
        assert damage_in(result) == []
        report = clean_in_process(root, {"log": CONFIG}, now_ms=NOW_MS, force=True)
        assert not report.failed


@pytest.mark.parametrize("seed", range(5))
def test_a_log_that_is_written_to_is_sound_at_every_moment(tmp_path: Path, seed: int) -> None:
    rng = random.Random(seed)
    config = LogConfig(segment_bytes=1_000, index_interval_bytes=150)
    stored = StoredLog(tmp_path, config)
    stored.directory.mkdir()
    log = stored.open()
    producers = Transactions(log)
    is_open: set[int] = set()
    for _ in range(60):
        producer = rng.randrange(1, 4)
        step = rng.random()
        if step < 0.4:
            producers.plain(rng.randrange(1, 5))
        elif step < 0.75 or producer not in is_open:
            producers.write(producer, rng.randrange(1, 4))
            is_open.add(producer)
        else:
            producers.end(producer, commit=rng.random() < 0.5)
            is_open.discard(producer)
        stored.clock.advance(100)
        findings = Findings()
        facts = check_log(
            stored.directory, stored.topic_partition, Bounds(), findings, is_settled=False
        )
        assert [str(each) for each in findings.found] == []
        assert facts.log_end_offset == log.log_end_offset
    assert len(log.segments) > 3


@pytest.mark.parametrize("expires", [False, True])
def test_an_aborted_transaction_below_the_log_start_needs_no_entry(
    tmp_path: Path, expires: bool
) -> None:
    """A cleaning takes its data for committed; where the data is gone, its marker is left."""
    log = LogBuilder("log-0")
    ended = {"timestamp": NOW_MS - 10 * DAY_MS, "producer": (7, 0), "transactional": True}
    log.put(b"a", b"aborted", **ended)
    if expires:
        log.roll()
        log.put(b"kept", b"v")
        log.roll()
    else:
        log.log_start_offset = 2
    log.marker((7, 0), commit=False)
    log.put(b"b", b"v")
    log.put(b"b", b"w")
    log.roll()
    root = write_log_dir(tmp_path / "logs", [log])
    config = replace(
        CONFIG,
        cleanup_policy=frozenset({"compact", "delete"}),
        segment_bytes=1,
        retention_ms=DAY_MS * 5,
    )
    report = clean_in_process(root, {"log": config}, now_ms=NOW_MS, force=True)
    assert report.partitions[0].discarded.superseded == 1
    assert report.partitions[0].log_start_offset == (1 if expires else 2)
    assert damage_in(verify([root], clock=FixedClock(NOW_MS))) == []
