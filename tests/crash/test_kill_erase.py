"""SIGKILL at every change to a file of an erasure: the next run completes it, and reports it whole.

The next run may be another erasure, which does not know the keys of the first one, or a cleaning.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from cordwood.cleanup.erasure.pending import PENDING_NAME
from cordwood.cleanup.erasure.report import ErasedBeside, ErasedPartition, ErasureReport
from cordwood.configs.log_config import LogConfig
from cordwood.format.compression import Codec
from support.erasing import KEY, VALUE, erasable_log, erase_here, sweep
from support.in_process_engine import clean_in_process
from support.killing import OWNER, TASK, KillableCleanings
from support.log_builder import NOW_MS, write_log_dir

CONFIGS = {
    "kept": LogConfig(retention_ms=-1, index_interval_bytes=100),
    "compact": LogConfig(cleanup_policy=frozenset({"compact"}), index_interval_bytes=100),
}


@dataclass(frozen=True)
class Case:
    """A log directory before an erasure, and what an undisturbed one makes of it and reports."""

    killable: KillableCleanings
    before: Path
    after: dict[str, bytes]
    report: ErasureReport
    steps: dict[str, int]


def contents(top: Path) -> dict[str, bytes]:
    """The bytes of every file but the lock."""
    return {
        str(path.relative_to(top)): path.read_bytes()
        for path in sorted(top.rglob("*"))
        if path.is_file() and path.name != ".lock"
    }


def proved(report: ErasureReport) -> list[ErasedPartition | ErasedBeside]:
    """A report's entries of partitions and files, without the directory."""
    return [
        *(replace(each, directory="") for each in report.partitions),
        *(replace(each, path="") for each in report.beside),
    ]


def add_remains(log_dir: Path) -> None:
    """Files and directories that a broker was about to delete, and a copy that somebody made."""
    kept = log_dir / "kept-0"
    first = sorted(kept.glob("*.log"))[0]
    shutil.copy(first, kept / "00000000000000000000.log.bak")
    shutil.copy(first, kept / "00000000000000009999.log.deleted")
    waiting = log_dir / "kept-1.0123456789abcdef0123456789abcdef-delete"
    waiting.mkdir()
    shutil.copy(first, waiting / first.name)


@pytest.fixture(scope="module")
def case(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Case]:
    scratch = tmp_path_factory.mktemp("kill")
    codecs = (Codec.ZSTD, Codec.NONE)
    logs = [erasable_log("kept-0", codecs=codecs), erasable_log("compact-0", codecs=codecs)]
    before = write_log_dir(scratch / "before", logs)
    add_remains(before)
    with KillableCleanings() as killable:
        first = shutil.copytree(before, scratch / "first")
        killable.erase(first, "kept", CONFIGS, kill_at=None)
        work = shutil.copytree(before, scratch / "undisturbed")
        ended = killable.erase(work, "kept", CONFIGS)
        again = shutil.copytree(before, scratch / "again")
        report = erase_here(again, "kept", configs=CONFIGS).report
        assert contents(again) == contents(work)
        yield Case(killable, before, contents(work), report, ended.steps)


def killed(case: Case, tmp_path: Path, side: str, step: int) -> Path:
    work = shutil.copytree(case.before, tmp_path / f"{side}-{step}")
    ended = case.killable.erase(work, "kept", CONFIGS, side=side, kill_at=step)
    assert ended.killed, step
    return work


@pytest.mark.parametrize(
    ("side", "every"),
    [
        (OWNER, 5),
        (TASK, 5),
        pytest.param(OWNER, 1, marks=pytest.mark.nightly),
        pytest.param(TASK, 1, marks=pytest.mark.nightly),
    ],
)
def test_killed_at_a_step_the_next_run_completes_and_reports_the_whole(
    case: Case, tmp_path: Path, side: str, every: int
) -> None:
    assert case.steps[OWNER] > 60
    assert case.steps[TASK] > 30
    for step in range(1, case.steps[side] + 1, every):
        work = killed(case, tmp_path, side, step)
        result = erase_here(work, "kept", configs=CONFIGS)
        assert result.failed == {}, step
        assert contents(work) == case.after, f"killed at step {step} of the {side}"
        if step < case.steps[side] - 6 or side == TASK:  # after the plan is forgotten, none is left
            assert proved(result.report) == proved(case.report), f"step {step} of the {side}"
        shutil.rmtree(work)


def test_an_erasure_of_other_keys_completes_the_interrupted_one(case: Case, tmp_path: Path) -> None:
    completed = 0
    for step in range(20, case.steps[OWNER], 9):
        work = killed(case, tmp_path, OWNER, step)
        is_planned = (work / PENDING_NAME).exists()
        result = erase_here(work, "compact", keys=[b"other-1"], configs=CONFIGS)
        assert result.failed == {}, step
        assert not (work / PENDING_NAME).exists()
        if is_planned:
            completed += 1
            assert len(result.report.criteria) == 2
            assert not [name for name in sweep(work, KEY, VALUE) if name.startswith("kept")], step
        shutil.rmtree(work)
    assert completed > 5


def test_a_cleaning_after_a_kill_moves_nothing_that_was_to_be_erased_to_the_trash(
    case: Case, tmp_path: Path
) -> None:
    """A cleaning completes the partition that was under way; the erasure then does the rest."""
    for step in range(20, case.steps[OWNER], 9):
        work = killed(case, tmp_path, OWNER, step)
        trash = tmp_path / f"trash-{step}"
        is_under_way = (work / "kept-0" / "cordwood.round").exists()
        report = clean_in_process(work, CONFIGS, now_ms=NOW_MS, trash=trash)
        assert not report.failed
        if is_under_way:
            assert not [name for name in sweep(trash, KEY, VALUE) if name.startswith("kept")], step
        assert erase_here(work, "kept", configs=CONFIGS).failed == {}
        assert not [name for name in sweep(work, KEY, VALUE) if name.startswith("kept")], step
        shutil.rmtree(work)
