"""Batches of a real Kafka's metadata log, taken apart and put together again."""

from __future__ import annotations

import pytest

from cordwood.format.record_batch import RecordBatch, iter_batches
from support.controller_under_test import put_together
from support.golden import Golden


@pytest.mark.parametrize("which", ["before", "after", "before-2", "after-2"])
def test_each_batch_is_the_same_to_the_byte(golden_a: Golden, which: str) -> None:
    directory = golden_a.root / which / "__cluster_metadata-0"
    count = 0
    for path in sorted(directory.glob("*.log")):
        data = path.read_bytes()
        for position, batch in iter_batches(data):
            assert isinstance(batch, RecordBatch)
            original = data[position : position + batch.header.size_bytes]
            assert put_together(batch) == original, (path.name, batch.header.base_offset)
            count += 1
    assert count > 30
