"""Advice on the settings of topics, by their logs in log directories."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from cordwood.cleanup.plan.check_plan import CheckPlan
from cordwood.cleanup.plan.cleaner_settings import CleanerSettings
from cordwood.cleanup.plan.report import Status
from cordwood.cleanup.plan.request import CleanRequest
from cordwood.cleanup.rules.shared_retention import DirectoryLimits
from cordwood.cleanup.schedule.survey import Survey, survey
from cordwood.model.clock import SystemClock
from cordwood.model.documents import ABSENT
from cordwood.model.errors import ConfigError
from cordwood.queries.advise.lint import Remark, remarks
from cordwood.queries.advise.promise import (
    Promise,
    age_promise,
    disk_overhead,
    keep_age,
    keep_size,
    peak_bytes_a_second,
)
from cordwood.queries.explain.directories import facts_of_captured
from cordwood.queries.explain.log_facts import LogFacts
from cordwood.queries.partitions import SkippedPartition, skipped_partitions
from cordwood.queries.settings import SettingOptions, read_settings
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


@dataclass(frozen=True, slots=True, kw_only=True)
class AdviceQuestion:
    """Topics that are asked for, and the promises that are wanted for them, if any.

    `now_ms` is None for the time of this machine, `bytes_a_second` for the peak of the log.
    """

    options: SettingOptions
    topics: tuple[str, ...]
    now_ms: int | None
    max_age_ms: int | None
    max_bytes: int | None
    bytes_a_second: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Taken:
    """Bytes that retention removes from a topic now, and in the next 24 hours after that."""

    bytes: int
    bytes_next_24h: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TakenBoth:
    """Removal by retention with the settings in force, and with those advised, None without."""

    now: Taken
    then: Taken | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Promises:
    """Settings that keep what is asked for: a largest age in ms, a largest size in bytes."""

    max_age_ms: Promise | None = field(default=None, metadata=ABSENT)
    max_bytes: Promise | None = field(default=None, metadata=ABSENT)

    @property
    def made(self) -> list[Promise]:
        """The promises that were asked for."""
        return [each for each in (self.max_age_ms, self.max_bytes) if each is not None]

    @property
    def changes(self) -> dict[str, int]:
        """The changes that keep all, by field of `LogConfig`."""
        return {name.replace(".", "_"): value for each in self.made for name, value in each.changes}


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicAdvice:
    """A topic: the largest age of a record as it is, remarks, and what was asked for.

    `disk_overhead` is a factor of the size of the newest values, None where the topic is not
    compacted. `refused` says why nothing keeps what was asked for. `bytes_a_second` is what a
    largest size is promised for.
    """

    topic: str
    partitions: int
    bytes: int
    policy: str
    age: Promise
    disk_overhead: float | None
    keys_a_pass: int | None
    remarks: Sequence[Remark]
    refused: str
    promises: Promises
    bytes_a_second: float | None = field(default=None, metadata=ABSENT)
    retention: TakenBoth


@dataclass(frozen=True, slots=True, kw_only=True)
class Advice:
    """Advice on topics at `now_ms`; `keys_a_pass` is how many Kafka's cleaner takes."""

    now_ms: int
    keys_a_pass: int
    topics: Sequence[TopicAdvice]
    left_alone: Sequence[SkippedPartition]
    failed: Sequence[SkippedPartition]
    warnings: Sequence[str]


