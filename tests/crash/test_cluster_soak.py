"""A cluster of Kafka and Cordwood brokers, whose brokers are killed, suspended and stopped.

No acknowledged record is lost, written twice or out of its order, every transaction is whole, and
in the end all replicas of a partition are the same bytes.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from support.cluster_soak.run import ClusterSoak


@pytest.mark.parametrize(
    ("kafka", "cordwood"), [((1, 2), (3,)), ((1,), (2, 3))], ids=["two kafka", "one kafka"]
)
@pytest.mark.parametrize(
    "events", [3, pytest.param(50, marks=pytest.mark.nightly)], ids=["few", "many"]
)
def test_a_mixed_cluster_loses_nothing(
    tmp_path: Path, kafka: tuple[int, ...], cordwood: tuple[int, ...], events: int
) -> None:
    outcome = ClusterSoak(tmp_path, kafka=kafka, cordwood=cordwood, seed=events).run(events)
    print(outcome.summary())
    assert outcome.complaints == []
    assert sum(outcome.events.values()) == events
    assert outcome.counts["acknowledged"] > 100 * events
    assert outcome.transactions["committed"] > 5 * events
