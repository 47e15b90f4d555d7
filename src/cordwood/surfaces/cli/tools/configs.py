"""`cordwood configs`: what kafka-configs does.

Source: org.apache.kafka.tools.ConfigCommand (4.4.0).
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress

from cordwood.client.admin import Admin
from cordwood.client.cluster_client import ClusterClient
from cordwood.client.configs import DELETE, SET, ConfigFacts, Configs
from cordwood.client.errors import ClientError, NotSupportedError
from cordwood.configs.resource import ConfigResource
from cordwood.model.errors import CordwoodError
from cordwood.queries.configs import AlteredConfigs, ConfigEntities, config_entity
from cordwood.surfaces.cli.tools.config_entities import (
    BROKER_LOGGERS,
    BROKERS,
    CLIENT_METRICS,
    CLIENTS,
    GROUPS,
    IPS,
    TOPICS,
    USERS,
    Entities,
    check,
    entities_of,
)
from cordwood.surfaces.cli.tools.config_texts import parse_added, parse_deleted
from cordwood.surfaces.cli.tools.filters import require_legal_name
from cordwood.surfaces.cli.tools.java_order import java_order
from cordwood.surfaces.cli.tools.options import (
    COMMAND_CONFIG,
    COMMON,
    Option,
    Options,
    Usage,
)
from cordwood.surfaces.cli.tools.quotas import alter_quotas, describe_quotas
from cordwood.surfaces.cli.tools.tool import Terminal, ToolError, client_settings, run_tool

_RESOURCES = {
    TOPICS: ConfigResource.TOPIC,
    BROKERS: ConfigResource.BROKER,
    BROKER_LOGGERS: ConfigResource.BROKER_LOGGER,
    CLIENT_METRICS: ConfigResource.CLIENT_METRICS,
    GROUPS: ConfigResource.GROUP,
}
_TOO_OLD = (
    "The INCREMENTAL_ALTER_CONFIGS API is not supported by the cluster. The API is supported "
    "starting from version 2.3.0. You may want to use an older version of this tool to interact "
    "with your cluster, or upgrade your brokers to version 2.3.0 or newer to avoid this error."
)
_DYNAMIC = {
    TOPICS: "DYNAMIC_TOPIC_CONFIG",
    BROKERS: "DYNAMIC_BROKER_CONFIG",
    CLIENT_METRICS: "DYNAMIC_CLIENT_METRICS_CONFIG",
    GROUPS: "DYNAMIC_GROUP_CONFIG",
}

USAGE = Usage(
    tool="configs",
    summary=(
        "This tool helps to manipulate and describe entity config for a topic, client, user, "
        "broker, ip, client-metrics or group"
    ),
    options=(
        Option("bootstrap-server", "The brokers to begin with.", "HOST:PORT,..."),
        Option("bootstrap-controller", "The controllers to begin with.", "HOST:PORT,..."),
        COMMAND_CONFIG,
        Option("alter", "Change settings."),
        Option("describe", "Show settings."),
        Option("all", "Show all settings, not only those that were set at run time."),
        Option(
            "entity-type",
            "topics, clients, users, brokers, broker-loggers, ips, client-metrics or groups.",
            "TYPE",
        ),
        Option("entity-name", "The name of a topic, client, user, broker …", "NAME"),
        Option("entity-default", "The defaults of clients, users, brokers or ips."),
        Option("add-config", "Settings to set; [] around values with commas.", "K=V,K=[V,V]"),
        Option("add-config-file", "A properties file of settings to set.", "FILE"),
        Option("delete-config", "Settings to remove.", "K,K"),
        Option("topic", "Instead of --entity-type topics --entity-name.", "NAME"),
        Option("client", "Instead of --entity-type clients --entity-name.", "ID"),
        Option("client-defaults", "Instead of --entity-type clients --entity-default."),
        Option("user", "Instead of --entity-type users --entity-name.", "PRINCIPAL"),
        Option("user-defaults", "Instead of --entity-type users --entity-default."),
        Option("broker", "Instead of --entity-type brokers --entity-name.", "ID"),
        Option("broker-defaults", "Instead of --entity-type brokers --entity-default."),
        Option("broker-logger", "Instead of --entity-type broker-loggers …", "ID"),
        Option("ip-defaults", "Instead of --entity-type ips --entity-default."),
        Option("ip", "Instead of --entity-type ips --entity-name.", "IP"),
        Option("group", "Instead of --entity-type groups --entity-name.", "ID"),
        Option("client-metrics", "Instead of --entity-type client-metrics …", "NAME"),
        *COMMON,
    ),
    examples="""\
  cordwood configs --bootstrap-server localhost:9092 --describe --topic orders --all
  cordwood configs --bootstrap-server localhost:9092 --alter --topic orders \\
    --add-config cleanup.policy=[compact,delete],retention.ms=86400000
  cordwood configs --bootstrap-server localhost:9092 --alter --topic orders \\
    --delete-config retention.ms
  cordwood configs --bootstrap-server localhost:9092 --alter --broker-defaults \\
    --add-config log.cleaner.threads=2