def advise_directories(question: AdviceQuestion) -> Advice:
    """Plans the cleaning of directories and suggests settings; reads only what a plan needs.

    Raises:
        ConfigError: an option cannot be used.
        CordwoodError, OSError: a directory cannot be read.
    """
    settings = reread(lambda: read_settings(question.options))
    clock = SystemClock()
    request = CleanRequest(
        log_dirs=tuple(question.options.log_dirs),
        resolve=settings.resolve,
        now_ms=clock.now_ms() if question.now_ms is None else question.now_ms,
        topics=question.topics,
        named_topics=settings.named_topics,
        directory_limits=DirectoryLimits.of(settings.broker),
        producer_expiration_ms=settings.broker.producer_id_expiration_ms,
        metadata_version=settings.metadata_version,
    )
    found = survey(request, clock=clock)
    by_topic: dict[str, list[LogFacts]] = {}
    checks = found.checks(request.applied_limits, now_ms=request.now_ms)
    for (report, captured), check in zip(found.logs, checks, strict=True):
        facts = facts_of_captured(report, captured, check, settings)
        by_topic.setdefault(report.topic, []).append(facts)
    kept = {name: _Kept.of(logs, question) for name, logs in by_topic.items()}
    retention = _retention(kept, found, request)
    keys = kafka_keys_a_pass(CleanerSettings.of(settings.broker))
    return Advice(
        now_ms=request.now_ms,
        keys_a_pass=keys,
        topics=[
            _topic(name, by_topic[name], kept[name], retention[name], keys)
            for name in sorted(by_topic)
        ],
        left_alone=skipped_partitions(found.report.partitions, Status.LEFT_ALONE),
        failed=skipped_partitions(found.report.partitions, Status.FAILED),
        warnings=[*settings.warnings, *found.report.warnings],
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Kept:
    """Promises that a topic can keep, and the reason why it cannot keep another."""

    promises: Promises = field(default_factory=Promises)
    refused: str = ""
    bytes_a_second: float | None = None

    @classmethod
    def of(cls, logs: Sequence[LogFacts], asked: AdviceQuestion) -> _Kept:
        """The promises that were asked for a topic, and the settings that keep them."""
        config, delays = logs[0].view.config, logs[0].delays
        kept = cls()
        try:
            if asked.max_age_ms is not None:
                promise = keep_age(config, delays, asked.max_age_ms)
                kept = kept._with(promise, max_age_ms=promise)
            if asked.max_bytes is not None:
                rate = asked.bytes_a_second
                if rate is None:
                    rate = max(peak_bytes_a_second(each.view) for each in logs)
                kept = replace(kept, bytes_a_second=round(rate, 3))
                promise = keep_size(config, delays, rate, asked.max_bytes)
                kept = kept._with(promise, max_bytes=promise)
        except ConfigError as error:
            return replace(kept, refused=str(error))
        return kept

    def _with(self, promise: Promise, **named: Promise) -> _Kept:
        refused = promise.why if promise.bound is None else self.refused
        return replace(self, promises=replace(self.promises, **named), refused=refused)


def _topic(
    name: str, logs: Sequence[LogFacts], kept: _Kept, retention: TakenBoth, keys: int
) -> TopicAdvice:
    facts = logs[0]
    config = facts.view.config
    return TopicAdvice(
        topic=name,
        partitions=len(logs),
        bytes=sum(log.view.size_bytes for log in logs),
        policy=",".join(sorted(config.cleanup_policy)),
        age=age_promise(config, facts.delays),
        disk_overhead=disk_overhead(config) if config.compact else None,
        keys_a_pass=keys if config.compact else None,
        remarks=remarks(
            config,
            facts.origins,
            partitions=len(logs),
            consumed=[log.view.consumed for log in logs],
        ),
        refused=kept.refused,
        promises=kept.promises,
        bytes_a_second=kept.bytes_a_second,
        retention=retention,
    )


def _retention(
    kept: Mapping[str, _Kept], found: Survey, request: CleanRequest
) -> dict[str, TakenBoth]:
    """Removal by retention from each topic, with its settings and with the advised ones."""
    logs = []
    for log in found.shared:
        changes: dict[str, Any] = kept[log.view.topic_partition.topic].promises.changes
        config = replace(log.view.config, **changes)
        logs.append(BothSettings(log=log, then_view=replace(log.view, config=config)))
    free = found.free_bytes
    limits = dict.fromkeys(SIDES, request.applied_limits)
    space = Space(limits=limits, free_bytes=free, freeing=free)
    of_topic: dict[str, list[PlannedBoth]] = {}
    for planned in plan_both(logs, space, now_ms=request.now_ms):
        of_topic.setdefault(planned.log.log.view.topic_partition.topic, []).append(planned)
    return {
        name: TakenBoth(
            now=_taken([plan.now for plan in plans], [plan.next_24h[NOW] for plan in plans]),
            then=_taken([plan.then for plan in plans], [plan.next_24h[THEN] for plan in plans])
            if kept[name].promises.changes
            else None,
        )
        for name, plans in of_topic.items()
    }


def _taken(checks: Sequence[CheckPlan], next_24h: Sequence[int]) -> Taken:
    return Taken(
        bytes=sum(check.plan.bytes_freed for check in checks), bytes_next_24h=sum(next_24h)
    )
