"""Committed offsets changed and forgotten by `cordwood consumer-groups`.

Source: org.apache.kafka.tools.GroupOffsetsResetter, ConsumerGroupCommand (4.4.0).
"""

from __future__ import annotations

import csv
import re
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime

from cordwood.client.admin import Admin
from cordwood.client.cluster_client import ClusterClient
from cordwood.client.coordinator import fetch_committed
from cordwood.client.errors import ClientError, RefusedError
from cordwood.client.groups import Groups
from cordwood.client.offsets import EARLIEST, LATEST, Offsets
from cordwood.model.error_codes import ErrorCode
from cordwood.model.errors import CordwoodError
from cordwood.model.topic_partition import TopicPartition
from cordwood.queries.groups import DeletedOffset, ResetOffset
from cordwood.surfaces.cli.tools.java_order import java_order, partition_hash
from cordwood.surfaces.cli.tools.options import LONG_MAX, Options, UsageError, java_integer
from cordwood.surfaces.cli.tools.tool import Terminal, ToolError, read_file

Plan = dict[TopicPartition, int]

_PARTITION_ERRORS = frozenset(
    {
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC,
    }
)
_GROUP_ERRORS = frozenset(
    {
        ErrorCode.INVALID_GROUP_ID,
        ErrorCode.GROUP_AUTHORIZATION_FAILED,
        ErrorCode.NON_EMPTY_GROUP,
        ErrorCode.GROUP_ID_NOT_FOUND,
    }
)
_DURATION = re.compile(
    r"([-+]?)P(?:([-+]?\d+)D)?(?:T(?:([-+]?\d+)H)?(?:([-+]?\d+)M)?(?:([-+]?\d+(?:\.\d+)?)S)?)?",
    re.IGNORECASE,
)


class BadMomentError(CordwoodError):
    """An invalid date or duration."""


class BadPartitionError(ClientError):
    """A named partition that does not exist."""

    java_class = "org.apache.kafka.common.errors.UnknownTopicOrPartitionException"

    @property
    def described(self) -> str:
        """The text alone, as the tool shows it."""
        return str(self)


# ---- reset


def reset_offsets(
    options: Options, cluster: ClusterClient, group_ids: Sequence[str], terminal: Terminal
) -> None:
    """Shows, and with --execute commits, the offsets that the flags ask for."""
    plans: dict[str, Plan] = {}
    for group_id in java_order(dict.fromkeys(group_ids), str):
        state = _state(cluster, group_id)
        if state in {"Empty", "Dead"}:
            plans[group_id] = _reset(options, cluster, group_id, terminal)
            continue
        terminal.line(
            f"\nError: Assignments can only be reset if the group '{group_id}' is inactive, but "
            f"the current state is {state}."
        )
        plans[group_id] = {}
    if options.has("json"):
        terminal.document(
            [
                ResetOffset(group=group, topic=tp.topic, partition=tp.partition, new_offset=offset)
                for group, plan in plans.items()
                for tp, offset in plan.items()
            ]
        )
    elif options.has("export"):
        _export(plans, terminal, with_group=len(options.values("group")) != 1)
    else:
        _show(plans, terminal)


def _state(cluster: ClusterClient, group_id: str) -> str:
    try:
        return Groups(cluster).describe(group_id).state
    except RefusedError as error:
        if error.code != ErrorCode.GROUP_ID_NOT_FOUND:
            raise
        return "Dead"


def _reset(options: Options, cluster: ClusterClient, group_id: str, terminal: Terminal) -> Plan:
    partitions = _partitions(options, cluster, group_id)
    _require_existing(cluster, partitions)
    plan = _planned(options, cluster, group_id, partitions, terminal)
    if options.has("execute") and not options.has("dry-run"):
        Groups(cluster).alter_offsets(group_id, plan)
    return {tp: plan[tp] for tp in java_order(plan, partition_hash)}


