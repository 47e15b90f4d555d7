"""A segment after a power loss at any moment: what was flushed is there, what is there is whole."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from cordwood.format.record_batch import iter_batches
from cordwood.testing.simulated_filesystem import SimulatedFileSystem
from support.segments import Segments, batch, put

DIRECTORY = Path("/log")


def new_file_system() -> SimulatedFileSystem:
    fs = SimulatedFileSystem()
    fs.make_directory(DIRECTORY)
    fs.sync_directory(Path("/"))
    return fs


def stored(data: bytes) -> list[bytes]:
    return [bytes(found.raw) for _, found in iter_batches(data)]


@pytest.mark.parametrize("seed", range(12))
def test_after_a_power_loss_a_segment_is_recovered_to_a_prefix_of_what_was_written(
    seed: int,
) -> None:
    rng = random.Random(seed)
    fs = new_file_system()
    settings = Segments(directory=DIRECTORY, index_interval_bytes=300, fs=fs)
    segment = settings.create(0)
    fs.sync_directory(DIRECTORY)
    written: list[bytes] = []
    flushed = 0
    for step in range(40):
        action = rng.random()
        if action < 0.6:
            data = batch(step, "v" * rng.randrange(400), timestamps=step)
            put(segment, data)
            written.append(data)
        elif action < 0.75:
            segment.flush()
            flushed = len(written)
        elif action < 0.85 and written:
            keep = rng.randrange(len(written))
            offset = next(iter_batches(written[keep]))[1].base_offset
            segment.truncate_to(offset)
            del written[keep:]
            flushed = min(flushed, keep)
        elif action < 0.9:
            segment.close()
            segment = settings.open(0)
        for image in fs.crash_images(3, rng):
            after = Segments(directory=DIRECTORY, index_interval_bytes=300, fs=image)
            found = after.open(0)
            found.recover(native=False)
            kept = stored(image.read_bytes(found.path))
            assert kept == written[: len(kept)]
            assert len(kept) >= flushed
            for data in kept:
                head = next(iter_batches(data))[1]
                place = found.translate_offset(head.last_offset)
                assert place is not None
                assert place.base_offset == head.base_offset
            log = image.read_bytes(found.path)
            assert found.recover(native=False) == 0
            assert image.read_bytes(found.path) == log


@pytest.mark.parametrize("seed", range(6))
def test_indexes_that_a_power_loss_left_half_written_lead_to_the_right_batches(seed: int) -> None:
    """Also without a recovery: below the recovery point there is none."""
    rng = random.Random(seed)
    fs = new_file_system()
    settings = Segments(directory=DIRECTORY, index_interval_bytes=100, fs=fs)
    segment = settings.create(0)
    put(segment, *[batch(i, f"value {i}", timestamps=i) for i in range(50)])
    segment.flush()
    fs.sync_directory(DIRECTORY)
    segment.truncate_to(30)
    put(segment, *[batch(i, f"other {i}" * 2, timestamps=i) for i in range(30, 60)])
    fs.open(segment.path, write=True).sync()
    segment.offset_index.flush(sync=False)
    segment.on_become_inactive()
    for image in fs.crash_images(20, rng):
        after = Segments(directory=DIRECTORY, index_interval_bytes=100, fs=image)
        found = after.open(0)
        for offset in range(60):
            place = found.translate_offset(offset)
            assert place is not None
            assert place.base_offset == offset
            record = found.find_offset_by_timestamp(offset, 0)
            assert record is not None
            assert record.offset == offset
        assert found.read_next_offset() == 60
        assert len(after.warnings) <= 1
