"""`cordwood storage`: what kafka-storage does.

Source: kafka.tools.StorageTool, org.apache.kafka.metadata.storage.Formatter (4.3.0, 4.4.0);
KIP-853, KIP-1022.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from cordwood.configs.broker_config import (
    BrokerConfig,
)
from cordwood.configs.listeners import listeners_of
from cordwood.configs.table import broker_settings
from cordwood.configs.texts import (
    java_order,
    parse_texts,
)
from cordwood.format.file_names import META_PROPERTIES
from cordwood.format.meta_properties import MetaProperties
from cordwood.format.properties import parse_properties
from cordwood.metadata.formatting import Voters, format_directories, read_directory, require_own
from cordwood.metadata.image import Endpoint
from cordwood.metadata.releases import (
    DEFAULT_RELEASE,
    LATEST_RELEASE,
    RELEASES,
    FeatureLevelError,
    feature_levels,
    release_name,
)
from cordwood.model.errors import ConfigError, CordwoodError, CorruptError
from cordwood.model.rng import SystemRng
from cordwood.model.uuids import fresh_uuid, uuid_text
from cordwood.queries.storage import (
    FormattedStorage,
    RandomUuid,
    StorageInfo,
)
from cordwood.storage.filesystem import OS
from cordwood.surfaces.cli.tools.options import COMMON, Option, OptionError, Options, Usage
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
    refusal,
    require_command,
    run_tool,
    split_command,
)

_COMMANDS: Final = ("info", "format", "version-mapping", "feature-dependencies", "random-uuid")
_SHORT: Final = {
    "-c": "--config",
    "-t": "--cluster-id",
    "-S": "--add-scram",
    "-g": "--ignore-formatted",
    "-r": "--release-version",
    "-f": "--feature",
    "-s": "--standalone",
    "-N": "--no-initial-controllers",
    "-I": "--initial-controllers",
    "-h": "--help",
}
_LONG: Final = {long: short for short, long in _SHORT.items()}
#: The options of each command, besides those of all; first those that it needs.
_OPTIONS: Final[Mapping[str, tuple[tuple[str, ...], frozenset[str]]]] = {
    "info": (("config",), frozenset()),
    "format": (
        ("cluster-id", "config"),
        frozenset(
            {
                "add-scram",
                "ignore-formatted",
                "release-version",
                "feature",
                "standalone",
                "no-initial-controllers",
                "initial-controllers",
            }
        ),
    ),
    "version-mapping": ((), frozenset({"release-version"})),
    "feature-dependencies": (("feature",), frozenset()),
    "random-uuid": ((), frozenset()),
}
_EXCLUSIVE: Final = ("standalone", "no-initial-controllers", "initial-controllers")
_ENSEMBLE: Final = "org.apache.kafka.metadata.properties.MetaPropertiesEnsemble"

USAGE = Usage(
    tool="storage",
    summary="The Kafka storage tool. Commands: info (show the log directories), format "
    "(format unformatted directories), version-mapping (the levels of features that a release "
    "brings), feature-dependencies (what levels of features need), random-uuid (print an id for a "
    "new cluster).",
    options=(
        Option("config", "With info and format: the server.properties (-c).", "FILE"),
        Option("cluster-id", "With format: the id of the cluster (-t).", "ID"),
        Option("standalone", "The node is the one voter of a dynamic quorum (-s)."),
        Option("no-initial-controllers", "No voters are known yet (-N)."),
        Option("ignore-formatted", "Skip directories that are formatted already (-g)."),
        Option(
            "release-version",
            f"The release whose levels of features to begin with (-r), from {RELEASES[0]} to "
            f"{LATEST_RELEASE}; {DEFAULT_RELEASE} if none is given.",
            "RELEASE",
        ),
        Option("feature", "The level of a feature, such as group.version=1 (-f).", "NAME=LEVEL"),
        Option("initial-controllers", "Not served: a quorum of several nodes (-I).", "VOTERS"),
        Option("add-scram", "Not served: credentials of SASL/SCRAM (-S).", "CREDENTIAL"),
        *COMMON,
    ),
    examples="""\
  cordwood storage random-uuid
  cordwood storage format --standalone -t "$(cordwood storage random-uuid)" -c server.properties
  cordwood storage format -t MkU3OEVBNTcwNTJENDM2Qk -c server.properties --ignore-formatted
  cordwood storage info -c server.properties
  cordwood storage version-mapping --release-version 4.4
  cordwood storage feature-dependencies --feature share.version=2
