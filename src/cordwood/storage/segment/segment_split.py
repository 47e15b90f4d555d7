"""Divides a segment whose offsets reach too far from its base for the four bytes of an index.

Old brokers could write such; the pieces are put in its place as a clean's result is, so that a
crash at any point leaves the one segment or the pieces.

Source: org.apache.kafka.storage.internals.log.LocalLog.splitOverflowedSegment.
"""

from __future__ import annotations

import logging
from contextlib import closing
from itertools import pairwise
from pathlib import Path

from cordwood.format.file_names import CLEANED_SUFFIX, LOG_SUFFIX, SWAP_SUFFIX, segment_file_name
from cordwood.model.errors import CorruptError
from cordwood.storage.filesystem import FileSystem, FileWriter
from cordwood.storage.reading.batch_heads import BatchHead, iter_heads
from cordwood.storage.replace import dispose_deleted, mark_deleted
from cordwood.storage.segment.segment_recovery import impossible_offset

_log = logging.getLogger(__name__)

_REACH = (1 << 31) - 1
_COPY_BYTES = 4 << 20


def split_overflowed(
    directory: Path, base_offset: int, *, next_base_offset: int | None, fs: FileSystem
) -> list[int]:
    """Replaces one segment with several; returns their base offsets, ascending.

    Only logs are written: the loader makes the indexes. No Kafka since 0.10.2 appends beyond the
    reach of an index, so that such offsets are believed only where what follows confirms them.

    Args:
        directory: of the partition.
        base_offset: of the segment.
        next_base_offset: of the segment behind it, None for the active one.
        fs: where they are.

    Raises:
        ImpossibleOffsetError: the offsets do not ascend, or reach the next segment, or nothing
            follows the one that is out of reach. Nothing was changed.
        CorruptError: the log is damaged.
        OSError: a file could not be written.
    """
    path = directory / segment_file_name(base_offset, LOG_SUFFIX)
    facts = fs.facts_of(path)
    with closing(fs.open(path)) as source:
        heads = list(iter_heads(source, 0, facts.size_bytes, path=path))
        _require_plausible(heads, base_offset, next_base_offset, path)
        pieces = _pieces(heads)
        _log.info("Splitting overflowed segment %s into %s segments", path, len(pieces))
        for start, end, base in pieces:
            cleaned = directory / segment_file_name(base, LOG_SUFFIX + CLEANED_SUFFIX)
            writer = FileWriter(cleaned, fs=fs)
            try:
                for position in range(start, end, _COPY_BYTES):
                    writer.write(source.read_at(min(_COPY_BYTES, end - position), position))
                if writer.size_bytes < end - start:
                    raise CorruptError("the file became shorter", path=str(path), position=start)
            finally:
                writer.close()
            fs.take_after(cleaned, facts)
            fs.set_modified(cleaned, facts.modified_ns)
    bases = [base for _, _, base in pieces]
    # The highest first: while a lower one is `.cleaned`, a loader undoes them all.
    for base in reversed(bases):
        name = segment_file_name(base, LOG_SUFFIX)
        fs.rename(directory / (name + CLEANED_SUFFIX), directory / (name + SWAP_SUFFIX))
    mark_deleted(directory, [base_offset], keep_snapshots=bases, fs=fs)
    for base in bases:
        name = segment_file_name(base, LOG_SUFFIX)
        fs.rename(directory / (name + SWAP_SUFFIX), directory / name)
    fs.sync_directory(directory)
    dispose_deleted(directory, fs=fs)
    return bases


def _require_plausible(
    heads: list[BatchHead], base_offset: int, next_base_offset: int | None, path: Path
) -> None:
    """Source: Kafka refuses to split in most of these cases, as LocalLog.splitOverflowedSegment.

    Differs: Kafka splits off a last batch that is out of reach, and continues after it.
    """
    last_offset = base_offset - 1
    for before, head in pairwise(heads):
        if before.last_offset - base_offset > _REACH and head.base_offset <= before.last_offset:
            raise impossible_offset(
                f"offset {before.last_offset} is out of reach of the segment's base offset "
                f"{base_offset}, and {head.base_offset} follows",
                path=path,
                position=before.position,
            )
    for head in heads:
        if not last_offset < head.base_offset <= head.last_offset:
            raise impossible_offset(
                f"offsets {head.base_offset} to {head.last_offset} do not follow {last_offset}",
                path=path,
                position=head.position,
            )
        last_offset = head.last_offset
    last = heads[-1]
    if next_base_offset is not None and last_offset >= next_base_offset:
        raise impossible_offset(
            f"offset {last_offset} is not below {next_base_offset}, where the next segment begins",
            path=path,
            position=last.position,
        )
    confirmed = heads[-2].last_offset if len(heads) > 1 else base_offset
    if next_base_offset is None and confirmed - base_offset <= _REACH:
        raise impossible_offset(
            f"offset {last_offset} is out of reach of the segment's base offset {base_offset}, and "
            "nothing follows that confirms it",
            path=path,
            position=last.position,
        )


def _pieces(heads: list[BatchHead]) -> list[tuple[int, int, int]]:
    """(first byte, end, base offset) of each piece: as many batches as one index reaches."""
    pieces: list[tuple[int, int, int]] = []
    for head in heads:
        if not pieces or head.last_offset - pieces[-1][2] > _REACH:
            pieces.append((head.position, head.position, head.base_offset))
        start, _, base = pieces[-1]
        pieces[-1] = (start, head.position + head.size_bytes, base)
    return pieces
