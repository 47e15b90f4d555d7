"""Estimates beside what is measured, on logs whose keys are distributed in many ways."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest

from cordwood.cleanup.estimate.estimate import estimate_compaction
from cordwood.cleanup.estimate.watched_sample import SampleLimits
from cordwood.cleanup.plan.estimates import CompactionEstimate
from cordwood.cleanup.plan.log_compaction import LogCompaction
from cordwood.cleanup.plan.report import PartitionReport
from cordwood.model.errors import CorruptError
from support.in_process_engine import clean_in_process
from support.key_distributions import CONFIG, DISTRIBUTIONS
from support.log_builder import NOW_MS, write_log_dir

_ERROR_MAX = 0.05
# A compaction that frees less of a log than this is measured by the log's size.
_HARDLY_ANY = 0.01
_SMALL = SampleLimits(keys=3_000, batches=3_000, size_bytes=3 << 18)


@dataclass(frozen=True, slots=True, kw_only=True)
class Log:
    """A log on disk, what is measured of it, and the compaction to estimate."""

    root: Path
    measured: PartitionReport
    compaction: LogCompaction


def log_of(root: Path, name: str, *, records: int) -> Log:
    """Writes and measures a log."""
    distribution = DISTRIBUTIONS[name]
    write_log_dir(root, [distribution.log("t-0", records=records, seed=1)])
    configs = {"t": distribution.config}
    found: list[LogCompaction] = []

    def keep(compaction: LogCompaction) -> CompactionEstimate:
        found.append(replace(compaction, seed=11))
        return estimate_compaction(compaction, limits=_SMALL)

    clean_in_process(root, configs, now_ms=NOW_MS, dry_run=True, estimator=keep)
    (measured,) = clean_in_process(
        root, configs, now_ms=NOW_MS, dry_run=True, measured=True
    ).partitions
    return Log(root=root, measured=measured, compaction=found[0])


def require_close(estimate: CompactionEstimate, measured: PartitionReport) -> None:
    """Checks that an estimate is within 5 % of what is freed: of bytes, and of records."""
    before, after = measured.before, measured.after
    assert before is not None
    assert after is not None
    assert before.records is not None
    assert after.records is not None
    gone = before.records - after.records
    some = measured.bytes_freed > _HARDLY_ANY * estimate.bytes_before
    unit = measured.bytes_freed if some else estimate.bytes_before
    assert abs(estimate.bytes_freed - measured.bytes_freed) <= _ERROR_MAX * unit
    assert abs(estimate.bytes_freed - measured.bytes_freed) <= 1.6 * estimate.error
    assert abs(estimate.records_discarded - gone) <= _ERROR_MAX * (gone or before.records)


@pytest.mark.parametrize("name", DISTRIBUTIONS)
@pytest.mark.parametrize(
    ("records", "limits"),
    [
        pytest.param(12_000, _SMALL, id="small"),
        pytest.param(800_000, SampleLimits(), id="large", marks=pytest.mark.nightly),
    ],
)
def test_an_estimate_is_within_five_percent_of_what_is_measured(
    tmp_path: Path, name: str, records: int, limits: SampleLimits
) -> None:
    log = log_of(tmp_path, name, records=records)
    estimate = estimate_compaction(log.compaction, limits=limits)
    assert not estimate.is_exact
    walks = 1 if log.compaction.rules.versions is None else 2
    assert estimate.bytes_read < (walks + 0.9) * estimate.bytes_before
    require_close(estimate, log.measured)
    every = SampleLimits(keys=1 << 30, batches=1 << 30, size_bytes=1 << 40)
    exact = estimate_compaction(log.compaction, limits=every)
    assert exact.is_exact
    assert exact.bytes_freed == log.measured.bytes_freed
    assert abs(estimate.keys - exact.keys) <= 0.033 * exact.keys + 1
    if log.measured.discarded.tombstone:
        gone = log.measured.discarded.tombstone
        # They are in every fourth batch, so they are the least exact of all.
        assert abs(estimate.tombstones_discarded - gone) <= 0.4 * gone


@pytest.fixture(scope="module")
def drifting(tmp_path_factory: pytest.TempPathFactory) -> Log:
    """A log whose old keys are never written again: what goes depends on where it is."""
    return log_of(tmp_path_factory.mktemp("drifting"), "drifting hot set", records=12_000)


@pytest.fixture(scope="module")
def estimates(drifting: Log) -> list[CompactionEstimate]:
    """Estimates of it from different samples."""
    return [
        estimate_compaction(replace(drifting.compaction, seed=seed), limits=_SMALL)
        for seed in range(30)
    ]


def require_unbiased(estimates: list[CompactionEstimate], freed: int) -> None:
    """Checks that estimates are right on average, and that their intervals have the result."""
    errors = np.array([each.bytes_freed - freed for each in estimates])
    # Five standard errors of the mean are less than 1 % of what is freed.
    assert abs(errors.mean()) < 5 * errors.std() / len(errors) ** 0.5 < 0.01 * freed
    inside = sum(each.bytes_freed_low <= freed <= each.bytes_freed_high for each in estimates)
    assert inside >= 0.85 * len(estimates)


def test_estimates_are_right_on_average_and_their_intervals_have_the_result(
    drifting: Log, estimates: list[CompactionEstimate]
) -> None:
    assert len({each.bytes_freed for each in estimates}) > 20
    require_unbiased(estimates, drifting.measured.bytes_freed)


@pytest.mark.parametrize("factor", [0.98, 1.02])
def test_a_bias_that_no_single_estimate_shows_is_found_out(
    drifting: Log, estimates: list[CompactionEstimate], factor: float
) -> None:
    biased = [replace(e, bytes_freed=round(e.bytes_freed * factor)) for e in estimates]
    with pytest.raises(AssertionError):
        require_unbiased(biased, drifting.measured.bytes_freed)


@pytest.mark.parametrize("factor", [0.94, 1.06])
def test_an_estimate_with_a_planted_bias_is_refused(drifting: Log, factor: float) -> None:
    estimate = estimate_compaction(drifting.compaction, limits=SampleLimits())
    require_close(estimate, drifting.measured)
    biased = replace(estimate, bytes_freed=round(estimate.bytes_freed * factor))
    with pytest.raises(AssertionError):
        require_close(biased, drifting.measured)


def test_memory_is_bounded_by_the_limits(drifting: Log) -> None:
    limits = SampleLimits(keys=1_024, batches=1 << 20, size_bytes=1 << 30)
    estimate = estimate_compaction(drifting.compaction, limits=limits)
    # Every batch has 40 records; those of 1,024 keys and a block are read again.
    assert estimate.bytes_read - estimate.bytes_before < 0.2 * estimate.bytes_before


def test_progress_counts_the_bytes_of_the_segments(drifting: Log) -> None:
    done: list[int] = []
    estimate = estimate_compaction(drifting.compaction, limits=_SMALL, progress=done.append)
    assert sum(done) == estimate.bytes_before == drifting.compaction.size_bytes


def test_damage_is_a_warning_of_the_dry_run(tmp_path: Path) -> None:
    log = log_of(tmp_path, "few keys", records=2_000)
    path = Path(log.compaction.segments[3].path)
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 0xFF
    path.write_bytes(data)
    with pytest.raises(CorruptError, match=path.name):
        estimate_compaction(log.compaction)
    (partition,) = clean_in_process(
        tmp_path, {"t": CONFIG}, now_ms=NOW_MS, dry_run=True, estimator=estimate_compaction
    ).partitions
    assert partition.estimate is None
    assert partition.status == "planned"
    (warning,) = partition.warnings
    assert path.name in warning
    assert "what its compaction would free is unknown" in warning


def test_a_segment_that_changes_while_it_is_read_has_no_estimate(drifting: Log) -> None:
    path = Path(drifting.compaction.segments[0].path)
    before = path.read_bytes()

    def meddle(_: int) -> None:
        path.write_bytes(before[:-200])

    try:
        with pytest.raises(CorruptError, match="changed since it was read"):
            estimate_compaction(drifting.compaction, progress=meddle)
    finally:
        path.write_bytes(before)
