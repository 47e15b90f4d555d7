"""Files that are only read, from memory or as a part of another."""

from __future__ import annotations

from pathlib import Path

import pytest

from cordwood.storage.filesystem import OS, File
from cordwood.storage.read_only import BytesFile, PartOfFile


@pytest.fixture(params=["bytes", "part"])
def file(request: pytest.FixtureRequest, tmp_path: Path) -> File:
    """A file with ten digits."""
    if request.param == "bytes":
        return BytesFile("made", b"0123456789")
    path = tmp_path / "whole"
    path.write_bytes(b"before0123456789behind")
    return PartOfFile("made", OS.open(path), 6, 16)


def test_it_is_read(file: File) -> None:
    assert (file.read_at(4, 3), file.read_at(9, 8), file.size()) == (b"3456", b"89", 10)
    assert (file.read_at(1, 10), file.read_at(5, 30)) == (b"", b"")
    file.read_ahead()
    assert file.read_at(100, 0) == b"0123456789"
    view = memoryview(bytearray(4))
    assert file.read_into(view, 8) == 2
    assert bytes(view[:2]) == b"89"
    file.close()


@pytest.mark.parametrize("name", ["write_at", "truncate", "sync", "fileno"])
def test_it_can_only_be_read(file: File, name: str) -> None:
    arguments = {"write_at": ([b"x"], 0), "truncate": (0,)}.get(name, ())
    with pytest.raises(OSError, match="made"):
        getattr(file, name)(*arguments)
    assert file.read_at(10, 0) == b"0123456789"
