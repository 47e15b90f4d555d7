"""All checks of one partition's directory, in one walk over its segments.

Files beside a log are read before it, so that beside a running broker, which writes the log first,
they say nothing that the log does not have.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from cordwood.cleanup.verification.batches import SegmentCheck
from cordwood.cleanup.verification.epochs import EpochCheck
from cordwood.cleanup.verification.findings import Findings, Rule
from cordwood.cleanup.verification.indexes import IndexCheck
from cordwood.cleanup.verification.offsets import OffsetCheck, Removals
from cordwood.cleanup.verification.producers import ProducerCheck
from cordwood.format.file_names import (
    DELETED_SUFFIX,
    INDEX_SUFFIX,
    LEADER_EPOCH_CHECKPOINT,
    LOG_SUFFIX,
    PARTITION_METADATA,
    SWAP_SUFFIX,
    TIME_INDEX_SUFFIX,
    TXN_INDEX_SUFFIX,
    FileKind,
    classify,
    segment_file_name,
)
from cordwood.format.partition_metadata import parse_partition_metadata
from cordwood.model.errors import CorruptError
from cordwood.model.topic_partition import TopicPartition
from cordwood.model.uuids import uuid_text
from cordwood.storage.filesystem import OS, FileSystem
from cordwood.storage.reading.source import ReadBounds, SegmentSource
from cordwood.storage.replace import is_recovery_needed

_OFFSET_MAX = (1 << 63) - 1
_INDEXES = (INDEX_SUFFIX, TIME_INDEX_SUFFIX, TXN_INDEX_SUFFIX)
_INDEX_KINDS = frozenset({FileKind.INDEX, FileKind.TIME_INDEX, FileKind.TXN_INDEX})


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """The lines of a partition in its log directory's checkpoints; None where there is no line.

    `log_start` is 0 where the checkpoint has no line, and None where there is no checkpoint.
    `removals` is what is known of its cleanings. `is_of_broker` says whether the log directory has
    a broker's identity, and is not a copy of some partitions. `is_recovered` says that a Kafka
    recovers the log at each start, and need not close its active segment when it stops.
    """

    log_start: int | None = None
    lines: Mapping[Path, int] = field(default_factory=dict)
    removals: Removals = field(default_factory=Removals)
    is_of_broker: bool = False
    is_recovered: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class LogFacts:
    """Counts of what was read of a log; `log_end_offset` is as far as batches could be read."""

    segments: int
    size_bytes: int
    batches: int
    records: int
    log_end_offset: int


def check_log(
    directory: Path,
    partition: TopicPartition,
    bounds: Bounds,
    findings: Findings,
    *,
    is_settled: bool,
    progress: Callable[[int], None] = lambda _: None,
    fs: FileSystem = OS,
) -> LogFacts:
    """Checks a partition's directory; changes nothing.

    Args:
        directory: the partition's.
        partition: whose.
        bounds: what the log directory says of it.
        findings: gets what is found.
        is_settled: its broker has stopped in good order, so that nothing may be half done.
        progress: gets the number of bytes read, as the walk advances.
        fs: where the directory is.

    Raises:
        FileNotFoundError: a file vanished: a broker runs on the directory.
        OSError: a file cannot be read.
    """
    return _LogCheck(directory, partition, bounds, findings, is_settled, progress, fs).run()


class _LogCheck:
    def __init__(
        self,
        directory: Path,
        partition: TopicPartition,
        bounds: Bounds,
        findings: Findings,
        is_settled: bool,
        progress: Callable[[int], None],
        fs: FileSystem,
    ) -> None:
        self._directory = directory
        self._partition = partition
        self._bounds = bounds
        self._findings = findings
        self._is_settled = is_settled
        self._progress = progress
        self._fs = fs
        names = fs.names_in(directory)
        self._classified = {name: classify(name) for name in names}
        live = {name: found for name, found in self._classified.items() if not found.state}
        self._names = frozenset(live)
        self._bases = sorted(
            found.base_offset
            for found in live.values()
            if found.kind is FileKind.LOG and found.base_offset is not None
        )
        record_bytes_max = bounds.removals.facts.record_bytes_max
        self._segments = SegmentCheck(
            findings,
            bounds=ReadBounds(record_bytes_max=record_bytes_max),
            is_settled=is_settled,
            fs=fs,
        )

    def run(self) -> LogFacts:
        first = self._bases[0] if self._bases else 0
        log_start = self._bounds.log_start
        removals = self._bounds.removals
        self._check_metadata()
        epochs = EpochCheck(
            self._directory / LEADER_EPOCH_CHECKPOINT,
            self._read(LEADER_EPOCH_CHECKPOINT),
            self._findings,
            # A broker truncates the epochs at once, and writes the checkpoint later.
            log_start_offset=log_start if self._is_settled else None,
        )
        producers = ProducerCheck(
            self._partition,
            self._directory,
            self._snapshots(),
            self._findings,
            base_offset=first,
            log_start_offset=log_start or 0,
        )
        offsets = OffsetCheck(removals, self._findings, base_offset=first, orphans=self._orphans())
        size_bytes = 0
        for number, base in enumerate(self._bases):
            size_bytes += self._check_segment(number, base, epochs, producers, offsets)
        end = first
        if self._bases:
            end = max(self._bases[-1], self._segments.last_offset + 1)
        producers.check_snapshot(end)
        if self._segments.is_sound:
            epochs.finish(end)
            self._check_bounds(end)
            if self._is_settled:
                producers.check_last_batches(end, removals.known_from_ms)
                self._check_start(epochs, first, end)
                self._check_end(end)
        missing = offsets.finish(end)
        self._check_names(missing)
        return LogFacts(
            segments=len(self._bases),
            size_bytes=size_bytes,
            batches=self._segments.batches,
            records=self._segments.records,
            log_end_offset=end,
        )

    # ---- one segment

    def _check_segment(
        self,
        number: int,
        base: int,
        epochs: EpochCheck,
        producers: ProducerCheck,
        offsets: OffsetCheck,
    ) -> int:
        log = self._directory / segment_file_name(base, LOG_SUFFIX)
        files = {
            suffix: data
            for suffix in _INDEXES
            if (data := self._read(segment_file_name(base, suffix))) is not None
        }
        is_last = number == len(self._bases) - 1
        # Cordwood's broker keeps the indexes of the active segment in memory.
        if self._is_settled or not is_last:
            for suffix in (INDEX_SUFFIX, TIME_INDEX_SUFFIX):
                if suffix not in files:
                    path = log.with_suffix(suffix)
                    self._findings.add(Rule.INDEX_MISSING, path, "the segment has no such file")
        facts = self._fs.facts_of(log)
        source = SegmentSource(
            path=str(log),
            base_offset=base,
            next_base_offset=_OFFSET_MAX if is_last else self._bases[number + 1],
            size_bytes=facts.size_bytes,
            modified_ns=facts.modified_ns,
        )
        indexes = IndexCheck(log, base, files, self._findings)
        offsets.begin_segment(log, base)
        producers.begin_segment(log, base)
        done = 0
        for piece in self._segments.pieces(source, is_last=is_last):
            if self._segments.is_sound:
                indexes.take(piece)
                epochs.take(piece)
                missing = offsets.take(piece)
            else:
                producers.lose_sight()
                missing = offsets.take_beside_damage(piece)
            producers.take(piece, missing)
            self._progress(piece.end - done)
            done = piece.end
        self._progress(source.size_bytes - done)
        is_sound = self._segments.is_sound
        if is_sound:
            last_offset = self._segments.last_offset
            indexes.finish(
                size_bytes=source.size_bytes,
                last_offset=last_offset,
                is_closed=not is_last or (self._is_settled and not self._bounds.is_recovered),
            )
        else:
            producers.lose_sight()
            offsets.lose_sight()
        producers.end_segment(files.get(TXN_INDEX_SUFFIX), is_sound=is_sound)
        return source.size_bytes

    # ---- what lies beside the segments

    def _orphans(self) -> list[int]:
        """The base offsets of indexes without a log, of which no removal is under way."""
        under_way = {
            found.base_offset for found in self._classified.values() if found.kind is FileKind.LOG
        }
        if any(found.state == SWAP_SUFFIX for found in self._classified.values()):
            return []
        return sorted(
            {
                found.base_offset
                for found in self._classified.values()
                if found.kind in _INDEX_KINDS and not found.state and found.base_offset is not None
            }
            - under_way
        )

    def _check_names(self, missing: Collection[int]) -> None:
        """Notes work under way; `missing` are the base offsets of segments that have lost a log."""
        if not self._bases and self._is_settled and self._bounds.is_of_broker:
            self._findings.add(Rule.LOG_MISSING, self._directory, "it has no segment")
        for name, found in sorted(self._classified.items()):
            path = self._directory / name
            if found.state == DELETED_SUFFIX:
                self._findings.add(Rule.DELETED_FILE, path, "a file that is about to be removed")
            elif found.state or is_recovery_needed([name]):
                self._findings.add(
                    Rule.UNFINISHED_WORK, path, "left by a cleaning or a write that was stopped"
                )
            elif (
                found.kind in _INDEX_KINDS
                and found.base_offset not in self._bases
                and found.base_offset not in missing
            ):
                self._findings.add(Rule.ORPHANED_INDEX, path, "an index without a log")
        for base in sorted(missing):
            self._findings.add(
                Rule.LOG_MISSING,
                self._directory / segment_file_name(base, LOG_SUFFIX),
                "the log of a segment whose indexes are there is gone",
                offset=base,
            )

    def _check_metadata(self) -> None:
        data = self._read(PARTITION_METADATA)
        if data is None:
            if self._bounds.is_of_broker and self._is_settled and self._has_batches():
                self._bad_metadata("no such file: a Kafka takes the log for a stray at its start")
            return
        try:
            topic_id = parse_partition_metadata(data).topic_id
        except CorruptError as error:
            self._bad_metadata(error.reason, error.position)
            return
        known = self._bounds.removals.facts.topic_id
        if self._is_settled and known is not None and topic_id != known:
            self._bad_metadata(
                f"it has the topic id {uuid_text(topic_id)}, and the cluster's metadata "
                f"{uuid_text(known)}"
            )

    def _bad_metadata(self, reason: str, position: int | None = None) -> None:
        path = self._directory / PARTITION_METADATA
        self._findings.add(Rule.PARTITION_METADATA, path, reason, position=position)

    def _has_batches(self) -> bool:
        return any(
            self._fs.facts_of(self._directory / segment_file_name(base, LOG_SUFFIX)).size_bytes
            for base in self._bases
        )

    def _check_start(self, epochs: EpochCheck, first: int, end: int) -> None:
        """Finds what is missing before the first segment, if its broker had written all files."""
        if self._bounds.removals.facts.is_tiered or not self._bases:
            return
        log = self._directory / segment_file_name(first, LOG_SUFFIX)
        line = self._bounds.log_start
        if line and line < first:
            self._findings.add(
                Rule.OFFSETS_MISSING,
                log,
                f"the log start offset is {line}, and the first segment begins at {first}",
                offset=line,
            )
            return
        start = epochs.check_start(first)
        if start is None or (line or 0) > end:
            return
        if start < first:
            self._findings.add(
                Rule.OFFSETS_MISSING,
                log,
                f"the first leader epoch begins at offset {start}, and the first segment at "
                f"{first}: a broker that removes segments moves both",
                offset=start,
            )
        else:
            self._findings.add(
                Rule.EPOCHS_CONTENT,
                self._directory / LEADER_EPOCH_CHECKPOINT,
                f"the first leader epoch begins at offset {start}, below the log start offset "
                f"{line}",
                offset=start,
            )

    def _check_end(self, end: int) -> None:
        """Checks that no snapshot is beyond the end of the log."""
        for name in sorted(self._names):
            found = self._classified[name]
            if found.kind is not FileKind.PRODUCER_SNAPSHOT or found.base_offset is None:
                continue
            if found.base_offset > end:
                self._findings.add(
                    Rule.OFFSETS_MISSING,
                    self._directory / segment_file_name(self._bases[-1], LOG_SUFFIX)
                    if self._bases
                    else self._directory,
                    f"the log ends at offset {end}, and {name} was written at its end",
                    offset=end,
                )

    def _snapshots(self) -> dict[int, bytes]:
        found = {}
        for name in self._names:
            kind = self._classified[name]
            if kind.kind is FileKind.PRODUCER_SNAPSHOT and kind.base_offset is not None:
                data = self._read(name)
                if data is not None:
                    found[kind.base_offset] = data
        return found

    def _check_bounds(self, log_end_offset: int) -> None:
        for path, offset in self._bounds.lines.items():
            if not 0 <= offset <= log_end_offset:
                self._findings.add(
                    Rule.CHECKPOINT_BOUNDS,
                    path,
                    f"the line of {self._partition} says {offset}, and its log ends at "
                    f"{log_end_offset}",
                    offset=offset,
                )

    def _read(self, name: str) -> bytes | None:
        if name not in self._names:
            return None
        path = self._directory / name
        with suppress(FileNotFoundError):
            data = self._fs.read_bytes(path)
            # A broker that closes a segment cuts its indexes, also in the midst of a read.
            while len(data) > self._fs.facts_of(path).size_bytes:
                data = self._fs.read_bytes(path)
            return data
        return None
