"""`cordwood features`: what kafka-features does.

Source: org.apache.kafka.tools.FeatureCommand (4.4.0); KIP-584, KIP-778, KIP-1022.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from cordwood.client.cluster_client import ClusterClient
from cordwood.client.errors import ClientError
from cordwood.client.features import FeatureChange, describe_features, update_features
from cordwood.metadata.controller_requests import SAFE_DOWNGRADE, UNSAFE_DOWNGRADE, UPGRADE
from cordwood.metadata.feature_levels import KNOWN_FEATURES, METADATA_VERSION
from cordwood.metadata.releases import RELEASES, UNSTABLE_RELEASE, release_levels, release_name
from cordwood.model.errors import CordwoodError
from cordwood.queries.features import DescribedFeature, UpdatedFeature
from cordwood.surfaces.cli.tools.options import (
    COMMAND_CONFIG,
    COMMON,
    Option,
    OptionError,
    Options,
    Usage,
)
from cordwood.surfaces.cli.tools.storage_features import (
    java_short,
    named_release,
    show_mapping,
    show_needs,
)
from cordwood.surfaces.cli.tools.tool import (
    RefusedFlagsError,
    Terminal,
    ToolError,
    client_settings,
    refusal,
    require_command,
    run_tool,
    split_command,
)

_SERVERS: Final = ("bootstrap-server", "bootstrap-controller")
#: The options of each command, besides those of all.
_OPTIONS: Final[Mapping[str, frozenset[str]]] = {
    "describe": frozenset({"node-id"}),
    "upgrade": frozenset({"metadata", "release-version", "feature", "dry-run"}),
    "downgrade": frozenset({"metadata", "release-version", "feature", "unsafe", "dry-run"}),
    "disable": frozenset({"feature", "unsafe", "dry-run"}),
    "version-mapping": frozenset({"release-version"}),
    "feature-dependencies": frozenset({"feature"}),
}
_SHORT: Final = {"-h": "--help"}
_NO_LEVEL: Final = "No feature:{name} with feature level {level}"
_MAPPED: Final = (*RELEASES, UNSTABLE_RELEASE)

USAGE = Usage(
    tool="features",
    summary="This tool manages feature flags in Kafka. Commands: describe, upgrade, downgrade, "
    "disable, version-mapping (the levels that a release brings), feature-dependencies.",
    options=(
        Option("bootstrap-server", "The brokers to begin with.", "HOST:PORT,..."),
        Option("bootstrap-controller", "The controllers to begin with.", "HOST:PORT,..."),
        COMMAND_CONFIG,
        Option("node-id", "With describe: the node to ask.", "ID"),
        Option("feature", "The level of a feature, or its name with disable.", "NAME=LEVEL"),
        Option("release-version", "The release whose levels are meant.", "RELEASE"),
        Option("metadata", "Deprecated: the release whose metadata.version is meant.", "RELEASE"),
        Option("unsafe", "With downgrade and disable: even if metadata may be lost."),
        Option("dry-run", "Check the change, and do not make it."),
        *COMMON,
    ),
    examples="""\
  cordwood features --bootstrap-server localhost:9092 describe
  cordwood features --bootstrap-server localhost:9092 upgrade --feature metadata.version=33
  cordwood features --bootstrap-server localhost:9092 downgrade --release-version 4.3 --dry-run
  cordwood features version-mapping --release-version 4.4
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
    if isinstance(error, RefusedFlagsError | OptionError):
        terminal.error(f"Command line error: {refusal(error)}. Type --help for help.")
    elif isinstance(error, ClientError):
        terminal.error(f"java.util.concurrent.ExecutionException: {error.described}")
    else:
        terminal.error(str(error))


def _body(command: str | None, options: Options, terminal: Terminal) -> int:
    command = _checked(command, options)
    if command == "version-mapping":
        return show_mapping(options, terminal)
    if command == "feature-dependencies":
        return show_needs(options, terminal, parse=_name_and_level, no_level=_NO_LEVEL)
    servers = next((each for each in _SERVERS if options.has(each)), None)
    if servers is None:
        raise RefusedFlagsError(
            "You must specify either --bootstrap-controller or --bootstrap-server."
        )
    with ClusterClient(client_settings(options, servers=servers), warn=terminal.warn) as cluster:
        if command == "describe":
            return _describe(cluster, options, terminal)
        changes = _changes(command, options, terminal)
        return _update(command, cluster, changes, options, terminal)


def _checked(command: str | None, options: Options) -> str:
    command = require_command(command, tuple(_OPTIONS))
    known = {*_SERVERS, COMMAND_CONFIG.name, *(each.name for each in COMMON), *_OPTIONS[command]}
    for name, _ in options.given:
        if name not in known:
            raise RefusedFlagsError(f"unrecognized arguments: '--{name}'")
    if all(map(options.has, _SERVERS)):
        raise RefusedFlagsError(
            "argument --bootstrap-controller: not allowed with argument --bootstrap-server"
        )
    if command == "feature-dependencies" and not options.has("feature"):
        raise RefusedFlagsError("argument --feature is required")
    return command


