from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cordwood.format.file_names import LEADER_EPOCH_CHECKPOINT
from cordwood.model.errors import CorruptError, NoSpaceError, UnsupportedVersionError
from cordwood.storage.filesystem import OS, FileFacts, OsFileSystem
from cordwood.storage.log.leader_epochs import LeaderEpochCache

UNDEFINED = (-1, -1)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / LEADER_EPOCH_CHECKPOINT


def cache_of(path: Path, *entries: tuple[int, int]) -> LeaderEpochCache:
    cache = LeaderEpochCache(path)
    for epoch, start_offset in entries:
        cache.assign(epoch, start_offset)
    return cache


def entries_of(path: Path) -> list[tuple[int, int]]:
    """The entries of the file, read again."""
    return list(LeaderEpochCache(path).epoch_entries)


# ---- assign


def test_assign_2_10_is_known_and_ends_at_the_log_end_11(path: Path) -> None:
    cache = cache_of(path)
    assert cache.assign(2, 10)
    assert cache.latest_epoch == 2
    assert cache.epoch_entries == ((2, 10),)
    assert cache.end_offset_for(2, 11) == (2, 11)


def test_assign_of_the_same_epoch_at_a_later_offset_is_ignored(path: Path) -> None:
    cache = cache_of(path, (2, 6))
    assert not cache.assign(2, 7)
    assert not cache.assign(2, 10)
    assert not cache.assign(2, 6)
    assert cache.epoch_entries == ((2, 6),)


def test_latest_epoch_ends_at_the_log_end_also_after_an_ignored_assign(path: Path) -> None:
    assert cache_of(path, (2, 11), (2, 12)).end_offset_for(2, 14) == (2, 14)


def test_assign_2_9_then_3_9_leaves_only_3_9(path: Path) -> None:
    assert cache_of(path, (2, 9), (3, 9)).epoch_entries == ((3, 9),)


def test_assign_2_6_then_3_5_leaves_only_3_5(path: Path) -> None:
    assert cache_of(path, (2, 6), (3, 5)).epoch_entries == ((3, 5),)


def test_assign_1_5_2_6_then_1_7_leaves_only_1_7(path: Path) -> None:
    cache = cache_of(path, (1, 5), (2, 6), (1, 7))
    assert cache.epoch_entries == ((1, 7),)
    assert cache.latest_epoch == 1
    assert cache.end_offset_for(1, 8) == (1, 8)
    assert cache.end_offset_for(2, 8) == UNDEFINED


def test_a_leader_that_wrote_nothing_gives_way_silently(path: Path) -> None:
    told: list[str] = []
    cache = LeaderEpochCache(path, on_warning=told.append)
    cache.assign(2, 9)
    cache.assign(3, 9)
    assert told == []
    cache.assign(4, 12)
    cache.assign(2, 3)
    assert told == [
        "New epoch entry EpochEntry(epoch=2, startOffset=3) caused truncation of conflicting "
        "entries [EpochEntry(epoch=4, startOffset=12), EpochEntry(epoch=3, startOffset=9)]. "
        "Cache now contains 0 entries."
    ]


@pytest.mark.parametrize(("epoch", "offset"), [(-1, 5), (5, -1)])
def test_assign_of_a_negative_epoch_or_offset_is_refused(
    path: Path, epoch: int, offset: int
) -> None:
    cache = cache_of(path, (1, 1))
    with pytest.raises(CorruptError, match="Received invalid partition leader epoch entry"):
        cache.assign(epoch, offset)
    assert cache.epoch_entries == ((1, 1),)


# ---- end_offset_for


def test_epochs_5_11_6_12_7_13_asked_for_4_give_4_11(path: Path) -> None:
    assert cache_of(path, (5, 11), (6, 12), (7, 13)).end_offset_for(4, 0) == (4, 11)


def test_epochs_5_11_6_12_7_13_after_assign_7_12_give_5_12_for_5_and_6(path: Path) -> None:
    cache = cache_of(path, (5, 11), (6, 12), (7, 13), (7, 12))
    assert cache.end_offset_for(5, 0) == (5, 12)
    assert cache.end_offset_for(6, 0) == (5, 12)


