"""Restoration from a trash: data comes back as it was, or stays there with the reason."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from cordwood.cleanup.access.offline.log_directory import OfflineLogDirectory
from cordwood.cleanup.access.offline.trash_restore import Restored, restore
from cordwood.configs.log_config import LogConfig
from cordwood.format.file_names import TRASH_NOTES
from cordwood.format.trash_notes import COMPACTION, RETENTION
from cordwood.model.errors import CorruptError
from cordwood.storage.filesystem import OS, DirectoryLock, OsFile, OsFileSystem
from cordwood.storage.trash import TrashedPartition, trashed_partitions
from support.in_process_engine import clean_in_process
from support.log_builder import NOW_MS, LogBuilder, write_log_dir
from support.stored_log import StoredLogs, records_in

DAY_MS = 86_400_000
DELETE = LogConfig(retention_ms=3 * DAY_MS)
COMPACT = LogConfig(cleanup_policy=frozenset({"compact"}), min_cleanable_dirty_ratio=0.0)
BOTH = replace(COMPACT, cleanup_policy=frozenset({"compact", "delete"}), retention_ms=3 * DAY_MS)


def log_of(name: str = "t-0", *, days: int = 6) -> LogBuilder:
    """A segment a day, each with a key of its own, two that return, and an aborted transaction."""
    log = LogBuilder(name)
    for day in range(days):
        if day:
            log.roll()
        at = NOW_MS - (days - day) * DAY_MS
        log.batch([(b"a%d" % (day % 2), b"%d" % day), (b"b", b"w" * 50)], timestamp=at)
        log.batch([(b"c%d" % day, b"v")], timestamp=at, producer=(7, 0), transactional=True)
        log.marker((7, 0), commit=bool(day % 2), timestamp=at)
        if day == 2:
            log.new_leader_epoch()
    return log


Tree = dict[str, tuple[bytes, int]]


def tree(root: Path) -> Tree:
    """The bytes of every file, and when segments were modified."""
    found: Tree = {}
    for path in sorted(root.rglob("*")):
        if path.is_file():
            is_segment = path.suffix in {".log", ".index", ".timeindex", ".txnindex"}
            time = path.stat().st_mtime_ns if is_segment else 0
            found[str(path.relative_to(root))] = (path.read_bytes(), time)
    return found


def clean(root: Path, config: LogConfig, *, now_ms: int = NOW_MS) -> None:
    report = clean_in_process(root, {"t": config}, now_ms=now_ms, trash=root.parent / "trash")
    assert report.failed == []


def bring_back(root: Path, *, since_ms: int = 0, dry_run: bool = False) -> Restored:
    trashed = TrashedPartition(root.parent / "trash" / "t-0")
    return restore(trashed, OfflineLogDirectory(root), since_ms=since_ms, dry_run=dry_run)


def read_of(root: Path, config: LogConfig) -> list[object]:
    """The records that a broker serves of the directory, which it loads and stops."""
    logs = StoredLogs(root)
    logs.configs["t"] = config
    manager = logs.start()
    log = logs.log()
    found: list[object] = [log.log_start_offset, log.log_end_offset, *records_in(log)]
    manager.shutdown()
    return found


POLICIES = pytest.mark.parametrize(
    "config",
    [DELETE, COMPACT, BOTH, replace(DELETE, retention_ms=0), replace(COMPACT, segment_bytes=300)],
    ids=["delete", "compact", "both", "all of it", "compact in groups"],
)


@POLICIES
def test_a_cleaned_log_is_as_it_was_byte_for_byte(tmp_path: Path, config: LogConfig) -> None:
    root = write_log_dir(tmp_path / "logs", [log_of()])
    before = tree(root)
    clean(root, config)
    after = tree(root)
    assert after != before
    shown = bring_back(root, dry_run=True)
    assert (tree(root), shown.refused) == (after, None)
    found = bring_back(root)
    assert (found.removals, found.refused) == (shown.removals, None)
    assert tree(root) == before
    assert list((tmp_path / "trash").iterdir()) == []


def test_several_cleanings_are_undone_from_the_newest_on(tmp_path: Path) -> None:
    root = write_log_dir(tmp_path / "logs", [log_of()])
    states = [tree(root)]
    for config in (
        replace(COMPACT, segment_bytes=300),
        DELETE,
        replace(DELETE, retention_ms=2 * DAY_MS),
    ):
        clean(root, config)
        states.append(tree(root))
    removals = TrashedPartition(tmp_path / "trash" / "t-0").removals()
    assert [each.why for each in removals][-2:] == [RETENTION, RETENTION]
    assert {each.why for each in removals[:-2]} == {COMPACTION}
    assert len({str(state) for state in states}) == 4
    assert bring_back(root, dry_run=True).removals == removals[::-1]
    newest = removals[-1].at_ms
    removals[:-1] = [replace(each, at_ms=newest - 1) for each in removals[:-1]]
    TrashedPartition(tmp_path / "trash" / "t-0")._write(removals)
    assert bring_back(root, since_ms=newest).removals == removals[-1:]
    assert tree(root) == states[2]
    assert bring_back(root).refused is None
    assert tree(root) == states[0]


def test_a_log_start_inside_a_segment_and_epochs_that_have_begun_since(tmp_path: Path) -> None:
    log = log_of()
    log.log_start_offset = 3
    root = write_log_dir(tmp_path / "logs", [log])
    before = tree(root)
    clean(root, DELETE)
    epochs = root / "t-0" / "leader-epoch-checkpoint"
    assert b"\n0 3\n" not in epochs.read_bytes()
    epochs.write_bytes(epochs.read_bytes().replace(b"0\n1\n", b"0\n2\n") + b"5 24\n")
    assert bring_back(root).refused is None
    now = tree(root)
    assert epochs.read_bytes() == b"0\n3\n0 3\n1 12\n5 24\n"
    name = "t-0/leader-epoch-checkpoint"
    assert now | {name: before[name]} == before
    assert (root / "log-start-offset-checkpoint").read_bytes() == b"0\n1\nt 0 3\n"


# ---- refusals


def damage_rewritten(root: Path) -> None:
    path = root / "t-0" / f"{0:020d}.log"
    facts = OS.facts_of(path)
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
    OS.set_modified(path, facts.modified_ns)


def remove_first(root: Path) -> None:
    for path in sorted((root / "t-0").glob("*.log"))[:1]:
        for each in (root / "t-0").glob(f"{path.stem}.*"):
            each.unlink()


def make_again(root: Path) -> None:
    path = root / "t-0" / "partition.metadata"
    path.write_text("version: 0\ntopic_id: MkU3OEVBNTcwNTJENDM2Qk")


def lose_one(root: Path) -> None:
    (root.parent / "trash" / "t-0" / f"{0:020d}.log").unlink()


@pytest.mark.parametrize(
    ("config", "change", "says"),
    [
        (COMPACT, damage_rewritten, "the segment at offset 0, which took the place of what was"),
        (COMPACT, remove_first, "has changed or gone since"),
        (COMPACT, make_again, "the topic was made again since: its id was"),
        (COMPACT, lose_one, "00.log is missing, or is not the file that was removed"),
        (DELETE, remove_first, r"begins at offset \d+ by now, .* what is between them is lost"),
        (DELETE, make_again, "the topic was made again since: its id was"),
        (DELETE, lose_one, "00.log is missing, or is not the file that was removed"),
    ],
)
def test_what_cannot_come_back_stays_with_the_reason(
    tmp_path: Path, config: LogConfig, change: Callable[[Path], None], says: str
) -> None:
    root = write_log_dir(tmp_path / "logs", [log_of()])
    clean(root, config)
    change(root)
    before = tree(tmp_path)
    for dry_run in (True, False):
        found = bring_back(root, dry_run=dry_run)
        assert found.removals == []
        with pytest.raises(AssertionError, match=says):
            raise AssertionError(found.refused)
    assert tree(tmp_path) == before


def test_damaged_notes_are_an_error_with_their_file(tmp_path: Path) -> None:
    root = write_log_dir(tmp_path / "logs", [log_of()])
    clean(root, DELETE)
    notes = tmp_path / "trash" / "t-0" / TRASH_NOTES
    notes.write_bytes(notes.read_bytes()[:-20])
    with pytest.raises(CorruptError, match=f"{notes}: not the notes of a trash"):
        bring_back(root)


def test_files_without_a_note_are_known_as_such(tmp_path: Path) -> None:
    root = write_log_dir(tmp_path / "logs", [log_of()])
    clean(root, DELETE)
    (tmp_path / "trash" / "t-0" / "00.log").write_bytes(b"x")
    (trashed,) = trashed_partitions(tmp_path / "trash")
    assert trashed.unknown() == ["00.log"]
    assert bring_back(root).refused is None
    assert [path.name for path in (tmp_path / "trash" / "t-0").iterdir()] == ["00.log"]


def test_an_index_that_is_lost_is_built_again(tmp_path: Path) -> None:
    """That of transactions, too, or aborted records were read."""
    for config in (DELETE, COMPACT):
        root = write_log_dir(tmp_path / "".join(config.cleanup_policy) / "logs", [log_of()])
        before = tree(root)
        clean(root, config)
        (root.parent / "trash" / "t-0" / f"{0:020d}.txnindex").unlink()
        assert bring_back(root).refused is None
        assert not list((root / "t-0").glob(f"{0:020d}.*index"))
        read_of(root, config)
        name = f"t-0/{0:020d}.txnindex"
        assert tree(root)[name][0] == before[name][0]


# ---- crashes


class Killed(BaseException):
    """The process is killed: nothing that it would still do is done."""


CHANGES = ("rename", "remove", "create", "sync_directory", "set_modified", "remove_directory")


@contextmanager
def killed_before(number: int, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    """No change of a file from this one on is made; the list is of those that were."""
    made: list[int] = []

    def counted(function: Callable[..., Any]) -> Callable[..., Any]:
        def change(*arguments: Any) -> Any:
            if len(made) >= number:
                raise Killed
            made.append(0)
            return function(*arguments)

        return change

    with monkeypatch.context() as patched:
        for name in CHANGES:
            patched.setattr(OsFileSystem, name, counted(getattr(OsFileSystem, name)))
        patched.setattr(OsFile, "write_at", counted(OsFile.write_at))
        with suppress(Killed):
            yield made


def crashes(work: Callable[[int], bool], *, every: int = 1) -> int:
    """Calls `work` with each step to be killed before, until it was not killed."""
    number = 0
    while work(number):
        number += every
    return number


@POLICIES
@pytest.mark.parametrize("with_a_broker", [False, True])
def test_a_restoration_that_is_killed_is_finished_by_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, config: LogConfig, with_a_broker: bool
) -> None:
    """A broker may run in between: then indexes may have been built again."""

    def work(number: int) -> bool:
        root = write_log_dir(tmp_path / f"{number}" / "logs", [log_of()])
        before, records = tree(root), read_of(write_log_dir(root.parent / "x", [log_of()]), config)
        clean(root, config)
        cleaned = None
        if with_a_broker:
            cleaned = records_after_clean
        with killed_before(number, monkeypatch) as made:
            bring_back(root)
        is_done = len(made) < number
        if with_a_broker:
            served = read_of(root, config)
            assert served[1:2] == records[1:2]
            assert set(map(str, served[2:])) <= set(map(str, records[2:]))
            assert set(map(str, served[2:])) >= set(map(str, cleaned or []))
        if (root.parent / "trash" / "t-0").exists():
            assert bring_back(root).refused is None, number
        if with_a_broker:
            assert read_of(root, config) == records, number
        else:
            now = tree(root)
            assert now | {n: before[n] for n in before.keys() - now.keys()} == before, number
            assert all(name.endswith(".snapshot") for name in before.keys() - now.keys()), number
        return not is_done

    other = write_log_dir(tmp_path / "other" / "logs", [log_of()])
    clean(other, config)
    records_after_clean = read_of(other, config)[2:]
    assert crashes(work, every=3 if with_a_broker else 2) > 10


def logs_of(files: Tree) -> Tree:
    """All but indexes and snapshots, which a loader removes beside a log that is gone."""
    gone = (".snapshot", "index")
    return {name: each for name, each in files.items() if not name.endswith(gone)}


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
@pytest.mark.parametrize("config", [DELETE, BOTH, COMPACT], ids=["delete", "both", "compact"])
def test_a_cleaning_that_was_killed_and_run_again_is_undone_as_a_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, config: LogConfig
) -> None:
    records = read_of(write_log_dir(tmp_path / "read" / "logs", [log_of()]), config)

    def work(number: int) -> bool:
        root = write_log_dir(tmp_path / f"{number}" / "logs", [log_of()])
        before = tree(root)
        with killed_before(number, monkeypatch) as made:
            clean_in_process(root, {"t": config}, now_ms=NOW_MS, trash=root.parent / "trash")
        is_done = len(made) < number
        for left in (root, root.parent / "trash"):
            (left / ".lock").unlink(missing_ok=True)
        release_locks()
        clean(root, config)
        assert bring_back(root).refused is None, number
        assert logs_of(tree(root)) == logs_of(before), number
        assert read_of(root, config) == records, number
        return not is_done

    assert crashes(work, every=5) > 10


def release_locks() -> None:
    """Releases locks, as the end of the process does."""
    DirectoryLock._held.clear()
