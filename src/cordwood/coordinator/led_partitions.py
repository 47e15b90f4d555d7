"""The partitions of a coordinator's topic that this broker leads: their load, and their end.

A partition is loaded from its log when this broker becomes its leader, or is first asked for it; a
large one in a thread. Until then requests are answered COORDINATOR_LOAD_IN_PROGRESS. All else
belongs to the thread that owns the broker's state.

Source: org.apache.kafka.coordinator.common.runtime.CoordinatorRuntime (4.3), its
CoordinatorContext, scheduleLoadOperation, scheduleUnloadOperation.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Hashable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

from cordwood.coordinator.deferred_answers import DeferredAnswerQueue
from cordwood.coordinator.log import CoordinatorLog, PartitionLoader
from cordwood.coordinator.timeline import Timeline
from cordwood.coordinator.timers import Timers
from cordwood.format.java_map import ConcurrentHashMapKeys, absolute_hash
from cordwood.model.clock import Clock
from cordwood.model.errors import CordwoodError
from cordwood.model.kafka_errors import (
    CoordinatorLoadInProgressError,
    KafkaError,
    NotCoordinatorError,
)
from cordwood.model.pauses import in_steps
from cordwood.model.timers import Timer
from cordwood.model.topic_partition import TopicPartition

_LOADED_AT_ONCE_BYTES = 64 * 1024
_LOAD_TIMES_MAX = 10_000

_LOG = logging.getLogger(__name__)


class PartitionState(Protocol):
    """The state of a coordinator's partition."""

    def check_invariants(self) -> None:
        """Checks the state."""


S = TypeVar("S", bound=PartitionState)


class LoadTime(NamedTuple):
    """Duration of the load of a partition, and its end by the monotonic clock."""

    ended_s: float
    duration_ms: float


class RuntimeHost(Protocol):
    """The functions of the process that a runtime uses."""

    @property
    def clock(self) -> Clock:
        """The time of records, and when offsets expire."""

    def call_soon(self, run: Callable[[], object], /) -> object:
        """Calls a function on the thread that owns the broker's state, from any thread."""

    def call_later_ms(self, delay_ms: int, run: Callable[[], object], /) -> Timer:
        """Schedules a function on that thread after `delay_ms` of wall-clock time."""

    def after_input(self, run: Callable[[], None], /) -> None:
        """Calls a function when the requests that have arrived by now have been read."""

    def run_in_slices(self, run: Callable[[], object], /) -> object:
        """Calls a function later, whose pauses let other work come first; logs its error."""


class CoordinatorHost(RuntimeHost, Protocol):
    """The functions of the process that a coordinator uses."""

    def schedule(self, name: str, period_ms: int, run: Callable[[], object], /) -> Timer:
        """Calls a function in every period of the movable clock."""


class LoadedPartition(Generic[S]):
    """A partition that is loaded: its state, timers and tasks, and the answers that wait.

    Invariant: `committed` and `last_written` are offsets of the log, `last_written` being one past
    the last record that the state has. Answers wait for offsets above `committed`.
    """

    def __init__(self, index: int, state: S, timeline: Timeline, timers: Timers) -> None:
        self.index = index
        self.state = state
        self.timeline = timeline
        self.timers = timers
        self.tasks: set[Hashable] = set()
        self.deferred = DeferredAnswerQueue()
        self.last_written = 0
        self.committed = 0

    def check_invariants(self) -> None:
        """Checks the state, and that answers and earlier values wait until it is committed."""
        self.state.check_invariants()
        self.deferred.check_invariants()
        self.timeline.check_invariants()
        first = self.deferred.first_offset
        assert first is None or first > self.committed, (self.index, first, self.committed)
        assert not self.timeline.is_changing, f"a change of partition {self.index} has not ended"
        if self.last_written <= self.committed:
            uncommitted = self.timeline.uncommitted_count
            assert uncommitted == 0, (self.index, uncommitted, self.last_written, self.committed)


