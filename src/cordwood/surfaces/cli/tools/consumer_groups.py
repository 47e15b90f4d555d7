"""`cordwood consumer-groups`: what kafka-consumer-groups does.

Source: org.apache.kafka.tools.consumer.group.ConsumerGroupCommand (4.4.0).
"""

from __future__ import annotations

from collections.abc import Sequence

from cordwood.client.admin import Admin, GroupFacts
from cordwood.client.cluster_client import ClusterClient
from cordwood.client.errors import RefusedError
from cordwood.client.groups import Groups
from cordwood.model.errors import CordwoodError
from cordwood.model.kafka_errors import InvalidRegularExpressionError
from cordwood.model.regular_expressions import compile_regular_expression
from cordwood.queries.groups import DeletedGroups, ListedConsumerGroup
from cordwood.surfaces.cli.tools.group_describe import describe_groups
from cordwood.surfaces.cli.tools.group_expiry import show_expiry
from cordwood.surfaces.cli.tools.group_offsets import delete_offsets, reset_offsets
from cordwood.surfaces.cli.tools.java_order import java_order
from cordwood.surfaces.cli.tools.options import (
    BOOTSTRAP,
    COMMAND_CONFIG,
    COMMON,
    LONG_MAX,
    OPTIONAL,
    Option,
    Options,
    Usage,
    UsageError,
)
from cordwood.surfaces.cli.tools.tool import (
    Terminal,
    ToolError,
    client_settings,
    described,
    print_error,
    run_tool,
)

_ACTIONS = (*("list", "describe", "delete", "reset-offsets", "delete-offsets", "validate-regex"),)
_SCENARIOS = (
    *("to-offset", "shift-by", "to-datetime", "by-duration", "to-earliest", "to-latest"),
    *("to-current", "from-file"),
)
_SCOPES = "[group], [all-groups]"
_STATES = {
    "unknown": "Unknown",
    "preparingrebalance": "PreparingRebalance",
    "completingrebalance": "CompletingRebalance",
    "stable": "Stable",
    "dead": "Dead",
    "empty": "Empty",
    "assigning": "Assigning",
    "reconciling": "Reconciling",
}
_TYPES = {"classic": "Classic", "consumer": "Consumer"}
_CONSUMER_PROTOCOLS = frozenset({"", "consumer"})

USAGE = Usage(
    tool="consumer-groups",
    summary="This tool helps to list, describe, delete and manage the offsets of consumer groups.",
    options=(
        BOOTSTRAP,
        COMMAND_CONFIG,
        Option("list", "List the groups."),
        Option("describe", "Show groups and their lag."),
        Option("delete", "Delete groups without members."),
        Option("reset-offsets", "Commit other offsets for a group without members."),
        Option("delete-offsets", "Delete committed offsets."),
        Option("validate-regex", "Check whether this is a valid regular expression.", "REGEX"),
        Option("group", "A group; may be repeated.", "ID"),
        Option("all-groups", "All groups."),
        Option("topic", "A topic, or some of its partitions; may be repeated.", "NAME[:N,N]"),
        Option("all-topics", "All topics that the group has committed offsets of."),
        Option("timeout", "How long an answer may take.", "MS", default="30000"),
        Option("members", "With --describe: the members."),
        Option("offsets", "With --describe: the offsets, which is the default."),
        Option(
            "state",
            "With --describe: the state. With --list: show it or filter by it.",
            "STATE,...",
            OPTIONAL,
        ),
        Option("type", "With --list: show the type or filter by it.", "TYPE,...", OPTIONAL),
        Option("expiry", "With --describe: when committed offsets expire, and why."),
        Option("verbose", "With --describe: more columns."),
        Option("dry-run", "With --reset-offsets: show what would be done."),
        Option("execute", "With --reset-offsets: do it."),
        Option("export", "With --reset-offsets: show it as CSV."),
        Option("to-offset", "The offset itself.", "OFFSET"),
        Option("from-file", "A CSV file as --export writes it.", "FILE"),
        Option("to-datetime", "The offset at that moment.", "YYYY-MM-DDTHH:mm:SS.sss"),
        Option("by-duration", "The offset at this duration before now.", "PnDTnHnMnS"),
        Option("to-earliest", "The log start offset."),
        Option("to-latest", "The log end offset."),
        Option("to-current", "The offset committed now."),
        Option("shift-by", "Shift committed offsets by N records, back if negative.", "N"),
        *COMMON,
    ),
    examples="""\
  cordwood consumer-groups --bootstrap-server localhost:9092 --list
  cordwood consumer-groups --bootstrap-server localhost:9092 --describe --group billing
  cordwood consumer-groups --bootstrap-server localhost:9092 --describe --group billing --expiry
  cordwood consumer-groups --bootstrap-server localhost:9092 --reset-offsets --group billing \\
    --topic orders --to-earliest --execute
""",
)


