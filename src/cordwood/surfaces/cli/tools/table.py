"""The tools by the name of their subcommand; each is imported when it is run."""

from __future__ import annotations

import importlib
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from cordwood.surfaces.cli.loading import start_collector

if TYPE_CHECKING:
    from cordwood.surfaces.cli.tools.options import Option, Usage


class Tool(NamedTuple):
    """The module of a tool, and its summary for the list of all commands."""

    module: str
    summary: str


TOOLS: Mapping[str, Tool] = {
    "topics": Tool("topics", "List, describe, create, alter and delete topics."),
    "configs": Tool("configs", "Show and change settings and quotas."),
    "console-producer": Tool("console_producer", "Write lines of standard input to a topic."),
    "console-consumer": Tool("console_consumer", "Print the records of topics."),
    "get-offsets": Tool("get_offsets", "Print offsets of partitions: first, last, by time."),
    "log-dirs": Tool("log_dirs", "Print the log directories of brokers and their sizes."),
    "delete-records": Tool("delete_records", "Delete the records before an offset."),
    "cluster": Tool("cluster", "Print a cluster's id and brokers; start a cluster."),
    "features": Tool("features", "Show and change the levels of a cluster's features."),
    "metadata-quorum": Tool("metadata_quorum", "Describe the quorum of the controllers."),
    "consumer-groups": Tool("consumer_groups", "List, describe, delete and reset groups."),
    "groups": Tool("groups", "List groups of all types."),
    "transactions": Tool("transactions", "List, describe and abort transactions."),
    "broker-api-versions": Tool("api_versions", "Print the APIs that brokers serve."),
    "storage": Tool("storage", "Format log directories, or show their state."),
}


def run(name: str, arguments: list[str]) -> int:
    """Runs the tool of that name on its flags; gives the exit code."""
    from cordwood.surfaces.cli.tools.tool import Terminal  # noqa: PLC0415  # when needed

    module = importlib.import_module(f"cordwood.surfaces.cli.tools.{TOOLS[name].module}")
    start_collector()
    code: int = module.run(arguments, Terminal())
    return code


def options(name: str) -> Sequence[Option]:
    """The options of the tool with that name."""
    module = importlib.import_module(f"cordwood.surfaces.cli.tools.{TOOLS[name].module}")
    usage: Usage = module.USAGE
    return usage.options
