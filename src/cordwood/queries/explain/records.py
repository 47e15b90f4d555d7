"""Records explained: they are looked for in the segment files of their logs."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from cordwood.cleanup.plan.captured import Captured
from cordwood.queries.explain.answer import ExplainedRecord
from cordwood.queries.explain.explanation import LogExplanation
from cordwood.queries.explain.record_fate import RecordFate, key_fates, record_fate
from cordwood.queries.explain.record_search import RecordSearch
from cordwood.storage.reading.source import ReadBounds


def explain_records(
    offset: int,
    key: bytes | None,
    logs: Sequence[tuple[Captured, LogExplanation]],
    progress: Callable[[int], None],
) -> list[ExplainedRecord]:
    """The fate of each record, in order; all logs are searched for a key, or one for an offset.

    Args:
        offset: of the record, where no key is asked for.
        key: of the records; None for the one at the offset.
        logs: to be searched.
        progress: called with a number of bytes that were read.

    Raises:
        CorruptError, OSError: a segment cannot be read.
    """
    found = []
    for captured, explanation in logs:
        record_bytes_max = captured.view.config.max_decompressed_message_bytes
        search = RecordSearch(
            captured.sources,
            captured.aborted_above_start,
            bounds=ReadBounds(record_bytes_max=record_bytes_max),
            progress=progress,
        )
        if key is not None:
            fates = key_fates(explanation, list(search.with_key(key)))
        else:
            fates = _at(search, offset, explanation)
        found += [fate.answer(captured.view.topic_partition) for fate in fates]
    return found


def _at(search: RecordSearch, offset: int, explanation: LogExplanation) -> list[RecordFate]:
    """The fate of the record at an offset, if there is one."""
    record = search.at(offset)
    if record is None:
        return []
    key = record.record.key
    if explanation.compaction is None or key is None or record.is_control:
        return [record_fate(explanation, record)]
    fates = key_fates(explanation, list(search.with_key(key)))
    return [each for each in fates if each.found.record.offset == offset]
