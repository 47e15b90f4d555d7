"""A bound on what compactions read is spent where it frees most."""

from __future__ import annotations

from pathlib import Path

import pytest

from cordwood.cleanup.plan.report import Report, Status
from cordwood.configs.log_config import LogConfig
from support.in_process_engine import clean_in_process
from support.log_builder import NOW_MS, LogBuilder, write_log_dir

COMPACT = LogConfig(cleanup_policy=frozenset({"compact"}), min_cleanable_dirty_ratio=0.01)
VALUE = b"v" * 400


def log_of(name: str, keys: int) -> LogBuilder:
    """Two closed segments of 100 records each; the fewer keys, the more goes."""
    log = LogBuilder(f"{name}-0")
    for _ in range(2):
        for number in range(100):
            log.batch([(b"%d" % (number % keys), VALUE)])
        log.roll()
    return log


@pytest.fixture
def log_dir(tmp_path: Path) -> Path:
    logs = [log_of("little", 100), log_of("much", 1), log_of("most", 1)]
    return write_log_dir(tmp_path / "logs", logs)


def clean(log_dir: Path, bound: int | None) -> Report:
    configs = dict.fromkeys(("little", "much", "most"), COMPACT)
    return clean_in_process(log_dir, configs, now_ms=NOW_MS, bytes_read_max=bound)


def cleaned(report: Report) -> set[str]:
    return {each.topic for each in report.partitions if each.status is Status.CLEANED}


def size_of(log_dir: Path, topic: str) -> int:
    closed = sorted((log_dir / f"{topic}-0").glob("*.log"))[:-1]
    return sum(each.stat().st_size for each in closed)


def test_without_a_bound_all_are_compacted(log_dir: Path) -> None:
    assert cleaned(clean(log_dir, None)) == {"little", "much", "most"}


def test_the_bound_goes_to_those_that_free_most(log_dir: Path) -> None:
    bound = 2 * (size_of(log_dir, "much") + size_of(log_dir, "most"))
    report = clean(log_dir, bound)
    assert cleaned(report) == {"much", "most"}
    (left,) = [each for each in report.partitions if each.topic == "little"]
    assert left.status is Status.UNCHANGED
    assert any("--max-bytes-read" in each for each in left.warnings)
    assert cleaned(clean(log_dir, None)) == {"little"}


def test_what_one_does_not_fit_into_is_spent_on_another(log_dir: Path) -> None:
    bound = 2 * size_of(log_dir, "much") + 10
    assert len(cleaned(clean(log_dir, bound))) == 1
    assert cleaned(clean(log_dir, 10)) == set()
