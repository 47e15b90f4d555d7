"""Variables of the environment are set for a while."""

from __future__ import annotations

import os

import pytest

from cordwood.model.environment import environment_variables

GIVEN = {"CORDWOOD_SET": "within", "CORDWOOD_UNSET": "within"}


def fail_within() -> None:
    with environment_variables(GIVEN):
        assert {name: os.environ[name] for name in GIVEN} == GIVEN
        del os.environ["CORDWOOD_UNSET"]
        raise ZeroDivisionError


def test_variables_are_as_before_at_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CORDWOOD_SET", "before")
    monkeypatch.delenv("CORDWOOD_UNSET", raising=False)
    with pytest.raises(ZeroDivisionError):
        fail_within()
    assert os.environ["CORDWOOD_SET"] == "before"
    assert "CORDWOOD_UNSET" not in os.environ
