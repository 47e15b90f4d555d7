"""Repairs of what is wrong, as Kafka makes them, with Kafka's warning."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from cordwood.cleanup.plan.report import PartitionReport, Status
from cordwood.configs.log_config import LogConfig
from cordwood.format.compression import Codec
from cordwood.format.file_names import (
    CLEAN_SHUTDOWN,
    CLEANER_OFFSET_CHECKPOINT,
    LEADER_EPOCH_CHECKPOINT,
    LOG_START_OFFSET_CHECKPOINT,
    RECOVERY_POINT_CHECKPOINT,
)
from cordwood.format.legacy import build_legacy_message, build_legacy_wrapper
from cordwood.format.offset_checkpoint import parse_offset_checkpoint
from cordwood.format.record_batch import Record, RecordBatch, iter_batches
from support.clean import digest_tree
from support.in_process_engine import clean_in_process
from support.log_builder import NOW_MS, LogBuilder, write_log_dir

DAY_MS = 86_400_000
COMPACT = LogConfig(cleanup_policy=frozenset({"compact"}), index_interval_bytes=50)
DELETE = LogConfig(retention_ms=DAY_MS // 2, index_interval_bytes=50)


def compacted(name: str = "t-0", *, third_ms: int = NOW_MS - DAY_MS) -> LogBuilder:
    """Three segments of two keys each, and an active one; offsets 0 to 6.

    `third_ms` is the timestamp of the third segment's records.
    """
    log = LogBuilder(name, index_interval_bytes=50)
    for number in range(3):
        for key in (b"a", b"b"):
            log.put(key, b"%d" % number, timestamp=third_ms if number == 2 else NOW_MS - DAY_MS)
        log.roll()
    log.put(b"end", b"v")
    return log


def clean_one(root: Path, config: LogConfig, **options: Any) -> PartitionReport:
    """Cleans; the report on the one partition, which did not fail."""
    report = clean_in_process(root, {"t": config}, now_ms=NOW_MS, force=True, **options)
    (partition,) = report.partitions
    assert partition.status not in {Status.FAILED, Status.NO_SPACE}, partition.reason
    return partition


def offsets(directory: Path) -> list[int]:
    """Offsets of all records, over all segments."""
    return [
        record.offset
        for path in sorted(directory.glob("*.log"))
        for _, batch in iter_batches(path.read_bytes())
        for record in batch.records()
    ]


def line_of(root: Path, checkpoint: str) -> int | None:
    lines = parse_offset_checkpoint((root / checkpoint).read_bytes())
    return next((offset for name, offset in lines.items() if str(name) == "t-0"), None)


# ---- the cleaner's checkpoint


def test_cleaner_checkpoint_beyond_the_log_end_starts_over_at_the_log_start(tmp_path: Path) -> None:
    log = compacted()
    log.cleaner_checkpoint = 99
    root = write_log_dir(tmp_path / "logs", [log])
    planned = clean_one(root, COMPACT, dry_run=True)
    partition = clean_one(root, COMPACT)
    assert planned.warnings == partition.warnings
    assert offsets(root / "t-0") == [4, 5, 6]
    assert line_of(root, CLEANER_OFFSET_CHECKPOINT) == 6
    assert any(
        "The last checkpoint dirty offset for partition t-0 is 99, which is larger" in warning
        for warning in partition.warnings
    )


def test_cleaner_checkpoint_below_the_log_start_is_moved_up_to_it(tmp_path: Path) -> None:
    log = compacted()
    log.cleaner_checkpoint, log.log_start_offset = 0, 3
    root = write_log_dir(tmp_path / "logs", [log])
    planned = clean_one(root, COMPACT, dry_run=True)
    partition = clean_one(root, COMPACT)
    assert planned.warnings == partition.warnings
    assert any("Resetting first dirty offset of t-0" in w for w in partition.warnings)
    assert offsets(root / "t-0") == [4, 5, 6]


def test_wrong_cleaner_checkpoint_is_repaired_though_nothing_is_cleaned(tmp_path: Path) -> None:
    log = LogBuilder("t-0")
    log.put(b"a", b"v")
    log.cleaner_checkpoint = 50
    root = write_log_dir(tmp_path / "logs", [log])
    assert clean_one(root, COMPACT).reason.startswith("not compacted")
    assert line_of(root, CLEANER_OFFSET_CHECKPOINT) == 0


def test_missing_cleaner_checkpoint_makes_all_dirty(tmp_path: Path) -> None:
    root = write_log_dir(tmp_path / "logs", [compacted()])
    (root / CLEANER_OFFSET_CHECKPOINT).unlink()
    clean_one(root, COMPACT)
    assert offsets(root / "t-0") == [4, 5, 6]
    assert line_of(root, CLEANER_OFFSET_CHECKPOINT) == 6


def test_unreadable_checkpoint_counts_as_empty_with_a_warning(tmp_path: Path) -> None:
    root = write_log_dir(tmp_path / "logs", [compacted()])
    (root / CLEANER_OFFSET_CHECKPOINT).write_text("0\nnonsense\n")
    report = clean_in_process(root, {"t": COMPACT}, now_ms=NOW_MS, force=True)
    assert not report.failed
    assert any("Error occurred while reading" in warning for warning in report.warnings)
    assert offsets(root / "t-0") == [4, 5, 6]


# ---- indexes


def keyed(*, modified_ms: int) -> LogBuilder:
    """A segment of eight young records, and an active one."""
    log = LogBuilder("t-0", index_interval_bytes=50, modified_ms=modified_ms)
    for number in range(8):
        log.put(b"%d" % number, b"v", timestamp=NOW_MS - number)
    log.roll()
    log.put(b"end", b"v", timestamp=NOW_MS)
    return log


@pytest.mark.parametrize("missing", [[".index"], [".index", ".timeindex"]])
def test_segment_without_an_offset_index_gets_both_indexes_anew(
    tmp_path: Path, missing: list[str]
) -> None:
    root = write_log_dir(tmp_path / "logs", [keyed(modified_ms=0)])
    for suffix in missing:
        (root / "t-0" / f"{0:020d}{suffix}").unlink()
    partition = clean_one(root, DELETE)
    assert any(
        "Could not find offset index file corresponding to log file" in warning
        for warning in partition.warnings
    )
    assert (root / "t-0" / f"{0:020d}.index").stat().st_size > 0
    assert offsets(root / "t-0") == list(range(9))


@pytest.mark.parametrize(("age_ms", "left"), [(0, 9), (DAY_MS, 1)])
def test_segment_without_a_time_index_alone_is_judged_by_its_modification_time(
    tmp_path: Path, age_ms: int, left: int
) -> None:
    """Kafka's loader opens an empty time index then, and looks no further."""
    root = write_log_dir(tmp_path / "logs", [keyed(modified_ms=NOW_MS - age_ms)])
    (root / "t-0" / f"{0:020d}.timeindex").unlink()
    clean_one(root, DELETE)
    assert len(offsets(root / "t-0")) == left