def run(arguments: list[str], terminal: Terminal) -> int:
    """Runs the tool; returns the exit code, which is 0 even if a group does not exist."""
    return run_tool(
        USAGE,
        arguments,
        terminal,
        _body,
        on_error=print_error,
        option_errors_show_usage=True,
    )


def _body(options: Options, terminal: Terminal) -> int:
    _check(options, terminal)
    if sum(map(options.has, _ACTIONS)) != 1:
        shown = ", ".join(f"--{name}" for name in _ACTIONS)
        raise UsageError(f"Command must include exactly one action: {shown}")
    expression = options.value("validate-regex")
    if expression is not None:
        _validate(expression, terminal)
        return 0
    timeout = options.number("timeout", bound=LONG_MAX)
    client = client_settings(options, extra={"default.api.timeout.ms": str(timeout)})
    with ClusterClient(client, warn=terminal.warn) as cluster:
        try:
            _act(options, cluster, terminal)
        except UsageError:
            raise
        except ToolError as error:
            raise UsageError(str(error)) from error
        except CordwoodError as error:
            terminal.line(
                f"\nError: Executing consumer group command failed due to {described(error)}"
            )
    return 0


def _act(options: Options, cluster: ClusterClient, terminal: Terminal) -> None:
    if options.has("list"):
        _list(options, cluster, terminal)
    elif options.has("describe") and options.has("expiry"):
        show_expiry(cluster, _group_ids(options, cluster), terminal, as_json=options.has("json"))
    elif options.has("describe"):
        describe_groups(options, cluster, _group_ids(options, cluster), terminal)
    elif options.has("delete"):
        _delete(options, cluster, terminal)
    elif options.has("reset-offsets"):
        reset_offsets(options, cluster, _group_ids(options, cluster), terminal)
    else:
        delete_offsets(options, cluster, terminal)


def _validate(expression: str, terminal: Terminal) -> None:
    try:
        compile_regular_expression(expression)
    except InvalidRegularExpressionError as error:
        reason = str(error).rpartition(": ")[2]
        terminal.line(f"The regular expression `{expression}` is invalid: {reason}.")
    else:
        terminal.line(f"The regular expression `{expression}` is valid.")


# ---- flags


def _check(options: Options, terminal: Terminal) -> None:
    """Refuses flags that do not go together.

    Source: ConsumerGroupCommandOptions.checkArgs.
    """
    if not options.has("validate-regex"):
        options.require("bootstrap-server")
    if options.has("describe"):
        _check_describe(options)
    if options.has("delete"):
        _require_scope(options, "delete")
        if options.has("topic"):
            raise UsageError(
                "The consumer does not support topic-specific offset deletion from a consumer "
                "group."
            )
    if options.has("delete-offsets") and not (options.has("group") and options.has("topic")):
        raise UsageError("Option [delete-offsets] takes the following options: [group], [topic]")
    if options.has("reset-offsets"):
        _check_reset(options, terminal)
    options.forbid("group", "all-groups", "list")
    options.forbid("topic", "list", "describe")


def _require_scope(options: Options, action: str) -> None:
    if not options.has("group") and not options.has("all-groups"):
        raise UsageError(f"Option [{action}] takes one of these options: {_SCOPES}")


def _check_describe(options: Options) -> None:
    _require_scope(options, "describe")
    if sum(map(options.has, ("members", "offsets", "state", "expiry"))) > 1:
        raise UsageError(
            "Option [describe] takes at most one of these options: [members], [offsets], [state]"
        )
    if options.value("state") is not None:
        raise UsageError("Option [describe] does not take a value for [state]")


