"""The offsets that a run reads of logs with settings."""

from __future__ import annotations

from pathlib import Path

import pytest

from cordwood.configs.log_config import LogConfig
from cordwood.frames.streaming.topics import Topic
from cordwood.tables.ranges import Range, state_ranges
from cordwood.tables.topic_table import Read
from support.log_builder import NOW_MS, LogBuilder

A_DAY_MS = 86_400_000


def state_range(root: Path, policy: str, read: Read | None, *, start: int | None = None) -> Range:
    """The range of a log with ten records, and a transaction that is open from offset 10 on."""
    log = LogBuilder("orders-0")
    for _ in range(10):
        log.put(b"k", b"v")
    log.put(b"k", b"v", producer=(7, 0), transactional=True)
    log.log_start_offset = start
    config = LogConfig(cleanup_policy=frozenset({policy}), delete_retention_ms=A_DAY_MS)
    captured = log.capture(log.write(root / "orders-0"), config)
    topic = Topic(logs={0: captured}, topic_id=None)
    (found,) = state_ranges(topic, {0: read}, is_full=False, now_ms=NOW_MS)
    return found


@pytest.mark.parametrize(
    ("policy", "age_ms", "is_full"),
    [
        ("compact", A_DAY_MS - 1, False),
        ("compact", A_DAY_MS, True),
        ("delete", 10 * A_DAY_MS, False),
    ],
)
def test_all_is_read_once_tombstones_may_have_gone_unread(
    tmp_path: Path, policy: str, age_ms: int, is_full: bool
) -> None:
    read = Read(next_offset=4, at_ms=NOW_MS - age_ms)
    found = state_range(tmp_path, policy, read)
    assert (found.first_offset, found.end_offset) == (0 if is_full else 4, 10)
    assert ("tombstones" in found.full_because) is is_full


def test_a_state_begins_at_the_log_start(tmp_path: Path) -> None:
    assert state_range(tmp_path, "compact", None, start=3).first_offset == 3


def test_what_is_below_the_log_start_is_no_gap_of_a_state(tmp_path: Path) -> None:
    read = Read(next_offset=2, at_ms=NOW_MS)
    found = state_range(tmp_path, "compact", read, start=5)
    assert (found.first_offset, found.gap, found.full_because) == (5, None, "")
