"""A cluster of Kafka and Cordwood brokers, whose brokers are killed, suspended and stopped.

Producers with idempotence, with keys and with transactions write, groups of both protocols read and
commit, and every broker compacts. No acknowledged record is lost, written twice or out of its
order, every transaction is whole, no commit goes back, and in the end the replicas are the same.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import pytest

from support.soaks.cluster import CONTROLLER, KINDS, STEPS, ClusterSoak


@dataclass(frozen=True, slots=True)
class Mix:
    """The ids of Kafka's and of Cordwood's brokers, and who controls them."""

    kafka: tuple[int, ...]
    cordwood: tuple[int, ...]
    has_own_controller: bool = False
    kinds: dict[str, int] = field(default_factory=lambda: dict(KINDS))
    seed: int = 1


MANY = 50
MIXES = {
    "two kafka": Mix((1, 2), (3,)),
    "one kafka": Mix((1,), (2, 3)),
    # Two of five events are kills of the controller; with these seeds one of the first three.
    "own controller": Mix((), (1, 2, 3), True, KINDS | {CONTROLLER: 7}, seed=24),
    "own controller, one kafka": Mix((1,), (2, 3), True, KINDS | {CONTROLLER: 7}, seed=15),
}


FEW = [
    pytest.param(mix, 3, "support.serve_in_process", id=f"few-{mix}")
    for mix, found in MIXES.items()
    if found.has_own_controller
]
NIGHTLY = [
    pytest.param(
        *(mix, MANY, "cordwood"),
        marks=[pytest.mark.nightly, pytest.mark.rotated, pytest.mark.spark],
        id=f"many-{mix}",
    )
    for mix in MIXES
]


@pytest.mark.parametrize(("mix", "events", "module"), [*FEW, *NIGHTLY])
def test_a_cluster_loses_nothing(tmp_path: Path, mix: str, events: int, module: str) -> None:
    found = MIXES[mix]
    soak = ClusterSoak(
        tmp_path,
        kafka=found.kafka,
        cordwood=found.cordwood,
        seed=found.seed,
        module=module,
        has_own_controller=found.has_own_controller,
        kinds=found.kinds,
    )
    outcome = soak.run(events)
    print(outcome.summary())
    assert outcome.complaints == []
    assert sum(outcome.events.values()) == events
    assert all(outcome.done[name] >= count * events for name, count in STEPS.items())
    if found.has_own_controller:
        assert outcome.events[CONTROLLER] >= (20 if events == MANY else 1)
    assert outcome.cleaned == {*found.kafka, *found.cordwood}