def test_index_without_its_log_is_removed(tmp_path: Path) -> None:
    root = write_log_dir(tmp_path / "logs", [compacted()])
    orphan = root / "t-0" / f"{3:020d}.index"
    orphan.write_bytes(b"")
    partition = clean_one(root, COMPACT)
    assert any("Found an orphaned index file" in warning for warning in partition.warnings)
    assert not orphan.exists()


def test_preallocated_indexes_of_a_hard_stop_are_read_to_their_zeros(tmp_path: Path) -> None:
    root = write_log_dir(tmp_path / "logs", [compacted()])
    for suffix in (".index", ".timeindex"):
        path = root / "t-0" / f"{6:020d}{suffix}"
        path.write_bytes(path.read_bytes() + bytes(1_200))
    clean_one(root, COMPACT)
    assert offsets(root / "t-0") == [4, 5, 6]


# ---- the log start offset


def test_log_start_beyond_the_log_end_restarts_the_log_there(tmp_path: Path) -> None:
    log = compacted()
    log.log_start_offset = 500
    root = write_log_dir(tmp_path / "logs", [log])
    partition = clean_one(root, DELETE)
    assert any(
        "Deleting all segments because logEndOffset (7) is smaller than logStartOffset 500" in w
        for w in partition.warnings
    )
    assert [path.name for path in (root / "t-0").glob("*.log")] == [f"{500:020d}.log"]
    assert (root / "t-0" / LEADER_EPOCH_CHECKPOINT).read_text() == "0\n0\n"
    assert line_of(root, LOG_START_OFFSET_CHECKPOINT) is None


