"""A signal that comes while a rewritten group is put in place waits until the group is whole."""

from __future__ import annotations

import errno
import os
import shutil
import signal
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from cordwood.cleanup.access.announcements import progress_path
from cordwood.cleanup.access.commit import CompactionCommitter, Engine
from cordwood.configs.log_config import LogConfig
from cordwood.format.file_names import CLEANED_SUFFIX, SWAP_SUFFIX
from cordwood.storage.filesystem import OS
from cordwood.storage.replace import JOURNAL_NAME, STAGED_SUFFIX
from support.clean import digest_tree
from support.erasing import batches_of
from support.in_process_engine import clean_in_process
from support.log_builder import NOW_MS, LogBuilder, write_log_dir

pytestmark = pytest.mark.usefixtures("no_gc_callbacks")

COMPACT = LogConfig(cleanup_policy=frozenset({"compact"}), segment_index_bytes=24)


@pytest.fixture
def before(tmp_path: Path) -> Path:
    """A partition of four segments; three of them are groups to be rewritten."""
    log = LogBuilder("t-0")
    for number in range(3):
        for key in (b"a", b"b", b"c%d" % number):
            log.put(key, b"%d" % number)
        log.roll()
    log.put(b"a", b"end")
    return write_log_dir(tmp_path / "before", [log])


def clean(root: Path) -> None:
    clean_in_process(root, {"t": COMPACT}, now_ms=NOW_MS, force=True)


def contents(root: Path) -> dict[str, str]:
    return {name: facts.split(" ")[0] for name, facts in digest_tree(root).items()}


# A group takes three renames of staged files, three to .swap, and three to their names.
@pytest.mark.parametrize("at", range(1, 13))
def test_group_is_whole_and_the_next_run_goes_on(
    before: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, at: int
) -> None:
    undisturbed = shutil.copytree(before, tmp_path / "undisturbed")
    clean(undisturbed)
    root = shutil.copytree(before, tmp_path / "logs")
    rename, placed = OS.rename, []

    def interrupted(path: Path, target: Path) -> None:
        rename(path, target)
        if path.parent.name == "t-0" and not target.name.startswith("cordwood."):
            placed.append(target.name)
            if len(placed) == at:
                signal.raise_signal(signal.SIGINT)

    signal.signal(signal.SIGINT, signal.default_int_handler)
    with monkeypatch.context() as patch:
        patch.setattr(type(OS), "rename", lambda _, path, target: interrupted(path, target))
        with pytest.raises(KeyboardInterrupt):
            clean(root)
    assert len(placed) >= at
    names = {path.suffix for path in root.rglob("*")}
    assert not names & {CLEANED_SUFFIX, SWAP_SUFFIX, ".staged"}, placed
    assert contents(root) != contents(undisturbed)
    clean(root)
    assert contents(root) == contents(undisturbed)


