"""Groups put in place in an offline log: when the files of their sources are removed."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Executor, Future
from pathlib import Path
from typing import Any

import pytest

from cordwood.cleanup.access.offline.placement import OfflinePlacement
from cordwood.cleanup.plan.outcome import Outcome
from cordwood.cleanup.schedule import clean as cleaning
from cordwood.configs.log_config import LogConfig
from cordwood.storage.filesystem import OS
from support.in_process_engine import clean_in_process
from support.log_builder import NOW_MS, LogBuilder, write_log_dir

# Each segment is larger than segment.bytes, and so is a group of its own.
COMPACT = LogConfig(cleanup_policy=frozenset({"compact"}), segment_bytes=1)
SEGMENTS = 3
# The last of them loses nothing.
REWRITTEN = SEGMENTS - 1


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A partition of four segments, of which the last is active."""
    log = LogBuilder("t-0")
    for number in range(SEGMENTS):
        for key in (b"a", b"b", b"c%d" % number):
            log.put(key, b"%d" % number)
        log.roll()
    log.put(b"a", b"end")
    return write_log_dir(tmp_path / "logs", [log])


def deleted(root: Path) -> set[str]:
    """The base offsets of segments that wait to be removed."""
    return {path.name[:20] for path in root.rglob("*.deleted")}


class Awaited(Future[Any]):
    """Does its work when somebody waits for it."""

    def __init__(self, work: Callable[[], Any]) -> None:
        super().__init__()
        self.work = work

    def result(self, timeout: float | None = None) -> Any:
        return self.work()


class SlowestExecutor(Executor):
    """A disk that removes nothing before somebody waits for it."""

    def submit(self, function: Any, /, *arguments: Any, **options: Any) -> Future[Any]:
        return Awaited(lambda: function(*arguments, **options))


def watched(root: Path, **options: Any) -> list[set[str]]:
    """Cleans, and says which segments waited to be removed after each group."""
    place, waiting = OfflinePlacement.place, []

    def watching(*arguments: Any) -> Outcome:
        outcome = place(*arguments)
        waiting.append(deleted(root))
        return outcome

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(OfflinePlacement, "place", watching)
        report = clean_in_process(root, {"t": COMPACT}, now_ms=NOW_MS, force=True, **options)
    assert report.partitions[0].status == "cleaned"
    assert not deleted(root)
    return waiting


@pytest.fixture
def _slowest(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cleaning, "ThreadPoolExecutor", lambda *_, **__: SlowestExecutor())


@pytest.mark.usefixtures("_slowest")
def test_old_segments_of_one_group_at_most_wait_to_be_removed(root: Path) -> None:
    waiting = watched(root)
    assert [len(names) for names in waiting] == [1] * REWRITTEN
    assert len(set.union(*waiting)) == REWRITTEN


@pytest.mark.usefixtures("_slowest")
def test_where_space_is_bounded_none_waits(root: Path) -> None:
    assert watched(root, space_max=1 << 20) == [set()] * REWRITTEN


def test_what_the_disk_refuses_to_remove_is_told_and_removed_by_the_next_run(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_: object, path: Path) -> None:
        if path.suffix == ".deleted":
            raise OSError(5, "Input/output error", str(path))
        path.unlink(missing_ok=True)

    with monkeypatch.context() as patch:
        patch.setattr(type(OS), "remove", refuse)
        report = clean_in_process(root, {"t": COMPACT}, now_ms=NOW_MS, force=True)
    (partition,) = report.partitions
    assert partition.status == "failed"
    assert ".deleted" in partition.reason
    assert deleted(root)
    assert clean_in_process(root, {"t": COMPACT}, now_ms=NOW_MS).partitions[0].status != "failed"
    assert not deleted(root)
