"""Scenarios of groups in text files: each event, and the effects that it must have.

A file starts with a comment on what it shows. Then come cases: an event, `----`, and the effects in
the order in which the state machine returns them. `python tests/unit/coordinator/test_scenarios.py`
writes the effects of today into the files, to be reviewed line by line.

Commands (fields are `name=value`):

    join NAME, sync NAME, heartbeat NAME, leave NAME, commit NAME, delete-group NAME
        a request; NAME stands for it in the answers. `append=fails`: its records are not written
    advance MS    time passes; timers that are due then happen in their order
    group         prints the group
    reload        prints the group as a load of the records finds it

The form is that of the datadriven tests of etcd-io/raft.
"""

from __future__ import annotations

import itertools
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cordwood.broker.group_cluster import GroupCluster
from cordwood.coordinator.effects import Answer, Effects, ReplyTo, SetTimer
from cordwood.coordinator.group import events, records
from cordwood.coordinator.group.group import ClassicGroup, GroupState
from cordwood.coordinator.group.machine import GroupStateMachine
from cordwood.coordinator.group.member import (
    Client,
    JoinAnswer,
    JoinRequest,
    LeaveReply,
    LeavingMember,
    Protocol,
    SyncAnswer,
    SyncRequest,
)
from cordwood.coordinator.group.offset_requests import (
    CommitPartition,
    CommitRequest,
    CommitTopic,
    offsets_to_commit,
)
from cordwood.coordinator.group.records import CoordinatorRecord, GroupRecord, OffsetRecord
from cordwood.coordinator.group.settings import GroupSettings
from cordwood.coordinator.timeline import Timeline
from cordwood.metadata.image import MetadataImage
from cordwood.model.error_codes import ErrorCode
from cordwood.model.kafka_errors import NotCoordinatorError

SCENARIOS = Path(__file__).with_name("scenarios")
SEPARATOR = "----"
GROUP = "g"
BEGUN_MS = 1_000_000


class Case(NamedTuple):
    """An event and the effects that the file says it has."""

    command: str
    expected: list[str]


def parse(text: str) -> tuple[list[str], list[Case]]:
    """The comment at the head of a file, and its cases."""
    blocks = [block.splitlines() for block in re.split(r"\n\n+", text.strip())]
    assert all(line.startswith("#") for line in blocks[0]), "begin with a comment on the goal"
    cases = []
    for lines in blocks[1:]:
        command, separator, *expected = [line for line in lines if not line.startswith("#")]
        assert separator == SEPARATOR, f"{command}: no {SEPARATOR}"
        cases.append(Case(command, expected))
    return blocks[0], cases


class NoMetadata:
    """The metadata of a cluster without topics."""

    image = MetadataImage()


