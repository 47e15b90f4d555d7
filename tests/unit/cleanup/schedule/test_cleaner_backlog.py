"""Whether the cleaner keeps up with what is appended."""

from __future__ import annotations

import logging

import pytest

from cordwood.cleanup.schedule.cleaner_backlog import BEHIND_MS, CleanerBacklog, Growth


def noted(*looks: tuple[int, int]) -> CleanerBacklog:
    backlog = CleanerBacklog()
    for now_ms, due_bytes in looks:
        backlog.note(now_ms, due_bytes)
    return backlog


def test_what_has_grown_for_ten_minutes_is_behind_and_is_logged_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    backlog = noted((0, 100), (BEHIND_MS - 1, 300))
    assert backlog.growth() is None
    with caplog.at_level(logging.WARNING):
        backlog.note(BEHIND_MS, 250)
        backlog.note(BEHIND_MS + 5, 260)
    assert backlog.growth() == Growth(since_ms=0, bytes_then=100, bytes_now=260)
    assert backlog.due_bytes == 260
    (record,) = caplog.records
    assert "grew from 100 to 250" in record.getMessage()


def test_a_look_at_which_nothing_is_due_ends_it() -> None:
    backlog = noted((0, 100), (BEHIND_MS, 300), (BEHIND_MS + 1, 0))
    assert backlog.growth() is None
    assert backlog.due_bytes == 0
    backlog.note(BEHIND_MS + 2, 500)
    backlog.note(2 * BEHIND_MS, 900)
    assert backlog.growth() is None


def test_what_does_not_grow_any_more_is_not_behind() -> None:
    assert noted((0, 100), (BEHIND_MS, 300), (2 * BEHIND_MS, 300)).growth() is None
    assert noted((0, 100), (BEHIND_MS, 300), (2 * BEHIND_MS, 301)).growth() is not None


def test_a_long_compaction_is_between_two_looks() -> None:
    found = noted((0, 100), (3 * BEHIND_MS, 200)).growth()
    assert found == Growth(since_ms=0, bytes_then=100, bytes_now=200)


def test_a_clock_that_is_set_back_begins_again() -> None:
    backlog = noted((BEHIND_MS, 100), (0, 200), (BEHIND_MS - 1, 300))
    assert backlog.growth() is None
