"""Replication throttles: which partitions' replication has a rate, and whether it is used up.

A throttle holds back replicas that are not in sync, so that moving partitions leaves a network to
the others: on the leader's side, where its followers' fetches are answered, and on the follower's,
where it fetches.

Source: kafka.server.ReplicationQuotaManager, ConfigHandler,
org.apache.kafka.server.config.QuotaConfig, org.apache.kafka.common.metrics.stats.SimpleRate
(4.3.0); KIP-73.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from cordwood.configs.resource import ConfigResource
from cordwood.model.pauses import in_steps

LEADER, FOLLOWER = "leader", "follower"
_REPLICAS: Final = frozenset(
    f"{side}.replication.throttled.replicas" for side in (LEADER, FOLLOWER)
)
_UNLIMITED: Final = (1 << 63) - 1
_ALL: Final = frozenset({-1})
_NONE: Final[frozenset[int]] = frozenset()


class ByteRate:
    """Bytes a second over the last windows."""

    def __init__(self, monotonic_s: Callable[[], float], *, windows: int, window_s: float) -> None:
        """Creates the rate of no bytes.

        Args:
            monotonic_s: the time, in seconds.
            windows: `replication.quota.window.num`.
            window_s: `replication.quota.window.size.seconds`.
        """
        self._monotonic_s = monotonic_s
        self._span_s = windows * window_s
        self._window_s = window_s
        #: The starts of windows and their bytes, the newest last.
        self._windows: deque[tuple[float, int]] = deque()

    def record(self, size_bytes: int) -> None:
        """Counts bytes."""
        now_s = self._monotonic_s()
        while self._windows and now_s - self._windows[0][0] >= self._span_s:
            self._windows.popleft()
        if not self._windows or now_s - self._windows[-1][0] >= self._window_s:
            self._windows.append((now_s, 0))
        start_s, before = self._windows[-1]
        self._windows[-1] = start_s, before + size_bytes

    def value(self) -> float:
        """The rate now."""
        now_s = self._monotonic_s()
        windows = [each for each in self._windows if now_s - each[0] < self._span_s]
        if not windows:
            return 0.0
        elapsed_s = max(now_s - windows[0][0], self._window_s)
        return sum(size for _, size in windows) / elapsed_s


class ReplicationThrottle:
    """The throttle of one side; without a rate nothing is held back."""

    def __init__(self, side: str, rate: ByteRate) -> None:
        """`side` is LEADER or FOLLOWER."""
        self._rate_name = f"{side}.replication.throttled.rate"
        self._replicas_name = f"{side}.replication.throttled.replicas"
        self._rate = rate
        self._limit = _UNLIMITED
        self._partitions: dict[str, frozenset[int]] = {}

    def update_rate(self, levels: Sequence[Mapping[str, str]]) -> None:
        """Takes the rate from a broker's recorded settings, the most specific first."""
        texts = (each[self._rate_name] for each in levels if self._rate_name in each)
        try:
            self._limit = int(next(texts, _UNLIMITED))
        except ValueError:
            self._limit = _UNLIMITED

    def update_replicas(self, topics: Mapping[str, Mapping[str, str]], node_id: int) -> None:
        """Takes the throttled partitions from the recorded settings of topics, by their names."""
        self._partitions = {
            name: _throttled(texts[self._replicas_name], node_id)
            for name, texts in topics.items()
            if self._replicas_name in texts
        }

    def counts(self, topic: str, index: int) -> bool:
        """Whether the replication of a partition counts against the rate."""
        partitions = self._partitions.get(topic, _NONE)
        return partitions == _ALL or index in partitions

    @property
    def has_partitions(self) -> bool:
        """Whether any partition is throttled."""
        return bool(self._partitions)

    def record(self, size_bytes: int) -> None:
        """Counts bytes of a partition that `counts`."""
        self._rate.record(size_bytes)

    @property
    def is_exceeded(self) -> bool:
        """Whether the rate is used up."""
        return self._limit != _UNLIMITED and self._rate.value() > self._limit

    def holds_back(self, topic: str, index: int) -> bool:
        """Whether a replica of a partition has to wait now, unless it is in sync."""
        return bool(self._partitions) and self.counts(topic, index) and self.is_exceeded


class ReplicationThrottles:
    """The throttles of a broker, as leader and as follower."""

    def __init__(self, monotonic_s: Callable[[], float], *, windows: int, window_s: float) -> None:
        """Takes the windows of `ByteRate`; nothing is throttled yet."""
        self.leader, self.follower = (
            ReplicationThrottle(side, ByteRate(monotonic_s, windows=windows, window_s=window_s))
            for side in (LEADER, FOLLOWER)
        )

    def update(
        self,
        levels: Sequence[Mapping[str, str]],
        configs: Mapping[tuple[int, str], Mapping[str, str]],
        node_id: int,
    ) -> None:
        """Takes the recorded settings.

        Args:
            levels: of this broker, the most specific first.
            configs: of all resources, by their kinds and names.
            node_id: of this broker.
        """
        topics = {
            name: texts
            for (kind, name), texts in in_steps(configs.items(), every=64)
            if kind == ConfigResource.TOPIC and not _REPLICAS.isdisjoint(texts)
        }
        for each in (self.leader, self.follower):
            each.update_rate(levels)
            each.update_replicas(topics, node_id)


def _throttled(text: str, node_id: int) -> frozenset[int]:
    """The partitions that a topic's setting names: `*`, or `PARTITION:BROKER` with commas."""
    if text.strip() == "*":
        return _ALL
    pairs = (each.strip().split(":") for each in text.split(",") if each.strip())
    return frozenset(int(partition) for partition, broker in pairs if int(broker) == node_id)
