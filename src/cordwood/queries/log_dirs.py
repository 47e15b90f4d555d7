"""Summary of log directories: disks, topics, data that retention removes, problems.

Only names, sizes and what a plan needs are read; no segment is read as a whole, unless a compaction
is due of so little that an estimate takes no time.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final, NoReturn

from cordwood.cleanup.access.offline.directories import find_places, open_log_dirs
from cordwood.cleanup.access.offline.log_directory import OfflineLogDirectory
from cordwood.cleanup.plan.check_plan import CheckPlan
from cordwood.cleanup.plan.cleaner_settings import CleanerSettings
from cordwood.cleanup.plan.estimates import Estimator
from cordwood.cleanup.plan.report import PartitionReport, Status
from cordwood.cleanup.plan.request import CleanRequest
from cordwood.cleanup.rules.cleanable import Cleanable, plan_cleanable
from cordwood.cleanup.rules.shared_retention import DirectoryLimits
from cordwood.cleanup.schedule.clean import clean
from cordwood.cleanup.schedule.survey import Survey, survey
from cordwood.format.file_names import CLEANER_OFFSET_CHECKPOINT, LOG_SUFFIX
from cordwood.model.clock import Clock
from cordwood.model.documents import ABSENT
from cordwood.model.errors import ConfigError, CordwoodError
from cordwood.model.extras import NATIVE, missing_packages
from cordwood.queries.estimates import Estimates
from cordwood.queries.explain.answer import ExplainedLog, Outlook
from cordwood.queries.explain.directories import facts_of_captured
from cordwood.queries.explain.explanation import explain
from cordwood.queries.explain.outlook import outlook
from cordwood.queries.overdue_cleaning import OverdueCleaning, overdue_cleaning
from cordwood.queries.partitions import SkippedPartition, partition_name, skipped_partitions
from cordwood.queries.settings import SettingOptions, Settings, read_settings
from cordwood.storage.filesystem import OS
from cordwood.storage.log_directory import InUse
from cordwood.storage.reread import reread

#: A compaction that reads more is not estimated: that would take seconds.
ESTIMATED_BYTES_MAX: Final = 64 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class LogDir:
    """A log directory and its disk; `in_use_by` is the process that holds its lock.

    `disk_bytes` is -1 for an archive in object storage.
    """

    log_dir: str
    disk_bytes: int
    disk_free_bytes: int
    stopped_cleanly: bool
    in_use_by: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicSize:
    """A topic's bytes, and by when retention removes them; None where no log was read.

    `bytes_not_read` are those of logs that were not read; `dirty_bytes` those of the
    `compactions_due`.
    """

    topic: str
    partitions: int
    policy: str | None
    bytes: int
    bytes_not_read: int
    now: int
    next_24h: int
    later: int
    stays: int
    compactions_due: int
    dirty_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class DueCompactions:
    """Number of due compactions, and the bytes that they would free, if that is quickly known.

    `bytes_freed` is None where it is not, for the reason `why_not`; `failed` have no estimate.
    """

    partitions: int
    bytes_to_read: int
    bytes_freed: int | None = None
    bytes_error: int | None = None
    is_exact: bool = False
    why_not: str = ""
    failed: Sequence[SkippedPartition] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """Something that is wrong; `code` is stable, for scripts."""

    code: str
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class NextCommand:
    """A command that follows, and what it does."""

    command: str
    what: str


@dataclass(frozen=True, slots=True, kw_only=True)
class LogDirsSummary:
    """Summary of log directories at `now_ms`.

    `retention_assumed` are topics whose retention follows from no source. `problems` and `next` are
    those of the command.
    """

    now_ms: int
    log_dirs: Sequence[LogDir]
    partitions: int
    bytes: int
    summary: Outlook
    topics: Sequence[TopicSize]
    overdue_cleanings: Sequence[OverdueCleaning]
    compaction: DueCompactions
    in_use: Sequence[InUse]
    retention_assumed: Sequence[str]
    left_alone: Sequence[SkippedPartition]
    failed: Sequence[SkippedPartition]
    warnings: Sequence[str]
    problems: Sequence[Problem] | None = field(default=None, metadata=ABSENT)
    next: Sequence[NextCommand] | None = field(default=None, metadata=ABSENT)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Log:
    """A log that was read; `due` is the compaction that follows its retention, None for none."""

    answer: ExplainedLog
    due: Cleanable | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Looked:
    """The log directories that can be read, and why the others cannot."""

    log_dirs: tuple[Path, ...]
    failed: tuple[tuple[Path, str], ...]


def readable(log_dirs: Sequence[Path]) -> Looked:
    """The directories that can be read; one alone is not looked at.

    Raises:
        CordwoodError, OSError: none can; it is what is wrong with the first.
    """
    if len(log_dirs) == 1:
        return Looked(log_dirs=tuple(log_dirs), failed=())
    found: list[Path] = []
    failed: list[tuple[Path, str]] = []
    first: Exception | None = None
    for path in log_dirs:
        try:
            find_places(open_log_dirs([path]))
        except (CordwoodError, OSError) as error:
            first = first or error
            failed.append((path, str(error)))
        else:
            found.append(path)
    if not found:
        if first is None:
            raise ConfigError("no directory is given")
        raise first
    return Looked(log_dirs=tuple(found), failed=tuple(failed))


def summary_of(
    options: SettingOptions, *, now_ms: int, clock: Clock, estimator: Estimator | None
) -> LogDirsSummary:
    """The summary of log directories.

    Args:
        options: the directories, all of which can be read, and the sources of settings.
        now_ms: the moment for which it is said what goes.
        clock: for timings.
        estimator: estimates what compactions would free; None to estimate nothing.

    Raises:
        ConfigError: an option cannot be used.
        CordwoodError, OSError: a directory cannot be read.
    """
    settings = reread(lambda: read_settings(options))
    request = CleanRequest(
        log_dirs=tuple(options.log_dirs),
        resolve=settings.resolve,
        now_ms=now_ms,
        named_topics=settings.named_topics,
        directory_limits=DirectoryLimits.of(settings.broker),
        producer_expiration_ms=settings.broker.producer_id_expiration_ms,
        metadata_version=settings.metadata_version,
        dry_run=True,
    )
    found = survey(request, clock=clock)
    checks = found.checks(request.applied_limits, now_ms=now_ms)
    logs = _explained(found, checks, settings, now_ms=now_ms)
    answers = [each.answer for each in logs]
    cleans = CleanerSettings.of(settings.broker).enable
    topics = _topics(found, logs, request)
    return LogDirsSummary(
        now_ms=now_ms,
        log_dirs=[_log_dir(each) for each in open_log_dirs(options.log_dirs)],
        partitions=sum(each.partitions for each in topics),
        bytes=sum(each.bytes for each in topics),
        summary=outlook(answers, now_ms=now_ms),
        topics=topics,
        overdue_cleanings=_overdue(found, now_ms=now_ms) if cleans else [],
        compaction=_compaction(request, logs, clock=clock, estimator=estimator),
        in_use=found.report.in_use,
        retention_assumed=list(found.refused(checks, now_ms=now_ms).topics),
        left_alone=skipped_partitions(found.report.partitions, Status.LEFT_ALONE),
        failed=skipped_partitions(found.report.partitions, Status.FAILED),
        warnings=[
            *settings.warnings,
            *found.report.warnings,
            *(f"{partition_name(e)}: {text}" for e in answers for text in e.warnings),
        ],
    )


def _explained(
    found: Survey, checks: Sequence[CheckPlan], settings: Settings, *, now_ms: int
) -> list[_Log]:
    """Every log that was read, as `cordwood explain` explains it."""
    logs = []
    for (report, captured), check in zip(found.logs, checks, strict=True):
        facts = facts_of_captured(report, captured, check, settings)
        answer = explain(facts, now_ms=now_ms).answer()
        logs.append(_Log(answer=answer, due=_due(check, now_ms=now_ms)))
    return logs


def _overdue(found: Survey, *, now_ms: int) -> list[OverdueCleaning]:
    """The logs that the cleaner of a broker has left alone though they were due."""
    checkpoints_ms: dict[str, int | None] = {}
    overdue = []
    for report, captured in found.logs:
        # The time is read after the logs: a cleaner that works meanwhile makes it later.
        if report.log_dir not in checkpoints_ms:
            checkpoints_ms[report.log_dir] = _cleaned_ms(Path(report.log_dir))
        checkpoint_ms = checkpoints_ms[report.log_dir]
        if checkpoint_ms is None:
            continue
        each = overdue_cleaning(
            captured.view, log_dir=report.log_dir, checkpoint_ms=checkpoint_ms, now_ms=now_ms
        )
        if each is not None:
            overdue.append(each)
    return overdue


def _cleaned_ms(log_dir: Path) -> int | None:
    """Upper bound (ms) of the end of the last cleaning in a directory; None if nothing shows it."""
    try:
        return OS.facts_of(log_dir / CLEANER_OFFSET_CHECKPOINT).modified_ms
    except OSError:
        return None


def _due(check: CheckPlan, *, now_ms: int) -> Cleanable | None:
    if check.plan.roll or not check.after.config.compact:  # nothing is left, or nothing compacted
        return None
    cleanable = plan_cleanable(check.after, now_ms=now_ms)
    return cleanable if cleanable.reason is None else None


def _log_dir(found: OfflineLogDirectory) -> LogDir:
    total, free = OS.space(found.path)
    return LogDir(
        log_dir=str(found.path),
        disk_bytes=total,
        disk_free_bytes=free,
        stopped_cleanly=found.is_whole,
        in_use_by=OS.lock_holder(found.path),
    )


def _topics(found: Survey, logs: Sequence[_Log], request: CleanRequest) -> list[TopicSize]:
    """Every topic with its size; of logs that were not read that of their files."""
    read: dict[str, list[_Log]] = {}
    for each in logs:
        read.setdefault(each.answer.topic, []).append(each)
    sizes: dict[str, list[int]] = {}
    known = {(report.log_dir, report.topic, report.partition) for report, _ in found.logs}
    is_whole = len(known) == len(found.report.partitions)
    for place in [] if is_whole else find_places(open_log_dirs(request.log_dirs)):
        partition = place.partition.topic_partition
        if (str(place.log_dir.path), partition.topic, partition.partition) not in known:
            sizes.setdefault(partition.topic, []).append(_size(place.partition.path))
    return [
        _topic(name, read.get(name, []), sizes.get(name, []), now_ms=request.now_ms)
        for name in sorted(read.keys() | sizes.keys())
    ]


def _topic(name: str, logs: Sequence[_Log], unread: Sequence[int], *, now_ms: int) -> TopicSize:
    answers = [each.answer for each in logs]
    parts = outlook(answers, now_ms=now_ms)
    due = [each.due for each in logs if each.due is not None]
    return TopicSize(
        topic=name,
        partitions=len(logs) + len(unread),
        policy=answers[0].policy if answers else None,
        bytes=sum(each.size_bytes for each in answers) + sum(unread),
        bytes_not_read=sum(unread),
        now=parts.now.bytes,
        next_24h=parts.next_24h.bytes,
        later=parts.later.bytes,
        stays=parts.stays.bytes,
        compactions_due=len(due),
        dirty_bytes=sum(each.cleanable_bytes for each in due),
    )


def _size(directory: Path) -> int:
    """The bytes of a partition's segments, 0 if it cannot be read."""
    try:
        names = [name for name in OS.names_in(directory) if name.endswith(LOG_SUFFIX)]
        return sum(OS.facts_of(directory / name).size_bytes for name in names)
    except OSError:
        return 0


