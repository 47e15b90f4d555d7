"""Filtering of single batches by a cleaning, in every codec.

In a compacted log records without a key always go: the scenarios are told with them.

Scenarios: org.apache.kafka.common.record.MemoryRecordsTest (filterTo).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from cordwood.cleanup.engine import tasks
from cordwood.cleanup.engine.rewrite import GroupRewriter
from cordwood.cleanup.plan.compaction import plan_compaction
from cordwood.cleanup.plan.compaction_values import Manifest
from cordwood.cleanup.plan.log_compaction import prepare_compaction
from cordwood.cleanup.rules.cleanable import plan_cleanable
from cordwood.configs.log_config import LogConfig
from cordwood.format.batch_header import HEADER_BYTES, LOG_APPEND_TIME, BatchHeader, parse_header
from cordwood.format.compression import Codec
from cordwood.format.record_batch import (
    Record,
    RecordBatch,
    build_batch,
    build_empty_batch,
    iter_batches,
)
from cordwood.testing.reference_cleaner import clean_by_reference
from support.log_builder import NOW_MS, LogBuilder
from support.whole_compaction import survivors_of

CODECS = list(Codec)
PRODUCER, EPOCH = 23, 5
Row = tuple[int, bytes | None, bytes | None]  # timestamp, key, value


def filtered(
    root: Path, batches: Sequence[bytes], *, build: Callable[[LogBuilder], object] | None = None
) -> tuple[Manifest, list[RecordBatch]]:
    """Compacts these batches, and those that `build` adds."""
    log = LogBuilder()
    for data in batches:
        log.skip(parse_header(data).base_offset - log.next_offset)
        log.append(data)
    if build is not None:
        build(log)
    log.put(b"the last", b"of the round")
    log.roll()
    directory = log.write(root / "log-0")
    config = LogConfig(cleanup_policy=frozenset({"compact"}), delete_retention_ms=1)
    captured = log.capture(directory, config)
    plan = plan_compaction(captured.view, plan_cleanable(captured.view, now_ms=NOW_MS, force=True))
    compaction = prepare_compaction(captured, plan, now_ms=NOW_MS, seed=5)
    spec = tasks.rewrite_specs(compaction, survivors_of(compaction))[0]
    spec = replace(spec, staged=replace(spec.staged, token="t"))
    manifest = GroupRewriter().rewrite(spec)
    data = spec.staged.paths()[".log"].read_bytes()
    assert data == clean_by_reference(compaction)[0].files[".log"]
    found = [batch for _, batch in iter_batches(data)]
    assert all(isinstance(batch, RecordBatch) and batch.is_valid() for batch in found)
    return manifest, found[:-1]  # type: ignore[return-value]


def batch_at(offset: int, rows: Sequence[Row], **options: object) -> bytes:
    records = [
        Record(offset + i, timestamp, key, value) for i, (timestamp, key, value) in enumerate(rows)
    ]
    return build_batch(records, base_offset=offset, **options)  # type: ignore[arg-type]


def content(batch: RecordBatch) -> list[tuple[int, int, bytes | None, bytes | None, int]]:
    return [(r.offset, r.timestamp, r.key, r.value, r.sequence) for r in batch.records()]


def of_producer(header: BatchHeader) -> tuple[int, int, int, int, bool]:
    return (
        header.producer_id,
        header.producer_epoch,
        header.base_sequence,
        header.last_sequence,
        header.is_transactional,
    )


@pytest.mark.parametrize("codec", CODECS)
def test_batch_that_loses_records_keeps_its_offsets_and_leader_epoch(
    tmp_path: Path, codec: Codec
) -> None:
    rows: list[Row] = [(10, None, b"a"), (11, b"1", b"b"), (12, None, b"c")]
    _, (batch,) = filtered(tmp_path, [batch_at(0, rows, codec=codec, partition_leader_epoch=67)])
    assert (batch.base_offset, batch.last_offset, batch.header.records_count) == (0, 2, 1)
    assert batch.header.partition_leader_epoch == 67
    assert batch.codec is codec
    assert of_producer(batch.header) == (-1, -1, -1, -1, False)
    assert content(batch) == [(1, 11, b"1", b"b", -1)]


@pytest.mark.parametrize("codec", CODECS)
def test_batch_of_a_producer_that_loses_records_keeps_its_sequences(
    tmp_path: Path, codec: Codec
) -> None:
    idempotent = batch_at(
        3,
        [(13, None, b"d"), (14, b"4", b"e"), (15, b"5", b"f")],
        codec=codec,
        producer_id=PRODUCER,
        producer_epoch=EPOCH,
        base_sequence=10,
    )
    transactional = batch_at(
        6,
        [(16, b"6", b"g"), (17, b"7", b"h"), (18, None, b"i")],
        codec=codec,
        producer_id=99384,
        producer_epoch=234,
        base_sequence=15,
        is_transactional=True,
    )
    _, batches = filtered(
        tmp_path,
        [idempotent, transactional],
        build=lambda log: log.marker((99384, 234), commit=True),
    )
    second, third, marker = batches
    assert marker.header.is_control
    assert (second.base_offset, second.last_offset) == (3, 5)
    assert of_producer(second.header) == (PRODUCER, EPOCH, 10, 12, False)
    assert content(second) == [(4, 14, b"4", b"e", 11), (5, 15, b"5", b"f", 12)]
    assert (third.base_offset, third.last_offset) == (6, 8)
    assert of_producer(third.header) == (99384, 234, 15, 17, True)
    assert content(third) == [(6, 16, b"6", b"g", 15), (7, 17, b"7", b"h", 16)]


@pytest.mark.parametrize("codec", CODECS)
def test_seven_records_in_four_batches_become_four_in_three(tmp_path: Path, codec: Codec) -> None:
    manifest, batches = filtered(
        tmp_path,
        [
            batch_at(0, [(10, None, b"a")], codec=codec),
            batch_at(1, [(11, b"1", b"b"), (12, None, b"c")], codec=codec),
            batch_at(3, [(13, None, b"d"), (20, b"4", b"e"), (15, b"5", b"f")], codec=codec),
            batch_at(6, [(16, b"6", b"g")], codec=codec),
        ],
    )
    # Each count has the record behind them in it.
    assert (manifest.records_before, manifest.records_after) == (7 + 1, 4 + 1)
    assert (manifest.batches_before, manifest.batches_after) == (4 + 1, 3 + 1)
    assert [(b.base_offset, b.last_offset) for b in batches] == [(1, 2), (3, 5), (6, 6)]
    assert [batch.max_timestamp for batch in batches] == [11, 20, 16]
    assert {batch.codec for batch in batches} == {codec}
    assert {batch.timestamp_type for batch in batches} == {"CreateTime"}
    assert [entry for batch in batches for entry in content(batch)] == [
        (1, 11, b"1", b"b", -1),
        (4, 20, b"4", b"e", -1),
        (5, 15, b"5", b"f", -1),
        (6, 16, b"6", b"g", -1),
    ]


@pytest.mark.parametrize("codec", CODECS)
def test_batches_that_are_to_go_as_a_whole_go_whatever_they_hold(
    tmp_path: Path, codec: Codec
) -> None:
    def build(log: LogBuilder) -> None:
        log.batch([(b"1", b"a")], codec=codec)
        log.batch([(b"2", b"b"), (b"3", b"c")], codec=codec, producer=(7, 0), transactional=True)
        log.batch([(b"4", b"d"), (b"5", b"e"), (b"6", b"f")], codec=codec)
        log.batch([(b"7", b"g")], codec=codec, producer=(8, 0), transactional=True)
        log.marker((7, 0), commit=False)
        log.marker((8, 0), commit=False)
        # Newer data of both, so that no header has to stay in memory of the aborted batches.
        log.batch([(b"8", b"h")], producer=(7, 0))
        log.batch([(b"9", b"i")], producer=(8, 0))

    _, batches = filtered(tmp_path, [], build=build)
    data = [batch for batch in batches if not batch.header.is_control]
    assert [batch.last_offset for batch in data] == [0, 5, 9, 10]


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("transactional", [False, True])
def test_last_batch_of_a_producer_that_loses_all_records_leaves_its_header(
    tmp_path: Path, codec: Codec, transactional: bool
) -> None:
    data = batch_at(
        3,
        # Producers expire by the time of their records: these are new.
        [(NOW_MS - 1, None, b"b"), (NOW_MS, None, b"c")],
        codec=codec,
        producer_id=PRODUCER,
        producer_epoch=EPOCH,
        base_sequence=10,
        is_transactional=transactional,
        partition_leader_epoch=293,
    )

    def end(log: LogBuilder) -> None:
        if transactional:
            log.marker((PRODUCER, EPOCH), commit=True, timestamp=NOW_MS)

    manifest, batches = filtered(tmp_path, [data], build=end)
    batch = batches[0]
    assert batch.size_bytes == HEADER_BYTES
    assert (batch.base_offset, batch.last_offset, batch.header.records_count) == (3, 4, 0)
    assert of_producer(batch.header) == (PRODUCER, EPOCH, 10, 11, transactional)
    assert (batch.max_timestamp, batch.timestamp_type) == (NOW_MS, "CreateTime")
    assert batch.header.partition_leader_epoch == 293
    assert batch.codec is Codec.NONE
    assert manifest.records_before - manifest.records_after == 2


def empty_batch(offset: int) -> bytes:
    data = batch_at(
        offset,
        [(NOW_MS, b"k", b"v")],
        producer_id=PRODUCER,
        producer_epoch=EPOCH,
        base_sequence=10,
        partition_leader_epoch=293,
    )
    return build_empty_batch(parse_header(data))


def test_header_left_by_an_earlier_cleaning_stays_while_it_is_its_producers_last(
    tmp_path: Path,
) -> None:
    _, (batch,) = filtered(tmp_path, [empty_batch(3)])
    assert batch.raw == empty_batch(3)


def test_header_left_by_an_earlier_cleaning_goes_when_its_producer_went_on(tmp_path: Path) -> None:
    newer = batch_at(
        4,
        [(NOW_MS, b"k", b"v")],
        producer_id=PRODUCER,
        producer_epoch=EPOCH,
        base_sequence=11,
    )
    _, (batch,) = filtered(tmp_path, [empty_batch(3), newer])
    assert batch.raw == newer


@pytest.mark.parametrize("codec", CODECS)
def test_batch_compacted_before_keeps_the_range_of_offsets_it_had(
    tmp_path: Path, codec: Codec
) -> None:
    records = [
        Record(5, 10, None, b"a"),
        Record(8, 11, b"1", b"b"),
        Record(10, 12, None, b"c"),
    ]
    _, (batch,) = filtered(tmp_path, [build_batch(records, base_offset=0, codec=codec)])
    assert (batch.base_offset, batch.last_offset) == (0, 10)
    assert content(batch) == [(8, 11, b"1", b"b", -1)]


@pytest.mark.parametrize("codec", CODECS)
def test_records_far_larger_than_their_neighbours_come_through(
    tmp_path: Path, codec: Codec
) -> None:
    _, batches = filtered(
        tmp_path,
        [
            batch_at(0, [(10, None, b"a")], codec=codec),
            batch_at(
                1,
                [(11, b"1", bytes(3 << 20)), (12, b"2", b"c"), (13, None, b"d")],
                codec=codec,
            ),
            batch_at(4, [(14, None, b"e"), (15, b"5", b"f"), (16, b"6", b"g")], codec=codec),
            batch_at(7, [(17, b"7", bytes(128))], codec=codec),
        ],
    )
    found = [entry for batch in batches for entry in content(batch)]
    assert [(offset, len(value or b"")) for offset, _, _, value, _ in found] == [
        (1, 3 << 20),
        (2, 1),
        (5, 1),
        (6, 1),
        (7, 128),
    ]


@pytest.mark.parametrize("codec", CODECS)
def test_batch_with_a_tombstone_gets_a_horizon_and_its_timestamps_read_as_before(
    tmp_path: Path, codec: Codec
) -> None:
    rows: list[Row] = [(5, b"0", b"0"), (10, b"1", None), (15, b"2", b"2")]
    data = batch_at(0, rows, codec=codec, partition_leader_epoch=998)
    _, (batch,) = filtered(tmp_path, [data])
    assert batch.header.delete_horizon_ms == NOW_MS + 1
    assert batch.header.base_timestamp == NOW_MS + 1
    assert [record.timestamp for record in batch.records()] == [5, 10, 15]
    assert (batch.max_timestamp, batch.header.partition_leader_epoch) == (15, 998)
    assert batch.codec is codec


@pytest.mark.parametrize("codec", CODECS)
def test_batch_of_log_append_time_keeps_type_and_time(tmp_path: Path, codec: Codec) -> None:
    def at(offset: int, rows: Sequence[Row]) -> bytes:
        return batch_at(
            offset,
            rows,
            codec=codec,
            timestamp_type=LOG_APPEND_TIME,
            log_append_time_ms=NOW_MS - 7,
        )

    _, batches = filtered(
        tmp_path,
        [
            at(0, [(10, None, b"a")]),
            at(1, [(11, b"1", b"b"), (12, None, b"c")]),
            at(3, [(13, None, b"d"), (14, b"4", b"e"), (15, b"5", b"f")]),
        ],
    )
    assert len(batches) == 2
    for batch in batches:
        assert (batch.timestamp_type, batch.max_timestamp) == (LOG_APPEND_TIME, NOW_MS - 7)
        assert {record.timestamp for record in batch.records()} == {NOW_MS - 7}
        assert batch.codec is codec
