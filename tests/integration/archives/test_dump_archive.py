"""`cordwood dump-log` prints a file of an archive, by its URL, as that of the directory."""

from __future__ import annotations

from pathlib import Path

import pytest

from cordwood.surfaces.cli.dump_log import dump_log
from support.archives import archive_in, archived
from support.golden import Golden

FILES = ("*.log", "*.index", "*.timeindex", "*.txnindex", "*.snapshot")


@pytest.mark.parametrize("pattern", FILES)
def test_a_file_is_printed_as_that_of_the_directory(
    golden_a: Golden, tmp_path: Path, capfdbinary: pytest.CaptureFixture[bytes], pattern: str
) -> None:
    log_dir = golden_a.root / "before"
    archive = archive_in(tmp_path)
    archived(archive, log_dir, has_active=True, topics=["transactions"])
    file = sorted((log_dir / "transactions-0").glob(pattern))[-1]
    printed = []
    for name in (str(file), f"{archive.url}/transactions-0/{file.name}"):
        assert dump_log(["--print-data-log", "--files", name]) == 0
        printed.append(capfdbinary.readouterr().out.splitlines()[1:])
    assert printed[0] == printed[1] != []


def test_a_file_that_is_not_there_is_named(
    golden_a: Golden, tmp_path: Path, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    archive = archive_in(tmp_path)
    archived(archive, golden_a.root / "before", topics=["codec-lz4"])
    name = f"{archive.url}/codec-lz4-0/00000000000000000007.log"
    assert dump_log(["--files", name]) == 1
    assert b"00000000000000000007.log: No such file or directory" in capfdbinary.readouterr().err
