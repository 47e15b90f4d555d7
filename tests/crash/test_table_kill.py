"""A run of `cordwood table` that is killed leaves the table before it, or after it."""

from __future__ import annotations

import random
import time
from pathlib import Path

import pytest
from deltalake import DeltaTable

from cordwood.tables.report import TableForm, TableRequest
from support.delta_rows import record_rows
from support.random_topic import RandomTopic
from support.table_runs import KillableRuns


@pytest.mark.parametrize("form", [*TableForm])
@pytest.mark.parametrize("kills", [8, pytest.param(200, marks=pytest.mark.nightly)])
def test_a_killed_run_leaves_the_table_before_or_after(
    tmp_path: Path, form: TableForm, kills: int
) -> None:
    rng = random.Random(kills)
    topic = RandomTopic(rng, keys=300)
    request = TableRequest(
        log_dirs=(tmp_path / "logs",), topic="orders", into=tmp_path / "table", form=form
    )

    def wanted() -> list[tuple[int, int, bytes, bytes | None]]:
        if form is TableForm.ROWS:
            return sorted(topic.rows)
        return sorted((part, at, key, value) for (part, key), (at, value) in topic.state.items())

    topic.fill()
    topic.write(tmp_path / "logs")
    with KillableRuns() as runs:
        runs.run(request)
        topic.step()
        topic.write(tmp_path / "logs")
        started_s = time.monotonic()
        runs.run(request)
        duration_s = time.monotonic() - started_s
        killed = 0
        for number in range(kills):
            before = record_rows(request.into)
            while wanted() == before:
                topic.step()
            topic.write(tmp_path / "logs")
            # From the beginning to beyond the end of a run.
            killed += runs.run(request, end_after_s=duration_s * (number + 1) * 1.5 / kills)
            assert record_rows(request.into) in (before, wanted())
            if number % 2:
                runs.run(request)
                assert record_rows(request.into) == wanted()
        assert killed
        runs.run(request)
        version = DeltaTable(request.into).version()
        runs.run(request)
    assert record_rows(request.into) == wanted()
    assert DeltaTable(request.into).version() == version


def test_a_run_that_is_killed_while_it_makes_the_table_is_done_by_the_next(tmp_path: Path) -> None:
    topic = RandomTopic(random.Random(1), keys=100)
    topic.fill()
    topic.write(tmp_path / "logs")
    with KillableRuns() as runs:
        for number in range(6):
            request = TableRequest(
                log_dirs=(tmp_path / "logs",),
                topic="orders",
                into=tmp_path / f"table-{number}",
                form=TableForm.ROWS,
            )
            runs.run(request, end_after_s=0.02 * (number + 1))
            runs.run(request)
            assert record_rows(request.into) == sorted(topic.rows)
