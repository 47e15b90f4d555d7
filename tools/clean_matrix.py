"""Prints how `cordwood clean` ends with unusual directories and arguments: a row a case.

    python tools/clean_matrix.py [WORD...]

With words, only the cases whose names have one of them. The rows are in
`support.clean_cases`.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from support.clean_case import NOBODY, Ended, run_case
from support.clean_cases import CASES

_SECONDS_MAX = 20
# The interpreter itself may lie where that user cannot read: it gives up its rights once it runs.
_AS_NOBODY = f"""
import contextvars, ctypes, os, sys, zoneinfo
from cordwood.surfaces.cli.entry import main
import cordwood.surfaces.cli.clean, rich.console
os.setgroups([]); os.setegid({NOBODY}); os.seteuid({NOBODY})
sys.argv[0] = "cordwood"
main()
"""


def run(arguments: list[str], as_nobody: bool) -> Ended:
    """Runs the command in a process of its own."""
    program = ["-m", "cordwood"]
    if as_nobody and os.geteuid() == 0:
        program = ["-c", _AS_NOBODY]
    try:
        done = subprocess.run(
            [sys.executable, *program, "clean", *arguments],
            capture_output=True,
            text=True,
            errors="backslashreplace",
            check=False,
            timeout=_SECONDS_MAX,
            cwd="/",
        )
    except subprocess.TimeoutExpired:
        return Ended(exit_code=None, output="", errors=f"(no end within {_SECONDS_MAX} s)")
    return Ended(exit_code=done.returncode, output=done.stdout, errors=done.stderr)


def main() -> None:
    """Prints the table; exits with 1 if a row is not as it should be."""
    words = sys.argv[1:]
    bad = 0
    for case in CASES:
        if words and not any(word in case.name for word in words):
            continue
        top = Path(tempfile.mkdtemp(prefix="clean-case-"))
        top.chmod(0o755)
        try:
            ended, wrong = run_case(case, top, run)
        finally:
            shutil.rmtree(top, ignore_errors=True)
        bad += bool(wrong)
        code = "none" if ended.exit_code is None else ended.exit_code
        line = ended.last_line.replace(str(top), "")
        print(
            f"| {case.name} | {code} | {line[:160]} |"
            + (f" WRONG: {wrong}".replace(str(top), "") if wrong else "")
        )
    if bad:
        print(f"{bad} rows are not as they should be")
        raise SystemExit(1)


if __name__ == "__main__":
    main()
