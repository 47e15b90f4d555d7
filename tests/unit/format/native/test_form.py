"""The two forms of the kernels, and which of them a process uses."""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from cordwood.format.native import form

SHOW = (
    "import sys; from cordwood.format.native import kernels; "
    "print(kernels.FORM, 'numba' in sys.modules)"
)


def form_of_a_process(**environment: str) -> str:
    return subprocess.run(
        [sys.executable, "-c", SHOW],
        env=os.environ | environment,
        capture_output=True,
        text=True,
        check=True,
    ).stdout.strip()


@pytest.mark.skipif(
    platform.machine() != "x86_64" or shutil.which("cc") is None,
    reason="the kernels are compiled ahead of time on x86-64, with a C compiler",
)
def test_an_installation_from_source_has_the_compiled_form_and_needs_no_numba() -> None:
    assert form_of_a_process(CORDWOOD_KERNELS="") == "compiled False"
    assert form.form_here() == "compiled"


def test_numba_compiles_the_kernels_where_that_is_wanted() -> None:
    assert form_of_a_process(CORDWOOD_KERNELS="numba") == "numba True"


def test_the_compiled_form_of_another_source_is_passed_over(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv(form.VARIABLE, raising=False)
    digest = form.source_digest()
    monkeypatch.setattr(form, "source_digest", lambda: digest + 1)
    assert form.compiled_kernels() is None


def test_a_processor_without_its_instructions_uses_numba(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(form.VARIABLE, raising=False)
    monkeypatch.setattr(form, "_processor_flags", lambda: {"sse4_2"})
    assert form.compiled_kernels() is None
    assert form.form_here() == "numba"


def test_a_compiled_form_that_cannot_be_loaded_is_passed_over(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    package = Path(form.__file__).parent
    copied = tmp_path / "cordwood" / "format" / "native"
    shutil.copytree(package, copied, ignore=shutil.ignore_patterns("__pycache__", "_compiled*"))
    for parent in (copied.parent, copied.parents[1]):
        (parent / "__init__.py").touch()
    (copied / "_compiled.cpython-311-x86_64-linux-gnu.so").write_bytes(b"\x7fELF, cut off")
    (copied / "_compiled.abi3.so").write_bytes(b"\x7fELF, cut off")
    monkeypatch.setenv("NUMBA_DISABLE_JIT", "1")  # what is shown is which form is chosen
    assert form_of_a_process(PYTHONPATH=str(tmp_path), CORDWOOD_KERNELS="") == "numba True"
