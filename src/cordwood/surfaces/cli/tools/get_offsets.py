"""`cordwood get-offsets`: what kafka-get-offsets does.

Source: org.apache.kafka.tools.GetOffsetShell (4.4.0).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

from cordwood.client.admin import Admin
from cordwood.client.cluster_client import ClusterClient
from cordwood.client.errors import RefusedError
from cordwood.client.offsets import (
    EARLIEST,
    EARLIEST_LOCAL,
    EARLIEST_PENDING_UPLOAD,
    LATEST,
    LATEST_TIERED,
    MAX_TIMESTAMP,
    Offsets,
)
from cordwood.model.errors import CordwoodError
from cordwood.model.topic_names import INTERNAL_TOPICS
from cordwood.model.topic_partition import TopicPartition
from cordwood.queries.records import PartitionOffset
from cordwood.surfaces.cli.tools.filters import TopicFilter
from cordwood.surfaces.cli.tools.options import (
    BOOTSTRAP,
    COMMAND_CONFIG,
    COMMON,
    INT_MAX,
    LONG_MAX,
    Option,
    Options,
    Usage,
    java_integer,
)
from cordwood.surfaces.cli.tools.tool import (
    Terminal,
    ToolError,
    client_settings,
    require_addresses,
    run_tool,
)

Filter = Callable[[TopicPartition], bool]

_RULE = re.compile(r"([^:,]*)(?::(?:([0-9]*)|(?:([0-9]*)-([0-9]*))))?")
_TIMES = {
    "latest": LATEST,
    "earliest": EARLIEST,
    "max-timestamp": MAX_TIMESTAMP,
    "earliest-local": EARLIEST_LOCAL,
    "latest-tiered": LATEST_TIERED,
    "earliest-pending-upload": EARLIEST_PENDING_UPLOAD,
}

USAGE = Usage(
    tool="get-offsets",
    summary="An interactive shell for getting topic-partition offsets.",
    options=(
        BOOTSTRAP,
        Option(
            "topic-partitions",
            "Regular expressions of topics, each with partitions: one, or a range without its end.",
            "TOPIC:N,TOPIC:N-M,TOPIC",
        ),
        Option("topic", "Topics, as a regular expression; all if left out.", "REGEX"),
        Option("partitions", "Partitions; all if left out.", "N,N"),
        Option(
            "time",
            "Milliseconds, or -1 latest, -2 earliest, -3 max-timestamp, -4 earliest-local, "
            "-5 latest-tiered, -6 earliest-pending-upload.",
            "TIME",
            default="latest",
        ),
        COMMAND_CONFIG,
        Option("exclude-internal-topics", "Leave Kafka's own topics out."),
        *COMMON,
    ),
    examples="""\
  cordwood get-offsets --bootstrap-server localhost:9092 --topic orders
  cordwood get-offsets --bootstrap-server localhost:9092 --topic-partitions orders:0-3 --time -2
""",
)


def run(arguments: list[str], terminal: Terminal) -> int:
    """Runs the tool with these flags; returns the exit code."""
    return run_tool(USAGE, arguments, terminal, _body, on_error=_explain)


def _explain(error: CordwoodError, terminal: Terminal) -> None:
    terminal.error(f"Error occurred: {error}")


def _body(options: Options, terminal: Terminal) -> int:
    options.require("bootstrap-server")
    require_addresses(options)
    if options.has("topic-partitions") and (options.has("topic") or options.has("partitions")):
        raise ToolError("--topic-partitions cannot be used with --topic or --partitions")
    moment = parse_moment(options.required("time"))
    is_meant = _filter(options)
    client = client_settings(options, client_id="GetOffsetShell")
    with ClusterClient(client, warn=terminal.warn) as cluster:
        wanted = [
            tp
            for topic in Admin(cluster).topics()
            if not (options.has("exclude-internal-topics") and topic.name in INTERNAL_TOPICS)
            for tp in (TopicPartition(topic.name, p.partition) for p in topic.partitions)
            if is_meant(tp)
        ]
        if not wanted:
            raise ToolError("Could not match any topic-partitions with the specified filters")
        found = Offsets(cluster).list_offsets(dict.fromkeys(wanted, moment))
    offsets = {}
    for tp in wanted:
        offset = found[tp]
        if isinstance(offset, RefusedError):
            terminal.error(
                f"Skip getting offsets for topic-partition {tp} due to error: {offset.described}"
            )
        elif offset >= 0:
            offsets[tp] = offset
    _show(offsets, terminal, is_json=options.has("json"))
    return 0


def _show(offsets: dict[TopicPartition, int], terminal: Terminal, *, is_json: bool) -> None:
    ordered = sorted(offsets, key=str)
    if is_json:
        terminal.document(
            [
                PartitionOffset(topic=tp.topic, partition=tp.partition, offset=offsets[tp])
                for tp in ordered
            ]
        )
        return
    for tp in ordered:
        terminal.line(f"{tp.topic}:{tp.partition}:{offsets[tp]}")


def parse_moment(text: str) -> int:
    """A timestamp in ms, or one of the negative numbers with a special meaning.

    Raises:
        ToolError: it is neither.
    """
    if text in _TIMES:
        return _TIMES[text]
    number = java_integer(text, bound=LONG_MAX)
    if number is None:
        raise ToolError(
            f"Malformed time argument {text}. Please use -1 or latest / -2 or earliest / -3 or "
            "max-timestamp / -4 or earliest-local / -5 or latest-tiered / -6 or "
            "earliest-pending-upload, or a specified long format timestamp"
        )
    return number


def _filter(options: Options) -> Filter:
    rules = options.value("topic-partitions")
    if rules is not None:
        filters = [parse_rule(rule) for rule in rules.rstrip(",").split(",")]
        return lambda tp: any(is_meant(tp) for is_meant in filters)
    topics = TopicFilter(options.value("topic") or ".*")
    numbers = _numbers(options.value("partitions") or "")
    return lambda tp: topics.allows(tp.topic) and (not numbers or tp.partition in numbers)


def _numbers(text: str) -> Sequence[int]:
    found = [java_integer(part) for part in text.rstrip(",").split(",")] if text else []
    numbers = [number for number in found if number is not None]
    if len(numbers) != len(found):
        raise ToolError(
            "--partitions expects a comma separated list of numeric partition ids, but received: "
            f"{text}"
        )
    return numbers


def parse_rule(text: str) -> Filter:
    """The partitions that `topic`, `topic:N`, `topic:N-M`, `:N-` … means.

    Raises:
        ToolError: it is not of that form.
    """
    match = _RULE.fullmatch(text)
    if match is None:
        raise ToolError(
            f"org.apache.kafka.tools.TerseException: Invalid rule specification: {text}"
        )
    topics = TopicFilter(match[1] or ".*")
    if match[2]:
        only = int(match[2])
        return lambda tp: topics.allows(tp.topic) and tp.partition == only
    first = int(match[3] or 0)
    end = int(match[4] or INT_MAX)
    return lambda tp: topics.allows(tp.topic) and first <= tp.partition < end
