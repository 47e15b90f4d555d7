"""Fifty groups of both protocols: members come, leave and die; nightly, the broker is restarted.

A partition has one owner at a time, no committed offset is lost or becomes lower, and at the end
all rebalances end.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from support.soaks.many_groups import Soak


@pytest.mark.parametrize(
    ("seconds", "restarts"),
    [
        pytest.param(20, False, id="twenty seconds"),
        pytest.param(600, True, marks=pytest.mark.nightly, id="ten minutes"),
    ],
)
def test_groups_hold_while_members_and_the_broker_come_and_go(
    tmp_path: Path, seconds: int, restarts: bool
) -> None:
    outcome = Soak(tmp_path, seed=seconds, restarts=restarts).run(seconds)
    print(outcome.summary())
    assert outcome.complaints == []
    assert outcome.protocols.keys() == {"classic", "consumer"}
    assert outcome.reports["committed"] > 10 * seconds
    assert outcome.reports["stuck"] <= 2, "clients that hang; more are the broker's doing"
    assert sum(outcome.events.values()) > seconds // 30
