"""A whole compaction in one task on several cores: its bounds, and its errors."""

from __future__ import annotations

from pathlib import Path

import pytest

from cordwood.cleanup.access.announcements import begin_attempt
from cordwood.cleanup.engine.survivors import TableFullError
from cordwood.cleanup.engine.tasks import evidence_of
from cordwood.cleanup.engine.whole import Lane, find_survivors
from cordwood.cleanup.plan.compaction import plan_compaction
from cordwood.cleanup.plan.log_compaction import LogCompaction, prepare_compaction
from cordwood.cleanup.rules.cleanable import plan_cleanable
from cordwood.configs.log_config import LogConfig
from cordwood.model.errors import EngineError, StagingError
from cordwood.storage.filesystem import OS
from cordwood.testing.in_process_engine import clean_compiled
from support.log_builder import NOW_MS, LogBuilder
from support.whole_compaction import ENTRIES_MAX, survivors_of

KEYS = 9_000


@pytest.fixture
def compaction(tmp_path: Path) -> LogCompaction:
    """Of a log of ten segments, each a group."""
    log = LogBuilder()
    for number in range(200):
        first = 150 * number
        log.batch([(b"%d" % (n * 7919 % KEYS), b"value") for n in range(first, first + 150)])
        if number % 20 == 19:
            log.roll()
    directory = log.write(tmp_path / "log-0")
    config = LogConfig(cleanup_policy=frozenset({"compact"}), segment_bytes=1)
    captured = log.capture(directory, config)
    plan = plan_compaction(captured.view, plan_cleanable(captured.view, now_ms=NOW_MS, force=True))
    return prepare_compaction(captured, plan, now_ms=NOW_MS, seed=5)


@pytest.mark.parametrize("cores", [1, 2, 3])
def test_more_keys_than_a_thread_may_hold_end_the_attempt(
    compaction: LogCompaction, cores: int
) -> None:
    lanes = [Lane()] * cores
    assert find_survivors(compaction, lanes, entries_max=KEYS).keys == KEYS
    with pytest.raises(TableFullError, match="more than 3000 keys"):
        find_survivors(compaction, lanes, entries_max=3_000)


def test_every_thread_reads_a_part(compaction: LogCompaction) -> None:
    read = [0, 0, 0]

    def counting(lane: int) -> Lane:
        def count(bytes_read: int) -> None:
            read[lane] += bytes_read

        return Lane(count)

    survivors_of(compaction, [counting(lane) for lane in range(3)])
    assert sum(read) == sum(segment.size_bytes for segment in compaction.dirty)
    assert min(read) > sum(read) // 5


def test_the_error_of_the_thread_that_failed_first_is_raised(compaction: LogCompaction) -> None:
    def fail(_: int) -> None:
        raise StagingError("the disk is gone")

    directory = Path(compaction.directory)
    before = {path.name for path in directory.iterdir()}
    begin_attempt(directory, compaction.attempt.token, fs=OS)
    # The first thread waits for the owner of the log to put its groups in place: nobody does.
    with pytest.raises(StagingError, match="the disk is gone"):
        clean_compiled(compaction, [Lane(), Lane(wrote=fail)])
    left = {path.name for path in directory.iterdir()} - before
    assert all(name.endswith(".staged") for name in left)


def test_evidence_is_read_twice_and_ends_when_its_reader_does(compaction: LogCompaction) -> None:
    begin_attempt(Path(compaction.directory), compaction.attempt.token, fs=OS)
    read: list[int] = []
    evidence_of(compaction, [read.append, read.append], entries_max=ENTRIES_MAX)
    # The batches once, and the records once by each thread.
    assert sum(read) == 3 * compaction.size_bytes

    def refuse(size_bytes: int) -> None:
        raise EngineError(f"not wanted after {size_bytes} bytes")

    with pytest.raises(EngineError, match="not wanted"):
        evidence_of(compaction, [refuse], entries_max=ENTRIES_MAX)
