"""SIGKILL at every change to a file: the next run ends where an undisturbed one ends.

Nothing is lost, nothing is left over, and the run after that changes nothing.
"""

from __future__ import annotations

import hashlib
import random
import shutil
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from cordwood.cleanup.plan.report import Status
from cordwood.configs.log_config import LogConfig
from cordwood.format.compression import Codec
from support.clean import digest_tree
from support.in_process_engine import clean_in_process
from support.killing import OWNER, TASK, KillableCleanings
from support.log_builder import NOW_MS, LogBuilder, write_log_dir

DAY_MS = 86_400_000
OLD_MS, NEW_MS = NOW_MS - 10 * DAY_MS, NOW_MS - DAY_MS

CONFIGS = {
    "time": LogConfig(retention_ms=5 * DAY_MS),
    "size": LogConfig(retention_ms=-1, retention_bytes=500),
    "gone": LogConfig(retention_ms=1),
    "start": LogConfig(retention_ms=-1),
    "compact": LogConfig(
        cleanup_policy=frozenset({"compact"}),
        segment_bytes=900,
        delete_retention_ms=0,
        index_interval_bytes=100,
    ),
    "both": LogConfig(
        cleanup_policy=frozenset({"compact", "delete"}),
        retention_ms=5 * DAY_MS,
        segment_bytes=1_000,
        index_interval_bytes=100,
    ),
    # Tombstones that take more bytes with a horizon: a segment becomes two.
    "grown": LogConfig(
        cleanup_policy=frozenset({"compact"}),
        segment_bytes=500,
        delete_retention_ms=10**15,
        index_interval_bytes=100,
    ),
}


def plain(name: str, *timestamps: int) -> LogBuilder:
    """A segment for each timestamp, and a leader epoch; the last is active."""
    log = LogBuilder(f"{name}-0")
    for number, timestamp in enumerate(timestamps):
        if number:
            log.roll()
            log.new_leader_epoch()
        log.batch([(b"%d" % n, b"v" * 30) for n in range(5)], timestamp=timestamp, producer=(7, 0))
    return log


def compacted() -> LogBuilder:
    """Several groups, transactions that span them, tombstones old and new, expired markers."""
    log = LogBuilder("compact-0", index_interval_bytes=100)
    rng = random.Random(5)
    log.put(b"gone", None, delete_horizon_ms=OLD_MS)
    log.batch([(b"a", b"aborted")] * 3, producer=(1, 0), transactional=True)
    log.batch([(b"b", b"committed")] * 2, producer=(2, 0), transactional=True)
    for number in range(14):
        records = [(b"k%d" % rng.randrange(9), rng.randbytes(30)) for _ in range(4)]
        log.batch(records, codec=rng.choice(list(Codec)))
        log.put(b"t%d" % (number % 3), None)
        if number == 8:
            log.marker((1, 0), commit=False)
        if number == 10:
            log.marker((2, 0), commit=True)
        if number % 2:
            log.roll()
    log.cleaner_checkpoint = log.segments[2].base_offset
    return log


def compacted_and_deleted() -> LogBuilder:
    log = LogBuilder("both-0", index_interval_bytes=100)
    for number in range(10):
        timestamp = OLD_MS if number < 4 else NEW_MS
        log.batch([(b"%d" % (n % 4), b"w" * 25) for n in range(5)], timestamp=timestamp)
        log.roll()
    log.put(b"end", b"v")
    return log


def grown() -> LogBuilder:
    log = LogBuilder("grown-0", index_interval_bytes=100)
    for number in range(2):
        for batch in range(3):
            log.batch([(b"%d" % (12 * (3 * number + batch) + n), None) for n in range(10)])
        log.roll()
    log.put(b"end", b"v")
    return log


@dataclass(frozen=True)
class Case:
    """A log directory before cleaning, what an undisturbed run makes of it, and its steps."""

    cleanings: KillableCleanings
    before: Path
    after: dict[str, str]
    steps: dict[str, int]


def contents(top: Path) -> dict[str, str]:
    """Of every file but the lock: its bytes, and of segments with data their time."""
    found = {}
    for path in sorted(top.rglob("*")):
        if path.is_file() and path.name != ".lock":
            data = path.read_bytes()
            digest = hashlib.sha256(data).hexdigest()
            timed = path.suffix == ".log" and data
            found[str(path.relative_to(top))] = (
                f"{digest} {path.stat().st_mtime_ns}" if timed else digest
            )
    return found


