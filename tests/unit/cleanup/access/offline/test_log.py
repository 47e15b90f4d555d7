from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from cordwood.cleanup.access.offline.log import OfflineLog, load_offline_log
from cordwood.cleanup.access.offline.log_directory import Checkpoints
from cordwood.configs.log_config import LogConfig
from cordwood.format.producer_snapshot import parse_producer_snapshot
from cordwood.storage.producers.producer_snapshots import snapshot_offsets, tidy_snapshots
from support.clean import digest_tree
from support.log_builder import NOW_MS, LogBuilder

DAY_MS = 86_400_000


def built(tmp_path: Path, log: LogBuilder) -> Path:
    return log.write(tmp_path / str(log.topic_partition))


def load(
    directory: Path, log: LogBuilder, *, log_start: int = 0, now_ms: int = NOW_MS
) -> OfflineLog:
    """After a kill, so that the producers are read from the batches where no snapshot has them."""
    before = digest_tree(directory)
    offline = load_offline_log(
        directory,
        log.topic_partition,
        config=LogConfig(),
        checkpoints=Checkpoints(
            recovery_point={},
            log_start={log.topic_partition: log_start},
            high_watermark={},
            cleaner={},
        ),
        clean_shutdown=False,
        producer_expiration_ms=DAY_MS,
        now_ms=now_ms,
    )
    assert digest_tree(directory) == before, "nothing is written"
    return offline


def three_segments() -> LogBuilder:
    """Offsets 0 to 8, three to a segment; producers 5 and 6, a transaction of 6 open from 4."""
    log = LogBuilder("t-0")
    log.batch([(b"a", b"1"), (b"b", b"1"), (b"c", b"1")], producer=(5, 0), timestamp=NOW_MS)
    log.roll()
    log.put(b"a", b"2", producer=(5, 0), timestamp=NOW_MS)
    log.put(b"a", b"3", producer=(6, 0), timestamp=NOW_MS, transactional=True)
    log.put(b"a", b"4", timestamp=NOW_MS)
    log.roll()
    log.batch([(b"a", b"5"), (b"b", b"5"), (b"c", b"5")], producer=(5, 1), timestamp=NOW_MS)
    return log


def remove_snapshots(directory: Path, *, above: int = -1) -> None:
    for offset in snapshot_offsets(directory):
        if offset > above:
            (directory / f"{offset:020d}.snapshot").unlink()


@pytest.mark.parametrize("newest", [9, 6, 3, -1])
def test_the_state_at_the_end_is_the_same_from_whichever_snapshot(
    tmp_path: Path, newest: int
) -> None:
    log = three_segments()
    directory = built(tmp_path, log)
    assert snapshot_offsets(directory) == [3, 6, 9]
    remove_snapshots(directory, above=newest)
    offline = load(directory, log)
    assert not offline.warnings
    state = offline.log.producer_state
    assert state.map_end_offset == 9
    assert offline.log.offsets.first_unstable == 4
    entries = {entry.producer_id: entry for entry in state.entries()}
    assert (entries[5].producer_epoch, entries[5].last_sequence, entries[5].last_offset) == (
        1,
        2,
        8,
    )
    assert entries[6].current_txn_first_offset == 4


def test_a_damaged_snapshot_is_passed_over_and_left(tmp_path: Path) -> None:
    log = three_segments()
    directory = built(tmp_path, log)
    damaged = directory / f"{9:020d}.snapshot"
    damaged.write_bytes(damaged.read_bytes()[:-1])
    offline = load(directory, log)
    assert offline.log.producer_state.map_end_offset == 9
    (warning,) = offline.warnings
    assert warning.startswith(f"Failed to load producer snapshot from '{damaged}': ")
    offline.repair()
    assert damaged.exists()


def test_a_snapshot_beyond_the_end_does_not_count(tmp_path: Path) -> None:
    log = three_segments()
    directory = built(tmp_path, log)
    (directory / f"{50:020d}.snapshot").write_bytes(b"of another time")
    offline = load(directory, log)
    assert not offline.warnings
    assert offline.log.producer_state.producer_count == 2


