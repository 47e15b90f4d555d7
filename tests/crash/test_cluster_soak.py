"""A cluster of Kafka and Cordwood brokers, whose brokers are killed, suspended and stopped.

Producers with idempotence, with keys and with transactions write, groups of both protocols read and
commit, and every broker compacts. No acknowledged record is lost, written twice or out of its
order, every transaction is whole, no commit goes back, and in the end the replicas are the same.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from support.cluster_soak.run import STEPS, ClusterSoak


@pytest.mark.parametrize(
    ("kafka", "cordwood"), [((1, 2), (3,)), ((1,), (2, 3))], ids=["two kafka", "one kafka"]
)
@pytest.mark.parametrize(
    ("events", "module"),
    [
        (3, "support.serve_in_process"),
        pytest.param(50, "cordwood", marks=[pytest.mark.nightly, pytest.mark.spark]),
    ],
    ids=["few", "many"],
)
def test_a_mixed_cluster_loses_nothing(
    tmp_path: Path, kafka: tuple[int, ...], cordwood: tuple[int, ...], events: int, module: str
) -> None:
    soak = ClusterSoak(tmp_path, kafka=kafka, cordwood=cordwood, seed=events, module=module)
    outcome = soak.run(events)
    print(outcome.summary())
    assert outcome.complaints == []
    assert sum(outcome.events.values()) == events
    assert all(outcome.done[name] >= count * events for name, count in STEPS.items())
    assert outcome.cleaned == {*kafka, *cordwood}