@pytest.fixture(scope="module")
def scratch(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory for copies."""
    return tmp_path_factory.mktemp("kill")


@pytest.fixture(scope="module")
def cleanings() -> Iterator[KillableCleanings]:
    with KillableCleanings() as cleanings:
        yield cleanings


@pytest.fixture(scope="module")
def case(scratch: Path, cleanings: KillableCleanings) -> Case:
    start = plain("start", NEW_MS, NEW_MS, NEW_MS, NEW_MS)
    start.log_start_offset = 12
    logs = [
        plain("time", OLD_MS, OLD_MS, NEW_MS, NEW_MS),
        plain("size", NEW_MS, NEW_MS, NEW_MS, NEW_MS),
        plain("gone", OLD_MS, OLD_MS),
        start,
        compacted(),
        compacted_and_deleted(),
        grown(),
    ]
    before = write_log_dir(scratch / "before", logs)
    cleanings.load(shutil.copytree(before, scratch / "first"), CONFIGS, now_ms=NOW_MS)
    work = shutil.copytree(before, scratch / "undisturbed")
    ended = cleanings.clean(work, CONFIGS, now_ms=NOW_MS)
    after = contents(work)
    assert after != contents(before)
    assert len([*(work / "grown-0").glob("*.log")]) > len([*(before / "grown-0").glob("*.log")]) + 1
    again = cleanings.clean(work, CONFIGS, now_ms=NOW_MS)
    assert contents(work) == after
    assert again.steps[TASK] == 0
    return Case(cleanings, before, after, ended.steps)


def recover(case: Case, work: Path, what: str) -> None:
    """Runs undisturbed twice: as if nothing had happened, and then without a change."""
    case.cleanings.clean(work, CONFIGS, now_ms=NOW_MS)
    assert contents(work) == case.after, what
    once = digest_tree(work)
    case.cleanings.clean(work, CONFIGS, now_ms=NOW_MS)
    assert digest_tree(work) == once, what


def kill_at_each(case: Case, scratch: Path, side: str, steps: range) -> None:
    for step in steps:
        work = shutil.copytree(case.before, scratch / f"{side}-{step}")
        ended = case.cleanings.clean(work, CONFIGS, now_ms=NOW_MS, side=side, kill_at=step)
        assert ended.killed, step
        recover(case, work, f"killed at step {step} of {case.steps[side]} of the {side}")
        shutil.rmtree(work)
    print(f"{side}: killed at {len(steps)} of {case.steps[side]} steps")


@pytest.mark.parametrize("side", [OWNER, TASK])
def test_killed_at_a_step_the_next_run_ends_as_an_undisturbed_one(
    case: Case, scratch: Path, side: str
) -> None:
    """Every 11th step: a group takes 18, so that eight groups show all that can be met in one."""
    assert case.steps[OWNER] > 300
    assert case.steps[TASK] > 100
    kill_at_each(case, scratch, side, range(1, case.steps[side] + 1, 11))


@pytest.mark.nightly
@pytest.mark.parametrize("side", [OWNER, TASK])
def test_killed_at_any_step_the_next_run_ends_as_an_undisturbed_one(
    case: Case, scratch: Path, side: str
) -> None:
    kill_at_each(case, scratch, side, range(1, case.steps[side] + 1))


def test_a_dry_run_after_a_kill_plans_on_what_the_next_run_finds(case: Case, scratch: Path) -> None:
    """A group that was being put in place counts as finished or undone, but nothing is written."""
    planned_on_changed = 0
    for step in range(3, case.steps[OWNER], 40):
        work = shutil.copytree(case.before, scratch / f"dry-{step}")
        case.cleanings.clean(work, CONFIGS, now_ms=NOW_MS, kill_at=step)
        killed = digest_tree(work)
        dry = clean_in_process(work, CONFIGS, now_ms=NOW_MS, force=True, dry_run=True)
        assert digest_tree(work) == killed, f"killed at step {step}"
        real = clean_in_process(work, CONFIGS, now_ms=NOW_MS, force=True)
        for plan, done in zip(dry.partitions, real.partitions, strict=True):
            assert plan.status not in {Status.FAILED, Status.NO_SPACE}, plan.reason
            assert plan.before is not None
            assert done.before is not None
            assert plan.before == replace(done.before, records=None), f"{plan.topic}, step {step}"
            assert plan.expired == done.expired[: len(plan.expired)], f"step {step}"
        planned_on_changed += killed != digest_tree(case.before)
        assert contents(work) == case.after, f"killed at step {step}"
        shutil.rmtree(work)
    assert planned_on_changed > 5


def killed_twice(
    case: Case, scratch: Path, first: int, *, one_in: int = 1, rng: random.Random | None = None
) -> int:
    """Kills at step `first`, then the run after it at one in `one_in` of its first 29 steps.

    Which of each `one_in` steps it is, `rng` decides. How many runs were killed.
    """
    broken = shutil.copytree(case.before, scratch / "broken")
    case.cleanings.clean(broken, CONFIGS, now_ms=NOW_MS, kill_at=first)
    tried = 0
    for second in range(1, 30, one_in):
        second_at = second + (rng.randrange(one_in) if rng else 0)
        work = shutil.copytree(broken, scratch / "work")
        ended = case.cleanings.clean(work, CONFIGS, now_ms=NOW_MS, kill_at=second_at)
        if ended.killed:
            recover(case, work, f"killed at step {first}, then at step {second_at}")
            tried += 1
        shutil.rmtree(work)
        if not ended.killed:
            break
    shutil.rmtree(broken)
    return tried


def test_killed_again_while_recovering_the_third_run_ends_as_an_undisturbed_one(
    case: Case, scratch: Path
) -> None:
    first_steps = range(7, case.steps[OWNER], 130)
    assert sum(killed_twice(case, scratch, first) for first in first_steps) > 40


@pytest.mark.nightly
def test_killed_twice_at_many_pairs_of_steps_the_third_run_ends_as_an_undisturbed_one(
    case: Case, scratch: Path
) -> None:
    """Each first step, and one in ten of the second: other ones each night."""
    seed = random.randrange(1 << 30)
    rng = random.Random(seed)
    print(f"seed {seed}")
    first_steps = range(1, case.steps[OWNER] + 1)
    tried = sum(killed_twice(case, scratch, first, one_in=10, rng=rng) for first in first_steps)
    assert tried > case.steps[OWNER]