""",
)


def run(arguments: list[str], terminal: Terminal) -> int:
    """Runs the tool with these flags; returns the exit code."""

    def explain(error: CordwoodError, terminal: Terminal) -> None:
        if isinstance(error, ClientError):
            terminal.error(
                f"Error while executing config command with args '{' '.join(arguments)}'"
            )
            terminal.error(f"java.util.concurrent.ExecutionException: {error.described}")
        else:
            terminal.error(str(error))

    return run_tool(USAGE, arguments, terminal, _body, on_error=explain)


def _body(options: Options, terminal: Terminal) -> int:
    check(options)
    servers = "bootstrap-server"
    if not options.has(servers):
        servers = "bootstrap-controller"
    entities = entities_of(options)
    settings = client_settings(options, servers=servers)
    if options.has("alter") and len(entities.types) != len(entities.names):
        raise ToolError("An entity name must be specified for every entity type")
    with ClusterClient(settings, warn=terminal.warn) as cluster:
        if options.has("alter"):
            _alter(options, entities, cluster, terminal)
        else:
            _describe(options, entities, cluster, terminal)
    return 0


# ---- alter


def _alter(
    options: Options, entities: Entities, cluster: ClusterClient, terminal: Terminal
) -> None:
    kind, name = entities.types[0], entities.names[0]
    added = parse_added(options)
    deleted = parse_deleted(options)
    if kind in {USERS, CLIENTS, IPS}:
        alter_quotas(cluster, entities, added, deleted)
    else:
        configs = Configs(cluster)
        if kind == BROKER_LOGGERS:
            _check_loggers(configs, name, [*deleted, *added])
        changes: list[tuple[str, int, str | None]] = [(key, DELETE, "") for key in deleted]
        changes += [(key, SET, value) for key, value in added.items()]
        try:
            configs.alter(_RESOURCES[kind], name, changes)
        except NotSupportedError as error:
            raise ToolError(_TOO_OLD) from error
    if options.has("json"):
        terminal.document(
            AlteredConfigs(type=kind, name=name or None, added=added, deleted=deleted)
        )
    elif name:
        terminal.line(f"Completed updating config for {kind[:-1]} {name}.")
    else:
        terminal.line(f"Completed updating default config for {kind} in the cluster.")


def _check_loggers(configs: Configs, broker: str, loggers: Sequence[str]) -> None:
    known = {each.name for each in configs.describe(ConfigResource.BROKER_LOGGER, broker)}
    unknown = [name for name in loggers if name not in known]
    if unknown:
        raise ToolError(f"Invalid broker logger(s): {','.join(unknown)}")


# ---- describe


def _describe(
    options: Options, entities: Entities, cluster: ClusterClient, terminal: Terminal
) -> None:
    kind = entities.types[0]
    if kind in {USERS, CLIENTS, IPS}:
        describe_quotas(cluster, entities, terminal, is_json=options.has("json"))
        return
    name = entities.names[0] if entities.names else None
    describe_all = options.has("all")
    if name is not None and not describe_all and not _exists(cluster, kind, name):
        if options.has("json"):
            terminal.document(ConfigEntities(entities=()))
        else:
            terminal.line(
                f"The {kind[:-1]} '{name}' doesn't exist and doesn't have dynamic config."
            )
        return
    found = []
    for entity in _all_names(cluster, kind) if name is None else [name]:
        if not options.has("json"):
            _show_title(kind, entity, terminal, describe_all=describe_all)
        configs = _configs(cluster, kind, entity, describe_all=describe_all)
        found.append(config_entity(kind, entity, configs))
        if not options.has("json"):
            for config in configs:
                terminal.line(_line(config))
    if options.has("json"):
        terminal.document(ConfigEntities(entities=found))


def _exists(cluster: ClusterClient, kind: str, name: str) -> bool:
    if kind == TOPICS:
        require_legal_name(name)
        return name in {topic.name for topic in Admin(cluster).topics()}
    if kind in {BROKERS, BROKER_LOGGERS}:
        return not name or name in {
            str(node.id) for node in Admin(cluster).describe_cluster().nodes
        }
    return name in set(_all_names(cluster, kind))


def _all_names(cluster: ClusterClient, kind: str) -> list[str]:
    if kind == TOPICS:
        return java_order((topic.name for topic in Admin(cluster).topics()), str)
    if kind in {BROKERS, BROKER_LOGGERS}:
        return [*(str(node.id) for node in Admin(cluster).describe_cluster().nodes), ""]
    if kind == CLIENT_METRICS:
        return java_order(Configs(cluster).resources(ConfigResource.CLIENT_METRICS), str)
    names = [group.group_id for group in Admin(cluster).groups()]
    with suppress(NotSupportedError):
        names += Configs(cluster).resources(ConfigResource.GROUP)
    return list(dict.fromkeys(names))


def _configs(
    cluster: ClusterClient, kind: str, name: str, *, describe_all: bool
) -> list[ConfigFacts]:
    if kind == TOPICS:
        require_legal_name(name)
    source = _DYNAMIC.get(kind)
    if kind == BROKERS and not name:
        source = "DYNAMIC_DEFAULT_BROKER_CONFIG"
    found = Configs(cluster).describe(_RESOURCES[kind], name)
    wanted = [c for c in found if describe_all or source is None or c.source == source]
    return sorted(wanted, key=lambda config: config.name)


def _show_title(kind: str, name: str, terminal: Terminal, *, describe_all: bool) -> None:
    if name:
        which = "All" if describe_all else "Dynamic"
        terminal.line(f"{which} configs for {kind[:-1]} {name} are:")
    else:
        terminal.line(f"Default configs for {kind} in the cluster are:")


def _line(config: ConfigFacts) -> str:
    synonyms = ", ".join(
        f"{synonym.source}:{synonym.name}={_text(synonym.value)}" for synonym in config.synonyms
    )
    sensitive = "true" if config.is_sensitive else "false"
    return f"  {config.name}={_text(config.value)} sensitive={sensitive} synonyms={{{synonyms}}}"


def _text(value: str | None) -> str:
    return "null" if value is None else value
