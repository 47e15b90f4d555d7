"""The offsets of each partition that a run reads: from where the table is to what is committed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from cordwood.cleanup.plan.captured import Captured
from cordwood.frames.slices import Slice, slices_of, visible_end
from cordwood.frames.streaming.topics import Topic
from cordwood.frames.wanted import Isolation, Wanted
from cordwood.model.errors import TableGapError
from cordwood.tables.report import TablePartition
from cordwood.tables.topic_table import Read

#: A run that adds records sees those of committed transactions, up to the last stable offset.
ISOLATION = Isolation.READ_COMMITTED


@dataclass(frozen=True, slots=True, kw_only=True)
class Range:
    """The offsets of a log from `first_offset` to before `end_offset`; none if these are equal.

    `full_because` says why they begin at the log start, "" if they are what is new. `gap` are
    offsets (the second exclusive) of records that are gone.
    """

    captured: Captured
    first_offset: int
    end_offset: int
    full_because: str = ""
    gap: tuple[int, int] | None = None

    @property
    def partition(self) -> int:
        """The number of the partition."""
        return self.captured.view.topic_partition.partition

    def slices(self, slice_bytes: int) -> Iterator[Slice]:
        """The slices with its records, in the order of offsets.

        Raises:
            CordwoodError, OSError: as `slices_of`.
        """
        wanted = Wanted(first_offset=self.first_offset, end_offset=self.end_offset)
        return slices_of(self.captured, wanted, ISOLATION, slice_bytes=slice_bytes)

    def reported(self) -> TablePartition:
        """The line of the report."""
        gap_from, gap_to = self.gap or (None, None)
        return TablePartition(
            partition=self.partition,
            first_offset=self.first_offset,
            end_offset=self.end_offset,
            full_because=self.full_because,
            gap_from=gap_from,
            gap_to=gap_to,
        )


def rows_ranges(
    topic: Topic, reads: Mapping[int, Read | None], *, allows_gaps: bool
) -> list[Range]:
    """The offsets that a table of rows lacks. A partition that it never read begins at offset 0.

    Args:
        topic: its logs.
        reads: what is noted of each of them.
        allows_gaps: the table continues behind records that are gone.

    Raises:
        TableGapError: records are gone, and that is not allowed.
    """
    found = []
    for number, captured in topic.logs.items():
        view, read = captured.view, reads[number]
        first, gap = (0 if read is None else read.next_offset), None
        if first < view.log_start_offset:
            gap, first = (first, view.log_start_offset), view.log_start_offset
        elif first > view.log_end_offset:
            gap, first = (view.log_end_offset, first), view.log_end_offset
        end = max(first, visible_end(view, ISOLATION))
        found.append(Range(captured=captured, first_offset=first, end_offset=end, gap=gap))
    gaps = {str(each.captured.view.topic_partition): each.gap for each in found if each.gap}
    if gaps and not allows_gaps:
        raise TableGapError(gaps)
    return found


def state_ranges(
    topic: Topic, reads: Mapping[int, Read | None], *, is_full: bool, now_ms: int
) -> list[Range]:
    """The offsets that a state lacks; all of a log where what is new does not suffice.

    Args:
        topic: its logs.
        reads: what is noted of each of them.
        is_full: all of every log is asked for.
        now_ms: the time.
    """
    found = []
    for number, captured in topic.logs.items():
        view, read = captured.view, reads[number]
        because = "it was asked for" if is_full else _full_because(captured, read, now_ms)
        first = view.log_start_offset
        if read is not None and not because:
            first = max(first, read.next_offset)
        end = max(first, visible_end(view, ISOLATION))
        found.append(
            Range(captured=captured, first_offset=first, end_offset=end, full_because=because)
        )
    return found


def _full_because(captured: Captured, read: Read | None, now_ms: int) -> str:
    view = captured.view
    if read is None:
        return ""
    if read.next_offset > view.log_end_offset:
        return f"the log ends at offset {view.log_end_offset}, before {read.next_offset}"
    # A tombstone that was written since stays for so long after the first cleaning that sees it.
    if view.config.compact and now_ms - read.at_ms >= view.config.delete_retention_ms:
        return (
            f"the last run was {(now_ms - read.at_ms) // 1000} s ago, and tombstones stay for "
            f"delete.retention.ms={view.config.delete_retention_ms}"
        )
    return ""