def _partitions(options: Options, cluster: ClusterClient, group_id: str) -> list[TopicPartition]:
    if options.has("all-topics"):
        return list(fetch_committed(cluster, group_id, None))
    if options.has("topic"):
        return parse_partitions(options.values("topic"), cluster)
    if not options.has("from-file"):
        raise UsageError("One of the reset scopes should be defined: --all-topics, --topic.")
    return []


def parse_partitions(texts: Sequence[str], cluster: ClusterClient) -> list[TopicPartition]:
    """The partitions that `topic` and `topic:N,N` mean, those with numbers first."""
    numbered = [tp for text in texts if ":" in text for tp in parse_numbered(text)]
    topics = [text for text in texts if ":" not in text]
    if not topics:
        return numbered
    return numbered + [
        TopicPartition(topic.name, p.partition)
        for topic in Admin(cluster).describe_topics(topics)
        for p in topic.partitions
    ]


def parse_numbered(text: str) -> list[TopicPartition]:
    """The partitions of `topic:N,N`.

    Raises:
        ToolError: it is not of that form.
    """
    topic, _, numbers = text.partition(":")
    if not numbers or ":" in numbers.rstrip(":"):
        raise ToolError(f"Invalid topic arg '{text}', expected topic name and partitions")
    found = []
    for part in numbers.rstrip(",").split(","):
        number = java_integer(part)
        if number is None:
            raise ToolError(f"Invalid partition '{part}' specified in topic arg '{text}''")
        found.append(TopicPartition(topic, number))
    return found


def _require_existing(cluster: ClusterClient, partitions: Sequence[TopicPartition]) -> None:
    names = sorted({tp.topic for tp in partitions})
    if not names:
        return
    known = {
        TopicPartition(topic.name, p.partition)
        for topic in Admin(cluster).describe_topics(names)
        for p in topic.partitions
    }
    missing = [str(tp) for tp in partitions if tp not in known]
    if missing:
        raise BadPartitionError(f'The partitions "{",".join(missing)}" do not exist')


def _planned(
    options: Options,
    cluster: ClusterClient,
    group_id: str,
    partitions: Sequence[TopicPartition],
    terminal: Terminal,
) -> Plan:
    if options.has("to-offset"):
        offset = options.number("to-offset", bound=LONG_MAX)
        return _within(cluster, dict.fromkeys(partitions, offset or 0), terminal)
    if options.has("to-earliest"):
        return _offsets_at(cluster, partitions, EARLIEST)
    if options.has("to-latest"):
        return _offsets_at(cluster, partitions, LATEST)
    if options.has("shift-by"):
        return _shifted(options, cluster, group_id, partitions, terminal)
    if options.has("to-datetime"):
        moment = parse_datetime(options.required("to-datetime"))
        return _offsets_since(cluster, partitions, moment, terminal)
    if options.has("by-duration"):
        span = parse_duration(options.required("by-duration"))
        return _offsets_since(cluster, partitions, terminal.clock.now_ms() - span, terminal)
    if options.has("from-file"):
        return _from_file(options, cluster, group_id, terminal)
    if options.has("to-current"):
        committed = fetch_committed(cluster, group_id, None)
        plan = {tp: committed[tp].offset for tp in partitions if tp in committed}
        rest = [tp for tp in partitions if tp not in committed]
        return plan | _offsets_at(cluster, rest, LATEST)
    raise UsageError(
        "Option '[reset-offsets]' requires one of the following scenarios: [[to-offset], "
        "[shift-by], [to-datetime], [by-duration], [to-earliest], [to-latest], [to-current], "
        "[from-file]]"
    )


def _offsets_at(cluster: ClusterClient, partitions: Sequence[TopicPartition], moment: int) -> Plan:
    if not partitions:
        return {}
    word = "starting" if moment == EARLIEST else "ending"
    plan = {}
    for tp, offset in Offsets(cluster).list_offsets(dict.fromkeys(partitions, moment)).items():
        if isinstance(offset, RefusedError):
            raise UsageError(f"Error getting {word} offset of topic partition: {tp}")
        plan[tp] = offset
    return plan


