"""Slices of logs, and how far a number of bytes goes in them."""

from __future__ import annotations

from pathlib import Path

import pytest

from cordwood.cleanup.plan.captured import Captured
from cordwood.configs.log_config import LogConfig
from cordwood.frames.slices import end_within, slices_of
from cordwood.frames.wanted import Isolation, Wanted
from support.log_builder import LogBuilder

BATCH_BYTES = 1000
#: Each batch but the first of a segment has an entry in the offset index.
INTERVAL_BYTES = 500
WHOLE = 1 << 40


@pytest.fixture
def captured(tmp_path: Path) -> Captured:
    """Segments of ten records each, of a batch each."""
    log = LogBuilder("log-0", index_interval_bytes=INTERVAL_BYTES)
    for number in range(30):
        if number in {10, 20}:
            log.roll()
        log.put(b"k", b"v" * 929)
    assert {len(each) for segment in log.segments for each in segment.batches} == {BATCH_BYTES}
    return log.capture(log.write(tmp_path / "log-0"), LogConfig())


@pytest.mark.parametrize(
    ("first", "bytes_max", "end"),
    [
        (0, 1, 1),
        (0, 2 * BATCH_BYTES, 2),
        (0, 2 * BATCH_BYTES + 999, 2),
        (0, 10 * BATCH_BYTES, 10),
        (0, 11 * BATCH_BYTES + 1, 11),
        (0, 10 * BATCH_BYTES + 1, 10),
        (0, 25 * BATCH_BYTES, 25),
        (0, WHOLE, 30),
        (4, 3 * BATCH_BYTES, 7),
        (19, 1, 20),
        (29, WHOLE, 30),
    ],
)
def test_so_many_bytes_end_at_an_entry_of_the_index(
    captured: Captured, first: int, bytes_max: int, end: int
) -> None:
    wanted = Wanted(first_offset=first)
    slices = list(slices_of(captured, wanted, Isolation.ALL, slice_bytes=WHOLE))
    assert end_within(slices, bytes_max) == end


def test_an_end_that_is_wanted_is_not_passed(captured: Captured) -> None:
    wanted = Wanted(first_offset=12, end_offset=15)
    slices = list(slices_of(captured, wanted, Isolation.ALL, slice_bytes=WHOLE))
    assert end_within(slices, WHOLE) == 15
