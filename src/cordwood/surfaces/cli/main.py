"""The `cordwood` command: one subcommand a module, imported when it is called."""

from __future__ import annotations

import importlib
from difflib import get_close_matches
from functools import partial
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import typer
from typer.core import TyperGroup

from cordwood.surfaces.cli.failure import failures_as_json
from cordwood.surfaces.cli.first_screen import Group, first_screen
from cordwood.surfaces.cli.loading import start_collector
from cordwood.surfaces.cli.tools import table
from cordwood.surfaces.cli.version import version_text

EPILOG = """\b
Examples:
  cordwood /var/lib/kafka/data
  cordwood clean /var/lib/kafka/data --dry-run
  cordwood serve --log-dir /tmp/logs
  cordwood topics --bootstrap-server localhost:9092 --list
  cordwood --install-completion        Tab completes commands and options

\b
Kafka's tools have the name and the flags that they have in Kafka: `cordwood
topics` is kafka-topics. cordwood COMMAND --help shows the options of a command,
with examples."""


class _Subcommand(NamedTuple):
    """The location of a subcommand's function; the module's `EPILOG` is shown below its help.

    Without a function, the module's `app` has subcommands of its own.
    """

    module: str
    function: str | None
    summary: str
    group: Group


# Those of Kafka's tools, which take Kafka's flags, are in `tools.table`.
# In the order in which they are listed.
_OWN = {
    "explain": _Subcommand(
        "explain", "explain_command", "Say why segments stay, and until when.", Group.LOOK
    ),
    "whatif": _Subcommand(
        "whatif", "whatif_command", "Show the effect of a changed setting.", Group.LOOK
    ),
    "advise": _Subcommand(
        "advise", "advise_command", "Advise on the settings of topics.", Group.LOOK
    ),
    "verify": _Subcommand("verify", "verify_command", "Check logs on disk.", Group.LOOK),
    "sql": _Subcommand("sql", "sql_command", "Query the tables of logs with SQL.", Group.LOOK),
    "docs": _Subcommand("docs", "docs_command", "List and show the documentation.", Group.LOOK),
    "clean": _Subcommand(
        "clean", "clean_command", "Clean a stopped broker's log directories.", Group.CLEAN
    ),
    "erase": _Subcommand(
        "erase", "erase_command", "Erase records of a stopped broker's logs.", Group.CLEAN
    ),
    "hold": _Subcommand("hold", None, "Keep topics from being cleaned or deleted.", Group.CLEAN),
    "trash": _Subcommand(
        "trash", None, "Put back removed segments and deleted topics.", Group.CLEAN
    ),
    "archive": _Subcommand(
        "archive", "archive_command", "Copy logs to object storage.", Group.ARCHIVE
    ),
    "restore": _Subcommand(
        "restore", "restore_command", "Bring archived logs back.", Group.ARCHIVE
    ),
    "table": _Subcommand(
        "table", "table_command", "Bring a Delta table up to date with a topic.", Group.ARCHIVE
    ),
    "serve": _Subcommand("serve", "serve_command", "Run a Kafka broker.", Group.RUN),
    "cleaner": _Subcommand(
        "cleaner", "cleaner_command", "Show a running broker's cleaner.", Group.RUN
    ),
    "doctor": _Subcommand(
        "doctor", "doctor_command", "Say what this machine lacks, and the cure.", Group.RUN
    ),
    "clock": _Subcommand(
        "clock", "clock_command", "Show or advance a running broker's clock.", Group.TEST
    ),
}
LOG_DIR = "LOG_DIR"
_LOG_DIR = _Subcommand(
    "log_dir", "log_dir_command", "Show what is there, what goes, what is wrong.", Group.LOOK
)
"""What `cordwood LOG_DIR` does: a directory is no name of a command."""
_HELP_NAMES = {"help_option_names": ["-h", "--help"]}
_PASSED_ON = {"ignore_unknown_options": True, "allow_extra_args": True}


