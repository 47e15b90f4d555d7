"""The tools by the name of their subcommand; each is imported when it is run."""

from __future__ import annotations

import importlib
from collections.abc import Mapping

MODULES: Mapping[str, str] = {
    "topics": "topics",
    "configs": "configs",
    "console-producer": "console_producer",
    "console-consumer": "console_consumer",
    "get-offsets": "get_offsets",
    "log-dirs": "log_dirs",
    "delete-records": "delete_records",
    "cluster": "cluster",
    "consumer-groups": "consumer_groups",
    "transactions": "transactions",
    "broker-api-versions": "api_versions",
    "storage": "storage",
}


def run(name: str, arguments: list[str]) -> int:
    """Runs the tool of that name on its flags; gives the exit code."""
    from cordwood.surfaces.cli.tools.tool import Terminal  # noqa: PLC0415  # when needed

    module = importlib.import_module(f"cordwood.surfaces.cli.tools.{MODULES[name]}")
    code: int = module.run(arguments, Terminal())
    return code


def flags(name: str) -> list[tuple[str, str]]:
    """The flags of the tool of that name, each with what it does."""
    module = importlib.import_module(f"cordwood.surfaces.cli.tools.{MODULES[name]}")
    return [(f"--{option.name}", option.text) for option in module.USAGE.options]
