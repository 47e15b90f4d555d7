"""`cordwood clean` as a user runs it: in a process of its own, by its report and exit code."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_CLEAN_SECONDS_MAX = 900


@dataclass(frozen=True, slots=True, kw_only=True)
class Cleaning:
    """Output of one run of `cordwood clean --json`."""

    exit_code: int
    report: dict[str, Any]
    errors: str


def run_clean(
    log_dirs: Sequence[Path | str],
    *options: str,
    now_ms: int,
    server_properties: Path | None = None,
) -> Cleaning:
    """Cleans stopped log directories as Kafka would have done at `now_ms`, without a question.

    Raises:
        AssertionError: the command failed, or its standard output is not one JSON document.
    """
    given = [str(path) for path in log_dirs]
    if server_properties is not None:
        given += ["--server-properties", str(server_properties)]
    command = [sys.executable, "-m", "cordwood", "clean", *given, "--now", str(now_ms), "--json"]
    command.append("--yes")
    done = subprocess.run(
        [*command, *options],
        capture_output=True,
        text=True,
        timeout=_CLEAN_SECONDS_MAX,
        check=False,
    )
    words = f"exit {done.returncode}\n{done.stdout[-3000:]}\n{done.stderr[-3000:]}"
    assert done.returncode == 0, words
    try:
        report = json.loads(done.stdout)
    except ValueError:
        raise AssertionError(f"standard output is not JSON: {words}") from None
    return Cleaning(exit_code=done.returncode, report=report, errors=done.stderr)


def digest_tree(top: Path) -> dict[str, str]:
    """Of each file below `top`: its bytes' digest, mode, owner and modification time."""
    seen = {}
    for path in sorted(top.rglob("*")):
        if not path.is_file() or path.name == ".lock":
            continue
        stat = os.stat(path)
        digest = hashlib.sha256(path.read_bytes()).hexdigest()
        facts = f"{stat.st_mode:o} {stat.st_uid}:{stat.st_gid} {stat.st_mtime_ns}"
        seen[str(path.relative_to(top))] = f"{digest} {facts}"
    return seen
