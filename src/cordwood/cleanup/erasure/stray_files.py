"""Segment files that are no part of a live log: in a trash, a stray or a future directory.

Each stands alone: nothing else of its log need be there. An erasure rewrites such a file in place
of itself, in this order, so that a crash leaves a log file with its own indexes or with none, which
Kafka makes again: both indexes are removed; the rewritten log takes the name; then the new indexes.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from cordwood.cleanup.engine.publisher import require_room
from cordwood.cleanup.engine.rewrite import GroupRewriter
from cordwood.cleanup.engine.search.bits import facts_of_one
from cordwood.cleanup.plan.attempt import Attempt, Limits
from cordwood.cleanup.plan.compaction_values import SEGMENT_BYTES_MAX, OffsetRanges
from cordwood.cleanup.plan.log_compaction import LogCompaction
from cordwood.cleanup.plan.rewrite_spec import RewriteSpec, SurvivingSegment
from cordwood.cleanup.rules.record_rules import RecordRules
from cordwood.cleanup.rules.transactions import TransactionSummary
from cordwood.format.file_names import (
    INDEX_SUFFIX,
    LOG_SUFFIX,
    TIME_INDEX_SUFFIX,
    base_offset_of,
)
from cordwood.model.errors import CordwoodError
from cordwood.model.topic_partition import TopicPartition
from cordwood.storage.directory_names import parse_directory_name
from cordwood.storage.filesystem import OS, FileSystem
from cordwood.storage.reading.source import SegmentSource
from cordwood.storage.replace import STAGED_SUFFIX, StagedSegment

_LOG = re.compile(r"\d{20}\.log(\..+)?", re.ASCII)
# Kafka's default of index.interval.bytes.
_INDEX_INTERVAL_BYTES = 4096
_OFFSET_MAX = (1 << 63) - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class StrayFile:
    """A log file beside its log; its name may have more after `.log`."""

    path: Path
    partition: TopicPartition
    source: SegmentSource

    @property
    def index_paths(self) -> dict[str, Path]:
        """The paths of its indexes, by suffix."""
        offset, _, tail = self.path.name.partition(LOG_SUFFIX)
        return {
            suffix: self.path.with_name(offset + suffix + tail)
            for suffix in (INDEX_SUFFIX, TIME_INDEX_SUFFIX)
        }


def stray_files_in(
    directory: Path, partition: TopicPartition, *, fs: FileSystem = OS
) -> list[StrayFile]:
    """The log files of a directory, all but staged ones.

    Raises:
        CorruptError: a file's name is no offset.
        OSError: a file cannot be read.
    """
    return [
        _strays(directory / name, partition, fs)
        for name in fs.names_in(directory)
        if _LOG.fullmatch(name) and not name.endswith(STAGED_SUFFIX)
    ]


def partitions_below(top: Path, *, fs: FileSystem = OS) -> Iterator[tuple[Path, TopicPartition]]:
    """Every directory below `top` whose name is a partition's, also one that is marked."""
    for entry in fs.entries_in(top):
        if not entry.is_directory or entry.is_link:
            continue
        path = top / entry.name
        try:
            partition, _ = parse_directory_name(entry.name)
        except CordwoodError:
            yield from partitions_below(path, fs=fs)
        else:
            yield path, partition


def _strays(path: Path, partition: TopicPartition, fs: FileSystem) -> StrayFile:
    facts = fs.facts_of(path)
    source = SegmentSource(
        path=str(path.absolute()),
        base_offset=base_offset_of(path.name),
        next_base_offset=_OFFSET_MAX,
        size_bytes=facts.size_bytes,
        modified_ns=facts.modified_ns,
    )
    return StrayFile(path=path, partition=partition, source=source)


def rewrite_stray(
    stray: StrayFile,
    erased: OffsetRanges,
    *,
    token: str,
    space_max: int | None,
    fs: FileSystem = OS,
) -> None:
    """Rewrites a stray file without some records; its steps are those of this module.

    Raises:
        CorruptError: it is damaged.
        NoSpaceError, StagingError: the rewritten file cannot be written; nothing has changed.
        OSError: it cannot be read or replaced.
    """
    source = stray.source
    fact = facts_of_one(source, erased, fs=fs)
    staged = StagedSegment(
        directory=str(stray.path.parent), base_offset=source.base_offset, token=token
    )
    alone = LogCompaction(
        name=str(stray.partition),
        directory=staged.directory,
        rules=RecordRules(now_ms=0),
        first_dirty=0,
        first_uncleanable=_OFFSET_MAX,
        retained_end=_OFFSET_MAX,
        index_interval_bytes=_INDEX_INTERVAL_BYTES,
        segment_bytes=SEGMENT_BYTES_MAX,
        segments=(source,),
        groups=((source.base_offset,),),
        producers=(),
        aborted=(),
        model=fs.facts_of(stray.path),
        seed=0,
        attempt=Attempt(limits=Limits(space_max=space_max)),
        erased=erased,
    )
    spec = RewriteSpec(
        compaction=alone,
        staged=staged,
        segments=(
            SurvivingSegment(source=source, keep=fact.keep, nulls=fact.nulls, unkeyed=0, aborted=0),
        ),
        before=TransactionSummary(),
        after=TransactionSummary(),
    )
    require_room(spec, fs)
    GroupRewriter(fs=fs).rewrite(spec)
    paths = staged.paths()
    for path in stray.index_paths.values():
        fs.remove(path)
    fs.rename(paths[LOG_SUFFIX], stray.path)
    fs.sync_directory(stray.path.parent)
    for suffix, path in stray.index_paths.items():
        fs.rename(paths[suffix], path)
    fs.sync_directory(stray.path.parent)