""",
)


class _JavaError(ToolError):
    """An error for which Kafka's tool prints a stack trace; only its first line is shown."""

    def __init__(self, java_class: str, text: str) -> None:
        super().__init__(f"{java_class}: {text}")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Config:
    """The settings that the tool reads from server.properties; `directories` are sorted."""

    node_id: int
    roles: frozenset[str]
    directories: tuple[str, ...]
    metadata_dir: str
    controller_endpoints: tuple[Endpoint, ...]
    has_static_voters: bool


def run(arguments: list[str], terminal: Terminal) -> int:
    """Runs the tool with these flags; returns the exit code."""
    given, command = split_command(arguments, USAGE, _SHORT)
    return run_tool(
        USAGE,
        given or [""],
        terminal,
        lambda options, terminal: _body(command, options, arguments, terminal),
        on_error=_explain,
    )


def _explain(error: CordwoodError, terminal: Terminal) -> None:
    if isinstance(error, RefusedFlagsError | OptionError):
        terminal.error(f"usage: cordwood storage {{{','.join(_COMMANDS)}}} ...")
        terminal.error(f"cordwood storage: error: {refusal(error)}")
    else:
        terminal.error(str(error))


def _body(command: str | None, options: Options, words: Sequence[str], terminal: Terminal) -> int:
    _check(command, options, words)
    if command == "random-uuid":
        return _random_uuid(options, terminal)
    if command == "version-mapping":
        return show_mapping(options, terminal)
    if command == "feature-dependencies":
        return show_needs(options, terminal)
    config = _read_config(options.required("config"))
    if command == "info":
        return _info(config, options, terminal)
    _format(config, options, terminal)
    return 0


def _check(command: str | None, options: Options, words: Sequence[str]) -> None:
    command = require_command(command, _COMMANDS)
    extra = [word for word in _plain(words) if word != command]
    own = {each.name for each in COMMON}
    required, optional = _OPTIONS[command]
    known = own | {*required} | optional
    extra += [_as_given(name, words) for name, _ in options.given if name not in known]
    if extra:
        raise RefusedFlagsError(f"unrecognized arguments: '{extra[0]}'")
    chosen = [name for name in _EXCLUSIVE if options.has(name)]
    if len(chosen) > 1:
        first, second = (f"--{name}/{_LONG[f'--{name}']}" for name in chosen[:2])
        raise RefusedFlagsError(f"argument {second}: not allowed with argument {first}")
    for name in required:
        if not options.has(name):
            raise RefusedFlagsError(f"argument --{name}/{_LONG[f'--{name}']} is required")


def _as_given(name: str, words: Sequence[str]) -> str:
    """A flag by its long name, or the short one if that was given."""
    flag = f"--{name}"
    is_long = any(word.partition("=")[0] == flag for word in words)
    return flag if is_long else _LONG.get(flag, flag)


def _plain(words: Sequence[str]) -> list[str]:
    """The arguments that are neither flags nor their values."""
    found = []
    rest, word = split_command(words, USAGE, _SHORT)
    while word is not None:
        found.append(word)
        rest, word = split_command(rest, USAGE, _SHORT)
    return found


def _read_config(path: str) -> _Config:
    """The settings in server.properties that this tool needs.

    Raises:
        ToolError: the file cannot be read, or Kafka would refuse a value.
    """
    try:
        data = OS.read_bytes(Path(path))
    except FileNotFoundError:
        raise _JavaError("java.nio.file.NoSuchFileException", path) from None
    except OSError as error:
        raise ToolError(f"{path}: {error.strerror}") from error
    try:
        texts = dict(parse_properties(data.decode("latin-1"), name=path))
        if "process.roles" not in texts:
            raise ConfigError(
                'Missing required configuration "process.roles" which has no default value.'
            )
        number = texts.get("node.id", texts.get("broker.id", "-1"))
        given = {"broker.id": number, "node.id": number, **texts}
        values = BrokerConfig(parse_texts(given, broker_settings()))
        controllers = {name.upper() for name in values.strings("controller.listener.names")}
        listed = listeners_of(values, given)
    except ConfigError as error:
        raise _JavaError("org.apache.kafka.common.config.ConfigException", str(error)) from error
    log_dirs = values.strings("log.dirs") or values.strings("log.dir")
    metadata_dir = values.text("metadata.log.dir") or log_dirs[0]
    return _Config(
        node_id=values.integer("node.id"),
        roles=frozenset(values.strings("process.roles")),
        directories=tuple(sorted({*log_dirs, metadata_dir})),
        metadata_dir=metadata_dir,
        controller_endpoints=tuple(
            Endpoint(name=each.name, host=each.host or "localhost", port=each.port)
            for each in listed
            if each.name in controllers
        ),
        has_static_voters=bool(values.strings("controller.quorum.voters")),
    )


