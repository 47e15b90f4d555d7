"""Every operation of a compaction's tasks in another process, made to fail with each error in turn.

No log directory goes offline for it, no staged file is left, and the log is cleaned when the fault
has ended. The stand-in does without Spark; the nightly test has Spark and its workers.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from support.cleaner_bench import CleanerBench
from support.faulty_filesystem import ERRORS, Faults, Site
from support.running_logs import newest, read_records

MODULE = "support.faulty_child"
SOME = [
    (Site("create", "t-N/*.announcing.staged"), "ENOSPC"),
    (Site("rename", "t-N/N.manifest.*.staged"), "EIO"),
    (Site("write", "t-N/N.log.*.staged"), "ENOSPC"),
    (Site("sync", "t-N/N.log.*.staged"), "EIO"),
    (Site("create", "t-N/cordwood.clean.*.staged"), "EACCES"),
]


@dataclass
class Workers:
    """A cleaner whose tasks run in another process, on files that fail there."""

    bench: CleanerBench
    faults: Faults

    def fail(self, site: Site, error: str) -> str:
        """One compaction with the fault, and one after it; the row of the table."""
        bench = self.bench
        state = bench.fill()
        self.faults.begin(site, ERRORS[error])
        bench.cleaner.run_once_now()
        outcome, reason = bench.last_run()
        failed = self.faults.failures()
        self.faults.end()
        assert failed, f"{site} was not done: name it as it is now"
        assert bench.staged() == [] or site.kind == "remove"
        assert not bench.logs.manager.context.failures.offline
        marks = bench.logs.cleaning.uncleanable_partitions(bench.logs.directories[0])
        assert (outcome == "cleaned") == (not marks)
        bench.logs.clock.advance(3_600_000)
        bench.cleaner.run_once_now()
        assert bench.last_run() == ("cleaned", "")
        assert not bench.logs.cleaning.uncleanable_partitions(bench.logs.directories[0])
        assert bench.staged() == []
        assert bench.state() == state
        where = f"{site.kind} {site.file}"
        kind = {"": "cleaned"}.get(reason, "set aside")
        return f"task | {where:52} | {error:6} | {outcome:8} | online | {kind}, then cleaned"

    def sites(self) -> list[Site]:
        """Operations of tasks on files."""
        self.bench.fill()
        self.faults.watch()
        self.bench.cleaner.run_once_now()
        return self.faults.seen()


@contextmanager
def workers(root: Path, monkeypatch: pytest.MonkeyPatch, *, spark: bool) -> Iterator[Workers]:
    faults = Faults(root / "control", root / "logs")
    monkeypatch.setenv("FAULTS", f"{faults.control}:{faults.root}")
    if spark:
        monkeypatch.setenv("FAULTS_SPARK", "1")
    bench = CleanerBench(root / "logs", module=MODULE)
    try:
        yield Workers(bench, faults)
        log = bench.logs.log()
        expected = newest(read_records(log))
        bench.logs.restart()
        assert newest(read_records(bench.logs.log())) == expected
    finally:
        bench.close()


def test_an_operation_of_a_task_that_fails_ends_its_round_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with workers(tmp_path, monkeypatch, spark=False) as bench:
        for site, error in SOME:
            bench.fail(site, error)


@pytest.mark.nightly
@pytest.mark.spark
@pytest.mark.parametrize("error", list(ERRORS))
def test_every_operation_of_sparks_workers_that_fails_ends_its_round_alone(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    error: str,
) -> None:
    with workers(tmp_path, monkeypatch, spark=True) as bench:
        rows = [bench.fail(site, error) for site in bench.sites()]
    assert len(rows) > 10
    with capsys.disabled():
        print("", *rows, sep="\n")
