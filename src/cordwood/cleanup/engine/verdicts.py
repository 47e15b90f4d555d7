"""The verdict on each batch of a block: discard, copy, or rebuild, and with which horizon.

Source: org.apache.kafka.storage.internals.log.Cleaner (shouldDiscardBatch, shouldRetainRecord).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from cordwood.cleanup.plan.compaction_values import Manifest
from cordwood.cleanup.plan.log_compaction import LogCompaction
from cordwood.format.native import batches as rows_of
from cordwood.format.native import kernels, rebuild
from cordwood.storage.reading.block import Block, Bytes, Ints
from cordwood.storage.reading.source import SegmentSource

_CONTROL = 0x20
_HORIZON = 0x40
_UNKNOWN = -1


@dataclass(slots=True)
class Verdicts:
    """The action for each batch of a block, with the delete horizon of those that are rebuilt."""

    actions: npt.NDArray[np.int8]
    stamp: npt.NDArray[np.uint8]
    horizons: Ints
    kept: Ints


class BatchRules:
    """The rules that retain records, batches, tombstones and markers, for whole blocks.

    Source: org.apache.kafka.storage.internals.log.Cleaner (shouldDiscardBatch,
    shouldRetainRecord), org.apache.kafka.common.record.MemoryRecords.filterTo; KIP-98, KIP-534.
    """

    def __init__(self, compaction: LogCompaction, source: SegmentSource) -> None:
        self._rules = compaction.rules
        self._retained_end = compaction.retained_end
        self._source = source
        producers = sorted(compaction.producers, key=lambda p: p.producer_id)
        self._ids = np.array([p.producer_id for p in producers], dtype=np.int64)
        self._epochs = np.array([p.producer_epoch for p in producers], dtype=np.int64)
        self._lasts = np.array(
            [_UNKNOWN if p.last_data_offset is None else p.last_data_offset for p in producers],
            dtype=np.int64,
        )

    def decide(
        self,
        block: Block,
        ordinals: Ints,
        keep: Bytes,
        nulls: tuple[Bytes, Bytes],
        can_discard: npt.NDArray[np.bool_],
        manifest: Manifest,
    ) -> Verdicts:
        """The verdicts on a block; `nulls` are the tombstones, and those that a horizon removes."""
        table, rules = block.table, self._rules
        attributes = table[:, rows_of.ATTRIBUTES]
        counts = table[:, rows_of.COUNT]
        control = (attributes & _CONTROL) != 0
        has_horizon = (attributes & _HORIZON) != 0
        horizon = table[:, rows_of.BASE_TIMESTAMP]
        past = has_horizon & (horizon <= rules.now_ms)
        drop_nulls = past
        if block.legacy is not None:
            modified_ms = self._source.modified_ns // 1_000_000
            drop_nulls = np.full(block.rows, modified_ms <= rules.legacy_horizon_ms)
        kept = np.empty(block.rows, dtype=np.int64)
        kept_nulls = np.empty(block.rows, dtype=np.int64)
        newest = kept_by_key = 0
        first = int(ordinals[0])
        total = int(counts.sum())
        kept_by_key = kernels.count_bits(keep, first, total)
        tombstones, mortal = nulls
        kernels.count_survivors(
            table, block.rows, ordinals, keep, mortal, drop_nulls.astype(np.uint8), kept, kept_nulls
        )
        if mortal is not tombstones:
            none = np.zeros(block.rows, dtype=np.uint8)
            kernels.count_survivors(
                table, block.rows, ordinals, keep, tombstones, none, kept, kept_nulls
            )
        newest = int(kept.sum())
        markers = int(counts[control].sum())
        kept[control] = np.where(can_discard & past, 0, counts)[control]
        kept_markers = int(kept[control].sum())
        for row in np.flatnonzero(control & (kept > 0)).tolist():
            # Markers have no key: no index has judged them.
            marks = np.arange(ordinals[row], ordinals[row] + counts[row], dtype=np.uint64)
            kernels.set_bits(keep, marks)
        manifest.batches_before += block.rows
        manifest.records_before += total
        manifest.discarded.superseded += total - markers - kept_by_key
        manifest.discarded.tombstone += kept_by_key - newest
        manifest.discarded.marker += markers - kept_markers
        manifest.records_after += newest + kept_markers
        stamp = ((kept_nulls > 0) | (can_discard & control)) & ~has_horizon
        leaves_header = self._must_leave_header(table, control)
        if block.legacy is not None:
            leaves_header[:] = False  # only magic 2 has empty batches
        actions = np.full(block.rows, rebuild.REBUILD, dtype=np.int8)
        actions[(kept == counts) & ~stamp] = rebuild.COPY
        actions[kept == 0] = np.where(leaves_header, rebuild.EMPTY, rebuild.DISCARD)[kept == 0]
        manifest.batches_after += int((actions != rebuild.DISCARD).sum())
        return Verdicts(
            actions=actions,
            stamp=(stamp | has_horizon).astype(np.uint8),
            horizons=np.where(has_horizon, horizon, rules.now_ms + rules.delete_retention_ms),
            kept=kept,
        )

    def decide_by_bits(
        self, block: Block, ordinals: Ints, keep: Bytes, manifest: Manifest
    ) -> Verdicts:
        """The rules of an erasure: what is erased goes, and everything else stays as it is.

        A batch that loses all its records stays empty, so that sequence numbers, offsets and
        transactions continue: a log without a gap is known to be whole.
        """
        table = block.table
        counts = table[:, rows_of.COUNT]
        attributes = table[:, rows_of.ATTRIBUTES]
        has_horizon = (attributes & _HORIZON) != 0
        kept, kept_nulls = np.empty((2, block.rows), dtype=np.int64)
        none = np.zeros(block.rows, dtype=np.uint8)
        no_nulls = np.zeros_like(keep)
        kernels.count_survivors(table, block.rows, ordinals, keep, no_nulls, none, kept, kept_nulls)
        actions = np.full(block.rows, rebuild.REBUILD, dtype=np.int8)
        # Only magic 2 has empty batches.
        actions[kept == 0] = rebuild.EMPTY if block.legacy is None else rebuild.DISCARD
        actions[kept == counts] = rebuild.COPY
        manifest.batches_before += block.rows
        manifest.records_before += int(counts.sum())
        manifest.records_after += int(kept.sum())
        manifest.batches_after += int((actions != rebuild.DISCARD).sum())
        return Verdicts(
            actions=actions,
            stamp=has_horizon.astype(np.uint8),
            horizons=np.where(has_horizon, table[:, rows_of.BASE_TIMESTAMP], 0),
            kept=kept,
        )

    def _must_leave_header(
        self, table: Ints, control: npt.NDArray[np.bool_]
    ) -> npt.NDArray[np.bool_]:
        lasts = table[:, rows_of.LAST_OFFSET]
        must: npt.NDArray[np.bool_] = lasts + 1 == self._retained_end
        if len(self._ids):
            ids = table[:, rows_of.PRODUCER_ID]
            at = np.minimum(np.searchsorted(self._ids, ids), len(self._ids) - 1)
            known = (self._ids[at] == ids) & (ids >= 0)
            epochs = table[:, rows_of.PRODUCER_EPOCH]
            by_marker = control & (self._epochs[at] == epochs)
            must |= known & np.where(
                self._lasts[at] == _UNKNOWN, by_marker, self._lasts[at] == lasts
            )
        return must
