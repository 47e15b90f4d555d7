"""The check on import cycles in `make lint`: it fails when a cycle is put in, of any kind."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
TOOL = ROOT / "tools" / "import_cycles.py"


def run_on(*arguments: str | Path) -> tuple[int, str, str]:
    done = subprocess.run(
        [sys.executable, str(TOOL), *map(str, arguments)],
        capture_output=True,
        text=True,
        check=False,
    )
    return done.returncode, done.stdout, done.stderr


def package_of(tmp_path: Path, files: dict[str, str]) -> Path:
    package = tmp_path / "box"
    for name, text in {"__init__.py": "", **files}.items():
        path = package / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return package


def test_the_product_has_no_import_cycle() -> None:
    assert run_on() == (0, "", "")


def test_lint_runs_the_check() -> None:
    recipe = (ROOT / "Makefile").read_text(encoding="utf-8").partition("\nlint:")[2]
    assert "tools/import_cycles.py &&" in recipe.partition("\nformat:")[0]


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("from box.b import value\n", 1),
        ("import os\nimport box.b\n", 2),
        ("import box.b as b\n", 1),
        ("from box import b\n", 1),
        ("from . import b\n", 1),
        ("from .b import value\n", 1),
        ("from .b import *\n", 1),
        ("from box import (\n    __doc__,\n    b,\n)\n", 3),
        ("def f():\n    from box.b import value\n    return value\n", 2),
        ("class C:\n    def f(self):\n        import box.b\n", 3),
        (
            "from typing import TYPE_CHECKING\n\nif TYPE_CHECKING:\n    from box.b import value\n",
            4,
        ),
        ("try:\n    pass\nexcept ImportError:\n    from box import b\n", 4),
        ('import importlib\nb = importlib.import_module("box.b")\n', 2),
    ],
)
def test_a_cycle_of_two_files_is_found_however_it_is_imported(
    tmp_path: Path, text: str, line: int
) -> None:
    package = package_of(tmp_path, {"a.py": text, "b.py": "from box.a import x\n"})
    status, out, _ = run_on(package)
    assert status == 1
    assert out == (
        "import cycle (2 files import each other):\n"
        f"  box/a.py:{line} -> box/b.py\n"
        "  box/b.py:1 -> box/a.py\n"
    )


def test_a_cycle_over_packages_is_printed_with_its_shortest_way(tmp_path: Path) -> None:
    package = package_of(
        tmp_path,
        {
            "low/__init__.py": "",
            "low/a.py": "from box.high import c, d\n",
            "high/__init__.py": "",
            "high/c.py": "\nimport box.high.e\n",
            "high/e.py": "from ..low.a import x\n",
            "high/d.py": "from box.high import c\n",
            "alone.py": "from box.low import a\n",
        },
    )
    status, out, _ = run_on(package)
    assert status == 1
    assert out == (
        "import cycle (4 files import each other):\n"
        "  box/high/c.py:2 -> box/high/e.py\n"
        "  box/high/e.py:1 -> box/low/a.py\n"
        "  box/low/a.py:1 -> box/high/c.py\n"
        "  and, in longer cycles: box/high/d.py\n"
    )


def test_two_cycles_are_two_reports(tmp_path: Path) -> None:
    files = {f"{a}.py": f"import box.{b}\n" for a, b in ("ab", "ba", "cd", "dc")}
    status, out, _ = run_on(package_of(tmp_path, files))
    assert status == 1
    assert out.count("import cycle (2 files") == 2


def test_a_package_that_its_own_file_imports_is_a_cycle(tmp_path: Path) -> None:
    package = package_of(
        tmp_path, {"p/__init__.py": "from box.p.a import x\n", "p/a.py": "from box.p import y\n"}
    )
    status, out, _ = run_on(package)
    assert status == 1
    assert "box/p/__init__.py:1 -> box/p/a.py" in out


def test_imports_in_one_direction_are_no_cycle(tmp_path: Path) -> None:
    package = package_of(
        tmp_path,
        {
            "a.py": "from box import b\nfrom box.c import x\n",
            "b.py": "import box.c\n",
            "c.py": "import os\nfrom boxes import a\n",
        },
    )
    assert run_on(package) == (0, "", "")


def test_a_directory_without_files_is_an_error(tmp_path: Path) -> None:
    status, out, err = run_on(tmp_path / "none")
    assert (status, out) == (2, "")
    assert "no Python files" in err


def test_a_deep_chain_of_imports_is_followed_to_its_end(tmp_path: Path) -> None:
    count = 1200  # more than Python recurses
    files = {f"m{n}.py": f"import box.m{n + 1}\n" for n in range(count)}
    files[f"m{count}.py"] = "import box.m0\n"
    status, out, _ = run_on(package_of(tmp_path, files))
    assert status == 1
    assert f"import cycle ({count + 1} files" in out