# ---- compaction


def _compaction(
    request: CleanRequest,
    logs: Sequence[_Log],
    *,
    clock: Clock,
    estimator: Estimator | None,
) -> DueCompactions:
    due = [each.due for each in logs if each.due is not None]
    to_read = sum(each.bytes_to_read for each in due)
    answer = DueCompactions(partitions=len(due), bytes_to_read=to_read)
    if not due:
        return replace(answer, bytes_freed=0, bytes_error=0, is_exact=True)
    if missing_packages(NATIVE):
        return replace(answer, why_not="that needs pip install 'cordwood[native]'")
    if estimator is None or to_read > ESTIMATED_BYTES_MAX:
        return replace(answer, why_not="`cordwood clean --dry-run` estimates it")
    topics = tuple(sorted({each.answer.topic for each in logs if each.due is not None}))
    report = clean(
        replace(request, topics=topics, named_topics={}),
        _no_engine,
        clock=clock,
        estimator=estimator,
    )
    found = Estimates.of(report)
    failed = _reasons(found.failed, logs)
    if found.is_empty:
        return replace(answer, why_not="no log that is due can be read", failed=failed)
    return replace(
        answer,
        bytes_freed=found.bytes_freed,
        bytes_error=round(found.error),
        is_exact=found.is_exact,
        why_not=found.without,
        failed=failed,
    )


def _reasons(failed: Sequence[PartitionReport], logs: Sequence[_Log]) -> list[SkippedPartition]:
    """The partitions that could not be estimated, with what is said of them beyond `logs`."""
    known = {partition_name(each.answer): each.answer.warnings for each in logs}
    found = []
    for each in failed:
        before = known.get(partition_name(each), ())
        reason = "; ".join(text for text in each.warnings if text not in before)
        found.append(SkippedPartition(topic=each.topic, partition=each.partition, reason=reason))
    return found


def _no_engine() -> NoReturn:
    raise AssertionError("a dry run that estimates starts no engine")
