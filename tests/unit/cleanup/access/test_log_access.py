"""One contract for all accesses to a log: the same plans leave the same log, wherever it is."""

from __future__ import annotations

import errno
import shutil
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

from cordwood.cleanup.access.commit import CompactionCommitter
from cordwood.cleanup.access.log_access import LogAccess
from cordwood.cleanup.access.memory_log import MemoryLog
from cordwood.cleanup.access.offline.log_directory import OfflineLogDirectory
from cordwood.cleanup.access.offline.run import OfflineRun
from cordwood.cleanup.access.offline.stopped_log import StoppedLog
from cordwood.cleanup.access.online.running_log import RunningLog
from cordwood.cleanup.plan.attempt import Limits
from cordwood.cleanup.plan.captured import Captured
from cordwood.cleanup.plan.compaction import plan_compaction
from cordwood.cleanup.plan.log_compaction import prepare_compaction
from cordwood.cleanup.plan.outcome import Committed, Rejected, Unknown
from cordwood.cleanup.rules.cleanable import plan_cleanable
from cordwood.cleanup.rules.retention import plan_retention
from cordwood.configs.log_config import LogConfig
from cordwood.format.file_names import CLEANED_SUFFIX
from cordwood.model.clock import SystemClock
from cordwood.model.errors import CordwoodError, EngineError, NoSpaceError
from cordwood.storage.filesystem import OS
from cordwood.storage.replace import STAGED_SUFFIX
from cordwood.testing.manual_clock import ManualClock
from support.in_process_engine import CompiledEngine
from support.log_builder import NOW_MS, LogBuilder, write_log_dir
from support.running_logs import RunningLogs

HOUR_MS = 3_600_000
CONFIG = LogConfig(
    cleanup_policy=frozenset({"compact", "delete"}),
    retention_ms=48 * HOUR_MS,
    segment_bytes=4_000,
    index_interval_bytes=200,
)
#: Segments by base offset with their bytes, the log start offset, the log end offset.
Shape = tuple[dict[int, int], int, int]


def shape(captured: Captured) -> Shape:
    view = captured.view
    segments = {each.base_offset: each.size_bytes for each in view.segments}
    return segments, view.log_start_offset, view.log_end_offset


def build(root: Path) -> Path:
    """A segment that has expired, two with the same keys, and an active one."""
    log = LogBuilder("t-0")
    for number, age_h in enumerate((72, 24, 24)):
        records = [(b"k%d" % key, b"v%d" % number) for key in range(50)]
        log.batch(records, timestamp=NOW_MS - age_h * HOUR_MS)
        log.roll()
    log.put(b"k0", b"last")
    return write_log_dir(root, [log])


def stopped(root: Path, remover: ThreadPoolExecutor) -> StoppedLog:
    run = OfflineRun(clock=SystemClock(), now_ms=NOW_MS, remover=remover)
    log_dir = OfflineLogDirectory(build(root))
    (place,) = log_dir.partitions()
    return StoppedLog(run, log_dir, place, config=CONFIG)


def running(root: Path) -> RunningLog:
    build(root / "logs-0")
    logs = RunningLogs(root, {"t": CONFIG}, clock=ManualClock(NOW_MS))
    log = logs.log()
    log.update_high_watermark(log.log_end_offset)
    return RunningLog(log, logs.manager)


@pytest.fixture(params=["stopped", "running", "memory"])
def access(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[LogAccess]:
    """The same log, accessed in each way."""
    with ThreadPoolExecutor(1) as remover:
        if request.param == "running":
            yield running(tmp_path)
        elif request.param == "stopped":
            yield stopped(tmp_path, remover)
        else:
            captured = stopped(tmp_path, remover).pin()
            scratch = tmp_path / "scratch"
            scratch.mkdir()
            yield MemoryLog(lambda: captured, captured.directory, scratch, now_ms=NOW_MS)


def contents(access: LogAccess) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in access.directory.iterdir()}


def retain(access: LogAccess) -> int:
    with access.held() as log:
        return access.delete(plan_retention(log, now_ms=NOW_MS))


def attempted(
    access: LogAccess, *, require_allowed: Callable[[], None] = lambda: None
) -> CompactionCommitter:
    """A compaction that was executed and is to be finished."""
    captured = access.pin()
    cleanable = plan_cleanable(captured.view, now_ms=NOW_MS, force=True)
    plan = plan_compaction(captured.view, cleanable)
    attempt = access.attempt(Limits())
    compaction = prepare_compaction(captured, plan, now_ms=NOW_MS, seed=attempt.seed)
    committer = access.committer(
        replace(compaction, attempt=attempt), captured, require_allowed=require_allowed
    )
    CompiledEngine().run([committer])
    return committer


def compact(access: LogAccess) -> None:
    committer = attempted(access)
    assert committer.outcome == Committed()
    access.finish(committer)


def test_the_log_is_captured(access: LogAccess) -> None:
    captured = access.pin()
    segments, start, end = shape(captured)
    assert (list(segments), start, end) == ([0, 50, 100, 150], 0, 151)
    assert [source.base_offset for source in captured.sources] == [0, 50, 100, 150]
    assert access.segment_names() == {f"{base:020d}.log" for base in segments}
    assert str(access.partition) == "t-0"


