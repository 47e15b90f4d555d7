"""Checks a report of an erasure against the files that it names.

A file may be another one by now without being damaged: a later cleaning has rewritten or deleted
it, or a broker has appended to it. Such a file has another size and whole batches, and what counts
is that no erased offset is in it. A file with the same size and other bytes was changed.
"""

from __future__ import annotations

import enum
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from cordwood.cleanup.engine.search.bits import present_in
from cordwood.cleanup.engine.search.offsets import count_in
from cordwood.cleanup.engine.search.search import Searched
from cordwood.cleanup.erasure.report import (
    ED25519,
    ErasedBeside,
    ErasedFile,
    ErasedPartition,
    FileFacts,
    ReportStatus,
    SealedReport,
    hash_of,
    parse_report,
)
from cordwood.cleanup.plan.compaction_values import OffsetRanges
from cordwood.format.file_names import LOG_SUFFIX, PRODUCER_SNAPSHOT_SUFFIX, base_offset_of
from cordwood.model.errors import ConfigError, CordwoodError, CorruptError
from cordwood.model.topic_partition import TopicPartition
from cordwood.storage.filesystem import OS
from cordwood.storage.reading.source import SegmentSource

_OFFSET_MAX = (1 << 63) - 1


class Verdict(enum.StrEnum):
    """The verdict on one file, or on one claim of a report."""

    OK = "ok"
    CHANGED_SINCE = "changed since"
    FAILED = "failed"


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One result; `subject` is a file, a partition, or the report."""

    verdict: Verdict
    subject: str
    text: str


def check_erasure(
    report: Path, log_dirs: Sequence[Path] = (), *, public_key: str | None = None
) -> list[Finding]:
    """Checks signature, hashes of files, and that no erased record is there; changes nothing.

    Args:
        report: the report's file.
        log_dirs: where the partitions are; where the report says, if empty.
        public_key: the Ed25519 key that must have signed it, in hex; any if None.

    Raises:
        ConfigError: the report cannot be read.
        MissingExtraError: the report is signed, and nothing is installed that checks signatures.
    """
    try:
        data = OS.read_bytes(report)
    except OSError as error:
        raise ConfigError(f"{report}: cannot be read: {error.strerror}") from error
    try:
        value = parse_report(data, path=str(report))
    except CorruptError as error:
        return [Finding(verdict=Verdict.FAILED, subject=str(report), text=str(error))]
    findings = [_of_signature(report, value, public_key)]
    if value.status is not ReportStatus.ERASED:
        text = f"it is of an erasure that did not end well: {value.status}"
        findings.append(Finding(verdict=Verdict.FAILED, subject=str(report), text=text))
    for entry in value.partitions:
        if entry.files is not None and entry.log_end_offset is not None:
            findings += _Partition(entry, entry.files, entry.log_end_offset, log_dirs).findings()
    findings += map(_of_file, value.beside)
    for path in value.removed:
        if path.startswith("/") and OS.exists(Path(path)):
            text = "it was removed by the erasure, and is there again"
            findings.append(Finding(verdict=Verdict.FAILED, subject=path, text=text))
    return findings


def _of_signature(report: Path, value: SealedReport, public_key: str | None) -> Finding:
    seal = value.signature
    signer = seal.public_key
    if public_key is not None and signer != public_key:
        text = f"it is signed by {signer or 'nobody'}, not by {public_key}"
        return Finding(verdict=Verdict.FAILED, subject=str(report), text=text)
    if seal.algorithm == ED25519:
        text = f"signed by {signer}"
    else:
        text = f"unsigned; its SHA-256 {seal.sha256} matches"
    return Finding(verdict=Verdict.OK, subject=str(report), text=text)


class _Partition:
    """The check of one partition."""

    def __init__(
        self,
        entry: ErasedPartition,
        files: Sequence[ErasedFile],
        end: int,
        log_dirs: Sequence[Path],
    ) -> None:
        self._name = entry.partition
        places = [each / self._name for each in log_dirs] or [Path(entry.directory)]
        self._directory = next((each for each in places if OS.exists(each)), None)
        self._erased = entry.offsets
        #: The files that there were after the erasure, by name.
        self._known = {each.name: each.after for each in files if each.after is not None}
        self._end = end

    def findings(self) -> list[Finding]:
        """All results."""
        if self._directory is None:
            text = "the partition is in none of the directories: nothing of it can be checked"
            return [Finding(verdict=Verdict.CHANGED_SINCE, subject=self._name, text=text)]
        found = [
            finding
            for name, known in self._known.items()
            if (finding := self._of_known(self._directory / name, known)) is not None
        ]
        left = [
            finding
            for name in OS.names_in(self._directory)
            if name.endswith(LOG_SUFFIX)
            and (finding := self._of_offsets(self._directory / name)) is not None
        ]
        if not any(each.verdict is Verdict.FAILED for each in [*found, *left]):
            text = (
                f"none of {count_in(self._erased)} erased records is there; "
                f"{len(self._known) - len(found)} files are as they were left"
            )
            found.append(Finding(verdict=Verdict.OK, subject=self._name, text=text))
        return found + left

    def _of_known(self, path: Path, known: FileFacts) -> Finding | None:
        """The verdict on a file of the report; None if it is as it was left."""
        subject = f"{self._name}/{path.name}"
        if not OS.exists(path):
            text = "it is gone: deleted by retention, or replaced by a later cleaning"
            return Finding(verdict=Verdict.CHANGED_SINCE, subject=subject, text=text)
        try:
            now = hash_of(path)
        except FileNotFoundError:  # just now
            return self._of_known(path, known)
        if now == known:
            return None
        log = path.with_name(f"{path.name.partition('.')[0]}{LOG_SUFFIX}")
        has_same_size = now.size == known.size
        is_alone = path == log or path.suffix == PRODUCER_SNAPSHOT_SUFFIX
        if (is_alone and has_same_size) or not (is_alone or self._is_other(log)):
            text = (
                f"it was changed: {now.size} bytes of SHA-256 {now.sha256}, not "
                f"{known.size} bytes of {known.sha256}"
            )
            return Finding(verdict=Verdict.FAILED, subject=subject, text=text)
        text = "a broker has appended to it, or a later cleaning has replaced it"
        return Finding(verdict=Verdict.CHANGED_SINCE, subject=subject, text=text)

    def _is_other(self, log: Path) -> bool:
        """Whether a log file is not the one of the report any more; the active one may grow."""
        if base_offset_of(log.name) >= self._end or not OS.exists(log):
            return True
        known = self._known.get(log.name)
        return known is None or OS.facts_of(log).size_bytes != known.size

    def _of_offsets(self, path: Path) -> Finding | None:
        """The verdict on the records of a log file."""
        if base_offset_of(path.name) >= self._end:
            return None  # it was begun after the erasure
        subject = f"{self._name}/{path.name}"
        try:
            left = self._left_in(path)
        except FileNotFoundError:
            return None  # retention, or another cleaning, has removed it just now
        except (CordwoodError, OSError) as error:
            return Finding(verdict=Verdict.FAILED, subject=subject, text=str(error))
        if not left:
            return None
        text = (
            f"{count_in(left)} records that were erased are there, the first at offset {left[0][0]}"
        )
        return Finding(verdict=Verdict.FAILED, subject=subject, text=text)

    def _left_in(self, path: Path) -> OffsetRanges:
        """The erased offsets that a log file has; a broker may be appending to it.

        Raises:
            CorruptError: it is damaged.
            OSError: it cannot be read.
        """
        while True:
            size_bytes = OS.facts_of(path).size_bytes
            source = SegmentSource(
                path=str(path),
                base_offset=base_offset_of(path.name),
                next_base_offset=_OFFSET_MAX,
                size_bytes=size_bytes,
                modified_ns=0,
            )
            searched = Searched(partition=TopicPartition.parse(self._name), source=source)
            try:
                return present_in(searched, self._erased)
            except CorruptError:
                # The end of a batch that was being written is there by now.
                if OS.facts_of(path).size_bytes == size_bytes:
                    raise


def _of_file(entry: ErasedBeside) -> Finding:
    path = Path(entry.path)
    if not OS.exists(path):
        text = "it is gone since the erasure"
        return Finding(verdict=Verdict.CHANGED_SINCE, subject=entry.path, text=text)
    if hash_of(path) == entry.after:
        text = f"it is as it was left, without {entry.erased} erased records"
        return Finding(verdict=Verdict.OK, subject=entry.path, text=text)
    text = "its bytes have changed since the erasure"
    return Finding(verdict=Verdict.FAILED, subject=entry.path, text=text)
