"""The options of commands that read log directories: which topics, which settings, which moment."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from cordwood.model.errors import ConfigError
from cordwood.surfaces.cli.setting_values import set_option
from cordwood.surfaces.cli.values import parse_log_dir, parse_path


def _complete_set(incomplete: str) -> list[str]:
    from cordwood.surfaces.cli.completion import complete_set  # noqa: PLC0415  # when Tab is hit

    return complete_set(incomplete)


def parse_set_option(text: str) -> str:
    """`[TOPIC:]KEY=VALUE`, a duration or a size as Kafka takes it.

    Raises:
        BadParameter: a duration is not whole in the unit of the setting, or a size too large.
    """
    try:
        return set_option(text)
    except ConfigError as error:
        raise typer.BadParameter(str(error)) from error


LogDirsArgument = Annotated[
    list[Path], typer.Argument(parser=parse_log_dir, metavar="LOG_DIR", hidden=True)
]
OptionalLogDirsArgument = Annotated[
    list[Path] | None, typer.Argument(parser=parse_log_dir, metavar="LOG_DIR", hidden=True)
]
TopicsOption = Annotated[
    list[str] | None, typer.Option("--topic", metavar="GLOB", help="Only these topics.")
]
SetOption = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        parser=parse_set_option,
        metavar="[TOPIC:]KEY=VALUE",
        autocompletion=_complete_set,
        help="A setting of a topic or broker, as orders:retention.ms=7d.",
    ),
]
ConfigFileOption = Annotated[
    Path | None,
    typer.Option(
        "--config-file",
        parser=parse_path,
        metavar="FILE",
        help='JSON or YAML: {"topics": {...}, "broker": {...}}.',
    ),
]
ServerPropertiesOption = Annotated[
    Path | None,
    typer.Option(
        "--server-properties",
        parser=parse_path,
        metavar="FILE",
        help="The broker's server.properties.",
    ),
]
MetadataDirOption = Annotated[
    Path | None,
    typer.Option(
        "--metadata-dir",
        parser=parse_log_dir,
        metavar="DIR",
        help="Where __cluster_metadata-0 is, if not in LOG_DIR.",
    ),
]
DefaultsOption = Annotated[
    bool, typer.Option("--defaults", help="Kafka's defaults for what no source describes.")
]
