"""Reads the due moments of a segment from its records.

Importing this loads compiled code; only a log with a setting of `rules.due` needs it.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from cordwood.cleanup.rules.due import AT_ONCE, NEVER, NOTHING_DUE, DueMoments, DueRule
from cordwood.cleanup.rules.record_longs import RemovalReader
from cordwood.format.native import batches as rows_of
from cordwood.format.native import kernels, key_table, records
from cordwood.format.record_batch import CONTROL_BIT, DELETE_HORIZON_BIT, TRANSACTIONAL_BIT
from cordwood.model.errors import CorruptError
from cordwood.storage.filesystem import OS, FileSystem
from cordwood.storage.reading.blocks import Block, Ints, PayloadReader, SegmentReader
from cordwood.storage.reading.source import BATCH_BYTES_MAX, SegmentSource

Flags = npt.NDArray[np.bool_]

# Of no record the key is wanted.
_NONE_BELOW = -(1 << 63)
_NO_SECRETS = np.ones(9, dtype=np.uint64)


def scan_due(
    source: SegmentSource,
    rule: DueRule,
    *,
    start: int = 0,
    batch_bytes_max: int = BATCH_BYTES_MAX,
    fs: FileSystem = OS,
) -> DueMoments:
    """The due moments of a segment, or of what is behind byte `start` of it.

    Raises:
        CorruptError: it is damaged.
        OSError: it cannot be read.
    """
    scan = _Scan(source, rule, batch_bytes_max)
    found = NOTHING_DUE
    blocks = SegmentReader(fs=fs).blocks(source, start=start, batch_bytes_max=batch_bytes_max)
    for block in blocks:
        found = found.earliest(scan.moments_of(block))
    return found


class _Scan:
    """A scan of one segment."""

    def __init__(self, source: SegmentSource, rule: DueRule, batch_bytes_max: int) -> None:
        self._source = source
        self._rule = rule
        self._removals = RemovalReader(rule.removals) if rule.removals else None
        self._payloads = PayloadReader(batch_bytes_max=batch_bytes_max)
        self._nulls, self._keyed = (np.zeros(1 << 12, dtype=np.uint8) for _ in range(2))

    def moments_of(self, block: Block) -> DueMoments:
        """Those of some batches."""
        table = block.table
        counts, attributes = table[:, rows_of.COUNT], table[:, rows_of.ATTRIBUTES]
        has_horizon = (attributes & DELETE_HORIZON_BIT) != 0
        horizons = np.maximum(table[:, rows_of.BASE_TIMESTAMP], AT_ONCE + 1)
        is_control = (attributes & CONTROL_BIT) != 0
        found = DueMoments(
            has_transactions=bool(np.any(attributes & (CONTROL_BIT | TRANSACTIONAL_BIT))),
            expiry_ms=self._expiry_of(block, ~is_control & (counts > 0)),
        )
        if not self._rule.tombstones:
            return found
        markers = is_control & has_horizon & (counts > 0)
        if markers.any():
            found = found.earliest(DueMoments(marker_ms=int(horizons[markers].min())))
        nulls = self._nulls_of(block, ~is_control & (counts > 0))
        if (nulls & ~has_horizon).any():
            return found.earliest(DueMoments(tombstone_ms=AT_ONCE))
        if (nulls & has_horizon).any():
            moment = int(horizons[nulls & has_horizon].min())
            found = found.earliest(DueMoments(tombstone_ms=moment))
        return found

    def _expiry_of(self, block: Block, wanted: Flags) -> int:
        """When a rule removes the first record of some batches."""
        first = NEVER
        if self._removals is not None:
            for payload in self._payloads.payloads(self._source, block, wanted):
                moments = self._removals.moments(self._source, block, payload)
                first = min(first, int(moments.min(initial=NEVER)))
        return first

    def _nulls_of(self, block: Block, wanted: Flags) -> Flags:
        """bool[rows]: which batches have a record with a null value."""
        counts: Ints = block.table[:, rows_of.COUNT]
        ordinals = np.cumsum(counts) - counts
        total = int(counts.sum())
        if total > 8 * len(self._nulls) - 64:
            self._nulls, self._keyed = (np.zeros(total // 4 + 64, dtype=np.uint8) for _ in range(2))
        self._nulls[:] = 0
        entries = np.empty((int(counts.max(initial=0)), key_table.SLOT_WORDS), dtype=np.uint64)
        for payload in self._payloads.payloads(self._source, block, wanted):
            status, row = kernels.list_batches(
                payload.buffer,
                block.table,
                payload.first,
                payload.last,
                payload.spans,
                _NONE_BELOW,
                ordinals,
                entries,
                np.zeros(1, dtype=np.int64),
                self._keyed,
                self._nulls,
                _NO_SECRETS,
            )
            if status != records.OK:
                raise CorruptError(
                    "a batch with a record that cannot be read",
                    path=self._source.path,
                    position=block.position_of(row),
                )
        bits = np.unpackbits(self._nulls, count=total, bitorder="little")
        sums = np.concatenate(([0], np.cumsum(bits, dtype=np.int64)))
        found: Flags = (sums[ordinals + counts] - sums[ordinals]) > 0
        return found
