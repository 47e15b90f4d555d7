"""Published packages: the sdist, the plain wheel, and their sources."""

from __future__ import annotations

import ast
import hashlib
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from collections.abc import Sequence
from email.parser import HeaderParser
from pathlib import Path

import pytest
import yaml

from cordwood import __version__
from support.release_tool import release_tool
from support.requirements import require

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
TOOL = release_tool()
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
    wanted += [path for path in (ROOT / "packaging").rglob("*") if path.is_file()]
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
    needed = ast.literal_eval(run("-c", REQUIRES).stdout)
    assert needed == PROJECT["project"]["dependencies"], "what the manual pages are made with"
    asked = run("-c", REQUIRES, CORDWOOD_COMPILE="1").stdout
    assert all(each in asked for each in ("mypy", "numba", "setuptools"))


def test_the_wheel_has_the_documentation_the_examples_and_what_to_deploy_with(
    wheel: zipfile.ZipFile,
) -> None:
    names = set(wheel.namelist())
    kinds = {".md", ".py", ".service", ".timer", ".yaml", ".json", ".yml"}
    for folder in ("docs", "examples", "packaging"):
        files = [path for path in (ROOT / folder).rglob("*") if path.suffix in kinds]
        assert {f"cordwood/{path.relative_to(ROOT).as_posix()}" for path in files} <= names
    assert Path(str(wheel.filename)).stat().st_size < 5_000_000


def test_man_finds_the_pages_of_an_installed_wheel(wheel: zipfile.ZipFile, tmp_path: Path) -> None:
    require("man is not installed: run `make setup`", holds=shutil.which("man") is not None)
    venv = tmp_path / "venv"
    python = venv / "bin" / "python"
    for words in (
        ("venv", "-q", "--python", sys.executable, str(venv)),
        ("pip", "install", "-q", "--offline", "--no-deps", "--python", str(python), wheel.filename),
    ):
        done = run("-m", "uv", *map(str, words))
        assert done.returncode == 0, done.stderr
    for page, says in (("cordwood", "COMMANDS"), ("cordwood-clean", "--retention-only")):
        shown = subprocess.run(
            ["man", page],
            env={"PATH": f"{venv / 'bin'}:/usr/bin:/bin", "MANPAGER": "cat", "MANWIDTH": "80"},
            capture_output=True,
            text=True,
            check=False,
        )
        assert shown.returncode == 0, shown.stderr
        assert f"{page} - " in shown.stdout
        assert says in shown.stdout
    assert len(list((venv / "share/man/man1").iterdir())) > 30


def test_a_release_is_for_the_pythons_that_the_project_names() -> None:
    lowest = re.fullmatch(r">=(3\.\d+)", PROJECT["project"]["requires-python"])
    assert lowest
    assert TOOL.pythons()[0] == lowest[1]
    minor = [int(version.partition(".")[2]) for version in TOOL.pythons()]
    assert minor == list(range(minor[0], minor[-1] + 1))


KERNELS = "cordwood/format/native/_compiled.cpython-313-x86_64-linux-gnu.so"
MODULES = [f"cordwood/m{number}.cpython-313-x86_64-linux-gnu.so" for number in range(30)]
OLDER = "cordwood/older.cpython-312-x86_64-linux-gnu.so"
MANYLINUX = "cp313-cp313-manylinux_2_17_x86_64"


def tagged(path: Path, tag: str, files: Sequence[str], *, is_pure: bool) -> Path:
    """A wheel of that name, with a tag and files in it."""
    facts = f"Wheel-Version: 1.0\nRoot-Is-Purelib: {str(is_pure).lower()}\nTag: {tag}\n"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("cordwood-1.dist-info/WHEEL", facts)
        for name in files:
            archive.writestr(name, b"")
    return path


def test_the_tags_of_a_wheel_are_compared_with_what_is_in_it(
    tmp_path: Path, wheel: zipfile.ZipFile
) -> None:
    assert TOOL.faults(Path(str(wheel.filename))) == []
    good = tmp_path / f"cordwood-1-{MANYLINUX}.whl"
    assert TOOL.faults(tagged(good, MANYLINUX, [KERNELS, *MODULES], is_pure=False)) == []


