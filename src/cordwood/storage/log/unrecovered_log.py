"""A log that is opened without recovery: its end and its indexes, found without a cut.

Bytes that Kafka would cut off stay. What only a recovery would repair is an error.

Source: org.apache.kafka.storage.internals.log.LogLoader, which recovers instead.
"""

from __future__ import annotations

from collections.abc import Callable

from cordwood.format.record_batch import parse_batch
from cordwood.model.errors import CorruptError
from cordwood.storage.reading.batch_heads import iter_heads, read_batch
from cordwood.storage.segment.log_segment import LogSegment
from cordwood.storage.segment.resources import ResourceCache
from cordwood.storage.segment.segment_index import INT32_MAX

_BATCH_BYTES_MIN = 26  # of a message of magic 0 without key and value


def end_of_unrecovered(
    active: LogSegment, resources: ResourceCache, *, on_warning: Callable[[str], None]
) -> int:
    """The log end offset; bytes behind the last whole batch stay, and are not counted.

    Raises:
        CorruptError: a batch at the end has offsets that no append writes.
    """
    whole = active.valid_bytes()
    if whole < active.size_bytes:
        on_warning(
            f"Found invalid messages in log segment {active.path} at byte offset {whole}: "
            f"{active.size_bytes - whole} bytes behind the last whole batch. Kafka cuts them "
            "off when it recovers the log; they are left as they are."
        )
        active.size_bytes = whole
    _require_offsets_at_end(active, resources)
    return active.read_next_offset()


def _require_offsets_at_end(segment: LogSegment, resources: ResourceCache) -> None:
    """Checks the offsets of the batches behind the last index entry.

    Raises:
        CorruptError: no append to this segment can have given a batch its offsets.
    """
    next_offset, limit = segment.base_offset, segment.base_offset + INT32_MAX
    heads = iter_heads(
        resources.file(segment),
        segment.offset_index.last_entry.position,
        segment.size_bytes,
        path=segment.path,
        is_strict=False,
    )
    for head in heads:
        if not next_offset <= head.base_offset <= head.last_offset <= limit:
            raise CorruptError(
                f"a batch with the offsets {head.base_offset} to {head.last_offset}, where "
                f"offsets from {next_offset} to {limit} can be",
                path=str(segment.path),
                position=head.position,
            )
        next_offset = head.last_offset + 1


def index_whole(segment: LogSegment, resources: ResourceCache, *, is_active: bool) -> None:
    """Rebuilds the indexes of a segment from its batches, none of which may be cut off.

    Raises:
        CorruptError: a batch cannot be read or its CRC is wrong, or the segment does not end
            with a whole batch and is not active.
    """
    path, size, position = segment.path, segment.size_bytes, 0
    file = resources.file(segment)
    for head in iter_heads(file, 0, size, path=path, is_strict=False):
        batch = read_batch(file, head, path=path)
        try:
            batch.require_valid()
        except CorruptError as error:
            raise error.located(path=str(path), base_position=position) from error
        position += head.size_bytes
    if position < size:
        length = int.from_bytes(file.read_at(12, position)[8:], signed=True) + 12
        if _BATCH_BYTES_MIN <= length <= size - position:
            try:
                parse_batch(file.read_at(length, position))
            except CorruptError as error:
                raise error.located(path=str(path), base_position=position) from error
        if not is_active:
            raise CorruptError(
                f"{size - position} bytes that are no whole batch, in a segment that is not "
                "the active one",
                path=str(path),
                position=position,
            )
    segment.indexes.rebuild(segment)
