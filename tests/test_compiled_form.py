"""The compiled form of the request path: how it is made, and which processes use it."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
BUILD = ROOT / "tools" / "build_modules.py"
#: As in the Makefile: a copy of the same source is not compiled again.
COPY = ROOT / "build" / "compiled"
SHOW = (
    "from cordwood.serving.compiled_form import request_path_form; "
    "import cordwood.storage.log.partition_log as log; "
    "print(request_path_form(), log.__file__.rpartition('.')[2])"
)


def run(*command: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *command],
        cwd=ROOT,
        env=os.environ | environment,
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.fixture(scope="module")
def compiled() -> Path:
    if shutil.which("cc") is None and os.environ.get("CI", "").lower() != "true":
        pytest.skip("NO C COMPILER: THE COMPILED FORM IS NOT TESTED")
    done = run(str(BUILD), str(COPY))
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]
    return COPY


def test_a_process_uses_the_form_that_it_finds_first(compiled: Path) -> None:
    assert run("-c", SHOW, PYTHONPATH=str(compiled)).stdout.split() == ["compiled", "so"]
    assert run("-c", SHOW, PYTHONPATH="").stdout.split() == ["Python", "py"]
    said = run("-m", "cordwood", "--version", PYTHONPATH=str(compiled)).stdout
    assert re.fullmatch(r"cordwood [\d.]+ \(kernels: \w+; request path: compiled\)\n", said)


def test_a_copy_of_the_same_source_is_not_compiled_again(compiled: Path) -> None:
    before = {path: path.stat().st_mtime_ns for path in compiled.rglob("*.so")}
    done = run(str(BUILD), str(compiled))
    assert (done.returncode, done.stdout) == (0, "")
    assert {path: path.stat().st_mtime_ns for path in compiled.rglob("*.so")} == before


def test_without_a_c_compiler_there_is_a_reason_and_nothing_else(tmp_path: Path) -> None:
    target = tmp_path / "copy"
    done = run(str(BUILD), str(target), CC="/no/such/compiler")
    assert done.returncode == 1
    assert done.stdout == (
        "the request path is not compiled: FileNotFoundError: "
        "the C compiler '/no/such/compiler' is not there\n"
    )
    assert not target.exists()


@pytest.mark.nightly  # compiles all once more
def test_a_wheel_has_both_forms(compiled: Path, tmp_path: Path) -> None:
    build = ["-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)]
    done = run(*build, CORDWOOD_COMPILE="1")
    assert done.returncode == 0, done.stderr
    (wheel,) = tmp_path.iterdir()
    assert not wheel.name.endswith("-any.whl")
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
    made = {path.relative_to(compiled).as_posix() for path in compiled.rglob("*.so")}
    assert len(made) > 30
    assert made <= names
    assert {re.sub(r"\.cpython.*", ".py", name) for name in made if "/" in name} <= names | {
        "cordwood/format/native/_compiled.py"
    }
    target = tmp_path / "installed"
    zipfile.ZipFile(wheel).extractall(target)
    assert run("-c", SHOW, PYTHONPATH=str(target)).stdout.split() == ["compiled", "so"]
