"""One run: a cluster, its clients and its failures, from a seed; and what the checkers say.

The phases: the cluster starts; clients work while all kinds of failures happen; all is repaired,
and within a bounded time everything must be available, in sync and equal again; then all is read.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import random
import sys
import time
import traceback
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any, Final

from cordwood.configs.resource import ConfigResource
from cordwood.model.error_codes import ErrorCode
from cordwood.model.errors import CordwoodError
from cordwood.model.kafka_errors import KafkaError
from cordwood.model.topic_names import GROUP_METADATA_TOPIC, TRANSACTION_STATE_TOPIC
from cordwood.model.topic_partition import TopicPartition
from support.simulation.broker_process import BrokerProcess
from support.simulation.checkers.answers import Answers
from support.simulation.checkers.groups import GroupOffsets, OneOwner
from support.simulation.checkers.leaders import OneLeader, Watermarks
from support.simulation.checkers.metadata import Metadata
from support.simulation.checkers.records import CommittedRecords, ExactlyOnce
from support.simulation.checkers.replicas import EqualReplicas
from support.simulation.checkers.transactions import ReadCommitted
from support.simulation.clients.client import BROKERS, Client, NoAnswerError
from support.simulation.clients.members import Member, StaticMember
from support.simulation.clients.producers import IdempotentProducer
from support.simulation.clients.pruner import Pruner
from support.simulation.clients.readers import Reader
from support.simulation.clients.transactional import GROUP as OF_TRANSACTIONS
from support.simulation.clients.transactional import TransactionalProducer
from support.simulation.clients.zombies import Zombie
from support.simulation.cluster import Cluster, KilledError
from support.simulation.controller_process import ControllerProcess
from support.simulation.event_loop import PROCESS, SimulatedLoop
from support.simulation.events import Ended, Healed, Unacceptable
from support.simulation.history import History, ViolationError
from support.simulation.log_watcher import LogWatcher
from support.simulation.nemesis import Nemesis
from support.simulation.network import Network
from support.simulation.presence import Presence

TOPIC: Final = "records"
PARTITIONS: Final = tuple(TopicPartition(TOPIC, index) for index in range(2))
PRUNED: Final = TopicPartition("pruned", 0)
"""A partition of whose records clients delete some, and retention others."""
_RETENTION_BYTES: Final = 12_000
GROUP: Final = "readers"
FINAL: Final = "final"
_STRIKE_S: Final = 0.7
FAILURES_S: Final = 12.0
"""How long things fail in a run, in simulated seconds."""
_START_S: Final = 20.0
#: Within this time after the last failure everything must be as if there had been none.
_RECOVERY_S: Final = 40.0
_CHECK_S: Final = 0.4
#: Errors of what a coordinator does by itself, and tries again.
_NOT_NOW: Final = frozenset({ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.NOT_COORDINATOR})
_NEVER_FAILS: Final = (
    "cordwood.broker.replication",
    "cordwood.broker.coordinators.coordinator_log",
    "cordwood.broker.coordinators.transaction_markers",
    "cordwood.coordinator",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """Result of a run; `events` are callbacks of the loop, `notes` those of the history."""

    seed: int
    violation: ViolationError | None
    digest: str
    events: int
    notes: int
    simulated_s: float
    processor_s: float
    failures: Counter[str]

    @property
    def command(self) -> str:
        """The command that runs it again, and shows its history."""
        return f"make simulate SEED={self.seed}"


class Simulation:
    """See the module."""

    def __init__(
        self,
        seed: int,
        *,
        failures_s: float = FAILURES_S,
        show: Callable[[str], object] | None = None,
    ) -> None:
        """Nothing has begun.

        Args:
            seed: of all random numbers.
            failures_s: how long things fail, in simulated seconds.
            show: is given a line for each event.
        """
        self.seed = seed
        self._failures_s = failures_s
        self._rng = random.Random(seed)  # noqa: S311  # nothing here is secret
        self.loop = SimulatedLoop()
        self.loop.set_exception_handler(self._raised)
        self.history = History(
            lambda: self.loop.now_ms,
            [
                Answers(),
                OneLeader(),
                CommittedRecords(),
                EqualReplicas(),
                Metadata(),
                Watermarks(),
                ExactlyOnce(FINAL),
                ReadCommitted(FINAL),
                OneOwner(),
                GroupOffsets(),
            ],
            show,
        )
        self.network = Network(self.loop, self._part_rng())
        self.log_watcher = LogWatcher(self.history)
        self.cluster = Cluster(
            self.loop, self.network, self._part_rng(), self.history, self.log_watcher
        )
        self.nemesis = Nemesis(self.cluster, self._part_rng())
        self._producers: list[IdempotentProducer | TransactionalProducer] = []
        self._readers: list[Reader] = []
        self._members: list[Member] = []
        self._static: StaticMember
        #: Clients that never end, and of whom nothing is expected.
        self._idle: list[Zombie | Pruner] = []
        self._clients: list[Client] = []

    def _part_rng(self) -> random.Random:
        return random.Random(self._rng.getrandbits(64))  # noqa: S311  # nothing here is secret

    def run(self) -> Result:
        """Runs it to its end, or to the first violation."""
        begun_s = time.process_time()
        with _errors_to(self.history, self.cluster.has_full_disk):
            try:
                self.loop.run_until_complete(self._run())
            finally:
                self.network.is_over = True
                for each in self._clients:
                    each.process.end()
                for node in self.cluster.brokers.values():
                    if node.running is not None:
                        node.running.process.end()
                if self.cluster.controller is not None:
                    self.cluster.controller.process.end()
        return Result(
            seed=self.seed,
            violation=self.history.violation,
            digest=self.history.digest,
            events=self.loop.events,
            notes=self.history.count,
            simulated_s=self.loop.time(),
            processor_s=time.process_time() - begun_s,
            failures=self.nemesis.done,
        )

    async def _run(self) -> None:
        self.cluster.start()
        if not await self._until(self._all_serve, _START_S):
            self._fail("the cluster does not start")
            return
        await self._create_topics()
        self._start_clients()
        await self._break_things()
        if self.history.violation is None:
            await self._recover()
        if self.history.violation is None:
            await self._look_at_the_end()

    def _fail(self, text: str) -> None:
        self.history.note("simulation", Unacceptable(text))

    async def _until(self, holds: Callable[[], bool], seconds: float) -> bool:
        """Waits until something holds; whether it does in that time."""
        ends_s = self.loop.time() + seconds
        while not holds():
            if self.loop.time() >= ends_s or self.history.violation is not None:
                return False
            await asyncio.sleep(0.1)
            self.cluster.look_after()
        return True

    # ---- the phases

    def _all_serve(self) -> bool:
        return all(
            each.running is not None and each.running.is_serving
            for each in self.cluster.brokers.values()
        )

    async def _create_topics(self) -> None:
        client = self._client(Client, "admin")
        compact = [{"name": "cleanup.policy", "value": "compact"}]
        few = [{"name": "retention.bytes", "value": str(_RETENTION_BYTES)}]
        fields: dict[str, Any] = {
            "topics": [
                {"name": TOPIC, "num_partitions": len(PARTITIONS), "replication_factor": 3},
                {
                    "name": PRUNED.topic,
                    "num_partitions": 1,
                    "replication_factor": 3,
                    "configs": few,
                },
                *(
                    {"name": name, "num_partitions": 1, "replication_factor": 3, "configs": compact}
                    for name in (GROUP_METADATA_TOPIC, TRANSACTION_STATE_TOPIC)
                ),
            ],
            "timeout_ms": 5000,
            "validate_only": False,
        }
        for topic in fields["topics"]:
            topic.setdefault("configs", [])
            topic["assignments"] = []
        await self._in(client, client.call(1, "create_topics", fields))
        topics = {TOPIC, PRUNED.topic, GROUP_METADATA_TOPIC, TRANSACTION_STATE_TOPIC}
        if not await self._until(lambda: topics <= self.cluster.image.topics.keys(), 5.0):
            self._fail("the topics are not created")
        # The offsets of a group without members would expire at once by some brokers' clocks.
        setting = {"name": "cordwood.offsets.retention.minutes", "value": "-1"}
        group = {
            "resource_type": ConfigResource.GROUP,
            "resource_name": OF_TRANSACTIONS,
            "configs": [{**setting, "config_operation": 0}],
        }
        fields = {"resources": [group], "validate_only": False}
        answer = await self._in(client, client.call(1, "incremental_alter_configs", fields))
        if answer.responses[0].error_code:
            self._fail(f"the group is not configured: {answer.responses[0].error_message}")

    async def _in(self, client: Client, work: Any) -> Any:
        """Runs a coroutine as a client."""
        return await self.loop.create_task(work, context=client.process.context)

    def _client(self, kind: Any, name: str, **settings: Any) -> Any:
        made = kind(name, self.loop, self._part_rng(), self.history, **settings)
        self._clients.append(made)
        return made

    def _start_clients(self) -> None:
        for number in (1, 2):
            self._producers.append(
                self._client(
                    IdempotentProducer, f"producer-{number}", partitions=PARTITIONS, pause_s=0.25
                )
            )
        self._producers.append(
            self._client(
                TransactionalProducer, "transactional-1", partitions=PARTITIONS, pause_s=0.4
            )
        )
        for name, is_committed in (("reader-1", False), ("reader-2", True), ("reader-3", True)):
            self._readers.append(
                self._client(
                    Reader, name, partitions=PARTITIONS, is_committed=is_committed, pause_s=0.3
                )
            )
        for number in (1, 2, 3):
            self._members.append(
                self._client(
                    Member, f"member-{number}", group=GROUP, partitions=PARTITIONS, pause_s=0.4
                )
            )
        self._producers.append(
            self._client(
                IdempotentProducer,
                "producer-3",
                partitions=(PRUNED,),
                pause_s=0.2,
                padding_bytes=300,
                is_kept=False,
            )
        )
        self._idle.append(self._client(Pruner, "pruner", partition=PRUNED))
        self._static = self._client(
            StaticMember, "static-1", group="instances", partitions=PARTITIONS, pause_s=0.4
        )
        zombie = self._client(
            Zombie,
            "zombie",
            cluster=self.cluster,
            producers=[each for each in self._producers if hasattr(each, "written")],
            members=self._members,
        )
        self._idle.append(zombie)
        presence = Presence(self.cluster, self.history, [*self._members, self._static])
        self.loop.create_task(presence.run())
        for each in (*self._producers, *self._readers, *self._members, self._static, *self._idle):
            task = self.loop.create_task(each.run(), context=each.process.context)
            task.add_done_callback(self._client_ended)

    def _client_ended(self, task: asyncio.Task[None]) -> None:
        error = None if task.cancelled() else task.exception()
        if error is not None:
            where = "".join(traceback.format_exception(error)[-3:])
            self._fail(f"a client fails: {error!r}, {where}")

    async def _break_things(self) -> None:
        ends_s = self.loop.time() + self._failures_s
        next_check_s = self.loop.time()
        while self.loop.time() < ends_s and self.history.violation is None:
            await asyncio.sleep(self._rng.expovariate(1 / _STRIKE_S))
            self.cluster.look_after()
            self.nemesis.strike()
            if self.loop.time() >= next_check_s:
                next_check_s = self.loop.time() + _CHECK_S
                self._look_at_replicas()

    async def _recover(self) -> None:
        self.nemesis.end()
        self.history.note("simulation", Healed())
        for producer in self._producers:
            producer.is_stopping = True
        for member in self._members:
            member.is_calm = True
        self._static.is_calm = True
        self.cluster.loop.call_soon(self._look_at_replicas)
        if not await self._until(self._is_as_new, _RECOVERY_S):
            self._fail(f"after {_RECOVERY_S:.0f} s without failures: {self._what_is_wrong()}")

    def _is_as_new(self) -> bool:
        self.cluster.start()
        return not self._what_is_wrong()

    def _what_is_wrong(self) -> str:
        """Description of what has not recovered from failures yet."""
        if not self._all_serve():
            names = [
                each.name
                for each in self.cluster.brokers.values()
                if each.running is None or not each.running.is_serving
            ]
            return f"{names} do not serve"
        working = [each.name for each in self._producers if not each.is_done]
        if working:
            return f"{working} are not answered"
        image = self.cluster.image
        for topic in image.topics.values():
            for number, partition in topic.partitions.items():
                if partition.leader < 0 or set(partition.isr) != set(BROKERS):
                    return (
                        f"{topic.name}-{number} has the leader {partition.leader} and the ISR "
                        f"{partition.isr}"
                    )
        for place, ends in self._ends().items():
            # The members of the group still commit.
            if len(ends) > 1 and place.topic != GROUP_METADATA_TOPIC:
                return f"the logs of {place} end at {sorted(ends)}"
        unsettled = [each.name for each in self._members if not each.is_settled]
        if unsettled:
            return f"{unsettled} have not given up what they are to give up"
        if sorted(self._static.owned) != sorted(PARTITIONS):
            return f"the static member has {self._static.owned}"
        owned = [each for member in self._members for each in member.owned]
        if sorted(owned) != sorted(PARTITIONS):
            return f"of the group's partitions, {owned} have an owner"
        return ""

    def _ends(self) -> dict[TopicPartition, set[tuple[int, int]]]:
        """The log ends and high watermarks of each partition's replicas: one where all is well."""
        found: dict[TopicPartition, set[tuple[int, int]]] = {}
        for node in self.cluster.brokers.values():
            if node.running is not None:
                for log in node.running.logs.logs():
                    ends = found.setdefault(log.topic_partition, set())
                    ends.add((log.log_end_offset, log.log_end_offset))
                    ends.add((log.high_watermark, log.high_watermark))
        return found

    def _check_invariants(self, process: BrokerProcess | ControllerProcess) -> None:
        try:
            process.check_invariants()
        except AssertionError as error:
            place = traceback.extract_tb(error.__traceback__)[-1]
            self._fail(f"{process.process.name}: {place.name} in {place.filename}: {error}")

    def _look_at_replicas(self, *, is_final: bool = False) -> None:
        image = self.cluster.image
        if self.cluster.controller is not None:
            self._check_invariants(self.cluster.controller)
        for node in self.cluster.brokers.values():
            process = node.running
            if process is None or not process.is_serving or node.is_stopping:
                continue
            self._check_invariants(process)
            known = image.brokers.get(node.broker_id)
            is_current = known is not None and known.epoch == node.epoch
            for log in process.logs.logs():
                place = log.topic_partition
                partition = image.partition(place.topic, place.partition)
                is_in_sync = (
                    is_current and partition is not None and node.broker_id in partition.isr
                )
                with suppress(CordwoodError):  # the log is closed, or its disk has failed
                    self.log_watcher.replica(
                        node.broker_id,
                        process.process,
                        log,
                        is_in_sync=is_in_sync,
                        is_final=is_final,
                    )

    async def _look_at_the_end(self) -> None:
        """All replicas, and all that readers see; clients have ended."""
        for each in (*self._readers, *self._members, self._static, *self._idle):
            each.process.end()
        if not await self._until(lambda: not self._ends_differ(), 10.0):
            self._fail(f"the logs do not become equal: {self._ends()}")
        await self._until(self._have_begun, 10.0)
        self._look_at_replicas(is_final=True)
        for is_committed in (False, True):
            partitions = (*PARTITIONS, PRUNED)
            reader = self._client(Reader, FINAL, partitions=partitions, is_committed=is_committed)
            await self._in(reader, reader.begin_at_the_first(PRUNED))
            for partition in partitions:
                with suppress(NoAnswerError):
                    await self._in(reader, reader.read_all(partition))
        self.history.note("simulation", Ended())

    def _have_begun(self) -> bool:
        """Whether all followers know where their leaders' logs begin."""
        for topic in self.cluster.image.topics.values():
            for number, partition in topic.partitions.items():
                place = TopicPartition(topic.name, number)
                starts = {
                    broker_id: log.log_start_offset
                    for broker_id, node in self.cluster.brokers.items()
                    if node.running is not None
                    and (log := node.running.logs.get(place)) is not None
                }
                if min(starts.values()) < starts.get(partition.leader, 0):
                    return False
        return True

    def _ends_differ(self) -> bool:
        return any(len(ends) > 1 for ends in self._ends().values())

    # ---- what is raised

    def _raised(self, _loop: object, context: dict[str, Any]) -> None:
        """Handles an exception of the loop."""
        error = context.get("exception")
        process = PROCESS.get()
        if isinstance(error, KilledError) or (process is not None and process.is_dead):
            return
        if error is not None and "never retrieved" not in context.get("message", ""):
            self._fail(f"{type(error).__name__} was raised: {error}")


