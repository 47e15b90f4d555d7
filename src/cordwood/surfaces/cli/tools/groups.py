"""`cordwood groups`: what kafka-groups does.

Source: org.apache.kafka.tools.GroupsCommand (4.4.0).
"""

from __future__ import annotations

from cordwood.client.admin import Admin, GroupFacts
from cordwood.client.cluster_client import ClusterClient
from cordwood.model.errors import CordwoodError
from cordwood.queries.groups import ListedGroup
from cordwood.surfaces.cli.tools.java_order import java_order
from cordwood.surfaces.cli.tools.options import (
    BOOTSTRAP,
    COMMAND_CONFIG,
    COMMON,
    Option,
    Options,
    Usage,
    UsageError,
)
from cordwood.surfaces.cli.tools.tool import (
    Terminal,
    ToolError,
    client_settings,
    print_error,
    run_tool,
)

_TYPES = {
    "classic": "Classic",
    "consumer": "Consumer",
    "share": "Share",
    "streams": "Streams",
}
_KINDS = ("consumer", "share", "streams")
_WIDTH_MIN = 20
_NO_SERVER = "Missing required option(s) [bootstrap-server]"

USAGE = Usage(
    tool="groups",
    summary="This tool helps to list groups of all types.",
    hint=_NO_SERVER,
    options=(
        BOOTSTRAP,
        COMMAND_CONFIG,
        Option("list", "List the groups."),
        Option("group-type", "Only groups of a type: classic, consumer, share, streams.", "TYPE"),
        Option("protocol", "Only groups of a protocol type.", "PROTOCOL"),
        Option(
            "consumer",
            "Only consumer groups of all kinds: those of the consumer protocol, classic ones of "
            "consumers, and those that only have offsets.",
        ),
        Option("share", "Only share groups."),
        Option("streams", "Only streams groups."),
        *COMMON,
    ),
    examples="""\
  cordwood groups --bootstrap-server localhost:9092 --list
  cordwood groups --bootstrap-server localhost:9092 --list --consumer --json
  cordwood groups --bootstrap-server localhost:9092 --list --group-type classic --protocol connect
""",
)


def run(arguments: list[str], terminal: Terminal) -> int:
    """Runs the tool; returns the exit code."""
    return run_tool(
        USAGE,
        arguments,
        terminal,
        _body,
        on_error=print_error,
        option_errors_show_usage=True,
    )


def _body(options: Options, terminal: Terminal) -> int:
    _check(options)
    try:
        with ClusterClient(client_settings(options), warn=terminal.warn) as cluster:
            found = java_order(Admin(cluster).groups(), lambda group: group.group_id)
    except CordwoodError as error:
        terminal.line(f"Error while executing groups command : {error}")
        return 1
    _show([group for group in found if _is_wanted(group, options)], options, terminal)
    return 0


def _check(options: Options) -> None:
    """Refuses flags that do not go together.

    Source: GroupsCommandOptions.checkArgs.
    """
    if not options.has("bootstrap-server"):
        raise UsageError(_NO_SERVER)
    if not options.has("list"):
        raise UsageError("Command must include exactly one action: --list.")
    kind = options.value("group-type")
    if kind is not None and kind.lower() not in _TYPES:
        raise ToolError("--group-type must be a valid group type.")
    options.forbid("consumer", "group-type", "protocol", "share", "streams")
    options.forbid("share", "consumer", "group-type", "protocol", "streams")
    options.forbid("streams", "consumer", "group-type", "protocol", "share")


def _is_wanted(group: GroupFacts, options: Options) -> bool:
    kind, protocol = options.value("group-type"), options.value("protocol")
    if kind is not None or protocol is not None:
        return (kind is None or group.kind.lower() == kind.lower()) and (
            protocol is None or group.protocol_type == protocol
        )
    if options.has("consumer") and group.protocol_type in {"", "consumer"}:
        return True
    chosen = [each for each in _KINDS if options.has(each)]
    return not chosen or group.kind.lower() in chosen


def _show(groups: list[GroupFacts], options: Options, terminal: Terminal) -> None:
    listed = [
        ListedGroup(
            group=group.group_id,
            type=_TYPES.get(group.kind.lower(), ""),
            protocol=group.protocol_type,
        )
        for group in groups
    ]
    if options.has("json"):
        terminal.document(listed)
        return
    rows = [(each.group, each.type, each.protocol) for each in listed]
    width = max(_WIDTH_MIN, *(len(cell) for row in rows for cell in row), 0)
    terminal.line(" ".join(f"{name:<{width}}" for name in ("GROUP", "TYPE", "PROTOCOL")))
    for row in rows:
        terminal.line("".join(f"{cell:<{width}} " for cell in row))
