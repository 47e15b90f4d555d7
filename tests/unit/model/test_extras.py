from __future__ import annotations

import re
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest

from cordwood.model.errors import EngineUnavailableError, MissingExtraError
from cordwood.model.extras import NATIVE, PACKAGES, SPARK, missing_packages, require_extra

ROOT = Path(__file__).parents[3]
PROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
EXTRAS: dict[str, list[str]] = PROJECT["project"]["optional-dependencies"]


def declared(extra: str) -> set[str]:
    """The packages that an extra installs, extras of ours in it resolved."""
    found: set[str] = set()
    for requirement in EXTRAS[extra]:
        match = re.match(r"([\w.-]+)(?:\[([\w,]+)\])?", requirement)
        assert match is not None
        name, extras = match.groups()
        if name == "cordwood":
            found.update(*(declared(each) for each in extras.split(",")))
        else:
            found.add(name)
    return found


@pytest.mark.parametrize("extra", sorted(PACKAGES))
def test_the_packages_looked_for_are_those_that_the_extra_installs(extra: str) -> None:
    assert set(PACKAGES[extra]) == declared(extra)


def test_all_installs_every_extra() -> None:
    assert declared("all") == set().union(*(declared(each) for each in EXTRAS))


def test_the_base_installation_names_no_package_of_an_extra() -> None:
    base = {re.split(r"[^\w.-]", each)[0] for each in PROJECT["project"]["dependencies"]}
    assert not base & declared("all")


def test_here_everything_is_installed() -> None:
    assert missing_packages(SPARK) == []
    require_extra(NATIVE, what="this test")


def test_a_missing_package_is_named_with_the_command_that_installs_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "pyspark", None)
    monkeypatch.setitem(sys.modules, "pandas", None)
    require_extra(NATIVE, what="recovery")
    with pytest.raises(MissingExtraError) as raised:
        require_extra(SPARK, what="compaction")
    assert str(raised.value) == (
        "compaction needs the extra 'spark': pandas, pyspark are not installed. "
        "Install it: pip install 'cordwood[spark]'"
    )
    assert raised.value.extra == SPARK
    assert isinstance(raised.value, EngineUnavailableError)
