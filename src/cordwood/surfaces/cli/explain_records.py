"""Answers of `cordwood explain` about records: they are read, with a progress bar."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from rich.progress import BarColumn, DownloadColumn, TextColumn, TimeRemainingColumn

from cordwood.cleanup.access.capture import Captured
from cordwood.queries.explain.explanation import LogExplanation
from cordwood.queries.explain.record_fate import RecordFate, key_fates, record_fate
from cordwood.queries.explain.record_search import RecordSearch
from cordwood.surfaces.cli.screen import Screen

_Log = tuple[Captured, LogExplanation]


def explain_records(
    offset: int, key: bytes | None, logs: Sequence[_Log], screen: Screen
) -> list[dict[str, Any]]:
    """The fate of each record, in order; all logs are searched for a key, or one for an offset.

    Raises:
        CorruptError, OSError: a segment cannot be read.
    """
    total = sum(captured.view.size_bytes for captured, _ in logs)
    found = []
    with _bar(screen, total) as progress:
        for captured, explanation in logs:
            search = RecordSearch(captured.sources, captured.aborted_above_start, progress=progress)
            if key is not None:
                fates = key_fates(explanation, list(search.with_key(key)))
            else:
                fates = _at(search, offset, explanation)
            partition = captured.view.topic_partition
            where = {"topic": partition.topic, "partition": partition.partition}
            found += [where | fate.to_json() for fate in fates]
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


@contextmanager
def _bar(screen: Screen, total: int) -> Iterator[Callable[[int], None]]:
    """A progress bar over bytes, where standard error is a terminal."""
    if not screen.is_terminal:
        yield lambda _: None
        return
    columns = (
        TextColumn("reading records"),
        BarColumn(),
        DownloadColumn(binary_units=True),
        TimeRemainingColumn(),
    )
    with screen.bars(*columns, transient=True) as bars:
        task = bars.add_task("", total=total)
        yield lambda count: bars.advance(task, count)