# ---- random-uuid


def _random_uuid(options: Options, terminal: Terminal) -> int:
    text = uuid_text(fresh_uuid(SystemRng()))
    if options.has("json"):
        terminal.document(RandomUuid(uuid=text))
    else:
        terminal.line(text)
    return 0


# ---- info


def _info(config: _Config, options: Options, terminal: Terminal) -> int:
    found: list[str] = []
    problems: list[str] = []
    first: MetaProperties | None = None
    for name in config.directories:
        directory = Path(name)
        if not OS.is_directory(directory):
            exists = OS.exists(directory)
            problems.append(f"{name} {'is not a directory' if exists else 'does not exist'}")
            continue
        found.append(name)
        try:
            properties = read_directory(directory)
        except (CorruptError, OSError) as error:
            reason = error.reason if isinstance(error, CorruptError) else str(error.strerror)
            problems.append(f"Error loading {directory / META_PROPERTIES}: {reason}")
            continue
        if properties is None:
            problems.append(f"{name} is not formatted.")
        elif first is None:
            first = properties
        elif first.cluster_id != properties.cluster_id:
            problems.append("Mismatched cluster IDs between storage directories.")
        elif first.node_id != properties.node_id:
            problems.append("Mismatched node IDs between storage directories.")
    if first is not None and first.version == 0:
        problems.append(
            "The kafka configuration file appears to be for a cluster in KRaft mode, but the "
            "directories are formatted for legacy mode."
        )
    metadata = {} if first is None else _properties(first)
    if options.has("json"):
        terminal.document(StorageInfo(directories=found, metadata=metadata, problems=problems))
        return 1 if problems else 0
    _section(terminal, "Found log director", ("y:", "ies:"), found)
    if metadata:
        shown = ", ".join(f"{key}={value}" for key, value in metadata.items())
        terminal.line(f"Found metadata: {{{shown}}}\n")
    _section(terminal, "Found problem", (":", "s:"), problems)
    return 1 if problems else 0


def _section(
    terminal: Terminal, title: str, endings: tuple[str, str], entries: Sequence[str]
) -> None:
    if entries:
        terminal.line(title + endings[len(entries) > 1])
        for entry in entries:
            terminal.line(f"  {entry}")
        terminal.line("")


def _properties(properties: MetaProperties) -> dict[str, str]:
    directory_id = properties.directory_id
    values = {
        "broker.id" if properties.version == 0 else "node.id": properties.node_id,
        "cluster.id": properties.cluster_id,
        "directory.id": None if directory_id is None else uuid_text(directory_id),
        "version": properties.version,
    }
    return {key: str(values[key]) for key in sorted(values) if values[key] is not None}


# ---- format


def _format(config: _Config, options: Options, terminal: Terminal) -> None:
    for name, remedy in (
        ("initial-controllers", "a node of Cordwood's is its cluster's only controller"),
        ("add-scram", "SASL is not served"),
    ):
        if options.has(name):
            raise ToolError(f"--{name} is not served: {remedy}. Use kafka-storage.")
    release = _release(options)
    wanted = _features(options)
    _require_fitting_quorum(config, options)
    if config.node_id < 0:
        raise _JavaError(
            "java.lang.RuntimeException", "You must specify a valid non-negative node ID."
        )
    is_dynamic = not config.has_static_voters and any(map(options.has, _EXCLUSIVE))
    levels = _levels(release, wanted, is_dynamic=is_dynamic)
    _format_directories(config, options, levels, terminal)


def _release(options: Options) -> str | None:
    text = options.value("release-version")
    return None if text is None else named_release(text, RELEASES)


def _features(options: Options) -> dict[str, int]:
    found = {}
    for text in options.values("feature"):
        name, equals, level = text.partition("=")
        refusal = f"Can't parse feature=level string {text}: "
        if not equals:
            raise _JavaError("java.lang.RuntimeException", f"{refusal}equals sign not found.")
        number = java_short(level.strip())
        if number is None:
            raise _JavaError(
                "java.lang.RuntimeException", f"{refusal}unable to parse {level} as a short."
            )
        found[name.strip()] = number
    return found


