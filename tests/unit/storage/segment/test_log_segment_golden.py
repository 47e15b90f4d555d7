"""Segments that a real Kafka wrote, read as they are, and written again from their batches."""

from __future__ import annotations

from pathlib import Path

import pytest

from cordwood.format.file_names import base_offset_of
from cordwood.format.record_batch import iter_batches
from cordwood.storage.filesystem import OS
from cordwood.storage.reading.batch_heads import iter_heads
from cordwood.storage.segment.log_segment import LogSegment
from cordwood.storage.segment.segment_indexes import AppendedBatch
from support.golden import Golden
from support.segments import Segments


def logs_in(golden: Golden, name: str) -> list[Path]:
    found = sorted((golden.root / name).glob("*-[0-9]*/*.log"))
    assert len(found) > 50
    return found


def opened(log: Path) -> tuple[LogSegment, Segments]:
    segments = Segments(directory=log.parent, index_interval_bytes=4096)
    return segments.open(base_offset_of(log.name)), segments


def write_again(segment: LogSegment, log: Path) -> None:
    data = log.read_bytes()
    heads = iter_heads(OS.open(log), 0, len(data), path=log)
    appended = [AppendedBatch(h.size_bytes, h.last_offset, h.max_timestamp) for h in heads]
    if appended:
        segment.append([data], appended, 0)


def test_segments_written_again_have_the_bytes_of_kafkas_indexes(
    golden_a: Golden, tmp_path: Path
) -> None:
    """Also those that its cleaner wrote; a broker that was restarted counts anew in the middle."""
    compared = 0
    for name in ("before", "after"):
        for log in logs_in(golden_a, name):
            if name == "after" and log.parent.name.startswith("__cluster_metadata"):
                continue
            segments = Segments(
                directory=tmp_path, index_interval_bytes=4096, segment_index_bytes=10 << 20
            )
            segment = segments.create(base_offset_of(log.name))
            write_again(segment, log)
            segment.close()
            for suffix in (".log", ".index", ".timeindex"):
                ours, theirs = segment.path.with_suffix(suffix), log.with_suffix(suffix)
                expected = theirs.read_bytes() if theirs.exists() else b""
                assert ours.read_bytes() == expected, theirs
            compared += segment.offset_index.entries > 0
            segment.delete_if_exists()
    assert compared > 100


def offset_at(segment: LogSegment, timestamp: int) -> int | None:
    found = segment.find_offset_by_timestamp(timestamp, 0)
    return None if found is None else found.offset


def first_offsets(log: Path, timestamps: list[int]) -> list[int | None]:
    """Of the first record with at least each timestamp, found by looking at all of them."""
    records = [r for _, found in iter_batches(log.read_bytes()) for r in found.records()]
    return [next((r.offset for r in records if r.timestamp >= t), None) for t in timestamps]


@pytest.mark.parametrize("name", ["before", "after", "before-2", "after-2"])
def test_every_entry_of_kafkas_indexes_is_believed(golden_a: Golden, name: str) -> None:
    for log in logs_in(golden_a, name):
        segment, segments = opened(log)
        heads = list(iter_heads(OS.open(log), 0, segment.size_bytes, path=log))
        expected = heads[-1].last_offset + 1 if heads else segment.base_offset
        assert segment.read_next_offset() == expected
        assert segment.valid_bytes() == segment.size_bytes
        assert segment.max_timestamp_so_far == max((h.max_timestamp for h in heads), default=-1)
        times = [segment.time_index.entry(i).timestamp for i in range(segment.time_index.entries)]
        assert [offset_at(segment, time) for time in times] == first_offsets(log, times)
        for before, head in zip([None, *heads], heads, strict=False):
            place = segment.translate_offset(head.last_offset)
            assert place is not None
            assert place.position == head.position
            if before is not None:
                between = segment.translate_offset(before.last_offset + 1)
                assert between is not None
                assert between.position == head.position
        assert segments.warnings == []
