"""Reads of files that another process changes meanwhile."""

from __future__ import annotations

from pathlib import Path

import pytest

from cordwood.model.errors import CorruptError
from cordwood.storage.reread import reread


def test_a_read_under_which_a_file_vanished_is_made_again(tmp_path: Path) -> None:
    (tmp_path / "0.log").write_bytes(b"0")
    (tmp_path / "1.log").write_bytes(b"1")

    def read() -> list[bytes]:
        names = sorted(path.name for path in tmp_path.iterdir())
        (tmp_path / "0.log").unlink(missing_ok=True)
        return [(tmp_path / name).read_bytes() for name in names]

    assert reread(read, directory=tmp_path) == [b"1"]


def test_a_read_beside_which_names_changed_is_made_again(tmp_path: Path) -> None:
    reads = []

    def read() -> int:
        reads.append(len(list(tmp_path.iterdir())))
        (tmp_path / "0.log").touch()
        return reads[-1]

    assert reread(read, directory=tmp_path) == 1
    assert reads == [0, 1]


def test_half_a_batch_is_read_again_when_it_is_whole() -> None:
    answers = iter([CorruptError("half a batch"), CorruptError("half a batch")])

    def read() -> str:
        for error in answers:
            raise error
        return "whole"

    assert reread(read) == "whole"


def test_damage_that_stays_is_raised() -> None:
    def read() -> None:
        raise CorruptError("magic 7")

    with pytest.raises(CorruptError, match="magic 7"):
        reread(read)
