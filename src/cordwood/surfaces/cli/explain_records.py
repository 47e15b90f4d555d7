"""Answers of `cordwood explain` about records: they are read, with a progress bar."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from rich.progress import BarColumn, DownloadColumn, TextColumn, TimeRemainingColumn

from cordwood.cleanup.capture import Captured
from cordwood.cleanup.compaction_values import VersionRule
from cordwood.cleanup.log_view import LogView
from cordwood.insight.explain import LogExplanation
from cordwood.insight.record_fate import record_fate, winners
from cordwood.insight.record_search import FoundRecord, RecordSearch
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
                wanted = _with_key(search, key, captured.view)
            else:
                wanted = _at(search, offset, explanation)
            for record, newer in wanted:
                fate = record_fate(explanation, record, newer)
                partition = captured.view.topic_partition
                found.append(
                    {"topic": partition.topic, "partition": partition.partition} | fate.to_json()
                )
    return found


def _with_key(
    search: RecordSearch, key: bytes, view: LogView
) -> list[tuple[FoundRecord, Sequence[int]]]:
    """Every record of a key, with the offsets of those that beat it."""
    records = list(search.with_key(key))
    newer = winners(records, VersionRule.of(view.config), view.log_start_offset)
    return list(zip(records, newer, strict=True))


def _at(
    search: RecordSearch, offset: int, explanation: LogExplanation
) -> list[tuple[FoundRecord, Sequence[int]]]:
    record = search.at(offset)
    if record is None:
        return []
    key = record.record.key
    if explanation.compaction is None or key is None or record.is_control:
        return [(record, ())]
    view = explanation.facts.view
    return [each for each in _with_key(search, key, view) if each[0].record.offset == offset]


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