def test_a_group_whose_outcome_is_unknown_is_not_taken_for_one_in_place(
    before: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its staged files are there as long as the journal, which names it."""
    undisturbed = shutil.copytree(before, tmp_path / "undisturbed")
    clean(undisturbed)
    rename, remove = OS.rename, OS.remove

    def not_cleaned(path: Path, target: Path) -> None:
        if target.suffix == CLEANED_SUFFIX:
            raise OSError(errno.EIO, "not renamed", str(path))
        rename(path, target)

    def kept_journal(path: Path) -> None:
        if path.name == JOURNAL_NAME:
            raise OSError(errno.EIO, "not removed", str(path))
        remove(path)

    with monkeypatch.context() as patch:
        patch.setattr(type(OS), "rename", lambda _, path, target: not_cleaned(path, target))
        patch.setattr(type(OS), "remove", lambda _, path: kept_journal(path))
        clean(before)
    assert (before / "t-0" / JOURNAL_NAME).exists()
    assert contents(before) != contents(undisturbed)
    clean(before)
    assert contents(before) == contents(undisturbed)


def test_a_compaction_that_is_stale_is_dropped_and_retention_still_comes(
    before: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rename = OS.rename

    def interrupted(path: Path, target: Path) -> None:
        rename(path, target)
        if target.suffix == SWAP_SUFFIX:
            signal.raise_signal(signal.SIGINT)

    signal.signal(signal.SIGINT, signal.default_int_handler)
    with monkeypatch.context() as patch:
        patch.setattr(type(OS), "rename", lambda _, path, target: interrupted(path, target))
        with pytest.raises(KeyboardInterrupt):
            clean(before)
    assert list(before.rglob("cordwood.*")), "the first group is in place, the others are planned"
    for log in (before / "t-0").glob("*.log"):
        os.utime(log, ns=(1, 1))
    delete = LogConfig(cleanup_policy=frozenset({"delete"}), retention_ms=1)
    report = clean_in_process(before, {"t": delete}, now_ms=NOW_MS * 2)
    (partition,) = report.partitions
    assert [each.rule for each in partition.expired], partition
    assert any("dropped" in warning for warning in partition.warnings), partition.warnings
    assert not list(before.rglob("cordwood.*"))
    assert sum(log.stat().st_size for log in (before / "t-0").glob("*.log")) == 0


#: A journal of the time before an erasure kept the header of every batch.
OLDER = """\
{"name": "t-0", "directory": "/moved/t-0", "now_ms": 1700000000000, "first_dirty": 0, \
"first_uncleanable": 3, "delete_retention_ms": 86400000, "index_interval_bytes": 4096, \
"segment_bytes": 1073741824, "legacy_horizon_ms": 0, "segments": [{"path": \
"/moved/t-0/00000000000000000000.log", "base_offset": 0, "next_base_offset": 3, \
"size_bytes": %d, "modified_ns": %d}], "groups": [[0]], "producers": [], "aborted": [], \
"model": {"size_bytes": 1, "modified_ms": 1700000000000, "modified_ns": 1700000000000000000, \
"mode": 33188, "uid": %d, "gid": %d}, "seed": 7, "attempt": "0f1e2d3c", "space_max": null, \
"one_at_a_time": false, "throttle_bytes": null, "verify": false, "batch_bytes_max": 1073741824, \
"erased": %s, "first_in_open": %s, "versions": null, "ttl_header": "", "is_measured": false, \
"groups_done": 0, "log_start_offset": 0, "before": [[], []]}
"""


@pytest.mark.parametrize(("erased", "first_in_open"), [("null", "[]"), ("[[1, 1]]", "[1]")])
def test_what_an_earlier_version_has_begun_is_continued(
    tmp_path: Path, erased: str, first_in_open: str
) -> None:
    log = LogBuilder("t-0")
    for key in (b"a", b"a", b"b"):
        log.put(key, b"1")
    log.roll()
    log.put(b"a", b"end")
    root = write_log_dir(tmp_path / "logs", [log])
    first = root / "t-0" / "00000000000000000000.log"
    facts = first.stat()
    (root / "t-0" / JOURNAL_NAME).write_text(
        OLDER
        % (facts.st_size, facts.st_mtime_ns, facts.st_uid, facts.st_gid, erased, first_in_open)
    )
    # Nothing but the journal has anything compacted.
    kept = LogConfig(cleanup_policy=frozenset({"delete"}), retention_ms=-1)
    report = clean_in_process(root, {"t": kept}, now_ms=NOW_MS)
    (partition,) = report.partitions
    assert (partition.status, partition.reason) == ("cleaned", ""), partition
    assert not any("dropped" in warning for warning in partition.warnings), partition.warnings
    left = [record.offset for batch in batches_of(first) for record in batch.records()]
    assert left == ([0, 2] if first_in_open == "[1]" else [1, 2])
    assert not (root / "t-0" / JOURNAL_NAME).exists()


class Interrupted:
    """An engine that a signal interrupts, and whose last task writes one more file as it ends."""

    def __init__(self) -> None:
        self.late: list[Path] = []

    def run(self, committers: Sequence[CompactionCommitter]) -> None:
        for committer in committers:
            committer.begin()
            self.late.append(progress_path(Path(committer.compaction.directory), "clean"))
        raise KeyboardInterrupt

    @contextmanager
    def started(self) -> Iterator[Engine]:
        try:
            yield self
        finally:
            for path in self.late:
                path.write_text("1")


def test_a_file_that_a_task_writes_until_the_engine_has_ended_is_removed(before: Path) -> None:
    untouched = contents(before)
    engine = Interrupted()
    with pytest.raises(KeyboardInterrupt):
        clean_in_process(before, {"t": COMPACT}, now_ms=NOW_MS, force=True, engine=engine.started)
    assert engine.late
    assert not [path for path in before.rglob("*") if path.name.endswith(".staged")]
    assert contents(before) == untouched


def test_a_file_that_the_disk_keeps_hides_neither_the_signal_nor_other_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    logs = [LogBuilder("t-0"), LogBuilder("t-1")]
    for log in logs:
        log.put(b"a", b"1")
        log.put(b"a", b"2")
        log.roll()
        log.put(b"a", b"end")
    root = write_log_dir(tmp_path / "logs", logs)
    engine = Interrupted()
    remove = OS.remove

    def kept(path: Path) -> None:
        if engine.late and path.parent.name == "t-0" and path.suffix == STAGED_SUFFIX:
            raise PermissionError(errno.EACCES, "not removed", str(path))
        remove(path)

    monkeypatch.setattr(type(OS), "remove", lambda _, path: kept(path))
    with pytest.raises(KeyboardInterrupt):
        clean_in_process(root, {"t": COMPACT}, now_ms=NOW_MS, force=True, engine=engine.started)
    assert {path.parent.name for path in root.rglob(f"*{STAGED_SUFFIX}")} == {"t-0"}
