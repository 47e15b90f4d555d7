"""Segments put in place, and what a crash leaves half done: the recovery tests of LogCleanerTest.

The files of a crash are laid out by hand, with Kafka's names alone or with a compaction's journal.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from cordwood.model.errors import CorruptError
from cordwood.storage.replace import (
    CompactionJournal,
    StagedSegment,
    dispose_deleted,
    put_in_place,
    recover_directory,
)
from cordwood.storage.trash import Trash
from support.log_builder import LogBuilder

OLD, NEW = b"old", b"new"
SUFFIXES = (".log", ".index", ".timeindex")
GROUP = [0, 2]


def name(base: int, suffix: str) -> str:
    return f"{base:020d}{suffix}"


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """Two segments of a record each, at 0 and 2, and an active one at 4."""
    log = LogBuilder()
    for _ in range(2):
        log.put(b"a", OLD)
        log.skip(1)
        log.roll()
    log.put(b"b", OLD)
    return log.write(tmp_path / "log-0")


def cleaned_files() -> dict[str, bytes]:
    """The files of the segment that stands for both."""
    log = LogBuilder()
    log.skip(2)
    log.put(b"a", NEW)
    return {suffix: log.files_of(log.segments[0])[suffix] for suffix in SUFFIXES}


def lay_out(directory: Path, states: dict[str, str]) -> None:
    """Puts the new segment's files there, each with the suffix of its state."""
    for suffix, data in cleaned_files().items():
        if suffix in states:
            (directory / (name(0, suffix) + states[suffix])).write_bytes(data)


def all_in(state: str) -> dict[str, str]:
    return dict.fromkeys(SUFFIXES, state)


def mark_sources_deleted(directory: Path, *, after: int = 99) -> None:
    """Sources become `.deleted`, up to so many files."""
    files = [name(base, suffix) for base in GROUP for suffix in SUFFIXES]
    for file in files[:after]:
        (directory / file).rename(directory / f"{file}.deleted")


def content(directory: Path) -> dict[str, bytes]:
    return {p.name: p.read_bytes() for p in sorted(directory.iterdir()) if p.is_file()}


def assert_old(directory: Path, before: dict[str, bytes]) -> None:
    assert content(directory) == before


def assert_new(directory: Path) -> None:
    now = content(directory)
    assert {suffix: now[name(0, suffix)] for suffix in SUFFIXES} == cleaned_files()
    assert not [file for file in now if file.startswith(f"{2:020d}") and "snapshot" not in file]
    assert not [f for f in now if f.endswith((".deleted", ".swap", ".cleaned", ".staged"))]
    assert name(4, ".log") in now


# ---- by Kafka's names alone


@pytest.mark.parametrize(
    "states",
    [
        all_in(".cleaned"),
        {".log": ".cleaned"},
        {".log": ".swap", ".index": ".cleaned", ".timeindex": ".cleaned"},
        {".log": ".swap", ".index": ".swap", ".timeindex": ".cleaned"},
    ],
)
def test_originals_win_while_anything_is_cleaned(directory: Path, states: dict[str, str]) -> None:
    before = content(directory)
    lay_out(directory, states)
    recover_directory(directory)
    assert_old(directory, before)
    assert recover_directory(directory).changes == ()


@pytest.mark.parametrize("retired", [0, 1, 2, 3, 5, 6])
def test_the_cleaned_segment_wins_once_all_is_swap(directory: Path, retired: int) -> None:
    lay_out(directory, all_in(".swap"))
    mark_sources_deleted(directory, after=retired)
    recover_directory(directory)
    assert_new(directory)
    once = content(directory)
    assert recover_directory(directory).changes == ()
    assert content(directory) == once


@pytest.mark.parametrize(
    "states",
    [
        {".log": "", ".index": ".swap", ".timeindex": ".swap"},
        {".log": "", ".index": "", ".timeindex": ".swap"},
    ],
)
def test_renames_cut_short_are_finished(directory: Path, states: dict[str, str]) -> None:
    mark_sources_deleted(directory)
    lay_out(directory, states)
    recover_directory(directory)
    assert_new(directory)


# ---- with a compaction's journal


def journal(directory: Path, *, tokens: list[str]) -> CompactionJournal:
    made = CompactionJournal(directory)
    made.begin({"groups": [GROUP, [4]]})
    for group, token in enumerate(tokens):
        made.intend(group, token, [[0], [4]][group], ["after", group])
    return made


def test_staged_files_without_an_intent_are_removed(directory: Path) -> None:
    before = content(directory)
    lay_out(directory, all_in(".t0.staged"))
    found = recover_directory(directory)
    assert (found.plan, found.groups_done, found.after) == (None, 0, None)
    assert_old(directory, before)


