"""Producers of transactions and their broker, killed in mid-transaction while logs are compacted.

read_committed readers see each committed transaction once, whole and in order, and nothing of an
aborted one; the offsets of the producers' groups follow.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from support.soaks.transactions import TransactionSoak


@pytest.mark.parametrize(
    ("kills", "module"),
    [
        pytest.param(10, "support.serve_in_process", id="ten"),
        pytest.param(
            100, "cordwood", marks=[pytest.mark.nightly, pytest.mark.spark], id="hundred on Spark"
        ),
    ],
)
def test_transactions_hold_while_producers_and_the_broker_are_killed(
    tmp_path: Path, kills: int, module: str
) -> None:
    outcome = TransactionSoak(tmp_path, seed=kills, module=module).run(kills)
    print(outcome.summary())
    assert outcome.complaints == []
    assert sum(outcome.events.values()) >= kills
    assert outcome.reports["committed"] > kills
    assert outcome.reports["aborted"] > 0
    assert outcome.compactions["table"] > 0
    if kills >= 100:
        assert outcome.reports["found committed"] > 0
