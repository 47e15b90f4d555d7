"""Directories in which a clean or a split was interrupted, by hand, at each of its steps.

Scenarios of LogCleanerTest.testRecoveryAfterCrash, of LogLoaderTest about splits, and those of a
compaction of `cordwood clean`, whose journal and staged files may be left as well.
"""

from __future__ import annotations

import json
import logging
import random
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from cordwood.configs.log_config import LogConfig
from cordwood.format.file_names import segment_file_name
from cordwood.format.offset_index import build_offset_index
from cordwood.format.producer_snapshot import build_producer_snapshot
from cordwood.format.time_index import build_time_index
from cordwood.format.transaction_index import AbortedTransaction, build_transaction_index
from cordwood.model.errors import CorruptError
from cordwood.storage.log.partition_log import PartitionLog
from cordwood.storage.replace import JOURNAL_NAME
from cordwood.testing.reference_cleaner import index_entries
from cordwood.testing.simulated_filesystem import FileOperation, SimulatedFileSystem
from support.stored_log import StoredLog, batch_of, keys_in, put

INT_MAX = (1 << 31) - 1
INDEXES = (".index", ".timeindex")
FILES = (".log", *INDEXES)
NOW_MS = 1_700_000_000_000

Files = dict[str, bytes]


# ---- a log of ten segments, and what a clean makes of the first nine


def key_of(offset: int) -> bytes:
    return b"%d" % offset


def segment_files(base_offset: int, batches: Sequence[tuple[bytes, int]]) -> Files:
    """The files of a segment by suffix; batches come with their last offsets."""
    facts = [(len(data), last_offset, NOW_MS) for data, last_offset in batches]
    offsets, times = index_entries(facts, interval_bytes=1)
    return {
        ".log": b"".join(data for data, _ in batches),
        ".index": build_offset_index(offsets, base_offset),
        ".timeindex": build_time_index(times, base_offset),
    }


def one_record_each(offsets: Sequence[int]) -> list[tuple[bytes, int]]:
    return [(batch_of(key_of(n), key=key_of(n), base_offset=n, leader_epoch=0), n) for n in offsets]


COUNT = 40
PER_SEGMENT = 4
ALL: list[bytes | None] = [key_of(n) for n in range(COUNT)]
EVEN: list[bytes | None] = [
    key_of(n) for n in range(COUNT) if n % 2 == 0 or n >= COUNT - PER_SEGMENT
]
BASES = list(range(0, COUNT, PER_SEGMENT))
MERGED = [0, BASES[-1]]
CLEANED = ".cleaned"
SWAP = ".swap"


class Prepared:
    """Ten segments of four keys each, and the one that odd keys were cleaned from."""

    def __init__(self, root: Path) -> None:
        config = LogConfig(segment_bytes=300, index_interval_bytes=1, file_delete_delay_ms=10)
        self.fs = SimulatedFileSystem()
        self.stored = StoredLog(root, config, fs=self.fs)
        self.directory = self.stored.directory
        self.fs.make_directory(self.directory)
        for base in BASES:
            files = segment_files(base, one_record_each(range(base, base + PER_SEGMENT)))
            self.write(base, files)
            if base:
                self.write(base, {".snapshot": build_producer_snapshot([])})
        for path in (self.directory, *self.directory.parents):
            self.fs.sync_directory(path)
        last = BASES[-1]
        self.cleaned = segment_files(0, one_record_each([n for n in range(last) if n % 2 == 0]))

    def write(self, base: int, files: Files, suffix: str = "") -> None:
        """Writes files of a segment, with a further suffix."""
        for kind, data in files.items():
            self.fs.write_durably(self.directory / (segment_file_name(base, kind) + suffix), data)

    def write_cleaned(self, **suffixes: str) -> None:
        """Writes the cleaned segment's files; log="", index=".swap", timeindex=".cleaned"."""
        for kind, suffix in suffixes.items():
            self.write(0, {f".{kind}": self.cleaned[f".{kind}"]}, suffix)

    def mark_deleted(self, bases: Sequence[int]) -> None:
        """Renames the files of segments to `.deleted`, and the snapshots of all but the first."""
        for base in bases:
            for kind in (*FILES, *([".snapshot"] if base else [])):
                path = self.directory / segment_file_name(base, kind)
                self.fs.rename(path, path.with_name(path.name + ".deleted"))
        self.fs.sync_directory(self.directory)

    @property
    def names(self) -> list[str]:
        return self.fs.names_in(self.directory)

    def require_names(self, bases: Sequence[int]) -> None:
        """Checks that these segments, whole, are all that is there."""
        expected = {segment_file_name(base, kind) for base in bases for kind in FILES}
        others = {name for name in self.names if not name.endswith(".snapshot")}
        assert others == {*expected, "leader-epoch-checkpoint"}
        snapshots = {int(n[:20]) for n in self.names if n.endswith(".snapshot")}
        assert snapshots <= {*bases, COUNT}


