"""Dumps of part of a file, and with each decoder that shows data (DumpLogSegmentsTest)."""

from __future__ import annotations

from pathlib import Path

import pytest

from cordwood.format.record_batch import Record, build_batch
from cordwood.surfaces.cli.dump_log import dump_log

COUNT = 10


@pytest.fixture
def log(tmp_path: Path) -> Path:
    """Ten batches of two records."""
    path = tmp_path / f"{0:020d}.log"
    path.write_bytes(b"".join(batch(2 * n) for n in range(COUNT)))
    return path


def batch(offset: int) -> bytes:
    records = [
        Record(n, 5, b"message key %d" % n, b"message value %d" % n) for n in (offset, offset + 1)
    ]
    return build_batch(records, base_offset=offset)


def lines(capsys: pytest.CaptureFixture[str], path: Path, *flags: str) -> list[str]:
    assert dump_log(["--files", str(path), *flags]) == 0
    captured = capsys.readouterr()
    assert captured.err == ""
    return captured.out.splitlines()


def test_of_a_file_half_of_which_is_wanted_whole_batches_are_printed_and_nothing_is_invalid(
    log: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    size = log.stat().st_size
    found = lines(capsys, log, "--max-bytes", str(size // 2 + 5))
    assert not any("invalid bytes" in line for line in found)
    batches = [line for line in found if line.startswith("baseOffset: ")]
    assert [line.split()[1] for line in batches] == ["0", "2", "4", "6", "8"]


@pytest.mark.parametrize(
    "flags",
    [
        ["--print-data-log"],
        ["--value-decoder-class"],
        ["--key-decoder-class"],
        ["--value-decoder-class", "--key-decoder-class"],
        ["--print-data-log", "--value-decoder-class", "--key-decoder-class"],
    ],
)
def test_each_flag_of_data_prints_keys_and_payloads(
    log: Path, capsys: pytest.CaptureFixture[str], flags: list[str]
) -> None:
    records = [line for line in lines(capsys, log, *flags) if line.startswith("| ")]
    assert len(records) == 2 * COUNT
    for number, line in enumerate(records):
        assert line.startswith(f"| offset: {number} ")
        assert line.endswith(
            f"headerKeys: [] key: message key {number} payload: message value {number}"
        )


def test_without_such_a_flag_no_record_is_printed(
    log: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found = lines(capsys, log)
    assert len([line for line in found if line.startswith("baseOffset: ")]) == COUNT
    assert not any(line.startswith("|") for line in found)
