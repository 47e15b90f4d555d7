"""The form of scenario files: a comment on the goal, then events and their effects.

The form is that of the datadriven tests of etcd-io/raft.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import Final, NamedTuple

SEPARATOR: Final = "----"


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


def rewritten(text: str, run: Callable[[str], Iterable[str]]) -> str:
    """A file with the effects that `run` gives; comments between cases are kept."""
    head, *blocks = re.split(r"\n\n+", text.strip())
    made = [head]
    for block in blocks:
        comments = [line for line in block.splitlines() if line.startswith("#")]
        command = next(line for line in block.splitlines() if not line.startswith("#"))
        made.append("\n".join([*comments, command, SEPARATOR, *run(command)]))
    return "\n\n".join(made) + "\n"
