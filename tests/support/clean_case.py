"""One run of `cordwood clean` on unusual directories or arguments, and how it has to end.

The rows are in `support.clean_cases`.
"""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from support.log_builder import NOW_MS, LogBuilder, write_log_dir

DAY_MS = 86_400_000
#: Removes the first two of the three segments of every partition.
EXPIRE = ("--defaults", "--set", "log.retention.hours=48", "--now", str(NOW_MS), "--retention-only")
#: A user without any rights, for cases that need a file that cannot be read.
NOBODY = 65534

_HOLD = """
import fcntl, os, sys
held = []
for kind, path in zip(sys.argv[1::2], sys.argv[2::2]):
    held.append(open(path, "r+b" if kind == "write" else "ab"))
    if kind == "lock":
        fcntl.lockf(held[-1], fcntl.LOCK_EX)
print("held", flush=True)
sys.stdin.read()
"""


@dataclass(slots=True, kw_only=True)
class Prepared:
    """A command line, and what a run must leave as it was.

    `in_use` are log directories whose `.lock` another process holds, `open_files` files that it has
    open for writing. With `as_nobody` the command runs without any rights. `cleaned` are partitions
    that must lose their expired segments, `untouched` files and directories that must not change.
    """

    arguments: list[object]
    in_use: list[Path] = field(default_factory=list)
    open_files: list[Path] = field(default_factory=list)
    untouched: list[Path] = field(default_factory=list)
    cleaned: list[Path] = field(default_factory=list)
    as_nobody: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One row: `says` stands in the last line on standard error, or anywhere in the output."""

    name: str
    prepare: Callable[[Path], Prepared]
    exit_code: int
    says: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """End of a command; `exit_code` None when it did not end in time."""

    exit_code: int | None
    output: str
    errors: str

    @property
    def last_line(self) -> str:
        """The last line that says something: of standard error, else of standard output."""
        for text in (self.errors, self.output):
            lines = [line.strip() for line in text.splitlines() if line.strip()]
            if lines:
                return lines[-1]
        return ""


def log_of(name: str) -> LogBuilder:
    """Three segments at offsets 0, 2 and 4: ten days, three days and an hour old."""
    log = LogBuilder(name)
    for number, age_ms in enumerate((10 * DAY_MS, 3 * DAY_MS, 3_600_000)):
        if number:
            log.roll()
        log.batch([(b"a", b"v"), (b"b", b"w" * 50)], timestamp=NOW_MS - age_ms)
    return log


def log_dir(top: Path, *names: str) -> Path:
    """A log directory with these partitions."""
    return write_log_dir(top, [log_of(name) for name in names])


def snapshot_of(path: Path) -> dict[str, tuple[int, int, bytes]]:
    """Of a file, or everything below a directory: type, modification time, content."""
    found = {}
    for each in [path, *sorted(path.rglob("*"))] if path.is_dir() else [path]:
        facts = each.lstat()
        data = b""
        if stat.S_ISREG(facts.st_mode):
            data = each.read_bytes()
        elif stat.S_ISLNK(facts.st_mode):
            data = os.readlink(each).encode()
        changed_ns = 0 if stat.S_ISDIR(facts.st_mode) else facts.st_mtime_ns
        found[str(each)] = (stat.S_IFMT(facts.st_mode), changed_ns, data)
    return found


@contextmanager
def held(prepared: Prepared) -> Iterator[None]:
    """Another process holds the locks and files of a case."""
    arguments = [part for path in prepared.in_use for part in ("lock", str(path / ".lock"))]
    arguments += [part for path in prepared.open_files for part in ("write", str(path))]
    if not arguments:
        yield
        return
    holder = subprocess.Popen(
        [sys.executable, "-c", _HOLD, *arguments], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    try:
        assert holder.stdout is not None, "a pipe was asked for"
        assert holder.stdout.readline() == b"held\n", "the locks are free"
        yield
    finally:
        holder.communicate()


def run_case(case: Case, top: Path, run: Callable[[list[str], bool], Ended]) -> tuple[Ended, str]:
    """Prepares and runs a case; what is wrong with its outcome, or an empty text.

    Args:
        case: the row.
        top: a new directory, which every user may enter.
        run: runs `cordwood clean` with arguments, as the user without rights if the second
            argument is true.
    """
    prepared = case.prepare(top)
    before = {path: snapshot_of(path) for path in prepared.untouched}
    with held(prepared):
        ended = run([str(part) for part in prepared.arguments], prepared.as_nobody)
        wrong = []
        if ended.exit_code != case.exit_code:
            wrong.append(f"exit code {ended.exit_code} instead of {case.exit_code}")
        if "Traceback" in ended.errors:
            wrong.append("a traceback")
        if case.says not in " ".join((ended.errors + " " + ended.output).split()):
            wrong.append(f"it does not say {case.says!r}")
        for path in prepared.untouched:
            if snapshot_of(path) != before[path]:
                wrong.append(f"{path} has changed")
        for path in prepared.cleaned:
            bases = sorted(int(log.stem) for log in path.glob("*.log"))
            if bases != [4]:
                wrong.append(f"{path} has the segments {bases}")
    return ended, "; ".join(wrong)