def test_epoch_ends_where_the_next_begins(path: Path) -> None:
    cache = cache_of(path, (1, 11), (1, 12), (2, 13), (2, 14), (3, 15), (3, 16))
    assert cache.end_offset_for(2, 17) == (2, 15)


@pytest.mark.parametrize(("asked", "answer"), [(1, (0, 13)), (2, (2, 17)), (3, (2, 17))])
def test_epochs_0_10_2_13_4_17_asked_for_1_2_3(
    path: Path, asked: int, answer: tuple[int, int]
) -> None:
    assert cache_of(path, (0, 10), (2, 13), (4, 17)).end_offset_for(asked, 0) == answer


def test_epoch_larger_than_the_latest_is_undefined(path: Path) -> None:
    assert cache_of(path, (2, 100)).end_offset_for(3, 100) == UNDEFINED


def test_undefined_epoch_is_undefined(path: Path) -> None:
    assert cache_of(path, (2, 11), (3, 12)).end_offset_for(-1, 0) == UNDEFINED


@pytest.mark.parametrize("epoch", [-1, 0, 7])
def test_any_epoch_of_an_empty_cache_is_undefined(path: Path, epoch: int) -> None:
    cache = cache_of(path)
    assert cache.end_offset_for(epoch, 73) == UNDEFINED
    assert cache.latest_epoch is None
    assert cache.earliest_entry is None
    assert not cache.non_empty


def test_epochs_as_leaders_change_before_and_after_they_write(path: Path) -> None:
    cache = cache_of(path, (0, 0), (1, 0))
    assert cache.latest_epoch == 1
    assert cache.end_offset_for(1, 0) == (1, 0)
    assert cache.end_offset_for(0, 0) == (0, 0)
    assert cache.end_offset_for(1, 5) == (1, 5)
    assert cache.end_offset_for(0, 5) == (0, 0)
    cache.assign(2, 5)
    assert cache.end_offset_for(2, 10) == (2, 10)
    assert cache.end_offset_for(1, 10) == (1, 5)
    assert cache.end_offset_for(0, 10) == (0, 0)