def _check_reset(options: Options, terminal: Terminal) -> None:
    if options.has("dry-run") and options.has("execute"):
        raise UsageError("Option [reset-offsets] only accepts one of [execute] and [dry-run]")
    if not options.has("dry-run") and not options.has("execute"):
        terminal.error(
            "WARN: No action will be performed as the --execute option is missing. In version "
            "5.0, this command will require either --dry-run or --execute to be specified. You "
            "should add the --dry-run option explicitly if you are scripting this command and "
            "want to keep the current default behavior without prompting."
        )
    _require_scope(options, "reset-offsets")
    for name in _SCENARIOS:
        options.forbid(name, *(other for other in _SCENARIOS if other != name))


# ---- list, delete


def _group_ids(options: Options, cluster: ClusterClient) -> list[str]:
    if options.has("all-groups"):
        return [group.group_id for group in _consumer_groups(cluster)]
    return options.values("group")


def _consumer_groups(cluster: ClusterClient) -> list[GroupFacts]:
    found = [
        group
        for group in Admin(cluster).groups()
        if group.protocol_type in _CONSUMER_PROTOCOLS and group.kind.lower() in {"", *_TYPES}
    ]
    return java_order(found, lambda group: group.group_id)


def _list(options: Options, cluster: ClusterClient, terminal: Terminal) -> None:
    states = _parse(options.value("state"), _STATES, "state list", "states")
    types = _parse(options.value("type"), _TYPES, "types list", "types")
    found = [
        group
        for group in _consumer_groups(cluster)
        if (not states or group.state in states) and (not types or _kind(group) in types)
    ]
    columns = [("TYPE", _kind)] if options.has("type") else []
    columns += [("STATE", lambda group: group.state)] if options.has("state") else []
    if options.has("json"):
        terminal.document(
            [
                ListedConsumerGroup(group=each.group_id, type=_kind(each), state=each.state)
                for each in found
            ]
        )
        return
    if not columns:
        for group in found:
            terminal.line(group.group_id)
        return
    width = max((max(15, len(group.group_id)) for group in found), default=15) + 10
    terminal.line(f"{'GROUP':<{width}}" + "".join(f" {name:<20}" for name, _ in columns))
    for group in found:
        cells = "".join(f" {cell(group):<20}" for _, cell in columns)
        terminal.line(f"{group.group_id:<{width}}{cells}")


def _kind(group: GroupFacts) -> str:
    return _TYPES.get(group.kind.lower(), "Unknown")


def _parse(text: str | None, known: dict[str, str], what: str, plural: str) -> frozenset[str]:
    if not text:
        return frozenset()
    parts = [part.strip().lower() for part in text.split(",")]
    if any(part not in known or part == "unknown" for part in parts):
        valid = ", ".join(name for name in known.values() if name != "Unknown")
        raise ToolError(f"Invalid {what} '{text}'. Valid {plural} are: {valid}")
    return frozenset(known[part] for part in parts)


def _delete(options: Options, cluster: ClusterClient, terminal: Terminal) -> None:
    deleted: list[str] = []
    failed: dict[str, RefusedError] = {}
    for group_id in dict.fromkeys(_group_ids(options, cluster)):
        try:
            Groups(cluster).delete(group_id)
            deleted.append(group_id)
        except RefusedError as error:
            failed[group_id] = error
    if options.has("json"):
        errors = {group: str(error) for group, error in failed.items()}
        terminal.document(DeletedGroups(deleted=deleted, failed=errors))
        return
    if not failed:
        terminal.line(f"Deletion of requested consumer groups ({_quoted(deleted)}) was successful.")
        return
    terminal.line("\nError: Deletion of some consumer groups failed:")
    for group_id in java_order(failed, str):
        terminal.line(
            f"* Group '{group_id}' could not be deleted due to: {failed[group_id].described}"
        )
    if deleted:
        terminal.line(f"\nThese consumer groups were deleted successfully: {_quoted(deleted)}")


def _quoted(groups: Sequence[str]) -> str:
    return ", ".join(f"'{group}'" for group in java_order(groups, str))
