"""Places the replicas of new partitions over racks, and over the brokers of each rack.

Leaders take turns; a broker has at most one replica of a partition; brokers that are not fenced
come first, and only they lead.

Source: org.apache.kafka.metadata.placement.StripedReplicaPlacer; KIP-36.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple, TypeVar

from cordwood.model.kafka_errors import InvalidReplicationFactorError
from cordwood.model.rng import Rng

T = TypeVar("T")


class UsableBroker(NamedTuple):
    """A broker that may get replicas."""

    broker_id: int
    rack: str | None
    fenced: bool


class _BrokerList:
    """The brokers of a rack in turn: another one begins in each round."""

    def __init__(self) -> None:
        self.ids: list[int] = []
        self._first = 0
        self._taken = 0
        self._round = 0

    def sort(self, rng: Rng) -> None:
        if self.ids:
            self.ids.sort()
            self._first = rng.below(len(self.ids))

    def next(self, number: int) -> int | None:
        """The next broker in round `number`; None when the round has had all of them."""
        if not self.ids:
            return None
        if self._round != number:
            self._round, self._taken = number, 0
            self._first = (self._first + 1) % len(self.ids)
        if self._taken >= len(self.ids):
            return None
        found = self.ids[(self._taken + self._first) % len(self.ids)]
        self._taken += 1
        return found


class _Rack:
    def __init__(self) -> None:
        self.unfenced = _BrokerList()
        self.fenced = _BrokerList()

    def next(self, number: int) -> int | None:
        found = self.unfenced.next(number)
        return self.fenced.next(number) if found is None else found


class ReplicaPlacer:
    """Places the partitions of one topic."""

    def __init__(self, brokers: Iterable[UsableBroker], rng: Rng) -> None:
        """The brokers as they are now; `rng` chooses with which rack and broker to begin."""
        self._rng = rng
        self._racks: dict[str | None, _Rack] = {}
        self._total = self._unfenced = 0
        for broker in brokers:
            rack = self._racks.setdefault(broker.rack, _Rack())
            (rack.fenced if broker.fenced else rack.unfenced).ids.append(broker.broker_id)
            self._total += 1
            self._unfenced += not broker.fenced
        for rack in self._racks.values():
            rack.unfenced.sort(rng)
            rack.fenced.sort(rng)
        self._names = sorted(self._racks, key=lambda name: (name is not None, name or ""))
        self._first = rng.below(len(self._names)) if self._names else 0
        self._round = 0

    def require_possible(self, replication_factor: int) -> None:
        """Checks that partitions can have so many replicas.

        Raises:
            InvalidReplicationFactorError: there are too few brokers, or none that is unfenced.
        """
        if replication_factor <= 0:
            raise InvalidReplicationFactorError(
                f"Invalid replication factor {replication_factor}: the replication factor must be "
                "positive."
            )
        if not self._unfenced:
            raise InvalidReplicationFactorError(
                "All brokers are currently fenced, or have all their log directories cordoned."
            )
        if replication_factor > self._total:
            raise InvalidReplicationFactorError(
                f"The target replication factor of {replication_factor} cannot be reached because "
                f"only {self._total} broker(s) are registered or some brokers have all their log "
                "directories cordoned."
            )

    def place(self, replication_factor: int) -> list[int]:
        """The replicas of the next partition, its leader first; `require_possible` has passed."""
        if self._round == self._unfenced and self._unfenced > 1:
            self._shuffle()
            self._round = 0
        self._first %= len(self._names)
        rack = self._first
        while (leader := self._racks[self._names[rack]].unfenced.next(self._round)) is None:
            rack = (rack + 1) % len(self._names)
        found = [leader]
        leaders_rack: int | None = rack
        rack = self._first
        while len(found) < replication_factor:
            if rack == leaders_rack:
                leaders_rack = None  # it has had its turn
            else:
                broker = self._racks[self._names[rack]].next(self._round)
                if broker is not None:
                    found.append(broker)
            rack = (rack + 1) % len(self._names)
        self._round += 1
        self._first += 1
        return found

    def _shuffle(self) -> None:
        """Has the next rounds place partitions on other sets of brokers."""
        _shuffle(self._names, self._rng)
        for rack in self._racks.values():
            _shuffle(rack.fenced.ids, self._rng)
            _shuffle(rack.unfenced.ids, self._rng)


def _shuffle(items: list[T], rng: Rng) -> None:
    for last in range(len(items) - 1, 0, -1):
        chosen = rng.below(last + 1)
        items[last], items[chosen] = items[chosen], items[last]