def test_epochs_as_a_follower_receives_batch_after_batch(path: Path) -> None:
    cache = cache_of(path, *[(offset // 3, offset) for offset in range(9)])
    assert cache.epoch_entries == ((0, 0), (1, 3), (2, 6))
    assert cache.end_offset_for(2, 9) == (2, 9)
    assert cache.end_offset_for(0, 9) == (0, 3)
    assert cache.end_offset_for(1, 9) == (1, 6)


# ---- truncation

THREE = ((2, 6), (3, 8), (4, 11))


@pytest.mark.parametrize(
    ("offset", "left"), [(8, ((2, 6),)), (9, ((2, 6), (3, 8))), (6, ()), (0, ()), (12, THREE)]
)
@pytest.mark.parametrize("durably", [True, False])
def test_epochs_2_6_3_8_4_11_truncated_from_the_end(
    path: Path, offset: int, left: tuple[tuple[int, int], ...], *, durably: bool
) -> None:
    cache = cache_of(path, *THREE)
    cache.truncate_from_end(offset, durably=durably)
    assert cache.epoch_entries == left
    cache.flush()
    assert entries_of(path) == list(left)


@pytest.mark.parametrize(
    ("offset", "left"),
    [
        (8, ((3, 8), (4, 11))),
        (9, ((3, 9), (4, 11))),
        (1, THREE),
        (6, THREE),
        (11, ((4, 11),)),
        (15, ((4, 15),)),
    ],
)
@pytest.mark.parametrize("durably", [True, False])
def test_epochs_2_6_3_8_4_11_truncated_from_the_start(
    path: Path, offset: int, left: tuple[tuple[int, int], ...], *, durably: bool
) -> None:
    cache = cache_of(path, *THREE)
    cache.truncate_from_start(offset, durably=durably)
    assert cache.epoch_entries == left
    cache.flush()
    assert entries_of(path) == list(left)


def test_epochs_0_0_1_7_2_10_truncated_from_the_start_at_5_begin_there(path: Path) -> None:
    cache = cache_of(path, (0, 0), (1, 7), (2, 10))
    cache.truncate_from_start(5)
    assert cache.epoch_entries == ((0, 5), (1, 7), (2, 10))


def test_truncation_at_an_undefined_offset_changes_nothing(path: Path) -> None:
    cache = cache_of(path, *THREE)
    cache.truncate_from_start(-1)
    cache.truncate_from_end(-1)
    assert cache.epoch_entries == THREE


def test_truncation_of_an_empty_cache_changes_nothing(path: Path) -> None:
    cache = cache_of(path)
    cache.truncate_from_start(7)
    cache.truncate_from_end(7)
    assert cache.epoch_entries == ()
    assert path.read_bytes() == b""


def test_truncations_are_also_written_to_the_file(path: Path) -> None:
    cache = cache_of(path, *THREE)
    cache.truncate_from_end(11)
    cache.truncate_from_start(8)
    assert path.read_text() == "0\n1\n3 8\n"


def test_a_truncation_put_off_is_written_by_flush_and_not_before(path: Path) -> None:
    cache = cache_of(path, *THREE)
    cache.truncate_from_end(11, durably=False)
    assert entries_of(path) == list(THREE)
    cache.flush()
    assert entries_of(path) == [(2, 6), (3, 8)]


def test_an_epoch_assigned_after_a_truncation_put_off_takes_it_along(path: Path) -> None:
    cache = cache_of(path, *THREE)
    cache.truncate_from_end(11, durably=False)
    cache.assign(5, 9)
    assert entries_of(path) == [(2, 6), (3, 8), (5, 9)]


def test_all_entries_are_cleared_and_so_is_the_file(path: Path) -> None:
    cache = cache_of(path, *THREE)
    cache.clear_and_flush()
    assert cache.epoch_entries == ()
    assert path.read_text() == "0\n0\n"


def test_clear_leaves_the_file_alone(path: Path) -> None:
    cache = cache_of(path, *THREE)
    cache.clear()
    assert not cache.non_empty
    assert entries_of(path) == list(THREE)


# ---- lookups


@pytest.mark.parametrize(
    ("offset", "epoch"), [(25, 1), (20, 1), (30, 5), (50, 5), (5, None), (10, 0), (19, 0)]
)
def test_epoch_for_offset_over_0_10_1_20_5_30(path: Path, offset: int, epoch: int | None) -> None:
    assert cache_of(path, (0, 10), (1, 20), (5, 30)).epoch_for_offset(offset) == epoch


def test_previous_epoch(path: Path) -> None:
    cache = cache_of(path)
    seen = [cache.previous_epoch]
    for epoch, start_offset in ((2, 10), (4, 15), (10, 20)):
        cache.assign(epoch, start_offset)
        seen.append(cache.previous_epoch)
    cache.truncate_from_end(18)
    assert [*seen, cache.previous_epoch] == [None, None, 2, 4, 2]


def test_the_first_and_the_last_entry(path: Path) -> None:
    cache = cache_of(path, (2, 100), (3, 500), (5, 1000))
    assert cache.earliest_entry == (2, 100)
    assert cache.latest_entry == (5, 1000)


# ---- the file


def test_epochs_persist_between_instances(path: Path) -> None:
    cache_of(path, (2, 6))
    assert entries_of(path) == [(2, 6)]


def test_a_new_log_has_an_empty_file(path: Path) -> None:
    cache_of(path)
    assert path.read_bytes() == b""
    assert entries_of(path) == []


def test_the_file_is_written_only_when_something_changes(path: Path) -> None:
    cache = cache_of(path, *THREE)
    before = path.stat().st_ino
    cache.assign(4, 20)
    cache.truncate_from_end(12)
    cache.truncate_from_start(6)
    cache.flush()
    assert path.stat().st_ino == before, "a write replaces the file"
    cache.assign(5, 20)
    assert path.stat().st_ino != before


def test_entries_that_contradict_each_other_are_read_as_if_assigned(path: Path) -> None:
    path.write_text("0\n4\n1 5\n3 4\n2 9\n7 9\n")
    assert entries_of(path) == [(7, 9)]


def test_a_file_that_cannot_be_read_is_refused_by_name(path: Path) -> None:
    path.write_text("0\n2\n1 5\n")
    with pytest.raises(CorruptError, match=LEADER_EPOCH_CHECKPOINT):
        LeaderEpochCache(path)
    path.write_text("1\n0\n")
    with pytest.raises(UnsupportedVersionError):
        LeaderEpochCache(path)
    path.write_text("0\n1\n-1 5\n")
    with pytest.raises(CorruptError, match="invalid partition leader epoch"):
        LeaderEpochCache(path)


def test_a_renamed_directory_is_written_to_from_then_on(tmp_path: Path) -> None:
    old, new = tmp_path / "t-0", tmp_path / "t-0.delete"
    old.mkdir()
    cache = cache_of(old / LEADER_EPOCH_CHECKPOINT, *THREE)
    old.rename(new)
    cache.move_to(new)
    cache.truncate_from_end(8)
    assert entries_of(new / LEADER_EPOCH_CHECKPOINT) == [(2, 6)]
    assert not old.exists()


def test_flush_of_a_removed_directory_is_no_error(tmp_path: Path) -> None:
    directory = tmp_path / "t-0"
    directory.mkdir()
    cache = cache_of(directory / LEADER_EPOCH_CHECKPOINT, *THREE)
    cache.truncate_from_end(8, durably=False)
    OS.remove_tree(directory)
    cache.flush()
    assert not directory.exists()


class FullDisk(OsFileSystem):
    """A file system without room for another checkpoint."""

    is_full = False

    def replace_durably(self, path: Path, data: object, *, model: FileFacts | None = None) -> None:
        if self.is_full:
            raise NoSpaceError("full")
        assert isinstance(data, bytes)
        super().replace_durably(path, data, model=model)


def test_an_epoch_that_could_not_be_written_is_not_known(path: Path) -> None:
    disk = FullDisk()
    cache = LeaderEpochCache(path, fs=disk)
    cache.assign(1, 5)
    disk.is_full = True
    with pytest.raises(NoSpaceError):
        cache.assign(2, 9)
    assert cache.latest_epoch == 1
    disk.is_full = False
    assert cache.assign(2, 9)
    assert entries_of(path) == [(1, 5), (2, 9)]


def test_a_truncation_that_could_not_be_written_is_written_later(path: Path) -> None:
    disk = FullDisk()
    cache = LeaderEpochCache(path, fs=disk)
    cache.assign(1, 5)
    cache.assign(2, 9)
    disk.is_full = True
    with pytest.raises(NoSpaceError):
        cache.truncate_from_end(9)
    assert cache.latest_epoch == 1
    disk.is_full = False
    cache.flush()
    assert entries_of(path) == [(1, 5)]


# ---- laws

STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("assign"), st.integers(0, 8), st.integers(0, 30)),
        st.tuples(st.just("end"), st.integers(-1, 30), st.just(0)),
        st.tuples(st.just("start"), st.integers(-1, 30), st.just(0)),
    ),
    max_size=20,
)


