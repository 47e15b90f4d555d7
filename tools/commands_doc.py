"""Writes the tables of options in docs/commands from the code, between their markers.

A page without markers has a table of its own, by hand, which says more than `--help`:
`tests/tidy/test_commands_doc.py` checks that it lacks no option.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

from command_reference import CommandFacts, commands

PAGES = Path(__file__).resolve().parent.parent / "docs" / "commands"
BEGIN = "<!-- options: written by tools/commands_doc.py from the code -->\n"
END = "<!-- end of options -->\n"
_BETWEEN = re.compile(re.escape(BEGIN) + ".*?" + re.escape(END), re.DOTALL)


def by_page() -> dict[str, list[CommandFacts]]:
    """The commands of each page, by its name: `hold` has `hold add` and the others, too."""
    found: dict[str, list[CommandFacts]] = {}
    for command in commands():
        first, _, second = command.name.partition(" ")
        page = "cluster-up" if command.name == "cluster up" else first
        if not second or page == "cluster-up" or command.options:
            found.setdefault(page, []).append(command)
    return found


def _table(command: CommandFacts) -> str:
    if not command.options:
        return ""
    lines = [f"\nOptions of `cordwood {command.name}`:\n" if " " in command.name else ""]
    lines += ["| option | meaning |", "| --- | --- |"]
    for option in command.options:
        text = option.text.replace("|", "\\|").replace("*", "\\*").replace("<", "&lt;")
        lines.append(f"| `{option.typed}` | {text} |")
    return "\n".join(lines) + "\n"


def written(text: str, described: list[CommandFacts]) -> str:
    """A page with its tables as the code has them."""
    tables = "".join(_table(command) for command in described)
    return _BETWEEN.sub(lambda _: f"{BEGIN}{tables}\n{END}", text)


def pages() -> Mapping[Path, str]:
    """What the pages with markers should contain."""
    return {
        PAGES / f"{name}.md": written((PAGES / f"{name}.md").read_text(encoding="utf-8"), described)
        for name, described in by_page().items()
    }


if __name__ == "__main__":
    for path, page in pages().items():
        path.write_text(page, encoding="utf-8")
