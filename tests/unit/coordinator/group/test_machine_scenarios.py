"""Scenarios of groups in text files: each event, and the effects that it must have.

`support.group_scenarios` says what the files contain. `python
tests/unit/coordinator/group/test_machine_scenarios.py FILE...` writes the effects of today into
files, to be reviewed line by line.
"""

from __future__ import annotations

import re
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cordwood.coordinator.group.classic.group import GroupState
from cordwood.coordinator.timeline import Timeline
from support.group_scenarios.requests import GROUP, NamedReply
from support.group_scenarios.run import Run
from support.scenario_files import parse, rewritten

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
