"""A log that is measured: the view that is predicted, and what cannot be measured."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest

from cordwood.cleanup.access.commit import CompactionCommitter, Engine
from cordwood.cleanup.access.log_access import OwnedLog
from cordwood.cleanup.access.measured_log import MeasuredLog
from cordwood.cleanup.access.offline.log_directory import OfflineLogDirectory
from cordwood.cleanup.access.offline.run import OfflineRun
from cordwood.cleanup.access.offline.stopped_log import StoppedLog
from cordwood.cleanup.plan.report import PartitionReport, Report, Status
from cordwood.cleanup.plan.request import CleanRequest
from cordwood.cleanup.schedule.cleaning import compact
from cordwood.cleanup.schedule.partition_run import PartitionRun, Run
from cordwood.configs.log_config import LogConfig
from cordwood.format.compression import Codec
from cordwood.model.clock import SystemClock
from cordwood.storage.replace import JOURNAL_NAME
from support.clean import digest_tree
from support.in_process_engine import CompiledEngine, clean_in_process
from support.log_builder import NOW_MS, LogBuilder, write_log_dir
from support.random_log import Contents, random_log

CONFIG = LogConfig(
    cleanup_policy=frozenset({"compact"}),
    min_cleanable_dirty_ratio=0.0,
    segment_bytes=2_000,
    index_interval_bytes=200,
)


def updates(name: str = "t-0") -> LogBuilder:
    """Two segments with the same keys, and an active one."""
    log = LogBuilder(name)
    for number in range(2):
        log.batch([(b"k%d" % key, b"v%d" % number) for key in range(50)], codec=Codec.LZ4)
        log.roll()
    log.put(b"k0", b"last")
    return log


def owner_of(root: Path, run: Run, offline: OfflineRun, scratch: Path | None) -> PartitionRun:
    """The owner of the only log below `root`, measured if there is a scratch directory."""
    log_dir = OfflineLogDirectory(root)
    (place,) = log_dir.partitions()
    access: OwnedLog = StoppedLog(offline, log_dir, place, config=CONFIG)
    if scratch is not None:
        access = MeasuredLog(access, scratch, now_ms=NOW_MS)
    report = PartitionReport(topic="t", partition=0, log_dir="", status=Status.UNCHANGED)
    return PartitionRun(run, access, report=report, config=CONFIG)


@pytest.mark.parametrize("seed", range(20))
def test_the_predicted_view_is_the_one_that_is_read_afterwards(tmp_path: Path, seed: int) -> None:
    rng = random.Random(seed)
    contents = Contents(keys=rng.choice([1, 12]), roll=rng.choice([0.1, 0.3]))
    write_log_dir(tmp_path / "logs", [random_log(seed, contents, name="t-0")])
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    views = []
    for measured in (True, False):
        request = CleanRequest(
            log_dirs=(), resolve=lambda _: None, now_ms=NOW_MS, dry_run=measured, force=True
        )
        report = Report(now_ms=NOW_MS, dry_run=measured)
        with ThreadPoolExecutor(1) as remover:
            clock = SystemClock()
            run = Run(request=request, clock=clock, report=report)
            offline = OfflineRun(clock=clock, now_ms=NOW_MS, remover=remover, only_reads=measured)
            owner = owner_of(tmp_path / "logs", run, offline, scratch if measured else None)
            owner.capture()
            compact([owner], CompiledEngine, now_ms=NOW_MS)
            views.append(owner.view)
    assert views[0] == views[1]


class Meddler(CompiledEngine):
    """Cleans the log behind the back of the first measurements, as a broker would."""

    def __init__(self, root: Path, *, times: int) -> None:
        super().__init__()
        self._root = root
        self.times = times

    def run(self, committers: Sequence[CompactionCommitter]) -> None:
        super().run(committers)
        if self.times:
            self.times -= 1
            oldest = min((self._root / "t-0").glob("*.log"))
            facts = oldest.stat()
            data = oldest.read_bytes()
            oldest.unlink()
            oldest.write_bytes(data)
            assert oldest.stat().st_mtime_ns != facts.st_mtime_ns


@pytest.mark.parametrize(("times", "status"), [(1, "planned"), (3, "failed")])
def test_a_log_that_changes_meanwhile_is_measured_again(
    tmp_path: Path, times: int, status: str
) -> None:
    root = write_log_dir(tmp_path, [updates()])
    engine = Meddler(root, times=times)

    @contextmanager
    def start() -> Iterator[Engine]:
        yield engine

    report = clean_in_process(
        root, {"t": CONFIG}, now_ms=NOW_MS, dry_run=True, measured=True, engine=start
    )
    (partition,) = report.partitions
    assert partition.status == status
    assert engine.times == 0
    if status == "failed":
        assert "changed while they were read" in partition.reason
    else:
        assert partition.discarded.superseded == 50
        assert len(report.plan) == 1


def test_an_interrupted_cleaning_has_to_be_finished_first(tmp_path: Path) -> None:
    root = write_log_dir(tmp_path, [updates()])
    (root / "t-0" / JOURNAL_NAME).write_bytes(b"{}\n")
    before = digest_tree(root)
    report = clean_in_process(root, {"t": CONFIG}, now_ms=NOW_MS, dry_run=True, measured=True)
    (partition,) = report.partitions
    assert partition.status is Status.FAILED
    assert "run `cordwood clean`" in partition.reason
    assert digest_tree(root) == before


def test_a_measurement_needs_no_space_for_the_result(tmp_path: Path) -> None:
    """The limit is that of a rewrite, which a measurement is not."""
    root = write_log_dir(tmp_path, [updates()])
    report = clean_in_process(
        root, {"t": CONFIG}, now_ms=NOW_MS, dry_run=True, measured=True, space_max=1
    )
    (partition,) = report.partitions
    assert partition.status is Status.PLANNED
    assert partition.discarded.superseded == 50
    assert partition.bytes_freed > 0
