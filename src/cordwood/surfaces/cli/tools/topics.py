"""`cordwood topics`: what kafka-topics does.

Source: org.apache.kafka.tools.TopicCommand (4.4.0).
"""

from __future__ import annotations

from collections.abc import Sequence

from cordwood.client.admin import Admin
from cordwood.client.cluster_client import ClusterClient
from cordwood.client.errors import RefusedError
from cordwood.model.error_codes import ErrorCode
from cordwood.model.errors import CordwoodError
from cordwood.queries.topics import AlteredTopics, CreatedTopic, DeletedTopics, TopicNames
from cordwood.surfaces.cli.setting_values import setting_value
from cordwood.surfaces.cli.tools.filters import existing_topics, named_topics
from cordwood.surfaces.cli.tools.options import (
    BOOTSTRAP,
    COMMAND_CONFIG,
    COMMON,
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
    parse_broker_id,
    print_error,
    run_tool,
)
from cordwood.surfaces.cli.tools.topic_describe import REPORTS, describe

_NO_NAME = "The given topic name '' cannot be represented in a request."
_REPLICATION_MAX = (1 << 15) - 1
_ACTIONS = ("create", "list", "alter", "describe", "delete")
_CONFIGS_HINT = " (To alter topic configurations, the kafka-configs tool can be used.)"

USAGE = Usage(
    tool="topics",
    summary="This tool helps to create, delete, describe, or change a topic.",
    hint="Create, delete, describe, or change a topic.",
    options=(
        BOOTSTRAP,
        COMMAND_CONFIG,
        Option("list", "List the topics."),
        Option("create", "Create a topic."),
        Option("delete", "Delete topics."),
        Option("alter", "Raise the number of partitions of topics."),
        Option("describe", "Show topics and their partitions."),
        Option("topic", "A topic's name; a regular expression, except with --create.", "NAME"),
        Option("topic-id", "The id of a topic to describe.", "ID"),
        Option("config", "A setting of a topic to create; may be repeated.", "NAME=VALUE"),
        Option("delete-config", "No longer does anything.", "NAME"),
        Option("partitions", "How many partitions; the cluster's default if left out.", "N"),
        Option("replication-factor", "How many replicas; the cluster's default.", "N"),
        Option(
            "replica-assignment",
            "Brokers by partition: replicas divided by colons, partitions by commas.",
            "ID:ID,ID:ID",
        ),
        Option("under-replicated-partitions", "Show only partitions that lack replicas."),
        Option("unavailable-partitions", "Show only partitions without a leader."),
        Option("under-min-isr-partitions", "Show only partitions below min.insync.replicas."),
        Option("at-min-isr-partitions", "Show only partitions at min.insync.replicas."),
        Option("topics-with-overrides", "Show only topics that have settings of their own."),
        Option("if-exists", "Do nothing where there is no such topic."),
        Option("if-not-exists", "Do nothing where there is such a topic already."),
        Option("exclude-internal", "Leave Kafka's own topics out."),
        Option("partition-size-limit-per-response", "Partitions asked for at once.", "N"),
        *COMMON,
    ),
    examples="""\
  cordwood topics --bootstrap-server localhost:9092 --create --topic orders --partitions 3 \\
    --config cleanup.policy=compact
  cordwood topics --bootstrap-server localhost:9092 --list --exclude-internal
  cordwood topics --bootstrap-server localhost:9092 --describe --topic 'orders|payments'
  cordwood topics --bootstrap-server localhost:9092 --alter --topic orders --partitions 6
  cordwood topics --bootstrap-server localhost:9092 --delete --topic orders --if-exists
""",
)


def run(arguments: list[str], terminal: Terminal) -> int:
    """Runs the tool with these flags; returns the exit code."""
    return run_tool(USAGE, arguments, terminal, _body, on_error=print_error)


def _body(options: Options, terminal: Terminal) -> int:
    _check(options, terminal)
    settings = client_settings(options)
    with ClusterClient(settings, warn=terminal.warn) as cluster:
        try:
            _act(options, cluster, terminal)
        except CordwoodError as error:
            terminal.line(f"Error while executing topic command : {error}")
            terminal.log("ERROR", f"{described(error)}\n", "org.apache.kafka.tools.TopicCommand")
            return 1
    return 0


def _check(options: Options, terminal: Terminal) -> None:
    """Refuses flags that do not go together.

    Source: TopicCommandOptions.checkArgs.
    """
    if sum(map(options.has, _ACTIONS)) != 1:
        raise UsageError(
            "Command must include exactly one action: --list, --describe, --create, --alter or "
            "--delete"
        )
    if options.has("delete-config"):
        terminal.error(
            "delete-config option is no longer supported and deprecated since version 4.0. "
            "The config will be fully removed in future releases."
        )
    _check_required(options, terminal)
    for name, actions in (
        ("config", ("alter", "create")),
        ("partitions", ("alter", "create")),
        ("replication-factor", ("create",)),
        ("replica-assignment", ("alter", "create")),
    ):
        options.forbid(name, *(action for action in _ACTIONS if action not in actions))
    if options.has("create"):
        options.forbid("replica-assignment", "partitions", "replication-factor")
    for report in REPORTS:
        others = (action for action in _ACTIONS if action != "describe")
        options.forbid(report, *others, "topics-with-overrides")
    options.forbid("topics-with-overrides", *(a for a in _ACTIONS if a != "describe"), *REPORTS)
    options.forbid("if-exists", "create", "list")
    options.forbid("if-not-exists", *(action for action in _ACTIONS if action != "create"))
    options.forbid("exclude-internal", "create", "alter", "delete")


