"""Requests and reports of runs that archive and restore."""

from __future__ import annotations

from pathlib import Path

import pytest

from cordwood.archiving.report import (
    ArchivedPartition,
    ArchiveReport,
    ArchiveStatus,
    RestoredPartition,
    RestoreReport,
    RestoreRequest,
)


@pytest.mark.parametrize(
    ("globs", "wanted"),
    [((), True), (("orders",), True), (("ord*", "x"), True), (("Orders",), False), (("x",), False)],
)
def test_topics_are_wanted_by_globs(globs: tuple[str, ...], wanted: bool) -> None:
    assert RestoreRequest(into=Path("x"), topics=globs).wants("orders") is wanted


@pytest.mark.parametrize("status", list(ArchiveStatus))
def test_a_run_is_complete_unless_a_partition_failed(status: ArchiveStatus) -> None:
    rows = [
        ArchivedPartition(topic="t", partition=0, log_dir="d"),
        ArchivedPartition(topic="t", partition=1, log_dir="d", status=status),
    ]
    report = ArchiveReport(url="u", dry_run=False, partitions=rows)
    assert report.is_complete == (status is not ArchiveStatus.FAILED)


def test_a_restoration_is_complete_unless_a_partition_failed() -> None:
    whole = RestoredPartition(topic="t", partition=0, directory="d")
    broken = RestoredPartition(topic="t", partition=1, directory="d", failure="why")
    assert RestoreReport(url="u", partitions=[whole]).is_complete
    assert not RestoreReport(url="u", partitions=[whole, broken]).is_complete
