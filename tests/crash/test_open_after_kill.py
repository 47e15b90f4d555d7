"""`cordwood clean` is killed, and the broker that starts next opens what it left.

Whatever step it was, readers see the newest value of each key as before, with its offset; a second
start changes nothing; and another clean ends where one ends that was never disturbed.
"""

from __future__ import annotations

import random
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from cordwood.configs.log_config import LogConfig
from cordwood.format.compression import Codec
from cordwood.storage.log.log_reader import Isolation
from cordwood.storage.replace import JOURNAL_NAME
from cordwood.testing.manual_clock import ManualClock
from support.killing import OWNER, TASK, KillableCleanings, clean_here
from support.log_builder import NOW_MS, LogBuilder, write_log_dir
from support.running_logs import newest, read_records
from support.stored_log import StoredLogs

DAY_MS = 86_400_000
CONFIGS = {
    "compact": LogConfig(
        cleanup_policy=frozenset({"compact"}),
        segment_bytes=900,
        delete_retention_ms=0,
        index_interval_bytes=100,
    ),
    "both": LogConfig(
        cleanup_policy=frozenset({"compact", "delete"}),
        retention_ms=5 * DAY_MS,
        segment_bytes=1_000,
        index_interval_bytes=100,
    ),
}
LEFT_BY_A_CLEAN = (".staged", ".cleaned", ".swap", ".deleted", ".tmp", JOURNAL_NAME)

State = dict[str, dict[bytes, tuple[bytes, int]]]


def keyed(name: str) -> LogBuilder:
    """Several groups of segments; tombstones, transactions, producers and codecs of all kinds."""
    log = LogBuilder(name, index_interval_bytes=100)
    rng = random.Random(name)
    log.batch([(b"a", b"aborted")] * 3, producer=(1, 0), transactional=True)
    log.batch([(b"b", b"committed")] * 2, producer=(2, 0), transactional=True)
    for number in range(12):
        records = [(b"k%d" % rng.randrange(9), rng.randbytes(30)) for _ in range(4)]
        log.batch(records, codec=rng.choice(list(Codec)))
        log.put(b"t%d" % (number % 3), None)
        log.batch([(b"p", b"%d" % number)], producer=(3, 0))
        if number == 6:
            log.marker((1, 0), commit=False)
        if number == 8:
            log.marker((2, 0), commit=True)
        if number % 2:
            log.roll()
    return log


def broker(root: Path) -> StoredLogs:
    stored = StoredLogs(root, clock=ManualClock(NOW_MS))
    stored.configs = dict(CONFIGS)
    return stored


def seen(logs: StoredLogs) -> State:
    """The content of each partition for committed readers."""
    state = {}
    for log in logs.manager.logs():
        log.update_high_watermark(log.log_end_offset)
        records = read_records(log, isolation=Isolation.TXN_COMMITTED)
        state[str(log.topic_partition)] = newest(records)
    return state


def producers(logs: StoredLogs) -> dict[str, dict[int, tuple[int, int]]]:
    """(epoch, last sequence) of each producer."""
    return {
        str(log.topic_partition): {
            entry.producer_id: (entry.producer_epoch, entry.last_sequence)
            for entry in log.producer_state.entries()
        }
        for log in logs.manager.logs()
    }


@pytest.fixture(scope="module")
def cleanings() -> Iterator[KillableCleanings]:
    with KillableCleanings() as cleanings:
        yield cleanings


@pytest.mark.parametrize("side", [OWNER, TASK])
def test_a_broker_that_starts_after_a_killed_clean_serves_the_same_values(
    tmp_path: Path, cleanings: KillableCleanings, side: str
) -> None:
    before = write_log_dir(tmp_path / "before", [keyed("compact-0"), keyed("both-0")])
    cleanings.load(shutil.copytree(before, tmp_path / "loaded"), CONFIGS, now_ms=NOW_MS)
    steps = cleanings.clean(
        shutil.copytree(before, tmp_path / "undisturbed"), CONFIGS, now_ms=NOW_MS
    ).steps[side]
    undisturbed = broker(shutil.copytree(before, tmp_path / "looked at"))
    undisturbed.start()
    expected, known = seen(undisturbed), producers(undisturbed)
    ends = {str(log.topic_partition): log.log_end_offset for log in undisturbed.manager.logs()}
    undisturbed.kill()
    assert len(expected["compact-0"]) > 8
    rng = random.Random(side)
    journals = 0
    for step in rng.sample(range(1, steps + 1), 12):
        for clean in (True, False):
            root = shutil.copytree(before, tmp_path / "work")
            ended = cleanings.clean(root, CONFIGS, now_ms=NOW_MS, side=side, kill_at=step)
            assert ended.killed, step
            journals += sum(1 for _ in root.glob(f"*/{JOURNAL_NAME}"))
            if not clean:
                (root / ".kafka_cleanshutdown").unlink(missing_ok=True)
            logs = broker(root)
            logs.start()
            where = f"killed at step {step} of {steps} of the {side}"
            assert seen(logs) == expected, where
            assert producers(logs) == known, where
            assert {
                str(log.topic_partition): log.log_end_offset for log in logs.manager.logs()
            } == ends
            left = [p.name for p in root.glob("*/*") if p.name.endswith(LEFT_BY_A_CLEAN)]
            assert left == [], where
            logs.manager.shutdown()
            files = logs.files()
            logs.start()
            assert seen(logs) == expected, where
            logs.manager.shutdown()
            assert logs.files() == files, where
            assert clean_here(root, CONFIGS, now_ms=NOW_MS) == []
            logs.start()
            assert seen(logs) == expected, where
            logs.kill()
            shutil.rmtree(root)
    assert journals > 5