def _offsets_since(
    cluster: ClusterClient, partitions: Sequence[TopicPartition], moment_ms: int, terminal: Terminal
) -> Plan:
    found = _offsets_at(cluster, partitions, moment_ms)
    empty = [tp for tp in java_order(found, partition_hash) if found[tp] < 0]
    for tp in empty:
        terminal.line(
            f"\nWarn: Partition {tp.partition} from topic {tp.topic} is empty. Falling back to "
            "latest known offset."
        )
    return found | _offsets_at(cluster, empty, LATEST)


def _shifted(
    options: Options,
    cluster: ClusterClient,
    group_id: str,
    partitions: Sequence[TopicPartition],
    terminal: Terminal,
) -> Plan:
    committed = fetch_committed(cluster, group_id, None)
    shift = options.number("shift-by", bound=LONG_MAX) or 0
    wanted = {}
    for tp in partitions:
        if tp not in committed:
            raise ToolError(
                f"Cannot shift offset for partition {tp} since there is no current committed offset"
            )
        wanted[tp] = committed[tp].offset + shift
    return _within(cluster, wanted, terminal)


def _within(
    cluster: ClusterClient, wanted: Mapping[TopicPartition, int], terminal: Terminal
) -> Plan:
    """The offsets, moved to the log's start or end if they are outside; a warning is printed."""
    starts = _offsets_at(cluster, list(wanted), EARLIEST)
    ends = _offsets_at(cluster, list(wanted), LATEST)
    plan = {}
    for tp in java_order(wanted, partition_hash):
        offset = wanted[tp]
        if offset > ends[tp]:
            _report_moved(offset, "higher than latest", tp, ends[tp], terminal)
            offset = ends[tp]
        elif offset < starts[tp]:
            _report_moved(offset, "lower than earliest", tp, starts[tp], terminal)
            offset = starts[tp]
        plan[tp] = offset
    return plan


def _report_moved(
    offset: int, how: str, tp: TopicPartition, value: int, terminal: Terminal
) -> None:
    terminal.log(
        "WARN",
        f"New offset ({offset}) is {how} offset for topic partition {tp}. Value will be set to "
        f"{value}.",
        "org.apache.kafka.tools.GroupOffsetsResetter",
    )


def _from_file(options: Options, cluster: ClusterClient, group_id: str, terminal: Terminal) -> Plan:
    text = read_file(options.required("from-file")).decode("utf-8", "replace")
    plans = parse_plans(text, group_id if len(options.values("group")) == 1 else None)
    if group_id not in plans:
        terminal.line(f"\nError: No reset plan for group {group_id} found.")
        return {}
    return _within(cluster, plans[group_id], terminal)


def parse_plans(text: str, group_id: str | None) -> dict[str, Plan]:
    """Offsets by group, from lines of `topic,partition,offset` or with the group before them.

    `group_id` is the only requested group; lines need not name it.

    Raises:
        ToolError: a line is of neither form.
    """
    plans: dict[str, Plan] = {}
    for cells in csv.reader(text.splitlines()):
        named = [group_id, *cells] if len(cells) == 3 and group_id is not None else cells
        partition = java_integer(named[2]) if len(named) == 4 else None
        offset = java_integer(named[3], bound=LONG_MAX) if len(named) == 4 else None
        if partition is None or offset is None:
            raise ToolError(f"expected topic,partition,offset, found: {','.join(cells)}")
        plans.setdefault(str(named[0]), {})[TopicPartition(str(named[1]), partition)] = offset
    return plans


def parse_datetime(text: str) -> int:
    """Milliseconds of `2026-01-31T12:00:00.000`; UTC unless the text has a zone.

    Raises:
        BadMomentError: it is not of that form.

    Source: org.apache.kafka.common.utils.Utils.getDateTime.
    """
    if "T" not in text.rstrip("T"):
        raise BadMomentError(
            "java.text.ParseException: Error parsing timestamp. It does not contain a 'T' "
            "according to ISO8601 format"
        )
    try:
        moment = datetime.fromisoformat(text)
    except ValueError as error:
        raise BadMomentError(f'java.text.ParseException: Unparseable date: "{text}"') from error
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return round(moment.timestamp() * 1000)