class Run:
    """A state machine, the timers it has set, and the records it has written."""

    def __init__(self) -> None:
        numbers = itertools.count(1)
        cluster = GroupCluster(NoMetadata(), lambda _group, _name: None)
        self.machine = GroupStateMachine(GroupSettings(), cluster, lambda: str(next(numbers)))
        self.timeline = Timeline()
        self.state = self.machine.new_state(0, self.timeline)
        self.written: list[CoordinatorRecord] = []
        self.now_ms = BEGUN_MS
        self.timers: dict[Any, tuple[int, int, Any]] = {}
        self.numbers = itertools.count()

    def run(self, command: str) -> Iterator[str]:
        """The effects of a command, as text."""
        name, *words = command.split()
        fields = dict(word.split("=", 1) for word in words if "=" in word)
        operands = [word for word in words if "=" not in word]
        if name == "advance":
            yield from self.advance(int(operands[0]))
        elif name == "group":
            yield from described(self.state.classic_group(GROUP))
        elif name == "reload":
            yield from self.reloaded()
        else:
            fails = fields.pop("append", "") == "fails"
            yield from self.handle(REQUESTS[name](operands[0], fields, self.now_ms), fails=fails)

    def handle(self, event: Any, *, fails: bool = False) -> Iterator[str]:
        """What the runtime does, with a log that always or never takes the records."""
        self.timeline.begin()
        effects = self.machine.handle(self.state, event, self.now_ms)
        if fails and effects.records and not effects.keeps_state:
            self.timeline.revert()
            yield "not written: " + " ".join(described_records(effects))
            error = NotCoordinatorError("the log has failed")
            if effects.on_failure is not None:
                yield from self.handle(effects.on_failure(error))
            else:
                yield f"refuse {event.reply_to.name}"
            return
        if not fails:
            for number, record in enumerate(effects.records, start=len(self.written)):
                self.machine.replay(self.state, record, number)
            self.written += effects.records
        self.timeline.end(len(self.written))
        self.timeline.commit(len(self.written))
        for group in self.state.groups.values():
            assert isinstance(group, ClassicGroup), group.group_id
            group.check_invariants()
        yield from described_records(effects)
        yield from self.timed(effects)
        yield from (described_answer(answer) for answer in effects.answers)

    def timed(self, effects: Effects[CoordinatorRecord]) -> Iterator[str]:
        """Sets and cancels timers; cancelling one that is not set is no effect."""
        for timer in effects.timers:
            key = "/".join(timer.key)  # type: ignore[arg-type]  # keys of groups are words
            if isinstance(timer, SetTimer):
                self.timers[key] = self.now_ms + timer.delay_ms, next(self.numbers), timer.event
                yield f"timer {key} in {timer.delay_ms}"
            elif self.timers.pop(key, None) is not None:
                yield f"no timer {key}"

    def advance(self, ms: int) -> Iterator[str]:
        """Lets time pass."""
        end_ms = self.now_ms + ms
        while self.timers:
            key = min(self.timers, key=lambda each: self.timers[each][:2])
            due_ms, _, event = self.timers[key]
            if due_ms > end_ms:
                break
            del self.timers[key]
            self.now_ms = due_ms
            yield f"at {due_ms - BEGUN_MS}: {key}"
            yield from self.handle(event)
        self.now_ms = end_ms

    def reloaded(self) -> Iterator[str]:
        """The group as its records say, encoded and decoded."""
        state = self.machine.new_state(0, Timeline())
        for number, record in enumerate(self.written):
            found = records.decode(*records.encode(record))
            assert found is not None
            self.machine.replay(state, found, number)
        yield from described(state.classic_group(GROUP))


class NamedReply(ReplyTo[Any]):
    """Where the answer to a request of a scenario goes."""

    def __init__(self, name: str) -> None:
        super().__init__(lambda _: None)
        self.name = name


# ---- requests

Fields = Mapping[str, str]


def protocols_of(fields: Fields) -> tuple[Protocol, ...]:
    """`protocols=range:metadata,sticky`."""
    named = (word.partition(":") for word in fields.get("protocols", "range").split(","))
    return tuple(Protocol(name, metadata.encode()) for name, _, metadata in named)


def join(name: str, fields: Fields, _now_ms: int) -> events.Join:
    request = JoinRequest(
        group_id=GROUP,
        member_id=fields.get("member", ""),
        group_instance_id=fields.get("instance"),
        client=Client("c", "/h"),
        session_timeout_ms=10_000,
        rebalance_timeout_ms=int(fields.get("rebalance", "60000")),
        protocol_type="consumer",
        protocols=protocols_of(fields),
        needs_member_id=fields.get("old-client") != "yes",
    )
    return events.Join(request=request, reply_to=NamedReply(name))


def sync(name: str, fields: Fields, _now_ms: int) -> events.Sync:
    assigned = (word.split(":") for word in fields.get("assign", "").split(",") if word)
    request = SyncRequest(
        group_id=GROUP,
        member_id=fields["member"],
        group_instance_id=fields.get("instance"),
        generation_id=int(fields["generation"]),
        assignments=tuple((member, data.encode()) for member, data in assigned),
    )
    return events.Sync(request=request, reply_to=NamedReply(name))


def heartbeat(name: str, fields: Fields, _now_ms: int) -> events.Heartbeat:
    return events.Heartbeat(
        group_id=GROUP,
        member_id=fields["member"],
        group_instance_id=fields.get("instance"),
        generation_id=int(fields["generation"]),
        reply_to=NamedReply(name),
    )


def leave(name: str, fields: Fields, _now_ms: int) -> events.Leave:
    leaving = LeavingMember(fields.get("member", ""), fields.get("instance"))
    return events.Leave(group_id=GROUP, members=(leaving,), reply_to=NamedReply(name))


