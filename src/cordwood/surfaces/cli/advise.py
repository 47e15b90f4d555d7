"""`cordwood advise`: settings that keep a promise, and remarks on settings that surprise."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, replace
from typing import Annotated, Any

import typer

from cordwood.cleanup.plan.check_plan import CheckPlan
from cordwood.cleanup.schedule.clean import Survey, survey
from cordwood.cleanup.schedule.cleaner_settings import CleanerSettings
from cordwood.cleanup.schedule.request import CleanRequest
from cordwood.model.clock import Clock, SystemClock
from cordwood.model.errors import ConfigError
from cordwood.queries.advise.lint import remarks
from cordwood.queries.advise.promise import (
    Promise,
    age_promise,
    disk_overhead,
    keep_age,
    keep_size,
    peak_bytes_a_second,
)
from cordwood.queries.explain.log_facts import LogFacts
from cordwood.queries.explain.offline_facts import offline_facts
from cordwood.queries.settings import SettingOptions, Settings, read_settings
from cordwood.queries.whatif.comparison import (
    NOW,
    SIDES,
    THEN,
    BothSettings,
    PlannedBoth,
    Space,
    plan_both,
)
from cordwood.queries.whatif.effects import kafka_keys_a_pass
from cordwood.storage.reread import reread
from cordwood.surfaces.cli.advise_tables import SORTS, show_topics
from cordwood.surfaces.cli.biggest import TOP, AllOption, Choice, TopOption
from cordwood.surfaces.cli.left_out import FAILED, left_out, show_left_out
from cordwood.surfaces.cli.log_options import (
    LogFileOption,
    LogFormat,
    LogFormatOption,
    LogLevelOption,
)
from cordwood.surfaces.cli.running_broker import broker_command
from cordwood.surfaces.cli.screen import Screen
from cordwood.surfaces.cli.setting_options import (
    ConfigFileOption,
    DefaultsOption,
    LogDirsArgument,
    MetadataDirOption,
    ServerPropertiesOption,
    SetOption,
    TopicsOption,
)
from cordwood.surfaces.cli.values import parse_duration, parse_size, parse_time

EPILOG = """\b
Examples:
  cordwood advise /var/lib/kafka/data
  cordwood advise /var/lib/kafka/data --topic orders --max-age 7d
  cordwood advise /var/lib/kafka/data --topic orders --max-bytes 10G

\b
LOG_DIR is only read: a broker may run on it.

