"""Placement of new replicas, as StripedReplicaPlacer places them."""

from __future__ import annotations

import random
from collections import Counter

import pytest

from cordwood.controller.placement import ReplicaPlacer, UsableBroker
from cordwood.model.kafka_errors import InvalidReplicationFactorError


class Chosen:
    """Random numbers that are always these."""

    def __init__(self, *numbers: int) -> None:
        self._numbers = list(numbers)

    def below(self, bound: int) -> int:
        return (self._numbers.pop(0) if self._numbers else 0) % bound

    def unique_id(self) -> str:
        raise AssertionError


class Seeded:
    """Random numbers of a seed."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)

    def below(self, bound: int) -> int:
        return self._random.randrange(bound)

    def unique_id(self) -> str:
        raise AssertionError


def brokers(racks: dict[str | None, list[int]], fenced: tuple[int, ...] = ()) -> list[UsableBroker]:
    return [
        UsableBroker(broker_id, rack, broker_id in fenced)
        for rack, ids in racks.items()
        for broker_id in ids
    ]


def test_leaders_take_turns() -> None:
    placer = ReplicaPlacer(brokers({None: [1, 2, 3]}), Chosen())
    assert [placer.place(2) for _ in range(3)] == [[1, 2], [2, 3], [3, 1]]


def test_replicas_are_on_different_racks_in_stripes() -> None:
    """The example in Kafka's documentation of its placer: three racks of three."""
    racks: dict[str | None, list[int]] = {"a": [0, 1, 2], "b": [10, 11, 12], "c": [20, 21, 22]}
    placer = ReplicaPlacer(brokers(racks), Chosen())
    assert [placer.place(3) for _ in range(3)] == [[0, 10, 20], [11, 21, 1], [22, 2, 12]]


def test_fenced_brokers_come_last_and_never_lead() -> None:
    placer = ReplicaPlacer(brokers({None: [1, 2, 3]}, fenced=(2,)), Chosen())
    placed = [placer.place(3) for _ in range(4)]
    assert {each[0] for each in placed} == {1, 3}
    assert {each[2] for each in placed} == {2}


@pytest.mark.parametrize("seed", range(20))
def test_no_broker_has_two_replicas_of_a_partition_and_leaders_are_even(seed: int) -> None:
    rng = random.Random(seed)
    racks: dict[str | None, list[int]] = {
        f"rack {rack}": [rack * 10 + number for number in range(3)] for rack in range(3)
    }
    placer = ReplicaPlacer(brokers(racks), Seeded(seed))
    factor = rng.choice((1, 2, 3))
    placed = [placer.place(factor) for _ in range(90)]
    assert all(len(set(each)) == factor for each in placed)
    assert all(len({broker // 10 for broker in each}) == factor for each in placed)
    leaders = Counter(each[0] // 10 for each in placed)
    assert set(leaders.values()) == {30}


@pytest.mark.parametrize(
    ("fenced", "factor", "said"),
    [
        ((), 0, "the replication factor must be positive"),
        ((), 4, "only 3 broker"),
        ((1, 2, 3), 1, "All brokers are currently fenced"),
    ],
)
def test_what_cannot_be_placed_is_refused(fenced: tuple[int, ...], factor: int, said: str) -> None:
    placer = ReplicaPlacer(brokers({None: [1, 2, 3]}, fenced), Chosen())
    with pytest.raises(InvalidReplicationFactorError, match=said):
        placer.require_possible(factor)
