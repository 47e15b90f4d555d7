"""Reads the due moments of a segment from its records.

Importing this loads compiled code; only a log with a setting of `rules.due` needs it.
"""

from __future__ import annotations

import numpy as np

from cordwood.cleanup.rules.due import NOTHING_DUE, DueMoments, DueRule
from cordwood.cleanup.rules.moments import AT_ONCE, NEVER
from cordwood.cleanup.rules.record_longs import RemovalReader
from cordwood.format.batch_header import CONTROL_BIT, DELETE_HORIZON_BIT, TRANSACTIONAL_BIT
from cordwood.format.native import batches as rows_of
from cordwood.format.native import kernels, key_table, records
from cordwood.storage.filesystem import OS, FileSystem
from cordwood.storage.reading.block import Block, Flags
from cordwood.storage.reading.segment_reader import SegmentReader
from cordwood.storage.reading.source import WIDEST, ReadBounds, SegmentSource

# Of no record the key is wanted.
_NONE_BELOW = -(1 << 63)
_NO_SECRETS = np.ones(9, dtype=np.uint64)


def scan_due(
    source: SegmentSource,
    rule: DueRule,
    *,
    start: int = 0,
    bounds: ReadBounds = WIDEST,
    fs: FileSystem = OS,
) -> DueMoments:
    """The due moments of a segment, or of what is behind byte `start` of it.

    Raises:
        CorruptError: it is damaged.
        OSError: it cannot be read.
    """
    reader = SegmentReader(bounds=bounds, fs=fs)
    scan = _Scan(reader, rule)
    found = NOTHING_DUE
    for block in reader.blocks(source, start=start):
        found = found.earliest(scan.moments_of(block))
    return found


class _Scan:
    """A scan of one segment."""

    def __init__(self, reader: SegmentReader, rule: DueRule) -> None:
        self._reader = reader
        self._rule = rule
        self._removals = RemovalReader(rule.removals) if rule.removals else None
        self._nulls, self._keyed = (np.zeros(1 << 12, dtype=np.uint8) for _ in range(2))

    def moments_of(self, block: Block) -> DueMoments:
        """The due moments of some batches."""
        table = block.table
        attributes = table[:, rows_of.ATTRIBUTES]
        has_horizon = (attributes & DELETE_HORIZON_BIT) != 0
        horizons = np.maximum(table[:, rows_of.BASE_TIMESTAMP], AT_ONCE + 1)
        is_control = (attributes & CONTROL_BIT) != 0
        found = DueMoments(
            has_transactions=bool(np.any(attributes & (CONTROL_BIT | TRANSACTIONAL_BIT))),
            expiry_ms=self._expiry_of(block),
        )
        if not self._rule.tombstones:
            return found
        markers = is_control & has_horizon & (block.counts > 0)
        if markers.any():
            found = found.earliest(DueMoments(marker_ms=int(horizons[markers].min())))
        nulls = self._nulls_of(block)
        if (nulls & ~has_horizon).any():
            return found.earliest(DueMoments(tombstone_ms=AT_ONCE))
        if (nulls & has_horizon).any():
            moment = int(horizons[nulls & has_horizon].min())
            found = found.earliest(DueMoments(tombstone_ms=moment))
        return found

    def _expiry_of(self, block: Block) -> int:
        """The earliest moment at which a rule removes a record of some batches."""
        first = NEVER
        if self._removals is not None:
            for payload in self._reader.payloads(block, block.has_data):
                moments = self._removals.moments(payload)
                first = min(first, int(moments.min(initial=NEVER)))
        return first

    def _nulls_of(self, block: Block) -> Flags:
        """bool[rows]: which batches have a record with a null value."""
        counts, ordinals, total = block.counts, block.ordinals(), block.records_count
        if total > 8 * len(self._nulls) - 64:
            self._nulls, self._keyed = (np.zeros(total // 4 + 64, dtype=np.uint8) for _ in range(2))
        self._nulls[:] = 0
        entries = np.empty((int(counts.max(initial=0)), key_table.SLOT_WORDS), dtype=np.uint64)
        for payload in self._reader.payloads(block, block.has_data):
            status, row = kernels.list_batches(
                *payload.where,
                _NONE_BELOW,
                ordinals,
                entries,
                np.zeros(1, dtype=np.int64),
                self._keyed,
                self._nulls,
                _NO_SECRETS,
            )
            if status != records.OK:
                raise block.bad_record(row)
        bits = np.unpackbits(self._nulls, count=total, bitorder="little")
        sums = np.concatenate(([0], np.cumsum(bits, dtype=np.int64)))
        found: Flags = (sums[ordinals + counts] - sums[ordinals]) > 0
        return found
