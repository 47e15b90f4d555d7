"""Answers of `cordwood explain` from the files of log directories."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from cordwood.cleanup.access.capture import Captured
from cordwood.cleanup.plan.check_plan import CheckPlan
from cordwood.cleanup.rules.shared_retention import DirectoryLimits
from cordwood.cleanup.schedule.clean import survey
from cordwood.cleanup.schedule.report import PartitionReport
from cordwood.cleanup.schedule.request import CleanRequest
from cordwood.model.clock import SystemClock
from cordwood.model.errors import ConfigError
from cordwood.model.extras import NATIVE, require_extra
from cordwood.model.topic_partition import TopicPartition
from cordwood.queries.explain.explanation import LogExplanation, explain
from cordwood.queries.explain.offline_facts import offline_facts
from cordwood.queries.settings import SettingOptions, Settings, read_settings
from cordwood.storage.reread import reread
from cordwood.surfaces.cli.left_out import left_out
from cordwood.surfaces.cli.screen import Screen
from cordwood.surfaces.cli.values import parse_time

_PARTS = 3
_NAMED = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordQuestion:
    """Which records are asked for: one by partition and offset, or all of a key."""

    partition: TopicPartition | None = None
    offset: int = -1
    key: bytes | None = None

    @classmethod
    def parse(
        cls, record: str | None, key: str | None, *, topics: Sequence[str]
    ) -> RecordQuestion | None:
        """The question that --record or --key asks; None without either.

        Raises:
            ConfigError: both are given, or a value cannot be understood.
        """
        if record is not None and key is not None:
            raise ConfigError("--record and --key exclude each other")
        if key is not None:
            if not topics:
                raise ConfigError("--key needs --topic: which topic has the key?")
            return cls(key=key.encode("utf-8", "surrogateescape"))
        if record is None:
            return None
        parts = record.rsplit(":", 2)
        if len(parts) != _PARTS or not (parts[1].isdecimal() and parts[2].isdecimal()):
            raise ConfigError(f"--record {record}: expected TOPIC:PARTITION:OFFSET")
        return cls(partition=TopicPartition(parts[0], int(parts[1])), offset=int(parts[2]))

    def topics(self, given: tuple[str, ...]) -> tuple[str, ...]:
        """The topics to read, of those that --topic gives."""
        return given if self.partition is None else (self.partition.topic,)

    def not_found(self, partitions: Sequence[dict[str, Any]]) -> str:
        """What is said where the logs that were read have no such record."""
        spans = [_span(each) for each in partitions[:_NAMED]]
        rest = len(partitions) - _NAMED
        has = "; ".join([*spans, *([f"{rest:,} more partitions were read"] if rest > 0 else [])])
        if self.partition is None:
            assert self.key is not None, "a key or a partition is asked for"
            key = self.key.decode("utf-8", "backslashreplace")
            return f"No record has the key {key}: {has or 'no partition could be read'}"
        if not partitions:
            return f"There is no partition {self.partition} here that can be read"
        (log,) = partitions
        if self.offset >= log["log_end_offset"]:
            return f"No record has this offset yet: {has}"
        if self.offset < log["log_start_offset"]:
            return f"This record was removed, with all before the log start offset: {has}"
        return f"This record was removed by a compaction, or no record ever had this offset: {has}"

    def concerns(self, partition: TopicPartition) -> bool:
        """Whether a log may have what is asked for."""
        return self.partition in {None, partition}


@dataclass(frozen=True, slots=True, kw_only=True)
class DirectoryQuestion:
    """The question: about which directories and topics, with which settings, at which moment."""

    options: SettingOptions
    topics: tuple[str, ...]
    now: str | None
    records: RecordQuestion | None


def explain_files(question: DirectoryQuestion, screen: Screen) -> dict[str, Any]:
    """The answer, as plain values; records are read only where they are asked for.

    Raises:
        ConfigError: an option cannot be used.
        MissingExtraError: what reads records is not installed.
        CordwoodError, OSError: a directory cannot be read.
    """
    if question.records is not None:
        require_extra(NATIVE, what="a question about records")
    settings = reread(lambda: read_settings(question.options))
    clock = SystemClock()
    now_ms = clock.now_ms() if question.now is None else parse_time(question.now, option="--now")
    records = question.records
    request = CleanRequest(
        log_dirs=tuple(question.options.log_dirs),
        resolve=settings.resolve,
        now_ms=now_ms,
        topics=question.topics if records is None else records.topics(question.topics),
        named_topics=settings.named_topics,
        directory_limits=DirectoryLimits.of(settings.broker),
        producer_expiration_ms=settings.broker.producer_id_expiration_ms,
    )
    found = survey(request, clock=clock)
    checks = found.checks(request.applied_limits, now_ms=now_ms)
    explained = [
        (report, captured, _explained(report, captured, check, settings, now_ms))
        for (report, captured), check in zip(found.logs, checks, strict=True)
        if records is None or records.concerns(captured.view.topic_partition)
    ]
    answer: dict[str, Any] = {
        "now_ms": now_ms,
        "partitions": [explanation.to_json() for _, _, explanation in explained],
        "in_use": found.report.in_use,
        **left_out(found.report.partitions),
        "warnings": [*settings.warnings, *found.report.warnings, *request.limits_warnings],
    }
    if records is not None:
        # Compiled code is loaded only to read records.
        from cordwood.surfaces.cli.explain_records import explain_records  # noqa: PLC0415

        logs = [(captured, explanation) for _, captured, explanation in explained]
        answer["records"] = explain_records(records.offset, records.key, logs, screen)
        answer["not_found"] = "" if answer["records"] else records.not_found(answer["partitions"])
    return answer


def _span(log: dict[str, Any]) -> str:
    """The offsets of a log."""
    name = f"{log['topic']}-{log['partition']}"
    start, end = log["log_start_offset"], log["log_end_offset"]
    if start == end:
        return f"{name} is empty, its next offset is {end}"
    return f"{name} has offsets {start} to {end - 1}"


def _explained(
    report: PartitionReport, captured: Captured, check: CheckPlan, settings: Settings, now_ms: int
) -> LogExplanation:
    resolved = settings.resolve(captured.view.topic_partition.topic)
    assert resolved is not None, "only topics with settings are captured"
    facts = offline_facts(report, captured, check, resolved, settings.broker)
    return explain(facts, now_ms=now_ms)
