"""Commands with commands of their own, such as `cordwood hold add`."""

from __future__ import annotations

import inspect
from typing import Any

import typer

from cordwood.surfaces.cli.command import CONTEXT, audited_log, signature_of


def command_group(name: str, *, help: str, epilog: str) -> typer.Typer:  # noqa: A002  # typer's name
    """An app without commands; the context of each has the `LogOptions` as its `obj`."""
    app = typer.Typer(
        name=name,
        add_completion=False,
        rich_markup_mode=None,
        no_args_is_help=True,
        context_settings={"help_option_names": ["-h", "--help"]},
        epilog=epilog,
        help=help,
    )

    def options(**given: Any) -> None:
        context: typer.Context = given.pop("context")
        context.obj = audited_log(**given)

    of_log = inspect.signature(audited_log, eval_str=True).parameters.values()
    options.__signature__ = signature_of([CONTEXT, *of_log])  # type: ignore[attr-defined]
    app.callback()(options)
    return app
