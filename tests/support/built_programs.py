"""Programs in other languages that tests build from sources, once, below `~/.cache/cordwood`."""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path

from cordwood.model.errors import CordwoodError
from support.downloads import DOWNLOAD_ATTEMPTS, DOWNLOAD_SECONDS_MAX


class ProgramUnavailableError(CordwoodError):
    """A program, or what builds or runs it, is not on this machine and cannot be fetched."""


class ProgramBuildError(CordwoodError):
    """A step of a build failed; the last words of the step are in the text."""


def built(
    source: Path,
    build: Callable[[Path, Path], None],
    inputs: Sequence[str] | None = None,
    *,
    kind: str,
) -> Path:
    """The directory of a built program; `build(source, target)` is called where it is not there.

    It is built again when its sources change.

    Args:
        source: the directory of its sources, in a source checkout.
        build: writes into an empty directory.
        inputs: the files of `source` that it is built from, or all.
        kind: what programs it is one of: the name of their directory below the cache.

    Raises:
        ProgramUnavailableError: a source, a tool or the network is missing.
        ProgramBuildError: the build failed.
    """
    name = source.name
    if not source.is_dir():
        raise ProgramUnavailableError(
            f"{source} is missing: run from a source checkout of Cordwood"
        )
    digest = hashlib.sha256()
    for path in sorted(source / each for each in inputs or os.listdir(source)):
        digest.update(path.name.encode() + b"\0" + path.read_bytes() + b"\0")
    home = Path.home() / ".cache" / "cordwood" / kind
    target = home / f"{name}-{digest.hexdigest()[:16]}"
    if target.exists():
        return target
    home.mkdir(parents=True, exist_ok=True)
    with (home / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not target.exists():
            partial = home / f"{name}.partial"
            shutil.rmtree(partial, ignore_errors=True)
            partial.mkdir()
            build(source, partial)
            partial.rename(target)
    return target


def need(tool: str, what_to_do: str) -> None:
    """Checks that a program is there.

    Raises:
        ProgramUnavailableError: it is not on PATH.
    """
    if shutil.which(tool) is None:
        raise ProgramUnavailableError(f"`{tool}` is not on PATH: {what_to_do}")


def fetch(command: Sequence[str], directory: Path) -> None:
    """Runs what may need the network, again if it failed.

    Raises:
        ProgramUnavailableError: it fails each time: without it there is no program.
    """
    for attempts_left in reversed(range(DOWNLOAD_ATTEMPTS)):
        try:
            run(command, directory)
        except ProgramBuildError as error:
            if not attempts_left:
                raise ProgramUnavailableError(str(error)) from error
        else:
            return


def run(command: Sequence[str], directory: Path) -> str:
    """Runs a step of a build; what it printed.

    Raises:
        ProgramBuildError: it failed.
    """
    try:
        done = subprocess.run(
            command,
            cwd=directory,
            env=os.environ | {"GOTOOLCHAIN": "local"},
            capture_output=True,
            text=True,
            timeout=DOWNLOAD_SECONDS_MAX,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise ProgramBuildError(f"{command[0]}: {error}") from error
    if done.returncode != 0:
        said = (done.stdout + done.stderr).strip()[-1500:]
        raise ProgramBuildError(f"`{' '.join(command[:3])}` failed: {said}")
    return done.stdout
