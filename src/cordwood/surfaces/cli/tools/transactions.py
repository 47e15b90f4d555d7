"""`cordwood transactions`: list, describe and describe-producers of kafka-transactions.

Source: org.apache.kafka.tools.TransactionsCommand, ToolsUtils.prettyPrintTable (4.3.0).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from cordwood.model.errors import CordwoodError
from cordwood.model.topic_partition import TopicPartition
from cordwood.surfaces.cli.tools.options import (
    BOOTSTRAP,
    COMMAND_CONFIG,
    COMMON,
    LONG_MAX,
    Option,
    OptionError,
    Options,
    Usage,
)
from cordwood.surfaces.cli.tools.tool import (
    Terminal,
    ToolError,
    client_settings,
    print_error,
    run_tool,
)
from cordwood.surfaces.client.admin import Admin
from cordwood.surfaces.client.cluster import Cluster
from cordwood.surfaces.client.errors import ClientError, require
from cordwood.surfaces.client.offsets import Offsets
from cordwood.surfaces.client.transactions import describe_transaction

_REQUIRED = {
    "list": (),
    "describe": ("transactional-id",),
    "describe-producers": ("topic", "partition"),
}
_HINT = "Enable debug logging for additional detail."

USAGE = Usage(
    tool="transactions",
    summary=(
        "This tool is used to analyze the transactional state of producers in the cluster. "
        "Commands: list, describe, describe-producers."
    ),
    options=(
        BOOTSTRAP,
        COMMAND_CONFIG,
        Option("duration-filter", "With list: only those that run longer.", "MS"),
        Option("transactional-id-pattern", "With list: only ids that match.", "REGEX"),
        Option("transactional-id", "With describe: the id.", "ID"),
        Option("topic", "With describe-producers: the topic.", "NAME"),
        Option("partition", "With describe-producers: the partition.", "N"),
        Option("broker-id", "With describe-producers: the replica to ask.", "ID"),
        *COMMON,
    ),
    examples="""\
  cordwood transactions --bootstrap-server localhost:9092 list
  cordwood transactions --bootstrap-server localhost:9092 describe-producers \\
    --topic orders --partition 0
""",
)


def run(arguments: list[str], terminal: Terminal) -> int:
    """Does what the flags say; gives the exit code."""
    given, command = _without_command(arguments)
    return run_tool(
        USAGE,
        given or [""],
        terminal,
        lambda options, terminal: _body(command, options, terminal),
        on_error=_explain,
    )


class _RefusedFlagsError(ToolError):
    """Flags that do not go together, told below a short usage."""


def _explain(error: CordwoodError, terminal: Terminal) -> None:
    if isinstance(error, _RefusedFlagsError | OptionError):
        terminal.error("usage: cordwood transactions --bootstrap-server host:port COMMAND ...")
        terminal.error(f"cordwood transactions: error: {error}")
    else:
        print_error(error, terminal)


def _without_command(arguments: Sequence[str]) -> tuple[list[str], str | None]:
    """The flags, and the first word that is neither a flag nor a flag's value."""
    with_value = {f"--{option.name}" for option in USAGE.options if option.placeholder}
    rest: list[str] = []
    is_value = False
    command = None
    for word in arguments:
        if not is_value and command is None and not word.startswith("-"):
            command = word
            continue
        is_value = not is_value and word in with_value
        rest.append("--version" if word == "-v" else "--help" if word == "-h" else word)
    return rest, command


def _body(command: str | None, options: Options, terminal: Terminal) -> int:
    if command is None:
        raise _RefusedFlagsError("too few arguments")
    if command not in _REQUIRED:
        names = ", ".join(f"'{name}'" for name in _REQUIRED)
        raise _RefusedFlagsError(f"invalid choice: '{command}' (choose from {names})")
    for name in (*_REQUIRED[command], "bootstrap-server"):
        if not options.has(name):
            raise _RefusedFlagsError(f"argument --{name} is required")
    client = client_settings(options)
    with Cluster(client, warn=terminal.warn) as cluster:
        if command == "list":
            _list(options, cluster, terminal)
        elif command == "describe":
            _describe(options, cluster, terminal)
        else:
            _describe_producers(options, cluster, terminal)
    return 0