def test_what_has_expired_is_deleted(access: LogAccess) -> None:
    before, _, end = shape(access.pin())
    assert retain(access) == 1
    rest = {base: size for base, size in before.items() if base}
    assert shape(access.pin()) == (rest, 50, end)
    assert retain(access) == 0


def test_the_active_segment_is_rolled(access: LogAccess) -> None:
    before, start, end = shape(access.pin())
    with access.held():
        access.roll()
    assert shape(access.pin()) == ({**before, end: 0}, start, end)


def test_a_compaction_is_put_in_place(access: LogAccess) -> None:
    before, _, end = shape(access.pin())
    compact(access)
    after, _, log_end = shape(access.pin())
    assert log_end == end
    # The newest of each key below the active segment is in the last segment there.
    assert after == {0: before[100], 150: before[150]}


def test_a_compaction_that_is_refused_is_rejected(access: LogAccess) -> None:
    if isinstance(access, MemoryLog):
        pytest.skip("nothing is put in place")
    access.pin()  # which repairs a stopped log
    before = contents(access)
    refusal = CordwoodError("a legal hold")

    def refuse() -> None:
        raise refusal

    committer = attempted(access, require_allowed=refuse)
    assert committer.outcome == Rejected(refusal)
    committer.clear()
    assert contents(access) == before
    access.finish(committer)
    assert contents(access) == before


@pytest.mark.parametrize("error", [OSError(errno.EIO, "no"), NoSpaceError("full")])
def test_the_outcome_is_unknown_if_a_step_of_the_replacement_fails(
    access: LogAccess, monkeypatch: pytest.MonkeyPatch, error: OSError | NoSpaceError
) -> None:
    if isinstance(access, MemoryLog):
        pytest.skip("nothing is put in place")
    access.pin()  # which repairs a stopped log
    before, rename = contents(access), OS.rename

    def failing(path: Path, target: Path) -> None:
        if target.suffix == CLEANED_SUFFIX:
            raise error
        rename(path, target)

    with monkeypatch.context() as patch:
        patch.setattr(type(OS), "rename", lambda _, path, target: failing(path, target))
        committer = attempted(access)
    if access.is_running and isinstance(error, NoSpaceError):  # the first renames are undone
        assert isinstance(committer.outcome, Rejected)
    else:
        assert isinstance(committer.outcome, Unknown)
        committer.clear()
        assert list(access.directory.glob(f"*.log.*{STAGED_SUFFIX}")), "recovery looks for them"
    access.finish(committer)
    assert contents(access) == before


def test_the_first_outcome_of_a_compaction_counts(access: LogAccess) -> None:
    captured = access.pin()
    plan = plan_compaction(captured.view, plan_cleanable(captured.view, now_ms=NOW_MS, force=True))
    compaction = prepare_compaction(captured, plan, now_ms=NOW_MS, seed=1)
    committer = access.committer(compaction, captured)
    first = EngineError("the first")
    committer.reject(first)
    committer.reject(EngineError("the second"))
    assert committer.outcome == Rejected(first)
    done = replace(compaction, groups_done=len(compaction.groups))
    committer = access.committer(done, captured)
    committer.reject(first)
    assert committer.outcome == Committed()


def test_an_abandoned_compaction_leaves_the_log_as_it_was(access: LogAccess) -> None:
    before = shape(access.pin())
    captured = access.pin()
    plan = plan_compaction(captured.view, plan_cleanable(captured.view, now_ms=NOW_MS, force=True))
    compaction = prepare_compaction(captured, plan, now_ms=NOW_MS, seed=1)
    committer = access.committer(replace(compaction, attempt=access.attempt(Limits())), captured)
    committer.begin()
    access.abandon(committer)
    assert shape(access.pin()) == before
    assert not list(access.directory.glob("*.staged"))


def test_predicted_sizes_are_those_on_disk(tmp_path: Path) -> None:
    """Step by step: retention, compaction, and a roll."""
    with ThreadPoolExecutor(1) as remover:
        on_disk = stopped(tmp_path / "stopped", remover)
        captured = on_disk.pin()
        copy = shutil.copytree(captured.directory.parent, tmp_path / "copy")
        scratch = tmp_path / "scratch"
        scratch.mkdir()
        log_dir = OfflineLogDirectory(copy)
        (place,) = log_dir.partitions()
        run = OfflineRun(clock=SystemClock(), now_ms=NOW_MS, remover=remover, only_reads=True)
        read = StoppedLog(run, log_dir, place, config=CONFIG).pin
        accesses: list[LogAccess] = [
            on_disk,
            running(tmp_path / "running"),
            MemoryLog(read, place.path, scratch, now_ms=NOW_MS),
        ]
        for step in (retain, compact):
            for each in accesses:
                each.pin()
                step(each)
            first, *others = [shape(each.pin()) for each in accesses]
            assert others == [first, first]
