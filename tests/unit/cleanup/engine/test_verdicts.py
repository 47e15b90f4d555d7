"""The verdict on each batch of a block: `verdicts.BatchRules`, case by case."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
import pytest

from cordwood.cleanup.engine.verdicts import BatchRules, Verdicts
from cordwood.cleanup.plan.compaction_values import Discarded, LastRecord, Manifest
from cordwood.cleanup.plan.log_compaction import LogCompaction
from cordwood.cleanup.rules.record_rules import RecordRules
from cordwood.format.native import batches as rows_of
from cordwood.format.native.rebuild import COPY, DISCARD, EMPTY, REBUILD
from cordwood.storage.filesystem import FileFacts
from cordwood.storage.reading.block import Block
from cordwood.storage.reading.source import SegmentSource

NOW_MS: Final = 1_000_000
RETENTION_MS: Final = 500
CONTROL, HORIZON, TRANSACTIONAL = 0x20, 0x40, 0x10
END: Final = 1_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """A batch of records: `keep` and `nulls` have a digit for each, 1 for true.

    `horizon` is its delete horizon in ms, None without one; `mortal` are the null values that go
    behind it, where not all do. `settled` says that the transaction of a marker has no records.
    """

    keep: str
    nulls: str = ""
    mortal: str | None = None
    horizon: int | None = None
    attributes: int = 0
    producer: tuple[int, int] = (-1, -1)
    settled: bool = False


PAST, FUTURE = NOW_MS, NOW_MS + 1


def bits(text: str) -> np.ndarray[tuple[int], np.dtype[np.uint8]]:
    """Bits as the kernels have them, with the room that they read behind them."""
    found = np.packbits([int(each) for each in text], bitorder="little")
    return np.concatenate([found, np.zeros(8, dtype=np.uint8)])


def decide(
    *batches: Batch, producers: tuple[LastRecord, ...] = (), upper_bound: int = END
) -> tuple[Verdicts, Manifest, str]:
    """The verdicts on batches that follow each other from offset 0 on, and the bits behind them."""
    table = np.zeros((len(batches), rows_of.COLUMNS), dtype=np.int64)
    counts = [len(each.keep) for each in batches]
    ends = np.cumsum(counts)
    for row, each in enumerate(batches):
        marked = HORIZON if each.horizon is not None else 0
        table[row, rows_of.ATTRIBUTES] = each.attributes | marked
        table[row, rows_of.BASE_TIMESTAMP] = each.horizon or 0
        table[row, rows_of.COUNT] = counts[row]
        table[row, rows_of.LAST_OFFSET] = ends[row] - 1
        table[row, [rows_of.PRODUCER_ID, rows_of.PRODUCER_EPOCH]] = each.producer
    nulls = [each.nulls or "0" * len(each.keep) for each in batches]
    mortal = [
        each.mortal if each.mortal is not None else null
        for each, null in zip(batches, nulls, strict=True)
    ]
    keep = bits("".join(each.keep for each in batches))
    all_nulls = bits("".join(nulls))
    is_pinned = mortal != nulls
    manifest = Manifest(0, "t")
    rules = BatchRules(_compaction(producers, upper_bound), _source())
    verdicts = rules.decide(
        Block(_source(), np.empty(0, dtype=np.uint8), table, 0),
        (ends - counts).astype(np.int64),
        keep,
        (all_nulls, bits("".join(mortal)) if is_pinned else all_nulls),
        np.array([each.settled for each in batches]),
        manifest,
    )
    left = np.unpackbits(keep, bitorder="little")[: int(ends[-1])]
    return verdicts, manifest, "".join(map(str, left))


def last_record(producer_id: int, epoch: int, offset: int | None) -> LastRecord:
    return LastRecord(producer_id=producer_id, producer_epoch=epoch, last_data_offset=offset)


def _source() -> SegmentSource:
    return SegmentSource(
        path="/log/0.log", base_offset=0, next_base_offset=END, size_bytes=1, modified_ns=0
    )


def _compaction(producers: tuple[LastRecord, ...], upper_bound: int) -> LogCompaction:
    return LogCompaction(
        name="log-0",
        directory="/log",
        rules=RecordRules(now_ms=NOW_MS, delete_retention_ms=RETENTION_MS),
        first_dirty=0,
        first_uncleanable=upper_bound,
        retained_end=upper_bound,
        index_interval_bytes=4096,
        segment_bytes=1 << 20,
        segments=(),
        groups=(),
        producers=producers,
        aborted=(),
        model=FileFacts(size_bytes=0, modified_ms=0, modified_ns=0, mode=0o644, uid=0, gid=0),
        seed=0,
    )


@pytest.mark.parametrize(
    ("batch", "action", "kept"),
    [
        (Batch(keep="111"), COPY, 3),
        (Batch(keep="101"), REBUILD, 2),
        (Batch(keep="000"), DISCARD, 0),
        (Batch(keep="11", nulls="01"), REBUILD, 2),
        (Batch(keep="11", nulls="01", horizon=FUTURE), COPY, 2),
        (Batch(keep="11", nulls="01", horizon=PAST), REBUILD, 1),
        (Batch(keep="01", nulls="01", horizon=PAST), DISCARD, 0),
        (Batch(keep="01", nulls="01", mortal="00", horizon=PAST), REBUILD, 1),
        (Batch(keep="11", horizon=PAST), COPY, 2),
        (Batch(keep="0", attributes=CONTROL), COPY, 1),
        (Batch(keep="0", attributes=CONTROL, settled=True), REBUILD, 1),
        (Batch(keep="0", attributes=CONTROL, settled=True, horizon=FUTURE), COPY, 1),
        (Batch(keep="0", attributes=CONTROL, settled=True, horizon=PAST), DISCARD, 0),
        (Batch(keep="0", attributes=CONTROL, horizon=PAST), COPY, 1),
    ],
    ids=[
        "all is newest",
        "one is superseded",
        "all are superseded",
        "a tombstone gets a horizon",
        "a tombstone before its horizon",
        "a tombstone at its horizon",
        "the last record, a tombstone at its horizon",
        "a tombstone that an older version needs",
        "a horizon, and no tombstone any more",
        "a marker whose transaction has records",
        "a marker without records gets a horizon",
        "a marker before its horizon",
        "a marker at its horizon",
        "a marker whose transaction has records, at its horizon",
    ],
)
def test_a_batch_is_judged_by_its_records_and_its_horizon(
    batch: Batch, action: int, kept: int
) -> None:
    verdicts, manifest, _ = decide(batch)
    assert (verdicts.actions.tolist(), verdicts.kept.tolist()) == ([action], [kept])
    assert manifest.records_after == kept
    assert manifest.batches_after == int(action != DISCARD)


def test_a_new_horizon_is_the_retention_of_deletes_from_now_and_an_old_one_stays() -> None:
    verdicts, _, _ = decide(
        Batch(keep="11", nulls="10"), Batch(keep="11", nulls="10", horizon=FUTURE), Batch(keep="1")
    )
    assert verdicts.stamp.tolist() == [1, 1, 0]
    assert verdicts.horizons.tolist()[:2] == [NOW_MS + RETENTION_MS, FUTURE]


def test_records_that_go_are_counted_by_reason() -> None:
    _, manifest, _ = decide(
        Batch(keep="101"),
        Batch(keep="11", nulls="01", horizon=PAST),
        Batch(keep="0", attributes=CONTROL, settled=True, horizon=PAST),
        Batch(keep="0", attributes=CONTROL),
    )
    assert (manifest.batches_before, manifest.batches_after) == (4, 3)
    assert (manifest.records_before, manifest.records_after) == (7, 4)
    assert manifest.discarded == Discarded(superseded=1, tombstone=1, marker=1)


def test_a_marker_that_stays_is_among_the_records_that_stay_and_one_that_goes_is_not() -> None:
    _, _, left = decide(
        Batch(keep="10"),
        Batch(keep="0", attributes=CONTROL),
        Batch(keep="0", attributes=CONTROL, settled=True, horizon=PAST),
        Batch(keep="01"),
    )
    assert left == "10" + "1" + "0" + "01"


@pytest.mark.parametrize(
    ("last", "action"),
    [
        (last_record(7, 3, 0), EMPTY),
        (last_record(7, 3, 1), DISCARD),
        (last_record(8, 3, 0), DISCARD),
        (last_record(7, 3, None), DISCARD),
    ],
    ids=["its last", "it has a later one", "of another producer", "a marker is its last"],
)
def test_the_last_batch_of_an_active_producer_stays_empty(last: LastRecord, action: int) -> None:
    batch = Batch(keep="0", producer=(7, 3))
    verdicts, _, _ = decide(batch, producers=(last_record(1, 0, 50), last, last_record(9, 0, 60)))
    assert verdicts.actions.tolist() == [action]


@pytest.mark.parametrize(("epoch", "action"), [(3, EMPTY), (2, DISCARD)])
def test_a_marker_stays_empty_if_it_alone_has_its_producers_epoch(epoch: int, action: int) -> None:
    marker = Batch(keep="0", attributes=CONTROL, settled=True, horizon=PAST, producer=(7, epoch))
    verdicts, _, _ = decide(marker, producers=(last_record(7, 3, None),))
    assert verdicts.actions.tolist() == [action]


def test_the_last_batch_of_what_is_cleaned_stays_empty() -> None:
    verdicts, _, _ = decide(Batch(keep="00"), Batch(keep="00"), upper_bound=4)
    assert verdicts.actions.tolist() == [DISCARD, EMPTY]