class LedPartitions(Generic[S]):
    """Partitions that are loaded, being loaded, or failed.

    Invariant: a partition is in one of `_active`, `_loading` and `_failed`, or in none.
    """

    def __init__(
        self,
        log: CoordinatorLog[S, Any],
        host: RuntimeHost,
        *,
        topic_partitions: int,
        new_state: Callable[[int, Timeline], S],
        on_loaded: Callable[[LoadedPartition[S]], None],
        on_unloaded: Callable[[LoadedPartition[S]], None],
        reloads: bool = False,
    ) -> None:
        """Creates an object without a loaded partition.

        Args:
            log: where the records are.
            host: time, and the thread that owns the state.
            topic_partitions: the number of partitions of the topic when it is created.
            new_state: the state of a partition without records.
            on_loaded: called with a partition that is loaded, before any event of it.
            on_unloaded: called with a partition that was loaded, and is not any more.
            reloads: whether a loaded partition is loaded again in a new leader epoch.

        `load_times` has those of the last loads, the newest last.
        """
        self._log = log
        self._host = host
        self._topic_partitions = topic_partitions
        self._new_state = new_state
        self._on_loaded = on_loaded
        self._on_unloaded = on_unloaded
        self._reloads = reloads
        self._active: dict[int, LoadedPartition[S]] = {}
        #: All that were led here since the last `resign` of each, in the order of Kafka's map.
        self._led: ConcurrentHashMapKeys[TopicPartition] = ConcurrentHashMapKeys()
        #: The number of the load of each partition that is being loaded.
        self._loading: dict[int, int] = {}
        self._loads = 0
        self._failed: set[int] = set()
        self._load_waiters: list[tuple[set[int], Callable[[], None]]] = []
        self._load_thread: ThreadPoolExecutor | None = None
        self.load_times: deque[LoadTime] = deque(maxlen=_LOAD_TIMES_MAX)

    @property
    def topic(self) -> str:
        """The coordinator's topic."""
        return self._log.topic

    def index_for(self, key: str) -> int:
        """The number of the partition that the records of a group or transactional id are in.

        Source: GroupCoordinatorService.partitionFor, TransactionStateManager.partitionFor.
        """
        return absolute_hash(key) % (len(self._log.partitions()) or self._topic_partitions)

    def partition_for(self, key: str) -> TopicPartition:
        """The partition that the records of a group or transactional id are in."""
        return TopicPartition(self._log.topic, self.index_for(key))

    def check_invariants(self) -> None:
        """Checks that each partition is in one state, and checks each loaded one."""
        states = [*self._active, *self._loading, *self._failed]
        assert len(states) == len(set(states)), (self._active.keys(), self._loading, self._failed)
        led = {each.partition for each in self._led}
        assert self._active.keys() <= led, (self._active.keys(), led)
        assert self._loading.keys() <= led, (self._loading.keys(), led)
        for waits_for, _ in self._load_waiters:
            assert waits_for, "all partitions are loaded, and the callback has not run"
            assert waits_for <= self._loading.keys(), (waits_for, self._loading)
        for index, active in self._active.items():
            assert active.index == index, (active.index, index)
            active.check_invariants()

    # ---- reading

    def active(self, partition: int) -> LoadedPartition[S] | None:
        """A partition that is loaded; None if it is not."""
        return self._active.get(partition)

    def require(self, partition: int) -> LoadedPartition[S]:
        """A partition that is loaded; begins to load one that is not.

        Raises:
            CoordinatorLoadInProgressError: the partition is being loaded.
            NotCoordinatorError: this broker does not lead the partition, or cannot load it.
        """
        self._begin_load(partition)
        found = self._active.get(partition)
        if found is not None:
            return found
        if partition in self._loading:
            raise CoordinatorLoadInProgressError(f"{self._log.topic}-{partition} is being loaded")
        raise NotCoordinatorError(f"{self._log.topic}-{partition} is not led here")

    def read(self, partition: int) -> tuple[S, int]:
        """A partition's state, and the offset up to which it is committed.

        Raises:
            KafkaError: as `require`.
        """
        found = self.require(partition)
        return found.state, found.committed

    def read_all(self) -> list[tuple[int, S, int]]:
        """The partitions that are loaded, in Kafka's order, each as `read` gives it.

        Raises:
            CoordinatorLoadInProgressError: one is being loaded.
        """
        if self._loading:
            raise CoordinatorLoadInProgressError("A partition is being loaded")
        return self.loaded()

    def loaded(self) -> list[tuple[int, S, int]]:
        """The partitions that are loaded, in Kafka's order, while others may be being loaded."""
        found = (self._active.get(led.partition) for led in self._led)
        return [(each.index, each.state, each.committed) for each in found if each is not None]

    def do_between_requests(self, work: Iterator[tuple[int, Callable[[], object]]]) -> None:
        """Does work in partitions that are loaded, piece by piece: requests come between.

        `work` gives the number of a partition, and what is to be done if it is loaded.
        """
        for partition, run in work:
            if partition in self._active:
                run()
                self._host.call_soon(partial(self.do_between_requests, work))
                break

    def timers_of(self, kind: str) -> int:
        """The number of timers that are set whose key is a tuple that begins with `kind`."""
        return sum(active.timers.count_of(kind) for active in self._active.values())

    # ---- loading and unloading

    def load_all(self, then: Callable[[], None]) -> None:
        """Loads all partitions that are not loaded yet, and calls `then` when all are loaded."""
        for partition in in_steps(self._log.partitions()):
            self._begin_load(partition)
        if self._loading:
            self._load_waiters.append((set(self._loading), then))
        else:
            then()

    def elect(self, partition: int) -> None:
        """Loads a partition that this broker leads in a new leader epoch.

        One that is loaded already stays as it is, unless the coordinator `reloads`.

        Source: CoordinatorRuntime.scheduleLoadOperation.
        """
        if self._reloads and partition in self._active:
            self.resign(partition)
        self._failed.discard(partition)
        self._begin_load(partition)

    def resign(self, partition: int) -> None:
        """Unloads a partition that is not led here any more; it is not loaded until `elect`.

        What a load has read that is under way is not used, also if the partition is led again
        before that ends: another leader may have written meanwhile.
        """
        _LOG.info("Resigned as the coordinator of %s-%d", self._log.topic, partition)
        self._failed.add(partition)
        self._led.discard(TopicPartition(self._log.topic, partition))
        if self._loading.pop(partition, None) is not None:
            self._end_wait(partition)
        active = self._active.pop(partition, None)
        if active is not None:
            self._on_unloaded(active)

    def unload(self) -> None:
        """Unloads all partitions. Callbacks of `load_all` that wait run immediately."""
        ended = list(self._active.values())
        waiters, self._load_waiters = self._load_waiters, []
        self._active.clear()
        for led in list(self._led):
            self._led.discard(led)
        self._loading.clear()
        self._failed.clear()
        if self._load_thread is not None:
            self._load_thread.shutdown(wait=False, cancel_futures=True)
            self._load_thread = None
        for _, then in waiters:
            then()
        for active in ended:
            self._on_unloaded(active)

    def _begin_load(self, partition: int) -> None:
        if partition in self._active or partition in self._loading or partition in self._failed:
            return
        try:
            loader = self._log.loader(partition)
        except KafkaError:
            return
        self._led.add(TopicPartition(self._log.topic, partition))
        self._loads += 1
        number = self._loading[partition] = self._loads
        if loader.size_bytes <= _LOADED_AT_ONCE_BYTES:
            self._end_load(partition, number, self._load(partition, loader))
            return
        if self._load_thread is None:
            self._load_thread = ThreadPoolExecutor(1, thread_name_prefix="coordinator-load")
        self._load_thread.submit(self._load_in_thread, partition, number, loader)

    def _load_in_thread(self, partition: int, number: int, loader: PartitionLoader[S]) -> None:
        loaded = self._load(partition, loader)
        self._host.call_soon(partial(self._end_load, partition, number, loaded))

    def _load(self, partition: int, loader: PartitionLoader[S]) -> LoadedPartition[S] | None:
        """A partition's state; None if its log cannot be read, which is logged."""
        log, timeline, clock = self._log, Timeline(), self._host.clock
        state = self._new_state(partition, timeline)
        begun_s = clock.monotonic_s()
        try:
            end_offset = loader.load(state, timeline)
        except (CordwoodError, OSError) as error:
            _LOG.error("Cannot load the %s of %s-%d: %s", log.contents, log.topic, partition, error)
            return None
        except Exception:  # otherwise clients would be answered forever that it is being loaded
            _LOG.exception("Cannot load the %s of %s-%d", log.contents, log.topic, partition)
            return None
        ended_s = clock.monotonic_s()
        self.load_times.append(LoadTime(ended_s, 1000 * (ended_s - begun_s)))
        timers = Timers(self._host.call_later_ms, self._host.after_input)
        loaded = LoadedPartition(partition, state, timeline, timers)
        loaded.last_written = end_offset
        return loaded

    def _end_load(self, partition: int, number: int, loaded: LoadedPartition[S] | None) -> None:
        if self._loading.get(partition) != number:
            return  # it was resigned, or all were unloaded
        del self._loading[partition]
        if loaded is None:
            self._failed.add(partition)
        else:
            self._active[partition] = loaded
            self._on_loaded(loaded)
        self._end_wait(partition)

    def _end_wait(self, partition: int) -> None:
        """Calls those that wait for the last load."""
        ready = []
        for waits_for, then in self._load_waiters:
            waits_for.discard(partition)
            if not waits_for:
                ready.append(then)
        self._load_waiters = [each for each in self._load_waiters if each[0]]
        for then in ready:
            then()
