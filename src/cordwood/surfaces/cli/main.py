"""The `cordwood` command: one subcommand a module, imported when it is called."""

from __future__ import annotations

import importlib
import sys
from typing import Annotated, Any, NamedTuple

import typer
from typer.core import TyperGroup

from cordwood import __version__
from cordwood.surfaces.cli.tools import table


class _Subcommand(NamedTuple):
    """Where a subcommand's function is; the module's `EPILOG` is shown below its help."""

    module: str
    function: str


# Those of Kafka's tools, which take Kafka's flags, are in `tools.table`.
_OWN = {
    "clean": _Subcommand("clean", "clean_command"),
    "cleaner": _Subcommand("cleaner", "cleaner_command"),
    "clock": _Subcommand("clock", "clock_command"),
    "serve": _Subcommand("serve", "serve_command"),
}
_PASSED_ON = {"ignore_unknown_options": True, "allow_extra_args": True}


class _Commands(TyperGroup):
    """Imports a subcommand's module when it is asked for."""

    def list_commands(self, ctx: Any) -> list[str]:
        return sorted({*_OWN, *table.MODULES, *super().list_commands(ctx)})

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        if cmd_name in _OWN:
            return _own(cmd_name, _OWN[cmd_name])
        if cmd_name in table.MODULES:
            return _tool(cmd_name)
        return super().get_command(ctx, cmd_name)


def _own(name: str, where: _Subcommand) -> Any:
    module = importlib.import_module(f"cordwood.surfaces.cli.{where.module}")
    alone = typer.Typer(add_completion=False, rich_markup_mode=None)
    alone.command(name, epilog=getattr(module, "EPILOG", None))(getattr(module, where.function))
    return typer.main.get_command(alone)


def _tool(name: str) -> Any:
    def run(context: typer.Context) -> None:
        raise typer.Exit(table.run(name, context.args))

    alone = typer.Typer(add_completion=False, rich_markup_mode=None)
    described = alone.command(
        name,
        help=f"As kafka-{name}, with its flags.",
        add_help_option=False,
        context_settings=_PASSED_ON,
    )
    described(run)
    return typer.main.get_command(alone)


app = typer.Typer(
    name="cordwood",
    cls=_Commands,
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    help="Apache Kafka's partition log and its cleanup: a broker, its tools, and a cleaner of "
    "directories.",
)


@app.command("dump-log", add_help_option=False, context_settings=_PASSED_ON)
def _dump_log(context: typer.Context) -> None:
    """Print what a segment, index, snapshot or checkpoint file holds, as kafka-dump-log does."""
    from cordwood.surfaces.cli.dump_log import dump_log  # noqa: PLC0415  # when it is called

    raise typer.Exit(dump_log(context.args))


@app.callback(invoke_without_command=True)
def _root(
    context: typer.Context,
    version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False,
) -> None:
    if version:
        typer.echo(f"cordwood {__version__}")
        raise typer.Exit
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())
        raise typer.Exit(2)


def main() -> None:
    """Runs the command line; the exit code is 0, 1 (something failed), 2 (usage), 3 (in use)."""
    if not __debug__:
        sys.exit("cordwood does not run under python -O: its assertions guard your data")
    app()