@pytest.mark.parametrize(
    ("tag", "written", "files", "fault"),
    [
        ("cp313-cp313-linux_x86_64", "", [KERNELS, *MODULES], "PyPI refuses"),
        (MANYLINUX, "py3-none-any", [KERNELS, *MODULES], "its name has the tags"),
        (MANYLINUX, "", [KERNELS, OLDER, *MODULES], f"{OLDER} is not for cp313-cp313"),
        (MANYLINUX, "", MODULES, "the kernels are not compiled"),
        (MANYLINUX, "", [KERNELS], "of the request path 1 modules are compiled"),
        (MANYLINUX, "", [], "it is plain, and tagged"),
        ("cp313-cp313-manylinux_2_17_aarch64", "", MODULES, "is not for manylinux"),
    ],
)
def test_a_wheel_with_wrong_tags_is_found(
    tmp_path: Path, tag: str, written: str, files: Sequence[str], fault: str
) -> None:
    path = tmp_path / f"cordwood-1-{tag}.whl"
    faults = TOOL.faults(tagged(path, written or tag, files, is_pure=not files))
    assert any(fault in each for each in faults), faults


def test_compiled_code_in_a_wheel_that_says_it_is_pure_is_found(tmp_path: Path) -> None:
    path = tmp_path / f"cordwood-1-{MANYLINUX}.whl"
    faults = TOOL.faults(tagged(path, MANYLINUX, [KERNELS, *MODULES], is_pure=True))
    assert faults == ["Root-Is-Purelib is true, with 31 libraries"]


def test_the_notes_of_a_release_are_its_section_of_the_changelog() -> None:
    text = "## [Unreleased]\n\n## [0.2.0] - 2026\n\n- new\n\n## [0.1.0]\n\n- old\n"
    assert TOOL.notes(text, "0.2.0") == "- new\n"
    assert TOOL.notes(text, "0.1.0") == "- old\n"
    with pytest.raises(SystemExit, match=r"no section \[0.3.0\]"):
        TOOL.notes(text, "0.3.0")
    changelog = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    assert TOOL.notes(changelog, __version__)


def test_what_an_earlier_release_left_is_replaced_and_nothing_else_is_removed(
    tmp_path: Path,
) -> None:
    made = ("cordwood-1.tar.gz", "cordwood-1-py3-none-any.whl", "notes.md")
    for name in made:
        (tmp_path / name).touch()
    TOOL.empty(tmp_path)
    assert not list(tmp_path.iterdir())
    for name in (*made, "thesis.txt"):
        (tmp_path / name).touch()
    with pytest.raises(SystemExit, match=r"has other files \(thesis\.txt\)"):
        TOOL.empty(tmp_path)
    assert len(list(tmp_path.iterdir())) == 4


@pytest.mark.parametrize(("option", "code"), [("--help", 0), ("--plian", 2)])
def test_a_release_is_not_built_for_an_option_that_there_is_not(option: str, code: int) -> None:
    with pytest.raises(SystemExit) as ended:
        TOOL.main([option])
    assert ended.value.code == code


def test_a_release_has_nothing_that_is_not_committed(tmp_path: Path) -> None:
    TOOL.require_committed(tmp_path)  # no checkout
    TOOL.git(tmp_path, "init", "-q")
    TOOL.require_committed(tmp_path)
    (tmp_path / "draft.md").touch()
    with pytest.raises(SystemExit, match=r"commit or remove first:\n\?\? draft\.md"):
        TOOL.require_committed(tmp_path)


CONDA_NAMES = {"prometheus_client": "prometheus-client", "python-xxhash": "xxhash"}


def test_the_recipe_for_conda_has_the_version_and_the_requirements_of_the_project() -> None:
    recipe = yaml.safe_load((ROOT / "packaging/conda/recipe.yaml").read_text(encoding="utf-8"))
    assert recipe["context"]["version"] == __version__
    assert recipe["requirements"]["host"][2:] == ["hatchling ==1.27.0"]
    platform, python, *rest = recipe["requirements"]["run"]
    lowest = PROJECT["project"]["requires-python"]
    assert (platform, python) == ("__linux", f"python {lowest}")
    named = [each.split() for each in rest]
    found = {CONDA_NAMES.get(name, name) + bound for name, bound in named}
    assert found == set(PROJECT["project"]["dependencies"])
    ((command, function),) = PROJECT["project"]["scripts"].items()
    assert recipe["build"]["python"]["entry_points"] == [f"{command} = {function}"]