# ---- describe


def _describe(cluster: ClusterClient, options: Options, terminal: Terminal) -> int:
    node_id = options.number("node-id")
    if node_id is not None and node_id < 0:
        raise ToolError(f"Invalid node id {node_id}: must be non-negative.")
    facts = describe_features(
        cluster, node_id=node_id, of_controllers=options.has("bootstrap-controller")
    )
    found = [
        DescribedFeature(
            feature=name,
            supported_min=lowest,
            supported_max=highest,
            finalized=facts.finalized.get(name, 0),
            epoch=facts.epoch,
        )
        for name, (lowest, highest) in sorted(facts.supported.items())
    ]
    if options.has("json"):
        terminal.document(found)
        return 0
    for each in found:
        lowest, highest, level = (
            _level_text(each.feature, level)
            for level in (each.supported_min, each.supported_max, each.finalized)
        )
        terminal.line(
            f"Feature: {each.feature:<40}  SupportedMinVersion: {lowest:<15}  "
            f"SupportedMaxVersion: {highest:<15}  FinalizedVersionLevel: {level:<15}  "
            f"Epoch: {'-' if each.epoch is None else each.epoch}"
        )
    return 0


def _level_text(name: str, level: int) -> str:
    if name != METADATA_VERSION:
        return str(level)
    first = KNOWN_FEATURES[METADATA_VERSION][0]
    return release_name(level) if 0 <= level - first < len(_MAPPED) else f"UNKNOWN {level}"


# ---- upgrade, downgrade, disable


def _changes(command: str, options: Options, terminal: Terminal) -> dict[str, FeatureChange]:
    kind = UPGRADE
    if command != "upgrade":
        kind = UNSAFE_DOWNGRADE if options.has("unsafe") else SAFE_DOWNGRADE
    given = options.values("feature")
    levels: dict[str, int] = {}
    if (text := options.value("release-version")) is not None:
        if given or options.has("metadata"):
            raise ToolError("Can not specify `release-version` with other feature flags.")
        for name, level in release_levels(named_release(text, _MAPPED)).items():
            if level or command != "upgrade":
                levels[name] = level
    if (text := options.value("metadata")) is not None:
        terminal.line(" `metadata` flag is deprecated and may be removed in a future release.")
        levels[METADATA_VERSION] = release_levels(named_release(text, _MAPPED))[METADATA_VERSION]
    for each in given:
        name, level = (each, 0) if command == "disable" else _name_and_level(each)
        if level == 0 and kind == UPGRADE:
            raise ToolError(
                "The upgradeType flag should be set to SAFE_DOWNGRADE or UNSAFE_DOWNGRADE when the "
                "provided maxVersionLevel:0 is < 1."
            )
        if level < 0:
            raise ToolError("Cannot specify a negative version level.")
        if name in levels:
            raise ToolError(f"Feature {name} was specified more than once.")
        levels[name] = level
    if not levels:
        raise ToolError(f"You must specify at least one feature to {command}")
    return {name: FeatureChange(name, level, kind) for name, level in levels.items()}


def _name_and_level(text: str) -> tuple[str, int]:
    name, equals, level = text.partition("=")
    refusal = f"Can't parse feature=level string {text}: "
    if not equals:
        raise ToolError(f"{refusal}equals sign not found.")
    number = java_short(level.strip())
    if number is None:
        raise ToolError(f"{refusal}unable to parse {level.strip()} as a short.")
    return name.strip(), number


def _update(
    command: str,
    cluster: ClusterClient,
    changes: Mapping[str, FeatureChange],
    options: Options,
    terminal: Terminal,
) -> int:
    is_dry = options.has("dry-run")
    errors = update_features(cluster, changes.values(), validate_only=is_dry)
    updated = [
        UpdatedFeature(
            feature=name, level=changes[name].level, error=None if error is None else str(error)
        )
        for name, error in sorted(errors.items())
    ]
    if options.has("json"):
        terminal.document(updated)
    else:
        for each in updated:
            terminal.line(_said(command, each, is_dry=is_dry))
    failed = sum(1 for each in updated if each.error is not None)
    if failed:
        terminal.error(f"{failed} out of {len(updated)} operation(s) failed.")
    return 1 if failed else 0


def _said(command: str, each: UpdatedFeature, *, is_dry: bool) -> str:
    is_disabled = command == "disable"
    if each.error is not None:
        what = each.feature if is_disabled else f"{each.feature} to {each.level}"
        return f"{'Can not' if is_dry else 'Could not'} {command} {what}. {each.error}"
    done = "disabled." if is_disabled else f"{command}d to {each.level}."
    return f"{each.feature}{' can be ' if is_dry else ' was '}{done}"
