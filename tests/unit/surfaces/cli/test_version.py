"""`cordwood --version`: its text, and how little it loads."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest

from cordwood import __version__
from cordwood.format.native import form
from cordwood.surfaces.cli.version import version_text

SLOW = {"asyncio", "numba", "numpy", "rich", "typer", "yaml"}


def test_the_version_says_which_forms_run() -> None:
    forms = r"kernels: (compiled|numba|none); request path: (compiled|Python)"
    assert re.fullmatch(rf"cordwood {re.escape(__version__)} \({forms}\)", version_text())


def test_the_version_is_printed_without_loading_what_commands_need() -> None:
    done = subprocess.run(
        [sys.executable, "-X", "importtime", "-m", "cordwood", "--version"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == version_text() + "\n"
    loaded = set(re.findall(r"\| +([\w.]+)$", done.stderr, re.MULTILINE))
    assert "cordwood.surfaces.cli.version" in loaded
    assert not loaded & SLOW


def test_the_version_is_printed_among_other_options_too() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "cordwood", "--version", "--version"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == version_text() + "\n"


@pytest.mark.parametrize("case", ["as it is", "numba wanted", "another source", "old processor"])
def test_the_form_of_the_kernels_is_the_one_that_would_be_loaded(
    case: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    digest = form.source_digest()
    monkeypatch.setenv(form.VARIABLE, form.NUMBA if case == "numba wanted" else "")
    if case == "another source":
        monkeypatch.setattr(form, "source_digest", lambda: digest + 1)
    if case == "old processor":
        monkeypatch.setattr(form, "_processor_flags", lambda: {"sse4_2"})
    assert form.form_without_loading() == form.form_here()
    assert case == "as it is" or form.form_without_loading() == form.NUMBA
