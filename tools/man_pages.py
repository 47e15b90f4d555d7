"""Writes the manual pages, cordwood(1) and one for each command, into a directory.

They come from what `--help` shows (`tools/command_reference.py`). A wheel has them
(`tools/build_hook.py`); `make docs` writes them into build/man/man1, of which `man -M build/man
cordwood-clean` shows one.

usage: man_pages.py DIRECTORY
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

from command_reference import CommandFacts, commands
from cordwood import __version__

COMMON = (
    ("-h, --help", "Show the options, with examples."),
    ("--log-level LEVEL", "Lowest level to log: DEBUG, INFO, WARN, ERROR."),
    ("--log-format FORMAT", "How a line of the log looks: text or json."),
    ("--log-file FILE", "Append the log to this file, not to standard error."),
)


def _escaped(text: str) -> str:
    """Text for roff: no character of it starts a request, and a dash can be copied."""
    text = text.replace("\\", "\\e").replace("-", "\\-")
    text = re.sub(r"[^\x00-\x7f]", lambda found: f"\\[u{ord(found[0]):04X}]", text)
    return "\n".join(f"\\&{line}" if line[:1] in ".'" else line for line in text.split("\n"))


def _section(name: str, *lines: str) -> list[str]:
    return [f".SH {name}", *lines]


def _tagged(term: str, text: str) -> list[str]:
    return [".TP", f".B {_escaped(term)}", _escaped(text)]


def _paragraphs(text: str) -> list[str]:
    lines: list[str] = []
    for paragraph in re.split(r"\n\s*\n", text.strip()):
        lines += [".PP", _escaped(" ".join(paragraph.split()))]
    return lines


def _examples(epilog: str) -> list[str]:
    found = re.search(r"Examples:\n((?:  .*\n?)+)", epilog)
    if found is None:
        return []
    return _section("EXAMPLES", ".nf", _escaped(found[1].rstrip()), ".fi")


def page(command: CommandFacts, others: list[str]) -> str:
    """The manual page of a command.

    Args:
        command: the command.
        others: names of pages for SEE ALSO.
    """
    name = f"cordwood-{command.name.replace(' ', '-')}"
    lines = [f'.TH {name.upper()} 1 "" "cordwood {__version__}" "Cordwood"']
    lines += _section("NAME", _escaped(f"{name} - {command.summary.rstrip('.')}"))
    usage = _escaped(command.usage)
    lines += _section("SYNOPSIS", f".B cordwood {_escaped(command.name)}", usage)
    lines += _section("DESCRIPTION", *_paragraphs(command.description or command.summary))
    lines += _section("OPTIONS")
    for option in command.options:
        lines += _tagged(option.typed, option.text)
    for typed, text in COMMON:
        lines += _tagged(typed, text)
    lines += _exit_status(command)
    lines += _examples(command.epilog + "\n")
    lines += _section("SEE ALSO", _escaped(", ".join(f"{each}(1)" for each in others)))
    return "\n".join(lines) + "\n"


def _exit_status(command: CommandFacts) -> list[str]:
    lines = _section("EXIT STATUS")
    for code, text in command.exit_codes.items():
        lines += _tagged(str(code), text)
    return lines


def overview(described: list[CommandFacts]) -> str:
    """The page cordwood(1): all commands."""
    lines = [f'.TH CORDWOOD 1 "" "cordwood {__version__}" "Cordwood"']
    lines += _section(
        "NAME", _escaped("cordwood - Apache Kafka's partition log, its cleanup, a broker, tools")
    )
    lines += _section("SYNOPSIS", ".B cordwood", _escaped("COMMAND [OPTION]..."))
    lines += _section("COMMANDS")
    for command in described:
        lines += _tagged(command.name, command.summary)
    lines += _section("OPTIONS")
    for typed, text in COMMON:
        lines += _tagged(typed, text)
    names = [f"cordwood-{each.name.replace(' ', '-')}(1)" for each in described]
    lines += _section("SEE ALSO", _escaped(", ".join(names)))
    return "\n".join(lines) + "\n"


def pages() -> dict[str, str]:
    """All manual pages by the names of their files."""
    described = list(commands())
    found = {"cordwood.1": overview(described)}
    for command in described:
        group = command.name.partition(" ")[0]
        related = [
            f"cordwood-{each.name.replace(' ', '-')}"
            for each in described
            if each.name.partition(" ")[0] == group and each.name != command.name
        ]
        name = f"cordwood-{command.name.replace(' ', '-')}.1"
        found[name] = page(command, ["cordwood", *related])
    return found


def main(directory: Path) -> None:
    """Writes all manual pages below `man1` of a directory."""
    target = directory / "man1"
    target.mkdir(parents=True, exist_ok=True)
    for old in target.glob("cordwood*.1"):
        old.unlink()
    for name, text in pages().items():
        (target / name).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
