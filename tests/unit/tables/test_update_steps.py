"""The state of a compacted topic after random steps equals a map that follows the steps."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from cordwood.configs.log_config import LogConfig
from cordwood.tables.report import TableForm, TableRequest
from cordwood.tables.update import update_table
from cordwood.testing.manual_clock import ManualClock
from support.delta_rows import record_rows, state_rows
from support.in_process_engine import clean_in_process
from support.log_builder import NOW_MS
from support.random_topic import RandomTopic

COMPACTED = LogConfig(cleanup_policy=frozenset({"compact"}), min_cleanable_dirty_ratio=0.0)


@pytest.mark.parametrize(
    ("seed", "keys", "steps", "every"),
    [
        (1, 2_000, 50, 10),
        (2, 40, 60, 5),
        pytest.param(3, 1_000_000, 1_000, 100, marks=pytest.mark.nightly),
    ],
)
def test_a_state_is_a_consumers_map(
    tmp_path: Path, seed: int, keys: int, steps: int, every: int
) -> None:
    topic = RandomTopic(random.Random(seed), keys=keys)
    topic.fill()
    request = TableRequest(
        log_dirs=(tmp_path / "logs",),
        topic="orders",
        into=tmp_path / "table",
        form=TableForm.STATE,
    )
    rewritten = 0
    for step in range(steps + 1):
        if step:
            topic.step()
        if step % every:
            continue
        log_dir = topic.write(tmp_path / "logs")
        if step % (2 * every):
            configs = {"orders": COMPACTED}
            report = clean_in_process(log_dir, configs, now_ms=NOW_MS, force=True)
            assert report.failed == []
            rewritten += 1
        update_table(request, clock=ManualClock(NOW_MS))
        assert state_rows(request.into) == topic.state
    assert rewritten
    topic.end_all()
    topic.write(tmp_path / "logs")
    update_table(request, clock=ManualClock(NOW_MS))
    assert state_rows(request.into) == topic.state


def test_rows_are_the_records_that_a_consumer_gets(tmp_path: Path) -> None:
    topic = RandomTopic(random.Random(4), keys=50)
    request = TableRequest(
        log_dirs=(tmp_path / "logs",),
        topic="orders",
        into=tmp_path / "table",
        form=TableForm.ROWS,
    )
    for _ in range(6):
        for _ in range(10):
            topic.step()
        topic.write(tmp_path / "logs")
        update_table(request, clock=ManualClock(NOW_MS))
        assert record_rows(request.into) == sorted(topic.rows)
