"""Scenarios of TransactionIndexTest."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from cordwood.format.transaction_index import AbortedTransaction, build_transaction_index
from cordwood.model.errors import CorruptError, NoSpaceError, UnsupportedVersionError
from cordwood.storage.segment.transaction_index import TransactionIndex
from cordwood.testing.simulated_filesystem import SimulatedFileSystem


def aborted(producer_id: int, first: int, last: int, stable: int) -> AbortedTransaction:
    return AbortedTransaction(
        producer_id=producer_id, first_offset=first, last_offset=last, last_stable_offset=stable
    )


A = aborted(0, 0, 10, 11)
B = aborted(1, 5, 15, 13)
C = aborted(2, 18, 35, 25)
D = aborted(3, 32, 50, 40)
ALL = [A, B, C, D]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "00000000000000000000.txnindex"


@pytest.fixture
def index(path: Path) -> TransactionIndex:
    return TransactionIndex(path, 0)


def fill(index: TransactionIndex, *entries: AbortedTransaction) -> TransactionIndex:
    for entry in entries or ALL:
        index.append(entry)
    return index


# ---- collect


@pytest.mark.parametrize(
    ("start", "end", "expected", "complete"),
    [
        (0, 100, ALL, False),
        (0, 32, [A, B, C], True),
        (0, 35, ALL, True),
        (10, 35, ALL, True),
        (11, 35, [B, C, D], True),
        (20, 41, [C, D], False),
    ],
    ids=[
        "all of it is incomplete",
        "up to 32 is A, B, C and complete",
        "up to 35 is all and complete",
        "from A's marker on is all",
        "from behind A's marker is B, C, D",
        "from 20 to 41 is C, D and incomplete",
    ],
)
def test_transactions_that_overlap_a_range(
    index: TransactionIndex,
    start: int,
    end: int,
    expected: list[AbortedTransaction],
    complete: bool,
) -> None:
    assert fill(index).collect_aborted(start, end) == (expected, complete)


def test_an_index_without_a_file_has_no_transactions(index: TransactionIndex, path: Path) -> None:
    assert index.is_empty
    assert index.collect_aborted(0, 100) == ([], False)
    assert not path.exists()


# ---- append


def test_a_reopened_index_goes_on_behind_its_entries(index: TransactionIndex, path: Path) -> None:
    fill(index)
    reopened = TransactionIndex(path, 0)
    more = aborted(3, 50, 60, 55)
    reopened.append(more)
    assert reopened.all_aborted() == [*ALL, more]
    assert TransactionIndex(path, 0).all_aborted() == [*ALL, more]
    assert path.read_bytes() == build_transaction_index([*ALL, more])


def test_the_same_last_offset_again_is_an_illegal_argument(index: TransactionIndex) -> None:
    fill(index, B)
    with pytest.raises(ValueError, match="must increase sequentially"):
        index.append(aborted(0, 0, 15, 11))
    assert index.all_aborted() == [B]


def test_a_lower_last_offset_is_an_illegal_argument(index: TransactionIndex) -> None:
    fill(index, B)
    with pytest.raises(ValueError, match="must increase sequentially"):
        index.append(aborted(0, 0, 10, 11))


def test_the_file_is_made_by_the_first_append_and_not_before(
    index: TransactionIndex, path: Path
) -> None:
    index.reset()
    index.flush()
    index.truncate_to(0)
    assert not path.exists()
    fill(index, A)
    assert path.read_bytes() == build_transaction_index([A])


def test_a_closed_index_still_takes_entries_and_gives_them(index: TransactionIndex) -> None:
    index.close()
    index.append(A)
    index.close()
    index.append(B)
    index.close()
    assert index.collect_aborted(0, 100).transactions == [A, B]


def test_an_entry_that_the_disk_has_no_room_for_is_written_by_the_next_flush() -> None:
    fs = SimulatedFileSystem()
    fs.make_directory(Path("/log"))
    path = Path("/log/x.txnindex")
    index = TransactionIndex(path, 0, fs=fs)
    index.append(A)
    fs.capacity_bytes = 40
    index.append(B)
    assert index.collect_aborted(0, 100).transactions == [A, B]
    assert fs.read_bytes(path) == build_transaction_index([A])
    for let_go in (index.flush, index.close):
        with pytest.raises(NoSpaceError):
            let_go()
        assert index.all_aborted() == [A, B]
    fs.capacity_bytes = 1000
    index.flush()
    assert fs.read_bytes(path) == build_transaction_index([A, B])
    index.append(C)
    assert fs.read_bytes(path) == build_transaction_index([A, B, C])


def test_an_entry_that_waits_for_room_can_be_taken_back() -> None:
    fs = SimulatedFileSystem()
    fs.make_directory(Path("/log"))
    path = Path("/log/x.txnindex")
    index = TransactionIndex(path, 0, fs=fs)
    fs.capacity_bytes = 10
    index.append(A)
    index.append(B)
    index.truncate_to(B.last_offset)
    assert index.all_aborted() == [A]
    index.truncate_to(0)
    assert index.all_aborted() == []
    fs.capacity_bytes = 1000
    index.append(C)
    index.close()
    assert index.all_aborted() == [C]
    assert fs.read_bytes(path) == build_transaction_index([C])


# ---- sanity


def test_sanity_check_passes_on_a_good_index_and_without_a_file(index: TransactionIndex) -> None:
    index.sanity_check()
    fill(index)
    index.close()
    index.sanity_check()


def test_sanity_check_rejects_entries_below_the_base(index: TransactionIndex, path: Path) -> None:
    fill(index)
    with pytest.raises(CorruptError, match="is less than start offset 100"):
        TransactionIndex(path, 100).sanity_check()


@pytest.mark.parametrize("cut", [1, 33])
def test_sanity_check_rejects_half_an_entry(index: TransactionIndex, path: Path, cut: int) -> None:
    fill(index)
    path.write_bytes(path.read_bytes()[:-cut])
    with pytest.raises(CorruptError, match=str(path)):
        TransactionIndex(path, 0).sanity_check()


def test_an_entry_of_a_later_version_is_refused(path: Path) -> None:
    path.write_bytes(b"\0\1" + build_transaction_index([A])[2:])
    with pytest.raises(UnsupportedVersionError, match=str(path)):
        TransactionIndex(path, 0).all_aborted()


def test_any_bytes_give_entries_or_a_typed_error(path: Path) -> None:
    rng = random.Random(1)
    good = build_transaction_index(ALL)
    for _ in range(200):
        data = bytearray(good)
        data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
        path.write_bytes(data[: rng.choice([34, 68, 70, len(data)])])
        index = TransactionIndex(path, 0)
        try:
            index.sanity_check()
        except CorruptError:
            continue
        known = index.all_aborted()
        assert all(entry in known for entry in index.collect_aborted(0, 1 << 62).transactions)


# ---- truncate


def test_truncate_beyond_the_last_marker_changes_nothing(index: TransactionIndex) -> None:
    fill(index).truncate_to(51)
    assert index.all_aborted() == ALL


def test_truncate_to_the_last_marker_removes_it(index: TransactionIndex, path: Path) -> None:
    fill(index).truncate_to(50)
    assert index.all_aborted() == [A, B, C]
    assert path.read_bytes() == build_transaction_index([A, B, C])
    index.append(aborted(9, 40, 45, 46))
    assert len(TransactionIndex(path, 0).all_aborted()) == 4


def test_a_reader_of_the_entries_before_a_truncation_is_not_disturbed(
    index: TransactionIndex,
) -> None:
    before = fill(index).all_aborted()
    index.truncate_to(16)
    assert before == ALL
    assert index.all_aborted() == [A, B]


def test_a_reset_index_is_empty_and_its_file_too(index: TransactionIndex, path: Path) -> None:
    fill(index).reset()
    assert index.is_empty
    assert path.read_bytes() == b""
    index.append(A)
    assert path.read_bytes() == build_transaction_index([A])


def test_a_damaged_index_can_be_reset(path: Path) -> None:
    path.write_bytes(b"garbage")
    index = TransactionIndex(path, 0)
    index.reset()
    assert index.is_empty
    assert path.read_bytes() == b""


# ---- flush, rename, delete


def test_flush_of_a_file_that_is_not_there_does_nothing(
    index: TransactionIndex, path: Path
) -> None:
    index.flush()
    assert not path.exists()
    fill(index, A).flush()
    assert path.stat().st_size == 34


def test_flush_makes_entries_last_through_a_power_loss() -> None:
    fs = SimulatedFileSystem()
    directory = Path("/log")
    fs.make_directory(directory)
    fs.sync_directory(Path("/"))
    index = TransactionIndex(directory / "x.txnindex", 0, fs=fs, is_new=True)
    fill(index).flush()
    fs.sync_directory(directory)
    for image in fs.crash_images(5, random.Random(1)):
        assert TransactionIndex(directory / "x.txnindex", 0, fs=image).all_aborted() == ALL


def test_after_a_rename_entries_go_to_the_renamed_file(index: TransactionIndex, path: Path) -> None:
    target = path.with_name("renamed.txnindex")
    assert fill(index, A).rename_to(target)
    index.append(B)
    assert not path.exists()
    assert TransactionIndex(target, 0).all_aborted() == [A, B]


def test_an_emptied_file_is_renamed_too(index: TransactionIndex, path: Path) -> None:
    target = path.with_name("renamed.txnindex")
    fill(index).reset()
    assert index.rename_to(target)
    assert target.exists()


def test_a_rename_without_a_file_makes_none(index: TransactionIndex, path: Path) -> None:
    target = path.with_name("renamed.txnindex")
    assert not index.rename_to(target)
    assert not target.exists()
    index.append(A)
    assert target.exists()
    assert not path.exists()


def test_delete_says_whether_there_was_a_file(index: TransactionIndex, path: Path) -> None:
    fill(index)
    assert index.delete_if_exists()
    assert not path.exists()
    assert not index.delete_if_exists()
    assert index.is_empty


def test_an_index_known_to_have_no_file_does_not_look_for_one(
    index: TransactionIndex, path: Path
) -> None:
    index.forget_file()
    path.write_bytes(b"garbage")
    assert index.all_aborted() == []
