"""A log that may be damaged, read in every way, and judged by what was written to it.

A reader gets a batch that was written, as it was written, at its own offset; or an error with
a type. Where a log file itself is damaged and no recovery has walked over the place, a batch with a
wrong CRC is served as it is, as Kafka does: its reader sees that. What no CRC covers, a batch's
offset and leader epoch, nobody sees.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

from cordwood.format.legacy import LegacyBatch
from cordwood.format.record_batch import RecordBatch, iter_batches
from cordwood.model.errors import CordwoodError, CorruptError
from cordwood.storage.log.log_reader import (
    EARLIEST_LOCAL_TIMESTAMP,
    EARLIEST_TIMESTAMP,
    LATEST_TIERED_TIMESTAMP,
    LATEST_TIMESTAMP,
    MAX_TIMESTAMP,
    Isolation,
)
from cordwood.storage.log.partition_log import PartitionLog
from cordwood.storage.segment.log_segment import LogSegment

_COVERED_FROM = 16
_SPECIAL = (
    LATEST_TIMESTAMP,
    EARLIEST_TIMESTAMP,
    MAX_TIMESTAMP,
    EARLIEST_LOCAL_TIMESTAMP,
    LATEST_TIERED_TIMESTAMP,
)
_READS_MAX = 2_000


@dataclass(slots=True, kw_only=True)
class Wanted:
    """Expectations of one log.

    Attributes:
        written: every batch on disk before the damage, and behind it what was appended since.
        damaged: the bytes of its log files that are damaged, by base offset.
        walked: base offsets of the damaged ones that recovery walks over.
        first_damaged: the offset below which every batch must be there.
        log_start_offset: what it must be; None where the damage may change it.
        view: what `view_of` must give; None where the damage may change it.
    """

    written: list[RecordBatch]
    damaged: dict[int, bytes] = field(default_factory=dict)
    walked: set[int] = field(default_factory=set)
    first_damaged: int = 1 << 63
    log_start_offset: int | None = None
    view: tuple[object, ...] | None = None


def view_of(log: PartitionLog) -> tuple[object, ...]:
    """All that is asked of a log whose partition is whole: the same as without the damage."""
    times = sorted({batch_time for segment in log.segments for batch_time in _times_in(segment)})
    committed = log.reader.read(log.log_start_offset, 1 << 20, isolation=Isolation.TXN_COMMITTED)
    return (
        (log.log_start_offset, log.high_watermark, log.last_stable_offset, log.log_end_offset),
        log.leader_epochs.epoch_entries,
        sorted(map(str, log.producer_state.active_producers.values())),
        committed.read(),
        committed.aborted,
        [log.reader.list_offset(time, isolation=Isolation.LOG_END) for time in (*_SPECIAL, *times)],
        [log.reader.end_offset_for_epoch(epoch) for epoch in range(12)],
    )


def _times_in(segment: LogSegment) -> Iterator[int]:
    data = segment.read(segment.base_offset, 1 << 20)
    if data is not None and data[0] is not None:
        for _, batch in iter_batches(data[0].read()):
            yield from (batch.max_timestamp, batch.max_timestamp + 1)


class LogJudge:
    """Reads one log, and counts what is allowed but not right."""

    def __init__(
        self, log: PartitionLog, wanted: Wanted, rng: random.Random, counts: Counter[str]
    ) -> None:
        self._log = log
        self._wanted = wanted
        self._rng = rng
        self._counts = counts
        self._known = {bytes(batch.raw) for batch in wanted.written}
        self._contents = {bytes(batch.raw)[_COVERED_FROM:] for batch in wanted.written}
        self._reads = 0

    def judge(self) -> list[bytes]:
        """Reads it all; the batches that a follower gets.

        Raises:
            AssertionError: what is wrong.
        """
        log, wanted = self._log, self._wanted
        start = log.log_start_offset
        if wanted.log_start_offset is not None and not wanted.damaged:
            assert start == wanted.log_start_offset, (
                f"it starts at {start}, not at {wanted.log_start_offset}"
            )
        if wanted.view is not None:
            view = view_of(log)
            for one, other in zip(view, wanted.view, strict=True):
                assert one == other, f"{one!r} in place of {other!r}"
        found = self._read_from(start, Isolation.LOG_END)
        if log.log_end_offset in wanted.walked and log.log_end_offset < wanted.first_damaged:
            # As in Kafka, where offsets do not ascend, all of the segment goes.
            self._counts["segments emptied by recovery"] += 1
            wanted.first_damaged = log.log_end_offset
        must = [
            bytes(batch.raw)
            for batch in wanted.written
            if batch.last_offset >= start and batch.last_offset < wanted.first_damaged
        ]
        if wanted.damaged:
            assert found[: len(must)] == must, (
                f"{len(must)} batches before the damage, {len(found)} were served: "
                f"{self._difference(found, must)}"
            )
        else:
            assert found == must, f"not what was written: {self._difference(found, must)}"
        self._read_from(start, Isolation.HIGH_WATERMARK)
        self._read_from(start, Isolation.TXN_COMMITTED)
        for _ in range(5):
            offset = self._rng.randint(start, max(start, min(log.log_end_offset, start + 500)))
            self._read_at(offset)
        self._look_up_timestamps()
        return found

    def _difference(self, found: list[bytes], must: list[bytes]) -> str:
        same = 0
        for one, other in zip(found, must, strict=False):
            if one != other:
                break
            same += 1
        return f"{len(found)} batches in place of {len(must)}, the first {same} are the same"

    # ---- by offset

    def _read_from(self, start: int, isolation: Isolation) -> list[bytes]:
        """All batches from an offset on, as a client reads them that continues after each."""
        max_bytes = self._rng.choice((0, 1, 300, 2_000, 100_000))
        found: list[bytes] = []
        offset, last = start, -1
        while True:
            batches = self._read_once(offset, max_bytes, isolation)
            if not batches:
                return found
            for batch in batches:
                self._require_order(batch, last)
                last = max(last, batch.last_offset)
                found.append(bytes(batch.raw))
            following = batches[-1].next_offset
            if following <= offset:
                assert self._wanted.damaged, f"a read from {offset} leads back to {following}"
                self._counts["reads that lead back"] += 1
                following = offset + 1
            offset = following

    def _read_once(
        self, offset: int, max_bytes: int, isolation: Isolation
    ) -> list[RecordBatch | LegacyBatch]:
        """The whole batches of one read; none where it is refused, as it may be."""
        self._reads += 1
        assert self._reads < _READS_MAX, "reads without an end"
        try:
            fetched = self._log.reader.read(offset, max_bytes, isolation=isolation, min_one=True)
            data = fetched.read()
        except CordwoodError as error:
            self._require_reason(error)
            return []
        found: list[RecordBatch | LegacyBatch] = []
        try:
            for _, batch in iter_batches(data):
                self._require_written(batch)
                found.append(batch)
        except CorruptError as error:
            self._require_reason(error)
        return found

    def _require_reason(self, error: CordwoodError) -> None:
        if not self._wanted.damaged:
            raise AssertionError(f"refused: {type(error).__name__}: {error}") from error
        self._counts["reads refused"] += 1

    def _require_written(self, batch: RecordBatch | LegacyBatch) -> None:
        raw = bytes(batch.raw)
        if raw in self._known:
            return
        what = f"a batch at {batch.base_offset} of {len(raw)} bytes"
        holders = {base for base, data in self._wanted.damaged.items() if raw in data}
        if isinstance(batch, RecordBatch) and batch.is_valid():
            assert raw[_COVERED_FROM:] in self._contents, f"{what} that was never written"
            assert holders, f"{what} under another offset or epoch"
            self._counts["batches under another offset or epoch"] += 1
            return
        assert holders, f"{what} with a wrong CRC, from a file that is not damaged"
        assert holders - self._wanted.walked, f"{what} with a wrong CRC, though it was recovered"
        self._counts["batches with a wrong CRC"] += 1

    def _require_order(self, batch: RecordBatch | LegacyBatch, last: int) -> None:
        if batch.base_offset > last:
            return
        raw = bytes(batch.raw)
        holders = {base for base, data in self._wanted.damaged.items() if raw in data}
        assert self._wanted.damaged.keys() - self._wanted.walked, (
            f"a batch at {batch.base_offset} behind {last}, in {sorted(holders)}"
        )
        self._counts["batches out of order"] += 1

    def _read_at(self, offset: int) -> None:
        batches = self._read_once(offset, self._rng.choice((1, 500)), Isolation.LOG_END)
        if self._wanted.damaged:
            return
        first = next((b for b in self._wanted.written if b.last_offset >= offset), None)
        got = batches[0].base_offset if batches else None
        assert got == (None if first is None else first.base_offset), (
            f"a read from {offset} gives a batch at {got}"
        )

    # ---- by timestamp

    def _look_up_timestamps(self) -> None:
        wanted = self._wanted
        times = dict(self._record_times()) if not wanted.damaged else {}
        known = sorted(times.values()) or [0]
        asked = [*_SPECIAL, 0, known[-1] + 1, *self._rng.choices(known, k=4)]
        asked += [timestamp - 1 for timestamp in asked[-2:]]
        for timestamp in asked:
            isolation = self._rng.choice(list(Isolation))
            try:
                found = self._log.reader.list_offset(timestamp, isolation=isolation)
            except CordwoodError as error:
                self._require_reason(error)
                continue
            if wanted.damaged or found is None or found.timestamp < 0:
                continue
            assert times.get(found.offset) == found.timestamp, f"{timestamp} gives {found}"
            assert found.timestamp >= timestamp, f"{timestamp} gives {found}"

    def _record_times(self) -> Iterator[tuple[int, int]]:
        for batch in self._wanted.written:
            for record in batch.iter_records():
                yield record.offset, record.timestamp
