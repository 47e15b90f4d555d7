"""The judge of the chaos test finds every kind of fault, and complains of nothing else."""

from __future__ import annotations

import pytest

from support.soaks.ledger import (
    UNKNOWN_OFFSET,
    Acknowledged,
    Cleanup,
    Place,
    ReadRecord,
    judge,
)
from support.soaks.stamps import (
    Stamp,
    is_tombstone,
    key_of,
    payload,
    read_stamp,
)

PLACE = Place("t", 0)
KEYS = 200
TOMBSTONE = next(n for n in range(1, KEYS) if is_tombstone(n))


def record(offset: int, sequence: int, writer: int = 0) -> ReadRecord:
    return ReadRecord(offset, Stamp(writer, sequence), is_tombstone(sequence))


def complaints(
    acknowledged: list[tuple[int, int]],
    read: list[ReadRecord],
    *,
    cleanup: Cleanup = Cleanup.NONE,
    log_start_offset: int = 0,
    failed: tuple[Stamp, ...] = (),
) -> list[str]:
    entries = {0: [Acknowledged(*each) for each in acknowledged]}
    return judge(
        PLACE,
        entries,
        read,
        cleanup=cleanup,
        log_start_offset=log_start_offset,
        failed=failed,
    )


def test_a_log_with_all_that_was_acknowledged_is_in_order() -> None:
    assert complaints([(0, 0), (1, 2)], [record(0, 0), record(1, 7, writer=1), record(2, 1)]) == []


def test_a_record_that_is_gone_is_reported() -> None:
    (found,) = complaints([(0, 0), (1, 1)], [record(0, 0)])
    assert "record 1 of writer 0, acknowledged at offset 1" in found


def test_a_record_at_another_offset_is_reported() -> None:
    assert complaints([(0, 0), (1, 1)], [record(0, 0), record(2, 1)])


def test_an_altered_record_is_reported() -> None:
    assert "offset 1 is not as it was sent" in "".join(
        complaints([(0, 0)], [record(0, 0), ReadRecord(1, None, is_tombstone=False)])
    )


def test_a_duplicate_is_reported() -> None:
    (found,) = complaints([(0, 0)], [record(0, 0), record(1, 0)])
    assert "a second time" in found


def test_records_out_of_order_are_reported() -> None:
    assert complaints([(0, 1), (1, 0)], [record(0, 1), record(1, 0)])


def test_a_record_that_was_acknowledged_as_a_duplicate_must_be_somewhere() -> None:
    assert complaints([(0, UNKNOWN_OFFSET)], [record(5, 0)]) == []
    assert complaints([(0, UNKNOWN_OFFSET)], [])


def test_compaction_may_remove_what_a_newer_record_of_the_key_replaces() -> None:
    acknowledged = [(2, 0), (2 + KEYS, 1)]
    assert complaints(acknowledged, [record(1, 2 + KEYS)], cleanup=Cleanup.COMPACT) == []
    assert complaints(acknowledged, [record(0, 2)], cleanup=Cleanup.COMPACT)
    assert complaints(acknowledged, [record(1, 2 + KEYS)], cleanup=Cleanup.NONE)


def test_compaction_may_remove_a_key_whose_tombstone_was_sent() -> None:
    before = TOMBSTONE + 11 * KEYS - KEYS
    after = before + KEYS
    assert key_of(0, before) == key_of(0, after)
    assert is_tombstone(after)
    assert not is_tombstone(before)
    gone = [(before, 0)]
    assert complaints([*gone, (after, 1)], [], cleanup=Cleanup.COMPACT) == []
    assert complaints(gone, [], cleanup=Cleanup.COMPACT, failed=(Stamp(0, after),)) == []
    assert complaints(gone, [], cleanup=Cleanup.COMPACT)
    assert complaints([(after, 0), (after + KEYS, 1)], [], cleanup=Cleanup.COMPACT)


def test_retention_may_remove_what_lies_below_the_log_start_offset() -> None:
    acknowledged = [(0, 0), (1, 1)]
    assert (
        complaints(acknowledged, [record(1, 1)], cleanup=Cleanup.RETENTION, log_start_offset=1)
        == []
    )
    assert complaints(acknowledged, [], cleanup=Cleanup.RETENTION, log_start_offset=1)
    assert complaints(acknowledged, [record(1, 1)], log_start_offset=1)


@pytest.mark.parametrize("sequence", [0, TOMBSTONE])
def test_a_stamp_is_read_back_from_what_was_sent_and_from_nothing_else(sequence: int) -> None:
    sent = payload(3, sequence, tombstones=True)
    assert (sent.value is None) == is_tombstone(sequence)
    assert read_stamp(sent.key, sent.value, sent.header) == Stamp(3, sequence)
    assert read_stamp(sent.key, (sent.value or b"") + b"x", sent.header) is None
    assert read_stamp(b"other", sent.value, sent.header) is None
    assert read_stamp(sent.key, sent.value, None) is None
