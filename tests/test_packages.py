"""What is published: the sdist, the plain wheel, and what each is made from."""

from __future__ import annotations

import hashlib
import os
import re
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from email.parser import HeaderParser
from pathlib import Path

import pytest

from cordwood import __version__

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
REQUIRES = "from hatchling.build import get_requires_for_build_wheel as get; print(get())"


def run(*command: str, cwd: Path = ROOT, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *command],
        cwd=cwd,
        env={**os.environ, "CORDWOOD_COMPILE": "0", **environment},
        capture_output=True,
        text=True,
        check=False,
    )


def build(source: Path, target: Path) -> Path:
    """Makes the sdist, and the wheel of what is in it, in a directory; the unpacked sdist."""
    made = run("-m", "hatchling", "build", "-t", "sdist", "-d", str(target), cwd=source)
    (sdist,) = target.glob("*.tar.gz")
    with tarfile.open(sdist) as archive:
        archive.extractall(target / "unpacked", filter="data")
    (unpacked,) = (target / "unpacked").iterdir()
    made = run("-m", "hatchling", "build", "-t", "wheel", "-d", str(target), cwd=unpacked)
    assert made.returncode == 0, made.stderr
    return unpacked


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with the sdist, and the wheel that was built from it."""
    target = tmp_path_factory.mktemp("built")
    build(ROOT, target)
    return target


@pytest.fixture(scope="module")
def wheel(built: Path) -> zipfile.ZipFile:
    (path,) = built.glob("*.whl")
    return zipfile.ZipFile(path)


def digests(directory: Path) -> dict[str, str]:
    return {
        path.name: hashlib.sha256(path.read_bytes()).hexdigest()
        for path in directory.iterdir()
        if path.is_file()
    }


def test_a_build_of_the_sdist_has_the_bytes_of_the_first(built: Path, tmp_path: Path) -> None:
    (unpacked,) = (built / "unpacked").iterdir()
    build(unpacked, tmp_path)
    assert len(digests(built)) == 2
    assert digests(tmp_path) == digests(built)


def test_the_sdist_has_the_sources_the_documentation_and_the_examples(built: Path) -> None:
    (sdist,) = built.glob("*.tar.gz")
    with tarfile.open(sdist) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    wanted = [*(ROOT / "docs").rglob("*.md"), *(ROOT / "examples").glob("*.py")]
    wanted += [*(ROOT / "src").rglob("*.py"), ROOT / "examples" / "kafka-logs.tar.xz"]
    wanted += [ROOT / name for name in ("README.md", "CHANGELOG.md", "LICENSE", "NOTICE")]
    wanted += [ROOT / "tools" / name for name in ("build_hook.py", "build_kernels.py")]
    assert {path.relative_to(ROOT).as_posix() for path in wanted} <= names
    assert not [name for name in names if name.startswith(("tests", "benchmarks"))]
    assert not [name for name in names if name.endswith((".so", ".pyc"))]
    assert sdist.stat().st_size < 5_000_000


def test_the_plain_wheel_is_for_every_python(wheel: zipfile.ZipFile) -> None:
    name = Path(str(wheel.filename)).name
    assert name == f"cordwood-{__version__}-py3-none-any.whl"
    info = f"cordwood-{__version__}.dist-info"
    facts = HeaderParser().parsestr(wheel.read(f"{info}/WHEEL").decode())
    assert (facts["Root-Is-Purelib"], facts.get_all("Tag")) == ("true", ["py3-none-any"])
    assert not [each for each in wheel.namelist() if each.endswith(".so")]


def test_the_version_is_written_in_one_place(wheel: zipfile.ZipFile) -> None:
    assert PROJECT["project"]["dynamic"] == ["version"]
    found = [
        path
        for path in [*(ROOT / "src").rglob("*.py"), ROOT / "pyproject.toml"]
        if re.search(rf"\b{re.escape(__version__)}\b", path.read_text(encoding="utf-8"))
    ]
    assert found == [ROOT / "src" / "cordwood" / "__init__.py"]
    metadata = wheel.read(f"cordwood-{__version__}.dist-info/METADATA").decode()
    assert HeaderParser().parsestr(metadata)["Version"] == __version__


def test_a_build_needs_compilers_only_if_compiled_code_is_asked_for() -> None:
    assert PROJECT["build-system"]["requires"] == ["hatchling==1.27.0"]
    assert run("-c", REQUIRES).stdout == "[]\n"
    asked = run("-c", REQUIRES, CORDWOOD_COMPILE="1").stdout
    assert all(each in asked for each in ("mypy", "numba", "setuptools"))
