"""`cordwood metadata-quorum`: what kafka-metadata-quorum describes.

Source: org.apache.kafka.tools.MetadataQuorumCommand (4.4.0).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from cordwood.client.admin import Admin
from cordwood.client.cluster_client import ClusterClient
from cordwood.client.errors import ClientError
from cordwood.client.quorum import QuorumFacts, describe_quorum
from cordwood.model.documents import to_document
from cordwood.model.errors import CordwoodError
from cordwood.model.uuids import uuid_text
from cordwood.queries.quorum import QuorumReplication, QuorumStatus, quorum_status
from cordwood.surfaces.cli.tools.options import COMMAND_CONFIG, COMMON, Option, Options, Usage
from cordwood.surfaces.cli.tools.pretty_table import column_name, show_rows
from cordwood.surfaces.cli.tools.tool import (
    RefusedFlagsError,
    Terminal,
    ToolError,
    client_settings,
    require_command,
    run_tool,
    split_command,
)

_COMMANDS = ("describe", "add-controller", "remove-controller")
_SHORT = {"-h": "--help"}
USAGE = Usage(
    tool="metadata-quorum",
    summary="This tool describes kraft metadata quorum status. Command: describe.",
    options=(
        Option("bootstrap-server", "The brokers to begin with.", "HOST:PORT,..."),
        Option("bootstrap-controller", "The controllers to begin with.", "HOST:PORT,..."),
        COMMAND_CONFIG,
        Option("status", "With describe: a short summary of the quorum."),
        Option("replication", "With describe: the replication of the metadata log to each node."),
        Option("human-readable", "With --replication: times as how long ago they were."),
        *COMMON,
    ),
    examples="""\
  cordwood metadata-quorum --bootstrap-server localhost:9092 describe --status
  cordwood metadata-quorum --bootstrap-controller localhost:9093 describe --replication \\
    --human-readable
""",
)


def run(arguments: list[str], terminal: Terminal) -> int:
    """Runs the tool with these flags; returns the exit code."""
    given, command = split_command(arguments, USAGE, _SHORT)
    return run_tool(
        USAGE,
        given or [""],
        terminal,
        lambda options, terminal: _body(command, options, terminal),
        on_error=_explain,
    )


def _explain(error: CordwoodError, terminal: Terminal) -> None:
    if isinstance(error, RefusedFlagsError):
        terminal.error(
            "usage: cordwood metadata-quorum (--bootstrap-server HOST:PORT | "
            f"--bootstrap-controller HOST:PORT) {{{','.join(_COMMANDS)}}} ..."
        )
        terminal.error(f"cordwood metadata-quorum: error: {error}")
    elif isinstance(error, ClientError):
        terminal.error(error.described)
        terminal.error(f"java.util.concurrent.ExecutionException: {error.described}")
    else:
        terminal.error(str(error))


def _body(command: str | None, options: Options, terminal: Terminal) -> int:
    _check(command, options)
    at_controllers = options.has("bootstrap-controller")
    servers = "bootstrap-controller" if at_controllers else "bootstrap-server"
    client = client_settings(options, servers=servers)
    with ClusterClient(client, warn=terminal.warn) as cluster:
        facts = Admin(cluster).describe_cluster(of_controllers=at_controllers)
        active = facts.controller if at_controllers else None
        quorum = describe_quorum(cluster, node_id=active)
        if options.has("status"):
            _show_status(quorum_status(str(facts.cluster_id), quorum), options, terminal)
        else:
            _show_replication(quorum, options, terminal)
    return 0


def _check(command: str | None, options: Options) -> None:
    servers = options.has("bootstrap-server"), options.has("bootstrap-controller")
    if all(servers):
        raise RefusedFlagsError(
            "argument --bootstrap-controller: not allowed with argument --bootstrap-server"
        )
    require_command(command, _COMMANDS)
    if not any(servers):
        raise RefusedFlagsError(
            "one of the arguments --bootstrap-server --bootstrap-controller is required"
        )
    if command != "describe":
        raise ToolError(f"{command} is not served: use kafka-metadata-quorum")
    is_status, is_replication = options.has("status"), options.has("replication")
    if is_status and is_replication:
        raise ToolError(
            "Only one of --status or --replication should be specified with describe sub-command"
        )
    if not is_status and not is_replication:
        raise ToolError(
            "One of --status or --replication must be specified with describe sub-command"
        )
    if is_status and options.has("human-readable"):
        raise ToolError("The option --human-readable is only supported along with --replication")


# ---- describe --status


def _show_status(status: QuorumStatus, options: Options, terminal: Terminal) -> None:
    if options.has("json"):
        terminal.document(status)
        return
    for key, value in to_document(status).items():
        shown = _text(value) if isinstance(value, list) else value
        terminal.line(f"{column_name(key) + ':':<23} {shown}")


def _text(nodes: Iterable[dict[str, Any]]) -> str:
    return f"[{', '.join(map(_node_text, nodes))}]"


def _node_text(node: dict[str, Any]) -> str:
    parts = [f'"id": {node["id"]}']
    if "directoryId" in node:
        parts.append(f'"directoryId": "{node["directoryId"]}"')
    if "endpoints" in node:
        shown = ", ".join(f'"{each}"' for each in node["endpoints"])
        parts.append(f'"endpoints": [{shown}]')
    return f"{{{', '.join(parts)}}}"


# ---- describe --replication


def _show_replication(quorum: QuorumFacts, options: Options, terminal: Terminal) -> None:
    now_ms = terminal.clock.now_ms() if options.has("human-readable") else None
    show_rows(QuorumReplication, list(_replication(quorum, now_ms)), options, terminal)


def _replication(quorum: QuorumFacts, now_ms: int | None) -> Iterator[QuorumReplication]:
    leader = quorum.leader
    followers = [each for each in quorum.voters if each.replica_id != quorum.leader_id]
    for replicas, status in (
        ([leader], "Leader"),
        (followers, "Follower"),
        (quorum.observers, "Observer"),
    ):
        for each in replicas:
            yield QuorumReplication(
                node_id=each.replica_id,
                directory_id=uuid_text(each.directory_id),
                log_end_offset=each.log_end_offset,
                lag=leader.log_end_offset - each.log_end_offset,
                last_fetch_timestamp=relative_time(each.last_fetch_ms, now_ms, "last fetch"),
                last_caught_up_timestamp=relative_time(
                    each.last_caught_up_ms, now_ms, "last caught up"
                ),
                status=status,
            )


def relative_time(time_ms: int, now_ms: int | None, name: str) -> int | str:
    """A time as it is, or with `now_ms` as how long ago it was.

    Raises:
        ToolError: it is after `now_ms`, or not after the epoch.
    """
    if time_ms == -1 or now_ms is None:
        return time_ms
    if not 0 < time_ms <= now_ms:
        raise ToolError(
            "Error while computing relative time, possible drift in system clock.\n"
            f"Current timestamp is {now_ms}, {name} timestamp is {time_ms}"
        )
    return f"{now_ms - time_ms} ms ago"
