"""SIGKILL of a serving broker under load: what was acknowledged is there, in order."""

from __future__ import annotations

from pathlib import Path

import pytest

from support.kill_load import run_kills


@pytest.mark.parametrize(
    "kills", [5, pytest.param(100, marks=pytest.mark.nightly)], ids=["five", "hundred"]
)
def test_no_acknowledged_record_is_missing_or_out_of_order(tmp_path: Path, kills: int) -> None:
    outcome = run_kills(tmp_path, kills=kills, seed=kills)
    print(f"{outcome.kills} kills, {outcome.acknowledged} records acknowledged")
    assert outcome.complaints == []
    assert outcome.kills == kills
    assert outcome.acknowledged > 100 * kills