def test_batches_wholly_below_the_log_start_do_not_count(tmp_path: Path) -> None:
    log = LogBuilder("t-0")
    log.put(b"a", b"1", producer=(5, 0), timestamp=NOW_MS)
    log.put(b"a", b"2", producer=(6, 0), timestamp=NOW_MS)
    log.batch([(b"a", b"3"), (b"b", b"3")], producer=(7, 0), timestamp=NOW_MS)
    directory = built(tmp_path, log)
    remove_snapshots(directory)
    counts = [
        load(directory, log, log_start=start).log.producer_state.producer_count
        for start in (0, 1, 2, 3)
    ]
    assert counts == [3, 2, 1, 1], "the last batch goes on behind 3"


@pytest.mark.parametrize("commit", [True, False])
def test_a_transaction_that_ended_behind_the_snapshot_is_over(
    tmp_path: Path, *, commit: bool
) -> None:
    log = three_segments()
    log.roll()
    log.marker((6, 0), commit=commit, timestamp=NOW_MS, coordinator_epoch=3)
    directory = built(tmp_path, log)
    remove_snapshots(directory, above=9)
    found = load(directory, log).log
    state = found.producer_state
    assert state.first_undecided_offset is None
    assert found.last_stable_offset == 0, "nothing is below the high watermark"
    found.update_high_watermark(10)
    assert found.last_stable_offset == 10
    entry = state.last_entry(6)
    assert entry is not None
    assert entry.coordinator_epoch == 3


def test_producers_that_have_expired_are_left_out_unless_a_transaction_is_open(
    tmp_path: Path,
) -> None:
    log = three_segments()
    directory = built(tmp_path, log)
    for above in (9, -1):
        remove_snapshots(directory, above=above)
        state = load(directory, log, now_ms=NOW_MS + DAY_MS).log.producer_state
        assert list(state.active_producers) == [6]


def tidy(
    directory: Path, bases: Sequence[int], *, log_start: int = 0, end: int = 9, clean: bool = True
) -> list[int]:
    tidy_snapshots(
        directory, bases, log_start_offset=log_start, log_end_offset=end, clean_shutdown=clean
    )
    return snapshot_offsets(directory)


def test_snapshots_of_no_segment_go_but_that_of_a_clean_stop(tmp_path: Path) -> None:
    directory = built(tmp_path, three_segments())
    (directory / f"{4:020d}.snapshot").write_bytes(b"")
    assert tidy(directory, [0, 3, 6]) == [3, 6, 9]
    assert tidy(directory, [0, 6]) == [6, 9]


@pytest.mark.parametrize(("log_start", "left"), [(0, [3, 6, 9]), (2, [3, 6, 9]), (3, [6, 9])])
def test_snapshots_up_to_a_log_start_inside_the_log_go(
    tmp_path: Path, log_start: int, left: list[int]
) -> None:
    directory = built(tmp_path, three_segments())
    assert tidy(directory, [0, 3, 6], log_start=log_start) == left


@pytest.mark.parametrize(
    ("clean", "log_start", "written"), [(True, 0, [3, 6, 9]), (False, 0, []), (True, 2, [])]
)
def test_empty_snapshots_are_written_after_a_clean_stop_that_left_none(
    tmp_path: Path, *, clean: bool, log_start: int, written: list[int]
) -> None:
    directory = built(tmp_path, three_segments())
    remove_snapshots(directory)
    assert tidy(directory, [0, 3, 6], log_start=log_start, clean=clean) == written
    for offset in written:
        data = (directory / f"{offset:020d}.snapshot").read_bytes()
        assert parse_producer_snapshot(data) == []


def test_no_snapshot_is_written_at_offset_0(tmp_path: Path) -> None:
    directory = built(tmp_path, LogBuilder("t-0"))
    assert tidy(directory, [0], end=0) == []
