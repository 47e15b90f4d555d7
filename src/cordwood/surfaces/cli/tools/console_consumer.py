"""`cordwood console-consumer`: what kafka-console-consumer does.

Differs: without --group no group is made up: all partitions are read.

Source: org.apache.kafka.tools.consumer.ConsoleConsumer, ConsoleConsumerOptions (4.4.0).
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from cordwood.client.cluster_client import ClusterClient
from cordwood.client.consumer import (
    READ_COMMITTED,
    READ_UNCOMMITTED,
    ConsumedRecord,
)
from cordwood.client.errors import ClientError, TimedOutError
from cordwood.client.offsets import EARLIEST, LATEST
from cordwood.model.errors import CordwoodError
from cordwood.surfaces.cli.tools.console_records import (
    RESETS,
    ConsolePlan,
    ConsoleRecords,
    InvalidTopicsError,
)
from cordwood.surfaces.cli.tools.message_formats import (
    Formatter,
    SerializationError,
    message_formatter,
)
from cordwood.surfaces.cli.tools.options import (
    BOOTSTRAP,
    COMMON,
    LONG_MAX,
    Option,
    OptionError,
    Options,
    Usage,
    UsageError,
    java_integer,
    parse_pairs,
)
from cordwood.surfaces.cli.tools.tool import (
    ConfigValueError,
    Terminal,
    ToolError,
    client_settings,
    described,
    print_error,
    read_properties,
    run_tool,
)

_LOGGER = "org.apache.kafka.tools.consumer.ConsoleConsumer"
_ISOLATION = {"read_uncommitted": READ_UNCOMMITTED, "read_committed": READ_COMMITTED}
_DEPRECATED = (
    ("consumer-property", "command-property"),
    ("consumer.config", "command-config"),
)
_FORMATTER = "org.apache.kafka.tools.consumer.DefaultMessageFormatter"

USAGE = Usage(
    tool="console-consumer",
    summary="This tool helps to read data from Kafka topics and outputs it to standard output.",
    options=(
        BOOTSTRAP,
        Option("topic", "The topic to read.", "NAME"),
        Option("include", "A regular expression of topics to read.", "REGEX"),
        Option("partition", "The partition to read, from its end unless --offset is given.", "N"),
        Option("offset", "An offset, earliest or latest.", "OFFSET", default="latest"),
        Option("from-beginning", "Begin with the first record, where no offset is committed."),
        Option("max-messages", "End after this many records.", "N"),
        Option("timeout-ms", "End when no record arrives for this long.", "MS"),
        Option("group", "Read as a member of a consumer group, and commit offsets.", "ID"),
        Option(
            "isolation-level",
            "read_committed or read_uncommitted.",
            "LEVEL",
            default="read_uncommitted",
        ),
        Option("skip-message-on-error", "Continue after a record that cannot be shown."),
        Option("formatter", "The class that shows records.", "CLASS", default=_FORMATTER),
        Option("formatter-property", "How records are shown, see below.", "KEY=VALUE"),
        Option("property", "Deprecated: --formatter-property.", "KEY=VALUE"),
        Option("formatter-config", "A properties file with formatter properties.", "FILE"),
        Option("key-deserializer", "The class of key.deserializer.", "CLASS"),
        Option("value-deserializer", "The class of value.deserializer.", "CLASS"),
        Option("command-property", "A setting of the consumer.", "KEY=VALUE"),
        Option("consumer-property", "Deprecated: --command-property.", "KEY=VALUE"),
        Option("command-config", "A properties file with settings of the consumer.", "FILE"),
        Option("consumer.config", "Deprecated: --command-config.", "FILE"),
        Option("enable-systest-events", "Accepted, without effect."),
        *COMMON,
    ),
    notes="""\
Formatter properties:
  print.timestamp, print.key, print.offset, print.partition, print.headers, print.epoch,
  print.delivery (false), print.value (true), key.separator (a tab), line.separator,
  headers.separator (a comma), null.literal (null),
  key.deserializer, value.deserializer, headers.deserializer (Kafka's String, Integer, Long,
  Short, Double and UUID)
With --json, each record is a JSON document on a line of its own, and so is an error that
ends the run.""",
    examples="""\
  cordwood console-consumer --bootstrap-server localhost:9092 --topic orders --from-beginning
  cordwood console-consumer --bootstrap-server localhost:9092 --topic orders --partition 0 \\
    --offset 1000 --max-messages 10 --formatter-property print.key=true