def commit(name: str, fields: Fields, now_ms: int) -> events.Commit:
    topic = CommitTopic("t", (CommitPartition(0, int(fields["offset"])),))
    request = CommitRequest(
        group_id=GROUP,
        topics=(topic,),
        member_id=fields.get("member", ""),
        generation_id=int(fields.get("generation", "-1")),
    )
    offsets = offsets_to_commit(request, now_ms=now_ms, metadata_bytes_max=4_096)
    return events.Commit(request=request, offsets=tuple(offsets), reply_to=NamedReply(name))


def delete_group(name: str, _fields: Fields, _now_ms: int) -> events.DeleteGroup:
    return events.DeleteGroup(group_id=GROUP, reply_to=NamedReply(name))


REQUESTS: Mapping[str, Callable[[str, Fields, int], events.GroupEvent]] = {
    "join": join,
    "sync": sync,
    "heartbeat": heartbeat,
    "leave": leave,
    "commit": commit,
    "delete-group": delete_group,
}


# ---- effects as text


def described(group: ClassicGroup | None) -> Iterator[str]:
    """A group and its members."""
    if group is None:
        yield "no group"
        return
    yield (
        f"{group.state.value} generation={group.generation_id} "
        f"protocol={group.protocol_name} leader={group.leader_id}"
    )
    for member in group.members():
        waits = [kind for kind in ("join", "sync") if getattr(member, f"{kind}_reply") is not None]
        yield (
            f"  {member.member_id} assigned={member.assignment.decode()!r}"
            + (f" instance={member.group_instance_id}" if member.is_static else "")
            + (f" waits={waits[0]}" if waits else "")
        )
    if group.pending_joins:
        yield f"  expected: {' '.join(sorted(group.pending_joins))}"


def described_records(effects: Effects[CoordinatorRecord]) -> Iterator[str]:
    """Records, each by what it says."""
    for record in effects.records:
        if isinstance(record, OffsetRecord):
            offset = "none" if record.offset is None else record.offset.offset
            yield f"record offset {record.key.topic}-{record.key.partition}={offset}"
        elif isinstance(record, GroupRecord) and record.group is not None:
            members: Any = record.fields["members"]
            assigned = [f"{each['memberId']}:{each['assignment'].decode()}" for each in members]
            generation = record.fields["generation"]
            yield f"record group generation={generation} members={','.join(assigned)}"
        else:
            yield "record group none"


def described_answer(answer: Answer) -> str:
    """An answer to a request, by its name."""
    value = answer.value
    assert isinstance(answer.reply_to, NamedReply)
    words = [f"answer {answer.reply_to.name}"]
    if isinstance(value, LeaveReply):
        words += [ErrorCode(each.error_code).name for each in value.members]
    elif isinstance(value, int):
        words.append(ErrorCode(value).name)
    elif isinstance(value, JoinAnswer):
        words += [ErrorCode(value.error_code).name, f"member={value.member_id}"]
        if value.generation_id != -1:
            words += [f"generation={value.generation_id}", f"leader={value.leader}"]
        if value.members:
            words.append(f"members={','.join(each.member_id for each in value.members)}")
    else:
        assert isinstance(value, SyncAnswer)
        words += [ErrorCode(value.error_code).name, f"assigned={value.assignment.decode()!r}"]
    return " ".join(words)


# ---- tests


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
        """What holds after every event."""
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
        loaded = self.run.machine.new_state(0, Timeline())
        for number, record in enumerate(self.run.written):
            found = records.decode(*records.encode(record))
            assert found is not None
            self.run.machine.replay(loaded, found, number)
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


def rewritten(text: str) -> str:
    """A file with the effects of today; comments between cases are kept."""
    run = Run()
    head, *blocks = re.split(r"\n\n+", text.strip())
    made = [head]
    for block in blocks:
        comments = [line for line in block.splitlines() if line.startswith("#")]
        command = next(line for line in block.splitlines() if not line.startswith("#"))
        made.append("\n".join([*comments, command, SEPARATOR, *run.run(command)]))
    return "\n\n".join(made) + "\n"


if __name__ == "__main__":
    for scenario in sys.argv[1:]:
        Path(scenario).write_text(rewritten(Path(scenario).read_text(encoding="utf-8")))
