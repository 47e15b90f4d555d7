"""The rules on records and batches, one by one."""

from __future__ import annotations

import pytest

from cordwood.cleanup.plan.compaction_values import LastRecord
from cordwood.testing.reference_rules import (
    Action,
    Verdict,
    decide_batch,
    is_last_of_producer,
    should_discard_records,
    should_retain_tombstone,
)

NOW_MS = 1_000
RETENTION_MS = 100


def decide(
    *,
    count: int = 3,
    kept: int = 3,
    tombstones: int = 0,
    can_discard: bool = False,
    control: bool = False,
    header: bool = False,
    horizon: int | None = None,
) -> Verdict:
    return decide_batch(
        count=count,
        kept=kept,
        kept_tombstones=tombstones,
        can_discard=can_discard,
        is_control=control,
        must_leave_header=header,
        delete_horizon_ms=horizon,
        now_ms=NOW_MS,
        delete_retention_ms=RETENTION_MS,
    )


def test_batch_that_loses_nothing_is_copied() -> None:
    assert decide() == Verdict(action=Action.COPY)


def test_batch_that_loses_records_is_rebuilt_without_a_horizon() -> None:
    assert decide(kept=2) == Verdict(action=Action.REBUILD)


def test_batch_that_loses_records_keeps_its_horizon() -> None:
    assert decide(kept=2, horizon=7) == Verdict(action=Action.REBUILD, delete_horizon_ms=7)


def test_first_round_over_a_tombstone_stamps_a_horizon() -> None:
    assert decide(tombstones=1) == Verdict(action=Action.REBUILD, delete_horizon_ms=1_100)


def test_horizon_is_never_extended() -> None:
    assert decide(tombstones=1, horizon=7) == Verdict(action=Action.COPY)
    assert decide(kept=2, tombstones=1, horizon=7).delete_horizon_ms == 7


def test_marker_of_a_transaction_without_data_is_stamped() -> None:
    verdict = decide(count=1, kept=1, can_discard=True, control=True)
    assert verdict == Verdict(action=Action.REBUILD, delete_horizon_ms=1_100)


def test_marker_that_is_needed_is_copied() -> None:
    assert decide(count=1, kept=1, control=True) == Verdict(action=Action.COPY)


def test_batch_of_nothing_goes_unless_its_header_is_needed() -> None:
    assert decide(kept=0) == Verdict(action=Action.DISCARD)
    assert decide(kept=0, header=True) == Verdict(action=Action.EMPTY)
    assert decide(count=0, kept=0) == Verdict(action=Action.DISCARD)
    assert decide(count=0, kept=0, header=True) == Verdict(action=Action.EMPTY)


@pytest.mark.parametrize(
    ("can_discard", "control", "horizon", "expected"),
    [
        (True, False, None, True),
        (False, False, None, False),
        (True, True, None, False),
        (True, True, NOW_MS, True),
        (True, True, NOW_MS - 1, True),
        (True, True, NOW_MS + 1, False),
        (False, True, NOW_MS, False),
        (False, False, NOW_MS, False),
    ],
)
def test_aborted_data_goes_at_once_and_a_marker_at_its_horizon(
    can_discard: bool, control: bool, horizon: int | None, expected: bool
) -> None:
    found = should_discard_records(
        can_discard=can_discard, is_control=control, delete_horizon_ms=horizon, now_ms=NOW_MS
    )
    assert found is expected


@pytest.mark.parametrize(
    ("horizon", "expected"), [(None, True), (NOW_MS + 1, True), (NOW_MS, False), (0, False)]
)
def test_tombstone_survives_until_its_delete_horizon(horizon: int | None, expected: bool) -> None:
    assert should_retain_tombstone(delete_horizon_ms=horizon, now_ms=NOW_MS) is expected


@pytest.mark.parametrize(
    ("known", "last_offset", "epoch", "control", "expected"),
    [
        (None, 9, 0, False, False),
        (9, 9, 0, False, True),
        (9, 9, 5, False, True),
        (9, 8, 0, False, False),
        (-1, 9, 0, True, True),
        (-1, 9, 1, True, False),
        (-1, 9, 0, False, False),
        (0, 0, 0, False, True),
    ],
)
def test_last_batch_of_a_producer_is_its_last_data_or_else_its_marker(
    known: int | None, last_offset: int, epoch: int, control: bool, expected: bool
) -> None:
    last = None
    if known is not None:
        last = LastRecord(
            producer_id=1, producer_epoch=0, last_data_offset=None if known < 0 else known
        )
    found = is_last_of_producer(
        last, last_offset=last_offset, producer_epoch=epoch, is_control=control
    )
    assert found is expected
