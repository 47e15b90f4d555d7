"""`denser_batch` for the blocks of batches that a rewrite makes."""

from __future__ import annotations

import numpy as np

from cordwood.cleanup.engine.denser_batch import GROWTH_BYTES_MIN, GROWTH_SHARE, denser
from cordwood.storage.reading.block import Ints


def without_growth(data: memoryview, written: Ints, before: Ints) -> tuple[memoryview, Ints]:
    """Batches, those that have grown compressed at their codec's densest level if that is smaller.

    Args:
        data: the batches, of magic 2.
        written: int64 (n, 3), size, last offset and maximum timestamp of each; is not changed.
        before: int64[n], the size of the batch that each is made of.

    Returns:
        Both, unchanged where nothing has grown, as `has_grown` says of one batch.
    """
    growth = written[:, 0] - before
    has_grown = growth > np.maximum(GROWTH_BYTES_MIN, before // GROWTH_SHARE)
    if not has_grown.any():
        return data, written
    written = written.copy()
    pieces = []
    ends = np.cumsum(written[:, 0])
    for row, end in enumerate(ends.tolist()):
        batch = data[end - int(written[row, 0]) : end]
        if has_grown[row]:
            batch = denser(batch)
            written[row, 0] = len(batch)
        pieces.append(batch)
    return memoryview(b"".join(pieces)), written
