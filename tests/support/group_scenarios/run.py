"""Runs the events of a scenario, and gives their effects as text."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any, Final, NamedTuple
from uuid import UUID

from cordwood.broker.coordinators.coordinator_metadata import CoordinatorMetadataImage
from cordwood.coordinator.effects import Effects, SetTimer, StartTask
from cordwood.coordinator.group import records
from cordwood.coordinator.group.classic.member import MemberIds
from cordwood.coordinator.group.machine import GroupStateMachine
from cordwood.coordinator.group.settings import GroupSettings
from cordwood.coordinator.group.shard import CoordinatorRecord, GroupShard
from cordwood.coordinator.timeline import Timeline
from cordwood.model.kafka_errors import NotCoordinatorError
from support.group_scenarios.requests import GROUP, REQUESTS, Now
from support.group_scenarios.text import Text
from support.groups_under_test import TopicsUnderTest

BEGUN_MS: Final = 1_000_000


class _Timer(NamedTuple):
    """A timer that is set; `number` orders those that are due at the same time."""

    due_ms: int
    number: int
    what: SetTimer


class Run:
    """A state machine, its timers and tasks, and the records it has written."""

    def __init__(self) -> None:
        ids, topic_ids = itertools.count(1), itertools.count(1)
        self.topics = TopicsUnderTest(lambda: UUID(int=next(topic_ids)))
        cluster = CoordinatorMetadataImage(self.topics, lambda _group, _name: None)
        member_ids = MemberIds(lambda: str(next(ids)), lambda: str(next(ids)))
        self.machine = GroupStateMachine(GroupSettings(), cluster, member_ids)
        self.timeline = Timeline()
        self.state = self.machine.new_state(0, self.timeline)
        self.written: list[CoordinatorRecord] = []
        self.now_ms = BEGUN_MS
        self._text = Text(lambda: self.topics.image)
        self._timers: dict[str, _Timer] = {}
        self._tasks: dict[str, StartTask] = {}
        self._numbers = itertools.count()
        self._commands: Mapping[str, Callable[..., Iterator[str]]] = {
            "advance": self._advance,
            "group": lambda: self._text.group(self.state.groups.get(GROUP)),
            "reload": lambda: self._text.group(self.loaded(Timeline()).groups.get(GROUP)),
            "restart": self._restart,
            "topic": self._put_topic,
            "no-topic": self._delete_topic,
            "set": self._set,
        }

    def run(self, command: str) -> Iterator[str]:
        """The effects of a command, as text."""
        name, *words = command.split()
        fields = dict(word.split("=", 1) for word in words if "=" in word)
        operands = [word for word in words if "=" not in word]
        if name in REQUESTS:
            fails = fields.pop("append", "") == "fails"
            now = Now(self.now_ms, self.topics.image)
            yield from self._handle(REQUESTS[name](operands[0], fields, now), fails=fails)
        else:
            yield from self._commands[name](*operands, **fields)

    # ---- what the runtime does

    def _handle(
        self, event: Any, *, fails: bool = False, timer: SetTimer | None = None
    ) -> Iterator[str]:
        """Handles an event with a log that always or never takes the records."""
        self.timeline.begin()
        effects = self.machine.handle(self.state, event, self.now_ms)
        if fails and effects.records and not effects.keeps_state:
            self.timeline.revert()
            yield "not written: " + " ".join(self._text.records(effects.records))
            yield from self._refused(event, effects, timer)
            return
        if not fails:
            self.machine.replay(self.state, effects.records, len(self.written), -1)
            self.written += effects.records
        self.timeline.end(len(self.written))
        self.timeline.commit(len(self.written))
        self.state.check_invariants()
        yield from self._text.records(effects.records)
        yield from self._timed(effects)
        yield from map(self._text.answer, effects.answers)

    def _refused(
        self, event: Any, effects: Effects[CoordinatorRecord], timer: SetTimer | None
    ) -> Iterator[str]:
        if effects.on_failure is not None:
            yield from self._handle(effects.on_failure(NotCoordinatorError("the log has failed")))
        elif event.reply_to is not None:
            yield f"refuse {event.reply_to.name}"
        elif timer is not None and timer.retry_ms is not None:
            yield self._set_timer(timer, timer.retry_ms)

    def _timed(self, effects: Effects[CoordinatorRecord]) -> Iterator[str]:
        """Sets and cancels timers, starts tasks; cancelling what is not set is no effect."""
        for timer in effects.timers:
            if isinstance(timer, SetTimer):
                if not timer.if_absent or _key(timer) not in self._timers:
                    yield self._set_timer(timer, timer.delay_ms)
            elif self._timers.pop(_key(timer), None) is not None:
                yield f"no timer {_key(timer)}"
        for task in effects.tasks:
            if _key(task) not in self._tasks:
                self._tasks[_key(task)] = task
                yield f"task {_key(task)}"

    def _set_timer(self, timer: SetTimer, delay_ms: int) -> str:
        due = _Timer(self.now_ms + delay_ms, next(self._numbers), timer)
        self._timers[_key(timer)] = due
        return f"timer {_key(timer)} in {delay_ms}"

    def loaded(self, timeline: Timeline) -> GroupShard:
        """The state that the records give, encoded and decoded."""
        state = self.machine.new_state(0, timeline)
        found = [records.decode(key, value) for key, value in records.encode(self.written)]
        self.machine.replay(state, [each for each in found if each is not None], 0, -1)
        assert None not in found
        return state

    # ---- commands

    def _advance(self, ms: str, append: str = "") -> Iterator[str]:
        """Lets time pass, in which the tasks end first."""
        end_ms = self.now_ms + int(ms)
        for key in list(self._tasks):
            yield f"at {self.now_ms - BEGUN_MS}: {key}"
            event = self._tasks.pop(key).run(self.now_ms)
            yield from self._handle(event, fails=append == "fails")
        while self._timers:
            key, timer = min(self._timers.items(), key=lambda each: each[1])
            if timer.due_ms > end_ms:
                break
            del self._timers[key]
            self.now_ms = timer.due_ms
            yield f"at {timer.due_ms - BEGUN_MS}: {key}"
            yield from self._handle(timer.what.event, fails=append == "fails", timer=timer.what)
        self.now_ms = end_ms

    def _restart(self) -> Iterator[str]:
        yield from map(self._text.answer, self.machine.on_unloaded(self.state))
        self.timeline = Timeline()
        self.state = self.loaded(self.timeline)
        self._timers.clear()
        self._tasks.clear()
        for event in self.machine.on_loaded(self.state, self.now_ms):
            yield from self._handle(event)

    def _put_topic(self, name: str, partitions: str) -> Iterator[str]:
        is_known = name in self.topics.image.topics
        change = self.topics.grow if is_known else self.topics.create
        change(name, int(partitions))
        return self._notified(name)

    def _delete_topic(self, name: str) -> Iterator[str]:
        self.topics.delete(name)
        return self._notified(name)

    def _notified(self, topic: str) -> Iterator[str]:
        """Groups look at a topic again that has changed."""
        for group in self.state.groups.values():
            group.on_topics_changed([topic])
        return iter(())

    def _set(self, **settings: str) -> Iterator[str]:
        changed = {name: int(value) for name, value in settings.items()}
        before = self.machine.settings
        consumer = replace(before.consumer, **changed)  # type: ignore[arg-type]  # whole numbers
        self.machine.settings = replace(before, consumer=consumer)
        return iter(())


def _key(timer: Any) -> str:
    return "/".join(timer.key)
