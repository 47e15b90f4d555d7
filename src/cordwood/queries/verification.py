"""The results of checks as answers: of log directories, and of the report of an erasure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from cordwood.cleanup.erasure import check
from cordwood.cleanup.verification.directories import NOT_CHECKED, CheckedLog, Verification
from cordwood.cleanup.verification.findings import Finding
from cordwood.storage.log_directory import InUse


@dataclass(frozen=True, slots=True, kw_only=True)
class FindingAnswer:
    """A broken rule, and where: the byte in the file and the offset in the log, if there is one."""

    rule: str
    level: str
    path: str
    position: int | None
    offset: int | None
    reason: str
    remedy: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckedPartition:
    """The result of one partition; counts are None if it could not be read, `skipped` says why."""

    directory: str
    topic: str
    partition: int
    skipped: str | None
    segments: int | None
    bytes: int | None
    batches: int | None
    records: int | None
    log_end_offset: int | None
    findings: Sequence[FindingAnswer]
    findings_left_out: int


@dataclass(frozen=True, slots=True, kw_only=True)
class NotChecked:
    """A check that a log directory did not get, as its broker runs or did not stop in order."""

    log_dir: str
    what: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Verified:
    """The result of log directories; `findings` are those of no partition, `bytes` were read."""

    sound: bool
    bytes: int
    elapsed_s: float
    in_use: Sequence[InUse]
    not_checked: Sequence[NotChecked]
    findings: Sequence[FindingAnswer]
    partitions: Sequence[CheckedPartition]


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckedErasure:
    """The result of the report of an erasure, by file and by claim."""

    failed: bool
    findings: Sequence[check.Finding]


def verified(result: Verification) -> Verified:
    """The answer to a verification of log directories."""
    return Verified(
        sound=result.is_sound,
        bytes=result.size_bytes,
        elapsed_s=result.elapsed_s,
        in_use=result.in_use,
        not_checked=[
            NotChecked(log_dir=str(log_dir), what=what)
            for log_dir in result.unsettled
            for what in NOT_CHECKED
        ],
        findings=[_finding(each) for each in result.findings],
        partitions=[_partition(log) for log in result.logs],
    )


def checked_erasure(findings: Sequence[check.Finding]) -> CheckedErasure:
    """The answer to a check of an erasure's report."""
    failed = any(each.verdict is check.Verdict.FAILED for each in findings)
    return CheckedErasure(failed=failed, findings=findings)


def _partition(log: CheckedLog) -> CheckedPartition:
    facts = log.facts
    return CheckedPartition(
        directory=str(log.directory),
        topic=log.partition.topic,
        partition=log.partition.partition,
        skipped=log.skipped,
        segments=facts.segments if facts else None,
        bytes=facts.size_bytes if facts else None,
        batches=facts.batches if facts else None,
        records=facts.records if facts else None,
        log_end_offset=facts.log_end_offset if facts else None,
        findings=[_finding(each) for each in log.findings],
        findings_left_out=log.unlisted,
    )


def _finding(finding: Finding) -> FindingAnswer:
    return FindingAnswer(
        rule=finding.rule.code,
        level=str(finding.rule.level),
        path=finding.path,
        position=finding.position,
        offset=finding.offset,
        reason=finding.reason,
        remedy=finding.rule.remedy,
    )
