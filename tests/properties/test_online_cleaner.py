"""A running log ends, byte for byte, as a stopped one that is cleaned at the same moment."""

from __future__ import annotations

import random
import shutil
from pathlib import Path
from tempfile import TemporaryDirectory

from hypothesis import given
from hypothesis import strategies as st

from cordwood.cleanup.schedule.retention_pass import retain
from cordwood.configs.log_config import LogConfig
from cordwood.format.file_names import CLEANER_OFFSET_CHECKPOINT
from cordwood.storage.log.log_reader import Isolation
from cordwood.storage.log.partition_log import PartitionLog
from cordwood.testing.manual_clock import ManualClock
from support.in_process_engine import clean_in_process
from support.log_builder import NOW_MS, write_log_dir
from support.random_log import Contents, random_log
from support.running_logs import RunningLogs, newest, read_records

SUFFIXES = (".log", ".index", ".timeindex", ".txnindex")
CONTENTS = st.builds(
    Contents,
    batches=st.integers(1, 60),
    records_max=st.sampled_from([1, 3, 8, 40]),
    keys=st.sampled_from([1, 4, 12, 60]),
    value_bytes_max=st.sampled_from([1, 40, 400]),
    roll=st.sampled_from([0.1, 0.3]),
    legacy=st.booleans(),
    transactions=st.booleans(),
    unkeyed=st.booleans(),
    index_interval_bytes=st.sampled_from([0, 200, 4096]),
)


def settings(seed: int, contents: Contents) -> LogConfig:
    rng = random.Random(seed)
    return LogConfig(
        cleanup_policy=frozenset({"compact"}),
        segment_bytes=rng.choice([300, 2_000, 100_000]),
        segment_index_bytes=rng.choice([24, 10_000]),
        index_interval_bytes=contents.index_interval_bytes,
        delete_retention_ms=rng.choice([0, 1, 86_400_000, 400_000_000]),
        min_cleanable_dirty_ratio=0.0,
    )


def sealed_files(directory: Path) -> dict[str, bytes]:
    """The files of every segment but the active one, and the log of that."""
    *sealed, active = sorted(path.stem for path in directory.glob("*.log"))
    files = {
        f"{base}{suffix}": (directory / f"{base}{suffix}").read_bytes()
        for base in sealed
        for suffix in SUFFIXES
        if (directory / f"{base}{suffix}").exists()
    }
    return files | {f"{active}.log": (directory / f"{active}.log").read_bytes()}


@given(seed=st.integers(0, 2**40), contents=CONTENTS)
def test_a_running_log_is_cleaned_as_a_stopped_one_is(seed: int, contents: Contents) -> None:
    log = random_log(seed, contents)
    log.put(b"end", b"v")  # a gap at its end would be one that no clean stop leaves
    config = settings(seed, contents)
    with TemporaryDirectory() as root:
        stopped = write_log_dir(Path(root) / "stopped", [log])
        shutil.copytree(stopped, Path(root) / "logs-0")
        report = clean_in_process(stopped, {"log": config}, now_ms=NOW_MS)
        assert not report.failed
        running = RunningLogs(Path(root), {"log": config}, clock=ManualClock(NOW_MS))
        partition = running.log("log-0")
        # The stopped log loses old segments first; a running one did when it was last looked at.
        retain(partition, NOW_MS)
        before = newest_of(partition)
        cleaned = running.cleaner.clean_once()
        assert not running.cleaning.uncleanable_partitions(running.directories[0])
        assert running.cleaning.states.of(log.topic_partition) is None
        running.cleaning.check_invariants()
        chosen = running.cleaner.last_chosen
        if chosen is not None and chosen.cleanable.first_dirty == partition.log_start_offset:
            # Where a clean section was made up, its tombstones may go before what they cover.
            assert newest_of(partition) == before
        assert sealed_files(partition.directory) == sealed_files(stopped / "log-0")
        if cleaned:
            assert checkpoint_file(running.directories[0]) == checkpoint_file(stopped)
        running.manager.shutdown()


def newest_of(log: PartitionLog) -> dict[bytes, tuple[bytes, int]]:
    """The state of a consumer that reads what is committed, of records with a key."""
    records = read_records(log, isolation=Isolation.TXN_COMMITTED)
    return newest([record for record in records if record.key is not None])


def checkpoint_file(log_dir: Path) -> bytes:
    return (log_dir / CLEANER_OFFSET_CHECKPOINT).read_bytes()