class _ErrorsToHistory(logging.Handler):
    """Notes errors that the code under test logs, and does not expect.

    Fetchers and coordinators expect none, unless the node's disk is or was full.
    """

    def __init__(self, history: History, has_full_disk: Callable[[str], bool]) -> None:
        super().__init__(logging.ERROR)
        self._history = history
        self._has_full_disk = has_full_disk

    def emit(self, record: logging.LogRecord) -> None:
        """Adds an error of the log to the history."""
        error = record.exc_info[1] if record.exc_info else None
        process = PROCESS.get()
        name = "simulation" if process is None else process.name
        if (process is not None and process.is_dead) or isinstance(error, KilledError):
            return
        if isinstance(error, KafkaError) and error.code in _NOT_NOW:
            return
        if error is None or isinstance(error, (CordwoodError, OSError)):
            is_expected = not record.name.startswith(_NEVER_FAILS) or self._has_full_disk(name)
            if is_expected:
                return
        text = "" if error is None else f": {type(error).__name__}: {error}"
        self._history.note(name, Unacceptable(f"{record.getMessage()}{text}"))


@contextmanager
def _errors_to(history: History, has_full_disk: Callable[[str], bool]) -> Iterator[None]:
    logger = logging.getLogger("cordwood")
    handler = _ErrorsToHistory(history, has_full_disk)
    before, propagates = logger.level, logger.propagate
    logger.addHandler(handler)
    logger.setLevel(logging.ERROR)
    logger.propagate = False
    try:
        yield
    finally:
        logger.removeHandler(handler)
        logger.setLevel(before)
        logger.propagate = propagates


def run_seed(
    seed: int,
    *,
    failures_s: float = FAILURES_S,
    show: Callable[[str], object] | None = None,
) -> Result:
    """Runs a seed; the arguments are those of `Simulation`."""
    with _without_collection():
        return Simulation(seed, failures_s=failures_s, show=show).run()


@contextmanager
def _without_collection() -> Iterator[None]:
    """Collects cycles at the end only, and silently.

    Processes that were killed have left coroutines in the middle, or before their first step. When
    they are collected, Python runs what they have in `finally`, and warns.
    """
    is_enabled, hook = gc.isenabled(), sys.unraisablehook
    was_frozen = gc.get_freeze_count() > 0
    if not was_frozen:
        gc.freeze()
    gc.disable()
    sys.unraisablehook = lambda _: None
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                yield
            finally:
                # The `finally` of coroutines makes more garbage out of what is collected first.
                gc.collect()
                gc.collect()
    finally:
        sys.unraisablehook = hook
        if not was_frozen:
            gc.unfreeze()
        if is_enabled:
            gc.enable()
