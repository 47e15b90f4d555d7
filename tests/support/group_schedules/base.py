"""The common part of random schedules of a group: clients, topics, time, failures, loads."""

from __future__ import annotations

import itertools
import random
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Final, Generic, NamedTuple, TypeVar
from uuid import UUID

from cordwood.coordinator.group.group import Group
from cordwood.model.kafka_errors import KafkaError, NotLeaderOrFollowerError
from support.group_schedules.classic_client import ClassicClient
from support.group_schedules.client import Client, Life, Partitions
from support.groups_under_test import GroupBroker, GroupRun

G = TypeVar("G", bound=Group)
C = TypeVar("C", bound=Client | ClassicClient)

GROUP: Final = "g"
_CLIENTS_MAX: Final = 5
_TOPIC_DELETED, _SOMEONE_COMES = 0.3, 0.7


class Mismatch(AssertionError):
    """Failure of a schedule, and the schedule so far."""


class ScheduleParameters(NamedTuple):
    """The parameters of random schedules; `fails` and `is_static` are probabilities."""

    events: int
    topics: Sequence[str]
    partitions_max: int
    partitions_more: int
    instances: Sequence[str]
    steps_ms: Sequence[int]
    fails: float
    is_static: float


class GroupSchedule(ABC, Generic[C]):
    """A coordinator and the clients of one group; the same seed makes the same schedule.

    A subclass makes `run`, checks the group after each event, and sends the clients' requests.
    """

    run: GroupRun

    def __init__(self, root: Path, seed: int, parameters: ScheduleParameters) -> None:
        """`root` is for the log."""
        self.seed = seed
        self.trace: list[str] = []
        self.clients: list[C] = []
        self._parameters = parameters
        self._random = random.Random(seed)  # noqa: S311  # to be repeated
        self._numbers = itertools.count(1)
        self.broker = GroupBroker(root, new_id=lambda: UUID(int=self._random.getrandbits(128)))

    # ---- the whole

    def play(self) -> None:
        """All events, and then a time without failures, after which the group must be at rest.

        Raises:
            Mismatch: the group is not as its model says.
        """
        try:
            for _ in range(self._parameters.events):
                self._step()
                self.check()
            self._settle()
        except Exception as error:
            trace = "\n".join(self.trace)
            raise Mismatch(f"seed {self.seed}\n{trace}\n{type(error).__name__}: {error}") from error

    def _step(self) -> None:
        events = self._events()
        ((_, event),) = self._random.choices(events, [weight for weight, _ in events])
        if not self._active() and self._is(_SOMEONE_COMES):
            event = self._come
        event()

    @abstractmethod
    def _events(self) -> Sequence[tuple[int, Callable[[], None]]]:
        """The events, and how often each happens relative to the others."""

    @abstractmethod
    def check(self) -> None:
        """Checks what holds after every event."""

    @abstractmethod
    def _settle(self) -> None:
        """Lets time pass without failures, and checks that the group comes to rest."""

    def _is(self, probability: float) -> bool:
        return self._random.random() < probability

    # ---- clients

    def _active(self) -> list[C]:
        return [each for each in self.clients if each.life is Life.ACTIVE]

    def _chosen(self, life: Life = Life.ACTIVE) -> C | None:
        found = [each for each in self.clients if each.life is life]
        return self._random.choice(found) if found else None

    @abstractmethod
    def _enter(self, instance_id: str | None) -> None:
        """Adds a client, which sends its first request."""

    @abstractmethod
    def _act(self, client: C) -> None:
        """Sends the next request of a client."""

    def _come(self) -> None:
        if len(self._active()) >= _CLIENTS_MAX:
            return
        used = {each.instance_id for each in self.clients}
        free = [each for each in self._parameters.instances if each not in used]
        self._enter(free[0] if free and self._is(self._parameters.is_static) else None)

    def _act_all(self) -> None:
        for client in self._active():
            self._act(client)

    def _crash(self) -> None:
        client = self._chosen()
        if client is not None:
            client.life = Life.CRASHED
            self.trace.append(f"{client.name} crashes")

    def _wake(self) -> None:
        """A client that could not send for a time continues with what it has."""
        client = self._chosen(Life.CRASHED)
        if client is not None:
            client.life = Life.ACTIVE
            self._act(client)

    # ---- topics

    def _change_topics(self) -> None:
        name = self._random.choice(self._parameters.topics)
        is_there = name in self.broker.image.topics
        if is_there and name != self._parameters.topics[0] and self._is(_TOPIC_DELETED):
            self.broker.delete(name)
            self.trace.append(f"topic {name} is deleted")
            self._notify(name)
        else:
            self._put_topic(name)

    def _put_topic(self, name: str) -> None:
        """A topic is created, or gets more partitions."""
        known = self.broker.image.topics.get(name)
        before = self._partitions_before(name)
        more = self._random.randint(1, self._parameters.partitions_more)
        count = min(self._parameters.partitions_max, before + more)
        (self.broker.create if known is None else self.broker.grow)(name, count)
        self.trace.append(f"topic {name} has {count} partitions")
        self._notify(name)

    def _partitions_before(self, name: str) -> int:
        known = self.broker.image.topics.get(name)
        return 0 if known is None else len(known.partitions)

    def _notify(self, name: str) -> None:
        self.run.groups.maintenance.on_topics_changed([name])

    def _partitions_of(self, names: Iterable[str]) -> Partitions:
        """All partitions of those topics that exist."""
        wanted = set(names)
        topics = [topic for name, topic in self.broker.image.topics.items() if name in wanted]
        return frozenset(
            (topic.topic_id, number) for topic in topics for number in topic.partitions
        )

    # ---- time, and the coordinator

    def _fail(self, *, fails: bool) -> None:
        self.broker.fails_with = NotLeaderOrFollowerError("the log fails") if fails else None

    def _pass_time(self) -> None:
        self._advance(
            self._random.choice(self._parameters.steps_ms), fails=self._is(self._parameters.fails)
        )

    @abstractmethod
    def _advance(self, ms: int, *, fails: bool = False) -> None:
        """Lets time pass, in which records may not be written."""

    def _pass(self, ms: int, *, fails: bool) -> None:
        self._fail(fails=fails)
        self.run.timers.advance(ms)
        self._fail(fails=False)

    def _reload(self) -> None:
        """The coordinator forgets the group, and loads what was written of it last."""
        self.trace.append("reload")
        self.run.groups.close()
        loaded: list[bool] = []
        self.run.groups.runtime.partitions.load_all(lambda: loaded.append(True))
        while not loaded:
            assert self.broker.run_soon(), "the group is not loaded"

    def _described(self, kind: type[G]) -> G | None:
        """The group as the coordinator has it; None if there is none of that kind."""
        try:
            return self.run.groups.describe(GROUP, kind)
        except KafkaError:
            return None
