"""The bytes that are read of a large log to answer a small question."""

from __future__ import annotations

from pathlib import Path

import pytest

from support.large_log import expected_at, record_at, write_large_log

BYTES_MAX = 2_000_000


def bytes_read() -> int:
    """The bytes that this process has read so far, of files and all else."""
    facts = dict(line.split(": ") for line in Path("/proc/self/io").read_text().splitlines())
    return int(facts["rchar"])


@pytest.mark.parametrize(
    "megabytes", [64, pytest.param(1_500, marks=pytest.mark.nightly)], ids=lambda each: f"{each} MB"
)
def test_a_query_for_one_offset_of_a_large_log_reads_little_of_it(
    tmp_path: Path, megabytes: int
) -> None:
    records = write_large_log(tmp_path, megabytes)
    size_bytes = sum(path.stat().st_size for path in tmp_path.glob("t-0/*.log"))
    assert size_bytes > megabytes * 900_000
    record_at(tmp_path, 0)  # what is imported late is read, too
    for offset in (records // 3, records // 2 + 5, records - 1):
        before = bytes_read()
        found = record_at(tmp_path, offset)
        assert bytes_read() - before < BYTES_MAX
        assert found == expected_at(offset)
