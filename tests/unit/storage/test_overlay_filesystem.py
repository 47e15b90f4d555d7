"""Changes that stay in memory, over files that somebody else owns."""

from __future__ import annotations

from pathlib import Path

import pytest

from cordwood.storage.overlay_filesystem import OverlayFileSystem


def _files(root: Path) -> dict[str, bytes]:
    return {p.name: p.read_bytes() for p in sorted(root.iterdir()) if p.is_file()}


def test_nothing_on_disk_changes_whatever_is_done(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"0123456789")
    (tmp_path / "b").write_bytes(b"b")
    (tmp_path / "c").write_bytes(b"c")
    before = _files(tmp_path)
    fs = OverlayFileSystem()
    file = fs.open(tmp_path / "a", write=True)
    file.truncate(4)
    file.write_at([b"xy"], 4)
    fs.remove(tmp_path / "b")
    fs.rename(tmp_path / "c", tmp_path / "d")
    fs.write_durably(tmp_path / "new", b"new")
    fs.make_directory(tmp_path / "sub" / "sub")
    fs.write_durably(tmp_path / "sub" / "sub" / "deep", b"deep")
    assert fs.read_bytes(tmp_path / "a") == b"0123xy"
    assert fs.read_bytes(tmp_path / "d") == b"c"
    assert fs.read_bytes(tmp_path / "sub" / "sub" / "deep") == b"deep"
    assert fs.names_in(tmp_path) == ["a", "d", "new", "sub"]
    assert not fs.exists(tmp_path / "b")
    with pytest.raises(FileNotFoundError):
        fs.open(tmp_path / "b")
    with pytest.raises(FileNotFoundError):
        fs.facts_of(tmp_path / "c")
    assert _files(tmp_path) == before
    assert [p.name for p in tmp_path.iterdir() if p.is_dir()] == []


def test_a_write_inside_what_is_on_disk_is_seen_at_its_place(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"0123456789")
    fs = OverlayFileSystem()
    fs.open(tmp_path / "a", write=True).write_at([b"AB"], 3)
    assert fs.read_bytes(tmp_path / "a") == b"012AB56789"
    assert (tmp_path / "a").read_bytes() == b"0123456789"


def test_a_file_cut_off_and_extended_is_zeros_there(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"0123456789")
    fs = OverlayFileSystem()
    file = fs.open(tmp_path / "a", write=True)
    file.truncate(2)
    file.truncate(5)
    assert fs.read_bytes(tmp_path / "a") == b"01\0\0\0"
    assert fs.facts_of(tmp_path / "a").size_bytes == 5
    buffer = memoryview(bytearray(8))
    assert fs.open(tmp_path / "a").read_into(buffer, 1) == 4


def test_unchanged_files_have_a_descriptor_and_those_in_memory_have_none(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"0123456789")
    fs = OverlayFileSystem()
    assert fs.open(tmp_path / "a").fileno() >= 0
    fs.write_durably(tmp_path / "b", b"b")
    with pytest.raises(OSError, match="no descriptor"):
        fs.open(tmp_path / "b").fileno()


def test_the_lock_of_another_process_is_passed_by(tmp_path: Path) -> None:
    OverlayFileSystem().lock(tmp_path).release()
    assert list(tmp_path.iterdir()) == []


def test_a_directory_keeps_its_name_and_only_an_empty_one_can_be_removed(tmp_path: Path) -> None:
    (tmp_path / "d").mkdir()
    (tmp_path / "d" / "x").write_bytes(b"x")
    fs = OverlayFileSystem()
    with pytest.raises(OSError, match="keeps its name"):
        fs.rename(tmp_path / "d", tmp_path / "e")
    with pytest.raises(OSError, match="not empty"):
        fs.remove_directory(tmp_path / "d")
    fs.remove_tree(tmp_path / "d")
    assert not fs.exists(tmp_path / "d")
    assert (tmp_path / "d" / "x").exists()
