"""The check of whole log directories, partition by partition; nothing is locked, nothing written.

Beside a running broker a partition is looked at as it is at one moment, and again if its files
changed meanwhile in a way that may have looked like damage.
"""

from __future__ import annotations

import fnmatch
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from cordwood.cleanup.access.offline.directories import Place, find_places, open_log_dirs
from cordwood.cleanup.access.offline.log_directory import OfflineLogDirectory
from cordwood.cleanup.plan.named_topics import no_such_topic
from cordwood.cleanup.verification.findings import Finding, Findings, Rule, has_damage
from cordwood.cleanup.verification.log import Bounds, LogFacts, check_log
from cordwood.cleanup.verification.offsets import PartitionFacts, Removals
from cordwood.format.file_names import CLUSTER_METADATA_DIR, DELETE_DIR_SUFFIX, META_PROPERTIES
from cordwood.model.clock import Clock
from cordwood.model.errors import ConfigError, CorruptError
from cordwood.model.topic_partition import TopicPartition
from cordwood.storage.filesystem import OS, FileSystem
from cordwood.storage.log_directory import InUse

_ATTEMPTS = 5

#: Of a partition in a log directory.
FactsOf = Callable[[Path, TopicPartition], PartitionFacts]

#: What a broker that runs, or ran until it was killed, may have left behind its logs.
NOT_CHECKED: Final = (
    "whether the offsets of its checkpoints lie in the logs",
    "whether active segments have their indexes",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckedLog:
    """The result of one partition; `facts` is None if it could not be read, `skipped` why."""

    directory: Path
    partition: TopicPartition
    findings: tuple[Finding, ...]
    unlisted: int = 0
    facts: LogFacts | None = None
    skipped: str | None = None


@dataclass(slots=True)
class Verification:
    """The result of `verify`.

    `in_use` are the directories that a broker runs on. `unsettled`
    are these and those whose broker did not stop in good order: `NOT_CHECKED` applies to them.
    `findings` are those of no partition.
    """

    logs: list[CheckedLog] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)
    in_use: list[InUse] = field(default_factory=list)
    unsettled: list[Path] = field(default_factory=list)
    elapsed_s: float = 0.0

    @property
    def is_sound(self) -> bool:
        """Whether nothing is damaged."""
        return not has_damage(self.findings) and not any(
            has_damage(log.findings) for log in self.logs
        )

    @property
    def size_bytes(self) -> int:
        """The number of bytes that were read."""
        return sum(log.facts.size_bytes for log in self.logs if log.facts)


class VerificationProgress:
    """Callbacks for the progress; this one ignores it."""

    def begin(self, total_bytes: int) -> None:
        """Begins a verification that will read so many bytes."""

    def advance(self, name: str, size_bytes: int) -> None:
        """Counts bytes of a partition that were read."""


def verify(
    paths: Sequence[Path],
    *,
    topics: Sequence[str] = (),
    clock: Clock,
    facts_of: FactsOf = lambda _, __: PartitionFacts(),
    progress: VerificationProgress | None = None,
    fs: FileSystem = OS,
) -> Verification:
    """Checks all partitions of log directories, or those whose directories are named.

    Args:
        paths: log directories, or partitions' directories.
        topics: patterns of names, as of a shell; all topics if there is none.
        clock: for the time it takes.
        facts_of: what the cluster's metadata say of a partition.
        progress: gets the progress.
        fs: where the directories are.

    Raises:
        NotALogDirError: a path is neither.
        ConfigError: no topic has such a name.
        OSError: a directory cannot be read.
    """
    begun = clock.monotonic_s()
    log_dirs = open_log_dirs(paths)
    places = chosen(find_places(log_dirs), topics, paths)
    result = Verification()
    progress = progress or VerificationProgress()
    progress.begin(sum(_size_of(place.partition.path, fs) for place in places))
    directories = {log_dir.path: _Directory(log_dir, result, facts_of, fs) for log_dir in log_dirs}
    for place in places:
        result.logs.append(directories[place.log_dir.path].check(place, progress))
    result.elapsed_s = clock.monotonic_s() - begun
    return result


def chosen(places: Sequence[Place], topics: Sequence[str], paths: Sequence[Path]) -> list[Place]:
    """The places of topics that match a pattern, or all if there is no pattern.

    `paths` are the directories where they were looked for.

    Raises:
        ConfigError: no topic has such a name.
    """
    found = [
        place
        for place in places
        if not topics
        or any(fnmatch.fnmatchcase(place.partition.topic_partition.topic, glob) for glob in topics)
    ]
    if topics and not found:
        names = {place.partition.topic_partition.topic for place in places}
        raise ConfigError(no_such_topic(topics, paths, names))
    return found


