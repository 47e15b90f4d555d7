"""`cordwood cluster`: what kafka-cluster does, and `cordwood cluster up`, which it does not have.

Source: org.apache.kafka.tools.ClusterTool (4.4.0).
"""

from __future__ import annotations

from collections.abc import Sequence

from cordwood.client.admin import Admin, ClusterFacts
from cordwood.client.cluster_client import BrokerEndpoint, ClusterClient
from cordwood.client.errors import ClientError, NotSupportedError, RefusedError
from cordwood.model.error_codes import ErrorCode
from cordwood.model.errors import CordwoodError
from cordwood.queries.cluster import (
    ClusterId,
    UnregisteredBroker,
    UnregisteredController,
    apis_of,
    endpoint_of,
)
from cordwood.surfaces.cli.tools.api_versions import apis_text, node_text
from cordwood.surfaces.cli.tools.options import (
    COMMAND_CONFIG,
    COMMON,
    Option,
    Options,
    Usage,
    java_integer,
)
from cordwood.surfaces.cli.tools.tool import (
    RefusedFlagsError,
    Terminal,
    ToolError,
    client_settings,
    require_command,
    run_tool,
)

_SHORT = {"-b": "--bootstrap-server", "-C": "--bootstrap-controller", "-c": "--command-config"}
_SHORT |= {"-i": "--id", "-h": "--help"}
_UNREGISTER = {"unregister": "broker", "unregister-controller": "controller"}
_COMMANDS = ("cluster-id", *_UNREGISTER, "list-endpoints", "api-versions")
_UP = "up"
_CONTROLLERS = "bootstrap-controller"

USAGE = Usage(
    tool="cluster",
    summary="The Kafka cluster tool. Commands: cluster-id, unregister, unregister-controller, "
    "list-endpoints, api-versions; and Cordwood's own, up, which starts a local cluster for "
    "development (cordwood cluster up -h).",
    options=(
        Option("bootstrap-server", "The brokers to begin with (-b).", "HOST:PORT,..."),
        Option("bootstrap-controller", "The controllers to begin with (-C).", "HOST:PORT,..."),
        COMMAND_CONFIG,
        Option("config", "Deprecated: --command-config.", "FILE"),
        Option(
            "id",
            "With unregister: the broker (-i); with unregister-controller: the controller.",
            "ID",
        ),
        Option("include-fenced-brokers", "With list-endpoints: fenced brokers too."),
        *COMMON,
    ),
    examples="""\
  cordwood cluster cluster-id --bootstrap-server localhost:9092
  cordwood cluster list-endpoints --bootstrap-server localhost:9092
  cordwood cluster api-versions --bootstrap-server localhost:9092
  cordwood cluster unregister --bootstrap-server localhost:9092 --id 3
  cordwood cluster unregister-controller --bootstrap-server localhost:9092 --id 3002
  cordwood cluster up --brokers 3
""",
)


def run(arguments: list[str], terminal: Terminal) -> int:
    """Runs the tool with these flags; returns the exit code."""
    if arguments[:1] == [_UP]:
        from cordwood.surfaces.cli.tools import cluster_up  # noqa: PLC0415  # it starts nodes

        return cluster_up.run(arguments[1:], terminal)
    command = next((word for word in arguments if not word.startswith("-")), None)
    given = [_SHORT.get(word, word) for word in arguments]
    if command in _COMMANDS:
        given.remove(command)
    return run_tool(
        USAGE,
        given or [""],
        terminal,
        lambda options, terminal: _body(command, options, terminal),
        on_error=_explain,
    )


def _explain(error: CordwoodError, terminal: Terminal) -> None:
    if isinstance(error, RefusedFlagsError):
        terminal.error(f"usage: cordwood cluster {{{','.join(_COMMANDS)}}} ...")
        terminal.error(f"cordwood cluster: error: {error}")
    elif isinstance(error, ClientError):
        terminal.error(f"java.util.concurrent.ExecutionException: {error.described}")
    else:
        terminal.error(str(error))


def _body(command: str | None, options: Options, terminal: Terminal) -> int:
    _check(command, options)
    if options.has("config"):
        if options.has("command-config"):
            raise ToolError("--config and --command-config cannot be specified together.")
        terminal.line(
            "Option --config has been deprecated and will be removed in a future version. Use "
            "--command-config instead."
        )
    servers = "bootstrap-server"
    if not options.has(servers):
        servers = _CONTROLLERS
        if options.has("include-fenced-brokers"):
            raise ToolError(
                "The option --include-fenced-brokers is only supported with --bootstrap-server "
                "option"
            )
    client = client_settings(options, servers=servers)
    with ClusterClient(client, warn=terminal.warn) as cluster:
        admin = Admin(cluster)
        if command in _UNREGISTER:
            _unregister(_UNREGISTER[command], options, admin, terminal)
        elif command == "list-endpoints":
            _list(options, admin, terminal)
        else:
            facts = admin.describe_cluster(of_controllers=servers == _CONTROLLERS)
            if command == "api-versions":
                _show_apis(facts.nodes, cluster, options, terminal)
            elif options.has("json"):
                terminal.document(ClusterId(cluster_id=facts.cluster_id))
            else:
                terminal.line(f"Cluster ID: {facts.cluster_id}")
    return 0


