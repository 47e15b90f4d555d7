"""Which partitions' groups are known, and how they become so.

Source: org.apache.kafka.coordinator.common.runtime.CoordinatorRuntime (states of a coordinator).
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Protocol

from cordwood.broker.groups.errors import GroupError, GroupRequestError
from cordwood.broker.groups.loader import load_shard
from cordwood.broker.groups.shard import GroupShard
from cordwood.metadata.image import MetadataImage
from cordwood.model.clock import Clock
from cordwood.model.errors import CordwoodError
from cordwood.model.kafka_errors import KafkaError
from cordwood.model.pauses import in_steps
from cordwood.storage.log.partition_log import PartitionLog

_LOADED_AT_ONCE_BYTES = 64 * 1024

_LOG = logging.getLogger(__name__)


class LoadingBroker(Protocol):
    """What loading needs of the broker."""

    @property
    def clock(self) -> Clock:
        """Tells the time."""

    @property
    def image(self) -> MetadataImage:
        """What the cluster knows of itself now."""

    def log(self, topic: str, index: int, /) -> PartitionLog:
        """A partition's log; raises KafkaError if it is not led here."""

    def call_soon(self, run: Callable[[], object], /) -> object:
        """From any thread: has `run` called on the thread that owns the broker's state."""


class ShardLoads:
    """Partitions that are loaded, those that are being loaded, and those that cannot be.

    Invariant: a partition is in one of `_shards`, `_loading` and `_failed`, or in none; but for one
    that was resigned while it was being loaded.
    """

    def __init__(
        self, broker: LoadingBroker, topic: str, on_loaded: Callable[[GroupShard], None]
    ) -> None:
        """Nothing is read yet.

        Args:
            broker: has the logs.
            topic: whose partitions these are.
            on_loaded: told of each partition that has just been loaded.
        """
        self._broker = broker
        self._topic = topic
        self._on_loaded = on_loaded
        self._shards: dict[int, GroupShard] = {}
        self._loading: set[int] = set()
        self._failed: set[int] = set()
        self._waiting: list[tuple[set[int], Callable[[], None]]] = []
        self._thread: ThreadPoolExecutor | None = None
        self._turn = 0

    def shard(self, partition: int) -> GroupShard:
        """A partition's groups; begins to load them if they are not known.

        Raises:
            GroupRequestError: COORDINATOR_LOAD_IN_PROGRESS, or NOT_COORDINATOR where they cannot be
                read.
        """
        self._begin(partition)
        found = self._shards.get(partition)
        if found is None:
            is_loading = partition in self._loading
            raise GroupRequestError(
                GroupError.COORDINATOR_LOAD_IN_PROGRESS
                if is_loading
                else GroupError.NOT_COORDINATOR
            )
        return found

    def loaded(self) -> list[GroupShard]:
        """All that are loaded.

        Raises:
            GroupRequestError: COORDINATOR_LOAD_IN_PROGRESS.
        """
        if self._loading:
            raise GroupRequestError(GroupError.COORDINATOR_LOAD_IN_PROGRESS)
        return list(self._shards.values())

    def has(self, shard: GroupShard) -> bool:
        """Whether a partition is still the one that was loaded."""
        return self._shards.get(shard.partition) is shard

    def load_all(self, then: Callable[[], None]) -> None:
        """Loads what is not, and calls `then` when all is: at once, or later."""
        topic = self._broker.image.topics.get(self._topic)
        for partition in in_steps(() if topic is None else topic.partitions):
            self._begin(partition)
        if self._loading:
            self._waiting.append((set(self._loading), then))
        else:
            then()

    def resign(self, partition: int) -> GroupShard | None:
        """Forgets a partition that is led here no more; it is not loaded again."""
        self._failed.add(partition)
        return self._shards.pop(partition, None)

    def unload(self) -> list[GroupShard]:
        """Forgets all partitions, and what is being loaded; those that were loaded.

        Who waits for all to be loaded need not any more, and is told so.
        """
        shards = list(self._shards.values())
        waiting, self._waiting = self._waiting, []
        self._turn += 1
        self._shards.clear()
        self._loading.clear()
        self._failed.clear()
        if self._thread is not None:
            self._thread.shutdown(wait=False, cancel_futures=True)
            self._thread = None
        for _, then in waiting:
            then()
        return shards

    def _begin(self, partition: int) -> None:
        if partition in self._shards or partition in self._loading or partition in self._failed:
            return
        try:
            log = self._broker.log(self._topic, partition)
        except KafkaError:
            return
        self._loading.add(partition)
        if log.size_bytes <= _LOADED_AT_ONCE_BYTES:
            self._end(partition, self._turn, _load(log, self._broker.clock))
            return
        if self._thread is None:
            self._thread = ThreadPoolExecutor(1, thread_name_prefix="group-metadata-load")
        self._thread.submit(self._load_later, partition, self._turn, log)

    def _load_later(self, partition: int, turn: int, log: PartitionLog) -> None:
        shard = _load(log, self._broker.clock)
        self._broker.call_soon(partial(self._end, partition, turn, shard))

    def _end(self, partition: int, turn: int, shard: GroupShard | None) -> None:
        if turn != self._turn:
            return
        self._loading.discard(partition)
        if shard is None or partition in self._failed:
            self._failed.add(partition)
        else:
            self._shards[partition] = shard
            try:
                self._on_loaded(shard)
            except Exception:  # requests that wait for the load must be answered
                _LOG.exception("Cannot resume the groups of %s-%d", self._topic, partition)
        ready = []
        for waits_for, then in self._waiting:
            waits_for.discard(partition)
            if not waits_for:
                ready.append(then)
        self._waiting = [each for each in self._waiting if each[0]]
        for then in ready:
            then()


def _load(log: PartitionLog, clock: Clock) -> GroupShard | None:
    """A partition's groups; None if they cannot be read, which is logged."""
    try:
        shard = load_shard(log, clock)
    except (CordwoodError, OSError) as error:
        _LOG.error("Cannot load the groups of %s: %s", log.topic_partition, error)
        return None
    except Exception:  # else clients would be told forever that it loads
        _LOG.exception("Cannot load the groups of %s", log.topic_partition)
        return None
    level = logging.INFO if shard.groups else logging.DEBUG
    _LOG.log(level, "Loaded %d groups of %s", len(shard.groups), log.topic_partition)
    return shard