def _require_fitting_quorum(config: _Config, options: Options) -> None:
    """Checks that flags and roles define the controllers; raises ToolError if they do not.

    Source: StorageTool.runFormatCommand.
    """
    is_controller = "controller" in config.roles
    if options.has("standalone"):
        if config.has_static_voters:
            raise ToolError(
                "You cannot specify controller.quorum.voters and format the node with "
                "--initial-controllers or --standalone. If you want to use dynamic quorum, please "
                "remove controller.quorum.voters and specify controller.quorum.bootstrap.servers "
                "instead."
            )
        if not is_controller:
            raise ToolError("You can only use --standalone on a controller.")
    if is_controller and not config.has_static_voters and not any(map(options.has, _EXCLUSIVE)):
        raise ToolError(
            "Because controller.quorum.voters is not set on this controller, you must specify one "
            "of the following: --standalone, --initial-controllers, or --no-initial-controllers."
        )


def _levels(release: str | None, wanted: Mapping[str, int], *, is_dynamic: bool) -> dict[str, int]:
    try:
        return feature_levels(release, wanted, is_dynamic=is_dynamic)
    except FeatureLevelError as error:
        if error.java_class:
            raise _JavaError(error.java_class, str(error)) from error
        raise ToolError(str(error)) from error


def _format_directories(
    config: _Config, options: Options, levels: Mapping[str, int], terminal: Terminal
) -> None:
    cluster_id = options.required("cluster-id")
    formatted, empty, failed = _looked_at(config, cluster_id, terminal)
    if formatted and not options.has("ignore-formatted"):
        raise ToolError(
            f"Log directory {formatted[0]} is already formatted. Use --ignore-formatted to ignore "
            "this directory and format the others."
        )
    for name in failed:
        terminal.line(f"I/O error trying to read log directory {name}. Ignoring...")
    if not empty:
        if not formatted:
            raise ToolError("No available log directories to format.")
        terminal.line("All of the log directories are already formatted.")
        return
    records = ", ".join(
        f"ApiMessageAndVersion(FeatureLevelRecord(name='{name}', featureLevel={level}) at version "
        "0)"
        for name, level in levels.items()
    )
    version = levels["metadata.version"]
    is_json = options.has("json")
    if not is_json:
        terminal.line(
            f"Bootstrap metadata: BootstrapMetadata(records=[{records}], "
            f"metadataVersionLevel={version}, source=format command)"
        )
    release = release_name(version)

    def show(directory: Path) -> None:
        if not is_json:
            kind = _kind(directory, config, options)
            terminal.line(f"Formatting {kind} {directory} with metadata.version {release}.")

    try:
        format_directories(
            [Path(each) for each in java_order([*formatted, *empty])],
            node_id=config.node_id,
            cluster_id=cluster_id,
            clock=terminal.clock,
            controller_endpoints=config.controller_endpoints,
            features=levels,
            metadata_dir=Path(config.metadata_dir),
            voters=_voters(config, options),
            is_controller="controller" in config.roles,
            on_format=show,
        )
    except OSError as error:
        raise ToolError(
            f"Error while writing meta.properties file {error.filename}: {error.strerror}"
        ) from error
    if is_json:
        terminal.document(
            FormattedStorage(
                cluster_id=cluster_id,
                node_id=config.node_id,
                formatted=empty,
                features=levels,
                release=release,
            )
        )


def _voters(config: _Config, options: Options) -> Voters:
    if options.has("standalone"):
        return Voters.SOLE
    is_static = config.has_static_voters or not options.has("no-initial-controllers")
    return Voters.STATIC if is_static else Voters.UNKNOWN


def _looked_at(
    config: _Config, cluster_id: str, terminal: Terminal
) -> tuple[list[str], list[str], list[str]]:
    """The directories that are formatted, those that are not, and those that cannot be read.

    Raises:
        ToolError: a directory belongs to another node or cluster.

    Source: org.apache.kafka.metadata.properties.MetaPropertiesEnsemble.Loader.
    """
    formatted, empty, failed = [], [], []
    for name in java_order(config.directories):
        directory = Path(name)
        try:
            properties = read_directory(directory)
        except (CorruptError, OSError) as error:
            reason = error.reason if isinstance(error, CorruptError) else error.strerror
            terminal.log(
                "ERROR",
                f"Error while reading meta.properties file {directory / META_PROPERTIES}: {reason}",
                _ENSEMBLE,
            )
            failed.append(name)
            continue
        if properties is None:
            empty.append(name)
            continue
        formatted.append(name)
        try:
            require_own(directory, properties, node_id=config.node_id, cluster_id=cluster_id)
        except ConfigError as error:
            raise _JavaError("java.lang.RuntimeException", str(error)) from error
    return formatted, empty, failed


def _kind(directory: Path, config: _Config, options: Options) -> str:
    if str(directory) != str(Path(config.metadata_dir)):
        return "data directory"
    if options.has("standalone"):
        return "dynamic metadata voter directory"
    return "metadata directory"