def test_log_start_inside_a_segment_keeps_its_line_and_one_at_a_base_loses_it(
    tmp_path: Path,
) -> None:
    log = compacted()
    log.log_start_offset = 3
    root = write_log_dir(tmp_path / "logs", [log])
    clean_one(root, LogConfig(retention_ms=-1))
    assert line_of(root, LOG_START_OFFSET_CHECKPOINT) == 3
    log.log_start_offset = 4
    other = write_log_dir(tmp_path / "other", [log])
    clean_one(other, LogConfig(retention_ms=-1))
    assert offsets(other / "t-0")[0] == 4
    assert line_of(other, LOG_START_OFFSET_CHECKPOINT) is None


def test_recovery_point_is_raised_to_the_log_start(tmp_path: Path) -> None:
    log = compacted()
    log.recovery_point, log.log_start_offset = 1, 4
    root = write_log_dir(tmp_path / "logs", [log])
    clean_one(root, LogConfig(retention_ms=-1))
    assert line_of(root, RECOVERY_POINT_CHECKPOINT) == 4


# ---- the end of the log


def test_cut_last_batch_above_the_recovery_point_is_left_to_kafka(tmp_path: Path) -> None:
    log = compacted()
    log.recovery_point = 6
    root = write_log_dir(tmp_path / "logs", [log], clean_shutdown=False)
    active = root / "t-0" / f"{6:020d}.log"
    torn = active.read_bytes() + active.read_bytes()[:-5]
    active.write_bytes(torn)
    partition = clean_one(root, COMPACT)
    assert any("bytes behind the last whole batch" in warning for warning in partition.warnings)
    assert active.read_bytes() == torn
    assert offsets(root / "t-0") == [4, 5, 6]


@pytest.mark.parametrize(("recovery_point", "gone"), [(0, []), (3, [0]), (4, [0, 2]), (7, [0, 2])])
def test_after_an_unclean_stop_nothing_above_the_recovery_point_goes(
    tmp_path: Path, recovery_point: int, gone: list[int]
) -> None:
    log = compacted(third_ms=NOW_MS)
    log.recovery_point = recovery_point
    root = write_log_dir(tmp_path / "logs", [log], clean_shutdown=False)
    clean_one(root, DELETE)
    left = sorted(int(path.stem) for path in (root / "t-0").glob("*.log"))
    assert [base for base in (0, 2, 4, 6) if base not in left] == gone
    assert not (root / CLEAN_SHUTDOWN).exists()


def test_after_an_unclean_stop_compaction_stays_below_the_recovery_point(tmp_path: Path) -> None:
    log = compacted()
    log.recovery_point = 4
    root = write_log_dir(tmp_path / "logs", [log], clean_shutdown=False)
    clean_one(root, COMPACT)
    assert offsets(root / "t-0") == [2, 3, 4, 5, 6]
    assert line_of(root, CLEANER_OFFSET_CHECKPOINT) == 4
    assert not (root / CLEAN_SHUTDOWN).exists()


@pytest.mark.parametrize("config", [COMPACT, DELETE], ids=["compact", "delete"])
def test_after_an_unclean_stop_a_damaged_batch_above_the_recovery_point_stops_no_cleaning(
    tmp_path: Path, config: LogConfig
) -> None:
    """The next start of the broker cuts the log there; below, the log is sound."""
    log = LogBuilder("t-0", index_interval_bytes=50)
    for number in range(3):
        for key in (b"a", b"b"):
            value = b"%d" % number
            log.put(key, value, producer=(5, 0), timestamp=NOW_MS - DAY_MS)
        log.roll()
    log.put(b"end", b"v", timestamp=NOW_MS)
    log.recovery_point = 4
    root = write_log_dir(tmp_path / "logs", [log], clean_shutdown=False)
    damaged = root / "t-0" / f"{4:020d}.log"
    data = damaged.read_bytes()
    damaged.write_bytes(data[:8] + (5).to_bytes(4) + data[12:])  # no batch is that short
    for base in (4, 6, 7):
        (root / "t-0" / f"{base:020d}.snapshot").unlink(missing_ok=True)
    partition = clean_one(root, config)
    assert partition.status is Status.CLEANED
    assert damaged.exists()
    left = [int(path.stem) for path in sorted((root / "t-0").glob("*.log"))]
    assert left == ([0, 4, 6] if config is COMPACT else [4, 6])