\b
Exit codes: 0 shown; 1 no settings keep the promise, or a partition could not
be read (other partitions are shown); 2 usage."""

_FAILED = 1

Value = dict[str, Any]


def advise_command(
    context: typer.Context,
    log_dirs: LogDirsArgument,
    topic: TopicsOption = None,
    max_age: Annotated[
        str | None,
        typer.Option("--max-age", metavar="DURATION", help="No record gets older, such as 7d."),
    ] = None,
    max_bytes: Annotated[
        str | None,
        typer.Option("--max-bytes", metavar="SIZE", help="No partition takes more disk space."),
    ] = None,
    rate: Annotated[
        str | None,
        typer.Option(metavar="RATE", help="Appends a second.  [default: the peak in the log]"),
    ] = None,
    set_: SetOption = None,
    config_file: ConfigFileOption = None,
    server_properties: ServerPropertiesOption = None,
    metadata_dir: MetadataDirOption = None,
    defaults: DefaultsOption = False,
    now: Annotated[
        str | None, typer.Option(metavar="TIME", help="The moment to look at: ms or ISO 8601.")
    ] = None,
    details: Annotated[
        bool, typer.Option("--details", help="Of each topic shown, its ages, changes and remarks.")
    ] = False,
    sort: Annotated[
        str, typer.Option(metavar="KEY", help=f"Sort topics by {', '.join(SORTS)}.")
    ] = SORTS[0],
    top: TopOption = TOP,
    all_: AllOption = False,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON document on stdout.")] = False,
    log_level: LogLevelOption = None,
    log_format: LogFormatOption = LogFormat.TEXT,
    log_file: LogFileOption = None,
) -> None:
    """Advises on the settings of topics.

    With --max-age, or --max-bytes for each partition: the loosest settings that keep the promise.
    Always: the largest age of a record as it is now, the disk space that the dirty ratio takes, and
    remarks on settings that do not do what they seem to.
    """
    with broker_command(
        context, "advise", log_level=log_level, log_format=log_format, log_file=log_file
    ):
        screen = context.with_resource(Screen())
        choice = Choice.of(sort, top, shows_all=all_, keys=SORTS)
        options = SettingOptions(
            log_dirs=log_dirs,
            set_options=set_ or (),
            config_file=config_file,
            server_properties=server_properties,
            metadata_dir=metadata_dir,
            defaults=defaults,
        )
        if rate is not None and max_bytes is None:
            raise ConfigError("--rate needs --max-bytes")
        settings = reread(lambda: read_settings(options))
        goal = _Goal(
            max_age_ms=None if max_age is None else parse_duration(max_age, option="--max-age"),
            max_bytes=None if max_bytes is None else parse_size(max_bytes, option="--max-bytes"),
            bytes_a_second=None if rate is None else parse_size(rate, option="--rate"),
        )
        clock = SystemClock()
        request = CleanRequest(
            log_dirs=tuple(log_dirs),
            resolve=settings.resolve,
            now_ms=clock.now_ms() if now is None else parse_time(now, option="--now"),
            topics=tuple(topic or ()),
            named_topics=settings.named_topics,
            producer_expiration_ms=settings.broker.producer_id_expiration_ms,
        )
        answer = _answer(settings, request, goal, clock=clock)
    if as_json:
        typer.echo(json.dumps(answer))
    else:
        show_left_out(answer, screen)
        show_topics(answer["topics"], choice, details=details)
    if answer[FAILED] or any(each["refused"] for each in answer["topics"]):
        raise typer.Exit(_FAILED)


class _Goal:
    """What is to be promised, if anything."""

    def __init__(
        self, *, max_age_ms: int | None, max_bytes: int | None, bytes_a_second: float | None
    ) -> None:
        self.max_age_ms = max_age_ms
        self.max_bytes = max_bytes
        self.bytes_a_second = bytes_a_second


def _answer(settings: Settings, request: CleanRequest, goal: _Goal, *, clock: Clock) -> Value:
    found = survey(request, clock=clock)
    by_topic: dict[str, list[LogFacts]] = {}
    checks = found.checks(request.applied_limits, now_ms=request.now_ms)
    for (report, captured), check in zip(found.logs, checks, strict=True):
        resolved = settings.resolve(report.topic)
        assert resolved is not None, "only topics with settings are captured"
        facts = offline_facts(report, captured, check, resolved, settings.broker)
        by_topic.setdefault(report.topic, []).append(facts)
    keys = kafka_keys_a_pass(CleanerSettings.of(settings.broker))
    topics = [_topic(name, by_topic[name], goal, keys) for name in sorted(by_topic)]
    _set_retention(topics, found, request)
    return {
        "now_ms": request.now_ms,
        "keys_a_pass": keys,
        "topics": topics,
        **left_out(found.report.partitions),
        "warnings": [*settings.warnings, *found.report.warnings],
    }


def _topic(name: str, logs: Sequence[LogFacts], goal: _Goal, keys: int) -> Value:
    facts = logs[0]
    config, delays = facts.view.config, facts.delays
    value: Value = {
        "topic": name,
        "partitions": len(logs),
        "bytes": sum(log.view.size_bytes for log in logs),
        "policy": ",".join(sorted(config.cleanup_policy)),
        "age": asdict(age_promise(config, delays)),
        "disk_overhead": disk_overhead(config) if config.compact else None,
        "keys_a_pass": keys if config.compact else None,
        "remarks": [
            asdict(each)
            for each in remarks(
                config,
                facts.origins,
                partitions=len(logs),
                consumed=[log.view.consumed for log in logs],
            )
        ],
        "refused": "",
        "promises": {},
    }
    try:
        if goal.max_age_ms is not None:
            value["promises"]["max_age_ms"] = _promise(
                keep_age(config, delays, goal.max_age_ms), value
            )
        if goal.max_bytes is not None:
            rate = goal.bytes_a_second
            if rate is None:
                rate = max(peak_bytes_a_second(each.view) for each in logs)
            value["bytes_a_second"] = round(rate, 3)
            value["promises"]["max_bytes"] = _promise(
                keep_size(config, delays, rate, goal.max_bytes), value
            )
    except ConfigError as error:
        value["refused"] = str(error)
    return value


def _set_retention(topics: Sequence[Value], found: Survey, request: CleanRequest) -> None:
    """Adds what retention takes of each topic, with its settings and with those advised."""
    advised = {each["topic"]: _changes(each) for each in topics}
    logs = []
    for log in found.shared:
        changes = advised[log.view.topic_partition.topic]
        config = replace(log.view.config, **changes)
        logs.append(BothSettings(log=log, then_view=replace(log.view, config=config)))
    free = found.free_bytes
    limits = dict.fromkeys(SIDES, request.applied_limits)
    space = Space(limits=limits, free_bytes=free, freeing=free)
    of_topic: dict[str, list[PlannedBoth]] = {}
    for planned in plan_both(logs, space, now_ms=request.now_ms):
        of_topic.setdefault(planned.log.log.view.topic_partition.topic, []).append(planned)
    for each in topics:
        plans = of_topic[each["topic"]]
        is_changed = bool(advised[each["topic"]])
        each["retention"] = {
            NOW: _taken([plan.now for plan in plans], [plan.next_24h[NOW] for plan in plans]),
            THEN: _taken([plan.then for plan in plans], [plan.next_24h[THEN] for plan in plans])
            if is_changed
            else None,
        }


def _changes(topic: Value) -> Value:
    """The changes that keep all that is promised, by field of `LogConfig`."""
    return {
        name.replace(".", "_"): value
        for promise in topic["promises"].values()
        for name, value in promise["changes"]
    }


def _taken(checks: Sequence[CheckPlan], next_24h: Sequence[int]) -> Value:
    return {
        "bytes": sum(check.plan.bytes_freed for check in checks),
        "bytes_next_24h": sum(next_24h),
    }


def _promise(promise: Promise, value: Value) -> Value:
    if promise.bound is None:
        value["refused"] = promise.why
    return asdict(promise)