Step = Callable[[Prepared], None]


def before_the_rename_to_swap(prepared: Prepared) -> None:
    prepared.write_cleaned(log=CLEANED, index=CLEANED, timeindex=CLEANED)


def before_all_is_written(prepared: Prepared) -> None:
    prepared.cleaned[".log"] = prepared.cleaned[".log"][:100]
    prepared.write_cleaned(log=CLEANED)


def after_the_rename_of_the_log_alone(prepared: Prepared) -> None:
    prepared.write_cleaned(log=SWAP, index=CLEANED, timeindex=CLEANED)


def after_the_rename_of_log_and_index(prepared: Prepared) -> None:
    prepared.write_cleaned(log=SWAP, index=SWAP, timeindex=CLEANED)


def after_the_rename_to_swap(prepared: Prepared) -> None:
    prepared.write_cleaned(log=SWAP, index=SWAP, timeindex=SWAP)


def after_some_originals_are_retired(prepared: Prepared) -> None:
    prepared.write_cleaned(log=SWAP, index=SWAP, timeindex=SWAP)
    prepared.mark_deleted(BASES[:4])


def after_the_first_original_is_half_retired(prepared: Prepared) -> None:
    prepared.write_cleaned(log=SWAP, index=SWAP, timeindex=SWAP)
    path = prepared.directory / segment_file_name(0, ".log")
    prepared.fs.rename(path, path.with_name(path.name + ".deleted"))
    prepared.fs.sync_directory(prepared.directory)


def after_all_originals_are_retired(prepared: Prepared) -> None:
    prepared.write_cleaned(log=SWAP, index=SWAP, timeindex=SWAP)
    prepared.mark_deleted(BASES[:-1])


def after_the_log_has_its_final_name(prepared: Prepared) -> None:
    prepared.mark_deleted(BASES[:-1])
    prepared.write_cleaned(log="", index=SWAP, timeindex=SWAP)


def with_only_the_time_index_still_to_be_renamed(prepared: Prepared) -> None:
    prepared.mark_deleted(BASES[:-1])
    prepared.write_cleaned(log="", index="", timeindex=SWAP)


def before_the_originals_are_removed(prepared: Prepared) -> None:
    prepared.mark_deleted(BASES[:-1])
    prepared.write_cleaned(log="", index="", timeindex="")


def before_some_originals_are_removed(prepared: Prepared) -> None:
    prepared.mark_deleted(BASES[:-1])
    for name in prepared.names[::2]:
        if name.endswith(".deleted"):
            prepared.fs.remove(prepared.directory / name)
    prepared.write_cleaned(log="", index="", timeindex="")


UNDONE = [
    before_all_is_written,
    before_the_rename_to_swap,
    after_the_rename_of_the_log_alone,
    after_the_rename_of_log_and_index,
]
FINISHED = [
    after_the_rename_to_swap,
    after_some_originals_are_retired,
    after_the_first_original_is_half_retired,
    after_all_originals_are_retired,
    after_the_log_has_its_final_name,
    with_only_the_time_index_still_to_be_renamed,
    before_the_originals_are_removed,
    before_some_originals_are_removed,
]
STATES = [(step, ALL, BASES) for step in UNDONE] + [(step, EVEN, MERGED) for step in FINISHED]
named = pytest.mark.parametrize(
    ("step", "keys", "bases"), STATES, ids=[state[0].__name__ for state in STATES]
)