def parse_duration(text: str) -> int:
    """Milliseconds of `P1DT2H3M4.5S`.

    Raises:
        BadMomentError: it is not of that form.
    """
    match = _DURATION.fullmatch(text)
    if match is None or not any(match.groups()[1:]):
        raise BadMomentError("Text cannot be parsed to a Duration")
    days, hours, minutes, seconds = (float(part or 0) for part in match.groups()[1:])
    span = round((days * 86_400 + hours * 3_600 + minutes * 60 + seconds) * 1000)
    return -span if match[1] == "-" else span


def _show(plans: Mapping[str, Plan], terminal: Terminal) -> None:
    group_width = max([15, *map(len, plans)])
    topic_width = max([15, *(len(tp.topic) for plan in plans.values() for tp in plan)])
    lines = [("GROUP", "TOPIC", "PARTITION", "NEW-OFFSET")] if plans else []
    lines += [
        (group, tp.topic, str(tp.partition), str(offset))
        for group, plan in plans.items()
        for tp, offset in plan.items()
    ]
    for group, topic, partition, offset in lines:
        text = f"\n{group:<{group_width}} {topic:<{topic_width}} {partition:<10} {offset}"
        terminal.write(text.encode())
    terminal.line("")


def _export(plans: Mapping[str, Plan], terminal: Terminal, *, with_group: bool) -> None:
    for group, plan in plans.items():
        for tp, offset in plan.items():
            start = f"{_csv(group)}," if with_group else ""
            terminal.line(f"{start}{_csv(tp.topic)},{tp.partition},{offset}")
    terminal.line("")


def _csv(text: str) -> str:
    return '"' + text.replace('"', '""') + '"' if re.search(r'[",\n]|^ | $', text) else text


# ---- delete


def delete_offsets(options: Options, cluster: ClusterClient, terminal: Terminal) -> None:
    """Forgets the offsets of topics, or of some of their partitions."""
    group_id = options.required("group")
    results: dict[TopicPartition, str] = {}
    partitions: list[TopicPartition] = []
    for text in options.values("topic"):
        if ":" in text:
            partitions += parse_numbered(text)
            continue
        try:
            partitions += parse_partitions([text], cluster)
        except RefusedError as error:
            results[TopicPartition(text, -1)] = f"Error: {error.described}"
    failure, found = Groups(cluster).delete_offsets(group_id, partitions)
    for tp, refusal in found.items():
        results[tp] = "Successful" if refusal is None else f"Error: {refusal.described}"
    if options.has("json"):
        terminal.document(
            [
                DeletedOffset(topic=tp.topic, partition=tp.partition, status=status)
                for tp, status in results.items()
            ]
        )
        return
    terminal.line(_summary(group_id, failure))
    width = max([15, *(len(tp.topic) for tp in results)])
    lines = [("TOPIC", "PARTITION", "STATUS")]
    for tp in sorted(results, key=lambda tp: f"{tp.topic}{tp.partition}"):
        number = str(tp.partition) if tp.partition >= 0 else "-"
        lines.append((tp.topic, number, results[tp]))
    for topic, number, status in lines:
        terminal.write(f"\n{topic:<{width}} {number:<10} {status:<15}".encode())
    terminal.line("")


def _summary(group_id: str, failure: RefusedError | None) -> str:
    if failure is None:
        return f"Request succeeded for deleting offsets from group {group_id}."
    if failure.code in _GROUP_ERRORS:
        return f"\nError: {failure}"
    if failure.code in _PARTITION_ERRORS:
        return "\nError: Encountered some partition-level error, see the follow-up details."
    return f"\nError: Encountered some unknown error: {failure.code_name}"