def _show_apis(
    nodes: Sequence[BrokerEndpoint], cluster: ClusterClient, options: Options, terminal: Terminal
) -> None:
    nodes = sorted(nodes, key=lambda node: node.id)
    if options.has("json"):
        terminal.document([apis_of(node, cluster.versions(node.id)) for node in nodes])
        return
    for node in nodes:
        try:
            shown = apis_text(cluster.versions(node.id))
        except ClientError as error:
            shown = f"ERROR: {error.described}"
        terminal.line(f"{node_text(node)} -> {shown}")


def _check(command: str | None, options: Options) -> None:
    require_command(command, _COMMANDS)
    servers = options.has("bootstrap-server"), options.has("bootstrap-controller")
    if all(servers):
        raise RefusedFlagsError(
            "argument --bootstrap-server/-b: not allowed with argument --bootstrap-controller/-C"
        )
    if command in _UNREGISTER:
        if not options.has("id"):
            raise RefusedFlagsError("argument --id/-i is required")
        text = options.required("id")
        if java_integer(text) is None:
            raise RefusedFlagsError(
                f"argument --id/-i: could not convert '{text}' to Integer (For input string: "
                f'"{text}")'
            )
    if not any(servers):
        raise RefusedFlagsError(
            "one of the arguments --bootstrap-server/-b --bootstrap-controller/-C is required"
        )


def _unregister(kind: str, options: Options, admin: Admin, terminal: Terminal) -> None:
    """Removes the registration of a broker or a controller, as `kind` says."""
    node_id = options.number("id")
    assert node_id is not None, "checked before"
    is_broker = kind == "broker"
    try:
        if is_broker:
            admin.unregister_broker(node_id)
        else:
            admin.unregister_controller(node_id)
    except NotSupportedError:
        terminal.line(f"The target cluster does not support the {kind} unregistration API.")
        return
    except RefusedError as error:
        terminal.log(
            "ERROR",
            f"[AdminClient clientId=adminclient-1] Unregister {kind} request for {kind} ID "
            f"{node_id} failed: {error}",
            "org.apache.kafka.clients.admin.KafkaAdminClient",
        )
        if error.code == ErrorCode.UNSUPPORTED_VERSION:
            terminal.line(f"The target cluster does not support the {kind} unregistration API.")
            return
        raise
    if options.has("json"):
        answer = UnregisteredBroker if is_broker else UnregisteredController
        terminal.document(answer(unregistered=node_id))
    else:
        terminal.line(f"{kind.capitalize()} {node_id} is no longer registered.")


def _list(options: Options, admin: Admin, terminal: Terminal) -> None:
    try:
        facts = admin.describe_cluster(
            include_fenced=options.has("include-fenced-brokers"),
            of_controllers=options.has(_CONTROLLERS),
        )
    except NotSupportedError as error:
        terminal.line(str(error))
        return
    if options.has("json"):
        terminal.document(
            [
                endpoint_of(node, is_fenced=node.id in facts.fenced, kind=_type(options))
                for node in facts.nodes
            ]
        )
    else:
        _show(facts, options, terminal)


def _type(options: Options) -> str:
    return "broker" if options.has("bootstrap-server") else "controller"


def _show(facts: ClusterFacts, options: Options, terminal: Terminal) -> None:
    host = max((len(node.host) for node in facts.nodes), default=100)
    rack = max((len(node.rack) for node in facts.nodes if node.rack is not None), default=10)
    kind = _type(options)
    has_state = kind == "broker"

    def line(cells: list[str], state: str) -> str:
        number, name, port, where = cells
        text = f"{number:<10} {name:<{host}} {port:<10} {where:<{rack}} "
        return text + (f"{state:<10} " if has_state else "")

    header = line(["ID", "HOST", "PORT", "RACK"], "STATE")
    terminal.line(f"{header}{'ENDPOINT_TYPE':<15}")
    for node in facts.nodes:
        shown = line(
            [str(node.id), node.host, str(node.port), "null" if node.rack is None else node.rack],
            "fenced" if node.id in facts.fenced else "unfenced",
        )
        terminal.line(f"{shown}{kind:<15}")
