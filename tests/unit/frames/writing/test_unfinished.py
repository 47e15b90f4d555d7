"""Commits that a kill has interrupted: the next write takes back what they left."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from cordwood.format.file_names import CLEAN_SHUTDOWN
from cordwood.format.offset_checkpoint import parse_offset_checkpoint
from cordwood.frames.writing.unfinished import NAME, Unfinished, begin, undo
from cordwood.storage.filesystem import OS, OsFile, OsFileSystem
from support.log_builder import TOPIC_ID, LogBuilder, write_log_dir
from support.metadata_logs import write_metadata_log
from support.written_topics import attempted, committed, planned, records_in, rows, write

PAIRS = [(b"k%d" % number, b"v%d" % number) for number in range(40)]


class Killed(BaseException):
    """The end of the process, for each change from some moment on."""


class KilledFileSystem(OsFileSystem):
    """The machine's files, until a number of changes were made."""

    def __init__(self, changes: int) -> None:
        self.left = changes

    def _change(self) -> None:
        if self.left <= 0:
            raise Killed
        self.left -= 1

    def rename(self, path: Path, target: Path) -> None:
        self._change()
        super().rename(path, target)

    def remove(self, path: Path) -> None:
        self._change()
        super().remove(path)

    def create(self, path: Path) -> OsFile:
        self._change()
        return super().create(path)


def values(log_dir: Path) -> list[bytes]:
    """The values of all partitions of the topic."""
    return sorted(
        each.value or b"" for path in log_dir.glob("orders-?") for each in records_in(path)
    )


def built(name: str, *, rolled: bool) -> LogBuilder:
    log = LogBuilder(name)
    log.batch([(b"k", b"old")] * 3)
    if rolled:
        log.roll()
    return log


def killed(log_dir: Path, changes: int, **options: str) -> bool:
    """Writes, and is killed after so many changes; whether that was before the end."""
    plan = planned(log_dir, **options)
    staged = attempted(plan, [rows(PAIRS[:20])], [rows(PAIRS[20:])])
    try:
        committed(plan, staged, fs=KilledFileSystem(changes))
    except Killed:
        return True
    return False


@pytest.mark.parametrize("clean", [False, True], ids=["no checkpoints", "checkpoints"])
def test_a_write_after_one_that_was_killed_adds_its_rows_once(tmp_path: Path, clean: bool) -> None:
    expected = sorted([*[b"old"] * 6, *(value for _, value in PAIRS)])
    kills = 0
    for changes in range(0, 60, 3):
        log_dir = tmp_path / str(changes)
        logs = [built("orders-0", rolled=True), built("orders-1", rolled=False)]
        if clean:
            write_log_dir(log_dir, logs)
            (log_dir / "meta.properties").unlink()
        else:
            for log in logs:
                log.write(log_dir / str(log.topic_partition))
        if not killed(log_dir, changes):
            break
        kills += 1
        write(log_dir, [rows(PAIRS)])
        assert values(log_dir) == expected
        assert not (log_dir / NAME).exists()
        if clean:
            lines = parse_offset_checkpoint(
                (log_dir / "recovery-point-offset-checkpoint").read_bytes()
            )
            assert sum(lines.values()) == len(expected)
    assert kills > 5


def test_a_new_topic_after_one_that_was_killed_has_its_rows_once(tmp_path: Path) -> None:
    expected = sorted(value for _, value in PAIRS)
    kills = 0
    for changes in range(60):
        log_dir = tmp_path / str(changes)
        if not killed(log_dir, changes, partitions="2"):
            break
        kills += 1
        # It was whole, or it is made again.
        if (log_dir / NAME).exists():
            undo(log_dir, fs=OS)
            assert values(log_dir) == []
            write(log_dir, [rows(PAIRS)], partitions="2")
        elif not (log_dir / "orders-0").exists():
            write(log_dir, [rows(PAIRS)], partitions="2")
        assert values(log_dir) == expected
    assert kills > 5


def test_what_a_broker_has_opened_since_stays(tmp_path: Path) -> None:
    write_log_dir(tmp_path, [built("orders-0", rolled=False)])
    commit = Unfinished(topic="orders", topic_id=None, ends={0: 0}, actives={0: 0})
    begin(tmp_path, commit, fs=OS)
    os.utime(tmp_path / CLEAN_SHUTDOWN, (5, 5))
    undo(tmp_path, fs=OS)
    assert values(tmp_path) == [b"old"] * 3
    assert not (tmp_path / NAME).exists()
    begin(tmp_path, commit, fs=OS)
    undo(tmp_path, fs=OS)
    assert values(tmp_path) == []


def test_a_new_topic_that_the_metadata_log_has_stays(tmp_path: Path) -> None:
    write_log_dir(tmp_path, [built("orders-0", rolled=False), built("other-0", rolled=False)])
    commit = Unfinished(topic="orders", topic_id=TOPIC_ID, ends={}, actives={})
    write_metadata_log(tmp_path, "orders")
    begin(tmp_path, commit, fs=OS)
    undo(tmp_path, fs=OS)
    assert values(tmp_path) == [b"old"] * 3
    OS.remove_tree(tmp_path / "__cluster_metadata-0")
    begin(tmp_path, commit, fs=OS)
    undo(tmp_path, fs=OS)
    assert not (tmp_path / "orders-0").exists()
    assert (tmp_path / "other-0").exists()