""",
)


def run(arguments: list[str], terminal: Terminal) -> int:
    """Runs the tool with these flags; returns the exit code."""
    return run_tool(
        USAGE,
        arguments,
        terminal,
        _body,
        on_error=print_error,
        option_errors_show_usage=True,
        prints_records=True,
    )


def _body(options: Options, terminal: Terminal) -> int:
    _check(options, terminal)
    plan = _plan(options)
    format_message = _formatter(options, terminal)
    count = _Count()
    try:
        isolation = _isolation(plan.properties)
        client = client_settings(
            options,
            client_id="console-consumer",
            kind="Consumer",
            extra=plan.properties,
        )
        group = plan.group if plan.group is not None else "null"  # as Kafka's client writes it
        client = client.named(f"Consumer clientId={client.client_id}, groupId={group}")
        with ClusterClient(client, warn=terminal.warn) as cluster:
            try:
                return _read(cluster, plan, isolation, format_message, terminal, count)
            finally:
                terminal.error(f"Processed a total of {count.messages} messages")
    except (CordwoodError, OptionError) as error:
        _log(terminal, "Unknown error when running consumer: ", error)
        return 1


class _Count:
    """The number of records shown."""

    def __init__(self) -> None:
        self.messages = 0


# ---- flags


def _check(options: Options, terminal: Terminal) -> None:
    options.require_one_of("topic", "include")
    if options.number("partition") is not None:
        if not options.has("topic"):
            raise UsageError("The topic is required when partition is specified.")
        if options.has("from-beginning") and options.has("offset"):
            raise UsageError("Options from-beginning and offset cannot be specified together.")
    elif options.has("offset"):
        raise UsageError("The partition is required when offset is specified.")
    options.require("bootstrap-server")
    include = options.value("include")
    if include is not None:
        try:
            re.compile(include)
        except re.error as error:
            raise ToolError(f"{include} is an invalid regex.") from error
    for old, new in _DEPRECATED:
        if options.has(old) and options.has(new):
            raise UsageError(f"Options --{old} and --{new} cannot be specified together.")
    for old, new in _DEPRECATED:
        if options.has(old):
            _report_deprecated(old, new, terminal)


def _report_deprecated(old: str, new: str, terminal: Terminal) -> None:
    terminal.line(
        f"Option --{old} is deprecated and will be removed in a future version. Use --{new} "
        "instead."
    )


def _plan(options: Options) -> ConsolePlan:
    file = options.value("command-config") or options.value("consumer.config")
    properties = {} if file is None else read_properties(file)
    given = parse_pairs(options.values("command-property") or options.values("consumer-property"))
    groups = [options.value("group"), properties.get("group.id"), given.get("group.id")]
    named = list(dict.fromkeys(group for group in groups if group is not None))
    if len(named) > 1:
        shown = ", ".join(f"'{group}'" for group in named)
        raise UsageError(
            "The group ids provided in different places (directly using '--group', via "
            "'--consumer-property', or via '--consumer.config') do not match. Detected group ids: "
            f"{shown}"
        )
    if named and options.has("partition"):
        raise UsageError("Options group and partition cannot be specified together.")
    properties |= given
    if options.has("isolation-level") or "isolation.level" not in properties:
        properties["isolation.level"] = options.required("isolation-level")
    _set_reset(options, properties)
    timeout = options.number("timeout-ms", bound=LONG_MAX)
    return ConsolePlan(
        options,
        properties,
        named[0] if named else None,
        _start(options),
        LONG_MAX if timeout is None or timeout < 0 else timeout,
    )


def _set_reset(options: Options, properties: dict[str, str]) -> None:
    given = properties.get("auto.offset.reset")
    if given is None:
        properties["auto.offset.reset"] = "earliest" if options.has("from-beginning") else "latest"
    elif options.has("from-beginning") and given != "earliest":
        raise ToolError(
            f"Can't simultaneously specify --from-beginning and 'auto.offset.reset={given}', "
            "please remove one option"
        )


def _start(options: Options) -> int:
    if not options.has("offset"):
        return EARLIEST if options.has("from-beginning") else LATEST
    text = options.required("offset")
    named = RESETS.get(text.lower())
    if named is not None:
        return named
    offset = java_integer(text, bound=LONG_MAX)
    if offset is None or offset < 0:
        raise UsageError(
            f"The provided offset value '{text}' is incorrect. Valid values are 'earliest', "
            "'latest', or a non-negative long."
        )
    return offset


def _isolation(properties: Mapping[str, str]) -> int:
    level = properties["isolation.level"]
    if level not in _ISOLATION:
        raise ConfigValueError(
            f"Invalid value {level} for configuration isolation.level: String must be one of: "
            "read_committed, read_uncommitted"
        )
    return _ISOLATION[level]


def _formatter(options: Options, terminal: Terminal) -> Formatter:
    if options.has("formatter-property") and options.has("property"):
        raise UsageError(
            "Options --property and --formatter-property cannot be specified together."
        )
    if options.has("property"):
        _report_deprecated("property", "formatter-property", terminal)
    file = options.value("formatter-config")
    properties = {} if file is None else read_properties(file)
    for flag, name in (
        ("key-deserializer", "key.deserializer"),
        ("value-deserializer", "value.deserializer"),
    ):
        if options.value(flag):
            properties[name] = options.required(flag)
    properties |= parse_pairs(options.values("formatter-property") or options.values("property"))
    name = "json" if options.has("json") else options.required("formatter")
    formatter = message_formatter(name, properties, terminal)
    if formatter is None:
        raise UsageError(name)
    return formatter


# ---- reading


def _read(
    cluster: ClusterClient,
    plan: ConsolePlan,
    isolation: int,
    format_message: Formatter,
    terminal: Terminal,
    count: _Count,
) -> int:
    most = plan.options.number("max-messages")
    try:
        records = ConsoleRecords(cluster, plan, isolation, terminal)
    except (TimedOutError, InvalidTopicsError) as error:
        _log(terminal, "Error processing message, terminating consumer process: ", error)
        return 0
    try:
        while most is None or most == -1 or count.messages < most:
            try:
                record = records.receive()
            except KeyboardInterrupt:
                return 130
            except ClientError as error:
                _log(terminal, "Error processing message, terminating consumer process: ", error)
                return 0
            count.messages += 1
            _show(record, plan.options, format_message, terminal)
            if not records.has_more:
                terminal.flush()
    except BrokenPipeError:
        terminal.error("Unable to write to standard out, closing consumer.")
    finally:
        records.close()
    return 0


def _show(
    record: ConsumedRecord, options: Options, format_message: Formatter, terminal: Terminal
) -> None:
    try:
        terminal.write(format_message(record))
    except SerializationError as error:
        if not options.has("skip-message-on-error"):
            raise
        _log(terminal, "Error processing message, skipping this message: ", error)


def _log(terminal: Terminal, text: str, error: CordwoodError) -> None:
    terminal.log("ERROR", text, _LOGGER)
    terminal.error(described(error))
