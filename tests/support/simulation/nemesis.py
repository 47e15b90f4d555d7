"""Breaks what the fault models allow, and repairs it again."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from typing import Final

from support.simulation.cluster import BROKER_IDS, BrokerNode, Cluster
from support.simulation.event_loop import Process
from support.simulation.events import Note
from support.simulation.network import Weather
from support.simulation.settings import CONTROLLER

_OPERATIONS_MAX: Final = 12


class Nemesis:
    """Random failures; `done` counts them by kind."""

    def __init__(self, cluster: Cluster, rng: random.Random) -> None:
        """Does nothing yet."""
        self._cluster = cluster
        self._rng = rng
        self.done: Counter[str] = Counter()
        self._is_over = False
        self._actions: dict[Callable[[], bool], int] = {
            self.kill_broker: 4,
            self.kill_broker_at_work: 4,
            self.take_power: 6,
            self.stop_broker: 2,
            self.suspend_broker: 3,
            self.cut_off_broker: 5,
            self.cut_a_link: 3,
            self.heal_network: 3,
            self.kill_controller: 2,
            self.suspend_controller: 1,
            self.have_disk_lie: 2,
            self.fill_disk: 2,
            self.jump_clock: 2,
            self.change_weather: 3,
        }

    def strike(self) -> None:
        """One failure, if it may be now."""
        action = self._rng.choices(list(self._actions), list(self._actions.values()))[0]
        if action():
            self.done[action.__name__] += 1

    def end(self) -> None:
        """Nothing fails any more, and all is repaired."""
        self._is_over = True
        cluster = self._cluster
        cluster.network.weather = Weather(delay_ms=0.5)
        cluster.network.heal()
        for node in cluster.brokers.values():
            node.fs.on_operation = None
            node.free_disk()
            if node.running is not None:
                cluster.loop.wake(node.running.process)
        if cluster.controller is not None:
            cluster.loop.wake(cluster.controller.process)
        cluster.start()

    # ---- for all

    def _note(self, name: str, text: str) -> bool:
        self._cluster.history.note("nemesis", Note(f"{name} {text}"))
        return True

    def _later(self, least_s: float, most_s: float, run: Callable[[], object]) -> None:
        def due() -> None:
            if not self._is_over:
                run()

        self._cluster.loop.call_later(self._rng.uniform(least_s, most_s), due)

    def _broker(self) -> BrokerNode:
        return self._cluster.brokers[self._rng.choice(BROKER_IDS)]

    # ---- brokers

    def kill_broker(self) -> bool:
        """The process of a broker ends."""
        node = self._broker()
        if node.running is None or not self._cluster.may_end(node.broker_id):
            return False
        node.kill()
        self._later(0.1, 4.0, node.start)
        return self._note(node.name, "is killed")

    def kill_broker_at_work(self) -> bool:
        """A broker ends between two operations on its disk: its process, or its machine."""
        node = self._broker()
        if node.running is None or node.fs.on_operation is not None:
            return False
        loses_power = self._rng.random() < 0.5

        def end() -> bool:
            if self._is_over or not self._cluster.may_end(node.broker_id):
                return False
            if loses_power and self._cluster.may_lose_power(node.broker_id):
                self._note(node.name, "loses power at work")
                node.lose_power()
            else:
                self._note(node.name, "is killed at work")
                node.kill()
            self._later(0.1, 4.0, node.start)
            return True

        node.end_at_operation(self._rng.randint(1, _OPERATIONS_MAX), end)
        return True

    def take_power(self) -> bool:
        """The machine of a broker is off."""
        node = self._broker()
        if not self._cluster.may_lose_power(node.broker_id):
            return False
        self._note(node.name, "loses power" + (", after its disk has lied" if node.lie else ""))
        node.lose_power()
        self._later(0.1, 4.0, node.start)
        return True

    def stop_broker(self) -> bool:
        """A broker is stopped in order."""
        node = self._broker()
        if not self._cluster.may_end(node.broker_id):
            return False
        node.stop()
        self._later(1.0, 5.0, node.start)
        return node.is_stopping

    def suspend_broker(self) -> bool:
        """A broker's process stands still for a while."""
        node = self._broker()
        return node.running is not None and self._suspend(node.name, node.running.process)

    def _suspend(self, name: str, process: Process) -> bool:
        if process.is_suspended:
            return False
        process.is_suspended = True
        self._later(0.2, 4.0, lambda: self._cluster.loop.wake(process))
        return self._note(name, "is suspended")

    # ---- disks and clocks

    def have_disk_lie(self) -> bool:
        """Syncs of one broker's disk have no effect from now on."""
        node = self._broker()
        if node.running is None or not node.running.is_serving or node.is_stopping:
            return False
        if any(each.lie is not None for each in self._cluster.brokers.values()):
            return False
        node.begin_lies()
        return self._note(node.name, "has a disk that lies")

    def fill_disk(self) -> bool:
        """A broker's disk is full for a while."""
        node = self._broker()
        if any(each.is_lossy for each in self._cluster.brokers.values()):
            return False  # a broker whose disk is full may end
        node.fill_disk()
        self._later(0.3, 4.0, node.free_disk)
        return self._note(node.name, "has a full disk")

    def jump_clock(self) -> bool:
        """A wall clock is set."""
        node = self._broker()
        node.clock.offset_ms += self._rng.randint(-30_000, 30_000)
        return self._note(node.name, "has its clock set")

    # ---- the controller

    def kill_controller(self) -> bool:
        """The controller's process ends, or its machine."""
        if self._cluster.controller is None:
            return False
        loses_power = self._rng.random() < 0.5
        self._cluster.end_controller(loses_power=loses_power)
        self._later(0.1, 3.0, self._cluster.start_controller)
        return self._note(CONTROLLER, "loses power" if loses_power else "is killed")

    def suspend_controller(self) -> bool:
        """The controller's process stands still for a while."""
        found = self._cluster.controller
        return found is not None and self._suspend(CONTROLLER, found.process)

    # ---- the network

    def cut_off_broker(self) -> bool:
        """A broker reaches nobody, or nobody reaches it, or both."""
        node = self._broker()
        others = [each for each in self._cluster.node_names if each != node.name]
        spared = self._rng.sample(others, self._rng.randint(0, 1))
        way = self._rng.choice(("out", "in", "both"))
        for other in others:
            if other in spared:
                continue
            if way != "in":
                self._cluster.network.cut(node.name, other)
            if way != "out":
                self._cluster.network.cut(other, node.name)
        self._later(0.5, 4.0, self._cluster.network.heal)
        return self._note(node.name, f"is cut off ({way}), but for {spared}")

    def cut_a_link(self) -> bool:
        """One direction of one link is cut."""
        source, target = self._rng.sample(list(self._cluster.node_names), 2)
        self._cluster.network.cut(source, target)
        self._later(0.5, 4.0, self._cluster.network.heal)
        return self._note(source, f"does not reach {target}")

    def heal_network(self) -> bool:
        """All links are whole."""
        self._cluster.network.heal()
        return self._note("the network", "is whole")

    def change_weather(self) -> bool:
        """Delays and resets become more, or fewer."""
        rng = self._rng
        self._cluster.network.weather = Weather(
            delay_ms=rng.choice((0.2, 1.0, 5.0, 20.0)),
            spike_chance=rng.choice((0.0, 0.005, 0.03)),
            spike_ms=rng.choice((100.0, 1000.0, 3000.0)),
            reset_chance=rng.choice((0.0, 0.0, 0.005, 0.02)),
        )
        return self._note("the network", f"has {self._cluster.network.weather}")
