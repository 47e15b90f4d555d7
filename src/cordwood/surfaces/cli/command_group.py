"""Commands with commands of their own, such as `cordwood hold add`."""

from __future__ import annotations

import typer

from cordwood.surfaces.cli.log_options import (
    AuditLogOption,
    LogFileOption,
    LogFormat,
    LogFormatOption,
    LogLevelOption,
)


def command_group(name: str, *, help: str, epilog: str) -> typer.Typer:  # noqa: A002  # typer's name
    """An app without commands; the context of each has the options of the log as its `obj`."""
    app = typer.Typer(
        name=name,
        add_completion=False,
        rich_markup_mode=None,
        no_args_is_help=True,
        context_settings={"help_option_names": ["-h", "--help"]},
        epilog=epilog,
        help=help,
    )

    @app.callback()
    def _options(
        context: typer.Context,
        log_level: LogLevelOption = None,
        log_format: LogFormatOption = LogFormat.TEXT,
        log_file: LogFileOption = None,
        audit_log: AuditLogOption = None,
    ) -> None:
        context.obj = {
            "log_level": log_level,
            "log_format": log_format,
            "log_file": log_file,
            "audit_log": audit_log,
        }

    return app
