from __future__ import annotations

from pathlib import Path

import pytest

from cordwood.surfaces.dump.files import NamedFile


def test_names_are_shown_as_java_shows_them() -> None:
    file = NamedFile.parse("./a//b/../00000000000000000007.log/")
    assert str(file) == "./a/b/../00000000000000000007.log"
    assert (file.name, file.suffix) == ("00000000000000000007.log", ".log")
    assert str(file.beside(".index")) == "./a/b/../00000000000000000007.index"
    assert NamedFile.parse("x").suffix == ""
    assert str(NamedFile.parse("//")) == "/"


def test_absolute_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert NamedFile.parse("./x.log").absolute == f"{tmp_path}/./x.log"
    assert NamedFile.parse("/x.log").absolute == "/x.log"
