"""The commands and their options, read from the code: for the pages of docs/commands and for man.

Cordwood's own commands are typer's, Kafka's tools have a `Usage`, and `dump-log` has a table.
"""

from __future__ import annotations

import importlib
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import typer

from cordwood.surfaces.cli.main import app
from cordwood.surfaces.cli.tools import cluster_up, table
from cordwood.surfaces.cli.tools.options import FLAG, OPTIONAL, Usage
from cordwood.surfaces.dump import options as dump_options

#: Options of every command, which docs/cli.md describes.
COMMON = ("-h", "--help", "--version", "--log-level", "--log-format", "--log-file")
#: What the exit codes mean where a command says no more.
EXIT_CODES: Mapping[int, str] = {
    0: "done, or nothing to do",
    1: "a part failed, or all of it; the reason is on standard error, and the rest is done",
    2: "wrong usage, or an extra is needed that is not installed",
    3: "a directory is in use",
}
#: Those of Kafka's tools, and of `dump-log`.
TOOL_EXIT_CODES: Mapping[int, str] = {0: "done", 1: "failed, or wrong usage"}
_EXIT_CODES = re.compile(r"Exit codes: ((?:.|\n)*?)(?:\n\n|$)")


def exit_codes_in(text: str) -> dict[int, str]:
    """The exit codes that a text of `--help` has, with their meaning; empty if it has none.

    Raises:
        ValueError: they are not written as `0 done; 1 failed`.
    """
    found = _EXIT_CODES.search(text)
    if found is None:
        return {}
    parts = " ".join(found[1].split()).rstrip(".").split("; ")
    return {int(code): meaning for code, _, meaning in (part.partition(" ") for part in parts)}


@dataclass(frozen=True, slots=True, kw_only=True)
class OptionFacts:
    """An option: as it is typed, with the name of its value, and what it does."""

    typed: str
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandFacts:
    """A command, or a command of a command such as `hold add`.

    Attributes:
        name: behind `cordwood`.
        usage: what follows the name, such as `LOG_DIR... [OPTION]...`.
        summary: a line.
        description: paragraphs.
        options: all but the common ones, in the order of `--help`.
        epilog: examples and exit codes, as `--help` has them.
        exit_codes: what each of its exit codes means.
    """

    name: str
    usage: str
    summary: str
    description: str
    options: tuple[OptionFacts, ...]
    epilog: str
    exit_codes: Mapping[int, str]


def commands() -> Iterator[CommandFacts]:
    """All commands, by name."""
    group: Any = typer.main.get_command(app)
    context = group.make_context("cordwood", ["--help"], resilient_parsing=True)
    for name in group.list_commands(context):
        if name in table.TOOLS:
            module = importlib.import_module(
                f"cordwood.surfaces.cli.tools.{table.TOOLS[name].module}"
            )
            yield _of_tool(name, table.TOOLS[name].summary, module.USAGE)
            continue
        command = group.get_command(context, name)
        if name == "dump-log":
            yield _of_dump_log(command)
        else:
            yield from _of_click(name, command, context)
    yield _of_tool("cluster up", "Run a local cluster for development.", cluster_up.USAGE)


def _of_click(name: str, command: Any, parent: Any) -> Iterator[CommandFacts]:
    inner = command.make_context(
        name.rsplit(maxsplit=1)[-1], [], resilient_parsing=True, parent=parent
    )
    options = []
    arguments = []
    for parameter in command.params:
        if parameter.param_type_name == "argument":
            arguments.append(re.sub(r"[{}]", "", parameter.get_usage_pieces(inner)[0]))
        elif not set(parameter.opts) & set(COMMON) and not parameter.hidden:
            typed, text = parameter.get_help_record(inner)
            options.append(OptionFacts(typed=typed, text=" ".join(text.split())))
    subcommands = getattr(command, "commands", {})
    usage = " ".join([*arguments, "COMMAND" if subcommands else "[OPTION]..."])
    epilog = (command.epilog or "").replace("\b", "").strip()
    yield CommandFacts(
        name=name,
        usage=usage,
        summary=command.get_short_help_str(200),
        description=(command.help or "").replace("\b\n", "").strip(),
        options=tuple(options),
        epilog=epilog,
        exit_codes=exit_codes_in(epilog) or EXIT_CODES,
    )
    for subcommand, each in subcommands.items():
        yield from _of_click(f"{name} {subcommand}", each, inner)


def _of_tool(name: str, summary: str, usage: Usage) -> CommandFacts:
    options = []
    for option in usage.options:
        typed = f"--{option.name}"
        if option.arity != FLAG:
            value = f"[{option.placeholder}]" if option.arity == OPTIONAL else option.placeholder
            typed += f" {value}"
        if f"--{option.name}" not in COMMON:
            default = f" Default {option.default}." if option.default else ""
            options.append(OptionFacts(typed=typed, text=option.text + default))
    examples = f"Examples:\n{usage.examples.rstrip()}"
    return CommandFacts(
        name=name,
        usage="[OPTION]...",
        summary=summary,
        description=usage.summary,
        options=tuple(options),
        epilog="\n\n".join(part for part in (usage.notes, examples) if part),
        exit_codes=exit_codes_in(usage.notes) or TOOL_EXIT_CODES,
    )


def _of_dump_log(command: Any) -> CommandFacts:
    options = [
        OptionFacts(typed=f"--{name} {placeholder}".rstrip(), text=text)
        for name, (_, placeholder, text) in dump_options._OPTIONS.items()
        if f"--{name}" not in COMMON
    ]
    return CommandFacts(
        name="dump-log",
        usage="--files FILE,... [OPTION]...",
        summary=command.get_short_help_str(200),
        description=command.help,
        options=tuple(options),
        epilog="",
        exit_codes=TOOL_EXIT_CODES,
    )


def flag(option: OptionFacts) -> str:
    """The long name of an option."""
    found = re.search(r"--[\w-]+", option.typed)
    assert found, option
    return found[0]
