"""Makes .venv with the `cordwood` command in it, and what the tests need: `make setup`.

Runs with any Python 3.11 or newer, and needs nothing that is not in the standard library. On
Debian, missing system packages are installed when root, else named. A second run is a no-op of a
few milliseconds: the stamp in .venv holds a digest of everything the environment is made from.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
VENV = ROOT / ".venv"
STAMP = VENV / ".cordwood-setup"
INPUTS = (
    "pyproject.toml",
    "requirements/dev.lock",
    "requirements/bootstrap.txt",
    "tools/setup.py",
    "tools/build_hook.py",
    "tools/build_kernels.py",
    "tools/realkafka/pom.xml",
    "tests/support/object_storage/versitygw/go.mod",
    "src/cordwood/format/native/*.py",
    "src/cordwood/format/native/source/*.py",
)
DEBIAN_PACKAGES = {
    "javac": "openjdk-17-jdk-headless",
    "mvn": "maven",
    "kcat": "kcat",
    "bwrap": "bubblewrap",
    "groff": "groff-base",
    "ip": "iproute2",
    "man": "man-db",
    "systemd-analyze": "systemd",
}


def _digest() -> str:
    digest = hashlib.sha256(sys.version.encode() + str(ROOT).encode())
    for pattern in INPUTS:
        for path in sorted(ROOT.glob(pattern)):
            digest.update(path.read_bytes())
    return digest.hexdigest()


def _run(*command: str, **environment: str) -> None:
    subprocess.run(command, check=True, cwd=ROOT, env=os.environ | environment)


def _system_packages() -> None:
    missing = [package for tool, package in DEBIAN_PACKAGES.items() if not shutil.which(tool)]
    python = f"python{sys.version_info.major}.{sys.version_info.minor}"
    try:
        import ensurepip  # noqa: F401, PLC0415
    except ImportError:
        missing.append(f"{python}-venv")
    may_install = os.geteuid() == 0 and shutil.which("apt-get")
    # Without these, numba compiles the kernels.
    if may_install and not shutil.which("cc"):
        missing += ["gcc", "libc6-dev"]
    if may_install and not Path(sysconfig.get_paths()["include"], "Python.h").exists():
        missing.append(f"{python}-dev")
    if not missing:
        return
    if not may_install:
        sys.exit(f"setup: please install these packages first: {' '.join(missing)}")
    print(f"setup: installing {' '.join(missing)}", flush=True)
    quiet = {"DEBIAN_FRONTEND": "noninteractive"}
    _run("apt-get", "-qq", "update", **quiet)
    _run("apt-get", "-qq", "install", "-y", "--no-install-recommends", *missing, **quiet)


def main() -> None:
    if sys.version_info < (3, 11):  # noqa: UP036  # run by whatever Python is there
        sys.exit(f"setup: Python 3.11 or newer is needed; this is {sys.version.split()[0]}")
    wanted = _digest()
    if STAMP.exists() and STAMP.read_text() == wanted:
        return
    _system_packages()
    print("setup: making .venv (a few minutes the first time)", flush=True)
    _run(sys.executable, "-m", "venv", str(VENV))
    python = str(VENV / "bin" / "python")
    _run(python, "-m", "pip", "install", "-q", "-r", "requirements/bootstrap.txt")
    uv = (python, "-m", "uv", "pip")
    # Bytecode at once: the first commands start twice as fast, also where Python may not write it.
    sync = ("sync", "-q", "--require-hashes", "--compile-bytecode")
    _run(*uv, *sync, "--python", python, "requirements/dev.lock")
    _run(*uv, "install", "-q", "--python", python, "-r", "requirements/bootstrap.txt")
    _run(*uv, "install", "-q", "--python", python, "--no-deps", "--no-build-isolation", "-e", ".")
    _run(python, "-m", "compileall", "-q", "src")
    print("setup: preparing Spark's classes for quick starts", flush=True)
    maker = [python, "-m", "cordwood.cleanup.engine.spark.archive_maker"]
    if subprocess.run(maker, cwd=ROOT, check=False).returncode:
        print("setup: there is no archive of them: Spark starts as slowly as without", flush=True)
    print("setup: fetching Apache Kafka, with which the tests compare", flush=True)
    fetcher = [python, "-m", "support.kafka_programs"]
    tests = os.environ | {"PYTHONPATH": str(ROOT / "tests")}
    if subprocess.run(fetcher, cwd=ROOT, env=tests, check=False).returncode:
        print("setup: it is not there: tests that need it try again, then fail or skip", flush=True)
    print("setup: building the S3 server of the tests (minutes the first time)", flush=True)
    builder = [python, "-m", "support.object_storage.program"]
    if subprocess.run(builder, cwd=ROOT, env=tests, check=False).returncode:
        print("setup: it is not there: tests that need it try again, then fail or skip", flush=True)
    STAMP.write_text(wanted)
    print("setup: done; the command is .venv/bin/cordwood", flush=True)


if __name__ == "__main__":
    main()