class _Commands(TyperGroup):
    """Imports a subcommand's module when the subcommand is used."""

    def list_commands(self, ctx: Any) -> list[str]:
        return sorted({*_OWN, *table.TOOLS, *super().list_commands(ctx)})

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Writes the commands of each group."""
        groups = self.grouped(ctx)
        cells = max(len(name) for rows in groups.values() for name, _ in rows)
        for group, rows in groups.items():
            with formatter.section(group):
                formatter.write_dl([(f"{name:{cells}}", summary) for name, summary in rows])

    def grouped(self, ctx: Any) -> dict[Group, list[tuple[str, str]]]:
        """Name and summary of each command, by group."""
        found: dict[Group, list[tuple[str, str]]] = {group: [] for group in Group}
        found[_LOG_DIR.group].append((LOG_DIR, _LOG_DIR.summary))
        for name, where in _OWN.items():
            found[where.group].append((name, where.summary))
        for name in self.list_commands(ctx):
            if name in table.TOOLS:
                found[Group.TOOLS].append((name, table.TOOLS[name].summary))
            elif name not in _OWN:
                command = self.get_command(ctx, name)
                found[Group.TOOLS].append((name, command.get_short_help_str()))
        return found

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        if cmd_name in _OWN:
            return _own(cmd_name, _OWN[cmd_name])
        if cmd_name in table.TOOLS:
            return _tool(cmd_name)
        return super().get_command(ctx, cmd_name)

    def invoke(self, ctx: Any) -> Any:
        with failures_as_json([*ctx._protected_args, *ctx.args]):
            return super().invoke(ctx)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        if args and self.get_command(ctx, args[0]) is None and _is_path(args[0]):
            return LOG_DIR, _own(LOG_DIR, _LOG_DIR), args
        if args and self.get_command(ctx, args[0]) is None and not args[0].startswith("-"):
            close = get_close_matches(args[0], self.list_commands(ctx))
            ctx.fail(
                f"No such command {args[0]!r}. "
                + (f"Did you mean {close[0]!r}?" if close else "`cordwood -h` lists all.")
            )
        return super().resolve_command(ctx, args)


def _is_path(word: str) -> bool:
    """Whether an argument is the path of a directory, or looks like one."""
    try:
        return "/" in word or word in {".", ".."} or Path(word).is_dir()
    except (OSError, ValueError):  # it is too long, or has a zero byte: no name of a file
        return False


def _own(name: str, where: _Subcommand) -> Any:
    module = importlib.import_module(f"cordwood.surfaces.cli.{where.module}")
    start_collector()
    if where.function is None:
        group: Any = typer.main.get_command(module.app)
        group.short_help = where.summary
        return group
    alone = typer.Typer(add_completion=False, rich_markup_mode=None)
    described = alone.command(
        name,
        short_help=where.summary,
        epilog=getattr(module, "EPILOG", None),
        context_settings=_HELP_NAMES,
    )
    described(getattr(module, where.function))
    return typer.main.get_command(alone)


def _tool(name: str) -> Any:
    def run(context: typer.Context) -> None:
        raise typer.Exit(table.run(name, context.args))

    alone = typer.Typer(add_completion=False, rich_markup_mode=None)
    described = alone.command(
        name,
        help=table.TOOLS[name].summary,
        add_help_option=False,
        context_settings=_PASSED_ON,
    )
    described(run)
    command: Any = typer.main.get_command(alone)
    command.shell_complete = partial(_complete, name)
    return command


def _complete(name: str, context: Any, incomplete: str) -> list[Any]:
    """Completions in the command line of a tool: typer does not know its flags and values."""
    from cordwood.surfaces.cli.completion import complete_tool  # noqa: PLC0415  # when Tab is hit

    return list(complete_tool(name, context.args, incomplete))


app = typer.Typer(
    name="cordwood",
    cls=_Commands,
    context_settings=_HELP_NAMES,
    epilog=EPILOG,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    help="Apache Kafka's partition log and its cleanup: a broker, its tools, and a cleaner of "
    "directories.",
)


@app.command(
    "dump-log",
    short_help="Print the contents of a log's files.",
    add_help_option=False,
    context_settings=_PASSED_ON,
)
def _dump_log(context: typer.Context) -> None:
    """Print the contents of a segment, index, snapshot or checkpoint, as kafka-dump-log does."""
    from cordwood.surfaces.cli.dump_log import dump_log  # noqa: PLC0415  # when it is called

    raise typer.Exit(dump_log(context.args))


@app.callback(invoke_without_command=True)
def _root(
    context: typer.Context,
    version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False,
) -> None:
    if version:
        typer.echo(version_text())
        raise typer.Exit
    if context.invoked_subcommand is None:
        commands = context.command
        assert isinstance(commands, _Commands), "the class of this app"
        typer.echo(first_screen(commands.grouped(context)))
