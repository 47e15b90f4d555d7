"""The nodes of the cluster: their disks and clocks, how they start, and how they fail.

Fault model of a node, with why the cluster must survive it:

- A process is killed at any moment, also between two operations on its disk, any number of them
  at a time. What it has written is there when it starts again, on its disk or in the system's
  memory, and what is unsynced may still be lost to a later loss of power.
- A machine loses power: what was not synced is lost, in any part that a disk may lose
  (`cordwood.testing.simulated_filesystem`). What is committed is in the memory of all brokers in
  sync, at least two, and no log that is replicated without syncs survives the loss of all of these.
  So this happens to a broker only while each partition is in sync on another broker, too, which
  runs as it is registered; and until it is in sync again, no other broker is killed, stopped or
  loses power. Nor does it happen while another broker that was killed is not in sync again: both
  come back without the mark of a clean stop (KIP-966), so that neither is in sync or eligible, and
  the controller can only guess which of them has lost nothing.
- A disk lies: syncs have no effect from some moment on. At the next loss of power all that was
  written since is lost. This is a loss of power of one broker, under the same condition.
- A disk is full for a while; a clock is wrong by minutes, and runs too fast or too slow.
- A process is suspended, and continues without noticing.
- A broker is stopped in order.
- The controller is killed, loses power or is suspended. Its disk does not lie and is not full: it
  is the only voter, and what is committed is on that disk alone.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from contextvars import copy_context
from pathlib import Path
from typing import Final

from cordwood.metadata.image import MetadataImage
from cordwood.model.errors import CordwoodError
from cordwood.testing.simulated_filesystem import FileOperation, SimulatedFileSystem
from support.simulation.broker_process import BrokerProcess
from support.simulation.controller_process import ControllerProcess
from support.simulation.event_loop import SimulatedLoop, SkewedClock, still_clock
from support.simulation.events import Note, Unacceptable
from support.simulation.history import History
from support.simulation.log_watcher import Decisions, LogWatcher
from support.simulation.network import Network
from support.simulation.settings import CONTROLLER, CONTROLLER_ID, broker_name, format_disk
from support.watched import SeededRng

BROKER_IDS: Final = (1, 2, 3)
_PLENTY: Final = 1 << 40
_IMAGES_MAX: Final = 4
_RESTART_S: Final = 1.0
_AFTER_FULL_S: Final = 2.0


class KilledError(BaseException):
    """The process ends in the middle of an operation: nothing that catches errors catches it."""


class BrokerNode:
    """A machine with a broker."""

    def __init__(self, broker_id: int, cluster: Cluster) -> None:
        """An empty, formatted disk; nothing runs."""
        self.broker_id = broker_id
        self.name = broker_name(broker_id)
        self._cluster = cluster
        rng = cluster.rng
        self.clock = SkewedClock(
            cluster.loop,
            offset_ms=rng.randint(-120_000, 120_000),
            rate=rng.uniform(0.98, 1.02),
        )
        self.fs = SimulatedFileSystem(still_clock())
        self.seeds = SeededRng(random.Random(rng.getrandbits(64)))  # noqa: S311
        format_disk(self.fs, broker_id, self.clock, self.seeds)
        self.running: BrokerProcess | None = None
        #: What the disk has in truth, from the moment on at which it began to lie.
        self.lie: SimulatedFileSystem | None = None
        self.is_stopping = False
        #: Whether it has ended without a stop in order, or lost power, and is not in sync again.
        self.is_behind = self.is_lossy = False
        #: Until when an error may come of the disk that was full.
        self.full_until_s = -1.0

    # ---- life

    def start(self) -> None:
        """Starts the broker, if it does not run."""
        if self.running is not None:
            return
        cluster = self._cluster
        self.is_stopping = False
        found = self.running = BrokerProcess(
            self.broker_id,
            cluster.loop,
            cluster.network,
            self.fs,
            self.clock,
            self.seeds,
            cluster.log_watcher,
        )
        cluster.history.note(self.name, Note("starts"))
        cluster.loop.call_soon(
            lambda: cluster.loop.create_task(self._run(found)), context=found.process.context
        )

    async def _run(self, process: BrokerProcess) -> None:
        try:
            await process.start()
        except CordwoodError as error:
            process.failure = process.failure or f"cannot start: {error}"
            return
        self._cluster.history.note(self.name, Note("serves"))

    @property
    def epoch(self) -> int:
        """The epoch of its registration; -1 without one."""
        return -1 if self.running is None else self.running.broker_epoch

    def kill(self) -> None:
        """The process ends; the system continues."""
        self.is_behind = True
        self._end(self.fs.process_crash(), says_so=True)

    def lose_power(self) -> None:
        """The machine is off; what a disk had not synced is lost, in part or in whole."""
        if self.lie is not None:
            image, self.lie = self.lie, None
        else:
            images = list(self.fs.crash_images(_IMAGES_MAX, self._cluster.rng))
            image = self._cluster.rng.choice(images)
        self.is_behind = self.is_lossy = True
        self._end(image, says_so=False)

    def _end(self, image: SimulatedFileSystem, *, says_so: bool) -> None:
        process, self.running = self.running, None
        image.capacity_bytes = self.fs.capacity_bytes
        self.fs = image
        if process is not None:
            process.process.end()
            self._cluster.network.process_ended(process.process, says_so=says_so)
            self._cluster.graveyard.append(process)

    def end_at_operation(self, count: int, end: Callable[[], bool]) -> None:
        """Calls `end` before the `count`-th operation on the disk from now on.

        It returns whether the process has ended.
        """
        left, fs = count, self.fs

        def before(_operation: FileOperation) -> None:
            nonlocal left
            left -= 1
            if left > 0:
                return
            fs.on_operation = None
            if end():
                raise KilledError

        fs.on_operation = before

    def stop(self) -> None:
        """Stops the broker in order, while it serves."""
        process = self.running
        if process is None or not process.is_serving or self.is_stopping:
            return
        self.is_stopping = True
        self._cluster.history.note(self.name, Note("stops in order"))
        self._cluster.loop.call_soon(
            lambda: self._cluster.loop.create_task(self._stop(process)),
            context=process.process.context,
        )

    async def _stop(self, process: BrokerProcess) -> None:
        try:
            await process.stop()
        except CordwoodError as error:
            process.failure = process.failure or f"cannot stop: {error}"
            return
        self._cluster.history.note(self.name, Note("has stopped in order"))
        self._cluster.loop.call_soon(self._stopped, process, context=self._cluster.context)

    def _stopped(self, process: BrokerProcess) -> None:
        if self.running is process:
            self._end(self.fs.process_crash(), says_so=True)

    # ---- disk

    def begin_lies(self) -> None:
        """Syncs have no effect from now on, until the power is lost."""
        if self.lie is None:
            self.lie = next(iter(self.fs.crash_images(1, self._cluster.rng)))

    def fill_disk(self) -> None:
        """Nothing more fits the disk."""
        self.fs.capacity_bytes = _PLENTY
        self.fs.capacity_bytes = _PLENTY - self.fs.free_bytes(Path("/"))

    def free_disk(self) -> None:
        """There is space again."""
        if self.fs.capacity_bytes is not None:
            self.full_until_s = self._cluster.loop.time() + _AFTER_FULL_S
        self.fs.capacity_bytes = None


class Cluster:
    """All nodes; `context` is that of the one who breaks and heals them."""

    def __init__(
        self,
        loop: SimulatedLoop,
        network: Network,
        rng: random.Random,
        history: History,
        log_watcher: LogWatcher,
    ) -> None:
        """Formatted disks; nothing runs."""
        self.loop = loop
        self.network = network
        self.rng = rng
        self.history = history
        self.log_watcher = log_watcher
        self.context = copy_context()
        #: Processes that have ended: what is collected would run on.
        self.graveyard: list[object] = []
        self.brokers = {broker_id: BrokerNode(broker_id, self) for broker_id in BROKER_IDS}
        self._clock = SkewedClock(loop, offset_ms=rng.randint(-60_000, 60_000))
        self._seeds = SeededRng(random.Random(rng.getrandbits(64)))  # noqa: S311
        self._controller_fs = SimulatedFileSystem(still_clock())
        format_disk(self._controller_fs, CONTROLLER_ID, self._clock, self._seeds)
        self.controller: ControllerProcess | None = None

    # ---- the controller

    def start_controller(self) -> None:
        """Starts the controller, if it does not run."""
        if self.controller is not None:
            return
        found = self.controller = ControllerProcess(
            self.loop,
            self.network,
            self._controller_fs,
            self._clock,
            self._seeds,
            Decisions(self.history),
        )
        self.history.note(CONTROLLER, Note("starts"))
        self.loop.call_soon(found.start, context=found.process.context)

    def end_controller(self, *, loses_power: bool) -> None:
        """Kills the controller, or takes its machine's power."""
        found, self.controller = self.controller, None
        if found is None:
            return
        fs = self._controller_fs
        if loses_power:
            self._controller_fs = self.rng.choice(list(fs.crash_images(_IMAGES_MAX, self.rng)))
        else:
            self._controller_fs = fs.process_crash()
        found.process.end()
        self.network.process_ended(found.process, says_so=not loses_power)
        self.graveyard.append(found)

    @property
    def image(self) -> MetadataImage:
        """The image of the controller; empty while it does not run."""
        found = None if self.controller is None else self.controller.controller
        return MetadataImage() if found is None else found.image

    # ---- all

    def has_full_disk(self, name: str) -> bool:
        """Whether the disk of a broker is full, or was until just now."""
        return any(
            each.fs.capacity_bytes is not None or self.loop.time() < each.full_until_s
            for each in self.brokers.values()
            if each.name == name
        )

    @property
    def node_names(self) -> list[str]:
        """The names of all nodes."""
        return [CONTROLLER, *(each.name for each in self.brokers.values())]

    def start(self) -> None:
        """Starts what does not run."""
        self.start_controller()
        for each in self.brokers.values():
            each.start()

    def look_after(self) -> None:
        """Ends the processes that cannot serve any more, and starts them again, as owners do."""
        image = self.image
        for each in self.brokers.values():
            if each.is_behind and self._is_in_sync_everywhere(each.broker_id, image):
                each.is_behind = each.is_lossy = False
            process = each.running
            if process is not None and process.failure is not None and not process.process.is_dead:
                self.history.note(each.name, Note(f"gives up: {process.failure}"))
                each.kill()
                self.loop.call_later(_RESTART_S, each.start)
        if self.controller is not None and self.controller.failure is not None:
            self.history.note(
                CONTROLLER, Unacceptable(f"the controller gives up: {self.controller.failure}")
            )

    def may_lose_power(self, broker_id: int) -> bool:
        """Whether all that is committed is on another broker, too; see the module."""
        image = self.image
        is_one_full = any(each.fs.capacity_bytes is not None for each in self.brokers.values())
        is_one_behind = any(
            each.is_behind for each in self.brokers.values() if each.broker_id != broker_id
        )
        if not image.topics or is_one_full or is_one_behind:
            return False
        return all(
            any(other != broker_id and self._has_all(other, image) for other in partition.isr)
            for topic in image.topics.values()
            for partition in topic.partitions.values()
        )

    def may_end(self, broker_id: int) -> bool:
        """Whether a broker may end or be stopped: no other one has lost records and lacks them."""
        return not any(
            each.is_lossy for each in self.brokers.values() if each.broker_id != broker_id
        )

    def _is_in_sync_everywhere(self, broker_id: int, image: MetadataImage) -> bool:
        return self._has_all(broker_id, image) and all(
            broker_id in partition.isr
            for topic in image.topics.values()
            for partition in topic.partitions.values()
        )

    def _has_all(self, broker_id: int, image: MetadataImage) -> bool:
        """Whether a broker runs since it was last registered."""
        node, known = self.brokers[broker_id], image.brokers.get(broker_id)
        return (
            known is not None
            and node.running is not None
            and node.epoch == known.epoch
            and not node.is_stopping
        )