def check(
    prepared: Prepared, log: PartitionLog, keys: list[bytes | None], bases: list[int]
) -> None:
    assert keys_in(log) == keys
    assert list(log.segments.base_offsets) == bases
    assert (log.log_start_offset, log.log_end_offset) == (0, COUNT)
    prepared.require_names(bases)


@named
@pytest.mark.parametrize("clean", [True, False])
def test_a_clean_that_was_interrupted(
    tmp_path: Path, step: Step, keys: list[bytes | None], bases: list[int], *, clean: bool
) -> None:
    prepared = Prepared(tmp_path)
    step(prepared)
    log = prepared.stored.open(clean=clean)
    check(prepared, log, keys, bases)
    prepared.stored.require_settled(clean=clean)
    put(prepared.stored.log, b"next", key=b"next")
    assert keys_in(prepared.stored.log) == [*keys, b"next"]


@named
def test_power_lost_at_each_step_of_the_recovery_of_an_interrupted_clean(
    tmp_path: Path, step: Step, keys: list[bytes | None], bases: list[int]
) -> None:
    rng = random.Random(3)
    prepared = Prepared(tmp_path)
    step(prepared)
    images: list[SimulatedFileSystem] = []
    fs = prepared.fs

    def snap(operation: FileOperation) -> None:
        images.extend(fs.crash_images(2, rng))
        images.append(fs.process_crash())

    fs.on_operation = snap
    prepared.stored.open()
    fs.on_operation = None
    assert images
    for image in images[:: max(1, len(images) // 40)]:
        again = StoredLog(tmp_path, prepared.stored.config, fs=image)
        log = again.open()
        assert keys_in(log) == keys
        assert list(log.segments.base_offsets) == bases
        again.require_settled()


def test_a_transaction_index_is_swapped_with_the_rest(tmp_path: Path) -> None:
    prepared = Prepared(tmp_path)
    prepared.write(4, {".txnindex": b"\0" * 34})
    prepared.write_cleaned(log=SWAP, index=SWAP, timeindex=SWAP)
    entry = AbortedTransaction(producer_id=23, first_offset=2, last_offset=6, last_stable_offset=7)
    prepared.write(0, {".txnindex": build_transaction_index([entry])}, SWAP)
    log = prepared.stored.open(clean=True)
    assert keys_in(log) == EVEN
    assert log.segments.first.indexes.transactions.all_aborted() == [entry]
    assert [n for n in prepared.names if n.endswith(".txnindex")] == [
        segment_file_name(0, ".txnindex")
    ]


def test_a_swap_above_a_cleaned_file_is_undone_and_one_below_it_finished(tmp_path: Path) -> None:
    prepared = Prepared(tmp_path)
    first = segment_files(0, one_record_each([0, 2, 4, 6]))
    second = segment_files(8, one_record_each([8, 10, 12, 14]))
    third = segment_files(16, one_record_each([16, 18, 20, 22]))
    prepared.write(0, first, SWAP)
    prepared.write(8, second, CLEANED)
    prepared.write(16, third, SWAP)
    log = prepared.stored.open(clean=True)
    assert keys_in(log) == [key_of(n) for n in range(40) if n >= 8 or n % 2 == 0]
    assert list(log.segments.base_offsets) == [0, *BASES[2:]]
    prepared.stored.require_settled(clean=True)


def test_a_swapped_index_whose_log_is_gone_is_removed(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    prepared = Prepared(tmp_path)
    prepared.write(100, {".timeindex": b"", ".index": b""}, SWAP)
    log = prepared.stored.open(clean=True)
    check(prepared, log, ALL, BASES)
    assert caplog.text.count("Found an orphaned index file") == 2
    prepared.stored.require_settled(clean=True)


def test_temporary_files_of_other_kinds_do_not_disturb(tmp_path: Path) -> None:
    prepared = Prepared(tmp_path)
    for name in ("leader-epoch-checkpoint.tmp", "partition.metadata.tmp", "note.txt"):
        prepared.fs.write_durably(prepared.directory / name, b"x")
    log = prepared.stored.open()
    assert keys_in(log) == ALL
    assert "note.txt" in prepared.names


@pytest.mark.parametrize("name", ["note.log.swap", "note.cleaned", "note.index"])
def test_a_file_of_a_segment_whose_name_is_no_offset_is_told_by_name(
    tmp_path: Path, name: str
) -> None:
    prepared = Prepared(tmp_path)
    prepared.fs.write_durably(prepared.directory / name, b"x")
    with pytest.raises(CorruptError, match=f"'{name}' does not begin with an offset"):
        prepared.stored.open()
    assert name in prepared.names


def test_a_file_that_is_no_segments_stays_where_segments_are_swapped(tmp_path: Path) -> None:
    prepared = Prepared(tmp_path)
    prepared.fs.write_durably(prepared.directory / "1st-note.txt", b"x")
    after_the_rename_to_swap(prepared)
    assert keys_in(prepared.stored.open()) == EVEN
    assert "1st-note.txt" in prepared.names


# ---- a compaction of `cordwood clean` that was killed

TOKEN = "a1b2c3"
GROUPS = [[0, 4, 8], [12, 16]]


def staged_name(base: int, kind: str) -> str:
    return f"{segment_file_name(base, kind)}.{TOKEN}.staged"


def write_journal(prepared: Prepared, *intents: int) -> None:
    lines = [{"groups": GROUPS}, *({"group": n, "token": TOKEN, "after": []} for n in intents)]
    data = b"".join(json.dumps(line).encode() + b"\n" for line in lines)
    prepared.fs.write_durably(prepared.directory / JOURNAL_NAME, data)


def merged_files(group: Sequence[int]) -> Files:
    offsets = [n for base in group for n in range(base, base + 4) if n % 2 == 0]
    return segment_files(group[0], one_record_each(offsets))


def keys_with_groups_done(count: int) -> list[bytes | None]:
    done = {base for group in GROUPS[:count] for base in group}
    return [key_of(n) for n in range(40) if n % 2 == 0 or n - n % 4 not in done]


@pytest.mark.parametrize("intended", [False, True])
def test_staged_files_and_a_journal_leave_the_log_as_it_was(
    tmp_path: Path, *, intended: bool
) -> None:
    prepared = Prepared(tmp_path)
    write_journal(prepared, *([0] if intended else []))
    for kind, data in merged_files(GROUPS[0]).items():
        prepared.fs.write_durably(prepared.directory / staged_name(0, kind), data)
    log = prepared.stored.open()
    check(prepared, log, ALL, BASES)
    prepared.stored.require_settled()


@pytest.mark.parametrize("beside", [False, True])
def test_a_journal_that_was_not_renamed_is_removed(tmp_path: Path, *, beside: bool) -> None:
    prepared = Prepared(tmp_path)
    if beside:
        write_journal(prepared, 0)
    cut_short = prepared.directory / f"{JOURNAL_NAME}.tmp"
    prepared.fs.write_durably(cut_short, b'{"groups": [[0, 4')
    log = prepared.stored.open()
    check(prepared, log, ALL, BASES)
    assert not prepared.fs.exists(cut_short)
    prepared.stored.require_settled()


def test_a_group_all_of_whose_files_are_swaps_is_finished(tmp_path: Path) -> None:
    prepared = Prepared(tmp_path)
    write_journal(prepared, 0)
    prepared.write(0, merged_files(GROUPS[0]), SWAP)
    log = prepared.stored.open()
    assert keys_in(log) == keys_with_groups_done(1)
    prepared.require_names([0, *BASES[3:]])
    prepared.stored.require_settled()


def test_a_second_group_half_renamed_is_undone_and_the_first_stays(tmp_path: Path) -> None:
    prepared = Prepared(tmp_path)
    write_journal(prepared, 0, 1)
    prepared.mark_deleted(GROUPS[0])
    prepared.write(0, merged_files(GROUPS[0]))
    files = merged_files(GROUPS[1])
    prepared.write(12, {".log": files[".log"]}, SWAP)
    prepared.write(12, {kind: files[kind] for kind in INDEXES}, CLEANED)
    log = prepared.stored.open()
    assert keys_in(log) == keys_with_groups_done(1)
    prepared.require_names([0, *BASES[3:]])
    prepared.stored.require_settled()


def test_a_second_group_whose_log_has_its_final_name_is_finished(tmp_path: Path) -> None:
    prepared = Prepared(tmp_path)
    write_journal(prepared, 0, 1)
    prepared.mark_deleted(GROUPS[0])
    prepared.write(0, merged_files(GROUPS[0]))
    prepared.mark_deleted(GROUPS[1])
    files = merged_files(GROUPS[1])
    prepared.write(12, {".log": files[".log"]})
    prepared.write(12, {kind: files[kind] for kind in INDEXES}, SWAP)
    log = prepared.stored.open()
    assert keys_in(log) == keys_with_groups_done(2)
    prepared.require_names([0, 12, *BASES[5:]])
    prepared.stored.require_settled()


def test_a_journal_that_cannot_be_read_is_dropped_and_kafkas_own_rules_hold(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    prepared = Prepared(tmp_path)
    prepared.fs.write_durably(prepared.directory / JOURNAL_NAME, b"\xff\xfe no journal\n")
    after_the_rename_to_swap(prepared)
    log = prepared.stored.open()
    check(prepared, log, EVEN, MERGED)
    assert "it is dropped" in caplog.text
    prepared.stored.require_settled()


def test_power_lost_at_each_step_of_the_recovery_of_a_killed_round(tmp_path: Path) -> None:
    rng = random.Random(5)
    prepared = Prepared(tmp_path)
    write_journal(prepared, 0, 1)
    prepared.mark_deleted(GROUPS[0])
    prepared.write(0, merged_files(GROUPS[0]))
    prepared.write(12, merged_files(GROUPS[1]), SWAP)
    images: list[SimulatedFileSystem] = []
    fs = prepared.fs

    def snap(operation: FileOperation) -> None:
        images.extend(fs.crash_images(3, rng))

    fs.on_operation = snap
    prepared.stored.open()
    fs.on_operation = None
    assert len(images) > 30
    for image in images:
        again = StoredLog(tmp_path, prepared.stored.config, fs=image)
        log = again.open()
        assert keys_in(log) == keys_with_groups_done(2)
        assert list(log.segments.base_offsets) == [0, 12, *BASES[5:]]


# ---- splits of a segment whose offsets reach too far


def sample_batches(base: int) -> tuple[list[tuple[bytes, int]], int]:
    """Three batches that reach as far as one segment can, and the offset behind them."""

    def batch(*offsets: int) -> tuple[bytes, int]:
        return batch_of(*map(key_of, offsets), key=key_of(offsets[0]), base_offset=offsets[0]), (
            offsets[-1]
        )

    far = base + INT_MAX - 1
    return [batch(base), batch(base + 1, base + 2), batch(far)], far + 1


class Overflowed:
    """Three segments, of which the second has overflowed."""

    def __init__(self, root: Path) -> None:
        self.stored = StoredLog(root, LogConfig(index_interval_bytes=1, file_delete_delay_ms=1000))
        self.directory = self.stored.directory
        self.directory.mkdir(parents=True)
        first, base = sample_batches(0)
        low, middle = sample_batches(base)
        high, end = sample_batches(middle)
        last, self.end = sample_batches(end)
        self.original = base
        # The first batch of the second half is just within reach.
        self.pieces = {base: [*low, high[0]], middle + 1: high[1:]}
        self.bases = [0, base, middle + 1, end]
        for segment, batches in ((0, first), (base, low + high), (end, last)):
            self.write(segment, batches)
        self.keys = [key for data, _ in first + low + high + last for key in keys_of(data)]

    def write(
        self, base: int, batches: Sequence[tuple[bytes, int]] | None, suffix: str = ""
    ) -> None:
        """Writes a segment and empty indexes; None for an empty log."""
        data = b"".join(data for data, _ in batches or [])
        (self.directory / (segment_file_name(base, ".log") + suffix)).write_bytes(data)
        for kind in INDEXES:
            (self.directory / (segment_file_name(base, kind) + suffix)).write_bytes(b"")

    def remove_original(self) -> None:
        for kind in FILES:
            (self.directory / segment_file_name(self.original, kind)).unlink()

    def check(self, log: PartitionLog) -> None:
        assert keys_in(log) == self.keys
        assert list(log.segments.base_offsets) == self.bases
        assert log.log_end_offset == self.end
        assert not any(segment.has_overflow() for segment in log.segments)
        for segment in log.segments:
            assert segment.offset_index.last_offset <= segment.base_offset + INT_MAX
        left = {name for name in self.stored.files() if name.endswith((".swap", ".cleaned"))}
        assert not left


def keys_of(data: bytes) -> list[bytes | None]:
    count = int.from_bytes(data[57:61], "big")
    return [key_of(int.from_bytes(data[:8], "big"))] * count


def test_a_segment_that_has_overflowed_is_split_by_recovery(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    overflowed = Overflowed(tmp_path)
    overflowed.check(overflowed.stored.open())
    assert caplog.text.count("Split segment and retry") == 1
    caplog.clear()
    overflowed.stored.require_settled()
    assert "Split segment" not in caplog.text


def split_before_the_rename_to_swap(overflowed: Overflowed) -> None:
    for base in overflowed.pieces:
        overflowed.write(base, None, CLEANED)


def split_after_one_rename_to_swap(overflowed: Overflowed) -> None:
    low, high = overflowed.pieces
    overflowed.write(low, None, CLEANED)
    overflowed.write(high, None, SWAP)


def split_after_both_renames_to_swap(overflowed: Overflowed) -> None:
    overflowed.write(overflowed.original, None)
    for base, batches in overflowed.pieces.items():
        overflowed.write(base, batches, SWAP)


def split_after_the_original_is_gone(overflowed: Overflowed) -> None:
    overflowed.remove_original()
    for base, batches in overflowed.pieces.items():
        overflowed.write(base, batches, SWAP)


def split_after_one_final_rename(overflowed: Overflowed) -> None:
    overflowed.remove_original()
    (low, low_batches), (high, high_batches) = overflowed.pieces.items()
    overflowed.write(low, low_batches)
    overflowed.write(high, high_batches, SWAP)


@pytest.mark.parametrize(
    "step",
    [
        split_before_the_rename_to_swap,
        split_after_one_rename_to_swap,
        split_after_both_renames_to_swap,
        split_after_the_original_is_gone,
        split_after_one_final_rename,
    ],
)
def test_a_split_that_was_interrupted(tmp_path: Path, step: Callable[[Overflowed], None]) -> None:
    overflowed = Overflowed(tmp_path)
    step(overflowed)
    overflowed.check(overflowed.stored.open())
    overflowed.stored.require_settled()


def test_power_lost_at_each_step_of_a_split(tmp_path: Path) -> None:
    rng = random.Random(11)
    overflowed = Overflowed(tmp_path)
    fs = SimulatedFileSystem()
    fs.load(tmp_path)
    images: list[SimulatedFileSystem] = []

    def snap(operation: FileOperation) -> None:
        images.extend(fs.crash_images(3, rng))

    fs.on_operation = snap
    stored = StoredLog(tmp_path, overflowed.stored.config, fs=fs)
    stored.open()
    fs.on_operation = None
    assert len(images) > 20
    for image in images:
        again = StoredLog(tmp_path, overflowed.stored.config, fs=image)
        log = again.open()
        assert keys_in(log) == overflowed.keys
        assert list(log.segments.base_offsets) == overflowed.bases


@pytest.mark.parametrize(
    ("what", "batches", "base", "end"),
    [
        (
            "every batch",
            [batch_of(b"a", base_offset=INT_MAX + 1), batch_of(b"b", base_offset=INT_MAX + 2)],
            INT_MAX + 1,
            INT_MAX + 3,
        ),
        (
            "the last offset of the only batch",
            [batch_of(b"a", b"b", b"c", base_offset=INT_MAX - 1)],
            INT_MAX - 1,
            INT_MAX + 2,
        ),
    ],
)
def test_a_split_into_one_when_out_of_reach_is(
    tmp_path: Path, what: str, batches: list[bytes], base: int, end: int
) -> None:
    stored = StoredLog(tmp_path, LogConfig(index_interval_bytes=1))
    stored.directory.mkdir()
    behind = batch_of(b"z", base_offset=end)
    for start, data in ((0, b"".join(batches)), (end, behind)):
        (stored.directory / segment_file_name(start, ".log")).write_bytes(data)
        (stored.directory / segment_file_name(start, ".index")).write_bytes(b"")
    log = stored.open()
    assert list(log.segments.base_offsets) == [base, end]
    assert log.log_end_offset == end + 1
    assert log.log_start_offset == base
    stored.require_settled()
