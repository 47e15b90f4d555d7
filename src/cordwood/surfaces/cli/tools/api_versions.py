"""`cordwood broker-api-versions`: what kafka-broker-api-versions does.

Source: org.apache.kafka.tools.BrokerApiVersionsCommand, NodeApiVersions.toString (4.4.0).
"""

from __future__ import annotations

from cordwood.client.admin import Admin
from cordwood.client.cluster_client import BrokerEndpoint, ClusterClient
from cordwood.client.session import Versions, api_name
from cordwood.protocol.apis import APIS
from cordwood.queries.cluster import apis_of
from cordwood.surfaces.cli.tools.options import (
    BOOTSTRAP,
    COMMAND_CONFIG,
    COMMON,
    Options,
    Usage,
)
from cordwood.surfaces.cli.tools.tool import Terminal, client_settings, print_error, run_tool

# APIs that brokers serve to clients (ApiKeys.clientApis).
_CLIENT_APIS = frozenset(
    {*range(4), *range(8, 52), 55, 57, 60, 61, *range(64, 67), 68, 69, 71, 72}
    | {*range(74, 82), *range(83, 95)}
)

USAGE = Usage(
    tool="broker-api-versions",
    summary="This tool helps to retrieve broker version information.",
    options=(BOOTSTRAP, COMMAND_CONFIG, *COMMON),
    examples="""\
  cordwood broker-api-versions --bootstrap-server localhost:9092
""",
)


def run(arguments: list[str], terminal: Terminal) -> int:
    """Runs the tool with these flags; returns the exit code."""
    return run_tool(USAGE, arguments, terminal, _body, on_error=print_error)


def _body(options: Options, terminal: Terminal) -> int:
    options.require("bootstrap-server")
    with ClusterClient(client_settings(options), warn=terminal.warn) as cluster:
        nodes = Admin(cluster).describe_cluster().nodes
        found = {node: cluster.versions(node.id) for node in nodes}
    if options.has("json"):
        terminal.document([apis_of(node, versions) for node, versions in found.items()])
        return 0
    for node, versions in found.items():
        terminal.line(f"{node_text(node)} -> {apis_text(versions)}")
    return 0


def node_text(node: BrokerEndpoint) -> str:
    """A node as Kafka's tools print it.

    Source: org.apache.kafka.common.Node.toString.
    """
    rack = "null" if node.rack is None else node.rack
    return f"{node.host}:{node.port} (id: {node.id} rack: {rack} isFenced: false)"


def apis_text(versions: Versions) -> str:
    """The APIs that a node serves, and those for clients that it does not, a line each."""
    keys = sorted(_CLIENT_APIS.union(versions))
    apis = ",\n\t".join(_shown(key, *versions.get(key, (0, -1))) for key in keys)
    return f"(\n\t{apis}\n)"


def _shown(key: int, low: int, high: int) -> str:
    name = api_name(key)
    versions = str(low) if low == high else f"{low} to {high}"
    if name is None:
        return f"UNKNOWN({key}): {versions}"
    if high < low:
        return f"{name}({key}): UNSUPPORTED"
    known = APIS[key]
    if known.max_version < low:
        usable = "unusable: node too new"
    elif high < known.min_version:
        usable = "unusable: node too old"
    else:
        usable = f"usable: {min(known.max_version, high)}"
    return f"{name}({key}): {versions} [{usable}]"
