"""Scenarios of groups in text files: each event, and the effects that it must have.

`support.group_scenarios` says what the files contain. `python
tests/unit/coordinator/group/test_machine_scenarios.py FILE...` writes the effects of today into
files, to be reviewed line by line.
"""

from __future__ import annotations

import itertools
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Final, NamedTuple
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cordwood.broker.coordinators.coordinator_metadata import CoordinatorMetadataImage
from cordwood.coordinator.effects import Effects, SetTimer, StartTask
from cordwood.coordinator.group import records
from cordwood.coordinator.group.classic.group import GroupState
from cordwood.coordinator.group.classic.member import MemberIds
from cordwood.coordinator.group.machine import GroupStateMachine
from cordwood.coordinator.group.settings import GroupSettings
from cordwood.coordinator.group.shard import CoordinatorRecord, GroupShard
from cordwood.coordinator.timeline import Timeline
from cordwood.model.kafka_errors import NotCoordinatorError
from support.group_scenarios.requests import GROUP, REQUESTS, NamedReply, Now
from support.group_scenarios.text import Text
from support.groups_under_test import TopicsUnderTest
from support.scenario_files import parse, rewritten

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


SCENARIOS = Path(__file__).with_name("scenarios")


@pytest.mark.parametrize("path", sorted(SCENARIOS.glob("*.txt")), ids=lambda path: path.stem)
def test_events_of_a_scenario_have_the_effects_that_it_names(path: Path) -> None:
    _, cases = parse(path.read_text(encoding="utf-8"))
    run = Run()
    for case in cases:
        assert list(run.run(case.command)) == case.expected, case.command


OPERATIONS = (
    *("join", "rejoin", "rejoin", "static", "sync", "sync", "sync", "heartbeat", "leave"),
    *("commit", "advance", "advance"),
)
STEPS = st.lists(
    st.tuples(st.sampled_from(OPERATIONS), st.integers(0, 5), st.integers(0, 4)), max_size=60
)


class Schedule:
    """Random events of one group, as its members may cause them; some appends fail."""

    def __init__(self) -> None:
        self.run = Run()
        self.members: list[str] = []
        self.asked: list[str] = []
        self.answered: list[str] = []

    def step(self, operation: str, number: int, luck: int) -> None:
        """One event; `number` chooses a member, and the append fails if `luck` is 0."""
        name = f"r{len(self.asked)}"
        member = self.members[number % len(self.members)] if self.members else "nobody"
        group = self.run.state.classic_group(GROUP)
        generation = 0 if group is None else group.generation_id
        assigned = (
            "" if group is None else ",".join(f"{m.member_id}:{name}" for m in group.members())
        )
        command = {
            "join": f"join {name}",
            "rejoin": f"join {name} member={member} protocols=range:{luck}",
            "static": f"join {name} instance=i{number % 2} protocols=range:{luck}",
            "sync": f"sync {name} member={member} generation={generation} assign={assigned}",
            "heartbeat": f"heartbeat {name} member={member} generation={generation}",
            "leave": f"leave {name} member={member}",
            "commit": f"commit {name} member={member} generation={generation} offset={number}",
            "advance": f"advance {number * 2_500}",
        }[operation]
        if operation != "advance":
            self.asked.append(name)
            # A group that becomes empty stays so, written or not.
            if luck == 0 and operation != "leave":
                command += " append=fails"
        for line in self.run.run(command):
            self.note(line)

    def note(self, line: str) -> None:
        """Takes over whom an answer is for, and the ids it gives."""
        word, _, rest = line.partition(" ")
        if word in {"answer", "refuse"}:
            self.answered.append(rest.split()[0])
        found = re.search(r"member=(\S+)", line)
        if found is not None and found[1] not in self.members:
            self.members.append(found[1])

    def check(self) -> None:
        """Checks what holds after every event."""
        waiting = [answer.reply_to for answer in self.run.machine.on_unloaded(self.run.state)]
        names = [reply_to.name for reply_to in waiting if isinstance(reply_to, NamedReply)]
        assert len(set(self.answered)) == len(self.answered), "answered twice"
        assert not set(names) & set(self.answered), "answered, and still waits"
        # A client that asks again while its request waits has given up the first one.
        assert set(names) | set(self.answered) <= set(self.asked)
        assert self.run.timeline.uncommitted_count == 0
        self.check_records()

    def check_records(self) -> None:
        """A load of the records finds what is stable, and every offset."""
        loaded = self.run.loaded(Timeline())
        live = self.run.state
        assert loaded.offsets.of_group(GROUP) == live.offsets.of_group(GROUP)
        group, stored = live.classic_group(GROUP), loaded.classic_group(GROUP)
        if group is None or group.state is not GroupState.STABLE:
            return
        assert stored is not None
        assert (stored.generation_id, stored.leader_id) == (group.generation_id, group.leader_id)
        assert list(stored.members()) == [
            replace(each, protocols=stored.member(each.member_id).protocols)
            for each in group.members()
        ]


@given(STEPS)
def test_random_schedule_answers_each_request_once_and_its_records_are_its_state(
    steps: list[tuple[str, int, int]],
) -> None:
    schedule = Schedule()
    for step in steps:
        schedule.step(*step)
        schedule.check()


if __name__ == "__main__":
    for scenario in sys.argv[1:]:
        Path(scenario).write_text(rewritten(Path(scenario).read_text(encoding="utf-8"), Run().run))