def _list(options: Options, cluster: Cluster, terminal: Terminal) -> None:
    fields = {
        "duration_filter": options.number("duration-filter", bound=LONG_MAX) or -1,
        "transactional_id_pattern": options.value("transactional-id-pattern"),
    }
    rows = []
    try:
        for node in Admin(cluster).describe_cluster().nodes:
            answer = cluster.call("list_transactions", fields, node_id=node.id)
            require(answer.error_code)
            rows += [
                [state.transactional_id, node.id, state.producer_id, state.transaction_state]
                for state in answer.transaction_states
            ]
    except ClientError as error:
        raise ToolError(f"Failed to list transactions: {error}. {_HINT}") from error
    headers = ["TransactionalId", "Coordinator", "ProducerId", "TransactionState"]
    _show(headers, rows, options, terminal)


def _describe(options: Options, cluster: Cluster, terminal: Terminal) -> None:
    wanted = options.required("transactional-id")
    try:
        found = describe_transaction(cluster, wanted)
    except ClientError as error:
        raise ToolError(
            f"Failed to describe transaction state of transactional-id `{wanted}`: {error}. {_HINT}"
        ) from error
    started = found.started_ms
    headers = [
        *("CoordinatorId", "TransactionalId", "ProducerId", "ProducerEpoch", "TransactionState"),
        *("TransactionTimeoutMs", "CurrentTransactionStartTimeMs", "TransactionDurationMs"),
        "TopicPartitions",
    ]
    row = [
        found.coordinator,
        wanted,
        found.producer_id,
        found.producer_epoch,
        found.state,
        found.timeout_ms,
        "None" if started < 0 else started,
        "None" if started < 0 else terminal.clock.now_ms() - started,
        ",".join(found.partitions),
    ]
    _show(headers, [row], options, terminal)


def _describe_producers(options: Options, cluster: Cluster, terminal: Terminal) -> None:
    partition = options.number("partition")
    assert partition is not None, "checked before"
    tp = TopicPartition(options.required("topic"), partition)
    broker = options.number("broker-id")
    where = "leader" if broker is None else f"broker {broker}"
    try:
        if broker is None:
            ((broker, _),) = Offsets(cluster).leaders([tp]).items()
        else:
            Admin(cluster).describe_cluster()
        topic = {"name": tp.topic, "partition_indexes": [tp.partition]}
        answer = cluster.call("describe_producers", {"topics": [topic]}, node_id=broker)
        ((state,),) = (topic.partitions for topic in answer.topics)
        require(state.error_code, state.error_message)
    except ClientError as error:
        raise ToolError(
            f"Failed to describe producers for partition {tp} on {where}: {error}. {_HINT}"
        ) from error
    headers = [
        *("ProducerId", "ProducerEpoch", "LatestCoordinatorEpoch", "LastSequence"),
        *("LastTimestamp", "CurrentTransactionStartOffset"),
    ]
    rows = [
        [
            one.producer_id,
            one.producer_epoch,
            one.coordinator_epoch,
            one.last_sequence,
            one.last_timestamp,
            "None" if one.current_txn_start_offset < 0 else one.current_txn_start_offset,
        ]
        for one in state.active_producers
    ]
    _show(headers, rows, options, terminal)


def _show(
    headers: Sequence[str], rows: Sequence[Sequence[Any]], options: Options, terminal: Terminal
) -> None:
    if options.has("json"):
        names = [header[0].lower() + header[1:] for header in headers]
        terminal.document([dict(zip(names, row, strict=True)) for row in rows])
        return
    table = [list(headers), *([str(cell) for cell in row] for row in rows)]
    widths = [max(len(cells[column]) for cells in table) for column in range(len(headers))]
    for cells in table:
        terminal.line(
            "".join(f"{cell:<{width}}\t" for cell, width in zip(cells, widths, strict=True))
        )
