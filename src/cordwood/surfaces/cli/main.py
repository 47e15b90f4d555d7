"""The `cordwood` command: one subcommand a module."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from cordwood import __version__
from cordwood.surfaces.cli.clean import EPILOG, clean_command
from cordwood.surfaces.cli.dump_log import dump_log

app = typer.Typer(
    name="cordwood",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    help="Apache Kafka's partition log and its cleanup: cleans log directories, shows files.",
)
app.command("clean", epilog=EPILOG)(clean_command)


@app.command(
    "dump-log",
    add_help_option=False,
    context_settings={"ignore_unknown_options": True, "allow_extra_args": True},
)
def _dump_log(context: typer.Context) -> None:
    """Print what a segment, index, snapshot or checkpoint file holds, as kafka-dump-log does."""
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
