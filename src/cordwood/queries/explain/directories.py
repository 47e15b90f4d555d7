"""Logs of log directories explained; their files are only read."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace

from cordwood.cleanup.plan.captured import Captured
from cordwood.cleanup.plan.check_plan import CheckPlan
from cordwood.cleanup.plan.report import PartitionReport, Status
from cordwood.cleanup.plan.request import CleanRequest
from cordwood.cleanup.rules.shared_retention import DirectoryLimits
from cordwood.cleanup.schedule.survey import survey
from cordwood.model.clock import SystemClock
from cordwood.model.extras import NATIVE, require_extra
from cordwood.model.topic_partition import TopicPartition
from cordwood.queries.explain.answer import ExplainedLog, Explanation
from cordwood.queries.explain.explanation import LogExplanation, explain
from cordwood.queries.explain.log_facts import (
    Delays,
    LogFacts,
    OpenTransaction,
    bytes_a_second,
)
from cordwood.queries.explain.outlook import outlook
from cordwood.queries.partitions import partition_name, skipped_partitions
from cordwood.queries.settings import SettingOptions, Settings, read_settings
from cordwood.storage.reread import reread

_NAMED = 3

#: Shows that so many bytes are to be read; what it yields is called with those that were.
Reading = Callable[[int], AbstractContextManager[Callable[[int], None]]]


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordQuestion:
    """Records that are asked for: one by partition and offset, or all of a key."""

    partition: TopicPartition | None = None
    offset: int = -1
    key: bytes | None = None

    def topics(self, given: tuple[str, ...]) -> tuple[str, ...]:
        """The topics to read, of those that are asked for."""
        return given if self.partition is None else (self.partition.topic,)

    def not_found(self, logs: Sequence[ExplainedLog]) -> str:
        """Why the logs that were read have no such record."""
        spans = [_span(each) for each in logs[:_NAMED]]
        rest = len(logs) - _NAMED
        has = "; ".join([*spans, *([f"{rest:,} more partitions were read"] if rest > 0 else [])])
        if self.partition is None:
            assert self.key is not None, "a key or a partition is asked for"
            key = self.key.decode("utf-8", "backslashreplace")
            return f"No record has the key {key}: {has or 'no partition could be read'}"
        if not logs:
            return f"There is no partition {self.partition} here that can be read"
        (log,) = logs
        if self.offset >= log.log_end_offset:
            return f"No record has this offset yet: {has}"
        if self.offset < log.log_start_offset:
            return f"This record was removed, with all before the log start offset: {has}"
        return f"This record was removed by a compaction, or no record ever had this offset: {has}"

    def concerns(self, partition: TopicPartition) -> bool:
        """Whether a log may have what is asked for."""
        return self.partition in {None, partition}


@dataclass(frozen=True, slots=True, kw_only=True)
class DirectoryQuestion:
    """Directories and topics that are asked for, the settings, and the moment.

    `now_ms` is None for the time of this machine, `records` if no record is asked for.
    """

    options: SettingOptions
    topics: tuple[str, ...]
    now_ms: int | None
    records: RecordQuestion | None


def explain_directories(question: DirectoryQuestion, reading: Reading) -> Explanation:
    """The answer; records are read only where they are asked for.

    Raises:
        ConfigError: an option cannot be used.
        MissingExtraError: what reads records is not installed.
        CordwoodError, OSError: a directory cannot be read.
    """
    records = question.records
    if records is not None:
        require_extra(NATIVE, what="a question about records")
    settings = reread(lambda: read_settings(question.options))
    clock = SystemClock()
    now_ms = clock.now_ms() if question.now_ms is None else question.now_ms
    request = CleanRequest(
        log_dirs=tuple(question.options.log_dirs),
        resolve=settings.resolve,
        now_ms=now_ms,
        topics=question.topics if records is None else records.topics(question.topics),
        named_topics=settings.named_topics,
        directory_limits=DirectoryLimits.of(settings.broker),
        producer_expiration_ms=settings.broker.producer_id_expiration_ms,
        metadata_version=settings.metadata_version,
    )
    found = survey(request, clock=clock)
    checks = found.checks(request.applied_limits, now_ms=now_ms)
    logs: list[tuple[Captured, LogExplanation]] = []
    for (report, captured), check in zip(found.logs, checks, strict=True):
        if records is None or records.concerns(captured.view.topic_partition):
            facts = facts_of_captured(report, captured, check, settings)
            logs.append((captured, explain(facts, now_ms=now_ms)))
    partitions = [explanation.answer() for _, explanation in logs]
    answer = Explanation(
        now_ms=now_ms,
        partitions=partitions,
        in_use=found.report.in_use,
        left_alone=skipped_partitions(found.report.partitions, Status.LEFT_ALONE),
        failed=skipped_partitions(found.report.partitions, Status.FAILED),
        warnings=[*settings.warnings, *found.report.warnings, *request.limits_warnings],
        summary=outlook(partitions, now_ms=now_ms),
    )
    return answer if records is None else _with_records(answer, records, logs, reading)


def _with_records(
    answer: Explanation,
    asked: RecordQuestion,
    logs: Sequence[tuple[Captured, LogExplanation]],
    reading: Reading,
) -> Explanation:
    # Compiled code is loaded only to read records.
    from cordwood.queries.explain.records import explain_records  # noqa: PLC0415

    with reading(sum(captured.view.size_bytes for captured, _ in logs)) as progress:
        found = explain_records(asked.offset, asked.key, logs, progress)
    why = "" if found else asked.not_found(answer.partitions)
    return replace(answer, records=found, not_found=why)


def _span(log: ExplainedLog) -> str:
    """The offsets of a log."""
    name, start, end = partition_name(log), log.log_start_offset, log.log_end_offset
    if start == end:
        return f"{name} is empty, its next offset is {end}"
    return f"{name} has offsets {start} to {end - 1}"


def facts_of_captured(
    report: PartitionReport, captured: Captured, check: CheckPlan, settings: Settings
) -> LogFacts:
    """The facts about one log; `check` is the plan of the next check of retention.

    The delays are those of a broker with these settings: a stopped log is cleaned when the broker
    runs again, or by `cordwood clean`, which waits for nothing. That it has a trash is taken for
    granted where cordwood.trash.ms is set.
    """
    broker, resolved = settings.broker, settings.resolve(report.topic)
    assert resolved is not None, "only topics with settings are captured"
    rate = broker.log_cleaner_io_max_bytes_per_second
    return LogFacts(
        view=captured.view,
        log_dir=report.log_dir,
        check=check,
        origins=resolved.origin,
        transactions=tuple(
            OpenTransaction(
                producer_id=each.producer_id,
                producer_epoch=each.producer_epoch,
                start_offset=each.current_txn_first_offset,
            )
            for each in sorted(captured.producers, key=lambda each: each.current_txn_first_offset)
            if each.current_txn_first_offset >= 0
        ),
        delays=Delays(
            check_ms=broker.log_retention_check_interval_ms,
            backoff_ms=broker.log_cleaner_backoff_ms,
            file_delete_ms=resolved.config.file_delete_delay_ms,
            trash_ms=resolved.config.cordwood_trash_ms if broker.trash_dir else 0,
        ),
        throttle_bytes=bytes_a_second(rate),
        warnings=(*resolved.warnings, *captured.warnings),
    )
