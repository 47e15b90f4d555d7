"""A running log compacted by Spark, beside its writers and readers."""

from __future__ import annotations

from pathlib import Path

import pytest

from support.online_run import OnlineJob, run_online
from support.running_logs import RunningLogs, read_records

pytestmark = pytest.mark.spark


@pytest.mark.parametrize(
    ("entries_max", "whole_bytes"),
    [(1 << 20, 1 << 30), (1_500, 100_000)],
    ids=["by one task", "split over tasks"],
)
def test_a_running_log_is_compacted_beside_appends_and_reads(
    tmp_path: Path, entries_max: int, whole_bytes: int
) -> None:
    keys = 2_000
    outcome = run_online(
        "local[2]",
        OnlineJob(
            root=str(tmp_path),
            records=12_000,
            keys=keys,
            rounds=3,
            entries_max=entries_max,
            whole_bytes=whole_bytes,
        ),
    )
    assert (outcome.errors, outcome.uncleanable) == ([], [])
    written = outcome.written
    assert written > 12_000, "it was written to meanwhile"
    assert outcome.passes > 1, "it was read meanwhile"
    assert 0 < outcome.checkpoint < written
    assert outcome.left < written - 8_000
    assert outcome.newest == {
        f"key-{key}": written - 1 - (written - 1 - key) % keys for key in range(keys)
    }
    # And so it is found after a restart, with nothing left over.
    logs = RunningLogs(tmp_path)
    assert len(read_records(logs.log())) == outcome.left
    names = [path.name for path in (tmp_path / "logs-0" / "t-0").iterdir()]
    assert not [name for name in names if name.endswith((".staged", ".swap", ".cleaned"))]