@given(STEPS)
def test_epochs_and_offsets_ascend_whatever_is_done(
    tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[str, int, int]]
) -> None:
    path = tmp_path_factory.mktemp("epochs") / LEADER_EPOCH_CHECKPOINT
    cache = LeaderEpochCache(path, on_warning=lambda _: None)
    for step, first, second in steps:
        if step == "assign":
            cache.assign(first, second)
            assert cache.latest_epoch == first
        elif step == "end":
            cache.truncate_from_end(first)
        else:
            cache.truncate_from_start(first)
    entries = cache.epoch_entries
    assert list(entries) == sorted(entries)
    assert len({entry.epoch for entry in entries}) == len(entries)
    assert len({entry.start_offset for entry in entries}) == len(entries)
    assert [entry.start_offset for entry in entries] == sorted(e.start_offset for e in entries)
    assert entries_of(path) == list(entries)
    for epoch in range(10):
        higher = [entry for entry in entries if entry.epoch > epoch]
        floor = [entry for entry in entries if entry.epoch <= epoch]
        if floor and not higher and floor[-1].epoch == epoch:
            expected = (epoch, 99)
        elif not higher:
            expected = UNDEFINED
        else:
            expected = (floor[-1].epoch if floor else epoch, higher[0].start_offset)
        assert cache.end_offset_for(epoch, 99) == expected