def _check_required(options: Options, terminal: Terminal) -> None:
    if not options.has("bootstrap-server"):
        raise ToolError("--bootstrap-server must be specified")
    if options.has("describe") and options.has("if-exists"):
        if not options.has("topic") and not options.has("topic-id"):
            raise UsageError("--topic or --topic-id is required to describe a topic")
        if options.has("topic") and options.has("topic-id"):
            terminal.line(
                "Only topic id will be used when both --topic and --topic-id are specified and "
                "topicId is not Uuid.ZERO_UUID"
            )
    if not options.has("list") and not options.has("describe"):
        options.require("topic")
    if options.has("alter"):
        if options.has("config"):
            raise UsageError(
                'Option combination "[[bootstrap-server], [config]]" can\'t be used with option '
                f'"[alter]"{_CONFIGS_HINT}'
            )
        options.require("partitions")


def _act(options: Options, cluster: ClusterClient, terminal: Terminal) -> None:
    admin = Admin(cluster)
    if options.has("create"):
        _create(options, admin, terminal)
    elif options.has("alter"):
        _alter(options, admin, terminal)
    elif options.has("list"):
        names = named_topics(options, admin)
        if options.has("json"):
            terminal.document(TopicNames(topics=names))
        else:
            terminal.line("\n".join(names))
    elif options.has("describe"):
        describe(options, cluster, terminal)
    else:
        names = existing_topics(options, admin)
        if names:
            admin.delete_topics(names)
        if options.has("json"):
            terminal.document(DeletedTopics(deleted=names))


def _create(options: Options, admin: Admin, terminal: Terminal) -> None:
    name = options.required("topic")
    partitions = options.number("partitions")
    factor = options.number("replication-factor")
    assignment = parse_assignment(options.value("replica-assignment") or "")
    configs = parse_configs(options.values("config"))
    if not name:
        raise RefusedError(ErrorCode.INVALID_TOPIC_EXCEPTION, _NO_NAME)
    if "_" in name or "." in name:
        terminal.line(
            "WARNING: Due to limitations in metric names, topics with a period ('.') or underscore "
            "('_') could collide. To avoid issues it is best to use either, but not both."
        )
    if factor is not None and not 1 <= factor <= _REPLICATION_MAX:
        raise ToolError(
            f"The replication factor must be between 1 and {_REPLICATION_MAX} inclusive"
        )
    if partitions is not None and partitions < 1:
        raise ToolError("The partitions must be greater than 0")
    is_new = True
    try:
        admin.create_topic(
            name,
            partitions=partitions,
            replication_factor=factor,
            assignment=assignment,
            configs=configs,
        )
    except RefusedError as error:
        if error.code != ErrorCode.TOPIC_ALREADY_EXISTS or not options.has("if-not-exists"):
            raise
        is_new = False
    if options.has("json"):
        terminal.document(CreatedTopic(created=name if is_new else None))
    elif is_new:
        terminal.line(f"Created topic {name}.")


def parse_configs(texts: Sequence[str]) -> dict[str, str]:
    """The settings of `--config name=value`; a duration or a size as a Kafka takes it.

    Raises:
        ConfigError: a duration is not whole in the unit of its setting.
        ToolError: one is not of that form.
    """
    found = {}
    for text in texts:
        # As String.split does, an empty value at the end does not count.
        name, _, value = text.rstrip("=").partition("=")
        if not value or "=" in value:
            raise ToolError(
                "requirement failed: Invalid topic config: all configs to be added must be in "
                'the format "key=val".'
            )
        found[name.strip()] = setting_value(name.strip(), value.strip())
    return found


def parse_assignment(text: str) -> dict[int, list[int]]:
    """The brokers of each partition, from `1:2,2:3`.

    Raises:
        ToolError: a broker is no number or comes twice, or partitions have different numbers of
            replicas.
    """
    found: dict[int, list[int]] = {}
    for partition, brokers in enumerate(text.split(",") if text else []):
        ids = [parse_broker_id(part.strip()) for part in brokers.split(":")]
        twice = sorted({one for one in ids if ids.count(one) > 1})
        if twice:
            raise ToolError(
                "Partition replica lists may not contain duplicate entries: "
                + ",".join(map(str, twice))
            )
        if found and len(ids) != len(found[0]):
            raise ToolError(f"Partition {partition} has different replication factor: {ids}")
        found[partition] = ids
    return found


def _alter(options: Options, admin: Admin, terminal: Terminal) -> None:
    count = options.number("partitions")
    assert count is not None, "checked before"
    assignment = parse_assignment(options.value("replica-assignment") or "")
    names = existing_topics(options, admin)
    if names and not assignment:
        admin.create_partitions(dict.fromkeys(names, count))
    elif names:
        for topic in admin.describe_topics(names):
            new = list(assignment.values())[len(topic.partitions) :]
            admin.create_partitions({topic.name: count}, new)
    if options.has("json"):
        terminal.document(AlteredTopics(altered=names, partitions=count))