def test_nothing_above_the_high_watermark_goes_even_after_a_clean_stop(tmp_path: Path) -> None:
    log = compacted()
    log.high_watermark = 3
    root = write_log_dir(tmp_path / "logs", [log])
    clean_one(root, COMPACT)
    assert offsets(root / "t-0") == [0, 1, 2, 3, 4, 5, 6]
    assert line_of(root, CLEANER_OFFSET_CHECKPOINT) == 2


def test_clean_stop_stays_a_clean_stop(tmp_path: Path) -> None:
    root = write_log_dir(tmp_path / "logs", [compacted()])
    before = (root / CLEAN_SHUTDOWN).read_bytes()
    clean_one(root, COMPACT)
    assert (root / CLEAN_SHUTDOWN).read_bytes() == before


# ---- producers


def test_damaged_producer_snapshot_gives_way_to_the_one_before(tmp_path: Path) -> None:
    log = LogBuilder("t-0")
    for number in range(3):
        log.put(b"a", b"%d" % number, producer=(5, 0), timestamp=NOW_MS)
        log.roll()
    log.put(b"b", b"v")
    root = write_log_dir(tmp_path / "logs", [log])
    newest = root / "t-0" / f"{4:020d}.snapshot"
    newest.write_bytes(newest.read_bytes()[:-1] + b"\x55")
    partition = clean_one(root, COMPACT)
    assert any("Failed to load producer snapshot" in warning for warning in partition.warnings)
    assert offsets(root / "t-0") == [2, 3]


# ---- old formats


@pytest.mark.parametrize("magic", [0, 1])
def test_entries_of_old_formats_become_batches_of_today(tmp_path: Path, magic: int) -> None:
    log = LogBuilder("t-0")
    stamp = NOW_MS - 5 if magic else -1
    for offset, key in enumerate([b"a", b"b", b"a"]):
        log.append(
            build_legacy_message(
                offset=offset, magic=magic, key=key, value=b"%d" % offset, timestamp=stamp
            )
        )
    inner = [Record(3 + i, stamp, b"z", b"%d" % i) for i in range(2)]
    log.append(build_legacy_wrapper(inner, magic=magic, codec=Codec.GZIP))
    log.roll()
    log.put(b"end", b"v")
    root = write_log_dir(tmp_path / "logs", [log])
    clean_one(root, COMPACT)
    batches = [b for _, b in iter_batches((root / "t-0" / f"{0:020d}.log").read_bytes())]
    assert all(isinstance(batch, RecordBatch) for batch in batches)
    records = [record for batch in batches for record in batch.records()]
    assert [(r.offset, r.key, r.value, r.timestamp) for r in records] == [
        (1, b"b", b"1", stamp),
        (2, b"a", b"2", stamp),
        (4, b"z", b"1", stamp),
    ]
    assert batches[-1].codec is Codec.GZIP


# ---- and then no more


def test_a_second_run_over_what_was_repaired_changes_nothing(tmp_path: Path) -> None:
    log = compacted()
    log.cleaner_checkpoint, log.log_start_offset = 99, 3
    root = write_log_dir(tmp_path / "logs", [log])
    (root / "t-0" / f"{2:020d}.index").unlink()
    (root / "t-0" / f"{9:020d}.timeindex").write_bytes(b"")
    clean_one(root, COMPACT)
    once = digest_tree(root)
    clean_one(root, COMPACT)
    assert digest_tree(root) == once
    assert os.listdir(root / "t-0")
