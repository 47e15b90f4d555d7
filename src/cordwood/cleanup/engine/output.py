"""The output of a rewrite: one segment or several, as staged files or only as their sizes.

`Output` makes the indexes while batches are appended.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from cordwood.cleanup.engine.segment_files import SegmentFiles
from cordwood.cleanup.plan.compaction_values import SEGMENT_BYTES_MAX, Manifest, RewrittenSegment
from cordwood.format.file_names import INDEX_SUFFIX, TIME_INDEX_SUFFIX, TXN_INDEX_SUFFIX
from cordwood.format.native import kernels
from cordwood.format.transaction_index import AbortedTransaction, build_transaction_index
from cordwood.model.errors import NoSpaceError, StagingError
from cordwood.storage.reading.block import Ints

_FLUSH_BYTES = 1 << 20
_UNKNOWN = -1


class _SegmentOutput:
    """The batches of one segment, and its indexes."""

    def __init__(self, base_offset: int, files: SegmentFiles, *, index_interval_bytes: int) -> None:
        self.base_offset = base_offset
        self._files = files
        self._index_interval_bytes = index_interval_bytes
        self._pending: list[bytes] = []
        self._pending_bytes = 0
        self._state = np.array([0, 0, _UNKNOWN, _UNKNOWN, _UNKNOWN], dtype=np.int64)
        self._offset_entries: list[Ints] = []
        self._time_entries: list[Ints] = []
        self._first_batch_timestamp = _UNKNOWN
        self.appended_bytes = 0

    def append(self, data: memoryview, written: Ints, count: int) -> None:
        """Appends; there is a batch, and all fit."""
        if not self.appended_bytes:
            self._first_batch_timestamp = int(written[0, 2])
        self.appended_bytes += len(data)
        if len(data) >= _FLUSH_BYTES:
            self.flush()
            self._files.write_log(data)
        else:
            self._pending.append(bytes(data))
            self._pending_bytes += len(data)
            if self._pending_bytes >= _FLUSH_BYTES:
                self.flush()
        offsets = np.empty((count, 2), dtype=np.int64)
        times = np.empty((count, 2), dtype=np.int64)
        filled = np.zeros(2, dtype=np.int64)
        kernels.index_written(
            written, count, self._index_interval_bytes, self._state, offsets, times, filled
        )
        if filled[0]:
            self._offset_entries.append(offsets[: filled[0]].copy())
        if filled[1]:
            self._time_entries.append(times[: filled[1]].copy())

    def flush(self) -> None:
        """Hands what is buffered to the operating system."""
        if self._pending:
            self._files.write_log(b"".join(self._pending))
            self._pending.clear()
            self._pending_bytes = 0

    def finish(self, aborted: Sequence[AbortedTransaction]) -> RewrittenSegment:
        """Adds the indexes, that of `aborted` transactions if there are any. Raises as `Output`."""
        newest, newest_offset, indexed = (int(v) for v in self._state[2:])
        if newest > indexed:
            self._time_entries.append(np.array([[newest, newest_offset]], dtype=np.int64))
        indexes = {INDEX_SUFFIX: self._offset_index(), TIME_INDEX_SUFFIX: self._time_index()}
        if aborted:
            indexes[TXN_INDEX_SUFFIX] = build_transaction_index(aborted)
        self._files.finish(indexes)
        return RewrittenSegment(
            base_offset=self.base_offset,
            log_bytes=self._files.log_bytes,
            index_bytes=len(indexes[INDEX_SUFFIX]),
            time_index_bytes=len(indexes[TIME_INDEX_SUFFIX]),
            transaction_index_bytes=len(indexes.get(TXN_INDEX_SUFFIX, b"")),
            first_batch_timestamp=self._first_batch_timestamp,
            largest_timestamp=max(newest, indexed),
            sha256=self._files.sha256,
        )

    def _offset_index(self) -> bytes:
        entries = np.concatenate([np.empty((0, 2), dtype=np.int64), *self._offset_entries])
        out = np.empty((len(entries), 2), dtype=">i4")
        out[:, 0] = entries[:, 0] - self.base_offset
        out[:, 1] = entries[:, 1]
        return out.tobytes()

    def _time_index(self) -> bytes:
        entries = np.concatenate([np.empty((0, 2), dtype=np.int64), *self._time_entries])
        out = np.empty(len(entries), dtype=[("timestamp", ">i8"), ("offset", ">i4")])
        out["timestamp"] = entries[:, 0]
        out["offset"] = entries[:, 1] - self.base_offset
        return out.tobytes()

    def discard(self) -> None:
        """Removes what was staged, as far as it can be."""
        self._files.discard()


@dataclass(frozen=True, slots=True, kw_only=True)
class OutputLimits:
    """Limits of the output of a group.

    A segment takes `segment_bytes`, or one batch, `SEGMENT_BYTES_MAX` at most; what does not fit
    begins the next one if it `may_split`. All of them take `space_bytes`, if set.
    """

    segment_bytes: int = SEGMENT_BYTES_MAX
    may_split: bool = True
    space_bytes: int | None = None


class Output:
    """The batches of one group, in one segment or several, their indexes, and the manifest."""

    def __init__(
        self,
        files: Callable[[int], SegmentFiles],
        manifest: Manifest,
        *,
        index_interval_bytes: int,
        limits: OutputLimits,
    ) -> None:
        """Begins the first segment.

        Args:
            files: makes those of the segment with a base offset.
            manifest: to be filled in.
            index_interval_bytes: of the topic.
            limits: of the sizes.

        Raises:
            NoSpaceError, StagingError: the staged log cannot be created.
        """
        self.manifest = manifest
        self._files = files
        self._index_interval_bytes = index_interval_bytes
        self._limits = limits
        self._segments: list[_SegmentOutput] = []
        self._begin(manifest.base_offset)
        #: Aborted transactions for the transaction indexes.
        self.kept_aborted: Sequence[AbortedTransaction] = ()

    def _begin(self, base_offset: int) -> None:
        self._segments.append(
            _SegmentOutput(
                base_offset,
                self._files(base_offset),
                index_interval_bytes=self._index_interval_bytes,
            )
        )

    @property
    def appended_bytes(self) -> int:
        """Bytes of all batches so far."""
        return sum(each.appended_bytes for each in self._segments)

    def append(self, data: memoryview, written: Ints, count: int) -> None:
        """Appends `count` batches, described by the rows of `written`.

        Raises:
            NoSpaceError, StagingError: they cannot be written.
        """
        if not count:
            return
        self._require_space(len(data))
        ends = np.cumsum(written[:count, 0])
        done = row = 0
        while row < count:
            room = self._limits.segment_bytes - self._segments[-1].appended_bytes
            fit = int(np.searchsorted(ends, done + room, side="right"))
            if fit <= row and self._segments[-1].appended_bytes:
                self._roll(int.from_bytes(data[done : done + 8]))
                continue
            fit = max(fit, row + 1)  # a batch that is larger than a segment has one of its own
            end = int(ends[fit - 1])
            if end - done > SEGMENT_BYTES_MAX:
                raise self._too_large()
            self._segments[-1].append(data[done:end], written[row:fit], fit - row)
            done, row = end, fit

    def _require_space(self, more_bytes: int) -> None:
        wanted, allowed = self.appended_bytes + more_bytes, self._limits.space_bytes
        if allowed is not None and wanted > allowed:
            raise NoSpaceError(
                f"the group of segments at {self.manifest.base_offset} takes more than {allowed} "
                "bytes when rewritten, which is what may be used (--max-extra-bytes); it stays as "
                "it is"
            )

    def _roll(self, base_offset: int) -> None:
        if not self._limits.may_split:
            raise self._too_large()
        self._segments[-1].flush()
        self._begin(base_offset)

    def _too_large(self) -> StagingError:
        return StagingError(
            f"the segment at {self._segments[-1].base_offset} would take more than "
            f"{self._limits.segment_bytes} bytes when rewritten, the limit of a segment; the log "
            "is as it was"
        )

    def flush(self) -> None:
        """Hands what is buffered to the operating system."""
        self._segments[-1].flush()

    def finish(self) -> Manifest:
        """Adds the indexes, makes everything durable, and says what there is.

        It may run in another thread than the one that wrote.

        Raises:
            NoSpaceError, StagingError: a staged file cannot be written; all are removed again.
        """
        bases = [each.base_offset for each in self._segments]
        aborted: list[list[AbortedTransaction]] = [[] for _ in bases]
        for entry in self.kept_aborted:  # beside the marker, as Kafka has it
            aborted[max(bisect_right(bases, entry.last_offset) - 1, 0)].append(entry)
        try:
            self.manifest.segments = tuple(
                segment.finish(entries)
                for segment, entries in zip(self._segments, aborted, strict=True)
            )
        except BaseException:
            self.discard()
            raise
        return self.manifest

    def discard(self) -> None:
        """Removes what was staged, as far as it can be; the compaction's end removes the rest."""
        for segment in self._segments:
            segment.discard()