class _Directory:
    """One log directory: its checkpoints are read before its logs are."""

    def __init__(
        self, log_dir: OfflineLogDirectory, result: Verification, facts_of: FactsOf, fs: FileSystem
    ) -> None:
        self._fs = fs
        self._path = log_dir.path
        self._facts_of = facts_of
        self._is_of_broker = log_dir.meta is not None
        self._cleaner_offsets = log_dir.cleaner_offsets.path
        pid = OS.lock_holder(log_dir.path)
        if pid is not None:
            result.in_use.append(InUse(log_dir=str(log_dir.path), pid=pid))
        self._is_in_use = pid is not None
        self._is_settled = pid is None and log_dir.is_whole
        if not self._is_settled:
            result.unsettled.append(log_dir.path)
        findings = Findings()
        self._lines: dict[Path, dict[TopicPartition, int]] = {}
        self._log_starts: dict[TopicPartition, int] | None = None
        for file in (
            log_dir.recovery_points,
            log_dir.log_starts,
            log_dir.high_watermarks,
            log_dir.cleaner_offsets,
        ):
            if not fs.exists(file.path):
                if file is log_dir.log_starts and self._is_of_broker and self._is_settled:
                    # A broker writes it when it stops, also without a line.
                    self._log_starts = {}
                continue
            try:
                lines = dict(file.read())
            except CorruptError as error:
                findings.add(
                    Rule.CHECKPOINT_FORMAT, file.path, error.reason, position=error.position
                )
                continue
            self._lines[file.path] = lines
            if file is log_dir.log_starts:
                self._log_starts = lines
        self._cleaned_at_ms = None
        if fs.exists(self._cleaner_offsets):
            self._cleaned_at_ms = fs.facts_of(self._cleaner_offsets).modified_ms
        if log_dir.meta is None and log_dir.only is None and self._lines:
            findings.add(
                Rule.META_PROPERTIES,
                log_dir.path / META_PROPERTIES,
                "no such file, and the directory has a broker's checkpoints",
            )
        result.findings += findings.found

    def check(self, place: Place, progress: VerificationProgress) -> CheckedLog:
        partition = place.partition
        name = partition.topic_partition
        findings = Findings()
        skipped = partition.unreadable
        if partition.path.name.endswith(DELETE_DIR_SUFFIX):
            skipped = "its directory is about to be removed"
        if partition.unreadable is not None:
            findings.add(Rule.UNREADABLE, partition.path, partition.unreadable)
        facts = None
        if skipped is None:
            facts, findings = self._checked(
                partition.path, name, lambda count: progress.advance(str(name), count)
            )
        return CheckedLog(
            directory=partition.path,
            partition=name,
            findings=tuple(findings.found),
            unlisted=findings.unlisted,
            facts=facts,
            skipped=skipped,
        )

    def _bounds_of(self, path: Path, name: TopicPartition) -> Bounds:
        """Bounds of a log from outside its own files.

        The lines are those of a partition's directory, not of one that is marked. The metadata log
        has none, and no topic; from 4.4 on its active segment is not closed when a Kafka stops.

        Source: LogManager.shutdown, UnifiedLog.prepareActiveSegmentForClose, KafkaRaftLog.close
        and createLog.
        """
        if path.name == CLUSTER_METADATA_DIR:
            facts = PartitionFacts(is_compacted=False)
            removals = Removals(facts=facts, is_settled=self._is_settled)
            return Bounds(removals=removals, is_recovered=True)
        if path.name != str(name):
            return Bounds(removals=Removals(is_settled=self._is_settled, is_whole=False))
        return Bounds(
            log_start=None if self._log_starts is None else self._log_starts.get(name, 0),
            # A broker that did not stop in good order has checkpoints older than its logs.
            lines={file: lines[name] for file, lines in self._lines.items() if name in lines}
            if self._is_settled
            else {},
            removals=Removals(
                cleaned_to=self._lines.get(self._cleaner_offsets, {}).get(name),
                cleaned_at_ms=self._cleaned_at_ms,
                facts=self._facts_of(self._path, name),
                is_settled=self._is_settled,
            ),
            is_of_broker=self._is_of_broker,
        )

    def _checked(
        self, path: Path, name: TopicPartition, progress: Callable[[int], None]
    ) -> tuple[LogFacts | None, Findings]:
        """Checks a log until what was found is not a broker's work under way."""
        bounds = self._bounds_of(path, name)
        for attempt in range(_ATTEMPTS):
            findings = Findings()
            is_final = attempt == _ATTEMPTS - 1 or not self._is_in_use
            try:
                names = self._fs.names_in(path)
                facts = check_log(
                    path,
                    name,
                    bounds,
                    findings,
                    is_settled=self._is_settled,
                    progress=progress,
                    fs=self._fs,
                )
                if is_final or not findings.is_damaged or names == self._fs.names_in(path):
                    return facts, findings
            except OSError as error:
                if is_final or not isinstance(error, FileNotFoundError):
                    findings.add(Rule.UNREADABLE, error.filename or path, str(error.strerror))
                    return None, findings
            progress = _ignored
        raise AssertionError("the last attempt is final")


def _ignored(_: int) -> None:
    """Progress of a log that is read again."""


def _size_of(directory: Path, fs: FileSystem) -> int:
    try:
        return sum(
            fs.facts_of(directory / name).size_bytes
            for name in fs.names_in(directory)
            if name.endswith(".log")
        )
    except OSError:
        return 0
