"""First screen: the commands of `cordwood` by purpose, in 80 columns."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Final

_WIDTH: Final = 80


class Group(StrEnum):
    """Purpose of a command; the groups are in the order in which they are listed."""

    LOOK = "Look"
    CLEAN = "Clean"
    ARCHIVE = "Archive"
    RUN = "Run"
    TEST = "Test"
    TOOLS = "Kafka's tools"


def first_screen(commands: Mapping[Group, Sequence[tuple[str, str]]]) -> str:
    """The text of the screen; Kafka's tools have one line together, which may be wrapped.

    Args:
        commands: name and summary of each command by group, in order.
    """
    listed = {group: rows for group, rows in commands.items() if group is not Group.TOOLS}
    title_cells = max(map(len, listed)) + 2
    name_cells = max(len(name) for rows in listed.values() for name, _ in rows) + 2
    lines = ["Kafka's partition log and its cleanup: a cleaner, a broker, and Kafka's tools."]
    for group, rows in listed.items():
        for number, (name, summary) in enumerate(rows):
            title = "" if number else group
            lines.append(f"{title:{title_cells}}{name:{name_cells}}{summary}")
    names = ", ".join(name for name, _ in commands[Group.TOOLS])
    lines += [
        *textwrap.wrap(
            f"{Group.TOOLS}: {names}",
            _WIDTH,
            subsequent_indent="  ",
            break_on_hyphens=False,
        ),
        "cordwood COMMAND --help has the options and examples; cordwood --help lists all.",
    ]
    return "\n".join(lines)