@pytest.mark.parametrize(
    "states",
    [
        all_in(".t0.staged"),
        {".log": ".t0.staged", ".index": ".cleaned", ".timeindex": ".cleaned"},
        all_in(".cleaned"),
        {".log": ".swap", ".index": ".cleaned", ".timeindex": ".cleaned"},
    ],
)
def test_intent_not_carried_out_is_forgotten_with_its_files(
    directory: Path, states: dict[str, str]
) -> None:
    before = content(directory)
    made = journal(directory, tokens=["t0"])
    lay_out(directory, states)
    found = recover_directory(directory)
    assert (found.groups_done, found.after) == (0, None)
    assert found.plan == {"groups": [GROUP, [4]]}
    read = made.read()
    assert read is not None
    assert read[1] == []
    made.end()
    assert_old(directory, before)


@pytest.mark.parametrize("retired", [0, 1, 2, 3, 5, 6])
def test_intent_whose_swap_is_whole_is_finished(directory: Path, retired: int) -> None:
    made = journal(directory, tokens=["t0"])
    lay_out(directory, all_in(".swap"))
    mark_sources_deleted(directory, after=retired)
    found = recover_directory(directory)
    assert (found.groups_done, found.after) == (1, ["after", 0])
    made.end()
    assert_new(directory)


@pytest.mark.parametrize(
    "states",
    [
        {".log": "", ".index": ".swap", ".timeindex": ".swap"},
        {".log": "", ".index": "", ".timeindex": ".swap"},
        all_in(""),
    ],
)
def test_new_log_that_has_its_name_is_not_taken_for_a_source(
    directory: Path, states: dict[str, str]
) -> None:
    """It was, and a crash between the last renames lost the whole group."""
    made = journal(directory, tokens=["t0"])
    mark_sources_deleted(directory)
    lay_out(directory, states)
    assert recover_directory(directory).groups_done == 1
    made.end()
    assert_new(directory)


def test_files_staged_for_the_next_group_do_not_undo_the_last(directory: Path) -> None:
    made = journal(directory, tokens=["t0"])
    mark_sources_deleted(directory)
    lay_out(directory, all_in(""))
    (directory / name(4, ".log.t1.staged")).write_bytes(b"half")
    assert recover_directory(directory).groups_done == 1
    made.end()
    assert_new(directory)


def test_undone_group_does_not_undo_the_one_before(directory: Path) -> None:
    made = journal(directory, tokens=["t0", "t1"])
    mark_sources_deleted(directory)
    lay_out(directory, all_in(""))
    (directory / name(4, ".index.cleaned")).write_bytes(b"")
    (directory / name(4, ".log.t1.staged")).write_bytes(b"")
    assert recover_directory(directory).groups_done == 1
    assert recover_directory(directory).groups_done == 1
    made.end()
    assert_new(directory)


def test_line_torn_by_a_crash_was_not_acted_upon_and_is_cut_off(directory: Path) -> None:
    made = journal(directory, tokens=["t0"])
    mark_sources_deleted(directory)
    lay_out(directory, all_in(""))
    with made.path.open("ab") as file:
        file.write(b'{"group": 1, "tok')
    assert recover_directory(directory).groups_done == 1
    made.intend(1, "t2", [4], [])
    read = made.read()
    assert read is not None
    assert [intent["group"] for intent in read[1]] == [0, 1]


@pytest.mark.parametrize(
    "text", ["", "junk\n", '{"groups": []}\n{"group": "x"}\n', '{"groups": []}\n{"token": 1}\n']
)
def test_damaged_journal_is_refused_and_nothing_is_touched(directory: Path, text: str) -> None:
    (directory / "cordwood.round").write_text(text)
    lay_out(directory, all_in(".cleaned"))
    before = content(directory)
    with pytest.raises(CorruptError, match="not the journal of a compaction") as caught:
        recover_directory(directory)
    assert caught.value.path == str(directory / "cordwood.round")
    assert_old(directory, before)


# ---- in one go


def staged(directory: Path) -> StagedSegment:
    lay_out(directory, all_in(".t0.staged"))
    return StagedSegment(directory=str(directory), base_offset=0, token="t0")


def test_a_group_takes_the_place_of_its_sources(directory: Path) -> None:
    put_in_place([staged(directory)], GROUP)
    dispose_deleted(directory)
    assert_new(directory)
    # The snapshot at the first base stays; there is none. That of the second goes with it.
    assert sorted(p.name for p in directory.glob("*.snapshot")) == [
        name(4, ".snapshot"),
        name(5, ".snapshot"),
    ]


def test_sources_go_to_the_trash_under_their_own_names(directory: Path, tmp_path: Path) -> None:
    before = content(directory)
    put_in_place([staged(directory)], GROUP)
    dispose_deleted(directory, Trash(tmp_path / "trash"))
    assert_new(directory)
    kept = content(tmp_path / "trash" / "log-0")
    assert kept == {
        file: data for file, data in before.items() if file.startswith((f"{0:020d}", f"{2:020d}"))
    }


def test_journal_is_one_document_a_line(directory: Path) -> None:
    made = journal(directory, tokens=["t0", "t1"])
    lines = made.path.read_text().splitlines()
    assert [json.loads(line) for line in lines[1:]] == [
        {"group": 0, "token": "t0", "bases": [0], "after": ["after", 0]},
        {"group": 1, "token": "t1", "bases": [4], "after": ["after", 1]},
    ]
