"""Default memory of a cleaning."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from cordwood.cleanup.engine.spark import session

GIB = 1 << 30


@pytest.mark.parametrize(
    ("cores", "machine_gib", "group", "gib"),
    [
        (2, 24, None, 2),
        (8, 64, "max", 8),
        (8, 16, "max", 4),
        (8, 64, str(12 * GIB), 3),
        (2, 2, None, 1),
        (1, 64, "max", 1),
    ],
)
def test_it_is_a_gibibyte_a_core_but_a_quarter_of_what_there_is(
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    cores: int,
    machine_gib: int,
    group: str | None,
    gib: int,
) -> None:
    pages = {"SC_PHYS_PAGES": machine_gib * GIB // 4096, "SC_PAGE_SIZE": 4096}
    limit = tmp_path / "memory.max"
    if group is not None:
        limit.write_text(f"{group}\n")
    monkeypatch.setattr(session, "_GROUP_MEMORY", limit)
    monkeypatch.setattr(os, "sysconf", pages.__getitem__)
    monkeypatch.setattr(os, "cpu_count", lambda: cores)
    assert session.default_memory_bytes() == gib * GIB
