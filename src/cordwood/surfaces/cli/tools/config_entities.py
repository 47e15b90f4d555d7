"""Entities of `cordwood configs`, and the flags that go together.

Source: org.apache.kafka.tools.ConfigCommand.ConfigCommandOptions (4.4.0).
"""

from __future__ import annotations

from typing import NamedTuple

from cordwood.controller.host_lookup import is_host
from cordwood.surfaces.cli.tools.options import Options, UsageError, java_integer
from cordwood.surfaces.cli.tools.tool import ToolError

TOPICS, CLIENTS, USERS, BROKERS = "topics", "clients", "users", "brokers"
BROKER_LOGGERS, IPS, CLIENT_METRICS, GROUPS = "broker-loggers", "ips", "client-metrics", "groups"

_TYPES = (BROKER_LOGGERS, TOPICS, CLIENTS, USERS, BROKERS, IPS, CLIENT_METRICS, GROUPS)
_NAME_FLAGS = {
    "topic": TOPICS,
    "client": CLIENTS,
    "user": USERS,
    "broker": BROKERS,
    "broker-logger": BROKER_LOGGERS,
    "ip": IPS,
    "client-metrics": CLIENT_METRICS,
    "group": GROUPS,
}
_DEFAULT_FLAGS = {
    "client-defaults": CLIENTS,
    "user-defaults": USERS,
    "broker-defaults": BROKERS,
    "ip-defaults": IPS,
}
_HAVE_DEFAULTS = frozenset({USERS, CLIENTS, BROKERS, IPS})


class Entities(NamedTuple):
    """Types and names, as given; an empty name means the defaults."""

    types: list[str]
    names: list[str]


def entities_of(options: Options) -> Entities:
    """The entities that the flags select."""
    names = [
        value or "" for flag, value in options.given if flag in {"entity-name", "entity-default"}
    ]
    types = options.values("entity-type")
    for flag, kind in _NAME_FLAGS.items():
        if options.has(flag):
            types.append(kind)
            names.append(options.required(flag))
    for flag, kind in _DEFAULT_FLAGS.items():
        if options.has(flag):
            types.append(kind)
            names.append("")
    return Entities(types, names)


def check(options: Options) -> None:
    """Refuses flags that do not go together.

    Raises:
        UsageError: shown with the usage.
        ToolError: shown alone.
    """
    if options.has("alter") == options.has("describe"):
        raise UsageError("Command must include exactly one action: --describe, --alter")
    options.forbid("describe", "alter", "add-config", "delete-config")
    entities = entities_of(options)
    _check_types(options, entities.types)
    _check_names(options, entities)
    if options.has("describe"):
        _check_describe(options, entities)
    else:
        _check_alter(options, entities)


def _check_types(options: Options, types: list[str]) -> None:
    twice = [kind for index, kind in enumerate(types) if kind in types[:index]]
    if twice:
        raise ToolError(f"Duplicate entity type(s) specified: {','.join(twice)}")
    if not options.has("bootstrap-server") and not options.has("bootstrap-controller"):
        raise ToolError("Either --bootstrap-server or --bootstrap-controller must be specified.")
    for kind in types:
        if kind not in _TYPES:
            raise ToolError(
                f"Invalid entity type {kind}, the entity type must be one of {', '.join(_TYPES)} "
                "with a --bootstrap-server or --bootstrap-controller argument"
            )
    if not types:
        raise ToolError("At least one entity type must be specified")
    if len(types) > 1 and set(types) != {USERS, CLIENTS}:
        raise ToolError(f"Only '{USERS}' and '{CLIENTS}' entity types may be specified together")
    flags = ("entity-name", "entity-type", "entity-default")
    if any(map(options.has, flags)) and any(map(options.has, [*_NAME_FLAGS, *_DEFAULT_FLAGS])):
        raise ToolError(
            "--entity-{type,name,default} should not be used in conjunction with specific entity "
            "flags"
        )


def _check_names(options: Options, entities: Entities) -> None:
    if options.has("bootstrap-server") and options.has("bootstrap-controller"):
        raise ToolError("Only one of --bootstrap-server or --bootstrap-controller can be specified")
    if not any(entities.names):
        return
    first = entities.types[0]
    if BROKERS in entities.types or BROKER_LOGGERS in entities.types:
        for flag in ("entity-name", "broker", "broker-logger"):
            name = options.value(flag)
            if name is not None and java_integer(name) is None:
                raise ToolError(
                    f"The entity name for {first} must be a valid integer broker id, but it is: "
                    f"{name}"
                )
    if IPS in entities.types:
        for flag in ("entity-name", "ip"):
            name = options.value(flag)
            if name is not None and not is_host(name):
                raise ToolError(
                    f"The entity name for {first} must be a valid IP or resolvable host, but it "
                    f"is: {name}"
                )


def _check_describe(options: Options, entities: Entities) -> None:
    types = ",".join(entities.types)
    if not _HAVE_DEFAULTS & set(entities.types) and options.has("entity-default"):
        raise ToolError(f"--entity-default must not be specified with --describe of {types}")
    if BROKER_LOGGERS in entities.types and not any(entities.names):
        raise ToolError(f"An entity name must be specified with --describe of {types}")


def _check_alter(options: Options, entities: Entities) -> None:
    if _HAVE_DEFAULTS & set(entities.types):
        if not entities.names:
            raise ToolError(
                "An entity-name or default entity must be specified with --alter of users, "
                "clients, brokers or ips"
            )
    elif not any(entities.names):
        raise ToolError(
            f"An entity name must be specified with --alter of {','.join(entities.types)}"
        )
    if options.has("add-config") and options.has("add-config-file"):
        raise ToolError("Only one of --add-config or --add-config-file must be specified")
    if not any(map(options.has, ("add-config", "add-config-file", "delete-config"))):
        raise ToolError(
            "At least one of --add-config, --add-config-file, or --delete-config must be "
            "specified with --alter"
        )
