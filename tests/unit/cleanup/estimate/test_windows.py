"""The quick estimate, beside what an exact one finds."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from cordwood.cleanup.estimate.estimate import estimate_compaction
from cordwood.cleanup.estimate.windows import WindowLimits, estimate_from_windows
from cordwood.cleanup.plan.estimates import CompactionEstimate
from cordwood.cleanup.plan.log_compaction import LogCompaction
from cordwood.model.errors import CorruptError
from cordwood.storage.reading.source import SegmentSource
from support.in_process_engine import clean_in_process
from support.key_distributions import CONFIG, DISTRIBUTIONS
from support.log_builder import NOW_MS, LogBuilder, write_log_dir


def compaction_of(root: Path, log: LogBuilder) -> tuple[LogCompaction, CompactionEstimate]:
    """The compaction of a log, and what it frees, exactly."""
    write_log_dir(root, [log])
    found: list[tuple[LogCompaction, CompactionEstimate]] = []

    def keep(compaction: LogCompaction) -> CompactionEstimate:
        found.append((compaction, estimate_compaction(compaction)))
        return found[-1][1]

    clean_in_process(root, {"t": CONFIG}, now_ms=NOW_MS, dry_run=True, estimator=keep)
    return found[0]


#: By how much the share that is freed may be missed.
MISSED = {
    "many keys": 0.25,
    "zipf 0.8": 0.3,
    "all unique": 0.0,
    "one key": 0.01,
    "drifting hot set": 0.15,
    "lz4": 0.25,
    "transactions": 0.3,
    "clean section": 0.35,
}


@pytest.mark.parametrize("name", MISSED)
def test_a_twentieth_of_a_log_says_about_how_much_goes(tmp_path: Path, name: str) -> None:
    compaction, exact = compaction_of(
        tmp_path, DISTRIBUTIONS[name].log("t-0", records=8000, seed=1)
    )
    for seed in range(3):
        quick = estimate_from_windows(compaction.segments, seed=seed)
        assert quick.bytes_before == compaction.size_bytes
        assert abs(quick.share - exact.bytes_freed / exact.bytes_before) <= MISSED[name]
        assert quick.bytes_read <= 0.35 * quick.bytes_before, "of few batches, sixteen"


def test_all_windows_together_are_the_log(tmp_path: Path) -> None:
    log = LogBuilder("t-0")
    for number in range(120):
        log.batch([(b"k%d" % (number % 30), b"v" * 400), (b"u%d" % number, b"w" * 400)])
        if number % 50 == 49:
            log.roll()
    log.roll()
    log.put(b"last", b"")
    compaction, _ = compaction_of(tmp_path, log)
    every = WindowLimits(share=1.0, windows_min=1 << 20)
    quick = estimate_from_windows(compaction.segments, seed=1, limits=every)
    assert quick.share == pytest.approx(90 / 240, abs=1e-5)
    assert quick.bytes_read >= quick.bytes_before


def test_what_is_read_is_bounded(tmp_path: Path) -> None:
    compaction, _ = compaction_of(
        tmp_path, DISTRIBUTIONS["few keys"].log("t-0", records=8000, seed=1)
    )
    tight = WindowLimits(size_bytes_max=20_000)
    quick = estimate_from_windows(compaction.segments, seed=1, limits=tight)
    assert 0 < quick.bytes_read <= 40_000
    assert quick.share > 0.9


def test_no_segments_free_nothing() -> None:
    quick = estimate_from_windows((), seed=1)
    assert (quick.bytes_before, quick.bytes_freed, quick.share) == (0, 0, 0.0)


def damaged(sources: tuple[SegmentSource, ...], suffix: str, data: bytes) -> None:
    for source in sources:
        path = Path(source.path).with_suffix(suffix)
        there = path.read_bytes()
        path.write_bytes((data * (len(there) // len(data) + 1))[: len(there)])


@pytest.mark.parametrize(
    ("suffix", "data", "reason"),
    [
        (".index", b"\0\0\0\1\x7f\xff\xff\xff", "offset index with the positions"),
        (".index", b"\0\0\0\1\0\0\0\7", "a batch"),
        (".log", b"\xff", "a batch"),
    ],
)
def test_damage_is_named(tmp_path: Path, suffix: str, data: bytes, reason: str) -> None:
    log = DISTRIBUTIONS["many keys"].log("t-0", records=2000, seed=1)
    compaction, _ = compaction_of(tmp_path, log)
    damaged(compaction.segments, suffix, data)
    with pytest.raises(CorruptError, match=reason):
        estimate_from_windows(compaction.segments, seed=1)


def test_a_file_that_has_gone_is_an_error(tmp_path: Path) -> None:
    compaction, _ = compaction_of(
        tmp_path, DISTRIBUTIONS["many keys"].log("t-0", records=2000, seed=1)
    )
    gone = replace(compaction.segments[0], path=str(tmp_path / "00000000000000000000.log"))
    with pytest.raises(FileNotFoundError):
        estimate_from_windows((gone,), seed=1)
