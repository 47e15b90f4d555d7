"""A task that cleans several logs: the keys of one are gathered while another is put in place."""

from __future__ import annotations

import json
import threading
from dataclasses import replace
from pathlib import Path

import pytest

from cordwood.cleanup.access.announcements import end_attempt, progress_bytes
from cordwood.cleanup.access.commit import CompactionCommitter
from cordwood.cleanup.engine.commit_loop import begin_all, commit_while
from cordwood.cleanup.engine.spark import worker
from cordwood.cleanup.engine.spark.machine import driver_host, takes_sockets
from cordwood.cleanup.engine.spark.runner import Row
from cordwood.cleanup.engine.whole import WholeCompaction
from cordwood.cleanup.plan.attempt import Attempt
from cordwood.cleanup.plan.compaction import plan_compaction
from cordwood.cleanup.plan.log_compaction import LogCompaction, prepare_compaction
from cordwood.cleanup.plan.outcome import Committed
from cordwood.cleanup.rules.cleanable import plan_cleanable
from cordwood.configs.log_config import LogConfig
from cordwood.storage.filesystem import OS
from support.log_builder import NOW_MS, LogBuilder

LOGS = 3
KEYS = 7


class Renaming:
    """A `Placement` that only notes the groups; the manifests are removed by the committer."""

    def __init__(self) -> None:
        self.placed: list[int] = []

    def require_wanted(self) -> None:
        pass

    def place(self, _: LogCompaction, number: int, __: object) -> Committed:
        self.placed.append(number)
        return Committed()

    def end(self) -> None:
        pass


def compaction_of(directory: Path, keys: int = KEYS, batches: int = 40) -> LogCompaction:
    log = LogBuilder(directory.name)
    for number in range(batches):
        log.batch([(b"%d" % (n % keys), b"value") for n in range(20 * number, 20 * number + 20)])
        if number % 10 == 9:
            log.roll()
    log.write(directory)
    config = LogConfig(cleanup_policy=frozenset({"compact"}), segment_bytes=1)
    captured = log.capture(directory, config)
    plan = plan_compaction(captured.view, plan_cleanable(captured.view, now_ms=NOW_MS, force=True))
    found = prepare_compaction(captured, plan, now_ms=NOW_MS, seed=5)
    return replace(found, attempt=Attempt(token="one"))


def rows_of(
    compactions: list[LogCompaction], entries_max: int = 1_000
) -> tuple[list[Row], list[Renaming]]:
    """The rows of a task for all of them, and what was put in place meanwhile."""
    placements = [Renaming() for _ in compactions]
    committers = [
        CompactionCommitter(compaction, placement)
        for compaction, placement in zip(compactions, placements, strict=True)
    ]
    assert begin_all(committers) == committers
    rows: list[Row] = []
    plan = json.dumps([compaction.to_json() for compaction in compactions])
    task = threading.Thread(
        target=lambda: rows.extend(worker.clean_whole(0, plan, 1, entries_max, OS))
    )
    task.start()
    commit_while(committers, task.is_alive)
    task.join()
    return rows, placements


def names(rows: list[Row], kind: int) -> list[str]:
    return [json.loads(row.payload)["round"] for row in rows if row.kind == kind]


def test_every_log_is_put_in_place_and_answered_once(tmp_path: Path) -> None:
    compactions = [compaction_of(tmp_path / f"t-{number}") for number in range(LOGS)]
    rows, placements = rows_of(compactions)
    assert names(rows, worker.COUNT) == [each.name for each in compactions]
    assert len(rows) == LOGS
    for compaction, placement in zip(compactions, placements, strict=True):
        assert placement.placed == list(range(len(compaction.groups)))


def test_the_progress_of_a_log_stays_when_it_is_done(tmp_path: Path) -> None:
    compactions = [compaction_of(tmp_path / f"t-{number}") for number in range(LOGS)]
    rows_of(compactions)
    for compaction in compactions:
        read = progress_bytes(Path(compaction.directory), "clean", fs=OS)
        assert read == 2 * compaction.size_bytes, "once for its keys, once to copy what survives"


def test_after_a_log_of_too_many_keys_only_those_that_fit_for_certain_are_done(
    tmp_path: Path,
) -> None:
    many = compaction_of(tmp_path / "t-0", keys=8_000, batches=400)
    unknown = compaction_of(tmp_path / "t-1", batches=400)
    few = compaction_of(tmp_path / "t-2")
    before = compaction_of(tmp_path / "t-3", batches=400)
    rows, placements = rows_of([before, many, unknown, few], entries_max=3_000)
    assert names(rows, worker.COUNT) == ["t-3", "t-2"]
    assert names(rows, worker.FULL) == ["t-0", "t-1"]
    assert [bool(each.placed) for each in placements] == [True, False, False, True]
    assert not progress_bytes(tmp_path / "t-0", "clean", fs=OS), "it is read again"
    assert not list((tmp_path / "t-0").glob("cordwood.clean.*"))


def test_no_progress_is_left_behind_by_a_task_that_was_given_up(tmp_path: Path) -> None:
    compaction = compaction_of(tmp_path / "t-0")
    directory = Path(compaction.directory)
    end_attempt(directory, compaction.attempt.token, fs=OS)
    plan = json.dumps([compaction.to_json()])
    rows = list(worker.clean_whole(0, plan, 1, 1_000, OS))
    assert names(rows, worker.ERROR) == [compaction.name]
    assert not list(directory.glob("cordwood.clean.*"))


@pytest.mark.parametrize("damaged", range(LOGS))
def test_a_damaged_log_does_not_hold_up_the_others(tmp_path: Path, damaged: int) -> None:
    compactions = [compaction_of(tmp_path / f"t-{number}") for number in range(LOGS)]
    path = Path(compactions[damaged].segments[-1].path)
    data = bytearray(path.read_bytes())
    data[-1] ^= 0xFF
    path.write_bytes(data)
    rows, placements = rows_of(compactions)
    assert names(rows, worker.ERROR) == [compactions[damaged].name]
    others = [each.name for each in compactions if each is not compactions[damaged]]
    assert names(rows, worker.COUNT) == others
    assert not placements[damaged].placed


def test_the_next_log_is_indexed_before_the_last_groups_of_one_are_awaited(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps: list[str] = []
    for step in ("index", "rewrite", "finish"):
        inner = getattr(WholeCompaction, step)

        def noted(self: object, *given: object, step: str = step, inner: object = inner) -> object:
            steps.append(step)
            return inner(self, *given)  # type: ignore[operator]

        monkeypatch.setattr(WholeCompaction, step, noted)
    rows_of([compaction_of(tmp_path / f"t-{number}") for number in range(2)])
    assert steps == ["index", "rewrite", "index", "finish", "rewrite", "finish"]


def test_sockets_are_in_the_directory_where_their_addresses_fit() -> None:
    assert takes_sockets("local[2]", Path("/tmp/cordwood-12345678"))
    assert not takes_sockets("local[2]", Path("/tmp") / ("d" * 70))
    assert not takes_sockets("spark://host:7077", Path("/tmp/cordwood"))


def test_the_driver_is_on_loopback_only_for_workers_of_this_machine() -> None:
    assert driver_host("local[*]") == "127.0.0.1"
    assert driver_host("spark://127.0.0.1:7077") == driver_host("spark://[::1]:7077") == "localhost"
    for elsewhere in ("spark://spark:7077", "spark://a:7077,localhost:7077", "yarn"):
        assert driver_host(elsewhere) is None
    # Pods have a loopback interface of their own.
    assert driver_host("k8s://https://127.0.0.1:6443") is None
