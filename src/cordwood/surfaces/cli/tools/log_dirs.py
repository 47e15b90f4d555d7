"""`cordwood log-dirs`: what kafka-log-dirs does.

Source: org.apache.kafka.tools.LogDirsCommand (4.4.0).
"""

from __future__ import annotations

from collections.abc import Sequence

from cordwood.client.admin import Admin, LogDirFacts
from cordwood.client.cluster_client import ClusterClient
from cordwood.client.errors import RefusedError
from cordwood.model.documents import to_document
from cordwood.queries.broker_log_dirs import (
    BrokerLogDir,
    BrokerLogDirs,
    ClusterLogDirs,
    ReplicaSize,
)
from cordwood.surfaces.cli.tools.java_order import java_order, partition_hash
from cordwood.surfaces.cli.tools.options import (
    BOOTSTRAP,
    COMMAND_CONFIG,
    COMMON,
    Option,
    Options,
    Usage,
)
from cordwood.surfaces.cli.tools.tool import (
    Terminal,
    ToolError,
    client_settings,
    parse_broker_id,
    print_error,
    run_tool,
)
from cordwood.surfaces.dump.java_text import json_text

USAGE = Usage(
    tool="log-dirs",
    summary="This tool helps to query log directory usage on the specified brokers.",
    options=(
        BOOTSTRAP,
        COMMAND_CONFIG,
        Option("describe", "Required: show log directories and what is in them."),
        Option("topic-list", "Only these topics.", "NAME,NAME", default=""),
        Option("broker-list", "Only these brokers.", "ID,ID", default=""),
        *COMMON,
    ),
    notes="With --json, standard output has only the JSON document.",
    examples="""\
  cordwood log-dirs --bootstrap-server localhost:9092 --describe --topic-list orders
""",
)


def run(arguments: list[str], terminal: Terminal) -> int:
    """Runs the tool with these flags; returns the exit code."""
    return run_tool(USAGE, arguments, terminal, _body, on_error=print_error)


def _body(options: Options, terminal: Terminal) -> int:
    options.require("bootstrap-server", "describe")
    topics = _names(options, "topic-list")
    wanted = [parse_broker_id(text) for text in _names(options, "broker-list")]
    client = client_settings(options, client_id="log-dirs-tool")
    with ClusterClient(client, warn=terminal.warn) as cluster:
        admin = Admin(cluster)
        known = [node.id for node in admin.describe_cluster().nodes]
        unknown = [broker for broker in wanted if broker not in known]
        if unknown:
            raise ToolError(
                f"ERROR: The given brokers do not exist from --broker-list: {_ids(unknown)}. "
                f"Current existent brokers: {_ids(known)}"
            )
        brokers = java_order(dict.fromkeys(wanted or known), lambda broker: broker)
        if not options.has("json"):
            terminal.line("Querying brokers for log directories information")
        found = {broker: admin.describe_log_dirs(broker) for broker in brokers}
    if not options.has("json"):
        terminal.line(f"Received log directory information from brokers {_ids(brokers)}")
    answer = ClusterLogDirs(
        brokers=[
            BrokerLogDirs(
                broker=broker, log_dirs=[_log_dir(each, topics) for each in _ordered(dirs)]
            )
            for broker, dirs in found.items()
        ]
    )
    if options.has("json"):
        terminal.document(answer)
    else:
        terminal.line(json_text(to_document(answer)))
    return 0


def _names(options: Options, flag: str) -> list[str]:
    return [name for name in options.required(flag).split(",") if name]


def _ids(ids: Sequence[int]) -> str:
    return ",".join(map(str, ids))


def _ordered(dirs: Sequence[LogDirFacts]) -> list[LogDirFacts]:
    return java_order(dirs, lambda one: one.path, capacity=len(dirs))


def _log_dir(facts: LogDirFacts, topics: Sequence[str]) -> BrokerLogDir:
    # The order of the replicas is that of the hash map that holds them in Kafka's tool.
    replicas = java_order(facts.replicas, partition_hash)
    wanted = [tp for tp in replicas if not topics or tp.topic in topics]
    return BrokerLogDir(
        partitions=[
            ReplicaSize(
                partition=str(tp),
                size=facts.replicas[tp].size_bytes,
                offset_lag=facts.replicas[tp].offset_lag,
                is_future=facts.replicas[tp].is_future,
            )
            for tp in java_order(wanted, partition_hash)
        ],
        error=RefusedError(facts.error_code).java_class if facts.error_code else None,
        log_dir=facts.path,
    )
